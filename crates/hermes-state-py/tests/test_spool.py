"""The spool, where it is asked for: appends that the store cannot take are kept, and stored by whoever can next."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hermes_state import SessionDB, Spooled


class Hasty(SessionDB):
    _WRITE_PATIENCE_S = 0.1
    _TRANSCRIPT_WRITE_PATIENCE_S = 0.1


@contextmanager
def somebody_writing(path: Path) -> Iterator[None]:
    # Not this process: closing an ordinary connection would drop this process's locks.
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        os.write(write, b"!")
        os.read(os.pipe()[0], 1)
    os.read(read, 1)
    try:
        yield
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)


@pytest.fixture
def filled(path: Path) -> Path:
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        assert isinstance(db.append_message("s", "user", "a"), int)
    return path


def texts(db: SessionDB) -> list[str]:
    return [message["content"] for message in db.get_messages("s")]


def test_without_asking_for_it_nothing_is_spooled(filled: Path) -> None:
    with Hasty(filled) as db:
        with somebody_writing(filled), pytest.raises(sqlite3.OperationalError, match="database is locked"):
            db.append_message("s", "user", "b")
        assert db.spool_status() is None
    assert not list(filled.parent.glob("*-spool"))


def test_what_the_store_cannot_take_is_spooled_and_stored_before_the_next(filled: Path) -> None:
    with Hasty(filled, spool=True) as db:
        with somebody_writing(filled):
            one = db.append_message("s", "user", "b")
            several = db.append_messages("s", [{"role": "user", "content": "c"}, {"role": "user", "content": "d"}])
            assert isinstance(one, Spooled) and isinstance(several, Spooled) and one != several
            assert one.ticket < several.ticket and one.ticket in repr(one)
            status = db.spool_status()
            assert status is not None and status["waiting"] == 2
            assert status["folder"] == f"{filled}-spool" and time.time() - 600 < status["oldest"] <= time.time()
        Hasty._TRANSCRIPT_WRITE_PATIENCE_S = 20
        try:
            assert isinstance(db.append_message("s", "user", "e"), int)
        finally:
            Hasty._TRANSCRIPT_WRITE_PATIENCE_S = 0.1
        assert texts(db) == ["a", "b", "c", "d", "e"]
        status = db.spool_status()
        assert status is not None and status["waiting"] == 0 and status["oldest"] is None


def test_what_the_store_refuses_is_kept_and_told(filled: Path, tmp_path: Path) -> None:
    with SessionDB(filled) as db:
        db.append_message("s", "user", "known", client_key="k")
    with Hasty(filled, spool=True, spool_dir=tmp_path / "spools") as db:
        with somebody_writing(filled):
            refused = db.append_message("s", "user", "other", client_key="k")
        assert isinstance(refused, Spooled)
        assert [name.name.startswith("state.db-") for name in (tmp_path / "spools").iterdir()] == [True]
        Hasty._TRANSCRIPT_WRITE_PATIENCE_S = 20
        try:
            report = db.replay_spool()
        finally:
            Hasty._TRANSCRIPT_WRITE_PATIENCE_S = 0.1
        assert (report["stored"], report["found_stored"]) == (0, 0)
        ((ticket, reason),) = report["refused"]
        assert ticket == refused.ticket and "client key 'k'" in reason
        status = db.spool_status()
        assert status is not None and status["refused"] == 1


def test_a_store_that_cannot_be_opened_is_spooled_for(filled: Path) -> None:
    filled.rename(filled.with_name("good"))
    filled.write_bytes(b"no store " * 1000)
    with pytest.raises(sqlite3.DatabaseError):
        SessionDB(filled)
    with SessionDB(filled, spool=True) as db:
        assert isinstance(db.append_message("s", "user", "b"), Spooled)
        with pytest.raises(sqlite3.DatabaseError):
            db.message_count()
        filled.with_name("good").rename(filled)
        assert isinstance(db.append_message("s", "user", "c"), int)
        assert texts(db) == ["a", "b", "c"]
