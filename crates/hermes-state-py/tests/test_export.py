"""Sessions out of a store and into one, as Python callers see it."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest
from hermes_state import SessionDB

pytestmark = pytest.mark.each_engine


@pytest.fixture
def other(tmp_path: Path) -> Any:
    with SessionDB(tmp_path / "other.db") as store:
        yield store


def without_ids(export: dict[str, Any]) -> dict[str, Any]:
    return {**export, "messages": [{**message, "id": None} for message in export["messages"]]}


def test_awkward_content_comes_back(db: SessionDB, other: SessionDB, caplog: pytest.LogCaptureFixture) -> None:
    db.create_session("absent", "cli")
    db.create_session("c12", "cli", model_config={"\u00e9": 1})
    for message in (
        {"role": "user", "content": "a\0b porcupine", "timestamp": 1783160100.123456},
        {"role": "user", "content": "half \ud83d"},
        {"role": "user", "content": ["half \ud83d", math.inf, 10**40]},
        {"role": "user", "content": "\U0001f468\u200d\U0001f469\u200d\U0001f467"},
        {"role": "tool", "content": "x" * 2_000_000},
        {"role": "user", "content": ""},
        {"role": "assistant", "tool_calls": [{"id": "k", "arguments": {"straße": ["ä"]}}]},
        {"role": "user", "content": [{"type": "text", "text": "é"}, {"type": "image_url", "url": "x"}]},
        {"role": "assistant", "content": "y", "reasoning_details": [{"a": "\ud800"}], "reasoning_content": ""},
    ):
        db.append_message("c12", **message)
    db.create_session("child", "cli", parent_session_id="absent")

    lines = [json.dumps(db.export_session(session_id)) for session_id in ("c12", "child")]
    with caplog.at_level(logging.WARNING, "hermes_state"):
        report = other.import_sessions([json.loads(line) for line in lines])
    assert report == {
        "ok": True,
        "imported": 2,
        "skipped": 0,
        "detached": 1,
        "imported_ids": ["c12", "child"],
        "skipped_ids": [],
        "errors": [],
    }
    assert len(caplog.records) == 1
    assert "child" in caplog.text
    first, second = db.export_session("c12"), other.export_session("c12")
    assert without_ids(second) == without_ids(first)
    assert [message["content"] for message in second["messages"][5:7]] == ["", None]
    assert second["messages"][1]["content"] == "half \ufffd"
    assert second["messages"][2]["content"][0] == "half \ud83d"
    assert other.get_session("child")["parent_session_id"] is None
    assert len(other.search_messages("porcupine")) == 1
    again = other.import_sessions([json.loads(line) for line in lines])
    assert (again["ok"], again["imported"], again["skipped"], again["skipped_ids"]) == (True, 0, 2, ["c12", "child"])


def test_a_lone_surrogate_in_an_entry_is_no_reason_to_refuse_it(other: SessionDB) -> None:
    entry = {"id": "s", "title": "t\ud800", "messages": [{"role": "user", "content": "c\udc00", "k": "\ud800"}]}
    assert other.import_sessions([entry])["ok"]
    assert other.get_session("s")["title"] == "t\ufffd"
    assert other.get_messages("s")[0]["content"] == "c\ufffd"


def test_exports(db: SessionDB) -> None:
    db.create_session("one", "cli")
    db.append_message("one", "user", b"\xff", timestamp=5)
    db.append_message("one", "assistant", "x", tool_calls=[1], reasoning_details=[1])
    db.end_session("one", "compression")
    db.create_session("two", "web", parent_session_id="one")
    db.append_message("two", "user", "y")
    one, two = db.export_session("one"), db.export_session("two")
    assert one == {**db.get_session("one"), "messages": db.get_messages("one")}
    assert list(one)[-1] == "messages"
    lineage = db.export_session_lineage("one")
    assert list(lineage)[-2:] == ["segments", "lineage_session_ids"]
    assert lineage["segments"] == [one, two]
    assert lineage["lineage_session_ids"] == ["one", "two"]
    assert lineage["messages"] == one["messages"] + two["messages"]
    assert lineage["message_count"] == 3
    assert {key: lineage[key] for key in two if key not in ("messages", "message_count")} == {
        key: two[key] for key in two if key not in ("messages", "message_count")
    }
    assert db.export_session("nobody") is db.export_session(None) is None
    assert db.export_session_lineage("nobody") is db.export_session_lineage(None) is None
    exports = db.export_all()
    assert sorted(export["id"] for export in exports) == ["one", "two"]
    for export in exports:
        last_active = max(message["timestamp"] for message in export["messages"])
        assert export.pop("last_active") == last_active
        assert export == db.export_session(export["id"])
    assert [export["id"] for export in db.export_all("web")] == ["two"]
    assert len(db.export_all("")) == 2


def test_reports_of_what_is_wrong(db: SessionDB) -> None:
    for wrong in (None, {}, (), "text"):
        with pytest.raises(ValueError, match=r"^sessions must be a list$"):
            db.import_sessions(wrong)
    with pytest.raises(ValueError, match=r"^sessions must contain at most 500 entries$"):
        db.import_sessions([{"id": str(number)} for number in range(501)])
    cycle: dict[str, Any] = {"id": "cycle"}
    cycle["self"] = cycle
    report = db.import_sessions(
        [
            {"id": "good"},
            "text",
            {"id": None},
            cycle,
            {"id": "bytes", "messages": [{"role": "user", "content": b"x"}]},
            {"id": "tuple", "messages": ({"role": "user"},)},
            {"id": 7, "messages": [5, {1}]},
            {"id": "many", "messages": [{}] * 10_001, "unknown": {1}},
        ]
    )
    assert report == {
        "ok": False,
        "imported": 0,
        "skipped": 0,
        "detached": 0,
        "errors": [
            {"index": 1, "error": "session must be an object"},
            {"index": 2, "error": "session id is required"},
            {"index": 3, "session_id": "cycle", "error": "session must be JSON serializable"},
            {"index": 4, "session_id": "bytes", "error": "session must be JSON serializable"},
            {"index": 5, "session_id": "tuple", "error": "messages must be a list"},
            {"index": 6, "session_id": "7", "error": "messages must contain only objects"},
            {"index": 7, "session_id": "many", "error": "messages exceeds the per-session import limit"},
        ],
    }
    assert db.session_count() == 0
    empty = db.import_sessions([])
    assert empty == {
        "ok": True,
        "imported": 0,
        "skipped": 0,
        "detached": 0,
        "imported_ids": [],
        "skipped_ids": [],
        "errors": [],
    }


def test_limits(db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SessionDB._IMPORT_MAX_SESSIONS == 500
    assert SessionDB._IMPORT_MAX_MESSAGES_PER_SESSION == 10_000
    assert SessionDB._IMPORT_MAX_TOTAL_MESSAGES == 50_000
    assert SessionDB._IMPORT_MAX_SESSION_BYTES == 5 * 1024 * 1024
    assert SessionDB._IMPORT_MAX_TOTAL_BYTES == 25 * 1024 * 1024
    session = {"id": "s", "é": "\x7f\n\x01", "n": [1.50, 10**20]}
    size = len(json.dumps(session, ensure_ascii=False, separators=(",", ":")).encode())
    monkeypatch.setattr(SessionDB, "_IMPORT_MAX_SESSION_BYTES", size - 1)
    (error,) = db.import_sessions([session])["errors"]
    assert error["error"] == "session exceeds the import size limit"
    monkeypatch.setattr(SessionDB, "_IMPORT_MAX_SESSION_BYTES", size)
    monkeypatch.setattr(SessionDB, "_IMPORT_MAX_TOTAL_BYTES", size)
    (error,) = db.import_sessions([session, {"id": "t"}])["errors"]
    assert (error["index"], error["error"]) == (1, "import exceeds the total size limit")
    monkeypatch.setattr(SessionDB, "_IMPORT_MAX_SESSIONS", 1)
    with pytest.raises(ValueError, match="at most 1 entries"):
        db.import_sessions([session, {"id": "t"}])
    assert db.import_sessions([session])["ok"]


def test_a_title_that_is_taken_is_an_error_of_its_entry(db: SessionDB) -> None:
    db.create_session("holder", "cli")
    db.set_session_title("holder", "Mine")
    report = db.import_sessions([{"id": "a", "messages": [{"role": "user"}]}, {"id": "b", "title": "Mine"}])
    assert report["errors"] == [{"index": 1, "session_id": "b", "error": "title is already in use by session holder"}]
    assert db.get_session("a") is None
