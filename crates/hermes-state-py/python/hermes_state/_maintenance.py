"""Upkeep, and looking at a store: who has it open, how large it is, giving space back."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from hermes_state._log import logger
from hermes_state._store import Store

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_LAST_PRUNE = "last_auto_prune"

# From how far ahead a time of the last prune is a fault of a clock, and not of two clocks that differ a little.
_AHEAD_S = 86_400.0


class Maintenance(Store):
    """The operations of upkeep."""

    if TYPE_CHECKING:
        prune_sessions: Callable[..., int]

    # Whether this thread's vacuum is one that nobody asked for, and so must not be felt.
    _upkeep = threading.local()

    def vacuum(self) -> int:
        """Merges the search indexes, then rewrites the file without its free space; returns how many were merged.

        Every writer waits until it is done; ``who()`` tells which. Raises ``sqlite3.OperationalError`` where somebody
        is writing, or there is no room for a second copy; nothing is lost then. On a server, has it vacuum the schema's
        tables, as far as this user may.
        """
        self._native.check_writable()
        try:
            merged = self.optimize_fts()
        except Exception as error:
            logger().warning("merging the search indexes before VACUUM failed: %s", error)
            merged = 0
        self._raw.refuse_inside_transaction()
        if getattr(self._upkeep, "running", False):
            self._native.release_space(self._WRITE_PATIENCE_S)
        else:
            self._native.vacuum()
        return merged

    def maybe_auto_prune_and_vacuum(
        self,
        retention_days: int = 90,
        min_interval_hours: int = 24,
        vacuum: bool = True,
        sessions_dir: Path | None = None,
    ) -> dict[str, Any]:
        """Prunes ended sessions that began more than ``retention_days`` ago, unless that was done a short while ago.

        Returns ``skipped``, ``pruned`` (sessions), ``vacuumed``, and on a failure ``error``; raises nothing. Of several
        processes that come at once one does it. ``vacuum`` gives the space back in small steps and rewrites nothing.
        """

        def prune() -> int:
            return self.prune_sessions(older_than_days=retention_days, sessions_dir=sessions_dir)

        if retention_days is None or retention_days < 0:
            error = f"retention_days is {retention_days!r}, which would delete every ended session"
            logger().warning("the automatic prune failed: %s", error)
            return {"skipped": False, "pruned": 0, "vacuumed": False, "error": error}
        return self._from_time_to_time(min_interval_hours, vacuum, prune)

    def _from_time_to_time(self, min_interval_hours: int, vacuum: bool, prune: Callable[[], int]) -> dict[str, Any]:
        answer: dict[str, Any] = {"skipped": False, "pruned": 0, "vacuumed": False}
        try:
            now = time.time()
            seen = self.get_meta(_LAST_PRUNE)
            claim = str(now)
            if not _is_due(seen, now, min_interval_hours * 3600) or not self._claim(seen, claim):
                answer["skipped"] = True
                return answer
            try:
                answer["pruned"] = prune()
            except BaseException:
                # The next one to come tries again.
                self._claim(claim, seen)
                raise
            if vacuum and answer["pruned"] > 0:
                answer["vacuumed"] = self._vacuum_unfelt()
            if answer["pruned"] > 0:
                logger().info("the automatic prune deleted %s sessions", answer["pruned"])
        except Exception as error:
            logger().warning("the automatic prune failed: %s", error)
            answer["error"] = str(error)
        return answer

    def _claim(self, seen: Any, claim: Any) -> bool:
        return bool(self._execute_write(self._native.replace_meta(_LAST_PRUNE, seen, claim)))

    def _vacuum_unfelt(self) -> bool:
        self._upkeep.running = True
        try:
            self.vacuum()
        except Exception as error:
            logger().warning("giving space back after the automatic prune failed: %s", error)
            return False
        finally:
            self._upkeep.running = False
        return True

    def who(self) -> list[dict[str, Any]]:
        """The processes that have the store open, each as a dictionary.

        ``pid``, ``host`` (``None`` for a file), ``program``, ``since`` (seconds since 1970; ``None`` for processes that
        are not registered, such as older releases), ``takes_turns`` (false for those), ``operation`` (what it writes or
        waits to write), ``waiting_seconds``, ``holds_write_lock``, ``holding_seconds``. On a server, its connections.
        """
        return self._native.who()

    def status(self) -> dict[str, Any]:
        """How the store stands, in plain values.

        ``store``, ``read_only``, ``engine`` (``sqlite`` or ``postgresql``), ``schema_version``, ``sessions``,
        ``messages``, ``open_by`` (as ``who()``); of a file ``main_bytes``, ``wal_bytes``, ``shm_bytes``,
        ``journal_mode``, ``lock_kind``; of a server ``server_version``, ``schema``, ``bytes``, ``encrypted``.
        """
        return self._native.status()


def _is_due(seen: Any, now: float, interval: float) -> bool:
    try:
        last = float(seen)
    except (TypeError, ValueError):
        return True
    return not (now - last < interval and last - now <= max(_AHEAD_S, interval))
