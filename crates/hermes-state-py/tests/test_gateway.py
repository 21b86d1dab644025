"""Gateway sessions and the routing index as Python callers see them."""

from __future__ import annotations

import sqlite3
from typing import Callable

import pytest
from hermes_state import SessionDB

pytestmark = pytest.mark.each_engine


def test_a_peer_is_recorded(db: SessionDB) -> None:
    db.create_session("s", "cli")
    result = db.record_gateway_session_peer(
        "s",
        source="telegram",
        user_id=7,
        session_key="k",
        chat_id=-100,
        chat_type="group",
        thread_id="5",
        display_name="Harbour",
        origin_json="{}",
    )
    assert result is None
    row = db.get_session("s")
    columns = ("source", "user_id", "session_key", "chat_id", "chat_type", "thread_id", "display_name", "origin_json")
    assert [row[name] for name in columns] == ["telegram", "7", "k", "-100", "group", "5", "Harbour", "{}"]
    db.record_gateway_session_peer("s", source="slack", session_key="k2", origin_json="")
    row = db.get_session("s")
    assert [row[name] for name in columns] == ["slack", None, "k2", None, None, None, "Harbour", ""]
    for id_, key in (("", "k"), (None, "k"), ("s", ""), ("s", None), ("nobody", "k")):
        db.record_gateway_session_peer(id_, source="irc", session_key=key)
    assert db.get_session("s") == row
    assert db.get_session("nobody") is None
    with pytest.raises(sqlite3.IntegrityError, match="NOT NULL"):
        db.record_gateway_session_peer("s", source=None, session_key="k")
    with pytest.raises(TypeError):
        db.record_gateway_session_peer("s", session_key="k")
    with pytest.raises(TypeError):
        db.record_gateway_session_peer("s", "telegram", session_key="k")


def test_the_routing_index(db: SessionDB) -> None:
    assert db.load_gateway_routing_entries() == {}
    db.save_gateway_routing_entry("k", "no json")
    db.save_gateway_routing_entry("k", "{}", scope="/a")
    db.save_gateway_routing_entry("k", "", scope="/a")
    db.save_gateway_routing_entry("", "x", scope="/a")
    db.save_gateway_routing_entry(None, "x")
    assert (db.load_gateway_routing_entries(), db.load_gateway_routing_entries(scope="/a")) == (
        {"k": "no json"},
        {"k": "{}"},
    )
    with pytest.raises(sqlite3.IntegrityError):
        db.save_gateway_routing_entry("k", "x", scope=None)
    assert db.load_gateway_routing_entries(scope=None) == {}
    with pytest.raises(TypeError):
        db.save_gateway_routing_entry("k", "x", "/a")


def test_a_scope_is_replaced_whole_or_not_at_all(db: SessionDB) -> None:
    db.save_gateway_routing_entry("other", "x", scope="/b")
    db.replace_gateway_routing_entries({"k2": "2", "k1": "1", "": "x", None: "x", "k3": "", "k4": None}, scope="/a")
    assert db.load_gateway_routing_entries(scope="/a") == {"k1": "1", "k2": "2"}
    for bad in ({"k": "1", "j": {"an": "object"}}, {"5": "1", 5: "2"}, {"k": "half \ud800"}):
        with pytest.raises((sqlite3.Error, UnicodeEncodeError)):
            db.replace_gateway_routing_entries(bad, scope="/a")
        assert db.load_gateway_routing_entries(scope="/a") == {"k1": "1", "k2": "2"}
    db.replace_gateway_routing_entries({"k5": "5"}, scope="/a")
    assert db.load_gateway_routing_entries(scope="/a") == {"k5": "5"}
    for nothing in ({}, None):
        db.save_gateway_routing_entry("k", "x", scope="/a")
        db.replace_gateway_routing_entries(nothing, scope="/a")
        assert db.load_gateway_routing_entries(scope="/a") == {}
    assert db.load_gateway_routing_entries(scope="/b") == {"other": "x"}


