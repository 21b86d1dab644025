"""Opening, closing, errors, and the module's own functions."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Any

import hermes_state
import pytest
from conftest import run_python
from hermes_state import SessionDB


def test_the_default_path_is_looked_up_at_each_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hermes_state, "DEFAULT_DB_PATH", tmp_path / "deep" / "er" / "state.db")
    for given in ((), (None,), ("",)):
        with SessionDB(*given) as db:
            assert db.db_path == tmp_path / "deep" / "er" / "state.db"
            assert db.read_only is False
    assert (tmp_path / "deep" / "er").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "deep" / "er" / "state.db").stat().st_mode & 0o777 == 0o600


def test_paths_are_texts_or_paths(path: Path) -> None:
    with SessionDB(str(path)) as db:
        assert db.db_path == path
    with SessionDB(db_path=path, read_only=True) as db:
        assert db.read_only is True


def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with SessionDB("state.db") as db:
        monkeypatch.chdir(tmp_path / "elsewhere")
        db.create_session("s", "cli")
        assert db._conn.execute("SELECT count(*) FROM sessions").fetchone()[0] == 1
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.each_engine
def test_close_is_final_and_may_be_repeated(location: Path | str) -> None:
    with SessionDB(location) as db:
        db.create_session("s", "cli")
    db.close()
    for call in (
        lambda: db.get_session("s"),
        lambda: db.get_messages("s"),
        lambda: db.append_message("s", "user"),
        lambda: db.set_meta("a", "1"),
        lambda: db._execute_write(lambda conn: None),
        lambda: db._fts_enabled,
    ):
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            call()
    assert db._conn is None
    assert not Path(f"{location}-wal").exists()


@pytest.mark.each_engine
def test_errors_within_the_context_close_too(location: Path | str) -> None:
    with pytest.raises(LookupError), SessionDB(location) as db:
        raise LookupError
    with pytest.raises(sqlite3.ProgrammingError):
        db.session_count()


@pytest.mark.each_engine
def test_flags(db: SessionDB) -> None:
    assert db._fts_enabled is True
    assert db._trigram_available is True
    assert db._fts_cjk_loaded is False
    assert db._fts_cjk_available is False
    assert db._fts_runtime_rebuild_attempted is False


def test_read_only(db: SessionDB, path: Path, tmp_path: Path) -> None:
    db.create_session("s", "cli")
    with SessionDB(path, read_only=True) as reader:
        assert reader.session_count() == 1
        for write in (lambda: reader.create_session("t", "cli"), lambda: reader.append_message("s", "user", "x")):
            with pytest.raises(sqlite3.OperationalError, match="attempt to write a readonly database") as caught:
                write()
            assert str(path) in str(caught.value)
    with pytest.raises(sqlite3.OperationalError, match="unable to open database file"):
        SessionDB(tmp_path / "absent" / "state.db", read_only=True)
    assert not (tmp_path / "absent").exists()


def test_failures_to_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "foreign.db").write_text("no database " * 100)
    cases: list[tuple[Path, type[Exception]]] = [
        (tmp_path / "file" / "state.db", OSError),
        (tmp_path / "foreign.db", sqlite3.DatabaseError),
    ]
    for where, kind in cases:
        with pytest.raises(kind) as caught:
            SessionDB(where)
        assert hermes_state.get_last_init_error() == f"{type(caught.value).__name__}: {caught.value}"
    assert isinstance(caught.value, sqlite3.DatabaseError)
    assert caught.value.sqlite_errorcode == 26
    assert type(caught.value) is sqlite3.DatabaseError
    assert "file is not a database" in str(caught.value)
    SessionDB(tmp_path / "good.db").close()
    assert hermes_state.get_last_init_error() is not None
    hermes_state._set_last_init_error(None)
    assert hermes_state.get_last_init_error() is None


def test_the_error_of_a_folder_is_the_systems(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises((FileExistsError, NotADirectoryError)) as caught:
        SessionDB(tmp_path / "file" / "state.db")
    assert caught.value.errno
    assert caught.value.filename == str(tmp_path / "file")


def test_the_sentence_for_people() -> None:
    say = hermes_state.format_session_db_unavailable
    hermes_state._set_last_init_error(None)
    assert say() == "Session database not available."
    hermes_state._set_last_init_error("OperationalError: database is locked")
    assert say("No history") == "No history: OperationalError: database is locked."
    hermes_state._set_last_init_error("OperationalError: Locking Protocol")
    assert say().endswith("(state.db may be on NFS/SMB/FUSE — see https://www.sqlite.org/wal.html).")


def test_kinds_of_errors() -> None:
    operational = sqlite3.OperationalError
    assert hermes_state.is_malformed_db_error(sqlite3.DatabaseError("database disk image is malformed"))
    assert hermes_state.is_malformed_db_error(operational("Malformed database schema (x)"))
    assert not hermes_state.is_malformed_db_error(ValueError("database disk image is malformed"))
    assert not hermes_state.is_malformed_db_error(sqlite3.DatabaseError("file is not a database"))
    assert SessionDB._is_fts5_unavailable_error(operational("no such module: FTS5"))
    assert SessionDB._is_fts5_unavailable_error(operational("no such tokenizer: trigram"))
    assert not SessionDB._is_fts5_unavailable_error(operational("no such tokenizer: porter2"))
    assert SessionDB._is_trigram_unavailable_error(operational("no such tokenizer: cjk_unicode61"))
    assert not SessionDB._is_trigram_unavailable_error(operational("no such module: fts5"))
    assert SessionDB._is_fts_write_corruption_error(sqlite3.DatabaseError("fts5: corruption found"))
    assert not SessionDB._is_fts_write_corruption_error(sqlite3.DatabaseError("something else"))


def test_the_script_builds_the_base_tables(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "bare.db")
    connection.executescript(hermes_state.SCHEMA_SQL)
    connection.executescript(hermes_state.SCHEMA_SQL)
    kinds = [row[0] for row in connection.execute("SELECT type FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")]
    assert (kinds.count("table"), kinds.count("index"), len(kinds)) == (8, 9, 17)
    assert connection.execute("SELECT count(*) FROM schema_version").fetchone()[0] == 0
    connection.close()
    columns = SessionDB._parse_schema_columns(hermes_state.SCHEMA_SQL)
    assert len(columns) == 8
    assert next(iter(columns["sessions"])) == "id"
    assert columns["messages"]["active"] == "INTEGER NOT NULL DEFAULT 1"
    with pytest.raises(sqlite3.OperationalError):
        SessionDB._parse_schema_columns("CREATE TABEL x (y)")


class FakeConnection:
    """Answers like the connection of a file system that refuses the write-ahead log."""

    def __init__(self, mode: str, refusal: str | None = None) -> None:
        self.mode, self.refusal = mode, refusal
        self.statements: list[str] = []

    def execute(self, sql: str) -> Any:
        self.statements.append(sql)
        if sql == "PRAGMA journal_mode=WAL" and self.refusal:
            raise sqlite3.OperationalError(self.refusal)
        return self

    def fetchone(self) -> tuple[str]:
        return (self.mode,)


def test_the_journal_mode(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    apply = hermes_state.apply_wal_with_fallback
    connection = sqlite3.connect(tmp_path / "other.db")
    assert apply(connection, db_label="other.db") == "wal"
    assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    connection.close()

    already = FakeConnection("wal")
    assert apply(already) == "wal"
    assert "PRAGMA journal_mode=WAL" not in already.statements

    monkeypatch.setattr(hermes_state, "_wal_fallback_warned_paths", set())
    for _ in range(2):
        refused = FakeConnection("delete", "Locking protocol")
        assert apply(refused, db_label="x.db") == "delete"
        assert refused.statements[-1] == "PRAGMA journal_mode=DELETE"
    (record,) = caplog.records
    assert record.name == "hermes_state"
    assert all(part in record.getMessage() for part in ("x.db", "Locking protocol", "journal_mode=DELETE"))
    with pytest.raises(sqlite3.OperationalError):
        apply(FakeConnection("delete", "disk I/O error"))
    with pytest.raises(sqlite3.OperationalError):
        apply(FakeConnection("delete", "database is locked"))


def test_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", "  relative/home ")
    assert hermes_state.get_hermes_home() == Path("relative/home")
    token = hermes_state.set_hermes_home_override(tmp_path)
    assert hermes_state.get_hermes_home() == tmp_path
    hermes_state.reset_hermes_home_override(token)
    hermes_state.set_hermes_home_override(None)
    monkeypatch.setenv("HERMES_HOME", " ")
    assert hermes_state.get_hermes_home() == Path.home() / ".hermes"


def test_the_default_path_is_fixed_at_import_and_a_profile_is_told(tmp_path: Path) -> None:
    code = (
        "import os, hermes_state as h; os.environ['HERMES_HOME'] = '/elsewhere'; print(h.DEFAULT_DB_PATH);"
        "del os.environ['HERMES_HOME']; h.get_hermes_home(); h.get_hermes_home()"
    )
    (tmp_path / ".hermes").mkdir()
    (tmp_path / ".hermes" / "active_profile").write_text("work\n")
    done = run_python(code, HOME=str(tmp_path), HERMES_HOME="")
    assert done.stdout.strip() == str(tmp_path / ".hermes" / "state.db")
    assert done.stderr.count("work") == 1


def test_warnings_reach_the_logger(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An old file whose titles collide is mended at the opening, which says so."""
    connection = sqlite3.connect(path)
    connection.executescript(hermes_state.SCHEMA_SQL)
    connection.execute("INSERT INTO schema_version VALUES (23)")
    connection.executemany(
        "INSERT INTO sessions (id, source, started_at, title) VALUES (?, 'cli', 1, 'same')", [("a",), ("b",)]
    )
    connection.commit()
    connection.close()
    with caplog.at_level(logging.INFO, "hermes_state"), SessionDB(path) as db:
        assert db.get_session_title("a") is None
        assert db.get_session_title("b") == "same"
    assert [record.name for record in caplog.records if "title" in record.getMessage()] == ["hermes_state"]


