"""A store on a server as Python callers meet it: named, refused, away, locked, and without raw SQL or passwords."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import sqlite3
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hermes_state
import pytest
from conftest import PG_URL, psql, psql_command, run_python
from hermes_state import AsyncSessionDB, SessionDB

# Whatever comes of it, nobody may see it.
SECRET = "Xanadu-7"


def with_password(url: str) -> str:
    """The same place with a password that the tests' server, which trusts everybody, does not ask for."""
    return re.sub(r"://([^:@/]*)(:[^@/]*)?@", rf"://\1:{SECRET}@", url)


@contextlib.contextmanager
def listener(answer: Any) -> Iterator[str]:
    """A server whose every connection ``answer`` serves; gives its host and port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_the_attribute_is_the_url_as_text_without_its_password(url: str) -> None:
    with SessionDB(with_password(url)) as db:
        assert type(db.db_path) is str
        assert db.db_path == re.sub(r":[^:@/]*@", "@", with_password(url))
        assert db.db_path.startswith("postgresql://")
        db.create_session("s", "cli")
        with SessionDB(db_path=db.db_path, read_only=True) as reader:
            assert reader.session_count() == 1
        assert SECRET not in f"{db!r} {db} {vars(db)} {AsyncSessionDB(db).db_path}"


def test_the_environment_names_the_store_where_no_path_is_given(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hermes_state, "DEFAULT_DB_PATH", path)
    monkeypatch.setenv("HERMES_STATE_URL", f" {url} ")
    for given in ((), (None,), ("",)):
        with SessionDB(*given) as db:
            assert db.db_path == url
    assert not path.exists()
    with SessionDB(path) as db:
        assert db.db_path == path
    monkeypatch.setenv("HERMES_STATE_URL", "  ")
    with SessionDB() as db:
        assert db.db_path == path


def test_an_environment_that_names_no_url_is_refused_and_not_shown(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    monkeypatch.setenv("HERMES_STATE_URL", SECRET)
    with pytest.raises(sqlite3.OperationalError, match="HERMES_STATE_URL") as caught:
        SessionDB()
    assert caught.value.sqlite_errorcode == 14
    assert SECRET not in f"{caught.value} {hermes_state.get_last_init_error()}"
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize(
    "wrong", ["postgres:/h/d", "postgresql:h", "http://h/d", "postgresql://h/d?schema=a-b", Path("postgresql://h/d")]
)
def test_a_misspelt_url_is_no_file(wrong: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    for read_only in (False, True):
        with pytest.raises(sqlite3.OperationalError, match=r"write postgresql://user@host") as caught:
            SessionDB(wrong, read_only)
    assert caught.value.sqlite_errorname == "SQLITE_CANTOPEN"
    assert not list(path.parent.iterdir())


def test_bad_places_are_told_in_time_and_without_the_password(url: str, schema: str) -> None:
    place = with_password(url)
    server = re.sub(r"^.*@([^/]*)/.*$", r"\1", place)
    assert ":" in server
    cases = {
        place.replace(server, "nowhere.invalid"): "nowhere.invalid is not known",
        place.replace(server, "127.0.0.1:1"): "nothing accepts connections",
        place.replace("?schema", "absent?schema"): "no database",
        f"{place}&sslmode=require": "offers no TLS",
        f"{place}&sslmode=never": "sslmode is none of",
    }
    told: dict[str, str] = {}

    def attempt(wrong: str) -> None:
        started = time.monotonic()
        with pytest.raises(sqlite3.OperationalError) as caught:
            SessionDB(wrong)
        assert time.monotonic() - started < 8
        told[wrong] = f"{caught.value} {caught.value!r}"

    threads = [threading.Thread(target=attempt, args=(wrong,)) for wrong in cases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for wrong, words in cases.items():
        assert words in told[wrong]
        assert SECRET not in told[wrong]
    assert SECRET not in str(hermes_state.get_last_init_error())
    assert SECRET not in hermes_state.format_session_db_unavailable()
    assert psql(f"SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'", schema) == "0"


def test_looking_at_what_is_not_there_creates_nothing(url: str, schema: str) -> None:
    with pytest.raises(sqlite3.OperationalError, match="there is no store in schema") as caught:
        SessionDB(url, read_only=True)
    assert caught.value.sqlite_errorcode == 14
    assert psql(f"SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'", schema) == "0"


@pytest.mark.parametrize(
    ("in_url", "environment", "sent"), [("", SECRET, SECRET), (":own", SECRET, "own"), ("", "", None)]
)
def test_the_password_is_the_urls_or_the_environments(
    in_url: str, environment: str, sent: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def asks_for_a_password(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"R" + struct.pack("!II", 8, 3))
        answer = connection.recv(4096)
        if answer[:1] == b"p":
            seen.append(answer[5:-1].decode())
            body = b"SFATAL\0VFATAL\0C28P01\0Mthe password is wrong\0\0"
            connection.sendall(b"E" + struct.pack("!I", len(body) + 4) + body)
        connection.close()

    monkeypatch.setenv("PGPASSWORD", environment)
    with (
        listener(asks_for_a_password) as at,
        pytest.raises(sqlite3.OperationalError, match="user and password") as caught,
    ):
        SessionDB(f"postgresql://me{in_url}@{at}/d?sslmode=disable")
    assert seen == ([] if sent is None else [sent])
    assert SECRET not in str(caught.value)


def test_raw_sql_says_what_it_needs(url: str) -> None:
    with SessionDB(with_password(url)) as db:
        calls = []
        for raw in (lambda: db._conn, lambda: db._execute_write(lambda conn: calls.append(conn))):
            with pytest.raises(sqlite3.ProgrammingError, match=r"need a store in a file.*on a server") as caught:
                raw()
            assert "PostgreSQL driver" in str(caught.value)
            assert SECRET not in str(caught.value)
        assert not calls
        with db._lock:
            db.create_session("s", "cli")
        assert db._execute_write(db._native.append_message("s", "user", "native"), patience_s=5) == 1
        assert db._write_count == 2


def test_flags_of_a_machine_with_the_tokenizer(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "libfts5_cjk.so"
    library.touch()
    monkeypatch.setenv("HERMES_FTS5_CJK_SO", str(library))
    with SessionDB(url) as db:
        assert (db._fts_enabled, db._trigram_available) == (True, True)
        assert (db._fts_cjk_loaded, db._fts_cjk_available) == (False, False)
        db.create_session("s", "cli")
        db.append_message("s", "user", "西湖边的灵隐寺")
        assert [hit["session_id"] for hit in db.search_messages("灵隐")] == ["s"]


def test_a_read_only_store_refuses_writes(url: str) -> None:
    with SessionDB(url) as db:
        db.create_session("s", "cli")
    with SessionDB(url, read_only=True) as reader:
        assert reader.session_count() == 1
        with pytest.raises(sqlite3.OperationalError, match="attempt to write a readonly database") as caught:
            reader.append_message("s", "user", "x")
        assert caught.value.sqlite_errorcode == 8


def test_a_lock_of_another_session_is_waited_for_and_then_named(url: str, schema: str) -> None:
    with SessionDB(url) as db:
        db.set_meta("a", "1")
        environment = {**os.environ, "PGAPPNAME": "the-holder"}
        holder = subprocess.Popen(
            psql_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert holder.stdin
        assert holder.stdout
        holder.stdin.write(f"BEGIN; UPDATE {schema}.state_meta SET value = '2'; SELECT 'held';\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "held\n"
        db._WRITE_PATIENCE_S = 2.5
        with pytest.raises(sqlite3.OperationalError, match=r"database is locked: .*the-holder.* healthy") as caught:
            db.set_meta("a", "3")
        assert (caught.value.sqlite_errorcode, caught.value.sqlite_errorname) == (5, "SQLITE_BUSY")
        db.create_session("s", "cli")
        holder.communicate("COMMIT;\n")
        db.set_meta("a", "4")
        assert db.get_meta("a") == "4"


def test_a_server_that_goes_away_is_waited_for_and_then_told(url: str) -> None:
    host, port = re.sub(r"^.*@([^/]*)/.*$", r"\1", url).rsplit(":", 1)
    sockets: list[socket.socket] = []

    def forward(client: socket.socket) -> None:
        server = socket.create_connection((host, int(port)))
        sockets.extend((client, server))

        def pump(source: socket.socket, sink: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    sink.sendall(data)

        threading.Thread(target=pump, args=(server, client), daemon=True).start()
        pump(client, server)

    with listener(forward) as at:
        db = SessionDB(with_password(url).replace(f"{host}:{port}", at))
        db.create_session("s", "cli")
        db._WRITE_PATIENCE_S = db._TRANSCRIPT_WRITE_PATIENCE_S = 0.5
    for end in sockets:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    with pytest.raises(sqlite3.OperationalError, match=r"unreachable for .* retry when the server is back") as caught:
        db.append_message("s", "user", "late")
    assert (caught.value.sqlite_errorcode, caught.value.perhaps_stored) == (14, False)
    assert SECRET not in str(caught.value)
    db.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_inherited_handle_says_so_without_the_password(url: str) -> None:
    from test_threads_and_forks import in_child

    with SessionDB(with_password(url)) as db:
        db.create_session("s", "cli")
        answer = in_child(db.session_count)
        assert answer.startswith("ProgrammingError")
        assert f"another process (pid {os.getpid()})" in answer
        assert SECRET not in answer
        assert in_child(db.close) == "returned None"
        assert db.append_message("s", "user", "still here") == 1


def test_ctrl_c_ends_an_opening() -> None:
    with listener(lambda connection: connection.recv(65536)) as at:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            SessionDB(f"postgresql://me@{at}/d?connect_timeout=30")
        assert time.monotonic() - started < 3


def test_an_interpreter_ends_while_it_has_a_store_open(url: str) -> None:
    code = "import os; from hermes_state import SessionDB; db = SessionDB(); db.create_session('s', 'cli'); print(db)"
    done = run_python(code, HERMES_STATE_URL=with_password(url))
    assert (done.returncode, done.stderr) == (0, "")
    assert SECRET not in done.stdout
    with SessionDB(url, read_only=True) as db:
        assert db.session_count() == 1


def test_the_server_for_the_tests_is_no_store_of_anybodys() -> None:
    assert "schema=" not in os.environ.get(PG_URL, "")
