"""Transcripts: written anew, rewound, read in parts; and messages under keys of their callers."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest
from hermes_state import ClientKeyConflict, SessionDB

pytestmark = pytest.mark.each_engine

WORDS = ["alder", "birch", "cedar", "damson", "elm"]


@pytest.fixture(autouse=True)
def _session(db: SessionDB) -> None:
    db.create_session("s", "cli")


def counters(db: SessionDB) -> tuple[int, int, int]:
    session = db.get_session("s")
    return session["message_count"], session["tool_call_count"], session["rewind_count"]


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


def contents(db: SessionDB) -> list[Any]:
    return [row["content"] for row in db.get_messages("s")]


def batch(numbers: range) -> list[dict[str, Any]]:
    return [{"role": "user", "content": WORDS[n], "client_key": f"k{n + 1}"} for n in numbers]


def test_undo_and_counters(db: SessionDB) -> None:
    for turn in range(3):
        db.append_message("s", "user", "zebrafinch2" if turn == 2 else f"question {turn}")
        db.append_message("s", "assistant", f"answer {turn}")
    assert (counters(db)[0], len(db.get_messages("s"))) == (6, 6)
    rewound = db.rewind_to_message("s", 5)
    assert set(rewound) == {"rewound_count", "target_message", "new_head_id"}
    assert (rewound["rewound_count"], rewound["new_head_id"]) == (2, 4)
    assert (rewound["target_message"]["content"], rewound["target_message"]["active"]) == ("zebrafinch2", 1)
    assert (counters(db)[0], len(db.get_messages("s"))) == (4, 4)
    db.append_message("s", "user", "fresh")
    assert (counters(db)[0], len(db.get_messages("s"))) == (5, 5)
    assert ids(db.get_messages_around("s", 4, window=5)["window"]) == [1, 2, 3, 4, 7]
    assert len(db.search_messages("zebrafinch2")) == 0
    assert len(db.search_messages("zebrafinch2", include_inactive=True)) == 1
    assert db.restore_rewound("s", 5) == 2
    assert (counters(db), len(db.get_messages("s"))) == ((7, 0, 1), 7)


def test_a_rewind_goes_to_a_user_message_of_the_session(db: SessionDB) -> None:
    db.append_message("s", "user", [{"type": "text", "text": "a"}], tool_calls=[{"id": "k"}])
    db.append_message("s", "assistant", "b")
    with pytest.raises(ValueError, match=r"99.*s\b"):
        db.rewind_to_message("s", 99)
    with pytest.raises(ValueError, match=r"2.*'assistant'"):
        db.rewind_to_message("s", 2)
    assert counters(db) == (2, 1, 0)
    target = db.rewind_to_message("s", 1)["target_message"]
    assert target["content"] == [{"type": "text", "text": "a"}]
    assert target["tool_calls"] == '[{"id": "k"}]'
    assert db.rewind_to_message("s", 1)["rewound_count"] == 0
    assert counters(db) == (0, 0, 2)


def test_a_batch_is_read_leniently(db: SessionDB) -> None:
    db.append_message("s", "user", "before")
    rows: list[dict[str, Any]] = [
        {"content": "no role", "id": 77, "session_id": "other", "active": 0, "compacted": 1, "anything": object()},
        {"role": "user", "content": (1, 2), "message_id": "tg-1", "reasoning": "not for users", "timestamp": "5.5"},
        {"role": "tool", "platform_message_id": "tg-2", "message_id": "tg-3", "finish_reason": "stop"},
        {"role": "assistant", "reasoning": "why\ud800", "tool_calls": '[{"id": "k"}]', "observed": "yes"},
        {"role": "assistant", "reasoning_details": [1], "codex_reasoning_items": [], "tool_calls": {"id": "k"}},
    ]
    assert db.replace_messages("s", iter(rows)) is None
    stored = db.get_messages("s")
    assert [row["role"] for row in stored] == ["unknown", "user", "tool", "assistant", "assistant"]
    assert [row["platform_message_id"] for row in stored] == [None, "tg-1", "tg-2", None, None]
    assert [row["reasoning"] for row in stored] == [None, None, None, "why\ufffd", None]
    assert (stored[1]["content"], stored[1]["timestamp"], stored[2]["finish_reason"]) == ([1, 2], 5.5, "stop")
    assert (stored[3]["observed"], stored[4]["reasoning_details"], stored[4]["codex_reasoning_items"]) == (
        1,
        "[1]",
        None,
    )
    assert all((row["session_id"], row["active"], row["compacted"]) == ("s", 1, 0) for row in stored)
    assert stored[0]["id"] != 77
    times = [row["timestamp"] for row in stored if row["timestamp"] != 5.5]
    assert times == sorted(set(times))
    assert counters(db) == (5, 2, 0)


def test_a_later_time_pushes_the_ones_behind_it_on(db: SessionDB) -> None:
    db.replace_messages("s", [{"role": "user", "timestamp": t} for t in (None, 4e9, None, 1.0, "soon")])
    times = [row["timestamp"] for row in db.get_messages("s")]
    assert times[0] < 4e9 < times[2] < times[4]
    assert (times[1], times[3]) == (4e9, 1.0)
    assert times[2] == pytest.approx(4e9 + 1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        (None, TypeError),
        (5, TypeError),
        ([None], (TypeError, AttributeError)),
        (["text"], (TypeError, AttributeError)),
        ([{"role": "user"}, {"role": None}], sqlite3.IntegrityError),
        ([{"role": "user", "tool_calls": object()}], TypeError),
        ([{"role": "user", "token_count": [1]}], sqlite3.ProgrammingError),
    ],
)
def test_what_is_no_batch_changes_nothing(db: SessionDB, messages: Any, error: Any) -> None:
    db.append_message("s", "user", "here")
    for write in (db.replace_messages, db.archive_and_compact):
        with pytest.raises(error):
            write("s", messages)
    assert (contents(db), counters(db), db.message_count("s")) == (["here"], (1, 0, 0), 1)


def test_compaction(db: SessionDB) -> None:
    assert db.has_archived_messages("s") is False
    for n in range(3):
        db.append_message("s", "user", f"quokka{n}")
    kept = db.get_recent_messages("s", 2)
    assert db.archive_and_compact("s", [{"role": "user", "content": "summary"}, *kept]) == 3
    assert contents(db) == ["summary", "quokka1", "quokka2"]
    assert [(row["active"], row["compacted"]) for row in db.get_messages("s", include_inactive=True)] == [
        (0, 1),
        (0, 1),
        (0, 1),
        (1, 0),
        (1, 0),
        (1, 0),
    ]
    assert (db.message_count("s"), db.distinct_message_count("s"), counters(db)[0]) == (6, 4, 3)
    assert db.has_archived_messages("s") is True
    assert db.has_archived_messages(None) is False
    assert len(db.search_messages("quokka0")) == 1
    with pytest.raises(sqlite3.IntegrityError):
        db.archive_and_compact("nobody", [{"role": "user"}])
    assert db.archive_and_compact("nobody", []) == 0
    db.clear_messages("s")
    assert (db.message_count("s"), counters(db)[:2]) == (0, (0, 0))


@pytest.mark.parametrize("replayed", [False, True])
def test_kept_messages_count_once(db: SessionDB, replayed: bool) -> None:
    db.append_messages("s", [{"role": "user", "content": f"m{n}"} for n in range(30)])
    db.append_message("s", "assistant", None, tool_calls=[{"id": "k", "n": [1.0, "é"]}])
    db.append_message("s", "tool", "out", tool_name="look", tool_call_id="k")
    for round_ in range(1, 4):
        kept = db.get_messages_as_conversation("s") if replayed else db.get_messages("s")
        kept = [{key: value for key, value in row.items() if key != "timestamp"} for row in kept[-5:]]
        db.archive_and_compact("s", [{"role": "user", "content": f"summary {round_}"}, *kept])
        assert db.distinct_message_count("s") == 32 + round_


def test_the_sent_text(db: SessionDB) -> None:
    assert db.set_latest_user_api_content("s", "x", "y") == 0
    db.append_message("s", "user", {"a": 1, "b": 2})
    assert db.set_latest_user_api_content("s", {"b": 2, "a": 1}, "y") == 0
    assert db.set_latest_user_api_content("s", {"a": 1, "b": 2}, "half \ud800") == 1
    assert db.get_messages("s")[0]["api_content"] == "half \ufffd"
    assert db.set_latest_user_api_content("s", {"a": 1, "b": 2}, 5) == 1
    assert db.get_messages("s")[0]["api_content"] == "5"
    assert db.set_latest_user_api_content("s", {"a": 1, "b": 2}, None) == 1
    assert db.get_messages("s")[0]["api_content"] is None


def test_windows_and_views(db: SessionDB) -> None:
    for n in range(12):
        db.append_message("s", "tool" if n % 3 == 2 else "user", f"m{n}")
    assert db.get_messages_around("s", 99) == {"window": [], "messages_before": 0, "messages_after": 0}
    window = db.get_messages_around("s", 2)
    assert (ids(window["window"]), window["messages_before"], window["messages_after"]) == ([*range(1, 8)], 1, 5)
    assert set(window["window"][0]) == set(db.get_messages("s")[0])
    view = db.get_anchored_view("s", 6, window=1, bookend=2)
    assert list(view) == ["window", "messages_before", "messages_after", "bookend_start", "bookend_end"]
    assert [ids(view[key]) for key in ("bookend_start", "window", "bookend_end")] == [[1, 2], [5, 6, 7], [10, 11]]
    assert (view["messages_before"], view["messages_after"]) == (1, 1)
    assert ids(db.get_anchored_view("s", 6, 1, 1, None)["bookend_end"]) == [12]
    assert ids(db.get_anchored_view("s", 6, 1, 1, ())["window"]) == [6]
    empty = db.get_anchored_view("nobody", 6)
    assert [empty[key] for key in view] == [[], 0, 0, [], []]


def test_recent_messages(db: SessionDB) -> None:
    for n in range(5):
        db.append_message("s", "user", f"m{n}  \n x", timestamp=n)
    assert ids(db.get_recent_messages("s", 2)) == [4, 5]
    assert ids(db.get_recent_messages("s")) == ids(db.get_recent_messages("s", None)) == [1, 2, 3, 4, 5]
    assert db.get_recent_messages(None) == []
    assert db.list_recent_user_messages("s", 1) == [{"id": 5, "timestamp": 4.0, "preview": "m4 x"}]
    assert ids(db.list_recent_user_messages("s", 2.9)) == ids(db.list_recent_user_messages("s", "2")) == [5, 4]
    assert db.list_recent_user_messages("s", 0) == []
    assert len(db.list_recent_user_messages("s", -1)) == 5
    with pytest.raises(TypeError):
        db.list_recent_user_messages("s", None)
    with pytest.raises(ValueError, match="many"):
        db.list_recent_user_messages("s", "many")
    db.rewind_to_message("s", 4)
    assert ids(db.list_recent_user_messages("s")) == [3, 2, 1]
    assert ids(db.list_recent_user_messages("s", include_inactive=True)) == [5, 4, 3, 2, 1]


def test_ids_of_the_platform(db: SessionDB) -> None:
    db.append_message("s", "user", "hi", platform_message_id="12")
    assert db.has_platform_message_id("s", "12") is True
    assert db.has_platform_message_id("s", 12) is True
    assert db.has_platform_message_id("s", None) is False
    assert db.has_platform_message_id("nobody", "12") is False


def test_a_half_stored_batch(db: SessionDB) -> None:
    two = db.append_messages("s", batch(range(2)))
    five = db.append_messages("s", batch(range(5)))
    assert five[:2] == two
    assert db.append_messages("s", batch(range(2, 5))) == five[2:]
    assert db.append_message("s", "user", "birch", client_key="k2") == five[1]
    assert (counters(db)[0], len(db.search_messages("birch"))) == (5, 1)
    assert "client_key" not in db.get_messages("s")[0]
    with pytest.raises(ClientKeyConflict, match="k2") as conflict:
        db.append_messages(
            "s", [{"role": "user", "content": "new"}, {"role": "user", "content": "x", "client_key": "k2"}]
        )
    assert isinstance(conflict.value, sqlite3.IntegrityError)
    assert (conflict.value.session_id, conflict.value.client_key, conflict.value.message_id) == ("s", "k2", five[1])
    assert (counters(db)[0], db.message_count("s")) == (5, 5)


@pytest.mark.parametrize("key", ["", "x" * 256, 1.5, b"k"])
def test_what_is_no_key(db: SessionDB, key: Any) -> None:
    with pytest.raises(ValueError, match="255"):
        db.append_message("s", "user", "x", client_key=key)
    with pytest.raises(ValueError, match=r"255|surrogates"):
        db.append_message("s", "user", "x", client_key="\ud800" * 256)
    # A row that is written anew keeps what it has, and needs none.
    db.replace_messages("s", [{"role": "user", "content": "kept", "client_key": key}])
    assert [row["content"] for row in db.get_messages("s")] == ["kept"]


WRITER = """
import sys, time
from hermes_state import SessionDB
db = SessionDB(sys.argv[1])
words = sys.argv[2].split(",")
batch = [{"role": "user", "content": word.split("=")[1], "client_key": word.split("=")[0]} for word in words]
print(",".join(map(str, db.append_messages("s", batch))), flush=True)
if len(sys.argv) > 3:
    time.sleep(600)
