"""What the tests share: a store of their own on either engine, a home of their own, and a sibling on the write lock."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import hermes_state
import pytest
from hermes_state import SessionDB

# A server for the tests, with nothing on it that matters; `cargo xtask test` sets it.
PG_URL = "HERMES_STATE_TEST_PG_URL"
# Whether a run without one is a failure.
PG_REQUIRED = "HERMES_STATE_TEST_PG_REQUIRED"
OLDER_RELEASE = "hermes-agent==0.19.0"
NO_SERVER = f"no PostgreSQL server: {PG_URL} names none"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "each_engine: the test runs on a file and on a server")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    on_one = any("engine" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if metafunc.definition.get_closest_marker("each_engine") and "engine" in metafunc.fixturenames and not on_one:
        metafunc.parametrize("engine", ["file", "server"], indirect=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [report for report in terminalreporter.getreports("skipped") if NO_SERVER in str(report.longrepr)]
    if skipped:
        terminalreporter.write_line(f"SKIPPED {len(skipped)} TESTS: {NO_SERVER}", red=True, bold=True)


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
    for name in ("HERMES_STATE_URL", "PGPASSWORD"):
        monkeypatch.delenv(name, raising=False)
    yield
    hermes_state._set_last_init_error(None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def psql_command() -> list[str]:
    """The program ``psql`` on the tests' server: rows come as lines, columns with ``|`` between them."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/psql"), reverse=True)
    program = str(programs[0]) if programs else "psql"
    return [program, "-X", "-q", "-A", "-t", "-w", "-v", "ON_ERROR_STOP=1", os.environ[PG_URL]]


def psql(sql: str, schema: str) -> str:
    """Runs SQL on the tests' server with this search path."""
    done = subprocess.run(
        psql_command(),
        input=f"SET client_min_messages TO warning; SET search_path TO {schema};\n{sql}",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n")


@pytest.fixture
def schema() -> Iterator[str]:
    """The name of a schema of the tests' server that is nobody's; what is made of it goes with the test."""
    if PG_URL not in os.environ:
        if PG_REQUIRED in os.environ:
            pytest.fail(NO_SERVER)
        pytest.skip(NO_SERVER)
    name = f"test_{secrets.token_hex(8)}"
    yield name
    psql(f"SET lock_timeout TO '20s'; DROP SCHEMA IF EXISTS {name} CASCADE;", name)


@pytest.fixture
def url(schema: str) -> str:
    """Where a store of the test's own may be on the tests' server."""
    server = os.environ[PG_URL]
    return f"{server}{'&' if '?' in server else '?'}schema={schema}"


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "file")


@pytest.fixture
def location(engine: str, request: pytest.FixtureRequest) -> Path | str:
    """Where the test's store is: a file, or a schema on a server for tests of each engine."""
    found: Path | str = request.getfixturevalue("path" if engine == "file" else "url")
    return found


@pytest.fixture
def db(location: Path | str) -> Iterator[SessionDB]:
    with SessionDB(location) as store:
        yield store


@pytest.fixture
def outside(db: SessionDB, engine: str, request: pytest.FixtureRequest) -> Callable[[str], object]:
    """Runs SQL in the store as another program would."""
    if engine == "file":
        return lambda sql: db._conn.execute(sql)
    schema = request.getfixturevalue("schema")
    return lambda sql: psql(sql, schema)


@contextlib.contextmanager
def held_lock(path: Path, seconds: float) -> Iterator[None]:
    """A thread of this process holds the write lock through Python's own SQLite."""
    held = threading.Event()

    def hold() -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        held.set()
        time.sleep(seconds)
        connection.execute("ROLLBACK")
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(10)
    try:
        yield
    finally:
        holder.join()


def make_empty(path: Path) -> None:
    """A file in WAL mode without a schema, whose first opening therefore needs the write lock."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


def run_python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="session")
def older_python() -> str:
    """An interpreter in which the older release is installed, made once beside the tests' own environment."""
    folder = Path(sys.prefix).parent / "older-release"
    python = folder / "bin" / "python"
    known = (
        subprocess.run(
            # Without the environment: a PYTHONPATH to this module would be read as another release, and all be cleared.
            [str(python), "-E", "-c", "import hermes_state; print(hermes_state.SCHEMA_VERSION)"],
            capture_output=True,
            text=True,
        )
        if python.exists()
        else None
    )
    if known is None or known.stdout.strip() != "22":
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--no-deps", OLDER_RELEASE], check=True)
    return str(python)


def at_once(code: str, arguments: list[tuple[str, ...]]) -> list[str]:
    """Runs a program several times at once: each says a line when it is ready, is told to go, and says one more."""
    pipe = subprocess.PIPE
    runs = [
        subprocess.Popen([sys.executable, "-c", code, *own], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        for own in arguments
    ]
    for run in runs:
        assert run.stdout is not None
        run.stdout.readline()
    for run in runs:
        assert run.stdin is not None
        run.stdin.write("go\n")
        run.stdin.flush()
    answers = []
    for run in runs:
        said, trouble = run.communicate(timeout=120)
        assert run.returncode == 0, trouble
        answers.append(said.strip())
    return answers
