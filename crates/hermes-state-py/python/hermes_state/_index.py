"""Keeping the search indexes in order."""

from __future__ import annotations

import sqlite3

from hermes_state import _trouble
from hermes_state._log import logger
from hermes_state._store import Store

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


class Index(Store):
    """The upkeep of the search indexes. All of it works in short steps, between which others get their turn."""

    _FTS_TABLES = ("messages_fts", "messages_fts_trigram", "messages_fts_cjk")
    _FTS_TRASH_PREFIX = "fts_v22_trash_"

    # At most so many ids of messages a step; a pause is so much longer than the step before it, and at least so long.
    _FTS_REBUILD_CHUNK_ROWS = 500
    _FTS_REBUILD_DUTY_FACTOR = 4.0
    _FTS_REBUILD_MIN_PAUSE = 0.2

    def _pace(self) -> tuple[int, float, float]:
        return self._FTS_REBUILD_CHUNK_ROWS, self._FTS_REBUILD_DUTY_FACTOR, self._FTS_REBUILD_MIN_PAUSE

    # A rebuild that some process has begun

    def fts_rebuild_status(self) -> dict[str, Any] | None:
        """How far a rebuild of the search indexes is, in ids of messages; ``None`` if there is none.

        ``{"pending": True, "total": int, "indexed": int, "percent": int}``. ``ValueError`` for markers that are no
        numbers.
        """
        return _status(self._native.rebuild_status(False))

    def fts_cjk_rebuild_status(self) -> dict[str, Any] | None:
        """The same of the index of Chinese, Japanese and Korean."""
        return _status(self._native.rebuild_status(True))

    def fts_rebuild_step(self) -> bool:
        """Indexes the next ``_FTS_REBUILD_CHUNK_ROWS`` ids of a rebuild; whether there is more to do.

        Processes may do this side by side. ``True`` also when a lock was not to be had; other errors are raised.
        """
        return self._rebuild_step(False)

    def fts_cjk_rebuild_step(self) -> bool:
        """The same of the index of Chinese, Japanese and Korean, where its tokenizer is installed."""
        return self._rebuild_step(True)

    def _rebuild_step(self, cjk: bool) -> bool:
        try:
            return self._native.rebuild_step(cjk, self._FTS_REBUILD_CHUNK_ROWS, self._WRITE_PATIENCE_S)
        except sqlite3.OperationalError as error:
            if not _trouble.is_lock_error(error):
                raise
            logger().warning("a step on the search indexes has to be tried again: %s", error)
            return True

    # Bringing the storage up to date

    def fts_optimize_available(self) -> bool:
        """Whether ``optimize_fts_storage`` has something to do; ``False`` on a read-only instance."""
        return self._native.optimize_available()

    def optimize_fts_storage(
        self, *, progress_cb: Callable[[dict[str, Any]], object] | None = None, vacuum: bool = True
    ) -> dict[str, Any]:
        """Brings an old layout of the search indexes up to date, finishes rebuilds, removes what is left over.

        Takes minutes on a large store, in which everything works; may be ended and called again at any time.
        ``progress_cb`` gets ``{"phase", "percent", "indexed", "total"}``, the phase being ``backfill``, ``teardown``,
        ``vacuum`` or ``done``; what it raises ends the work. Returns ``{"ok": True, "vacuumed": bool | None}``, or
        ``{"ok": False, "reason": "read_only"}`` where nothing can be done.
        """
        if self.read_only:
            return {"ok": False, "reason": "read_only"}
        vacuumed = self._native.optimize_storage(bool(vacuum), self._pace(), self._WRITE_PATIENCE_S, progress_cb)
        return {"ok": True, "vacuumed": vacuumed}

    def _demote_legacy_fts_to_trash(self) -> int:
        """Sets the indexes aside and begins empty ones of the current layout; up to which id they are to be filled."""
        return self._native.demote_legacy(self._WRITE_PATIENCE_S)

    # Rebuilding

    def rebuild_fts(self) -> int:
        """Makes the search indexes anew from the messages, and returns how many. Everything goes on meanwhile."""
        # The caller waits for it, so it rests only as long as it worked.
        return self._native.rebuild_indexes((self._FTS_REBUILD_CHUNK_ROWS, 1.0, 0.0), self._WRITE_PATIENCE_S)

    def _try_runtime_fts_rebuild(self, exc: BaseException) -> bool:
        """Rebuilds the indexes if the error says that one is damaged; whether it did. Writes do without being asked."""
        if not isinstance(exc, sqlite3.DatabaseError) or not self._is_fts_write_corruption_error(exc):
            return False
        if not self._fts_enabled:
            return False
        self._fts_runtime_rebuild_attempted = True
        try:
            return self.rebuild_fts() > 0
        except Exception as error:
            logger().error("the search indexes were not rebuilt: %s", error)
            return False

    def _fts_table_exists(self, name: str) -> bool:
        """Whether the table can be read."""
        try:
            return self._native.has_table(name)
        except sqlite3.DatabaseError:
            return False


def _status(found: tuple[int, int, int] | None) -> dict[str, Any] | None:
    if found is None:
        return None
    total, indexed, percent = found
    return {"pending": True, "total": total, "indexed": indexed, "percent": percent}
