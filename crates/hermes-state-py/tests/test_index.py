"""The search indexes and their upkeep as Python callers see them."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Any, Callable

import hermes_state
import pytest
from hermes_state import InvalidQuery, SessionDB


class AtOnce(SessionDB):
    """Without pauses: what is tested is not how long it takes."""

    _FTS_REBUILD_MIN_PAUSE = 0.0
    _FTS_REBUILD_DUTY_FACTOR = 0.0


@pytest.fixture
def filled(location: Path | str) -> Any:
    with AtOnce(location) as store:
        store.create_session("s", "cli")
        store.append_messages("s", [{"role": "user", "content": f"lamp marker{n}q"} for n in range(30)])
        yield store


def ids(store: SessionDB, query: str, **keywords: Any) -> list[int]:
    return [hit["id"] for hit in store.search_messages(query, **keywords)]


@pytest.mark.each_engine
def test_nothing_is_to_be_done(filled: SessionDB) -> None:
    assert filled.fts_rebuild_status() is None
    assert filled.fts_cjk_rebuild_status() is None
    assert filled.fts_rebuild_step() is False
    assert filled.fts_cjk_rebuild_step() is False
    assert filled.fts_optimize_available() is False
    assert filled._try_runtime_fts_rebuild(ValueError("fts5: corrupt")) is False
    assert filled._try_runtime_fts_rebuild(sqlite3.DatabaseError("no such thing")) is False


@pytest.mark.each_engine
def test_optimizing_tells_how_far_it_is(filled: SessionDB) -> None:
    told: list[dict[str, Any]] = []
    assert filled.optimize_fts_storage(progress_cb=told.append, vacuum=False) == {"ok": True, "vacuumed": None}
    assert told[0] == {"phase": "backfill", "percent": 100, "indexed": 0, "total": 0}
    assert [one["phase"] for one in told] == ["backfill", "backfill", "teardown", "done"]

    def stop(_: dict[str, Any]) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        filled.optimize_fts_storage(progress_cb=stop)
    with pytest.raises(TypeError):
        filled.optimize_fts_storage(stop)  # type: ignore[misc]


@pytest.mark.each_engine
def test_rebuilding_and_merging(filled: SessionDB, engine: str) -> None:
    count = 2 if engine == "file" else 1
    assert filled.optimize_fts() == count
    assert filled.rebuild_fts() == count
    assert filled._try_runtime_fts_rebuild(sqlite3.DatabaseError("fts5: corruption found")) is True
    assert len(ids(filled, "lamp", limit=-1)) == 30
    assert ids(filled, "marker7q") == [8]
    assert filled._fts_table_exists("messages_fts" if engine == "file" else "message_words") is True
    assert filled._fts_table_exists("no_such_table") is False


def test_a_rebuild_in_steps(filled: SessionDB) -> None:
    filled._FTS_REBUILD_CHUNK_ROWS = 12
    assert filled._demote_legacy_fts_to_trash() == 30
    assert filled.fts_rebuild_step() is True
    assert filled.fts_rebuild_status() == {"pending": True, "total": 30, "indexed": 12, "percent": 40}
    found = filled.search_messages("marker29q")
    assert ([hit["id"] for hit in found], found.degraded) == ([30], True)
    (hit,) = filled._search_unindexed_gap("marker29q", 5)
    assert (hit["id"], hit["snippet"], hit["context"]) == (30, "lamp marker29q", [])
    assert filled._search_unindexed_gap("marker29q", 0) == []
    assert filled._search_unindexed_gap("marker3q", 5) == []
    assert filled.fts_rebuild_step() is True
    assert filled.fts_rebuild_step() is False
    assert filled.search_messages("marker29q").degraded is False
    assert filled.fts_optimize_available() is True
    assert filled.optimize_fts_storage() == {"ok": True, "vacuumed": True}
    assert filled.fts_optimize_available() is False
    filled.set_meta("fts_rebuild_high_water", "many")
    with pytest.raises(ValueError, match="many"):
        filled.fts_rebuild_status()


def test_a_lock_is_no_end_of_a_rebuild(filled: SessionDB, caplog: pytest.LogCaptureFixture) -> None:
    filled._demote_legacy_fts_to_trash()
    filled._WRITE_PATIENCE_S = 0
    with sqlite3.connect(filled.db_path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        assert filled.fts_rebuild_step() is True
        other.execute("ROLLBACK")
    other.close()
    assert "tried again" in caplog.text
    assert filled.fts_rebuild_step() is False


def test_a_legacy_file_is_brought_up_to_date(tmp_path: Path) -> None:
    fixture = Path(__file__).parents[2] / "hermes-state" / "tests" / "fixtures" / "state-v22.db"
    path = tmp_path / "old.db"
    path.write_bytes(fixture.read_bytes())
    with AtOnce(path) as store:
        before = store.search_messages("the OR a OR to", limit=-1)
        assert store.fts_optimize_available() is True
        assert store.rebuild_fts() == 2
        assert store.fts_optimize_available() is True, "a rebuild changes no layout"
        assert store.optimize_fts_storage(vacuum=False) == {"ok": True, "vacuumed": None}
        assert store.fts_optimize_available() is False
        after = store.search_messages("the OR a OR to", limit=-1)
        assert {hit["id"] for hit in before} == {hit["id"] for hit in after}
        assert store._conn is not None
        for table in ("messages_fts", "messages_fts_trigram"):
            store._conn.execute(f"INSERT INTO {table}({table}, rank) VALUES ('integrity-check', 1)")
        leftovers = "SELECT count(*) FROM sqlite_master WHERE name LIKE 'fts_v22_trash_%' OR name LIKE '%_content'"
        assert store._conn.execute(leftovers).fetchone()[0] == 0


def test_a_read_only_instance_changes_nothing(filled: SessionDB, caplog: pytest.LogCaptureFixture) -> None:
    filled._demote_legacy_fts_to_trash()
    with AtOnce(filled.db_path, read_only=True) as reader:
        assert reader.fts_optimize_available() is False
        assert reader.fts_rebuild_step() is False
        assert reader.fts_rebuild_status() == {"pending": True, "total": 30, "indexed": 0, "percent": 0}
        assert reader.optimize_fts_storage() == {"ok": False, "reason": "read_only"}
        assert reader.optimize_fts() == 0
        assert reader.rebuild_fts() == 0
        assert ids(reader, "marker7q") == [8]
    assert "readonly" in caplog.text


def test_every_thousandth_write_merges(filled: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def merge() -> int:
        calls.append(filled._write_count)
        raise sqlite3.OperationalError("no")

    monkeypatch.setattr(filled, "optimize_fts", merge)
    filled._OPTIMIZE_EVERY_N_WRITES = 5
    for n in range(12):
        filled.set_meta("k", n)
    assert [count % 5 for count in calls] == [0] * len(calls)
    assert len(calls) in (2, 3)


def test_a_write_that_meets_a_damaged_index_is_stored(filled: SessionDB, caplog: pytest.LogCaptureFixture) -> None:
    with sqlite3.connect(filled.db_path) as other:
        other.execute("UPDATE messages_fts_data SET block = x'ffffffffffffffffffff' WHERE id = 10")
    other.close()
    with caplog.at_level(logging.WARNING, "hermes_state"):
        filled.append_message("s", "user", "tail0q")
    assert "transcript is intact" in caplog.text
    found = filled.search_messages("marker7q")
    assert (len(found), found.degraded) == (1, True)
    assert filled.rebuild_fts() == 2
    found = filled.search_messages("tail0q")
    assert (len(found), found.degraded) == (1, False)


@pytest.mark.each_engine
def test_a_search_may_be_bounded(filled: SessionDB) -> None:
    assert filled.search_messages("lamp", timeout_ms=60_000) == filled.search_messages("lamp")
    found = filled.search_messages("lamp", timeout_ms=0)
    assert (found, found.partial) == ([], True)
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="timeout_ms"):
            filled.search_messages("lamp", timeout_ms=wrong)
    with pytest.raises(InvalidQuery, match="invalid query"):
        filled.search_messages(" " * 2048 + "lamp")
    assert issubclass(InvalidQuery, ValueError)


def test_helpers(filled: SessionDB, outside: Callable[[str], object]) -> None:
    assert SessionDB._sanitize_fts5_query("x-ray AND (v1.0") == '"x-ray" AND  "v1.0"'
    assert SessionDB._sanitize_fts5_query("half \ud800") == "half \ufffd"
    assert (SessionDB._contains_cjk("a茶"), SessionDB._contains_cjk("é")) == (True, False)
    assert SessionDB._count_cjk("redis缓存、ab") == 3
    assert (SessionDB._has_lone_cjk_run("茶 杭州"), SessionDB._has_lone_cjk_run("杭州")) == (True, False)
    paths = [filled._describe_search_path(query) for query in ("()", "lamp", "杭州西湖", "西湖", 5)]  # type: ignore[arg-type]
    assert paths == ["empty", "fts5", "trigram", "like_scan", "unknown"]
    assert filled._FTS_TABLES == ("messages_fts", "messages_fts_trigram", "messages_fts_cjk")
    assert filled._FTS_TRASH_PREFIX == "fts_v22_trash_"
    assert (SessionDB._FTS_REBUILD_CHUNK_ROWS, SessionDB._FTS_REBUILD_DUTY_FACTOR) == (500, 4.0)
    assert SessionDB._FTS_REBUILD_MIN_PAUSE == 0.2
    outside("DROP TRIGGER messages_fts_insert")
    assert filled._fts_enabled is False, "an index that is not kept any more does not answer"
    found = filled.search_messages("lamp marker7q")
    assert (len(found), found.degraded) == (1, True)


def test_the_cjk_index_is_kept_where_the_library_is(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "libfts5_cjk.so"
    library.write_bytes(b"")
    monkeypatch.setenv("HERMES_FTS5_CJK_SO", str(library))
    with AtOnce(path) as store:
        assert (store._fts_cjk_loaded, store._fts_cjk_available) == (True, True)
        store.create_session("s", "cli")
        store.append_message("s", "user", "下周去杭州西湖拍照")
        assert store._describe_search_path("西湖") == "fts_cjk"
        (hit,) = store.search_messages("西湖")
        assert hit["snippet"] == "下周去杭州>>>西湖<<<拍照"
        assert store.optimize_fts() == 3
        store.set_meta(hermes_state.FTS_CJK_STALE_KEY, "1")
        assert (store._fts_cjk_available, store._describe_search_path("西湖")) == (False, "like_scan")
        assert ids(store, "西湖") == [1]
    monkeypatch.setenv("HERMES_CJK_FTS", "off")
    with AtOnce(path) as store:
        assert (store._fts_cjk_loaded, store._fts_cjk_available) == (False, False)
        assert store.fts_optimize_available() is False
        with sqlite3.connect(path) as plain:
            plain.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', '西湖', 2)")
        plain.close()
        assert sorted(ids(store, "西湖")) == [1, 2]
