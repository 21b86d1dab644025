"""Leases on compressing a session that die with their owner, and storing under them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping

from hermes_state._native import Lease
from hermes_state._store import Store

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The keywords of ``create_session``, as the native one takes them.
_COLUMNS = (
    "model",
    "model_config",
    "system_prompt",
    "user_id",
    "session_key",
    "chat_id",
    "chat_type",
    "thread_id",
    "parent_session_id",
    "cwd",
    "profile_name",
    "git_repo_root",
)


class LeaseLost(sqlite3.IntegrityError):
    """The lease under which something was to be stored is over; nothing was changed.

    ``taken_by`` is who has a lease on the session now, ``newest_fence`` its number; ``lapsed_seconds`` how long ago the
    term ended, if nobody took the lease since. Each is ``None`` where that is not so.
    """

    session_id: str
    holder: str
    fence: int
    taken_by: str | None
    newest_fence: int | None
    lapsed_seconds: float | None


class Leases(Store):
    """Taking leases, and storing under them."""

    def acquire_compression_lease(self, session_id: str, holder: str, ttl_seconds: float = 300.0) -> Lease | None:
        """Takes the lease on compressing a session; ``None`` if another has it.

        As ``try_acquire_compression_lock``, but raises what the store raises. A lease is over with its term, and at
        once when the process that took it has ended, if that was one of this system. ``lease.fence`` is its number
        among those on the session, which only rises.
        """
        if not session_id:
            return None
        lease: Lease | None = self._execute_write(
            self._native.acquire_compression_lease(session_id, holder, ttl_seconds)
        )
        return lease

    def under(self, lease: Lease) -> UnderLease:
        """The methods with which a compression is published; they raise ``LeaseLost`` once the lease is over."""
        if not isinstance(lease, Lease):
            raise TypeError(f"a lease is what acquire_compression_lease returns, not {type(lease).__name__}")
        return UnderLease(self, lease)


class UnderLease:
    """Stores what only the holder of a lease may store. Whether it is on is looked at in the same transaction.

    Each method is that of ``SessionDB`` with its name, and raises ``LeaseLost`` besides; nothing is changed then.
    """

    def __init__(self, db: Leases, lease: Lease) -> None:
        self._db = db
        self._lease = lease

    def archive_and_compact(self, session_id: str, compacted_messages: Iterable[Mapping[str, Any]]) -> int:
        """Archives the session's active messages and puts these in their place; returns how many these are."""
        native = self._db._native
        count: int = self._db._execute_write(native.archive_and_compact(session_id, compacted_messages, self._lease))
        return count

    def replace_messages(
        self, session_id: str, messages: Iterable[Mapping[str, Any]], active_only: bool = False
    ) -> None:
        """Puts these messages in the place of the session's."""
        native = self._db._native
        self._db._execute_write(native.replace_messages(session_id, messages, active_only, self._lease))

    def end_session(self, session_id: str, end_reason: str | None) -> None:
        """Ends the session; the first end and its reason stay."""
        self._db._execute_write(self._db._native.end_session(session_id, end_reason, self._lease))

    def create_session(self, session_id: str, source: str, **columns: Any) -> str:
        """Creates the continuation, with the keywords of ``SessionDB.create_session``; returns its id."""
        unknown = columns.keys() - set(_COLUMNS)
        if unknown:
            raise TypeError(f"create_session() got an unexpected keyword argument {min(unknown)!r}")
        values = [columns.get(name) for name in _COLUMNS]
        native: Any = self._db._native
        self._db._execute_write(native.create_session(session_id, source, *values, self._lease))
        return session_id
