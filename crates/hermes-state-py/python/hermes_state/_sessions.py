"""Sessions: their life, what is known about them, finding them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from hermes_state import _lineage, _native
from hermes_state._log import logger
from hermes_state._store import Store

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Sessions(Store):
    """The operations on sessions."""

    _SESSION_COMPACT_EXCLUDED = _native.COMPACT_EXCLUDED

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

    def promote_to_session_reset(self, session_id: str, reason: str = "session_reset") -> bool:
        """Ends a live session as a reset, or gives one that ended by accident that end instead.

        Returns whether it did. Never raises: what goes wrong is logged, and the answer is ``False``.
        """
        if not session_id:
            return False
        try:
            return bool(self._execute_write(self._native.promote_to_session_reset(session_id, reason)))
        except Exception as error:
            logger().warning("the end of session %r was left as it is: %s", session_id, error)
            return False

    def set_expiry_finalized(self, session_id: str, finalized: bool = True) -> None:
        """Notes whether the gateway has finished its expiry handling of the session."""
        if session_id:
            self._execute_write(self._native.set_expiry_finalized(session_id, bool(finalized)))

    def set_session_archived(self, session_id: str, archived: bool) -> bool:
        """Archives the session, or takes it out again, with all of its conversation; returns whether it exists.

        Its conversation is what it was compressed from and into; marked branches and delegates are not part of it.
        """
        return bool(self._execute_write(self._native.set_session_archived(session_id, bool(archived))))

    # What is known about them

    def update_session_cwd(
        self, session_id: str, cwd: str, git_branch: str | None = None, git_repo_root: str | None = None
    ) -> None:
        """Notes where the session works; a blank branch or repository leaves the known one."""
        if session_id and cwd:
            self._execute_write(self._native.update_session_cwd(session_id, cwd, git_branch, git_repo_root))

    def backfill_repo_roots(self, cwd_to_root: Mapping[str, str]) -> None:
        """Notes repositories by folder, for the sessions that work in just that folder and have none."""
        pairs = [(cwd, root) for cwd, root in cwd_to_root.items() if cwd and root]
        if pairs:
            self._execute_write(self._native.backfill_repo_roots(pairs))

    def update_session_meta(self, session_id: str, model_config_json: str | None, model: str | None = None) -> None:
        """Replaces the configuration by a text that is not looked into, and the model unless it is ``None``."""
        self._execute_write(self._native.update_session_meta(session_id, model_config_json, model))

    def update_system_prompt(self, session_id: str, system_prompt: str | None) -> None:
        """Replaces the system prompt; ``None`` takes it away."""
        self._execute_write(self._native.update_system_prompt(session_id, system_prompt))

    def update_session_model(self, session_id: str, model: str | None) -> None:
        """Replaces the model and nothing else; ``None`` takes it away."""
        self._execute_write(self._native.update_session_model(session_id, model))

    # Finding one

    def get_session(self, session_id: str | None) -> dict[str, Any] | None:
        """The session's row, or ``None``."""
        return self._native.session(session_id)

    def _get_session_rich_row(self, session_id: str, compact_rows: bool = False) -> dict[str, Any] | None:
        return self._native.rich_session(session_id, bool(compact_rows))

    def resolve_session_id(self, session_id_or_prefix: str) -> str | None:
        """The id that is this text or, if none is, the only one that begins with it; ``None`` if none or several do."""
        return self._native.resolve_session_id(session_id_or_prefix)

    def get_compression_tip(self, session_id: str) -> str:
        """The session that now goes on with a compressed one's conversation; itself if nothing does."""
        tip: str = self._native.compression_tip(session_id)
        return tip

    def distinct_session_cwds(self, include_archived: bool = False) -> list[dict[str, Any]]:
        """The folders that sessions work in: ``cwd``, ``sessions`` (how many) and ``last_active``.

        ``last_active`` is when the latest of them ended, or began if it has not, in seconds since the epoch.
        """
        return self._native.working_folders(bool(include_archived))

    @staticmethod
    def _is_compression_ancestor(conn: sqlite3.Connection, *, ancestor_id: str, descendant_id: str) -> bool:
        return _lineage.is_compression_ancestor(conn, ancestor_id, descendant_id)
