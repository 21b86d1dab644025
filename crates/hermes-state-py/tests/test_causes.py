"""Causes that keep a message from being stored, made for real: Python tells them and their sentences as Rust does."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import hermes_state
import pytest
from conftest import held_lock
from hermes_state import SessionDB

PAGE = Path(__file__).parents[3] / "docs" / "command.md"

WRITE = """
import os, sys, hermes_state
role, path = sys.argv[1:]
open_files = []
if role == "nobody" and os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
if role == "crowded":
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    hermes_state._native.require_lock_kind("open-file-description")
    hermes_state.classify_persistence_error(OSError(24, "loads what it needs"))
    try:
        while True:
            open_files.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
if role == "limited":
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))
try:
    with hermes_state.SessionDB(path) as db:
        for _ in range(16):
            db.append_message("s", "user", content="filler " * 150_000)
except Exception as error:
    found = hermes_state.classify_persistence_error(error)
    for fd in open_files:
        os.close(fd)
    print(found, found.sentence, sep="|")
"""


def sentence(cause: str) -> str:
    """What the page of the command says to people of this cause."""
    start = f"| {cause} | "
    (line,) = (line for line in PAGE.read_text().splitlines() if line.startswith(start))
    return line.removeprefix(start).removesuffix(" |")


@pytest.fixture
def store(path: Path) -> Path:
    """A closed store with twenty messages."""
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        for number in range(20):
            db.append_message("s", "user", content=f"marker{number}q")
    return path


def told_in(role: str, path: Path) -> str:
    """What a process in this role tells of its error."""
    written = subprocess.run(
        [sys.executable, "-c", WRITE, role, str(path)], capture_output=True, text=True, check=False, cwd="/"
    )
    assert written.returncode == 0, written
    return written.stdout.strip()


def expect(error: BaseException, cause: str) -> None:
    found = hermes_state.classify_persistence_error(error)
    assert (found, found.sentence) == (cause, sentence(cause)), error


@pytest.mark.parametrize(
    "cause", ["locked", "disk", "readonly", "corrupt", "replaced", "too_new", "descriptors", "unknown"]
)
def test_the_page_has_the_sentence_of_each_cause(cause: str) -> None:
    assert hermes_state._native.trouble_sentences()[cause] == sentence(cause)


def test_somebody_else_who_writes(store: Path) -> None:
    with SessionDB(store) as db, held_lock(store, 1):
        db._WRITE_PATIENCE_S = 0
        with pytest.raises(sqlite3.OperationalError) as caught:
            db.set_meta("k", "v")
    expect(caught.value, "locked")


def test_a_limit_on_the_size_of_files(store: Path) -> None:
    assert told_in("limited", store) == f"disk|{sentence('disk')}"


def test_a_disk_without_room(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", str(small)], check=False)
    if mount.returncode != 0:
        print("SKIPPED: this user may not mount a small file system")
        return
    try:
        with SessionDB(small / "state.db") as db:
            db.create_session("s", "cli")
        assert told_in("writer", small / "state.db") == f"disk|{sentence('disk')}"
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


@pytest.mark.parametrize(("folder", "file"), [(0o555, 0o444), (0o777, 0o444), (0o555, 0o666), (0o700, 0o644)])
def test_what_may_not_be_written(store: Path, folder: int, file: int) -> None:
    opened = [parent for parent in store.parents if parent != store.parent and parent.stat().st_uid == os.getuid()]
    modes = {parent: parent.stat().st_mode for parent in opened}
    try:
        for parent in opened:
            parent.chmod(modes[parent] | 0o055)
        store.with_name("state.db-siblings").unlink(missing_ok=True)
        store.chmod(file)
        store.parent.chmod(folder)
        assert told_in("nobody", store) == f"readonly|{sentence('readonly')}"
    finally:
        store.parent.chmod(0o700)
        for parent, mode in modes.items():
            parent.chmod(mode)


def test_zeroed_pages(store: Path) -> None:
    content = store.read_bytes()
    store.write_bytes(content[:4096] + bytes(len(content) - 4096))
    assert told_in("writer", store) == f"corrupt|{sentence('corrupt')}"


def test_another_file_in_the_place(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    SessionDB(other).close()
    with SessionDB(store) as db:
        other.replace(store)
        with pytest.raises(sqlite3.OperationalError) as caught:
            db.append_message("s", "user", content="x")
    expect(caught.value, "replaced")


def test_a_newer_release(store: Path) -> None:
    connection = sqlite3.connect(store)
    connection.execute("UPDATE schema_version SET version = 99")
    connection.commit()
    connection.close()
    with SessionDB(store) as db, pytest.raises(sqlite3.OperationalError) as caught:
        db.append_message("s", "user", content="x")
    expect(caught.value, "too_new")


def test_128_files_open(store: Path) -> None:
    assert told_in("crowded", store) == f"descriptors|{sentence('descriptors')}"
