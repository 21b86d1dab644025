"""Sessions, titles, listings and keys as Python callers see them."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest
from hermes_state import SessionDB, workspace_key

pytestmark = pytest.mark.each_engine


def test_a_session_comes_back_as_its_row(db: SessionDB) -> None:
    before = time.time()
    assert db.create_session("s", "cli", model="large", model_config={"é": [1, 2.0]}, cwd="/home/ada") == "s"
    row = db.get_session("s")
    assert list(row)[:2] == ["id", "source"]
    assert len(row) == 46
    assert row["model_config"] == '{"\\u00e9": [1, 2.0]}'
    assert before <= row["started_at"] <= time.time()
    assert (row["archived"], row["ended_at"], row["title"]) == (0, None, None)
    assert db.get_session("nobody") is None
    assert db.get_session(None) is None


def test_the_first_writer_wins(db: SessionDB) -> None:
    db.create_session("s", "cli", model="one", model_config={})
    assert db.get_session("s")["model_config"] is None
    assert db.ensure_session("s", "web", "two", cwd="/x") == "s"
    row = db.get_session("s")
    assert (row["source"], row["model"], row["cwd"]) == ("cli", "one", "/x")


def test_ends_and_reopens(db: SessionDB) -> None:
    db.create_session("s", "cli")
    assert db.end_session("s", "first") is None
    db.end_session("s", "second")
    assert db.get_session("s")["end_reason"] == "first"
    db.reopen_session("s")
    assert db.get_session("s")["ended_at"] is None


def test_what_cannot_be_stored_is_refused(db: SessionDB) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        db.create_session("s", "cli", parent_session_id="nobody")
    with pytest.raises(sqlite3.IntegrityError):
        db.create_session("s", None)
    with pytest.raises(UnicodeEncodeError):
        db.create_session("s\ud800", "cli")
    with pytest.raises(sqlite3.ProgrammingError):
        db.create_session("s", "cli", cwd=Path("/x"))
    with pytest.raises(TypeError):
        db.create_session("s", "cli", model_config={"set": {1}})
    assert db.session_count() == 0
    db.create_session("s", "cli", model=5, model_config={"half": "\ud800"})
    assert db.get_session("s")["model"] == "5"
    assert db.get_session("s")["model_config"] == '{"half": "\\ud800"}'


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


def test_listings(db: SessionDB) -> None:
    for name, source in (("a", "cli"), ("b", "web"), ("c", "cli")):
        db.create_session(name, source, system_prompt="long", cwd=f"/home/{name}")
        db.append_message(name, "user", f"message of {name}\n")
    rows = db.list_sessions_rich()
    assert [row["id"] for row in rows] == ["c", "b", "a"]
    assert list(rows[0])[-2:] == ["last_active", "preview"]
    assert rows[0]["preview"] == "message of c"
    assert [row["id"] for row in db.list_sessions_rich("cli", limit=1, offset=1)] == ["a"]
    assert [row["id"] for row in db.list_sessions_rich(exclude_sources=["cli"])] == ["b"]
    assert db.list_sessions_rich(exclude_sources=["cli", None]) == []
    assert [row["id"] for row in db.list_sessions_rich(cwd_prefix="/home/b/")] == ["b"]
    assert [row["id"] for row in db.list_sessions_rich(order_by_last_active=True, id_query="A")] == ["a"]
    assert "system_prompt" not in db.list_sessions_rich(compact_rows=True)[0]
    assert len(db.list_sessions_rich(limit=-1)) == 3
    assert db.list_sessions_rich(limit=0) == []
    for limit in (None, "many", 2.5):
        with pytest.raises(sqlite3.IntegrityError, match="datatype mismatch"):
            db.list_sessions_rich(limit=limit)
    assert db.session_count() == 3
    assert db.session_count(source="cli", min_message_count=1, exclude_children=True) == 2
    assert db.session_count(exclude_sources=["cli"]) == 1


def test_a_compressed_conversation_is_listed_as_it_stands_now(db: SessionDB) -> None:
    db.create_session("root", "cli")
    db.end_session("root", "compression")
    db.create_session("tip", "cli", parent_session_id="root")
    (row,) = db.list_sessions_rich()
    assert (row["id"], row["_lineage_root_id"]) == ("tip", "root")
    assert list(row)[-1] == "_lineage_root_id"
    (row,) = db.list_sessions_rich(project_compression_tips=False)
    assert row["id"] == "root"
    assert "_lineage_root_id" not in row


def test_keys(db: SessionDB) -> None:
    for value, stored in (("x", "x"), ("", ""), (5, "5"), (True, "1"), (None, None), (b"\xff", b"\xff")):
        db.set_meta("key", value)
        assert db.get_meta("key") == stored
    assert db.get_meta("absent") is None
    with pytest.raises(sqlite3.ProgrammingError):
        db.set_meta("key", ["no"])
    with pytest.raises(UnicodeEncodeError):
        db.set_meta("key", "\udc00")


@pytest.mark.parametrize("engine", ["file"], indirect=True)
def test_a_key_is_set_on_the_cursor_of_a_caller(db: SessionDB) -> None:
    db.set_meta("key", None)
    count = db._write_count
    db._conn.execute("BEGIN")
    db.set_meta("key", "undone", cursor=db._conn.cursor())
    db._conn.execute("ROLLBACK")
    db.set_meta("key", "by cursor", cursor=db._conn.cursor())
    assert db.get_meta("key") == "by cursor"
    assert db._write_count == count


def test_the_workspace_of_a_row() -> None:
    assert workspace_key({"git_repo_root": " /repo\x1f", "cwd": "/x"}) == "/repo"
    assert workspace_key({"git_repo_root": "  ", "cwd": "/x"}) == "/x"
    assert workspace_key({"cwd": None}) is None
    with pytest.raises(AttributeError):
        workspace_key({"cwd": 5})
