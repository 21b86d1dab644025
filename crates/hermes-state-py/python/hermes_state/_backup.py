"""Backups of a store that is in use, and restoring one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import hermes_state as module
from hermes_state import _native
from hermes_state._log import logger
from hermes_state._store import Store

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


class Backup(Store):
    """Copying the whole store."""

    def backup(
        self,
        path: str | os.PathLike[str],
        *,
        full: bool = False,
        always_copy: bool = False,
        progress_cb: Callable[[dict[str, Any]], object] | None = None,
    ) -> dict[str, Any]:
        """Copies the store into the file ``path`` as it is at one moment, while others write; nobody waits for it.

        The copy is checked (``full``: every index too) and takes its name in one step; an earlier backup stays whole
        until then. If that holds the same rows, nothing is written, unless ``always_copy`` is true. The backup is a
        store. ``progress_cb`` gets ``{"phase", "done", "total"}``, the phase being ``comparing``, ``copying`` or
        ``verifying``; what it raises ends the work.

        Returns ``backup`` (its path), ``copied``, ``bytes``, ``sessions``, ``messages`` and ``problems`` (of indexes
        that came along damaged). ``ValueError`` for a path that is something else, and for a store on a server;
        ``sqlite3.OperationalError`` without room, or while the backup is open elsewhere; ``sqlite3.DatabaseError`` if
        messages cannot be read.
        """
        return self._native.backup(path, bool(full), bool(always_copy), progress_cb)


def restore_state_db(
    backup: str | os.PathLike[str],
    db_path: str | os.PathLike[str] | None = None,
    *,
    full: bool = False,
    progress_cb: Callable[[dict[str, Any]], object] | None = None,
) -> dict[str, Any]:
    """Makes ``backup`` the store at ``db_path`` (``DEFAULT_DB_PATH`` without one), and keeps the file that was there.

    The backup is copied and checked first; the store is replaced in one step, when nobody has it open, this process
    included. Returns ``store``, ``backup``, ``kept`` (where the old file is, or ``None``), ``kept_log`` (where its log
    is, if it could not be merged), ``bytes``, ``sessions``, ``messages``, ``problems``.

    ``sqlite3.OperationalError`` names who has the store open, or says that there is no room, no such file, or a backup
    of a newer release; ``sqlite3.DatabaseError`` for a damaged backup; ``ValueError`` for what is no store, and for a
    store on a server. Nothing is changed then.
    """
    target = module.DEFAULT_DB_PATH if db_path is None else db_path
    report = _native.restore_file(backup, target, bool(full), time.strftime("%Y%m%d_%H%M%S"), progress_cb)
    kept = report["kept"]
    logger().warning("restored %s from %s; what was there is %s", report["store"], Path(backup), kept or "nothing")
    return report
