"""A day of an older release and ours on one file: each does everything, and reads what the other did as that does."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

# Either side runs this on the `SessionDB` that its interpreter imports: one call a line, one answer a line.
AGENT = """
import json, sys
from pathlib import Path
from hermes_state import SessionDB

db = SessionDB(Path(sys.argv[1]))
print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    name, args, kwargs = json.loads(line)
    try:
        value = getattr(db, name)(*args, **kwargs)
        answer = {"value": sorted(value) if isinstance(value, (set, frozenset)) else value}
    except Exception as error:
        answer = {"error": type(error).__name__, "text": str(error)}
    print(json.dumps(answer), flush=True)
db.close()
"""


class Agent:
    """A process with the store open all day."""

    def __init__(self, python: str, path: Path, home: Path) -> None:
        self.process = subprocess.Popen(
            [python, "-c", AGENT, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"HERMES_HOME": str(home), "PATH": "/usr/bin:/bin"},
        )
        assert self._answer() == "ready"

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, name: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, args, kwargs]) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = self._answer()
        return answer

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
        answer = self.ask(name, *args, **kwargs)
        assert "error" not in answer, f"{name}: {answer}"
        return answer["value"]

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60) == 0


class Day:
    """Both agents, and what the store holds if all they did is there: of each session its messages with their state."""

    def __init__(self, older: Agent, ours: Agent) -> None:
        self.older = older
        self.ours = ours
        self.model: dict[str, list[dict[str, Any]]] = {}
        self.counters: dict[str, int] = {}

    def both(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """What both answer."""
        seen_by_older, seen_by_ours = self.older(name, *args, **kwargs), self.ours(name, *args, **kwargs)
        assert seen_by_ours == seen_by_older, name
        return seen_by_ours

    def create(self, who: Agent, session: str, **kwargs: Any) -> None:
        assert who("create_session", session, "cli", **kwargs) == session
        self.model[session] = []
        self.counters[session] = 0

    def append(self, who: Agent, session: str, role: str, content: Any) -> int:
        message: int = who("append_message", session, role, content)
        self.model[session].append({"id": message, "role": role, "content": content, "active": True, "found": True})
        self.counters[session] += 1
        return message

    def active(self, session: str) -> list[dict[str, Any]]:
        return [message for message in self.model[session] if message["active"]]

    def check(self) -> None:
        """Every read of both is that of the model."""
        for session, messages in self.model.items():
            row = self.both("get_session", session)
            assert row["message_count"] == self.counters[session], session
            assert self.both("message_count", session) == len(messages)
            for inactive in (False, True):
                seen = self.both("get_messages", session, include_inactive=inactive)
                wanted = messages if inactive else self.active(session)
                assert [(m["id"], m["role"], m["content"]) for m in seen] == [
                    (m["id"], m["role"], m["content"]) for m in wanted
                ]
            told = self.both("get_messages_as_conversation", session)
            assert [(m["role"], m["content"]) for m in told] == [
                (m["role"], m["content"]) for m in self.active(session)
            ]
            # Repairing needs more of the older release than its store.
            self.both("get_messages_as_conversation", session, include_ancestors=True, include_inactive=True)
            self.both("get_ancestor_display_prefix", session)
            self.both("list_recent_user_messages", session)
            self.both("get_session_title", session)
            self.both("has_archived_messages", session)
            for read in ("get_compression_tip", "get_compression_lineage", "resolve_resume_session_id"):
                self.both(read, session)
            exported = self.both("export_session", session)
            assert len(exported["messages"]) == len(self.active(session))
        every = self.both("list_sessions_rich", limit=100, include_children=True, include_archived=True)
        assert {row["id"] for row in every} == set(self.model)
        self.both("list_sessions_rich", limit=100, order_by_last_active=True)
        self.both("search_sessions", limit=100)
        assert self.both("session_count", include_archived=True) == len(self.model)
        assert self.both("message_count") == sum(map(len, self.model.values()))
        for word in ("zebrafinch", "kingfisher", "東京タワー"):
            wanted = {m["id"] for ms in self.model.values() for m in ms if m["found"] and word in str(m["content"])}
            for agent in (self.older, self.ours):
                assert {hit["id"] for hit in agent("search_messages", word, limit=1000)} == wanted, word


@pytest.fixture
def day(older_python: str, path: Path, tmp_path: Path) -> Iterator[Day]:
    older = Agent(older_python, path, tmp_path)
    ours = Agent(sys.executable, path, tmp_path)
    yield Day(older, ours)
    older.close()
    ours.close()


def talk(day: Day, who: Agent, session: str, rounds: int, word: str) -> list[int]:
    ids = []
    for n in range(rounds):
        ids.append(day.append(who, session, "user", f"{word} question {n} about 東京タワー in {session}"))
        day.append(who, session, "assistant", f"answer {n} to the {word}")
    return ids


def morning(day: Day, first: Agent, second: Agent, name: str) -> None:
    """Both create, append, title and search."""
    a, b = f"{name}-a", f"{name}-b"
    day.create(first, a, model="large-1", cwd="/home/ada", system_prompt="be brief")
    day.create(second, b, model="small-1")
    talk(day, first, a, 2, "zebrafinch")
    talk(day, second, a, 2, "kingfisher")
    talk(day, second, b, 2, "zebrafinch")
    assert first("set_session_title", a, f"Harbour {name}")
    refused = second.ask("set_session_title", b, f"Harbour {name}")
    assert refused["error"] == "ValueError"
    assert a in refused["text"]
    assert second("set_session_title", b, f"Quay {name}")
    assert day.both("resolve_session_by_title", f"Harbour {name}") == a
    assert day.both("get_next_title_in_lineage", f"Quay {name}") == f"Quay {name} #2"
    first("update_token_counts", a, 10, 5, "large-1", billing_provider="p", api_call_count=1)
    second("update_token_counts", a, 1, 1, "large-1", billing_provider="p", api_call_count=1)
    assert day.both("get_session", a)["input_tokens"] == 11
    day.check()


def noon(day: Day, first: Agent, second: Agent, name: str) -> None:
    """One rewinds and the other restores; one compacts, and goes on in a continuation."""
    a, b = f"{name}-a", f"{name}-b"
    messages = day.model[a]
    target = [message["id"] for message in messages if message["role"] == "user"][-1]
    assert first("rewind_to_message", a, target)["rewound_count"] == 2
    for message in messages:
        if message["id"] >= target:
            message["active"] = message["found"] = False
    if first is day.ours:
        # The older release leaves the counters as they were.
        day.counters[a] = len(day.active(a))
    day.check()
    day.append(second, a, "user", "fresh kingfisher")
    assert second("restore_rewound", a, target) == 2
    for message in messages:
        message["active"] = message["found"] = True
    if second is day.ours:
        day.counters[a] = len(day.active(a))
    day.check()

    summary = [{"role": "user", "content": "summary of the zebrafinch"}, {"role": "assistant", "content": "go on"}]
    assert second("archive_and_compact", b, summary) == 2
    for message in day.model[b]:
        message["active"] = False
    for row in first("get_messages", b):
        day.model[b].append(
            {"id": row["id"], "role": row["role"], "content": row["content"], "active": True, "found": True}
        )
    day.counters[b] = 2
    day.check()
    first("end_session", b, "compression")
    child = f"{b}-2"
    day.create(second, child, parent_session_id=b)
    talk(day, first, child, 1, "kingfisher")
    assert second("set_session_title", child, f"Quay {name}")
    assert day.both("get_session_title", b) is None
    assert day.both("get_compression_tip", b) == child
    day.check()


def evening(day: Day, first: Agent, second: Agent, name: str, path: Path) -> None:
    """One prunes, exports and deletes what the other imports; the file is made small."""
    for n in range(3):
        old = f"{name}-old-{n}"
        day.create(first if n % 2 else second, old)
        talk(day, second, old, 1, "zebrafinch")
        first("end_session", old, "done")
    with closing(sqlite3.connect(path, timeout=30)) as stranger:
        stranger.execute("UPDATE sessions SET started_at = started_at - 40 * 86400 WHERE id LIKE ?", (f"{name}-old-%",))
        stranger.commit()
    candidates = day.both("list_prune_candidates", older_than_days=30)
    assert {row["id"] for row in candidates} == {f"{name}-old-{n}" for n in range(3)}
    assert first("prune_sessions", older_than_days=30) == 3
    for n in range(3):
        del day.model[f"{name}-old-{n}"]
    day.check()

    a = f"{name}-a"
    exported = day.both("export_session", a)
    active = len(day.active(a))
    assert second("delete_session", a)
    report = first("import_sessions", [exported])
    assert report["imported"] == 1
    rows = second("get_messages", a)
    assert len(rows) == active
    day.model[a] = [
        {"id": row["id"], "role": row["role"], "content": row["content"], "active": True, "found": True} for row in rows
    ]
    day.counters[a] = active
    day.check()
    assert first("optimize_fts") == second("optimize_fts")
    assert second("set_session_archived", f"{name}-b", True)
    assert first("vacuum") >= 2
    day.check()


def test_a_day_of_an_older_release_and_ours(day: Day, path: Path) -> None:
    for name, first, second in (("one", day.older, day.ours), ("two", day.ours, day.older)):
        morning(day, first, second, name)
        noon(day, first, second, name)
        evening(day, first, second, name, path)
    report = day.ours("optimize_fts_storage")
    assert report is not None
    day.check()
    # What the older one writes into the layout that ours has made is found by both.
    day.append(day.older, "one-a", "user", f"late zebrafinch at {time.time()}")
    day.append(day.ours, "two-a", "user", "later zebrafinch")
    day.check()
    with closing(sqlite3.connect(path)) as stranger:
        assert stranger.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert stranger.execute("PRAGMA foreign_key_check").fetchall() == []
