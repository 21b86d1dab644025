"""Searches and conversations as Python callers see them."""

from __future__ import annotations

import logging
import sqlite3
from typing import Any, Callable

import pytest
from hermes_state import SearchResults, SessionDB

pytestmark = pytest.mark.each_engine


@pytest.fixture
def filled(db: SessionDB) -> SessionDB:
    for number, source in enumerate(("cli", "web")):
        db.create_session(source, source, model="large")
        db.append_messages(
            source,
            [
                {"role": "user", "content": f"where is the harbour of {source}?", "timestamp": 10 + number},
                {"role": "assistant", "content": "I look", "tool_calls": [{"id": "k1"}], "timestamp": 20 + number},
                {"role": "tool", "content": "harbour: north", "tool_name": "map", "timestamp": 30 + number},
            ],
        )
    return db


def test_a_hit(filled: SessionDB) -> None:
    found = filled.search_messages("where", source_filter=["web"])
    assert isinstance(found, SearchResults)
    assert isinstance(found, list)
    assert (found.degraded, found.partial) == (False, False)
    (hit,) = found
    assert list(hit) == [
        "id",
        "session_id",
        "role",
        "snippet",
        "timestamp",
        "tool_name",
        "source",
        "model",
        "session_started",
        "context",
    ]
    assert hit["snippet"] == ">>>where<<< is the harbour of web?"
    assert (hit["id"], hit["session_id"], hit["timestamp"], hit["model"]) == (4, "web", 11.0, "large")
    assert hit["context"] == [
        {"role": "user", "content": "where is the harbour of web?"},
        {"role": "assistant", "content": "I look"},
    ]


def test_filters_orders_and_pages(filled: SessionDB) -> None:
    for nothing in ({"role_filter": [None]}, {"exclude_sources": [None]}, {"source_filter": [None]}):
        assert filled.search_messages("harbour", **nothing) == []

    def ids(**keywords: Any) -> list[int]:
        return [hit["id"] for hit in filled.search_messages("harbour", **keywords)]

    assert sorted(ids()) == [1, 3, 4, 6]
    assert ids(sort=" Newest ") == [6, 3, 4, 1]
    assert ids(sort="oldest", limit=2, offset=1) == [4, 3]
    assert sorted(ids(sort=5)) == [1, 3, 4, 6]
    assert sorted(ids(role_filter=["tool"])) == [3, 6]
    assert sorted(ids(exclude_sources=["web"])) == [1, 3]
    assert ids(source_filter=[]) == []
    assert ids(limit=0) == []
    assert len(ids(limit=-1)) == 4
    with pytest.raises(sqlite3.IntegrityError, match="datatype mismatch"):
        ids(limit="many")


@pytest.mark.parametrize("query", [None, "", "  \t"])
def test_nothing_to_look_for(filled: SessionDB, query: Any) -> None:
    assert filled.search_messages(query) == []


@pytest.mark.parametrize("query", ['"unbalanced', "AND", "(((", "col:term", "half \ud800"])
def test_no_query_is_an_error(filled: SessionDB, query: str) -> None:
    assert filled.search_messages(query) == []


def test_a_read_only_store_searches(filled: SessionDB) -> None:
    with SessionDB(filled.db_path, read_only=True) as reader:
        assert len(reader.search_messages("harbour")) == 4


def test_slow_searches_are_told(
    filled: SessionDB, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "hermes_state"):
        filled.search_messages("harbour")
        assert not caplog.records
        monkeypatch.setenv("HERMES_SEARCH_SLOW_MS", "0")
        filled.search_messages("harbour")
        assert filled.search_messages(None) == []
        monkeypatch.setenv("HERMES_SEARCH_SLOW_MS", "often")
        filled.search_messages("harbour")
    first, second = [record.getMessage() for record in caplog.records]
    for part in ("slow session search", "path=fts5", "elapsed=", "rows=4", "query='harbour'"):
        assert part in first
    assert "rows=0" in second


def test_a_conversation_says_what_there_is_to_say(filled: SessionDB) -> None:
    assert filled.get_messages_as_conversation("cli") == [
        {"role": "user", "content": "where is the harbour of cli?", "timestamp": 10.0},
        {"role": "assistant", "content": "I look", "timestamp": 20.0, "tool_calls": [{"id": "k1"}]},
        {"role": "tool", "content": "harbour: north", "timestamp": 30.0, "tool_name": "map"},
    ]
    assert filled.get_messages_as_conversation("nobody") == []
    assert filled.get_messages_as_conversation(None) == []


def test_a_conversation_keeps_what_json_of_python_knows(db: SessionDB) -> None:
    db.create_session("s", "cli")
    body = [{"text": "half \ud800", "big": 10**30, "inf": float("inf")}]
    db.append_message(
        "s", "assistant", body, reasoning_details=body, reasoning_content="", observed=True, platform_message_id="p1"
    )
    (message,) = db.get_messages_as_conversation("s")
    assert message["content"] == message["reasoning_details"] == body
    assert message["reasoning_content"] == ""
    assert message["observed"] is True
    assert message["message_id"] == "p1"


def test_ancestors_inactive_and_repaired(db: SessionDB, outside: Callable[[str], object]) -> None:
    db.create_session("parent", "cli")
    db.append_message("parent", "user", "first", timestamp=1)
    db.end_session("parent", "compression")
    db.create_session("child", "cli", parent_session_id="parent")
    db.append_messages("child", [{"role": "user", "content": "second"}, {"role": "user", "content": "third"}])

    def said(**keywords: Any) -> list[Any]:
        return [message["content"] for message in db.get_messages_as_conversation("child", **keywords)]

    assert said() == ["second", "third"]
    assert said(include_ancestors=True) == ["first", "second", "third"]
    assert len(said(repair_alternation=True)) == 1
    outside("UPDATE messages SET active = 0 WHERE content = 'third'")
    assert said() == ["second"]
    assert said(include_inactive=True) == ["second", "third"]
