"""Titles as Python callers see them."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import at_once
from hermes_state import SessionDB

pytestmark = pytest.mark.each_engine


def titled(db: SessionDB, name: str, title: str) -> None:
    db.create_session(name, "cli")
    assert db.set_session_title(name, title) is True


def test_titles(db: SessionDB) -> None:
    db.create_session("a", "cli")
    db.create_session("b", "cli")
    assert SessionDB.sanitize_title("  Harbour\u200b\tplan\x1f ") == "Harbour plan"
    assert SessionDB.sanitize_title("half \ud800") == "half \ufffd"
    assert SessionDB.sanitize_title("") is None
    assert SessionDB.sanitize_title(None) is None
    with pytest.raises(TypeError):
        SessionDB.sanitize_title(5)
    with pytest.raises(ValueError, match=r"(?i)too long.*101.*100"):
        db.set_session_title("nobody", "x" * 101)
    assert db.set_session_title("a", " Harbour ") is True
    assert db.set_session_title("nobody", None) is False
    with pytest.raises(ValueError, match=r"already in use.*a.*cli.*not archived"):
        db.set_session_title("b", "Harbour")
    assert db.get_session_title("a") == "Harbour"
    assert db.get_session_title("b") is None
    assert db.set_session_title("a", None) is True
    assert db.get_session_title("a") is None


def test_titles_that_collide(db: SessionDB) -> None:
    for name in ("A", "B", "C"):
        db.create_session(name, "cli")
    db.set_session_title("A", "Harbour plan")
    titled(db, "Z", "100Xadone #7")
    assert db.set_auto_title_if_empty("B", "Harbour plan") is True
    assert db.get_session_title("B") == "Harbour plan #2"
    with pytest.raises(ValueError, match=r"'Harbour plan' is already in use by session A \(source cli, not archived\)"):
        db.set_session_title("C", "Harbour plan")
    db.end_session("A", "compression")
    db.create_session("A2", "cli", parent_session_id="A")
    assert db.set_session_title("A2", "Harbour plan") is True
    assert db.get_session_title("A") is None
    assert db.resolve_session_by_title("Harbour plan") == "A2"
    assert db.get_next_title_in_lineage("100%_done") == "100%_done"


def test_titles_that_nobody_asked_for(db: SessionDB) -> None:
    titled(db, "a", "x" * 100)
    db.create_session("b", "cli")
    assert db.set_auto_title_if_empty("b", None) is True
    assert db.set_auto_title_if_empty("b", " \u200b") is True
    assert db.get_session_title("b") is None
    with pytest.raises(ValueError, match=r"(?i)too long.*101.*100"):
        db.set_auto_title_if_empty("nobody", "x" * 101)
    with pytest.raises(TypeError):
        db.set_auto_title_if_empty("b", 5)
    assert db.set_auto_title_if_empty("b", "x" * 100) is True
    assert db.get_session_title("b") == "x" * 97 + " #2"
    assert db.set_auto_title_if_empty("b", "other") is False
    assert db.set_auto_title_if_empty("nobody", "other") is False
    db.create_session("c", "cli")
    assert db.set_auto_title_if_empty("c", "half \udc00") is True
    assert db.get_session_title("c") == "half \ufffd"


def test_finding_by_title(db: SessionDB) -> None:
    titled(db, "a", "Plan")
    titled(db, "b", "Plan #٤")
    db.set_session_archived("b", True)
    row = db.get_session_by_title("Plan #٤")
    assert (row["id"], row["archived"], len(row)) == ("b", 1, 46)
    assert db.get_session_by_title("plan") is None
    assert db.get_session_by_title(None) is None
    assert db.resolve_session_by_title("Plan") == "b"
    assert db.resolve_session_by_title("plan") is None
    with pytest.raises(AttributeError):
        db.resolve_session_by_title(None)
    assert db.get_next_title_in_lineage("Plan") == "Plan #5"
    assert db.get_next_title_in_lineage("Plan #2\n") == "Plan #5"
    assert db.get_next_title_in_lineage("y" * 200) == "y" * 200
    for no_text in (None, 5, b"Plan"):
        with pytest.raises(TypeError):
            db.get_next_title_in_lineage(no_text)


def test_of_competing_processes_each_gets_a_title_of_its_own(db: SessionDB, location: Path | str) -> None:
    names = [f"s{number}" for number in range(4)]
    for name in names:
        db.create_session(name, "cli")
        db.create_session(f"{name}-manual", "cli")
    program = """
import sys
from hermes_state import SessionDB
with SessionDB(sys.argv[1]) as db:
    print("open", flush=True)
    sys.stdin.readline()
    db.set_auto_title_if_empty(sys.argv[2], "Race")
    try:
        print(db.set_session_title(sys.argv[2] + "-manual", "Prize"))
    except ValueError as error:
        print("already in use" in str(error) and "refused")
"""
    answers = at_once(program, [(str(location), name) for name in names])
    assert sorted(db.get_session_title(name) or "" for name in names) == ["Race", "Race #2", "Race #3", "Race #4"]
    assert sorted(answers) == ["True", "refused", "refused", "refused"]
    assert db.get_session_by_title("Prize") is not None


@pytest.mark.parametrize("engine", ["file"], indirect=True)
def test_ancestors_on_a_connection_of_the_caller(db: SessionDB) -> None:
    for name, parent in (("a", None), ("b", "a"), ("c", "b"), ("d", "c")):
        db.create_session(name, "cli", parent_session_id=parent)
        db.end_session(name, "compression" if name != "c" else "done")
    db.create_session("branch", "cli", parent_session_id="b", model_config={"_branched_from": "b"})
    db.create_session("tool", "tool", parent_session_id="b")

    def leads(ancestor: str | None, descendant: str | None) -> bool:
        return SessionDB._is_compression_ancestor(db._conn, ancestor_id=ancestor, descendant_id=descendant)

    assert leads("a", "b")
    assert leads("a", "c")
    assert leads("b", "tool")
    assert not leads("c", "a")
    assert not leads("a", "d"), "c did not end by compression"
    assert not leads("a", "branch")
    assert not leads("a", "nobody")
    for ancestor, descendant in (("a", "a"), ("", "b"), ("a", None), (None, None)):
        assert not leads(ancestor, descendant)
    with pytest.raises(TypeError):
        SessionDB._is_compression_ancestor(db._conn, "a", "b")
    db._conn.execute("UPDATE sessions SET parent_session_id = 'b' WHERE id = 'a'")
    assert not leads("nobody", "c"), "circles end"
