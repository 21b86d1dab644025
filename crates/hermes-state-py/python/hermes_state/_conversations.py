"""Conversations for replay, and how the sessions of one hang together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hermes_state import _native
from hermes_state._sessions import Sessions

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Conversations(Sessions):
    """The operations on conversations and lineages."""

    def get_messages_as_conversation(
        self,
        session_id: str | None,
        include_ancestors: bool = False,
        include_inactive: bool = False,
        repair_alternation: bool = False,
        *,
        max_messages: int | None = None,
    ) -> list[dict[str, Any]]:
        """The session as it is told to a model: each message with what it has to say.

        ``include_ancestors`` adds all sessions it descends from, without user messages that were replayed on the way;
        ``repair_alternation`` merges and removes messages so that the sides alternate; ``max_messages`` leaves only so
        many of the newest, counted as they are stored. Empty for a session that does not exist.
        """
        return self._native.conversation(
            session_id, include_ancestors, include_inactive, repair_alternation, max_messages
        )

    def get_resume_conversations(
        self, session_id: str | None, *, max_messages: int | None = None
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """What a resumed session tells the model and what it shows to people, from one read of its whole lineage.

        The first is the session's own conversation, repaired; the second that with all its ancestors. ``max_messages``
        leaves only so many of the lineage's newest messages.
        """
        return self._native.resume_conversations(session_id, max_messages)

    def get_ancestor_display_prefix(self, session_id: str | None) -> list[dict[str, Any]]:
        """The conversation of all sessions that this one descends from, to be shown before its own."""
        return self._native.ancestor_display_prefix(session_id)

    def get_conversation_root(self, session_id: str) -> str:
        """The id of the session in which the conversation began; the given id if it has no parent or is unknown."""
        return self._session_lineage_root_to_tip(session_id)[0]

    def resolve_resume_session_id(self, session_id: str) -> str:
        """Which session to open when somebody resumes this one.

        That is the last continuation of a compressed conversation, and from there the deepest of its latest children
        that has messages. Unknown ids come back as they are.
        """
        if not session_id:
            return session_id
        try:
            return self._native.resolve_resume_session_id(session_id)
        except UnicodeEncodeError:
            # No store can hold it, so it is unknown.
            return session_id

    def get_compression_lineage(self, session_id: str | None) -> list[str]:
        """The ids of the compressed conversation that the session is part of, from its first session to its last.

        Just the given id if it is a branch or beside the line; empty for a session that does not exist.
        """
        return self._native.compression_lineage(session_id)

    # Helpers that callers of the store share with it

    def _session_lineage_root_to_tip(self, session_id: str) -> list[str]:
        return self._native.session_lineage(session_id) if session_id else [session_id]

    def _rows_to_conversation(
        self, rows: Iterable[Any], *, session_id: str | None, include_ancestors: bool, repair_alternation: bool
    ) -> list[dict[str, Any]]:
        # Whose rows they are makes no difference to what becomes of them.
        del session_id
        return _native.rows_to_conversation(rows, include_ancestors, repair_alternation)

    @staticmethod
    def _is_duplicate_replayed_user_message(messages: list[dict[str, Any]], msg: Mapping[str, Any]) -> bool:
        content = msg.get("content")
        if msg.get("role") != "user" or not isinstance(content, str) or not content:
            return False
        for earlier in reversed(messages):
            if earlier.get("role") == "user" and earlier.get("content") == content:
                return True
            if earlier.get("role") == "assistant" and (earlier.get("content") or earlier.get("tool_calls")):
                return False
        return False

    @staticmethod
    def _is_branch_child_row(session: Mapping[str, Any]) -> bool:
        import json

        config = dict(session).get("model_config")
        if isinstance(config, str):
            try:
                config = json.loads(config)
            except ValueError:
                return False
        return isinstance(config, dict) and config.get("_branched_from") is not None

    def _is_compression_child_row(self, child: Mapping[str, Any]) -> bool:
        parent_id = dict(child).get("parent_session_id")
        if not parent_id or self._is_branch_child_row(child):
            return False
        parent = self.get_session(parent_id)
        return parent is not None and parent["end_reason"] == "compression"
