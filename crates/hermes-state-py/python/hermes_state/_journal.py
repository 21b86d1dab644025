"""The journal mode of a connection that its owner opened with Python's ``sqlite3``."""

from __future__ import annotations

import sqlite3
import sys

import hermes_state as module
from hermes_state._log import logger

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def apply_wal_with_fallback(conn: Any, *, db_label: str = "state.db") -> str:
    """Puts the connection's file into WAL mode, or into ``DELETE`` where its file system does not allow that.

    A file that is in WAL mode is only asked: setting the mode could take the sidecars from under others.
    """
    try:
        if _mode(conn) == "wal":
            return _in_wal(conn)
    except sqlite3.OperationalError:
        pass
    try:
        conn.execute("PRAGMA journal_mode=WAL")
        return _in_wal(conn)
    except sqlite3.OperationalError as error:
        text = str(error).lower()
        if not any(marker in text for marker in module._WAL_INCOMPAT_MARKERS) or _is_in_wal(conn):
            raise
        if db_label not in module._wal_fallback_warned_paths:
            module._wal_fallback_warned_paths.add(db_label)
            logger().warning("%s: WAL is not possible here (%s), using journal_mode=DELETE", db_label, error)
        conn.execute("PRAGMA journal_mode=DELETE")
        return "delete"


def _mode(conn: Any) -> Any:
    row = conn.execute("PRAGMA journal_mode").fetchone()
    return row[0] if row else None


def _is_in_wal(conn: Any) -> bool:
    try:
        return bool(_mode(conn) == "wal")
    except sqlite3.OperationalError:
        return False


def _in_wal(conn: Any) -> str:
    if sys.platform == "darwin":
        try:
            conn.execute("PRAGMA checkpoint_fullfsync=1")
            conn.execute("PRAGMA synchronous=FULL")
        except sqlite3.OperationalError:
            pass
    return "wal"