def test_entries_are_deleted(db: SessionDB) -> None:
    db.replace_gateway_routing_entries({"k1": "1", "k2": "2", "k3": "3"})
    db.delete_gateway_routing_entries([])
    db.delete_gateway_routing_entries(["k1", "nobody", None])
    db.delete_gateway_routing_entries(["k2"], scope="/a")
    assert db.load_gateway_routing_entries() == {"k2": "2", "k3": "3"}
    db.delete_gateway_routing_entries({"k2": None, "k3": None})
    assert db.load_gateway_routing_entries() == {}


def test_the_newest_session_of_each_key_is_listed(db: SessionDB, outside: Callable[[str], object]) -> None:
    for name, source, key in (("a", "telegram", "k"), ("b", "Slack", "j"), ("c", "cli", None)):
        db.create_session(name, source, session_key=key, chat_id="c")
    outside("UPDATE sessions SET started_at = CASE id WHEN 'a' THEN 10 ELSE 20 END")
    db.append_message("a", "user", "x", timestamp=30.5)
    rows = db.list_gateway_sessions()
    assert [(row["id"], row["last_active"]) for row in rows] == [("a", 30.5), ("b", 20.0)]
    assert list(rows[0])[-1] == "last_active"
    assert len(rows[0]) == 47
    assert [row["id"] for row in db.list_gateway_sessions(platform="sLACK")] == ["b"]
    db.end_session("b", "done")
    assert db.list_gateway_sessions(platform="slack") == []
    assert [row["id"] for row in db.list_gateway_sessions(platform="slack", active_only=False)] == ["b"]
    with pytest.raises(TypeError):
        db.list_gateway_sessions("slack")


def test_a_session_is_found_by_its_origin(db: SessionDB) -> None:
    db.create_session("a", "telegram", session_key="k", chat_id="-100", user_id="1", thread_id="5")
    assert db.find_session_by_origin(platform="Telegram", chat_id=-100) == "a"
    assert db.find_session_by_origin(platform="telegram", chat_id="-100", thread_id=5, user_id=2) == "a"
    assert db.find_session_by_origin(platform="telegram", chat_id="-100", thread_id="") is None
    db.create_session("b", "telegram", session_key="j", chat_id="-100", user_id="2")
    assert db.find_session_by_origin(platform="telegram", chat_id="-100", user_id=1) == "a"
    assert db.find_session_by_origin(platform="telegram", chat_id="-100", user_id="3") is None
    assert db.find_session_by_origin(platform="telegram", chat_id="-100") is None
    for platform, chat in (("", "-100"), (None, "-100"), ("telegram", ""), ("telegram", None)):
        assert db.find_session_by_origin(platform=platform, chat_id=chat) is None
    with pytest.raises(TypeError):
        db.find_session_by_origin(platform="telegram")


def test_the_latest_session_of_a_peer_is_found(db: SessionDB) -> None:
    db.create_session("a", "telegram", session_key="k", chat_id="5", chat_type="dm", user_id="7")
    assert db.find_latest_gateway_session_for_peer(source="telegram", session_key="k") is None, "nothing was said"
    db.append_message("a", "user", "x")
    db.end_session("a", "agent_close")
    assert db.find_latest_gateway_session_for_peer(source="telegram", session_key="k") == db.get_session("a")
    found = db.find_latest_gateway_session_for_peer(
        source="telegram", user_id=7, session_key="new", chat_id=5, chat_type="dm", thread_id=""
    )
    assert found is not None
    assert found["id"] == "a"
    assert db.find_latest_gateway_session_for_peer(source="telegram", session_key="new", chat_id="5") is None
    assert db.find_latest_gateway_session_for_peer(source="telegram", user_id="7", chat_id="5", chat_type="dm") is None
    with pytest.raises(TypeError):
        db.find_latest_gateway_session_for_peer(session_key="k")
