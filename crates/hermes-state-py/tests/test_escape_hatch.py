"""Raw SQL beside the store: ``_conn``, ``_lock`` and ``_execute_write``."""

from __future__ import annotations

import logging
import os
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import held_lock
from hermes_state import SessionDB


def test_the_connection_is_a_plain_one_with_named_rows(db: SessionDB, path: Path) -> None:
    db.create_session("s", "cli")
    connection = db._conn
    assert type(connection) is sqlite3.Connection
    assert connection is db._conn
    assert connection.isolation_level is None
    row = connection.execute("SELECT id, source FROM sessions").fetchone()
    assert (row["id"], row[1]) == ("s", "cli")
    thread = threading.Thread(target=connection.execute, args=("UPDATE sessions SET source = 'web'",))
    thread.start()
    thread.join()
    connection.commit()
    assert db.get_session("s")["source"] == "web"


def test_the_connection_ends_with_the_store(db: SessionDB) -> None:
    connection = db._conn
    db.close()
    assert db._conn is None
    with pytest.raises(sqlite3.ProgrammingError):
        connection.execute("SELECT 1")


def test_a_read_only_store_has_a_read_only_connection(db: SessionDB, path: Path) -> None:
    db.create_session("s", "cli")
    with SessionDB(path, read_only=True) as reader:
        assert reader._conn.execute("SELECT count(*) FROM sessions").fetchone()[0] == 1
        with pytest.raises(sqlite3.OperationalError, match="attempt to write a readonly database"):
            reader._execute_write(lambda conn: conn.execute("DELETE FROM sessions"))


@pytest.mark.parametrize("name", ["a b?.db", "100%41#.db", "ü.db"])
def test_the_connection_opens_the_file_whatever_its_name(tmp_path: Path, name: str) -> None:
    with SessionDB(tmp_path / name) as db:
        db.create_session("s", "cli")
        assert db._conn.execute("SELECT id FROM sessions").fetchone()["id"] == "s"
    assert {found.name for found in tmp_path.glob("*.db*")} <= {name, f"{name}-siblings"}


def test_a_callback_is_one_transaction(db: SessionDB) -> None:
    def write(conn: sqlite3.Connection) -> str:
        assert conn is db._conn
        assert conn.in_transaction
        conn.execute("INSERT INTO state_meta VALUES ('a', '1')")
        return "answer"

    before = db._write_count
    assert db._execute_write(write) == "answer"
    assert db._write_count == before + 1
    assert not db._conn.in_transaction
    assert db.get_meta("a") == "1"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_whatever_leaves_a_callback_undoes_it(db: SessionDB, error: type[BaseException]) -> None:
    def write(conn: sqlite3.Connection) -> None:
        conn.execute("INSERT INTO state_meta VALUES ('a', '1')")
        raise error

    with pytest.raises(error):
        db._execute_write(write)
    assert db._write_count == 0
    assert db.get_meta("a") is None
    db.set_meta("a", "2")


def test_an_integrity_error_is_not_retried(db: SessionDB) -> None:
    calls = []

    def write(conn: sqlite3.Connection) -> None:
        calls.append(1)
        conn.execute("INSERT INTO messages (session_id, role, timestamp) VALUES ('nobody', 'user', 1)")

    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        db._execute_write(write)
    assert len(calls) == 1


def test_a_callback_that_meets_a_lock_runs_again(db: SessionDB) -> None:
    calls = []

    def write(conn: sqlite3.Connection) -> None:
        conn.execute("INSERT INTO state_meta VALUES ('a', '1')")
        calls.append(1)
        if len(calls) < 3:
            raise sqlite3.OperationalError("database is locked")

    db._execute_write(write)
    assert len(calls) == 3
    assert db._write_count == 1


def test_a_script_within_a_callback(db: SessionDB) -> None:
    db._execute_write(lambda conn: conn.executescript("INSERT INTO state_meta VALUES ('a', '1');"))
    assert db.get_meta("a") == "1"


def test_a_callback_waits_for_the_lock(db: SessionDB, path: Path) -> None:
    with held_lock(path, 1.2):
        db._execute_write(lambda conn: conn.execute("INSERT INTO state_meta VALUES ('a', '1')"))
    assert db.get_meta("a") == "1"


