"""A busy sibling makes writes and openings wait, not fail; when patience ends, the error says what was the matter."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import hermes_state
import pytest
from conftest import held_lock, make_empty
from hermes_state import SessionDB

DAMAGE = ("malformed", "corrupt", "disk", "permission", "readonly", "read-only", "unable to open", "not authorized")


def test_a_message_outlasts_a_long_hold(db: SessionDB, path: Path) -> None:
    db.create_session("s", "cli")
    with held_lock(path, 2.5):
        started = time.monotonic()
        message = db.append_message("s", "user", "patient")
        waited = time.monotonic() - started
    assert 1.5 < waited < 4
    assert [row["id"] for row in db.get_messages("s")] == [message]


def test_an_opening_outlasts_a_long_hold(path: Path) -> None:
    make_empty(path)
    with held_lock(path, 2.5), SessionDB(path) as db:
        db.create_session("s", "cli")
        assert db.session_count() == 1


def test_an_opening_of_an_up_to_date_file_needs_no_lock(path: Path) -> None:
    SessionDB(path).close()
    with held_lock(path, 1.5):
        started = time.monotonic()
        SessionDB(path).close()
        assert time.monotonic() - started < 1


@pytest.mark.parametrize("where", ["instance", "class"])
def test_an_override_acts_from_the_next_write(
    db: SessionDB, path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.set_meta("before", "the override")
    monkeypatch.setattr(db if where == "instance" else SessionDB, "_WRITE_PATIENCE_S", 0.2)
    with held_lock(path, 1.5):
        started = time.monotonic()
        with pytest.raises(sqlite3.OperationalError):
            db.set_meta("key", "value")
        assert time.monotonic() - started < 1
    db.set_meta("key", "after")
    assert db.get_meta("key") == "after"


@pytest.mark.parametrize("patience", [0, -5])
def test_without_patience_there_is_one_attempt(db: SessionDB, path: Path, patience: int) -> None:
    db._WRITE_PATIENCE_S = db._TRANSCRIPT_WRITE_PATIENCE_S = patience
    db.create_session("s", "cli")
    with held_lock(path, 1):
        started = time.monotonic()
        with pytest.raises(sqlite3.OperationalError):
            db.append_message("s", "user", "hurried")
        assert time.monotonic() - started < 0.6


@pytest.mark.parametrize("write", ["native", "transcript", "raw"])
def test_the_end_of_patience_names_the_cause(db: SessionDB, path: Path, write: str) -> None:
    db.create_session("s", "cli")
    db._WRITE_PATIENCE_S = db._TRANSCRIPT_WRITE_PATIENCE_S = 0.3
    with held_lock(path, 1.5), pytest.raises(sqlite3.OperationalError) as caught:
        if write == "native":
            db.end_session("s", "done")
        elif write == "transcript":
            db.append_message("s", "user", "late")
        else:
            db._execute_write(lambda conn: conn.execute("DELETE FROM messages"))
    text = str(caught.value)
    assert "database is locked" in text
    assert "another Hermes process" in text
    assert "healthy" in text
    assert "0.3 s" in text
    assert not [word for word in DAMAGE if word in text.lower()]
    assert caught.value.sqlite_errorcode == 5
    assert caught.value.sqlite_errorname == "SQLITE_BUSY"


def test_an_opening_reads_the_patience_of_the_class(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_empty(path)
    monkeypatch.setattr(SessionDB, "_WRITE_PATIENCE_S", 0.7)
    with held_lock(path, 2):
        started = time.monotonic()
        with pytest.raises(sqlite3.OperationalError, match=r"waited|whole 0\.[7-9] s"):
            SessionDB(path)
        assert 0.6 < time.monotonic() - started < 1.6
    assert "OperationalError: database is locked" in str(hermes_state.get_last_init_error())
    assert hermes_state.format_session_db_unavailable().endswith("finished.")


def test_other_failures_of_an_opening_come_at_once(path: Path) -> None:
    path.mkdir()
    started = time.monotonic()
    with pytest.raises(sqlite3.OperationalError, match="unable to open database file"):
        SessionDB(path)
    assert time.monotonic() - started < 2


def test_others_proceed_while_one_waits(db: SessionDB, path: Path) -> None:
    db.create_session("s", "cli")
    assert db._conn is not None
    with held_lock(path, 1.5):
        waiting = threading.Thread(target=db._execute_write, args=(lambda conn: conn.execute("SELECT 1"),))
        waiting.start()
        time.sleep(0.2)
        started = time.monotonic()
        assert db.session_count() == 1
        with db._lock:
            pass
        assert time.monotonic() - started < 0.5
    waiting.join()


@pytest.mark.parametrize("what", ["write", "opening"])
def test_ctrl_c_ends_the_wait_and_stores_nothing(path: Path, what: str, tmp_path: Path) -> None:
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        fresh = tmp_path / "fresh.db"
        make_empty(fresh)
        with held_lock(path if what == "write" else fresh, 3):
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            started = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                if what == "write":
                    db.append_message("s", "user", "called back")
                else:
                    SessionDB(fresh)
            assert time.monotonic() - started < 1.5
        assert db.message_count() == 0
        assert db.append_message("s", "user", "stored") == 1


def test_the_constructor_states_what_it_survives() -> None:
    import inspect
    import re

    source = inspect.getsource(SessionDB.__init__)
    assert max(int(number) for number in re.findall(r"\b(\d+) seconds", source)) >= 30
    assert SessionDB._WRITE_PATIENCE_S == 20
    assert SessionDB._TRANSCRIPT_WRITE_PATIENCE_S == 60


@contextlib.contextmanager
def process_that_holds_the_lock(path: Path, seconds: float) -> Iterator[int]:
    """Another process holds the write lock for so long; ends when it does."""
    code = (
        "import sqlite3, sys, time\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('BEGIN IMMEDIATE')\n"
        "print('held', flush=True)\n"
        "time.sleep(float(sys.argv[2]))\n"
        "connection.execute('ROLLBACK')\n"
    )
    command = [sys.executable, "-c", code, str(path), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process.pid


def test_a_sibling_that_sits_on_the_lock_delays_an_append_and_is_named(
    db: SessionDB, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Slow on purpose, 45 s and more: the holds and patiences are those that were reported from the field."""
    db.create_session("s", "cli")
    db.append_message("s", "user", "a")
    with process_that_holds_the_lock(path, 8) as holder:
        time.sleep(0.2)
        with caplog.at_level("WARNING", logger="hermes_state"):
            started = time.monotonic()
            db.append_message("s", "user", "b")
            waited = time.monotonic() - started
    assert 7.5 <= waited <= 9.5
    told = [record for record in caplog.records if f"pid {holder}" in record.getMessage()]
    assert len(told) == 1
    assert "has waited 2." in told[0].getMessage()

    db._WRITE_PATIENCE_S = db._TRANSCRIPT_WRITE_PATIENCE_S = 20  # type: ignore[misc]
    with process_that_holds_the_lock(path, 45) as holder:
        started = time.monotonic()
        with pytest.raises(sqlite3.OperationalError) as failed:
            db.append_message("s", "user", "c")
        assert 19 <= time.monotonic() - started <= 21
        text = str(failed.value).lower()
        assert "database is locked" in text
        assert f"pid {holder}" in text
        assert not [word for word in DAMAGE if word in text]
        assert [user["pid"] for user in db.who() if user["holds_write_lock"]] == [holder]
    started = time.monotonic()
    db.append_message("s", "user", "d")
    assert time.monotonic() - started < 1
    assert db.message_count("s") == 3
