"""Two SQLite libraries in one process, each with its own idea of who holds which lock.

Five things that go wrong with ordinary locks, each tried with each means of the lock layer. Where ordinary locks are
tried the scene has to go wrong, or it proves nothing about the others.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from conftest import run_python

MEANS = ["private-table", "open-file-description"]

PRELUDE = """
import json, os, sqlite3, subprocess, sys, threading, time
from hermes_state import SessionDB

path = sys.argv[1]

def plain():
    return sqlite3.connect(path, timeout=30, isolation_level=None)

def elsewhere(code):
    # Another process, with Python's own library.
    done = subprocess.run([sys.executable, '-c', 'import sqlite3, sys\\nc = sqlite3.connect(sys.argv[1], timeout=30)\\n'
        + code, path], capture_output=True, text=True)
    return done.stdout.strip() or done.stderr

def counted():
    # What the other process says instead of a number is news of a damaged file.
    answer = elsewhere("print(c.execute('SELECT count(*) FROM messages').fetchone()[0])")
    return int(answer) if answer.isdigit() else answer

def append(times):
    for _ in range(times):
        db.append_message('s', 'user', 'ours')

def insert(connection):
    connection.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', 'theirs', 1)")

def refusal_of(action):
    try:
        action()
    except sqlite3.Error as error:
        return str(error)

db = SessionDB(path)
db.create_session('s', 'cli')
"""

HELD = """
other = plain()
other.execute('BEGIN IMMEDIATE')
insert(other)
db._TRANSCRIPT_WRITE_PATIENCE_S = 0.5
started = time.monotonic()
try:
    append(1)
    answer = {'both_held': True}
except sqlite3.OperationalError as error:
    answer = {'both_held': False, 'locked': 'database is locked' in str(error)}
print(json.dumps(answer), flush=True)
os._exit(0)
"""

CLOSED_BY_THE_OTHER = """
append(50)
raw = plain()
raw.execute('SELECT count(*) FROM messages').fetchone()
raw.close()
elsewhere("c.execute('SELECT count(*) FROM messages').fetchone(); c.close()")
refused = refusal_of(lambda: append(50))
print(json.dumps({'counted': counted(), 'refused': refused}), flush=True)
os._exit(0)
"""

BOTH_WRITE = """
refused = []
def theirs():
    other = plain()
    for _ in range(300):
        try:
            insert(other)
        except sqlite3.Error as error:
            refused.append(str(error))
    other.close()
def ours():
    for _ in range(300):
        try:
            append(1)
        except sqlite3.Error as error:
            refused.append(str(error))
threads = [threading.Thread(target=theirs), threading.Thread(target=ours)]
for thread in threads: thread.start()
for thread in threads: thread.join()
check = elsewhere("print(c.execute('PRAGMA integrity_check').fetchone()[0])")
print(json.dumps({'counted': counted(), 'refused': refused[:3], 'check': check}), flush=True)
os._exit(0)
"""

STRAY_CLOSE = """
append(20)
open(path, 'rb').close()
elsewhere("c.execute('SELECT count(*) FROM messages').fetchone(); c.close()")
sidecar_there = os.path.exists(path + '-wal')
refused = refusal_of(lambda: append(20))
print(json.dumps({'sidecar_there': sidecar_there, 'counted': counted(), 'refused': refused}), flush=True)
os._exit(0)
"""

WE_CLOSE = """
other = plain()
other.execute('SELECT count(*) FROM messages').fetchone()
append(20)
db.close()
elsewhere("c.execute('SELECT count(*) FROM messages').fetchone(); c.close()")
refused = refusal_of(lambda: [insert(other) for _ in range(10)])
print(json.dumps({'counted': counted(), 'refused': refused}), flush=True)
os._exit(0)
"""

SCENES = {
    "held": (HELD, lambda seen: seen == {"both_held": False, "locked": True}),
    "closed_by_the_other": (CLOSED_BY_THE_OTHER, lambda seen: seen == {"counted": 100, "refused": None}),
    "both_write": (BOTH_WRITE, lambda seen: seen == {"counted": 600, "refused": [], "check": "ok"}),
    "stray_close": (STRAY_CLOSE, lambda seen: seen == {"sidecar_there": True, "counted": 40, "refused": None}),
    "we_close": (WE_CLOSE, lambda seen: seen == {"counted": 30, "refused": None}),
}


def play(scene: str, means: str, path: Path) -> Any:
    """What the scene saw, or, where it came to no end because the file was damaged under it, the last words of that."""
    done = run_python(PRELUDE + SCENES[scene][0], str(path), HERMES_STATE_LOCKS=means)
    if done.returncode == 0:
        return json.loads(done.stdout)
    assert "sqlite3." in done.stderr, done.stderr
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("means", MEANS)
@pytest.mark.parametrize("scene", SCENES)
def test_nothing_is_lost_beside_the_other_library(scene: str, means: str, path: Path) -> None:
    seen = play(scene, means, path)
    assert SCENES[scene][1](seen), seen
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    connection.close()


@pytest.mark.parametrize("scene", SCENES)
def test_with_ordinary_locks_it_goes_wrong(scene: str, path: Path) -> None:
    seen = play(scene, "ordinary", path)
    assert not SCENES[scene][1](seen), seen
