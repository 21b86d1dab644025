"""One instance on many threads, and what a fork leaves of it."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from pathlib import Path

import pytest
from conftest import held_lock
from hermes_state import SessionDB


@pytest.mark.each_engine
def test_threads_write_and_read_as_if_alone(db: SessionDB) -> None:
    db.create_session("s", "cli")
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for index in range(40):
                message = db.append_message("s", "user", f"{number}/{index}")
                # What is acknowledged is seen, from any thread.
                assert message in {row["id"] for row in db.get_messages("s")}
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert db.message_count("s") == 320
    assert db._write_count == 321
    assert db.get_session("s")["message_count"] == 320


def test_python_runs_on_while_a_write_waits(db: SessionDB, path: Path) -> None:
    with held_lock(path, 0.8):
        writer = threading.Thread(target=db.set_meta, args=("a", "1"))
        writer.start()
        turns = 0
        deadline = time.monotonic() + 0.4
        while time.monotonic() < deadline:
            turns += 1
        assert turns > 10_000
        assert writer.is_alive()
    writer.join()
    assert db.get_meta("a") == "1"


def in_child(action: object) -> str:
    """What a forked child says of an action: the class and text of what it raised."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = f"returned {action()}"  # type: ignore[operator]
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return answer


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_inherited_handle_says_so(db: SessionDB, path: Path) -> None:
    db.create_session("s", "cli")
    assert db._conn is not None
    for action in (
        lambda: db.session_count(),
        lambda: db.append_message("s", "user"),
        lambda: db.set_meta("a", "1"),
        lambda: db._execute_write(lambda conn: None),
        lambda: db._conn,
    ):
        answer = in_child(action)
        assert answer.startswith("ProgrammingError"), answer
        assert f"another process (pid {os.getpid()})" in answer
    assert in_child(db.close) == "returned None"
    db.append_message("s", "user", "still here")
    assert db.message_count("s") == 1


@pytest.mark.each_engine
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_opens_its_own(db: SessionDB, location: Path | str) -> None:
    db.create_session("s", "cli")

    def write() -> int:
        with SessionDB(location) as own:
            return own.append_message("s", "user", "from the child")

    assert in_child(write) == "returned 1"
    assert db.append_message("s", "user", "from the parent") == 2
    if isinstance(location, str):
        return
    check = sqlite3.connect(location)
    assert check.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    check.close()
