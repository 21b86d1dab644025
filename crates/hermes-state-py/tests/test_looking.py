"""A handle that only looks leaves every file as it was, in whatever state the store is found."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hermes_state import SessionDB

FILES = ("state.db", "state.db-shm", "state.db-siblings", "state.db-wal")

# What every method that only reads answers of a store of 200 sessions; one append, which must be refused at once.
LOOK = """
import os, pathlib, sqlite3, sys, time
import hermes_state
from hermes_state import SessionDB
path, user, word = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if user:
    os.setgid(user)
    os.setuid(user)
with SessionDB(path, read_only=True) as db:
    assert db.session_count(include_archived=True) == 200
    assert len(db.list_sessions_rich(limit=500)) == 200
    assert db.list_sessions_page(limit=20)[1] is not None
    assert db.message_count() == int(sys.argv[4]), db.message_count()
    assert db.search_messages("harbour", limit=500)
    assert [hit["session_id"] for hit in db.search_messages(word)] == ["session7"]
    assert db.get_session("session7")["source"] == "cli"
    assert db.get_messages("session7") and db.get_messages_as_conversation("session7")
    assert db.resolve_session_id("session19") and db.resolve_resume_session_id("session7") == "session7"
    assert db.export_session("session7")["messages"] and len(db.export_all()) == 200
    assert db.list_prune_candidates(older_than_days=0) == [] and db.count_empty_sessions() == 0
    assert db.get_meta("nothing") is None and db.load_gateway_routing_entries() == {}
    assert db.status()["sessions"] == 200 and db.who() is not None
    assert db.fts_rebuild_status() is None and not db.fts_optimize_available()
    started = time.monotonic()
    try:
        db.append_message("session7", "user", "no")
    except sqlite3.OperationalError as error:
        assert "attempt to write a readonly database" in str(error) and str(path) in str(error), error
    else:
        raise AssertionError("it was stored")
    assert time.monotonic() - started < 1
print("looked")
"""

IDLE_WRITER = """
import pathlib, sys
from hermes_state import SessionDB
db = SessionDB(pathlib.Path(sys.argv[1]))
db.append_message("session7", "user", "the zebrafinch is in the log")
print("idle", flush=True)
sys.stdin.read()
"""


def make_store(folder: Path) -> Path:
    folder.mkdir()
    path = folder / "state.db"
    with SessionDB(path) as db:
        for number in range(200):
            db.create_session(f"session{number}", "cli")
            db.append_message(f"session{number}", "user", f"harbour of session{number}")
    return path


def idle_writer(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", IDLE_WRITER, str(path)]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "idle\n"
    return writer


def look(path: Path, word: str, messages: int, user: int = 0) -> None:
    arguments = [str(path), str(user), word, str(messages)]
    done = subprocess.run([sys.executable, "-c", LOOK, *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "looked\n"), done.stderr


def picture(folder: Path) -> list[tuple[str, int, int, str]]:
    """Inodes, times and contents. What stands in the log's shared index is its users' to change."""
    files = []
    for file in sorted(folder.iterdir()):
        found, shared = file.stat(), file.name.endswith("-shm")
        content = "" if shared else hashlib.sha256(file.read_bytes()).hexdigest()
        files.append((file.name, found.st_ino, 0 if shared else found.st_mtime_ns, content))
    return files


def deleted_files_of(pid: int, folder: Path) -> list[str]:
    """Files of the folder that a process has open and that are gone; each thread may have descriptors of its own."""
    links = [str(link.readlink()) for link in Path(f"/proc/{pid}/task").glob("*/fd/*") if link.is_symlink()]
    links = [link for link in links if link.startswith(f"{folder}/")]
    assert f"{folder}/state.db" in links
    return [link for link in links if link.endswith("(deleted)")]


def test_in_an_empty_folder_a_look_says_so_and_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError, match="unable to open database file"):
        SessionDB(tmp_path / "state.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_beside_an_idle_writer_and_after_a_killed_one_a_look_leaves_everything(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store")
    with idle_writer(path) as writer:
        before = picture(path.parent)
        assert tuple(file[0] for file in before) == FILES
        look(path, "zebrafinch", 201)
        assert picture(path.parent) == before
        assert deleted_files_of(writer.pid, path.parent) == []
        writer.kill()
    before = picture(path.parent)
    look(path, "zebrafinch", 201)
    assert picture(path.parent) == before


def test_a_protected_copy_can_be_looked_at_by_another_user(tmp_path: Path) -> None:
    user = 65534 if os.getuid() == 0 else 0
    # Folders of tests are closed to other users.
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    path = make_store(tmp_path / "store")
    with idle_writer(path) as writer:
        for copied in (FILES, ("state.db", "state.db-wal")):
            copy = tmp_path / f"copy of {len(copied)}"
            copy.mkdir()
            for name in copied:
                shutil.copy(path.parent / name, copy / name)
                (copy / name).chmod(0o444)
            copy.chmod(0o555)
            before = picture(copy)
            look(copy / "state.db", "zebrafinch", 201, user)
            assert picture(copy) == before
            copy.chmod(0o755)
        writer.kill()


LOOK_TWICE = """
import os, pathlib, sys
from hermes_state import SessionDB
path, user = pathlib.Path(sys.argv[1]), int(sys.argv[2])
if user:
    os.setgid(user)
    os.setuid(user)
db = SessionDB(path, read_only=True)
for line in sys.stdin:
    print(db.message_count(), len(db.search_messages("zebrafinch")), flush=True)
"""


def test_who_may_not_write_sees_what_others_write_meanwhile(tmp_path: Path) -> None:
    user = 65534 if os.getuid() == 0 else 0
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    path = make_store(tmp_path / "store")
    path.chmod(0o444)
    path.parent.chmod(0o555)
    command = [sys.executable, "-c", LOOK_TWICE, str(path), str(user)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as looking:
        assert looking.stdin is not None
        assert looking.stdout is not None

        def seen() -> str:
            print("look", file=looking.stdin, flush=True)
            assert looking.stdout is not None
            return looking.stdout.readline()

        assert seen() == "200 0\n"
        path.chmod(0o644)
        path.parent.chmod(0o755)
        with SessionDB(path) as db:
            for name in FILES:
                (path.parent / name).chmod(0o644)
            db.append_message("session1", "user", "the first zebrafinch")
            assert seen() == "201 1\n"
            db.append_message("session2", "user", "the second zebrafinch")
            assert seen() == "202 2\n"
        with SessionDB(path) as db:
            db.append_message("session3", "user", "the third zebrafinch")
        assert seen() == "203 3\n"
