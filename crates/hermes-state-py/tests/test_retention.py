"""Policies of retention: what a plan lists is what goes, and what was left open is told of."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Callable

import pytest
from hermes_state import SessionDB

DAY = 86_400.0
MONTH = {"rules": [{"older_than": "30d"}]}


def chain(db: SessionDB, outside: Callable[[str], object]) -> None:
    """A chain of which all but the last ended long ago, and one that never ended and whose owner is gone."""
    now = time.time()
    for name, parent, word, days in (
        ("A", None, "aardvark", 40),
        ("B", "A", "buffalo", 40),
        ("C", "B", "cormorant", 40),
        ("D", "C", "dormouse", 2),
        ("E", None, "echidna", 50),
    ):
        db.create_session(name, "cli", parent_session_id=parent)
        ended = now - days * DAY
        db.append_message(name, "user", content=word, timestamp=ended - 60)
        began, end = (ended, "NULL") if name == "E" else (ended - 3600, ended)
        outside(f"UPDATE sessions SET started_at = {began}, ended_at = {end} WHERE id = '{name}'")


def ids(rows: list[dict[str, object]]) -> list[object]:
    return [row["id"] for row in rows]


@pytest.mark.each_engine
def test_a_prune_through_a_chain(db: SessionDB, outside: Callable[[str], object], engine: str) -> None:
    chain(db, outside)
    plan = db.plan_retention(MONTH)
    assert (ids(plan["sessions"]), ids(plan["owner_gone"]), plan["open"]) == (["A", "B", "C"], ["E"], [])
    assert (plan["chosen"], plan["messages"], plan["bytes"]) == (3, 3, len("aardvarkbuffalocormorant"))
    assert ids(db.list_prune_candidates(older_than_days=30)) == ["A", "B", "C"]
    assert db.session_count() == 5
    done = db.apply_retention(MONTH)
    assert done.pop("deleted") == 3 and done == plan
    left = db.get_session("D")
    assert left is not None and (left["parent_session_id"], left["message_count"]) == (None, 1)
    assert db.get_session("E") is not None
    assert db.apply_retention(MONTH)["deleted"] == 0
    found = {
        word: len(db.search_messages(word)) for word in ("aardvark", "buffalo", "cormorant", "dormouse", "echidna")
    }
    assert found == {"aardvark": 0, "buffalo": 0, "cormorant": 0, "dormouse": 1, "echidna": 1}
    if engine == "file":
        assert [tuple(row) for row in db._conn.execute("PRAGMA integrity_check")] == [("ok",)]
        assert list(db._conn.execute("PRAGMA foreign_key_check")) == []
    assert db.apply_retention({"rules": [{"older_than": "30d", "states": ["owner-gone"]}]})["deleted"] == 1
    assert db.get_session("E") is None and db.get_session("D") is not None


@pytest.mark.each_engine
def test_the_contracts_prune_goes_through_a_chain_too(db: SessionDB, outside: Callable[[str], object]) -> None:
    chain(db, outside)
    assert db.prune_sessions(older_than_days=30) == 3
    assert db.prune_sessions(older_than_days=30) == 0
    assert db.get_session("D") is not None and db.get_session("E") is not None


@pytest.mark.each_engine
def test_a_bad_policy_changes_nothing(db: SessionDB, outside: Callable[[str], object]) -> None:
    chain(db, outside)
    for bad, reason in (
        ("", "EOF"),
        ({}, "rules"),
        ({"rules": []}, "has no rules"),
        ({"rules": [{"older_than": 30}]}, "string"),
        ({"rules": [{"older_than": "soon"}]}, "'soon' is no age"),
        ({"rules": [{"older_than": "1d", "states": ["dead"]}]}, "dead"),
    ):
        for method in (db.plan_retention, db.apply_retention):
            with pytest.raises(ValueError, match=reason):
                method(bad)
        assert "error" in db.maybe_apply_retention(bad)
    assert db.session_count() == 5
    assert db.get_meta("last_auto_prune") is None, "the next one tries again"


def test_files_go_along(db: SessionDB, outside: Callable[[str], object], tmp_path: Path) -> None:
    chain(db, outside)
    folder = tmp_path / "sessions"
    folder.mkdir()
    for name in ("A", "D"):
        (folder / f"{name}.jsonl").write_text("{}")
    assert db.apply_retention('{"rules": [{"older_than": "30d"}]}', sessions_dir=folder)["deleted"] == 3
    assert [found.name for found in folder.iterdir()] == ["D.jsonl"]


@pytest.mark.each_engine
def test_it_is_applied_from_time_to_time(db: SessionDB, outside: Callable[[str], object]) -> None:
    chain(db, outside)
    first = db.maybe_apply_retention(MONTH, vacuum=False)
    assert first == {"skipped": False, "pruned": 3, "vacuumed": False}
    assert db.maybe_apply_retention(MONTH)["skipped"]
    assert db.maybe_auto_prune_and_vacuum()["skipped"], "one of the two is enough"
