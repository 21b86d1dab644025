"""Upkeep: vacuum, the automatic prune, and who has the store open."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
from conftest import held_lock
from hermes_state import SessionDB


@pytest.fixture
def pruned(db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Prunes three sessions each time, and notes how it was asked."""
    asked: list[dict[str, Any]] = []

    def prune(**arguments: Any) -> int:
        asked.append(arguments)
        return 3

    monkeypatch.setattr(db, "prune_sessions", prune, raising=False)
    return asked


@pytest.fixture
def merged(db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(db, "optimize_fts", lambda: 2, raising=False)


def fill(db: SessionDB, batches: int) -> None:
    db.create_session("s", "cli")
    for batch in range(batches):
        db.append_messages("s", [{"role": "user", "content": f"word{batch}x{i} " + "filler " * 60} for i in range(100)])


def empty(db: SessionDB) -> None:
    db._execute_write(lambda connection: connection.execute("DELETE FROM messages"))


@pytest.mark.usefixtures("merged")
def test_vacuum_gives_all_space_back(db: SessionDB, path: Path) -> None:
    fill(db, 20)
    empty(db)
    db._try_wal_checkpoint()
    before = path.stat().st_size
    assert db.vacuum() == 2
    assert path.stat().st_size < before * 0.7  # the search indexes keep theirs until they are merged
    assert db.status()["messages"] == 0
    assert db._conn is not None
    assert db._conn.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    assert db._conn.execute("PRAGMA auto_vacuum").fetchone()[0] == 2


def test_a_vacuum_goes_on_without_the_indexes_merged(db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise sqlite3.OperationalError("no")

    monkeypatch.setattr(db, "optimize_fts", fail, raising=False)
    assert db.vacuum() == 0


@pytest.mark.usefixtures("merged")
@pytest.mark.each_engine
def test_vacuum_keeps_what_is_there_and_may_be_repeated(db: SessionDB) -> None:
    fill(db, 1)
    assert db.vacuum() == 2
    assert db.vacuum() == 2
    assert db.message_count("s") == 100
    assert len(db.search_messages("word0x7")) == 1


@pytest.mark.each_engine
def test_a_read_only_store_is_not_vacuumed(db: SessionDB, location: Path | str) -> None:
    with (
        SessionDB(location, read_only=True) as reader,
        pytest.raises(sqlite3.OperationalError, match="attempt to write a readonly database"),
    ):
        reader.vacuum()


@pytest.mark.usefixtures("merged")
def test_a_writer_elsewhere_prevents_a_vacuum_and_a_reader_does_not(db: SessionDB, path: Path) -> None:
    fill(db, 1)
    with held_lock(path, 2.5), pytest.raises(sqlite3.OperationalError, match="locked"):
        db.vacuum()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM messages").fetchone()
        assert db.vacuum() == 2


@pytest.mark.usefixtures("merged")
def test_a_transaction_left_open_on_conn_prevents_a_vacuum(db: SessionDB) -> None:
    assert db._conn is not None
    db._conn.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="within a transaction"):
        db.vacuum()
    db._conn.execute("ROLLBACK")


@pytest.mark.each_engine
def test_the_first_run_prunes_and_notes_when(db: SessionDB, pruned: list[dict[str, Any]], tmp_path: Path) -> None:
    before = time.time()
    answer = db.maybe_auto_prune_and_vacuum(retention_days=30, sessions_dir=tmp_path)
    assert answer == {"skipped": False, "pruned": 3, "vacuumed": True}
    assert pruned == [{"older_than_days": 30, "sessions_dir": tmp_path}]
    assert before <= float(db.get_meta("last_auto_prune")) <= time.time()


@pytest.mark.each_engine
@pytest.mark.parametrize(
    ("last", "hours", "runs"),
    [
        (lambda now: str(now - 3600), 24, False),
        (lambda now: str(now - 25 * 3600), 24, True),
        (lambda now: str(now), 0, True),
        (lambda now: str(now - 1800), 0.25, True),
        (lambda now: str(now + 600), 24, False),
        (lambda now: str(now + 40 * 86_400), 24, True),
        (lambda _now: "yesterday", 24, True),
        (lambda _now: "", 24, True),
        (lambda _now: "nan", 24, True),
    ],
)
def test_it_is_done_again_only_after_a_while(
    db: SessionDB, pruned: list[dict[str, Any]], last: Callable[[float], str], hours: float, runs: bool
) -> None:
    written = last(time.time())
    db.set_meta("last_auto_prune", written)
    answer = db.maybe_auto_prune_and_vacuum(min_interval_hours=hours)  # type: ignore[arg-type]
    assert (answer["skipped"], bool(pruned)) == (not runs, runs)
    assert (db.get_meta("last_auto_prune") == written) is not runs


@pytest.mark.each_engine
def test_a_prune_that_fails_is_tried_again_by_the_next(db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> int:
        raise RuntimeError("no room")

    monkeypatch.setattr(db, "prune_sessions", fail, raising=False)
    expected = {"skipped": False, "pruned": 0, "vacuumed": False, "error": "no room"}
    assert db.maybe_auto_prune_and_vacuum() == expected
    assert db.get_meta("last_auto_prune") is None
    db.set_meta("last_auto_prune", "5")
    assert db.maybe_auto_prune_and_vacuum() == expected
    assert db.get_meta("last_auto_prune") == "5"


def test_a_vacuum_that_fails_is_no_error_of_the_prune(
    db: SessionDB, pruned: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> int:
        raise sqlite3.OperationalError("no room")

    monkeypatch.setattr(db, "vacuum", fail)
    assert db.maybe_auto_prune_and_vacuum() == {"skipped": False, "pruned": 3, "vacuumed": False}
    assert db.get_meta("last_auto_prune") is not None
    assert len(pruned) == 1


def test_nothing_is_vacuumed_where_nothing_was_pruned_or_nobody_wants_it(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    vacuums: list[int] = []
    monkeypatch.setattr(db, "vacuum", lambda: vacuums.append(1))
    monkeypatch.setattr(db, "prune_sessions", lambda **_: 0, raising=False)
    assert db.maybe_auto_prune_and_vacuum()["vacuumed"] is False
    monkeypatch.setattr(db, "prune_sessions", lambda **_: 1, raising=False)
    assert db.maybe_auto_prune_and_vacuum(min_interval_hours=0, vacuum=False)["vacuumed"] is False
    assert vacuums == []
    assert db.maybe_auto_prune_and_vacuum(min_interval_hours=0)["vacuumed"] is True
    assert vacuums == [1]


@pytest.mark.parametrize("days", [None, -1])
def test_a_retention_that_keeps_nothing_is_refused(db: SessionDB, pruned: list[dict[str, Any]], days: Any) -> None:
    answer = db.maybe_auto_prune_and_vacuum(retention_days=days)
    assert "every ended session" in answer["error"]
    assert pruned == []
    assert db.get_meta("last_auto_prune") is None


def test_a_closed_store_answers_with_the_error(db: SessionDB) -> None:
    db.close()
    assert "closed" in db.maybe_auto_prune_and_vacuum()["error"]


def test_of_many_processes_that_come_at_once_one_prunes(path: Path) -> None:
    SessionDB(path).close()
    code = (
        "import sys, time, hermes_state; db = hermes_state.SessionDB(sys.argv[1]);"
        " db.prune_sessions = lambda **_: time.sleep(0.5) or 1; sys.stdin.readline();"
        " print(db.maybe_auto_prune_and_vacuum()['pruned'])"
    )
    start = [sys.executable, "-c", code, str(path)]
    processes = [subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate()[0].strip() for process in processes]
    assert sorted(said) == ["0", "0", "0", "1"]


@pytest.mark.usefixtures("merged", "pruned")
def test_the_automatic_prune_gives_space_back_in_steps_and_rewrites_nothing(db: SessionDB, path: Path) -> None:
    fill(db, 20)
    empty(db)
    db._try_wal_checkpoint()
    before = path.stat().st_size
    rowids = "SELECT group_concat(rowid) FROM sessions"
    assert db._conn is not None
    # A rewriting numbers these rows anew.
    db._execute_write(lambda connection: connection.execute("UPDATE sessions SET rowid = 41"))
    assert db.maybe_auto_prune_and_vacuum()["vacuumed"] is True
    db._try_wal_checkpoint()
    assert path.stat().st_size < before * 0.7
    assert db._conn.execute(rowids).fetchone()[0] == "41"
    db.vacuum()
    assert db._conn.execute("PRAGMA freelist_count").fetchone()[0] == 0


def killed_after(code: str, path: Path, delay: float) -> bool:
    """Runs it, kills it some time after it said that it begins; whether it was not done by then."""
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(delay)
    os.kill(process.pid, signal.SIGKILL)
    return "done" not in process.communicate()[0]


@pytest.mark.parametrize("method", ["vacuum()", "release_space(20)"])
def test_one_that_is_killed_while_giving_space_back_loses_nothing(path: Path, method: str) -> None:
    with SessionDB(path) as db:
        fill(db, 60)
        db._execute_write(lambda connection: connection.execute("DELETE FROM messages WHERE id % 2 = 0"))
    code = (
        "import sys, hermes_state; db = hermes_state.SessionDB(sys.argv[1]); print('begun', flush=True);"
        f" db._native.{method}; print('done', flush=True)"
    )
    killed = 0
    for delay in (0.0, 0.002, 0.005, 0.01, 0.03, 0.06, 0.1, 0.2):
        if not killed_after(code, path, delay):
            break
        killed += 1
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT COUNT(*) FROM messages").fetchone() == (3000,)
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert killed > 0
    with SessionDB(path) as db:
        assert len(db.search_messages("word59x98")) == 1


@pytest.fixture
def holder(path: Path, db: SessionDB) -> Iterator[subprocess.Popen[str]]:
    """Another process with the store open, which holds the write lock from one line of input to the next."""
    code = (
        "import sys, hermes_state; db = hermes_state.SessionDB(sys.argv[1]); print('open', flush=True);"
        " sys.stdin.readline(); db._conn.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.readline()"
    )
    start = [sys.executable, "-c", code, str(path)]
    process = subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    yield process
    process.communicate()


def test_who_has_the_store_open(db: SessionDB, holder: subprocess.Popen[str]) -> None:
    users = {user["pid"]: user for user in db.who()}
    assert set(users) == {os.getpid(), holder.pid}
    other = users[holder.pid]
    assert other["program"].startswith("python")
    assert abs(time.time() - other["since"]) < 60
    assert (other["host"], other["takes_turns"], other["holds_write_lock"]) == (None, True, False)
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdin.write("hold\n")
    holder.stdin.flush()
    assert holder.stdout.readline() == "held\n"
    assert [user["pid"] for user in db.who() if user["holds_write_lock"]] == [holder.pid]
    assert db.status()["open_by"][0].keys() == other.keys()


@pytest.mark.each_engine
def test_the_status_is_made_of_plain_values(db: SessionDB, engine: str) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "user", content="x")
    status = db.status()
    assert (status["store"], status["read_only"]) == (str(db.db_path), False)
    assert (status["schema_version"], status["sessions"], status["messages"]) == (23, 1, 1)
    if engine == "file":
        assert (status["engine"], status["journal_mode"]) == ("sqlite", "wal")
        assert status["main_bytes"] > 0
    else:
        assert status["engine"] == "postgresql"
        assert status["bytes"] > 0
    assert isinstance(db.who(), list)


def test_every_so_many_writes_the_indexes_are_merged_and_nothing_of_it_fails_a_write(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    merges: list[int] = []

    def merge() -> int:
        merges.append(db._write_count)
        raise sqlite3.OperationalError("no")

    monkeypatch.setattr(db, "optimize_fts", merge, raising=False)
    assert db._OPTIMIZE_EVERY_N_WRITES == 1000
    monkeypatch.setattr(db, "_OPTIMIZE_EVERY_N_WRITES", 4)
    for number in range(9):
        db.set_meta("k", str(number))
    assert merges == [4, 8]
