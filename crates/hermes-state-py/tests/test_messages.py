"""Messages: what callers may hand over, and what they get back for it."""

from __future__ import annotations

import datetime
import math
import sqlite3
import time
from typing import Any, Callable

import pytest
from hermes_state import SessionDB, _scrub_surrogates

pytestmark = pytest.mark.each_engine


@pytest.fixture(autouse=True)
def _session(db: SessionDB) -> None:
    db.create_session("s", "cli")


def stored(db: SessionDB, **keywords: Any) -> dict[str, Any]:
    message_id = db.append_message("s", keywords.pop("role", "assistant"), **keywords)
    (row,) = [row for row in db.get_messages("s") if row["id"] == message_id]
    return row


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, None),
        ("", ""),
        ("plain \U0001f468\u200d\U0001f469", "plain \U0001f468\u200d\U0001f469"),
        ("nul \0 inside", "nul \0 inside"),
        ("half \ud800 pair \ud83d\ude00", "half \ufffd pair \ufffd\ufffd"),
        (b"\xff\x00", b"\xff\x00"),
        (5, "5"),
        (2.5, "2.5"),
        (True, "1"),
        ([{"type": "text", "text": "é"}], [{"type": "text", "text": "é"}]),
        ({"b": 1, "a": [None, "\ud800"]}, {"b": 1, "a": [None, "\ud800"]}),
        ((1, 2), [1, 2]),
        ([10**40, float("inf")], [10**40, float("inf")]),
        ([{1}], "[{1}]"),
        (datetime.date(2026, 7, 4), "2026-07-04"),
        ("\0json:[1]", [1]),
        ("\0json:no", "\0json:no"),
    ],
)
def test_contents(db: SessionDB, content: Any, expected: Any) -> None:
    found = stored(db, content=content)["content"]
    assert found == expected
    assert type(found) is type(expected)
    assert SessionDB._decode_content(SessionDB._encode_content(content)) in (expected, content)


def test_structured_content_as_it_is_stored(db: SessionDB, engine: str) -> None:
    stored(db, content=[{"é": 1.0, "\x7f": math.nan}])
    if engine == "file":
        raw = db._conn.execute("SELECT content FROM messages").fetchone()[0]
        assert raw == '\0json:[{"\\u00e9": 1.0, "\\u007f": NaN}]'
    assert SessionDB._encode_content(["x"]) == '\0json:["x"]'
    deep: Any = []
    for _ in range(400):
        deep = [deep]
    assert stored(db, content=deep)["content"] == deep
    cycle: list[Any] = []
    cycle.append(cycle)
    assert stored(db, content=cycle)["content"] == "[[...]]"
    with pytest.raises(OverflowError):
        db.append_message("s", "user", 2**63)


@pytest.mark.parametrize(
    ("calls", "expected", "count"),
    [
        (None, None, 0),
        ([], None, 0),
        ([{"id": "k1"}, {"id": "k2"}], [{"id": "k1"}, {"id": "k2"}], 2),
        ('[{"id": "k1"}]', [{"id": "k1"}], 1),
        ("no json", None, 0),
        ("", None, 0),
        ("null", None, 0),
        ({"id": "k1"}, {"id": "k1"}, 1),
        ('"text"', "text", 1),
        ({}, None, 0),
    ],
)
def test_calls(db: SessionDB, calls: Any, expected: Any, count: int) -> None:
    assert stored(db, tool_calls=calls)["tool_calls"] == expected
    assert db.get_session("s")["tool_call_count"] == count


def test_calls_that_are_no_json(db: SessionDB, outside: Callable[[str], object]) -> None:
    with pytest.raises(TypeError):
        db.append_message("s", "assistant", tool_calls=[{1}])
    stored(db, tool_calls=[1])
    outside("UPDATE messages SET tool_calls = '[broken'")
    assert db.get_messages("s")[0]["tool_calls"] == []


@pytest.mark.parametrize("column", ["reasoning_details", "codex_reasoning_items", "codex_message_items"])
def test_opaque_items_stay_text(db: SessionDB, column: str) -> None:
    assert stored(db, **{column: [{"a": "\ud800"}]})[column] == '[{"a": "\\ud800"}]'
    assert stored(db, **{column: []})[column] is None
    assert stored(db, **{column: "[1]"})[column] == '"[1]"'
    with pytest.raises(TypeError):
        db.append_message("s", "assistant", **{column: {1}})


