"""What compressing a conversation keeps: leases, failures, substitutes."""

from __future__ import annotations

import sqlite3

from hermes_state._log import logger
from hermes_state._store import Store

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, SupportsIndex, SupportsInt


class Compression(Store):
    """The operations on that state.

    An agent compresses with or without them, so trouble with the store is logged and told as "not had" where the
    methods say so. A closed store is a mistake of the caller's and raises ``sqlite3.ProgrammingError``.
    """

    def try_acquire_compression_lock(self, session_id: str, holder: str, ttl_seconds: float = 300.0) -> bool:
        """Takes the lease on compressing a session; returns whether ``holder`` has it now.

        A holder that has a live lease keeps it, with the term it had; what is no text holds nothing. ``False`` also
        when the store failed.
        """
        if not session_id or not isinstance(holder, str):
            return False
        return bool(
            self._swallow(
                "try_acquire_compression_lock",
                session_id,
                lambda: self._native.try_acquire_compression_lock(session_id, holder, ttl_seconds),
            )
        )

    def refresh_compression_lock(self, session_id: str, holder: str, ttl_seconds: float = 300.0) -> bool:
        """Gives a live lease of ``holder`` a new term from now; returns whether there was one.

        ``False`` also when the store failed.
        """
        if not session_id or not holder or not isinstance(holder, str):
            return False
        return bool(
            self._swallow(
                "refresh_compression_lock",
                session_id,
                lambda: self._native.refresh_compression_lock(session_id, holder, ttl_seconds),
            )
        )

    def release_compression_lock(self, session_id: str, holder: str) -> None:
        """Ends the lease of ``holder``; that of another stays. A failure of the store is only logged."""
        if session_id and isinstance(holder, str):
            self._swallow(
                "release_compression_lock",
                session_id,
                lambda: self._native.release_compression_lock(session_id, holder),
            )

    def get_compression_lock_holder(self, session_id: str) -> str | None:
        """Who has a live lease on compressing the session."""
        return self._native.compression_lock_holder(session_id) if session_id else None

    def record_compression_failure_cooldown(
        self, session_id: str, cooldown_until: float | None, error: str | None = None
    ) -> None:
        """Notes that compressing the session is not to be tried again before this time, in seconds since the epoch.

        The last call counts. A failure of the store is only logged.
        """
        if session_id:
            self._swallow(
                "record_compression_failure_cooldown",
                session_id,
                lambda: self._native.record_compression_failure_cooldown(session_id, cooldown_until, error),
            )

    def get_compression_failure_cooldown(self, session_id: str) -> dict[str, Any] | None:
        """``cooldown_until``, ``remaining_seconds`` and ``error`` of the session's cooldown; ``None`` if none is on.

        Raises ``ValueError`` where what is stored is no time.
        """
        return self._native.compression_failure_cooldown(session_id) if session_id else None

    def clear_compression_failure_cooldown(self, session_id: str) -> None:
        """Lets compressing the session be tried again. A failure of the store is only logged."""
        if session_id:
            self._swallow(
                "clear_compression_failure_cooldown",
                session_id,
                lambda: self._native.clear_compression_failure_cooldown(session_id),
            )

    def get_compression_fallback_streak(self, session_id: str) -> int:
        """How many compressions in a row had to make do with a substitute for a summary.

        0 also for a session that does not exist, and on a closed store.
        """
        return self._native.compression_fallback_streak(session_id) if session_id else 0

    def set_compression_fallback_streak(
        self, session_id: str, streak: str | bytes | SupportsInt | SupportsIndex
    ) -> None:
        """Sets that number; a negative one counts as 0. ``TypeError`` or ``ValueError`` for what is no integer."""
        if session_id:
            self._execute_write(self._native.set_compression_fallback_streak(session_id, max(0, int(streak))))

    def _swallow(self, method: str, session_id: str, write: Any) -> Any:
        """What the write answers, ``None`` where the store failed."""
        try:
            return self._execute_write(write())
        except sqlite3.ProgrammingError:
            raise
        except sqlite3.Error as error:
            logger().warning("%s of session %s failed: %s", method, session_id, error)
            return None
