"""Deleting sessions, pruning and archiving what is old, mending what was left behind.

Many sessions go in steps, each whole in itself; after an error, or a kill, the same call does the rest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from hermes_state import _native
from hermes_state._store import Store

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_DAY = 86_400


def _folder(sessions_dir: os.PathLike[str] | None) -> os.PathLike[str] | None:
    if sessions_dir is None or isinstance(sessions_dir, os.PathLike):
        return sessions_dir
    raise TypeError(f"sessions_dir is a path object, not {type(sessions_dir).__name__}")


def _filter(older_than_days: float | None, filters: dict[str, Any]) -> _native.PruneFilter:
    if older_than_days is not None and filters.get("started_before") is None:
        filters["started_before"] = time.time() - older_than_days * _DAY
    return _native.PruneFilter(**filters)


class Deletion(Store):
    """The operations that make sessions go.

    ``sessions_dir`` is a path object: the files of what was deleted are removed from that folder after the commit.
    Plain text raises ``TypeError``, and nothing is deleted.
    """

    def delete_session(self, session_id: str, sessions_dir: os.PathLike[str] | None = None) -> bool:
        """Deletes a session, its messages and all that it delegated; returns whether it was there."""
        return bool(self._execute_write(self._native.delete_session(session_id, _folder(sessions_dir))))

    def delete_sessions(self, session_ids: Iterable[str] | None, sessions_dir: os.PathLike[str] | None = None) -> int:
        """Deletes sessions and all that they delegated; returns how many of those listed were there."""
        write = self._native.delete_sessions(session_ids, _folder(sessions_dir)) if session_ids else None
        return int(self._execute_write(write)) if write is not None else 0

    def delete_session_if_empty(self, session_id: str, sessions_dir: os.PathLike[str] | None = None) -> bool:
        """Deletes a session without title, message (in any state) and child; returns whether it did."""
        return bool(self._execute_write(self._native.delete_session_if_empty(session_id, _folder(sessions_dir))))

    def count_empty_sessions(self) -> int:
        """How many sessions ``delete_empty_sessions`` would delete."""
        return self._native.count_empty_sessions()

    def delete_empty_sessions(self, sessions_dir: os.PathLike[str] | None = None) -> int:
        """Deletes ended, unarchived, untitled sessions without a message in any state; returns how many."""
        return int(self._execute_write(self._native.delete_empty_sessions(_folder(sessions_dir))))

    @staticmethod
    def _remove_session_files(sessions_dir: os.PathLike[str] | None, session_id: str) -> None:
        """Removes a session's transcript and request dumps from a folder; what cannot be removed is passed over."""
        folder = _folder(sessions_dir)
        if folder is not None:
            _native.remove_session_files(folder, str(session_id))

    @staticmethod
    def _prune_filter_where(**filters: Any) -> tuple[str, list[Any]]:
        """The filters as conditions on ``sessions``, for raw SQL on a file, and the values for their ``?``."""
        return _native.PruneFilter(**filters).where_clause()

    def list_prune_candidates(
        self, older_than_days: float | None = None, source: str | None = None, **filters: Any
    ) -> list[dict[str, Any]]:
        """The ended sessions that meet all filters, oldest first.

        Filters: ``started_before``, ``started_after`` (seconds since the epoch), ``end_reason``, ``user_id``,
        ``chat_id``, ``chat_type``, ``provider``, ``title_like``, ``model_like``, ``branch_like``, ``cwd_prefix``, and
        ``min_`` and ``max_`` of ``messages``, ``tokens``, ``cost`` (dollars) and ``tool_calls``; ``archived`` is
        ``True``, ``False`` or ``None`` for both. Another name raises ``TypeError``.
        """
        return self._native.list_prune_candidates(_filter(older_than_days, {"source": source, **filters}))

    def prune_sessions(
        self,
        older_than_days: float | None = 90,
        source: str | None = None,
        sessions_dir: os.PathLike[str] | None = None,
        **filters: Any,
    ) -> int:
        """Deletes the sessions that ``list_prune_candidates`` lists, and all that they delegated; returns how many
        were listed.
        """
        chosen = _filter(older_than_days, {"source": source, **filters})
        return int(self._execute_write(self._native.prune_sessions(chosen, _folder(sessions_dir))))

    def archive_sessions(self, older_than_days: float | None = None, source: str | None = None, **filters: Any) -> int:
        """Archives the listed sessions, each with the conversation that it is part of; returns how many were listed.

        Unless ``archived`` is given, those that are archived already are left out.
        """
        filters.setdefault("archived", False)
        chosen = _filter(older_than_days, {"source": source, **filters})
        return int(self._execute_write(self._native.archive_sessions(chosen)))

    def prune_empty_ghost_sessions(self, sessions_dir: os.PathLike[str] | None = None) -> int:
        """Deletes sessions of terminals that were closed without a word more than a day ago; returns how many."""
        return int(self._execute_write(self._native.prune_empty_ghost_sessions(_folder(sessions_dir))))

    def finalize_orphaned_compression_sessions(self) -> int:
        """Ends continuations that nobody took up within a week; returns how many."""
        return int(self._execute_write(self._native.finalize_orphaned_compression_sessions()))