def test_scalars(db: SessionDB) -> None:
    row = stored(
        db,
        tool_name="grep\ud800",
        tool_call_id=7,
        token_count="12",
        finish_reason="st\udc00op",
        reasoning="",
        reasoning_content="",
        platform_message_id=99,
        observed="yes",
        effect_disposition="none",
        api_content="sent",
    )
    assert row["tool_name"] == "grep\ufffd"
    assert row["tool_call_id"] == "7"
    assert row["token_count"] == 12
    assert row["finish_reason"] == "st\ufffdop"
    assert row["reasoning_content"] == ""
    assert row["platform_message_id"] == "99"
    assert row["observed"] == 1
    assert row["api_content"] == "sent"
    assert (row["active"], row["compacted"]) == (1, 0)
    assert stored(db, api_content=5)["api_content"] is None
    with pytest.raises(sqlite3.ProgrammingError):
        db.append_message("s", "user", token_count=[1])
    for arguments in (("s\ud800", "user"), ("s", "us\ud800er")):
        with pytest.raises(UnicodeEncodeError):
            db.append_message(*arguments)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (5, 5.0),
        (0, 0.0),
        (-1.5, -1.5),
        (True, 1.0),
        (" 7.25 ", 7.25),
        (datetime.datetime(1970, 1, 2, tzinfo=datetime.timezone.utc), 86400.0),
        (math.inf, math.inf),
        ("soon", None),
        ("", None),
        ([1], None),
        (None, None),
    ],
)
def test_times(db: SessionDB, given: Any, expected: float | None) -> None:
    found = stored(db, timestamp=given)["timestamp"]
    assert type(found) is float
    if expected is None:
        assert abs(found - time.time()) < 5
    else:
        assert found == expected


def test_times_that_cannot_be(db: SessionDB) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        db.append_message("s", "user", timestamp=math.nan)
    with pytest.raises(OverflowError):
        db.append_message("s", "user", timestamp=10**400)


def test_a_message_needs_a_session_and_a_role(db: SessionDB) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY constraint failed") as caught:
        db.append_message("nobody", "user", "x")
    assert caught.value.sqlite_errorname == "SQLITE_CONSTRAINT_FOREIGNKEY"
    with pytest.raises(sqlite3.IntegrityError, match="NOT NULL"):
        db.append_message("s", None, "x")
    assert db.message_count() == 0
    assert db.get_session("s")["message_count"] == 0


def test_batches_are_all_or_nothing(db: SessionDB) -> None:
    batch: list[Any] = [
        {"role": "user", "content": "one", "timestamp": 10},
        {"role": "assistant", "content": ["two"], "tool_calls": [{"id": "k"}], "token_count": None},
    ]
    assert db.append_messages("s", iter(batch)) == [1, 2]
    assert db.append_messages("s", []) == []
    first, second = db.get_messages("s")
    assert (first["timestamp"], second["content"]) == (10.0, ["two"])
    assert db.get_session("s")["message_count"] == 2
    with pytest.raises(sqlite3.IntegrityError):
        db.append_messages("s", [{"role": "user"}, {"role": None}])
    with pytest.raises(TypeError, match="needs the key 'role'"):
        db.append_messages("s", [{"content": "x"}])
    with pytest.raises(TypeError, match="no key 'colour'"):
        db.append_messages("s", [{"role": "user", "colour": "red"}])
    for wrong in (None, [5], ["text"]):
        with pytest.raises((TypeError, AttributeError)):
            db.append_messages("s", wrong)
    assert db.message_count("s") == 2


def test_rows_and_pages(db: SessionDB, outside: Callable[[str], object]) -> None:
    db.append_messages("s", [{"role": "user", "content": str(number)} for number in range(5)])
    outside("UPDATE messages SET active = 0 WHERE id = 2")
    assert list(db.get_messages("s")[0])[:4] == ["id", "session_id", "role", "content"]
    assert len(db.get_messages("s")[0]) == 21

    def page(*arguments: Any, **keywords: Any) -> list[int]:
        return [row["id"] for row in db.get_messages("s", *arguments, **keywords)]

    assert page() == [1, 3, 4, 5]
    assert page(True) == [1, 2, 3, 4, 5]
    assert page(limit=2, offset=1) == [3, 4]
    assert page(offset=3) == [5]
    assert page(limit=0) == []
    assert page(limit=-1, offset=-3) == [1, 3, 4, 5]
    assert page(limit="2") == [1, 3]
    for keywords in ({"limit": "many"}, {"limit": 1, "offset": None}, {"offset": "far"}):
        with pytest.raises(sqlite3.IntegrityError, match="datatype mismatch"):
            page(**keywords)
    assert page(offset=None) == [1, 3, 4, 5]
    assert db.get_messages("nobody") == []
    assert db.get_messages(None) == []
    assert (db.message_count("s"), db.message_count(), db.message_count("nobody")) == (5, 5, 0)


def test_rows_do_not_share_what_can_change(db: SessionDB) -> None:
    db.append_messages("s", [{"role": "user", "content": ["same"], "tool_calls": [1]}] * 2)
    first, second = db.get_messages("s")
    first["content"].append("changed")
    first["tool_calls"].append(2)
    first["extra"] = True
    assert (second["content"], second["tool_calls"]) == (["same"], [1])
    assert "extra" not in second


def test_columns_of_other_releases_are_shown(db: SessionDB, outside: Callable[[str], object]) -> None:
    outside("ALTER TABLE messages ADD COLUMN mood TEXT")
    db.append_message("s", "user", "x")
    outside("UPDATE messages SET mood = 'calm'")
    assert db.get_messages("s")[0]["mood"] == "calm"


def test_scrubbing() -> None:
    assert _scrub_surrogates("a\ud83d\ude00b") == "a\ufffd\ufffdb"
    text = "whole \U0001f600"
    assert _scrub_surrogates(text) is text
    inside = ["\ud800"]
    assert _scrub_surrogates(inside) is inside
    assert _scrub_surrogates(None) is None
