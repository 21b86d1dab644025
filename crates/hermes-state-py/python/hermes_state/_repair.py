"""Files that are damaged: whether one is, and its repair, which also begins by itself when one is opened."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from pathlib import Path

import hermes_state as module
from hermes_state import _native
from hermes_state._log import logger

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_attempts_lock = threading.Lock()


class RepairReport(dict):  # type: ignore[type-arg]
    """What a repair came to, a dictionary with four keys: ``repaired``, ``strategy``, ``backup_path`` and ``error``.

    ``tables`` lists the tables of the repaired file, each as a dictionary: ``name``, ``before`` (the rows
    that it had, if they could be counted), ``rows`` that it has, ``lost``
    ones that an index still names, ``mended`` ones with bytes that were no text, ``made`` ones that others refer to,
    and whether more may be lost (``incomplete``). ``notes`` says what was wrong.
    """

    def __init__(self, strategy: str | None, backup_path: str | None, error: str | None) -> None:
        super().__init__(repaired=strategy is not None, strategy=strategy, backup_path=backup_path, error=error)
        self.tables: list[dict[str, Any]] = []
        self.notes: list[str] = []


def _db_opens_cleanly(db_path: str | os.PathLike[str]) -> str | None:
    """Why the store cannot be read, searched or written; ``None`` if it can, or if that is only for now not possible.

    Writing is tried and undone. What cannot be opened at all, such as a folder, raises.
    """
    if isinstance(db_path, str) and _native.is_url(db_path):
        try:
            with module.SessionDB(db_path, read_only=True) as db:
                db.status()
        except sqlite3.Error as error:
            return str(error)
        return None
    path = Path(db_path)
    if not path.exists():
        return f"{path} does not exist"
    try:
        return _native.file_ailment(path)
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        return str(error)


def repair_state_db_schema(db_path: str | os.PathLike[str], *, backup: bool = True) -> RepairReport:
    """Repairs a damaged file on a copy, which takes its place only when it is well and nobody has the file open.

    The damaged file stays beside it as ``<name>.malformed-backup-<time>``, unless ``backup`` is false and no row was
    lost. If nothing helps it stays where and as it was. Does not raise for what it finds; ``error`` says it.
    """
    if not (isinstance(db_path, str) and _native.is_url(db_path)) and not Path(db_path).exists():
        return RepairReport(None, None, f"{Path(db_path)} does not exist")
    stamp = time.strftime("%Y%m%d_%H%M%S")
    try:
        strategy, backup_path, tables, notes = _native.repair_file(db_path, backup, stamp)
    except (sqlite3.Error, OSError, ValueError) as error:
        logger().error("%s was not repaired and is as it was: %s", db_path, error)
        return RepairReport(None, None, str(error))
    report = RepairReport(strategy, backup_path, None)
    report.tables, report.notes = tables, notes
    if strategy != "already_healthy":
        counts = ", ".join(f"{table['name']} {table['rows']} (lost {table['lost']})" for table in tables)
        logger().warning(
            "repaired %s by %s: %s; the damaged file is %s", db_path, strategy, counts, backup_path or "gone"
        )
    return report


def repair_at_opening(path: Path, error: sqlite3.DatabaseError) -> bool:
    """Repairs the file whose opening failed, once in the life of this process; whether opening it again makes sense."""
    text = str(error).lower()
    # A damaged search index may show as a table that cannot be loaded.
    if not module.is_malformed_db_error(error) and "vtable constructor failed: messages_fts" not in text:
        return False
    with _attempts_lock:
        if str(path) in module._repair_attempted_paths:
            return False
        module._repair_attempted_paths.add(str(path))
    logger().error("%s is damaged (%s); repairing it", path, error)
    return bool(module.repair_state_db_schema(path)["repaired"])
