"""Deleting, pruning and archiving sessions as Python callers see them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hermes_state import SessionDB

pytestmark = pytest.mark.each_engine

Outside = Callable[[str], object]


def everything(db: SessionDB) -> set[object]:
    return {row["id"] for row in db.search_sessions(limit=-1)}


def test_deletion_by_id(db: SessionDB, tmp_path: Path) -> None:
    db.create_session("p", "cli")
    db.append_message("p", "user", "hello")
    db.create_session("agent", "cli", parent_session_id="p", model_config={"_delegate_from": "p"})
    db.create_session("kid", "cli", parent_session_id="p")
    (tmp_path / "p.json").touch()
    (tmp_path / "request_dump_agent_1.json").touch()
    (tmp_path / "kid.json").touch()
    assert db.delete_session("nobody", tmp_path) is False
    assert db.delete_session(None) is False
    with pytest.raises(TypeError):
        db.delete_session("p", sessions_dir=str(tmp_path))
    assert everything(db) == {"p", "agent", "kid"}
    assert db.delete_session("p", sessions_dir=tmp_path) is True
    assert everything(db) == {"kid"}
    assert db.get_session("kid")["parent_session_id"] is None
    assert [path.name for path in tmp_path.glob("*.json")] == ["kid.json"]
    assert db.message_count() == 0
    with pytest.raises(UnicodeEncodeError):
        db.delete_session("\udc00")


def test_deletion_of_several(db: SessionDB) -> None:
    for name in ("a", "b", "c"):
        db.create_session(name, "cli")
    writes = db._write_count
    for nothing in (None, [], [""], [None, 5], iter([])):
        assert db.delete_sessions(nothing) == 0
    assert db._write_count == writes
    assert db.delete_sessions(name for name in ("a", "a", "x", "", None, "b")) == 2
    with pytest.raises(UnicodeEncodeError):
        db.delete_sessions(["c", "\ud800"])
    assert everything(db) == {"c"}


def test_empty_sessions(db: SessionDB) -> None:
    for name in ("bare", "said", "ended"):
        db.create_session(name, "cli")
    db.append_message("said", "user", "hello")
    db.end_session("ended", "done")
    assert db.count_empty_sessions() == 1
    assert db.delete_empty_sessions() == 1
    assert db.delete_session_if_empty("said") is False
    assert db.delete_session_if_empty("bare") is True
    assert everything(db) == {"said"}


def test_what_a_prune_takes(db: SessionDB, outside: Outside, tmp_path: Path) -> None:
    for name in ("old", "new", "live"):
        db.create_session(name, "cli", model="Large")
        db.append_message(name, "user", "hello")
    for name in ("old", "new"):
        db.end_session(name, "done")
    outside(f"UPDATE sessions SET started_at = {time.time() - 100 * 86400} WHERE id <> 'new'")
    (row,) = db.list_prune_candidates(90)
    assert list(row) == ["id", "source", "title", "model", "started_at", "ended_at", "message_count", "archived"]
    assert (row["id"], row["message_count"], row["archived"]) == ("old", 1, 0)
    assert [row["id"] for row in db.list_prune_candidates()] == ["old", "new"]
    assert [row["id"] for row in db.list_prune_candidates(90, started_before=time.time() + 1)] == ["old", "new"]
    assert db.list_prune_candidates(source="web") == []
    assert len(db.list_prune_candidates(model_like="large", min_messages=1, max_cost=0, archived=0)) == 2
    assert db.list_prune_candidates(archived=True) == db.list_prune_candidates(archived=1) == []
    for bad in ({"ended_before": 1}, {"sessions_dir": tmp_path}, {"min_messages": 1, "abandoned": True}):
        with pytest.raises(TypeError):
            db.list_prune_candidates(**bad)
        with pytest.raises(TypeError):
            db.archive_sessions(**bad)
    with pytest.raises(ValueError, match="archived"):
        db.prune_sessions(archived="yes")
    with pytest.raises(ValueError, match="NaN"):
        db.prune_sessions(started_before=float("nan"))
    (tmp_path / "old.jsonl").touch()
    assert db.prune_sessions(sessions_dir=tmp_path) == 1
    assert not (tmp_path / "old.jsonl").exists()
    assert db.prune_sessions() == 0
    assert db.prune_sessions(None) == 1
    assert everything(db) == {"live"}


def test_archiving(db: SessionDB) -> None:
    db.create_session("root", "cli")
    db.end_session("root", "compression")
    db.create_session("tip", "cli", parent_session_id="root")
    assert db.archive_sessions() == 1
    assert [db.get_session(name)["archived"] for name in ("root", "tip")] == [1, 1]
    assert db.archive_sessions() == 0
    assert db.archive_sessions(archived=None) == 1


def test_clean_ups(db: SessionDB, outside: Outside, tmp_path: Path) -> None:
    db.create_session("ghost", "tui")
    db.end_session("ghost", "tui_close")
    db.create_session("p", "cli")
    db.end_session("p", "compression")
    db.create_session("orphan", "cli", parent_session_id="p")
    db.append_message("orphan", "user", "hello")
    assert db.prune_empty_ghost_sessions() == 0
    assert db.finalize_orphaned_compression_sessions() == 0
    outside(f"UPDATE sessions SET started_at = {time.time() - 8 * 86400}")
    (tmp_path / "ghost.json").touch()
    assert db.prune_empty_ghost_sessions(tmp_path) == 1
    assert list(tmp_path.glob("ghost*")) == []
    assert db.finalize_orphaned_compression_sessions() == 1
    assert db.get_session("orphan")["end_reason"] == "orphaned_compression"


@pytest.mark.parametrize("engine", ["file"], indirect=True)
def test_the_filters_for_raw_sql(db: SessionDB) -> None:
    for name in ("a", "b"):
        db.create_session(name, "cli", cwd=f"/work/{name}")
        db.end_session(name, "done")
    db.set_session_title("a", "Über 100%")
    clause, values = db._prune_filter_where(
        source="cli", title_like="ÜBER 100%", cwd_prefix="/work/", started_after=0, max_messages=3, archived=False
    )
    sql = f"SELECT id FROM sessions WHERE source = ? AND {clause} AND end_reason = ?"
    assert [row[0] for row in db._conn.execute(sql, ("cli", *values, "done"))] == ["a"]
    assert db._prune_filter_where()[1] == []
    with pytest.raises(TypeError):
        db._prune_filter_where(1)
    with pytest.raises(TypeError):
        db._prune_filter_where(older_than_days=3)


def test_files_of_a_session_are_found_by_name_alone(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    for name in ("a.json", "a.jsonl", "request_dump_a_.json", "request_dump_a_1_2.json", "a.txt", "ab.json"):
        (folder / name).touch()
    (tmp_path / "out.json").touch()
    (folder / "b.json").mkdir()
    assert SessionDB._remove_session_files(None, "a") is None
    for name in ("../out", "*", "[a]", "**", "a\0", "b", ""):
        SessionDB._remove_session_files(folder, name)
    assert len(list(folder.iterdir())) == 7
    assert (tmp_path / "out.json").exists()
    SessionDB._remove_session_files(folder, "a")
    assert sorted(path.name for path in folder.iterdir()) == ["a.txt", "ab.json", "b.json"]
    SessionDB._remove_session_files(tmp_path / "missing", "a")
    with pytest.raises(TypeError):
        SessionDB._remove_session_files(str(folder), "a")


def test_a_handle_that_only_looks(db: SessionDB, location: Path | str) -> None:
    db.create_session("s", "cli")
    db.end_session("s", "done")
    with SessionDB(location, read_only=True) as looking:
        for write in (
            lambda: looking.delete_session("s"),
            lambda: looking.delete_sessions(["s"]),
            lambda: looking.delete_empty_sessions(),
            lambda: looking.prune_sessions(None),
            lambda: looking.archive_sessions(),
        ):
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                write()
        assert looking.count_empty_sessions() == 1
        assert len(looking.list_prune_candidates()) == 1
    assert everything(db) == {"s"}
