"""Backups of a store in use, and restoring one."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import hermes_state
import pytest
from hermes_state import SessionDB, restore_state_db


@pytest.fixture
def filled(db: SessionDB) -> SessionDB:
    """An open store with twenty messages."""
    db.create_session("s", "cli")
    for number in range(20):
        db.append_message("s", "user", content=f"marker{number}q")
    return db


def contents(path: Path) -> list[str]:
    with SessionDB(path) as db:
        return [message["content"] for message in db.get_messages("s")]


def test_a_backup_is_a_store(filled: SessionDB, tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    report = filled.backup(tmp_path / "backup.db", progress_cb=told.append)
    assert {key: report[key] for key in ("backup", "copied", "sessions", "messages", "problems")} == {
        "backup": str(tmp_path / "backup.db"),
        "copied": True,
        "sessions": 1,
        "messages": 20,
        "problems": [],
    }
    assert report["bytes"] == (tmp_path / "backup.db").stat().st_size
    assert told[-1] == {"phase": "verifying", "done": 1, "total": 1}
    assert contents(tmp_path / "backup.db") == [f"marker{number}q" for number in range(20)]
    assert filled.backup(str(tmp_path / "again.db"), full=True)["copied"] is True
    assert filled.backup(tmp_path / "again.db")["copied"] is False
    assert filled.backup(tmp_path / "again.db", always_copy=True)["copied"] is True


def test_what_a_callback_raises_ends_the_backup(filled: SessionDB, tmp_path: Path) -> None:
    def enough(progress: dict[str, Any]) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        filled.backup(tmp_path / "backup.db", progress_cb=enough)
    assert not (tmp_path / "backup.db.unfinished").exists()


def test_a_backup_becomes_the_store(filled: SessionDB, path: Path, tmp_path: Path) -> None:
    filled.backup(tmp_path / "backup.db")
    filled.append_message("s", "user", content="later")
    with pytest.raises(sqlite3.OperationalError, match="is in use by pid") as raised:
        restore_state_db(tmp_path / "backup.db", path)
    assert hermes_state.classify_persistence_error(raised.value) == "locked"
    filled.close()
    report = restore_state_db(tmp_path / "backup.db", str(path))
    assert (report["store"], report["messages"], report["kept_log"]) == (str(path), 20, None)
    assert len(contents(path)) == 20
    assert contents(Path(report["kept"]))[-1] == "later"


def test_the_default_store_is_restored_without_a_path(
    filled: SessionDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hermes_state, "DEFAULT_DB_PATH", tmp_path / "home" / "state.db")
    filled.backup(tmp_path / "backup.db")
    report = restore_state_db(tmp_path / "backup.db", full=True)
    assert (report["store"], report["kept"]) == (str(tmp_path / "home" / "state.db"), None)
    assert len(contents(tmp_path / "home" / "state.db")) == 20


def test_what_is_no_backup_is_refused(filled: SessionDB, path: Path, tmp_path: Path) -> None:
    filled.close()
    diary = tmp_path / "diary"
    diary.write_text("Dear diary, " * 100)
    with pytest.raises(sqlite3.DatabaseError, match="file is not a database"):
        restore_state_db(diary, path)
    with pytest.raises(sqlite3.OperationalError, match="does not exist"):
        restore_state_db(tmp_path / "missing", path)
    with SessionDB(path) as db, pytest.raises(ValueError, match="not a session store"):
        db.backup(diary)
    assert len(contents(path)) == 20


@pytest.mark.each_engine
def test_a_store_on_a_server_has_its_own_tools(db: SessionDB, engine: str, tmp_path: Path) -> None:
    if engine == "file":
        assert db.backup(tmp_path / "backup.db")["copied"] is True
    else:
        with pytest.raises(ValueError, match="pg_dump"):
            db.backup(tmp_path / "backup.db")
        with pytest.raises(ValueError, match="migrate"):
            restore_state_db(tmp_path / "backup.db", "postgresql://h/d")
