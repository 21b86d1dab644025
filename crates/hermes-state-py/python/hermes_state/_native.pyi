# The native half of the module `hermes_state`.

import os
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, final

__all__ = [
    "COMPACT_EXCLUDED",
    "CONTENT_JSON_PREFIX",
    "FTS_STORAGE_VERSION",
    "MAX_FTS5_QUERY_CHARS",
    "MAX_TITLE_LENGTH",
    "SCHEMA_SQL",
    "SCHEMA_VERSION",
    "Store",
    "Write",
    "decode_content",
    "encode_content",
    "is_url",
    "parse_schema_columns",
    "require_lock_kind",
    "sanitize_title",
    "scrub_surrogates",
]

SCHEMA_SQL: str
SCHEMA_VERSION: int
FTS_STORAGE_VERSION: int
MAX_FTS5_QUERY_CHARS: int
CONTENT_JSON_PREFIX: str
MAX_TITLE_LENGTH: int
COMPACT_EXCLUDED: frozenset[str]

def decode_content(value: Any) -> Any: ...
def encode_content(value: Any) -> Any: ...
def is_url(location: str | os.PathLike[str]) -> bool: ...
def parse_schema_columns(schema_sql: str) -> dict[str, dict[str, str]]: ...
def require_lock_kind(name: str) -> bool: ...
def sanitize_title(title: Any) -> str | None: ...
def scrub_surrogates(value: Any) -> Any: ...

@final
class Write:
    @property
    def transcript(self) -> bool: ...
    def __call__(self, *_arguments: Any) -> NoReturn: ...

@final
class Store:
    def __new__(
        cls,
        path: Path | str,
        read_only: bool,
        patience: float,
        sessions_json: Path | None,
        cjk: bool,
        password: str | None,
    ) -> Store: ...
    @property
    def path(self) -> Path | str: ...
    def indexes(self) -> tuple[bool, bool, bool]: ...
    def close(self) -> None: ...
    def checkpoint(self) -> None: ...
    def check_writable(self) -> None: ...
    def busy_error(self, waited: float) -> sqlite3.OperationalError: ...
    def run(self, write: Write, patience: float) -> Any: ...
    @staticmethod
    def create_session(
        session_id: Any,
        source: Any,
        model: Any,
        model_config: Any,
        system_prompt: Any,
        user_id: Any,
        session_key: Any,
        chat_id: Any,
        chat_type: Any,
        thread_id: Any,
        parent_session_id: Any,
        cwd: Any,
        profile_name: Any,
        git_repo_root: Any,
    ) -> Write: ...
    @staticmethod
    def end_session(session_id: Any, end_reason: Any) -> Write: ...
    @staticmethod
    def reopen_session(session_id: Any) -> Write: ...
    @staticmethod
    def set_session_title(session_id: Any, title: Any) -> Write: ...
    @staticmethod
    def set_meta(key: Any, value: Any) -> Write: ...
    def meta(self, key: Any) -> Any: ...
    def session(self, session_id: Any) -> dict[str, Any] | None: ...
    def session_title(self, session_id: Any) -> str | None: ...
    def session_count(
        self,
        source: Any,
        cwd_prefix: Any,
        min_message_count: int,
        include_archived: Any,
        archived_only: Any,
        exclude_children: Any,
        exclude_sources: Any,
    ) -> int: ...
    def list_sessions(
        self,
        source: Any,
        exclude_sources: Any,
        cwd_prefix: Any,
        limit: Any,
        offset: Any,
        include_children: Any,
        min_message_count: int,
        project_compression_tips: Any,
        order_by_last_active: Any,
        include_archived: Any,
        archived_only: Any,
        id_query: str | None,
        search_query: str | None,
        compact_rows: Any,
    ) -> list[dict[str, Any]]: ...
    @staticmethod
    def append_message(
        session_id: Any,
        role: Any,
        content: Any = None,
        tool_name: Any = None,
        tool_calls: Any = None,
        tool_call_id: Any = None,
        token_count: Any = None,
        finish_reason: Any = None,
        reasoning: Any = None,
        reasoning_content: Any = None,
        reasoning_details: Any = None,
        codex_reasoning_items: Any = None,
        codex_message_items: Any = None,
        platform_message_id: Any = None,
        observed: Any = None,
        effect_disposition: Any = None,
        timestamp: Any = None,
        api_content: Any = None,
    ) -> Write: ...
    @staticmethod
    def append_messages(session_id: Any, messages: Iterable[Mapping[str, Any]]) -> Write: ...
    def messages(self, session_id: Any, include_inactive: Any, limit: Any, offset: Any) -> list[dict[str, Any]]: ...
    def message_count(self, session_id: Any) -> int: ...
    def conversation(
        self, session_id: Any, include_ancestors: Any, include_inactive: Any, repair_alternation: Any
    ) -> list[dict[str, Any]]: ...
    def search(
        self,
        query: Any,
        source_filter: Any,
        exclude_sources: Any,
        role_filter: Any,
        limit: Any,
        offset: Any,
        sort: Any,
        include_inactive: Any,
    ) -> tuple[list[dict[str, Any]], bool, bool]: ...
    def search_path(self, query: Any) -> str: ...