def test_old_files_take_the_gateways_list(path: Path, tmp_path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(hermes_state.SCHEMA_SQL)
    connection.execute("INSERT INTO schema_version VALUES (17)")
    connection.execute("INSERT INTO sessions (id, source, started_at) VALUES ('a', 'telegram', 1)")
    connection.commit()
    connection.close()
    sessions = tmp_path / "home" / "sessions"
    sessions.mkdir(parents=True)
    (sessions / "sessions.json").write_text('{"k1": {"session_id": "a", "display_name": "Ada"}}')
    with SessionDB(path) as db:
        row = db.get_session("a")
    assert (row["session_key"], row["display_name"]) == ("k1", "Ada")


def test_a_newer_file_is_read_and_not_written(path: Path) -> None:
    SessionDB(path).close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE schema_version SET version = 99")
    connection.commit()
    connection.close()
    with SessionDB(path) as db:
        assert db.session_count() == 0
        with pytest.raises(sqlite3.OperationalError, match=r"99.*23"):
            db.create_session("s", "cli")


def test_importing_is_light() -> None:
    done = run_python(
        "import sys, hermes_state; print([m for m in ('asyncio', 'json', 'logging') if m in sys.modules])"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_an_unknown_kind_of_locks_is_refused() -> None:
    done = run_python("import hermes_state", HERMES_STATE_LOCKS="magic")
    assert done.returncode != 0
    assert "magic" in done.stderr


def test_a_store_that_nobody_closed_ends_with_its_last_reference(path: Path) -> None:
    db = SessionDB(path)
    db.create_session("s", "cli")
    assert db._conn is not None
    del db
    assert not Path(f"{path}-wal").exists()


def test_a_home_that_may_not_be_entered_does_not_prevent_opening_a_store_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_file", refuses)
    with hermes_state.SessionDB(tmp_path / "state.db") as db:
        assert db._fts_cjk_loaded is False
