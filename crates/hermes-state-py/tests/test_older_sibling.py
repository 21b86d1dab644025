"""A real process of an older release on the same file: nobody loses a message, nobody makes the other fail."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

MESSAGES = 300

# Both sides run this against the `SessionDB` that their interpreter imports: a session of its own, messages with a
# word of the process in each, and the store closed and opened again every fifty.
WRITER = """
import json, sys, time
from pathlib import Path
from hermes_state import SessionDB

path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
acknowledged, failed = [], []
for start in range(0, count, 50):
    db = SessionDB(path)
    if start == 0:
        db.create_session(name, "cli")
    for n in range(start, min(start + 50, count)):
        try:
            acknowledged.append(db.append_message(name, "user", content=f"{name} number{n} wrote zebrafinch"))
        except Exception as error:
            failed.append(f"{n}: {type(error).__name__}: {error}")
    db.close()
print(json.dumps({"acknowledged": acknowledged, "failed": failed}), flush=True)
"""

SEARCHER = """
import json, sys
from pathlib import Path
from hermes_state import SessionDB

db = SessionDB(Path(sys.argv[1]))
found = {word: [hit["id"] for hit in db.search_messages(word, limit=5000)] for word in sys.argv[2:]}
counts = {row["id"]: row["message_count"] for row in db.list_sessions_rich(limit=50)}
print(json.dumps({"found": found, "counts": counts}))
db.close()
"""

# Holds the write lock as long maintenance of an older release does.
HOLDER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
for _ in range(2):
    connection.execute("BEGIN IMMEDIATE")
    time.sleep(2)
    connection.execute("COMMIT")
    time.sleep(0.5)
"""


def start(python: str, path: Path, name: str, home: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [python, "-c", WRITER, str(path), name, str(MESSAGES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"HERMES_HOME": str(home), "PATH": "/usr/bin:/bin"},
    )


def search(python: str, path: Path, words: list[str], home: Path) -> dict:
    done = subprocess.run(
        [python, "-c", SEARCHER, str(path), *words],
        capture_output=True,
        text=True,
        env={"HERMES_HOME": str(home), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("born_by", ["older", "ours"])
def test_an_older_release_and_ours_write_one_file_at_once(older_python, tmp_path, born_by):
    path = tmp_path / "state.db"
    founder = older_python if born_by == "older" else sys.executable
    subprocess.run(
        [
            founder,
            "-c",
            "import sys, pathlib, hermes_state; hermes_state.SessionDB(pathlib.Path(sys.argv[1])).close()",
            str(path),
        ],
        check=True,
        env={"HERMES_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    names = ["older", "ours-1", "ours-2", "ours-3"]
    writers = {name: start(older_python if name == "older" else sys.executable, path, name, tmp_path) for name in names}
    for writer in writers.values():
        assert writer.stdout.readline() == "ready\n"
    for writer in writers.values():
        writer.stdin.write("go\n")
        writer.stdin.flush()
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)])
    reports = {name: json.loads(writer.communicate(timeout=300)[0]) for name, writer in writers.items()}
    assert holder.wait(timeout=60) == 0

    for name, report in reports.items():
        assert report["failed"] == [], name
        assert len(report["acknowledged"]) == MESSAGES, name
    everything = sorted(message_id for report in reports.values() for message_id in report["acknowledged"])
    assert len(set(everything)) == 4 * MESSAGES

    for python in (older_python, sys.executable):
        seen = search(python, path, ["zebrafinch", "number7", "number299"], tmp_path)
        assert sorted(seen["found"]["zebrafinch"]) == everything
        assert len(seen["found"]["number7"]) == len(seen["found"]["number299"]) == 4
        assert seen["counts"] == dict.fromkeys(names, MESSAGES)

    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    for table in ("messages_fts", "messages_fts_trigram"):
        connection.execute(f"INSERT INTO {table}({table}) VALUES('integrity-check')")
    connection.close()
