"""Damaged files: the probe, the repair by hand, and the one that begins by itself at an opening."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import hermes_state
import pytest
from conftest import held_lock
from hermes_state import SessionDB, repair_state_db_schema

KEYS = {"repaired", "strategy", "backup_path", "error"}


@pytest.fixture(autouse=True)
def _armed() -> Iterator[None]:
    hermes_state._repair_attempted_paths.clear()
    yield
    hermes_state._repair_attempted_paths.clear()


@pytest.fixture
def store(path: Path) -> Path:
    """A closed store with twenty messages."""
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        for number in range(20):
            db.append_message("s", "user", content=f"marker{number}q")
    return path


def damage(path: Path, *statements: str) -> None:
    """Changes the file as nothing that is well would."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        for statement in statements:
            connection.execute(statement)


def zero_index(path: Path) -> None:
    damage(path, "UPDATE messages_fts_data SET block = zeroblob(64) WHERE id > 10")


def double_index(path: Path) -> None:
    damage(path, "INSERT INTO sqlite_master SELECT * FROM sqlite_master WHERE name = 'idx_messages_session'")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def names(path: Path) -> set[str]:
    return {found.name for found in path.parent.iterdir()} - {"home", "state.db-siblings"}


def test_what_is_well_is_left_alone(store: Path) -> None:
    before = digest(store)
    assert hermes_state._db_opens_cleanly(store) is None
    report = repair_state_db_schema(store)
    assert report == {"repaired": True, "strategy": "already_healthy", "backup_path": None, "error": None}
    assert digest(store) == before
    assert names(store) == {"state.db"}


def test_a_missing_file_is_told_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "absent.db"
    assert hermes_state._db_opens_cleanly(path) == f"{path} does not exist"
    assert repair_state_db_schema(path) == {
        "repaired": False,
        "strategy": None,
        "backup_path": None,
        "error": f"{path} does not exist",
    }
    assert not path.exists()


def test_a_folder_raises(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError, match="unable to open database file"):
        hermes_state._db_opens_cleanly(tmp_path)


