"""Sessions, listings and keys as Python callers see them."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest
from conftest import at_once
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


def test_a_session_is_created_with_these_keywords_and_no_others(db: SessionDB) -> None:
    for keyword in ("title", "git_branch", "display_name", "origin_json", "started_at"):
        with pytest.raises(TypeError):
            db.create_session("s", "cli", **{keyword: "x"})
        with pytest.raises(TypeError):
            db.ensure_session("s", **{keyword: "x"})
    with pytest.raises(TypeError):
        db.create_session("s", "cli", "model")
    for nobody in ("", None):
        with pytest.raises(ValueError, match="needs an id"):
            db.create_session(nobody, "cli")
    assert db.session_count() == 0
    assert db.ensure_session(session_id="s") == "s"
    assert db.get_session("s")["source"] == "unknown"


def test_resets(db: SessionDB, caplog: pytest.LogCaptureFixture) -> None:
    db.create_session("s", "cli")
    assert db.promote_to_session_reset("s") is True
    assert db.get_session("s")["end_reason"] == "session_reset"
    assert db.promote_to_session_reset("s", reason="again") is False
    db.create_session("t", "cli")
    db.end_session("t", "agent_close")
    assert db.promote_to_session_reset("t", "by hand") is True
    assert db.get_session("t")["end_reason"] == "by hand"
    for nobody in ("nobody", "", None):
        assert db.promote_to_session_reset(nobody) is False
    assert caplog.records == []
    with SessionDB(db.db_path, read_only=True) as looking:
        assert looking.promote_to_session_reset("t") is False
    assert db.promote_to_session_reset("t\ud800") is False
    assert db.promote_to_session_reset(["t"]) is False
    db.close()
    assert db.promote_to_session_reset("t") is False
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 4
    assert all(record.name == "hermes_state" for record in caplog.records)


def test_expiry(db: SessionDB) -> None:
    db.create_session("s", "cli")
    for finalized, stored in ((True, 1), (0, 0), ("yes", 1), (None, 0)):
        assert db.set_expiry_finalized("s", finalized) is None
        assert db.get_session("s")["expiry_finalized"] == stored
    db.set_expiry_finalized("s")
    assert db.get_session("s")["expiry_finalized"] == 1
    count = db._write_count
    db.set_expiry_finalized("")
    db.set_expiry_finalized(None)
    assert db._write_count == count, "no transaction for nobody"


def test_archiving(db: SessionDB) -> None:
    db.create_session("root", "cli")
    db.end_session("root", "compression")
    db.create_session("tip", "cli", parent_session_id="root")
    db.create_session("agent", "cli", parent_session_id="root", model_config={"_delegate_from": "root"})
    assert db.set_session_archived("tip", "yes") is True
    assert [db.get_session(name)["archived"] for name in ("root", "tip", "agent")] == [1, 1, 0]
    assert db.set_session_archived("root", archived=0) is True
    assert [db.get_session(name)["archived"] for name in ("root", "tip")] == [0, 0]
    assert db.set_session_archived("nobody", True) is False


def test_what_is_known_is_updated(db: SessionDB) -> None:
    db.create_session("s", "cli", model="one")
    assert db.update_session_cwd("s", " /x", " main ", git_repo_root="\x1f/x\n") is None
    row = db.get_session("s")
    assert (row["cwd"], row["git_branch"], row["git_repo_root"]) == (" /x", "main", "/x")
    db.update_session_cwd("s", "/y", "", " ")
    row = db.get_session("s")
    assert (row["cwd"], row["git_branch"], row["git_repo_root"]) == ("/y", "main", "/x")
    assert db.update_session_meta("s", "{") is None
    assert (db.get_session("s")["model_config"], db.get_session("s")["model"]) == ("{", "one")
    db.update_session_meta("s", None, model="two")
    assert (db.get_session("s")["model_config"], db.get_session("s")["model"]) == (None, "two")
    assert db.update_system_prompt("s", "prompt") is None
    assert db.update_session_model("s", None) is None
    assert (db.get_session("s")["system_prompt"], db.get_session("s")["model"]) == ("prompt", None)

    db.create_session("t", "cli", cwd="/t")
    assert db.backfill_repo_roots({"/t": "/root", "/y": "/other", "": "/x", "/z": None}) is None
    assert (db.get_session("t")["git_repo_root"], db.get_session("s")["git_repo_root"]) == ("/root", "/x")

    count = db._write_count
    db.update_session_cwd("", "/x")
    db.update_session_cwd("s", "", "other", "/other")
    db.backfill_repo_roots({})
    db.backfill_repo_roots({"": "/x", "/t": ""})
    assert db._write_count == count, "no transaction for nothing"


def test_text_that_is_none_writes_nothing(db: SessionDB) -> None:
    db.create_session("s", "cli", cwd="/x")
    before = db.get_session("s")
    half, folder = "\ud800", Path("/x")
    for bad, error in ((half, UnicodeEncodeError), (folder, sqlite3.ProgrammingError)):
        for call in (
            lambda bad: db.end_session("s", bad),
            lambda bad: db.end_session(bad, "x"),
            db.reopen_session,
            db.set_expiry_finalized,
            lambda bad: db.set_session_archived(bad, True),
            lambda bad: db.update_session_cwd("s", bad),
            lambda bad: db.update_session_cwd("s", "/y", bad),
            lambda bad: db.update_session_cwd("s", "/y", None, bad),
            lambda bad: db.backfill_repo_roots({"/x": "/y", bad: "/z"}),
            lambda bad: db.backfill_repo_roots({"/x": "/y", "/z": bad}),
            lambda bad: db.update_session_meta("s", bad),
            lambda bad: db.update_session_meta("s", "x", bad),
            lambda bad: db.update_system_prompt("s", bad),
            lambda bad: db.update_session_model("s", bad),
            lambda bad: db.set_session_title(bad, "x"),
            lambda bad: db.set_auto_title_if_empty(bad, "x"),
            db.get_session,
            db.get_session_title,
            db.get_session_by_title,
            db.resolve_session_by_title,
            db.get_next_title_in_lineage,
            db.resolve_session_id,
            db.get_compression_tip,
            db._get_session_rich_row,
        ):
            with pytest.raises(error):
                call(bad)
    assert db.get_session("s") == before


def test_a_store_that_is_only_looked_at_refuses_writes(db: SessionDB) -> None:
    db.create_session("s", "cli", cwd="/x")
    with SessionDB(db.db_path, read_only=True) as looking:
        for call in (
            lambda: looking.create_session("t", "cli"),
            lambda: looking.end_session("s", "x"),
            lambda: looking.reopen_session("s"),
            lambda: looking.set_expiry_finalized("s"),
            lambda: looking.set_session_archived("s", True),
            lambda: looking.update_session_cwd("s", "/y"),
            lambda: looking.backfill_repo_roots({"/x": "/y"}),
            lambda: looking.update_session_meta("s", "x"),
            lambda: looking.update_system_prompt("s", "x"),
            lambda: looking.update_session_model("s", "x"),
            lambda: looking.set_session_title("s", "x"),
            lambda: looking.set_auto_title_if_empty("s", "x"),
        ):
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                call()
        assert looking.resolve_session_id("S") == "s"
        assert looking.get_next_title_in_lineage("x") == "x"
        assert looking.get_compression_tip("s") == "s"
        assert looking.distinct_session_cwds()[0]["cwd"] == "/x"
        assert looking._get_session_rich_row("s")["preview"] == ""


def test_finding(db: SessionDB) -> None:
    for name, cwd in (("20260704_a", "/x"), ("20260704_ab", "/x"), ("Other", "/y")):
        db.create_session(name, "cli", cwd=cwd, system_prompt="long")
    assert db.resolve_session_id("20260704_a") == "20260704_a"
    assert db.resolve_session_id("20260704") is None
    assert db.resolve_session_id("oth") == "Other"
    assert db.resolve_session_id("oth%") is None
    assert db.resolve_session_id("") is None
    with pytest.raises(AttributeError):
        db.resolve_session_id(None)
    with pytest.raises(sqlite3.OperationalError, match="too complex"):
        db.resolve_session_id("x" * 50_000)
    db.create_session("77", "cli")
    assert (db.get_session(77)["id"], db.resolve_session_id(77)) == ("77", "77")

    db.append_message("Other", "user", content="hello", timestamp=5.0)
    row = db._get_session_rich_row("Other")
    assert list(row)[-2:] == ["last_active", "preview"]
    assert (len(row), row["last_active"], row["preview"], row["system_prompt"]) == (48, 5.0, "hello", "long")
    assert "system_prompt" not in db._get_session_rich_row("Other", compact_rows=True)
    assert db._get_session_rich_row("nobody") is None
    assert db._get_session_rich_row(None) is None

    db.end_session("Other", "done")
    folders = {folder["cwd"]: folder for folder in db.distinct_session_cwds()}
    assert {cwd: folder["sessions"] for cwd, folder in folders.items()} == {"/x": 2, "/y": 1}
    assert list(folders["/y"]) == ["cwd", "sessions", "last_active"]
    assert folders["/y"]["last_active"] == db.get_session("Other")["ended_at"]
    assert isinstance(folders["/x"]["last_active"], float)
    db.set_session_archived("Other", True)
    assert [folder["cwd"] for folder in db.distinct_session_cwds()] == ["/x"]
    assert len(db.distinct_session_cwds(include_archived=True)) == 2


def test_the_tip_of_a_conversation(db: SessionDB) -> None:
    db.create_session("root", "cli")
    db.end_session("root", "compression")
    db.create_session("tip", "cli", parent_session_id="root")
    db.create_session("branch", "cli", parent_session_id="root", model_config={"_branched_from": "root"})
    assert db.get_compression_tip("root") == "tip"
    assert db.get_compression_tip("tip") == "tip"
    for unknown in ("nobody", "", None):
        assert db.get_compression_tip(unknown) == unknown


def test_of_competing_processes_one_ends_a_session(db: SessionDB, location: Path | str) -> None:
    db.create_session("s", "cli")
    db.create_session("t", "cli")
    program = """
import sys
from hermes_state import SessionDB
with SessionDB(sys.argv[1]) as db:
    print("open", flush=True)
    sys.stdin.readline()
    db.end_session("s", sys.argv[2])
    print(db.get_session("s")["end_reason"], db.promote_to_session_reset("t", sys.argv[2]))
"""
    answers = at_once(program, [(str(location), f"reason{number}") for number in range(4)])
    reasons, resets = zip(*(answer.split() for answer in answers))
    assert set(reasons) == {db.get_session("s")["end_reason"]}
    assert sorted(resets) == ["False", "False", "False", "True"]


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
    assert workspace_key({"git_repo_root": "", "cwd": "\u3000/x\x85", "git_branch": "main"}) == "/x"
    assert workspace_key({}) is None
    assert workspace_key({"git_repo_root": 0, "cwd": b""}) is None
    for odd in (5, b"/x", ["/x"]):
        with pytest.raises(AttributeError):
            workspace_key({"cwd": odd})
