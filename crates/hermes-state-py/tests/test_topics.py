"""Telegram topics as Python callers see them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hermes_state import SessionDB

pytestmark = pytest.mark.each_engine

COLUMNS = [
    "chat_id",
    "thread_id",
    "user_id",
    "session_key",
    "session_id",
    "managed_mode",
    "linked_at",
    "updated_at",
]


def bind(db: SessionDB, thread: Any, session: str) -> None:
    db.bind_telegram_topic(chat_id=-100, thread_id=thread, user_id=7, session_key="k", session_id=session)


def test_without_topics_nothing_is_bound(db: SessionDB) -> None:
    assert db.is_telegram_topic_mode_enabled(chat_id="c", user_id="u") is False
    assert db.get_telegram_topic_binding(chat_id="c", thread_id="1") is None
    assert db.list_telegram_topic_bindings_for_chat(chat_id="c") == []
    assert db.get_telegram_topic_binding_by_session(session_id="s") is None
    assert db.is_telegram_session_linked_to_topic(session_id="s") is False
    assert db.delete_telegram_topic_binding(chat_id="c", thread_id="1") == 0
    assert db.disable_telegram_topic_mode(chat_id="c") is None
    assert db.list_unlinked_telegram_sessions_for_user(chat_id="c", user_id="u") == []


def test_topic_mode(db: SessionDB) -> None:
    db.enable_telegram_topic_mode(chat_id=-100, user_id=7, has_topics_enabled=True)
    assert db.is_telegram_topic_mode_enabled(chat_id="-100", user_id="7") is True
    assert db.is_telegram_topic_mode_enabled(chat_id=-100, user_id=8) is False
    db.disable_telegram_topic_mode(chat_id=-100)
    assert db.is_telegram_topic_mode_enabled(chat_id=-100, user_id=7) is False
    with pytest.raises(TypeError):
        db.enable_telegram_topic_mode("c", "u")


def test_bindings(db: SessionDB) -> None:
    for name in ("a", "b"):
        db.create_session(name, "telegram", user_id="7")
    bind(db, 1, "a")
    found = db.get_telegram_topic_binding(chat_id="-100", thread_id="1")
    assert found is not None
    assert list(found) == COLUMNS
    assert list(found.values())[:6] == ["-100", "1", "7", "k", "a", "auto"]
    assert found["linked_at"] == found["updated_at"] > 1.7e9
    assert db.get_telegram_topic_binding_by_session(session_id="a") == found
    assert db.is_telegram_session_linked_to_topic(session_id="a") is True
    bind(db, "2", "b")
    bind(db, 1, "a")
    assert [row["thread_id"] for row in db.list_telegram_topic_bindings_for_chat(chat_id=-100)] == ["1", "2"]
    before = db.list_telegram_topic_bindings_for_chat(chat_id=-100)
    with pytest.raises(ValueError, match="already linked to another Telegram topic"):
        bind(db, 3, "a")
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        bind(db, 3, "nobody")
    assert db.list_telegram_topic_bindings_for_chat(chat_id=-100) == before
    db.enable_telegram_topic_mode(chat_id=-100, user_id=7)
    assert db.delete_telegram_topic_binding(chat_id=-100, thread_id=1) == 1
    assert db.is_telegram_topic_mode_enabled(chat_id=-100, user_id=7)
    assert db.delete_telegram_topic_binding(chat_id=-100, thread_id=2) == 1
    assert not db.is_telegram_topic_mode_enabled(chat_id=-100, user_id=7)


def test_unlinked_sessions(db: SessionDB) -> None:
    for name in ("a", "b", "c"):
        db.create_session(name, "telegram", user_id="7")
        db.append_message(name, "user", f" message\nof {name}")
    bind(db, 1, "b")
    rows = db.list_unlinked_telegram_sessions_for_user(chat_id="any", user_id=7)
    assert [row["id"] for row in rows] == ["c", "a"]
    assert list(rows[0])[-2:] == ["last_active", "preview"]
    assert rows[0]["preview"] == "message of c"
    for limit, expected in (("1", ["c"]), (1.9, ["c"]), (0, []), (-1, ["c", "a"])):
        rows = db.list_unlinked_telegram_sessions_for_user(chat_id="any", user_id="7", limit=limit)
        assert [row["id"] for row in rows] == expected
    with pytest.raises(ValueError, match="many"):
        db.list_unlinked_telegram_sessions_for_user(chat_id="any", user_id="7", limit="many")


@pytest.mark.parametrize("engine", ["file"], indirect=True)
def test_tables_are_made_when_they_are_first_asked_for(db: SessionDB, path: Path) -> None:
    names = "SELECT COUNT(*) FROM sqlite_master WHERE name LIKE 'telegram%'"
    assert db._conn.execute(names).fetchone()[0] == 0
    db.apply_telegram_topic_migration()
    db.apply_telegram_topic_migration()
    assert db._conn.execute(names).fetchone()[0] == 2
    assert db.get_meta("telegram_dm_topic_schema_version") == "2"
    with SessionDB(path, read_only=True) as looking, pytest.raises(sqlite3.OperationalError, match="readonly"):
        looking.apply_telegram_topic_migration()