def test_a_file_without_a_store_is_told(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (x)")
    assert hermes_state._db_opens_cleanly(path) == "no such table: sessions"


@pytest.mark.parametrize("as_text", [False, True])
def test_a_damaged_index_is_filled_anew(store: Path, as_text: bool, caplog: pytest.LogCaptureFixture) -> None:
    zero_index(store)
    store.chmod(0o640)
    damaged, modified = digest(store), store.stat().st_mtime_ns
    assert hermes_state._db_opens_cleanly(store) is not None
    with caplog.at_level(logging.WARNING, "hermes_state"):
        report = repair_state_db_schema(str(store) if as_text else store)
    assert set(report) == KEYS
    assert (report["repaired"], report["strategy"], report["error"]) == (True, "rebuild_fts", None)
    backup = Path(report["backup_path"])
    assert re.fullmatch(r"state\.db\.malformed-backup-\d{8}_\d{6}", backup.name)
    assert (digest(backup), backup.stat().st_mtime_ns) == (damaged, modified)
    assert backup.stat().st_mode & 0o777 == store.stat().st_mode & 0o777 == 0o640
    assert {table["name"]: table["rows"] for table in report.tables}["messages"] == 20
    assert "messages 20 (lost 0)" in caplog.text
    assert hermes_state._db_opens_cleanly(store) is None
    with SessionDB(store) as db:
        assert len(db.search_messages("marker7q")) == 1
        assert db.message_count() == 20


def test_no_backup_if_none_is_wanted(store: Path) -> None:
    zero_index(store)
    report = repair_state_db_schema(store, backup=False)
    assert (report["repaired"], report["backup_path"]) == (True, None)
    assert names(store) == {"state.db"}


def test_an_opening_repairs_a_malformed_schema_once(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    double_index(store)
    with caplog.at_level(logging.ERROR, "hermes_state"), SessionDB(store) as db:
        assert db.message_count() == 20
        assert len(db.search_messages("marker7q")) == 1
    assert "is damaged" in caplog.text
    assert str(store) in hermes_state._repair_attempted_paths
    assert any("malformed-backup" in name for name in names(store))
    double_index(store)
    with pytest.raises(sqlite3.DatabaseError) as caught:
        SessionDB(store)
    assert hermes_state.is_malformed_db_error(caught.value)
    hermes_state._repair_attempted_paths.clear()
    SessionDB(store).close()


def test_an_opening_asks_the_module_for_the_repair(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    double_index(store)
    asked = []

    def refuse(path: Path) -> dict[str, object]:
        asked.append(path)
        return {"repaired": False, "strategy": None, "backup_path": None, "error": "no"}

    monkeypatch.setattr(hermes_state, "repair_state_db_schema", refuse)
    for _ in range(2):
        with pytest.raises(sqlite3.DatabaseError, match="malformed"):
            SessionDB(store)
    assert asked == [store]
    assert "malformed" in (hermes_state.get_last_init_error() or "")


def test_looking_at_a_damaged_file_repairs_nothing(store: Path) -> None:
    double_index(store)
    before = digest(store)
    with pytest.raises(sqlite3.DatabaseError), SessionDB(store, read_only=True) as db:
        db.message_count()
    assert digest(store) == before
    assert names(store) == {"state.db"}


def test_a_busy_store_is_not_sick_and_is_not_repaired(store: Path) -> None:
    with held_lock(store, 1.5):
        assert hermes_state._db_opens_cleanly(store) is None
        assert repair_state_db_schema(store)["strategy"] == "already_healthy"
    zero_index(store)
    before = digest(store)
    connection = sqlite3.connect(store)
    connection.execute("SELECT COUNT(*) FROM sessions").fetchone()
    report = repair_state_db_schema(store)
    connection.close()
    assert (report["repaired"], report["backup_path"]) == (False, None)
    assert "in use" in str(report["error"])
    assert digest(store) == before
    assert repair_state_db_schema(store)["repaired"] is True


def test_a_process_that_has_the_store_open_is_named(store: Path) -> None:
    zero_index(store)
    code = (
        "import sys, hermes_state; db = hermes_state.SessionDB(sys.argv[1]);"
        " print('open', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "open\n"
    before = digest(store)
    report = repair_state_db_schema(store)
    assert report["repaired"] is False
    assert f"pid {holder.pid}" in str(report["error"])
    assert digest(store) == before
    holder.communicate()
    assert repair_state_db_schema(store)["repaired"] is True


def test_a_truncated_file_does_not_cost_the_log_its_rows(store: Path) -> None:
    code = (
        "import os, signal, sys, hermes_state; db = hermes_state.SessionDB(sys.argv[1]);"
        " db.append_message('s', 'user', content='only in the log'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(store)], check=False)
    assert killed.returncode == -signal.SIGKILL
    log = store.with_name("state.db-wal")
    rows = log.read_bytes()
    assert b"only in the log" in rows
    os.truncate(store, 0)
    assert repair_state_db_schema(store)["repaired"] is False
    assert hermes_state._db_opens_cleanly(store) is not None
    assert log.read_bytes() == rows


def test_two_repairs_at_once_are_one_repair(store: Path) -> None:
    with SessionDB(store) as db:
        for number in range(40):
            db.append_messages("s", [{"role": "user", "content": f"word{number}x{i} filler"} for i in range(100)])
    zero_index(store)
    code = "import sys, hermes_state; print(hermes_state.repair_state_db_schema(sys.argv[1])['strategy'])"
    repairs = [
        subprocess.Popen([sys.executable, "-c", code, str(store)], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    said = sorted(repair.communicate()[0].strip() for repair in repairs)
    assert said.count("rebuild_fts") == 1, said
    assert set(said) <= {"rebuild_fts", "None", "already_healthy"}
    assert len([name for name in names(store) if "malformed-backup" in name]) == 1
    with SessionDB(store) as db:
        assert db.message_count() == 4020


def test_a_store_on_a_server_is_the_servers_to_mend(url: str) -> None:
    report = repair_state_db_schema(url)
    assert (report["repaired"], report["strategy"], report["backup_path"]) == (False, None, None)
    assert "server" in str(report["error"])
    assert "no store in schema" in str(hermes_state._db_opens_cleanly(url))
    SessionDB(url).close()
    assert hermes_state._db_opens_cleanly(url) is None


def test_a_repair_that_is_killed_leaves_the_store_as_it_was(store: Path) -> None:
    with SessionDB(store) as db:
        for number in range(60):
            db.append_messages("s", [{"role": "user", "content": f"word{number}x{i} filler"} for i in range(100)])
    zero_index(store)
    before = digest(store)
    code = (
        "import sys, hermes_state; print('begun', flush=True); hermes_state.repair_state_db_schema(sys.argv[1]);"
        " print('done', flush=True)"
    )
    killed = 0
    for delay in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3):
        repair = subprocess.Popen([sys.executable, "-c", code, str(store)], stdout=subprocess.PIPE, text=True)
        assert repair.stdout is not None and repair.stdout.readline() == "begun\n"
        time.sleep(delay)
        repair.kill()
        if "done" in repair.communicate()[0]:
            break
        killed += 1
        with contextlib.closing(sqlite3.connect(store)) as connection:
            assert connection.execute("SELECT COUNT(*) FROM messages").fetchone() == (6020,)
        if digest(store) != before:
            # It was killed after the repaired file had taken its place.
            break
    assert killed > 0
    report = repair_state_db_schema(store)
    assert report["repaired"] is True
    assert not [name for name in names(store) if "repairing" in name]
    with SessionDB(store) as db:
        assert db.message_count() == 6020
        assert len(db.search_messages("word59x99")) == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (sqlite3.OperationalError("database is locked"), "locked"),
        (sqlite3.OperationalError("database or disk is full"), "disk"),
        (sqlite3.OperationalError("disk I/O error"), "disk"),
        (OSError(28, "No space left on device"), "disk"),
        (sqlite3.OperationalError("attempt to write a readonly database"), "readonly"),
        (PermissionError(13, "Permission denied"), "readonly"),
        (sqlite3.DatabaseError("database disk image is malformed"), "corrupt"),
        (sqlite3.DatabaseError("malformed database schema (x)"), "corrupt"),
        (sqlite3.DatabaseError("file is not a database"), "corrupt"),
        (OSError(24, "Too many open files"), "descriptors"),
        (sqlite3.OperationalError("no such table: t"), "unknown"),
        (ValueError("database is locked"), "unknown"),
    ],
)
def test_errors_of_others_are_sorted(error: Exception, kind: str) -> None:
    found = hermes_state.classify_persistence_error(error)
    assert found == kind
    assert found.sentence.endswith(".")


def test_errors_of_the_store_are_sorted(store: Path, tmp_path: Path) -> None:
    def kind_of(call: object) -> str:
        with pytest.raises(Exception) as caught:
            call()  # type: ignore[operator]
        return hermes_state.classify_persistence_error(caught.value)

    with SessionDB(store, read_only=True) as db:
        assert kind_of(lambda: db.create_session("t", "cli")) == "readonly"
    with SessionDB(store) as db, held_lock(store, 1):
        db._WRITE_PATIENCE_S = 0
        assert kind_of(lambda: db.set_meta("k", "v")) == "locked"
    (tmp_path / "diary.db").write_text("Dear diary, " * 100)
    assert kind_of(lambda: SessionDB(tmp_path / "diary.db")) == "corrupt"
    db = SessionDB(store)
    other = tmp_path / "other.db"
    SessionDB(other).close()
    other.replace(store)
    assert kind_of(lambda: db.set_meta("k", "v")) == "replaced"
    db.close()
    damage(store, "UPDATE schema_version SET version = 99")
    with SessionDB(store) as newer:
        assert kind_of(lambda: newer.set_meta("k", "v")) == "too_new"
