"""Telegram topics: chats whose threads are bound to a session each.

A file has the tables for this only once topic mode was enabled, a topic bound, or the migration asked for; until then
nothing is enabled and nothing bound.
"""

from __future__ import annotations

from hermes_state._store import Store

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Topics(Store):
    """The operations on Telegram topics. Ids may be numbers; they are kept as their texts."""

    def apply_telegram_topic_migration(self) -> None:
        """Makes the tables of topics, or brings those of an older release to their present shape, at once."""
        self._execute_write(self._native.apply_telegram_topic_migration())

    def enable_telegram_topic_mode(
        self,
        *,
        chat_id: str,
        user_id: str,
        has_topics_enabled: bool | None = None,
        allows_users_to_create_topics: bool | None = None,
    ) -> None:
        """Switches topic mode on for a chat, and notes what is known of it now; ``None`` is unknown."""
        self._execute_write(
            self._native.enable_telegram_topic_mode(
                str(chat_id), str(user_id), has_topics_enabled, allows_users_to_create_topics
            )
        )

    def disable_telegram_topic_mode(self, *, chat_id: str, clear_bindings: bool = True) -> None:
        """Switches topic mode off for a chat that has it, and removes the chat's bindings unless told not to."""
        self._execute_write(self._native.disable_telegram_topic_mode(str(chat_id), clear_bindings))

    def is_telegram_topic_mode_enabled(self, *, chat_id: str, user_id: str) -> bool:
        """Whether the chat of this user is in topic mode."""
        return self._native.is_telegram_topic_mode_enabled(str(chat_id), str(user_id))

    def get_telegram_topic_binding(self, *, chat_id: str, thread_id: str) -> dict[str, Any] | None:
        """The binding of a topic: a mapping of its eight columns, times in seconds; or ``None``."""
        return self._native.telegram_topic_binding(str(chat_id), str(thread_id))

    def list_telegram_topic_bindings_for_chat(self, *, chat_id: str) -> list[dict[str, Any]]:
        """The bindings of a chat, the one that was changed last first."""
        return self._native.telegram_topic_bindings_for_chat(str(chat_id))

    def get_telegram_topic_binding_by_session(self, *, session_id: str) -> dict[str, Any] | None:
        """The binding of a session, or ``None``."""
        return self._native.telegram_topic_binding_by_session(str(session_id))

    def bind_telegram_topic(
        self,
        *,
        chat_id: str,
        thread_id: str,
        user_id: str,
        session_key: str,
        session_id: str,
        managed_mode: str = "auto",
    ) -> None:
        """Binds a topic to a session; one that was bound to another session is repointed.

        Raises ``ValueError`` if the session is bound to another topic, ``sqlite3.IntegrityError`` if there is none.
        """
        self._execute_write(
            self._native.bind_telegram_topic(
                str(chat_id), str(thread_id), str(user_id), session_key, str(session_id), managed_mode
            )
        )

    def delete_telegram_topic_binding(self, *, chat_id: str, thread_id: str) -> int:
        """Removes the binding of a topic; with the chat's last one its mode goes off. Returns how many: 0 or 1."""
        return int(self._execute_write(self._native.delete_telegram_topic_binding(str(chat_id), str(thread_id))))

    def is_telegram_session_linked_to_topic(self, *, session_id: str) -> bool:
        """Whether the session is bound to a topic."""
        return self._native.is_telegram_session_linked_to_topic(str(session_id))

    def list_unlinked_telegram_sessions_for_user(
        self, *, chat_id: str, user_id: str, limit: int = 10
    ) -> list[dict[str, Any]]:
        """The user's Telegram sessions that no topic of any chat is bound to, most active first, at most ``limit``
        (negative: all): rows with ``last_active`` (seconds) and ``preview``. ``chat_id`` plays no part.
        """
        return self._native.unlinked_telegram_sessions(str(user_id), int(limit))
