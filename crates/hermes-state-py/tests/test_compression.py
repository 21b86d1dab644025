"""What compressing a conversation keeps, as Python callers see it."""

from __future__ import annotations

import logging
import sqlite3
import time
from pathlib import Path

import pytest
from hermes_state import SessionDB

HOLDER = "pid=1:tid=2:agent=ab:nonce=01234567"


@pytest.mark.each_engine
def test_leases(db: SessionDB) -> None:
    assert db.try_acquire_compression_lock("s", HOLDER) is True
    assert db.try_acquire_compression_lock("s", "other", ttl_seconds=5) is False
    assert db.get_compression_lock_holder("s") == HOLDER
    assert db.refresh_compression_lock("s", HOLDER, 10) is True
    assert db.refresh_compression_lock("s", "other") is False
    assert db.release_compression_lock("s", HOLDER) is None
    assert db.get_compression_lock_holder("s") is None
    for empty in ("", None):
        assert db.try_acquire_compression_lock(empty, HOLDER) is False
        assert db.refresh_compression_lock(empty, HOLDER) is False
        assert db.release_compression_lock(empty, HOLDER) is None
        assert db.get_compression_lock_holder(empty) is None
    for holder in (None, 5, b"x"):
        assert db.try_acquire_compression_lock("s", holder) is False
        assert db.refresh_compression_lock("s", holder) is False
        assert db.release_compression_lock("s", holder) is None
    assert db.get_compression_lock_holder("s") is None
    with pytest.raises(TypeError):
        db.try_acquire_compression_lock("s", HOLDER, "long")
    with pytest.raises(UnicodeEncodeError):
        db.try_acquire_compression_lock("s", "\ud800")


@pytest.mark.each_engine
def test_cooldowns_and_streaks(db: SessionDB) -> None:
    db.create_session("s", "cli")
    until = time.time() + 100
    assert db.record_compression_failure_cooldown("s", until, "why") is None
    found = db.get_compression_failure_cooldown("s")
    assert list(found) == ["cooldown_until", "remaining_seconds", "error"]
    assert (found["cooldown_until"], found["error"]) == (until, "why")
    assert 0 < found["remaining_seconds"] <= 100
    db.clear_compression_failure_cooldown("s")
    assert db.get_compression_failure_cooldown("s") is None
    db.set_compression_fallback_streak("s", "4")
    assert db.get_compression_fallback_streak("s") == 4
    db.set_compression_fallback_streak("s", -2.5)
    assert db.get_compression_fallback_streak("s") == 0
    db.set_compression_fallback_streak("", "not looked at")
    assert db.get_compression_fallback_streak({}) == 0
    with pytest.raises(sqlite3.ProgrammingError):
        db.get_compression_fallback_streak({"no": "id"})
    for wrong, error in (("x", ValueError), (None, TypeError)):
        with pytest.raises(error):
            db.set_compression_fallback_streak("s", wrong)


def test_a_stored_time_that_is_none(db: SessionDB) -> None:
    db.create_session("s", "cli")
    db._conn.execute(
        "UPDATE sessions SET compression_failure_cooldown_until = 'soon', compression_fallback_streak = 'x'"
    )
    with pytest.raises(ValueError, match="soon"):
        db.get_compression_failure_cooldown("s")
    assert db.get_compression_fallback_streak("s") == 0


def test_trouble_is_told_as_not_had(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    SessionDB(path).close()
    with SessionDB(path, read_only=True) as db, caplog.at_level(logging.WARNING, "hermes_state"):
        assert db.try_acquire_compression_lock("s", HOLDER) is False
        assert db.refresh_compression_lock("s", HOLDER) is False
        db.release_compression_lock("s", HOLDER)
        db.record_compression_failure_cooldown("s", 5.0)
        db.clear_compression_failure_cooldown("s")
        with pytest.raises(sqlite3.OperationalError, match=r"read-?only"):
            db.set_compression_fallback_streak("s", 1)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 5
    assert all(" of session s failed: " in text for text in told)
    assert told[3].startswith("record_compression_failure_cooldown")


def test_a_closed_store_raises_but_has_no_streak(db: SessionDB) -> None:
    db.close()
    assert db.get_compression_fallback_streak("s") == 0
    for call in (
        lambda: db.try_acquire_compression_lock("s", HOLDER),
        lambda: db.release_compression_lock("s", HOLDER),
        lambda: db.get_compression_lock_holder("s"),
        lambda: db.record_compression_failure_cooldown("s", 1.0),
        lambda: db.get_compression_failure_cooldown("s"),
        lambda: db.set_compression_fallback_streak("s", 1),
    ):
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            call()