@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE"])
def test_a_transaction_left_open_refuses_writes_at_once(db: SessionDB, begin: str) -> None:
    db.create_session("s", "cli")
    db._conn.execute(begin)
    writes: list[Any] = [
        lambda: db.set_meta("a", "1"),
        lambda: db.append_message("s", "user", "x"),
        lambda: db.append_messages("s", [{"role": "user"}]),
        lambda: db._execute_write(lambda conn: None),
    ]
    for write in writes:
        with pytest.raises(sqlite3.OperationalError, match="cannot start a transaction within a transaction"):
            write()
    db._conn.execute("ROLLBACK")
    for write in writes:
        write()
    assert db.message_count("s") == 2


def test_a_write_within_a_callback_says_what_is_wrong(db: SessionDB) -> None:
    for nested in (lambda conn: db.set_meta("a", "1"), lambda conn: db._execute_write(lambda conn: None)):
        with pytest.raises(sqlite3.OperationalError, match="use the connection it was given"):
            db._execute_write(nested)
    # Reading is no trouble: it sees what is committed.
    assert db._execute_write(lambda conn: db.session_count()) == 0


def test_a_write_waits_for_the_callback_of_another_thread(db: SessionDB) -> None:
    inside, done = threading.Event(), threading.Event()

    def write(conn: sqlite3.Connection) -> None:
        inside.set()
        assert not done.wait(0.5)

    thread = threading.Thread(target=db._execute_write, args=(write,))
    thread.start()
    assert inside.wait(5)
    db.set_meta("a", "1")
    done.set()
    thread.join()
    assert db._write_count == 2


@pytest.mark.each_engine
def test_routine_writers_go_through_the_instance(db: SessionDB) -> None:
    original, seen = db._execute_write, []

    def passing(fn: Any) -> Any:
        seen.append(fn)
        return original(fn)

    db._execute_write = passing  # type: ignore[method-assign]
    db.create_session("s", "cli")
    db.ensure_session("s")
    assert db.set_session_title("s", "Harbour")
    db.end_session("s", "done")
    db.reopen_session("s")
    db.set_meta("a", "1")
    assert len(seen) == 6
    assert repr(seen[2]) == "<write set_session_title>"

    def refusing(fn: Any) -> Any:
        raise sqlite3.OperationalError("database is locked")

    db._execute_write = refusing  # type: ignore[method-assign]
    with pytest.raises(sqlite3.OperationalError):
        db.end_session("s", "done")
    assert db.get_session("s")["ended_at"] is None


@pytest.mark.each_engine
def test_only_successes_count(db: SessionDB) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        db.append_message("nobody", "user")
    assert db._write_count == 0
    db.create_session("s", "cli")
    db.append_message("s", "user")
    db.append_messages("s", [{"role": "user"}, {"role": "user"}])
    assert db._write_count == 3


@pytest.mark.each_engine
def test_every_fiftieth_write_checkpoints(db: SessionDB, caplog: pytest.LogCaptureFixture) -> None:
    calls = []
    db._try_wal_checkpoint = lambda: calls.append(db._write_count)  # type: ignore[method-assign]
    for number in range(100):
        db.set_meta("n", str(number))
    assert calls == [50, 100]

    def failing() -> None:
        raise RuntimeError("no")

    db._try_wal_checkpoint = failing  # type: ignore[method-assign]
    db._CHECKPOINT_EVERY_N_WRITES = 1
    with caplog.at_level(logging.WARNING, "hermes_state"):
        db.set_meta("n", "kept")
    assert db.get_meta("n") == "kept"
    assert "upkeep after a write failed" in caplog.text


@pytest.mark.each_engine
def test_a_checkpoint_only_warns(db: SessionDB, caplog: pytest.LogCaptureFixture) -> None:
    db._try_wal_checkpoint()
    assert not caplog.records
    db.close()
    with caplog.at_level(logging.WARNING, "hermes_state"):
        db._try_wal_checkpoint()
    assert "WAL checkpoint (PASSIVE) failed" in caplog.text


