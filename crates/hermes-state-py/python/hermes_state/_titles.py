"""Titles: giving them, finding by them, numbering them."""

from __future__ import annotations

from hermes_state import _native
from hermes_state._store import Store

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Titles(Store):
    """The operations on titles."""

    MAX_TITLE_LENGTH = _native.MAX_TITLE_LENGTH

    @staticmethod
    def sanitize_title(title: str | None) -> str | None:
        """The title as it would be stored; ``None`` if nothing of it is left. ``ValueError`` if it is too long."""
        return _native.sanitize_title(title)

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """Gives the session a title, or takes it away; returns whether the session exists.

        ``ValueError`` if the title is too long, or if a session has it whose conversation this one does not continue.
        """
        return bool(self._execute_write(self._native.set_session_title(session_id, title)))

    def set_auto_title_if_empty(self, session_id: str, title: str | None) -> bool:
        """Gives a session without a title one that nobody asked for, numbered if it is taken.

        Returns whether the session exists and had none. ``ValueError`` if the title is too long.
        """
        return bool(self._execute_write(self._native.set_auto_title_if_empty(session_id, title)))

    def get_session_title(self, session_id: str) -> str | None:
        """The session's title, or ``None``."""
        return self._native.session_title(session_id)

    def get_session_by_title(self, title: str | None) -> dict[str, Any] | None:
        """The row of the session with exactly this title, or ``None``."""
        return self._native.session_by_title(title)

    def resolve_session_by_title(self, title: str) -> str | None:
        """The id of the session that began last among those with this title, numbered or not; or ``None``."""
        return self._native.resolve_session_by_title(title)

    def get_next_title_in_lineage(self, base_title: str) -> str:
        """The title after those in use with the same base: the base itself if none is, else with the next number."""
        return self._native.next_title_in_lineage(base_title)