"""


def writer(location: Path | str, numbers: range, *more: str) -> subprocess.Popen[str]:
    words = ",".join(f"k{n + 1}={WORDS[n]}" for n in numbers)
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(location), words, *more], stdout=subprocess.PIPE, text=True
    )


def told(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    return [int(number) for number in process.stdout.readline().split(",")]


def test_processes_complete_what_a_killed_one_has_begun(db: SessionDB, location: Path | str) -> None:
    first = writer(location, range(2), "wait")
    two = told(first)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    second = writer(location, range(5))
    five = told(second)
    assert five[:2] == two
    others = writer(location, range(2, 5)), writer(location, range(5))
    assert [told(process) for process in others] == [five[2:], five]
    assert [process.wait() for process in (second, *others)] == [0, 0, 0]
    for process in (first, second, *others):
        assert process.stdout is not None
        process.stdout.close()
    assert (counters(db)[0], db.message_count("s"), len(db.search_messages("birch"))) == (5, 5, 1)


@pytest.mark.parametrize("engine", ["file"], indirect=True)
def test_rows_are_inserted_on_a_connection_of_the_callers(db: SessionDB, outside: Callable[[str], object]) -> None:
    rows: list[dict[str, Any]] = [
        {"role": "assistant", "content": ["é"], "tool_calls": [{"id": "a"}, {"id": "b"}], "reasoning": "why"},
        {"content": b"\x00", "tool_calls": "5", "timestamp": 2.5, "client_key": "k", "reasoning": "dropped"},
    ]
    assert db._execute_write(lambda conn: db._insert_message_rows(conn, "s", rows)) == (2, 3)
    first, second = db.get_messages("s")
    assert (first["content"], first["tool_calls"], first["reasoning"]) == (["é"], [{"id": "a"}, {"id": "b"}], "why")
    assert (second["role"], second["content"], second["timestamp"]) == ("unknown", b"\x00", 2.5)
    assert (second["tool_calls"], second["reasoning"], second["active"]) == (5, None, 1)
    assert counters(db) == (0, 0, 0)
    with pytest.raises(sqlite3.IntegrityError):
        db._execute_write(lambda conn: db._insert_message_rows(conn, "s", [{"role": "user"}, {"role": None}]))
    with pytest.raises(sqlite3.IntegrityError):
        db._execute_write(lambda conn: db._insert_message_rows(conn, "nobody", [{"role": "user"}]))
    assert db.message_count() == 2
    assert db._execute_write(lambda conn: db._insert_message_rows(conn, "s", [])) == (0, 0)
