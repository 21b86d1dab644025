"""Constants that callers were written against, and what is refused of arguments."""

from __future__ import annotations

import hermes_state
import pytest
from hermes_state import SessionDB


def test_constants() -> None:
    assert hermes_state.SCHEMA_VERSION == 23
    assert hermes_state.FTS_STORAGE_VERSION == 1
    assert hermes_state.FTS_CJK_STALE_KEY == "fts_cjk_stale"
    assert hermes_state.MAX_FTS5_QUERY_CHARS == 2048
    assert len(hermes_state._FTS_TRIGGERS) == 6
    assert len(hermes_state._FTS_CJK_TRIGGERS) == 3
    assert SessionDB.MAX_TITLE_LENGTH == 100
    assert set(SessionDB._SESSION_COMPACT_EXCLUDED) == {"system_prompt"}
    assert SessionDB._CONTENT_JSON_PREFIX == "\0json:"
    assert SessionDB._CHECKPOINT_EVERY_N_WRITES == 50
    assert SessionDB._OPTIMIZE_EVERY_N_WRITES == 1000
    assert (SessionDB._WRITE_RETRY_MIN_S, SessionDB._WRITE_RETRY_MAX_S) == (0.020, 0.150)


def test_every_exported_name_exists() -> None:
    assert all(hasattr(hermes_state, name) for name in hermes_state.__all__)


def test_unknown_keywords_are_refused(db: SessionDB) -> None:
    for call in (
        lambda: db.create_session("s", "cli", title="no"),
        lambda: db.ensure_session("s", colour="no"),
        lambda: db.append_message("s", "user", colour="no"),
        lambda: db.create_session("s", "cli", "no third by position"),
    ):
        with pytest.raises(TypeError):
            call()
    assert db.session_count() == 0
