"""Messages: storing them and reading them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hermes_state import _native
from hermes_state._store import Store

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from typing import Any

_INSERT = (
    "INSERT INTO messages (session_id, role, content, tool_call_id, tool_calls, tool_name, effect_disposition,"
    " timestamp, token_count, finish_reason, reasoning, reasoning_content, reasoning_details, codex_reasoning_items,"
    " codex_message_items, platform_message_id, observed, api_content, active)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)"
)


class Messages(Store):
    """The operations on messages."""

    _CONTENT_JSON_PREFIX = _native.CONTENT_JSON_PREFIX

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
        *,
        client_key: str | None = None,
    ) -> int | _native.Spooled:
        """Appends a message; returns its id once it is durable.

        Where the store was opened with ``spool=True`` and cannot take it for now: a ``Spooled``.

        With a ``client_key``, text of 1 to 255 characters, the message is stored once in its session, however often and
        by whichever process it is appended: the same id comes back. ``ClientKeyConflict`` if the key is that of a
        message that differs in more than its time and ``api_content``.
        """
        message_id: int | _native.Spooled = self._execute_write(
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
                client_key,
            )
        )
        return message_id

    def append_messages(self, session_id: str, messages: Iterable[Mapping[str, Any]]) -> list[int] | _native.Spooled:
        """Appends messages, each a mapping with the keywords of ``append_message``, all or none; returns their ids.

        Those whose ``client_key`` the session has already are not stored again; their ids come back all the same.
        Where the store was opened with ``spool=True`` and cannot take them for now: one ``Spooled``.
        """
        ids: list[int] | _native.Spooled = self._execute_write(self._native.append_messages(session_id, messages))
        return ids

    def replace_messages(
        self, session_id: str, messages: Iterable[Mapping[str, Any]], active_only: bool = False
    ) -> None:
        """Puts these messages in the place of the session's: of all, or of the active ones. They get new ids.

        Keys of a message: those of ``append_message`` and ``message_id``; others are ignored. ``IntegrityError`` for a
        role that is ``None``, or a session that does not exist.
        """
        self._execute_write(self._native.replace_messages(session_id, messages, active_only))

    def archive_and_compact(self, session_id: str, compacted_messages: Iterable[Mapping[str, Any]]) -> int:
        """Archives the session's active messages and puts these in their place; returns how many these are.

        Messages are given as to ``replace_messages``. Search still finds the archived ones. Those that are kept come
        again; ``distinct_message_count`` tells them by role, content, calls and time. One without a time, and with none
        behind it that has one, gets that of the message it repeats.
        """
        count: int = self._execute_write(self._native.archive_and_compact(session_id, compacted_messages))
        return count

    def clear_messages(self, session_id: str) -> None:
        """Removes all messages of the session."""
        self._execute_write(self._native.clear_messages(session_id))

    def has_archived_messages(self, session_id: str | None) -> bool:
        """Whether the session has messages that are not active: archived by compaction, or rewound."""
        return self._native.has_archived_messages(session_id)

    def set_latest_user_api_content(self, session_id: str, content: Any, api_content: str | None) -> int:
        """Notes what was sent to the model for the newest active user message, if it has this content; 1 if it has."""
        changed: int = self._execute_write(self._native.set_latest_user_api_content(session_id, content, api_content))
        return changed

    def rewind_to_message(self, session_id: str, target_message_id: int) -> dict[str, Any]:
        """Takes a user message and all that followed it out of the conversation; they stay stored.

        Returns ``rewound_count``, ``target_message`` (as it was before, its ``tool_calls`` as JSON text) and
        ``new_head_id`` (the last active id, or ``None``). ``ValueError`` if the message is not one of the session,
        or not one of the user.
        """
        rewound: dict[str, Any] = self._execute_write(self._native.rewind_to_message(session_id, target_message_id))
        return rewound

    def restore_rewound(self, session_id: str, since_message_id: int) -> int:
        """Puts the rewound messages from this id on back into the conversation; returns how many."""
        count: int = self._execute_write(self._native.restore_rewound(session_id, since_message_id))
        return count

    def get_messages(
        self,
        session_id: str | None,
        include_inactive: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[dict[str, Any]]:
        """The session's messages with all their columns, in the order in which they were stored."""
        return self._native.messages(session_id, include_inactive, limit, offset)

    def get_recent_messages(self, session_id: str | None, limit: int | None = 500) -> list[dict[str, Any]]:
        """The newest active messages of the session as ``get_messages`` gives them, oldest first; ``None``: all."""
        return self._native.recent_messages(session_id, limit)

    def get_messages_around(self, session_id: str | None, around_message_id: int, window: int = 5) -> dict[str, Any]:
        """A message of the session with up to ``window`` others on either side, rewound ones left out.

        Returns ``window`` (rows as of ``get_messages``), ``messages_before`` and ``messages_after`` (how many of them).
        """
        return self._native.messages_around(session_id, around_message_id, window)

    def get_anchored_view(
        self,
        session_id: str | None,
        around_message_id: int,
        window: int = 5,
        bookend: int = 3,
        keep_roles: Iterable[str] | None = ("user", "assistant"),
    ) -> dict[str, Any]:
        """What ``get_messages_around`` gives, of these roles (``None``: all), and how the session begins and ends.

        ``bookend_start`` and ``bookend_end`` are up to ``bookend`` messages with content before and behind the window.
        """
        return self._native.anchored_view(session_id, around_message_id, window, bookend, keep_roles)

    def list_recent_user_messages(
        self, session_id: str | None, limit: int = 20, include_inactive: bool = False
    ) -> list[dict[str, Any]]:
        """The newest user messages, newest first: ``id``, ``timestamp`` and ``preview``, a line of up to 80 characters.

        A negative ``limit`` means all.
        """
        return self._native.recent_user_messages(session_id, int(limit), include_inactive)

    def message_count(self, session_id: str | None = None) -> int:
        """How many messages are stored, in any state, for one session or for all."""
        return self._native.message_count(session_id)

    def distinct_message_count(self, session_id: str | None) -> int:
        """How many different messages the session has had: what compactions kept, and so stored again, counts once."""
        return self._native.distinct_message_count(session_id)

    def has_platform_message_id(self, session_id: str | None, platform_message_id: str | None) -> bool:
        """Whether the session has a message with this id of the chat platform, in any state."""
        return self._native.has_platform_message_id(session_id, platform_message_id)

    def _insert_message_rows(
        self, conn: sqlite3.Connection, session_id: str, messages: Iterable[Mapping[str, Any]]
    ) -> tuple[int, int]:
        # Within the caller's transaction; counters of the session are the caller's, too.
        rows, tool_calls = _native.batch_rows(messages)
        conn.executemany(_INSERT, ((session_id, *row) for row in rows))
        return len(rows), tool_calls

    @staticmethod
    def _encode_content(content: Any) -> Any:
        return _native.encode_content(content)

    @staticmethod
    def _decode_content(content: Any) -> Any:
        return _native.decode_content(content)
