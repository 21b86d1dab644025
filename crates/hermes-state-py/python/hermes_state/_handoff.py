"""Handoffs: a session moves from a local front end to a platform of a gateway."""

from __future__ import annotations

from hermes_state._log import logger
from hermes_state._store import Store

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Handoff(Store):
    """The steps of a handoff. There is no lease: one that runs does so until somebody completes or fails it."""

    def request_handoff(self, session_id: str, platform: str) -> bool:
        """Asks for the session to be taken over; ``False`` if a handoff is under way or there is no such session."""
        return bool(self._execute_write(self._native.request_handoff(session_id, platform)))

    def claim_handoff(self, session_id: str) -> bool:
        """Makes a pending handoff the caller's; ``False`` if it is none, or another one's."""
        return bool(self._execute_write(self._native.claim_handoff(session_id)))

    def complete_handoff(self, session_id: str) -> None:
        """Notes that the handoff is done, whatever its state was."""
        self._execute_write(self._native.complete_handoff(session_id))

    def fail_handoff(self, session_id: str, error: str) -> None:
        """Notes that the handoff has failed, whatever its state was, and the first 500 characters of why."""
        self._execute_write(self._native.fail_handoff(session_id, error))

    def get_handoff_state(self, session_id: str) -> dict[str, Any] | None:
        """``state``, ``platform`` and ``error`` of the session's handoff, all ``None`` if none was ever asked for.

        ``None`` if there is no such session, and also if the read fails, which is logged as a warning.
        """
        try:
            return self._native.handoff_state(session_id)
        except Exception as error:
            logger().warning("reading the handoff of session %r failed: %s", session_id, error)
            return None

    def list_pending_handoffs(self) -> list[dict[str, Any]]:
        """The rows of sessions whose handoff is pending, in the order in which the sessions began.

        None also if the read fails, which is logged as a warning.
        """
        try:
            return self._native.pending_handoffs()
        except Exception as error:
            logger().warning("listing the pending handoffs failed: %s", error)
            return []
