"""Listings, pages and searches of sessions as Python callers see them."""

from __future__ import annotations

import sqlite3
import time

import pytest
from hermes_state import SessionDB

pytestmark = pytest.mark.each_engine


def ids(rows: list[dict[str, object]]) -> list[object]:
    return [row["id"] for row in rows]


def test_pages_give_each_session_once_while_others_are_made(db: SessionDB) -> None:
    for n in range(10):
        db.create_session(f"s{n}", "cli")
    for newest_said in (False, True):
        seen: list[object] = []
        cursor = None
        while True:
            rows, cursor = db.list_sessions_page(limit=3, cursor=cursor, order_by_last_active=newest_said, source="cli")
            seen += ids(rows)
            assert cursor is None or (isinstance(cursor, str) and len(rows) == 3)
            if cursor is None:
                break
            db.create_session(f"new{newest_said}{len(seen)}", "cli")
            db.append_message("s0", "user", "still here")
        assert all(seen.count(f"s{n}") == 1 for n in range(10)), seen


def test_filters_of_a_page(db: SessionDB) -> None:
    now = time.time()
    for name, said in (("a", now - 500), ("b", now)):
        db.create_session(name, "web")
        db.append_message(name, "user", "hello", timestamp=said)
    db.set_session_title("a", "Harbour")
    assert ids(db.list_sessions_page(titled=True)[0]) == ["a"]
    assert ids(db.list_sessions_page(titled=False)[0]) == ["b"]
    assert ids(db.list_sessions_page(search_query="HARB", limit=-1)[0]) == ["a"]
    assert db.list_sessions_page(source="cli") == ([], None)
    rows, cursor = db.list_sessions_page(compact_rows=True)
    assert (ids(rows), cursor) == (["b", "a"], None)
    assert list(rows[0])[-2:] == ["last_active", "preview"]
    assert "system_prompt" not in rows[0]
    with pytest.raises(TypeError):
        db.list_sessions_page(10)
    with pytest.raises(ValueError, match="at least one row"):
        db.list_sessions_page(limit=0)
    with pytest.raises(ValueError, match="no cursor"):
        db.list_sessions_page(cursor="page 2")
    _, cursor = db.list_sessions_page(limit=1)
    with pytest.raises(ValueError, match="by start"):
        db.list_sessions_page(cursor=cursor, order_by_last_active=True)
    with pytest.raises(sqlite3.IntegrityError, match="datatype mismatch"):
        db.list_sessions_page(limit=None)


def test_only_what_was_said_lately_is_active(db: SessionDB) -> None:
    for name in ("a", "b"):
        db.create_session(name, "web")
    db.append_message("a", "user", "hello", timestamp=5.0)
    assert ids(db.list_sessions_page(active_since=time.time() - 60)[0]) == ["b"]
    assert ids(db.list_sessions_page(active_since=5)[0]) == ["b", "a"]
    assert ids(db.list_sessions_page(active_since=5.1)[0]) == ["b"]


def test_runs_of_a_scheduled_job(db: SessionDB) -> None:
    for name in ("cron_a_1", "cron_a_2", "cron_ab_3"):
        db.create_session(name, "cron")
    assert ids(db.list_cron_job_runs("a")) == ["cron_a_2", "cron_a_1"]
    assert ids(db.list_cron_job_runs("a", 1, 1)) == ["cron_a_1"]
    assert db.list_cron_job_runs("a", limit=0) == []
    with pytest.raises(UnicodeEncodeError):
        db.list_cron_job_runs("\ud800")


def test_searches(db: SessionDB) -> None:
    db.create_session("root", "cli")
    db.end_session("root", "compression")
    db.create_session("tip", "cli", parent_session_id="root")
    db.create_session("rooted", "web")
    assert ids(db.search_sessions_by_id(" ROOT ")) == ["tip", "rooted"]
    assert db.search_sessions_by_id("root")[0]["_lineage_root_id"] == "root"
    assert ids(db.search_sessions_by_id("root", limit=1)) == ["tip"]
    assert db.search_sessions_by_id(None) == db.search_sessions_by_id(" ") == db.search_sessions_by_id("root", 0) == []
    rows = db.search_sessions()
    assert ids(rows) == ["rooted", "tip", "root"]
    assert list(rows[0])[-1] == "last_active"
    assert "preview" not in rows[0]
    assert ids(db.search_sessions("web", 5, 0)) == ["rooted"]
    assert ids(db.search_sessions(limit=-1, offset=2)) == ["root"]
    with pytest.raises(sqlite3.IntegrityError, match="datatype mismatch"):
        db.search_sessions(limit=None)
