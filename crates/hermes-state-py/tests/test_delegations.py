"""The table of background delegations, whose rows another component writes through connections of its own."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

from hermes_state import SessionDB

# What the component does, on connections of Python's own: WAL, ten seconds of patience, no foreign keys.
COMPONENT = """
import json, os, sqlite3, sys, time, uuid

TABLE = '''CREATE TABLE IF NOT EXISTS async_delegations (
    delegation_id TEXT PRIMARY KEY, origin_session TEXT NOT NULL, origin_ui_session_id TEXT NOT NULL DEFAULT '',
    parent_session_id TEXT, state TEXT NOT NULL, dispatched_at REAL NOT NULL, completed_at REAL,
    updated_at REAL NOT NULL, event_json TEXT, result_json TEXT, delivery_state TEXT NOT NULL DEFAULT 'pending',
    delivery_attempts INTEGER NOT NULL DEFAULT 0, delivered_at REAL, owner_pid INTEGER, owner_started_at INTEGER,
    task_json TEXT, delivery_claim TEXT, delivery_claimed_at REAL)'''

def run(sql, *parameters):
    connection = sqlite3.connect(sys.argv[1], timeout=10)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        with connection:
            return connection.execute(sql, parameters).rowcount
    finally:
        connection.close()

def rows(sql, *parameters):
    connection = sqlite3.connect(sys.argv[1], timeout=10)
    try:
        return connection.execute(sql, parameters).fetchall()
    finally:
        connection.close()

def dispatch(id):
    now = time.time()
    run("INSERT OR REPLACE INTO async_delegations (delegation_id, origin_session, parent_session_id, state,"
        " dispatched_at, updated_at, task_json, owner_pid, delivery_state, delivery_attempts)"
        " VALUES (?, 'key', 'gone already', 'running', ?, ?, ?, ?, 'pending', 0)", id, now, now, "{}", os.getpid())

def end(id, status, event):
    now = time.time()
    return run("UPDATE async_delegations SET state = ?, completed_at = ?, updated_at = ?, event_json = ?,"
               " result_json = ?, delivery_state = 'pending' WHERE delegation_id = ?",
               status, now, now, json.dumps(event), "{}", id)

def claim(id, token):
    if not rows("SELECT 1 FROM async_delegations WHERE delegation_id = ?", id):
        return True
    now = time.time()
    return run("UPDATE async_delegations SET delivery_claim = ?, delivery_claimed_at = ?, updated_at = ?,"
               " delivery_attempts = delivery_attempts + 1 WHERE delegation_id = ? AND delivery_state = 'pending'"
               " AND (delivery_claim IS NULL OR delivery_claimed_at < ?)", token, now, now, id, now - 300) == 1

def complete(id, token):
    now = time.time()
    return run("UPDATE async_delegations SET delivery_state = 'delivered', delivered_at = ?, updated_at = ?,"
               " delivery_claim = NULL WHERE delegation_id = ? AND delivery_state = 'pending' AND delivery_claim = ?",
               now, now, id, token) == 1

def release(id, token):
    now = time.time()
    return run("UPDATE async_delegations SET delivery_claim = NULL, updated_at = ?, delivery_state ="
               " CASE WHEN delivery_attempts >= 8 THEN 'dropped' ELSE 'pending' END"
               " WHERE delegation_id = ? AND delivery_state = 'pending' AND delivery_claim = ?", now, id, token) == 1

def drop(id, token):
    now = time.time()
    return run("UPDATE async_delegations SET delivery_state = 'dropped', delivery_claim = NULL, updated_at = ?"
               " WHERE delegation_id = ? AND delivery_state = 'pending' AND delivery_claim = ?", now, id, token) == 1

def mark(id):
    now = time.time()
    return run("UPDATE async_delegations SET delivery_state = 'delivered', delivered_at = ?, updated_at = ?"
               " WHERE delegation_id = ? AND delivery_state <> 'delivered'", now, now, id) == 1

def token():
    return f"consumer:{os.getpid()}:{uuid.uuid4().hex}"
"""

# Dispatches and ends delegations of its own, then races another one like it for all of both.
RACER = (
    COMPONENT
    + """
run(TABLE)
name = sys.argv[2]
mine = [f"deleg_{name}{number:07x}" for number in range(25)]
for id in mine:
    dispatch(id)
    assert end(id, "completed", {"type": "async_delegation", "delegation_id": id}) == 1
print("ready", flush=True)
sys.stdin.readline()
pending = rows("SELECT delegation_id FROM async_delegations WHERE state <> 'running' AND delivery_state = 'pending'"
               " AND event_json IS NOT NULL ORDER BY completed_at, delegation_id")
