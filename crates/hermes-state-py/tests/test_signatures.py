"""Names, parameters and defaults are those that callers were written against."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import hermes_state
import pytest
from hermes_state import SessionDB

SIGNATURES = {
    "__init__": "(self, db_path=None, read_only=False)",
    "close": "(self)",
    "create_session": "(self, session_id, source, *, model=None, model_config=None, system_prompt=None, user_id=None,"
    " session_key=None, chat_id=None, chat_type=None, thread_id=None, parent_session_id=None, cwd=None,"
    " profile_name=None, git_repo_root=None)",
    "ensure_session": "(self, session_id, source='unknown', model=None, **kwargs)",
    "end_session": "(self, session_id, end_reason)",
    "reopen_session": "(self, session_id)",
    "get_session": "(self, session_id)",
    "session_count": "(self, source=None, cwd_prefix=None, min_message_count=0, include_archived=False,"
    " archived_only=False, exclude_children=False, exclude_sources=None)",
    "list_sessions_rich": "(self, source=None, exclude_sources=None, cwd_prefix=None, limit=20, offset=0,"
    " include_children=False, min_message_count=0, project_compression_tips=True, order_by_last_active=False,"
    " include_archived=False, archived_only=False, id_query=None, search_query=None, compact_rows=False)",
    "sanitize_title": "(title)",
    "set_session_title": "(self, session_id, title)",
    "get_session_title": "(self, session_id)",
    "append_message": "(self, session_id, role, content=None, tool_name=None, tool_calls=None, tool_call_id=None,"
    " token_count=None, finish_reason=None, reasoning=None, reasoning_content=None, reasoning_details=None,"
    " codex_reasoning_items=None, codex_message_items=None, platform_message_id=None, observed=False,"
    " effect_disposition=None, timestamp=None, api_content=None)",
    "append_messages": "(self, session_id, messages)",
    "get_messages": "(self, session_id, include_inactive=False, limit=None, offset=0)",
    "get_messages_as_conversation": "(self, session_id, include_ancestors=False, include_inactive=False,"
    " repair_alternation=False)",
    "search_messages": "(self, query, source_filter=None, exclude_sources=None, role_filter=None, limit=20, offset=0,"
    " sort=None, include_inactive=False)",
    "message_count": "(self, session_id=None)",
    "get_meta": "(self, key)",
    "set_meta": "(self, key, value, *, cursor=None)",
    "_execute_write": "(self, fn, patience_s=None)",
    "_try_wal_checkpoint": "(self)",
    "_parse_schema_columns": "(schema_sql)",
}

FUNCTIONS = {
    "apply_wal_with_fallback": "(conn, *, db_label='state.db')",
    "format_session_db_unavailable": "(prefix='Session database not available')",
    "get_last_init_error": "()",
    "_set_last_init_error": "(msg)",
    "is_malformed_db_error": "(exc)",
    "workspace_key": "(row)",
    "_scrub_surrogates": "(value)",
}


def plain(function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    parameters = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


@pytest.mark.parametrize("name", SIGNATURES)
def test_methods(name: str) -> None:
    assert plain(getattr(SessionDB, name)) == SIGNATURES[name]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    assert plain(getattr(hermes_state, name)) == FUNCTIONS[name]


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
