"""The class ``SessionDB``: the signatures and manners that callers know, over the native store."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

import hermes_state as module
from hermes_state import _home, _native, _server, _trouble
from hermes_state._log import logger
from hermes_state._raw import RawConnection
from hermes_state._search import SearchResults, log_if_slow

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


class SessionDB:
    """A store of sessions and their messages, shared by all the agents of a machine, or by those of many on a server.

    One instance may be used from any number of threads, several instances and processes on one store. ``db_path`` is
    the path of a file, or the URL of a server (``postgresql://user@host/database?schema=name``); without it the
    environment's HERMES_STATE_URL counts, then the default path. A URL without a password takes it from PGPASSWORD.
    The attribute ``db_path`` is a ``Path``, or the URL as text without its password. Raw SQL (``_conn``, and functions
    passed to ``_execute_write``) needs a file.
    """

    MAX_TITLE_LENGTH = _native.MAX_TITLE_LENGTH

    # How many seconds a write waits for the process that holds the write lock; read at the start of each write.
    _WRITE_PATIENCE_S = 20
    _TRANSCRIPT_WRITE_PATIENCE_S = 60

    _CHECKPOINT_EVERY_N_WRITES = 50
    _OPTIMIZE_EVERY_N_WRITES = 1000

    _SESSION_COMPACT_EXCLUDED = _native.COMPACT_EXCLUDED
    _CONTENT_JSON_PREFIX = _native.CONTENT_JSON_PREFIX

    # No write has had to do without a damaged search index yet.
    _fts_runtime_rebuild_attempted = False

    def __init__(self, db_path: str | os.PathLike[str] | None = None, read_only: bool = False) -> None:
        # Lock contention is survived, not reported: the writes of a turn wait 30 seconds and more for a sibling
        # (_TRANSCRIPT_WRITE_PATIENCE_S), this opening and all other writes as long as _WRITE_PATIENCE_S says.
        self.read_only = read_only
        self._write_count = 0
        self._count_lock = threading.Lock()
        try:
            location = _server.location(db_path, module.DEFAULT_DB_PATH)
            self._native = _native.Store(
                location,
                bool(read_only),
                type(self)._WRITE_PATIENCE_S,
                _home.sessions_json(),
                _home.has_cjk_tokenizer(),
                _server.password(location),
            )
            # A path as it was given; a URL, which is text, without its password.
            self.db_path: Path | str = self._native.path if isinstance(location, str) else location
        except Exception as error:
            module._set_last_init_error(f"{type(error).__name__}: {error}")
            raise
        # The path as it was resolved, so that a change of the working folder leads nowhere else.
        self._raw = RawConnection(self._native)

    def close(self) -> None:
        """Closes the store once running calls are done. Closing again does nothing."""
        self._raw.close()
        self._native.close()

    def __enter__(self) -> SessionDB:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # An instance whose opening failed has no store, and nobody to tell.
        if hasattr(self, "_raw"):
            self.close()

    # The way round the store

    @property
    def _conn(self) -> sqlite3.Connection | None:
        # Raises ProgrammingError where there is no file.
        return self._raw.get()

    @property
    def _lock(self) -> Any:
        return self._raw.lock

    @property
    def _fts_enabled(self) -> bool:
        return self._native.indexes()[0]

    @property
    def _trigram_available(self) -> bool:
        return self._native.indexes()[1]

    @property
    def _fts_cjk_loaded(self) -> bool:
        # A server needs no tokenizer: it finds Chinese, Japanese and Korean text by the index of words.
        return not self.read_only and isinstance(self.db_path, Path) and _home.has_cjk_tokenizer()

    @property
    def _fts_cjk_available(self) -> bool:
        return self._native.indexes()[2]

    # Writing

    def _execute_write(self, fn: Any, patience_s: float | None = None) -> Any:
        """Runs a write in one transaction: one of this class's own, or ``fn(conn)`` for raw SQL on ``_conn``.

        ``fn`` may run several times and must not commit; whatever leaves it undoes its work. Raw SQL needs a file.
        """
        native = isinstance(fn, _native.Write)
        patience = patience_s
        if patience is None:
            patience = self._TRANSCRIPT_WRITE_PATIENCE_S if native and fn.transcript else self._WRITE_PATIENCE_S
        if native:
            self._raw.refuse_inside_transaction()
            answer = self._native.run(fn, patience)
        else:
            answer = self._raw.write(fn, patience)
        self._count_write()
        return answer

    def _count_write(self) -> None:
        with self._count_lock:
            self._write_count += 1
            count = self._write_count
        try:
            if count % self._CHECKPOINT_EVERY_N_WRITES == 0:
                self._try_wal_checkpoint()
        except Exception as error:
            # The write is stored; nothing that comes after it may say otherwise.
            logger().warning("upkeep after a write failed: %s", error)

    def _try_wal_checkpoint(self) -> None:
        """Merges the log into the file as far as that makes nobody wait; a server sees to that by itself."""
        try:
            self._native.checkpoint()
        except Exception as error:
            logger().warning("WAL checkpoint (PASSIVE) failed: %s", error)

    # Sessions

    def create_session(
        self,
        session_id: str,
        source: str,
        *,
        model: str | None = None,
        model_config: Mapping[str, Any] | None = None,
        system_prompt: str | None = None,
        user_id: str | None = None,
        session_key: str | None = None,
        chat_id: str | None = None,
        chat_type: str | None = None,
        thread_id: str | None = None,
        parent_session_id: str | None = None,
        cwd: str | None = None,
        profile_name: str | None = None,
        git_repo_root: str | None = None,
    ) -> str:
        """Creates a session, or fills what an existing one leaves open; returns the id."""
        self._execute_write(
            self._native.create_session(
                session_id,
                source,
                model,
                model_config,
                system_prompt,
                user_id,
                session_key,
                chat_id,
                chat_type,
                thread_id,
                parent_session_id,
                cwd,
                profile_name,
                git_repo_root,
            )
        )
        return session_id

    def ensure_session(self, session_id: str, source: str = "unknown", model: str | None = None, **kwargs: Any) -> str:
        """Creates the session if it is missing."""
        return self.create_session(session_id, source, model=model, **kwargs)

    def end_session(self, session_id: str, end_reason: str | None) -> None:
        """Ends a live session; the first end and its reason stay."""
        self._execute_write(self._native.end_session(session_id, end_reason))

    def reopen_session(self, session_id: str) -> None:
        """Makes a session live again."""
        self._execute_write(self._native.reopen_session(session_id))

    def get_session(self, session_id: str | None) -> dict[str, Any] | None:
        """The session's row, or ``None``."""
        return self._native.session(session_id)

    def session_count(
        self,
        source: str | None = None,
        cwd_prefix: str | None = None,
        min_message_count: int = 0,
        include_archived: bool = False,
        archived_only: bool = False,
        exclude_children: bool = False,
        exclude_sources: Iterable[str | None] | None = None,
    ) -> int:
        """How many sessions there are; with ``exclude_children`` as many as a listing pages through."""
        return self._native.session_count(
            source, cwd_prefix, min_message_count, include_archived, archived_only, exclude_children, exclude_sources
        )

    def list_sessions_rich(
        self,
        source: str | None = None,
        exclude_sources: Iterable[str | None] | None = None,
        cwd_prefix: str | None = None,
        limit: int = 20,
        offset: int = 0,
        include_children: bool = False,
        min_message_count: int = 0,
        project_compression_tips: bool = True,
        order_by_last_active: bool = False,
        include_archived: bool = False,
        archived_only: bool = False,
        id_query: str | None = None,
        search_query: str | None = None,
        compact_rows: bool = False,
    ) -> list[dict[str, Any]]:
        """Sessions with their last activity and a preview, newest first."""
        return self._native.list_sessions(
            source,
            exclude_sources,
            cwd_prefix,
            limit,
            offset,
            include_children,
            min_message_count,
            project_compression_tips,
            order_by_last_active,
            include_archived,
            archived_only,
            id_query,
            search_query,
            compact_rows,
        )

    @staticmethod
    def sanitize_title(title: str | None) -> str | None:
        """The title as it would be stored; ``None`` if nothing of it is left."""
        return _native.sanitize_title(title)

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """Gives the session a title; returns whether it exists."""
        return bool(self._execute_write(self._native.set_session_title(session_id, title)))

    def get_session_title(self, session_id: str) -> str | None:
        """The session's title, or ``None``."""
        return self._native.session_title(session_id)

    # Messages

    def append_message(
        self,
        session_id: str,
        role: str,
        content: Any = None,
        tool_name: str | None = None,
        tool_calls: Any = None,
        tool_call_id: str | None = None,
        token_count: int | None = None,
        finish_reason: str | None = None,
        reasoning: str | None = None,
        reasoning_content: str | None = None,
        reasoning_details: Any = None,
        codex_reasoning_items: Any = None,
        codex_message_items: Any = None,
        platform_message_id: str | None = None,
        observed: bool = False,
        effect_disposition: str | None = None,
        timestamp: Any = None,
        api_content: str | None = None,
    ) -> int:
        """Appends a message; returns its id once it is durable."""
        message_id: int = self._execute_write(
            self._native.append_message(
                session_id,
                role,
                content,
                tool_name,
                tool_calls,
                tool_call_id,
                token_count,
                finish_reason,
                reasoning,
                reasoning_content,
                reasoning_details,
                codex_reasoning_items,
                codex_message_items,
                platform_message_id,
                observed,
                effect_disposition,
                timestamp,
                api_content,
            )
        )
        return message_id

    def append_messages(self, session_id: str, messages: Iterable[Mapping[str, Any]]) -> list[int]:
        """Appends messages, each a mapping with the keywords of ``append_message``, all or none; returns their ids."""
        ids: list[int] = self._execute_write(self._native.append_messages(session_id, messages))
        return ids

    def get_messages(
        self,
        session_id: str | None,
        include_inactive: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[dict[str, Any]]:
        """The session's messages with all their columns, in the order in which they were stored."""
        return self._native.messages(session_id, include_inactive, limit, offset)

    def get_messages_as_conversation(
        self,
        session_id: str | None,
        include_ancestors: bool = False,
        include_inactive: bool = False,
        repair_alternation: bool = False,
    ) -> list[dict[str, Any]]:
        """The session as it is told to a model: each message with what it has to say."""
        return self._native.conversation(session_id, include_ancestors, include_inactive, repair_alternation)

    def search_messages(
        self,
        query: str | None,
        source_filter: Iterable[str] | None = None,
        exclude_sources: Iterable[str] | None = None,
        role_filter: Iterable[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        sort: str | None = None,
        include_inactive: bool = False,
    ) -> SearchResults:
        """The messages that match, the best first, or by time with ``sort`` as ``newest`` or ``oldest``."""
        started = time.monotonic()
        rows: int | str = "err"
        try:
            hits, degraded, partial = self._native.search(
                query, source_filter, exclude_sources, role_filter, limit, offset, sort, include_inactive
            )
            rows = len(hits)
            return SearchResults(hits, degraded, partial)
        finally:
            log_if_slow(self._native, query, time.monotonic() - started, rows)

    def message_count(self, session_id: str | None = None) -> int:
        """How many messages are stored, in any state, for one session or for all."""
        return self._native.message_count(session_id)

    @staticmethod
    def _encode_content(content: Any) -> Any:
        return _native.encode_content(content)

    @staticmethod
    def _decode_content(content: Any) -> Any:
        return _native.decode_content(content)

    # Keys and values

    def get_meta(self, key: str) -> Any:
        """The value of a key, or ``None``."""
        return self._native.meta(key)

    def set_meta(self, key: str, value: Any, *, cursor: Any = None) -> None:
        """Sets a key; on a cursor of the caller it is a statement in the caller's transaction."""
        if cursor is None:
            self._execute_write(self._native.set_meta(key, value))
        else:
            cursor.execute(
                "INSERT INTO state_meta (key, value) VALUES (?, ?)"
                " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (key, value),
            )

    # Helpers that are called on the class

    @staticmethod
    def _parse_schema_columns(schema_sql: str) -> dict[str, dict[str, str]]:
        return _native.parse_schema_columns(schema_sql)

    _is_fts5_unavailable_error: Callable[[BaseException], bool] = staticmethod(_trouble.is_fts5_unavailable_error)
    _is_trigram_unavailable_error: Callable[[BaseException], bool] = staticmethod(_trouble.is_trigram_unavailable_error)
    _is_fts_write_corruption_error: Callable[[BaseException], bool] = staticmethod(
        _trouble.is_fts_write_corruption_error
    )