delivered = []
for (id,) in pending:
    mine = token()
    if claim(id, mine):
        assert complete(id, mine)
        delivered.append(id)
print(json.dumps(delivered), flush=True)
"""
)

# Goes through every change of a delivery that the component makes, one after the other.
TABLE_OF_CHANGES = (
    COMPONENT
    + """
run(TABLE)
state = lambda id: rows("SELECT state, delivery_state, delivery_attempts, delivery_claim IS NULL"
                        " FROM async_delegations WHERE delegation_id = ?", id)
assert claim("no row", "t") and state("no row") == []
dispatch("d"); assert state("d") == [("running", "pending", 0, 1)]
assert claim("d", "t") and state("d") == [("running", "pending", 1, 0)]
assert not claim("d", "u") and not complete("d", "u") and not release("d", "u") and not drop("d", "u")
run("UPDATE async_delegations SET delivery_claimed_at = ? WHERE delegation_id = 'd'", time.time() - 301)
assert claim("d", "u") and not complete("d", "t") and state("d") == [("running", "pending", 2, 0)]
assert complete("d", "u") and state("d") == [("running", "delivered", 2, 1)]
assert not mark("d") and not claim("d", "t")
assert end("d", "failed", {}) == 1 and state("d") == [("failed", "pending", 2, 1)]
for attempt in range(3, 9):
    assert claim("d", "t") and release("d", "t")
    assert state("d") == [("failed", "dropped" if attempt == 8 else "pending", attempt, 1)]
assert mark("d") and state("d") == [("failed", "delivered", 8, 1)]
dispatch("d"); assert state("d") == [("running", "pending", 0, 1)]
assert claim("d", "t") and drop("d", "t") and state("d") == [("running", "dropped", 1, 1)]
assert run("DELETE FROM async_delegations WHERE delegation_id = 'd'") == 1
print("done")
"""
)


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def columns(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [row[1] for row in connection.execute("PRAGMA table_info(async_delegations)")]


def test_the_component_and_writers_of_the_store_work_side_by_side(path: Path) -> None:
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        racers = [start(RACER, str(path), name) for name in "ab"]
        appended = 0
        for step in ("\n", None):
            for racer in racers:
                if step:
                    assert racer.stdout.readline() == "ready\n"
            for _ in range(40):
                db.append_message("s", "user", f"message {appended}")
                appended += 1
            if step:
                for racer in racers:
                    racer.stdin.write(step)
                    racer.stdin.flush()
        delivered = [json.loads(racer.communicate(timeout=120)[0]) for racer in racers]
        assert [racer.returncode for racer in racers] == [0, 0]
        expected = sorted(f"deleg_{name}{number:07x}" for name in "ab" for number in range(25))
        assert sorted(delivered[0] + delivered[1]) == expected, "each delivered by exactly one"
        assert db.message_count("s") == appended
        assert len(db.get_messages("s")) == appended
        left = "SELECT COUNT(*) FROM async_delegations WHERE delivery_state = 'delivered' AND delivery_attempts = 1"
        assert db._conn.execute(left).fetchone()[0] == 50
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_every_change_of_the_component_works_on_the_table_of_the_store(path: Path) -> None:
    with SessionDB(path) as db:
        changes = start(TABLE_OF_CHANGES, str(path))
        assert changes.communicate(timeout=120)[0] == "done\n"
        assert db._conn.execute("SELECT COUNT(*) FROM async_delegations").fetchone()[0] == 0


def test_a_table_that_the_component_made_first_is_completed(path: Path) -> None:
    changes = start(TABLE_OF_CHANGES, str(path))
    assert changes.communicate(timeout=120)[0] == "done\n"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE async_delegations")
        connection.execute(
            "CREATE TABLE async_delegations (delegation_id TEXT PRIMARY KEY, origin_session TEXT NOT NULL,"
            " state TEXT NOT NULL, dispatched_at REAL NOT NULL, updated_at REAL NOT NULL)"
        )
        connection.execute("INSERT INTO async_delegations VALUES ('deleg_1', '', 'running', 1, 2)")
        connection.commit()
    SessionDB(path).close()
    assert len(columns(path)) == 18
    with contextlib.closing(sqlite3.connect(path)) as connection:
        row = "SELECT state, delivery_state, delivery_attempts, origin_ui_session_id, owner_pid FROM async_delegations"
        assert connection.execute(row).fetchall() == [("running", "pending", 0, "", None)]
        index = "SELECT COUNT(*) FROM sqlite_master WHERE name = 'idx_async_delegations_delivery'"
        assert connection.execute(index).fetchone()[0] == 1
