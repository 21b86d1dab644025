"""Delegates on connections of callers: found and deleted within the caller's transaction."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hermes_state import SessionDB, _collect_delegate_child_ids, _delete_delegate_children


def delegate(db: SessionDB, name: str, origin: str | None, parent: str | None = None) -> None:
    db.create_session(name, "cli", parent_session_id=parent, model_config={"_delegate_from": origin})


@pytest.fixture
def family(db: SessionDB) -> SessionDB:
    """Under ``p``: delegates of each kind, what is none, and what hangs on them."""
    db.create_session("p", "cli")
    delegate(db, "named", "p")
    delegate(db, "below", "elsewhere", parent="p")
    delegate(db, "deep", "named")
    delegate(db, "deeper", "", parent="deep")
    db.create_session("child", "cli", parent_session_id="p")
    delegate(db, "of a child", "nobody", parent="child")
    db.create_session("unmarked", "cli", parent_session_id="p", model_config={"_delegate_from": None})
    db.create_session("odd", "cli", parent_session_id="p", model_config={"_branched_from": "p"})
    db.create_session("left", "cli", parent_session_id="named")
    for name in ("p", "named", "child"):
        db.append_message(name, "user", f"message of {name}")
    db.update_session_meta("odd", "no json, _delegate_from")
    return db


def test_delegates_are_collected_by_mark_and_by_parent(family: SessionDB) -> None:
    connection = family._conn
    everything = ["below", "deep", "deeper", "named"]
    assert sorted(_collect_delegate_child_ids(connection, ["p"])) == everything
    assert sorted(_collect_delegate_child_ids(connection.cursor(), iter(["p", "", None, "p"]))) == everything
    assert sorted(_collect_delegate_child_ids(connection, ["p", "named"])) == ["below", "deep", "deeper"]
    assert _collect_delegate_child_ids(connection, ["deeper", "stranger"]) == []
    assert _collect_delegate_child_ids(connection, []) == []
    assert _collect_delegate_child_ids(connection, ["", None]) == []
    family.update_session_meta("p", json.dumps({"_delegate_from": "deeper"}))
    assert sorted(_collect_delegate_child_ids(connection, ["p"])) == everything, "a circle leads not back to the start"
    with pytest.raises(UnicodeEncodeError):
        _collect_delegate_child_ids(connection, ["p\ud800"])
    with pytest.raises(sqlite3.ProgrammingError):
        _collect_delegate_child_ids(connection, [Path("p")])


def test_delegates_are_deleted_within_the_transaction_of_the_caller(family: SessionDB) -> None:
    connection = family._conn
    connection.execute("BEGIN IMMEDIATE")
    assert sorted(_delete_delegate_children(connection, ["p"])) == ["below", "deep", "deeper", "named"]
    connection.execute("ROLLBACK")
    assert family.get_session("named") is not None
    deleted = family._execute_write(lambda conn: _delete_delegate_children(conn, ["p"]))
    assert sorted(deleted) == ["below", "deep", "deeper", "named"]
    left = [row[0] for row in connection.execute("SELECT id FROM sessions ORDER BY id")]
    assert left == ["child", "left", "odd", "of a child", "p", "unmarked"]
    assert family.get_session("left")["parent_session_id"] is None
    assert family.get_session("child")["parent_session_id"] == "p"
    owners = [row[0] for row in connection.execute("SELECT session_id FROM messages ORDER BY id")]
    assert owners == ["p", "child"]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert _delete_delegate_children(connection, ["p"]) == []


@pytest.fixture
def bare() -> Iterator[sqlite3.Connection]:
    """Just the columns that are needed."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE sessions (id TEXT PRIMARY KEY, parent_session_id TEXT, model_config TEXT)")
        yield connection


def test_three_columns_are_enough(bare: sqlite3.Connection) -> None:
    for name, parent, config in (
        ("p", None, None),
        ("a", "p", '{"_delegate_from": false}'),
        ("first", None, '{"_delegate_from": "p", "_delegate_from": "q"}'),
        ("second", None, '{"_delegate_from": "q", "_delegate_from": "p"}'),
        ("list", "p", '["_delegate_from"]'),
        ("number", "p", "5"),
        ("empty", "p", ""),
        ("nan", "p", '{"_delegate_from": "p", "x": NaN}'),
        ("within", "p", '{"x": {"_delegate_from": "p"}}'),
        ("escaped", None, '{"\\u005fdelegate_from": "p"}'),
    ):
        bare.execute("INSERT INTO sessions VALUES (?, ?, ?)", (name, parent, config))
    bare.commit()
    found = sorted(_collect_delegate_child_ids(bare, ["p"]))
    assert found == sorted(["a", "first", *(["escaped"] if escapes_are_read(bare) else [])])
    assert not bare.in_transaction
    bare.row_factory = sqlite3.Row
    assert sorted(_collect_delegate_child_ids(bare, ["p"])) == found


def escapes_are_read(connection: sqlite3.Connection) -> bool:
    """Whether this SQLite decodes escapes in the names of members."""
    return bool(connection.execute("SELECT json_type('{\"\\u0061\": 1}', '$.a') IS NOT NULL").fetchone()[0])


def test_many_sessions_are_asked_about_at_once(bare: sqlite3.Connection) -> None:
    rows = [(f"d{number}", None, json.dumps({"_delegate_from": f"p{number}"})) for number in range(50_000)]
    bare.executemany("INSERT INTO sessions VALUES (?, ?, ?)", rows)
    found = _collect_delegate_child_ids(bare, (f"p{number}" for number in range(50_000)))
    assert len(found) == len(set(found)) == 50_000