def test_a_store_in_memory_has_no_second_connection() -> None:
    with SessionDB(":memory:") as db:
        db.create_session("s", "cli")
        assert db.session_count() == 1
        with pytest.raises(sqlite3.NotSupportedError):
            db._conn  # noqa: B018


@pytest.mark.each_engine
def test_a_replacement_of_execute_write_sees_appends_and_batches_too(db):
    seen = []
    original = db._execute_write

    def passing_on(fn):
        seen.append(repr(fn))
        return original(fn)

    db._execute_write = passing_on
    db.create_session("s", "cli")
    assert isinstance(db.append_message("s", "user", "one"), int)
    assert len(db.append_messages("s", [{"role": "user", "content": "two"}, {"role": "user", "content": "three"}])) == 2
    db.set_meta("k", "v")
    assert seen == ["<write create_session>", "<write append_message>", "<write append_messages>", "<write set_meta>"]

    def raising(fn):
        raise sqlite3.OperationalError("simulated")

    db._execute_write = raising
    with pytest.raises(sqlite3.OperationalError, match="simulated"):
        db.append_message("s", "user", "four")
    assert db.message_count("s") == 3


def test_a_write_that_is_called_says_what_to_do_instead(db):
    db._execute_write = lambda fn: fn(db._conn)
    with pytest.raises(TypeError, match="_execute_write"):
        db.set_meta("k", "v")


@pytest.mark.each_engine
def test_appends_keep_the_longer_patience_through_execute_write(db, monkeypatch):
    patiences = []

    class Recording:
        def __init__(self, native):
            self._native = native

        def __getattr__(self, name):
            return getattr(self._native, name)

        def run(self, write, patience):
            patiences.append((repr(write), patience))
            return self._native.run(write, patience)

    db._native = Recording(db._native)
    db.create_session("s", "cli")
    db.append_message("s", "user", "one")
    db._execute_write(db._native.set_meta("k", "v"), patience_s=3)
    assert patiences == [("<write create_session>", 20), ("<write append_message>", 60), ("<write set_meta>", 3)]


def test_raw_sql_cannot_write_to_a_file_of_a_newer_schema(tmp_path):
    path = tmp_path / "state.db"
    SessionDB(path).close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE schema_version SET version = 99")
    connection.commit()
    connection.close()
    with SessionDB(path) as newer:
        with pytest.raises(sqlite3.OperationalError, match="99"):
            newer._execute_write(lambda c: c.execute("DELETE FROM messages"))
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            newer._conn.execute("INSERT INTO state_meta VALUES ('a', '1')")
        assert newer._conn.execute("SELECT version FROM schema_version").fetchone()[0] == 99


def test_an_unfinished_cursor_is_named_at_once_instead_of_a_sibling(db, monkeypatch):
    # Before Python 3.11 sqlite3 does not tell the code of an error, and such a write waits in vain.
    told = sys.version_info >= (3, 11)
    monkeypatch.setattr(type(db), "_WRITE_PATIENCE_S", 20 if told else 0.2)
    for session in ("a", "b", "c"):
        db.create_session(session, "cli")
    cursor = db._conn.execute("SELECT id FROM sessions")
    cursor.fetchone()
    db.append_message("a", "user", "moves the store on")
    started = time.monotonic()
    with pytest.raises(
        sqlite3.OperationalError, match="cursor of _conn has rows left" if told else "database is locked"
    ):
        db._execute_write(lambda c: c.execute("UPDATE sessions SET cwd = '/x'"))
    assert time.monotonic() - started < 5
    cursor.fetchall()
    db._execute_write(lambda c: c.execute("UPDATE sessions SET cwd = '/x'"))


def test_raw_sql_that_gives_up_names_the_holder(db, tmp_path, monkeypatch):
    monkeypatch.setattr(type(db), "_WRITE_PATIENCE_S", 0.3)
    holder = sqlite3.connect(db.db_path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match=f"pid {os.getpid()}"):
        db._execute_write(lambda c: c.execute("UPDATE sessions SET cwd = '/x'"))
    holder.close()
