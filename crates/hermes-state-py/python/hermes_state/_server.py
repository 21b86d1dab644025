"""A store on a server instead of in a file: how the environment names it, and what it has no connection for."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from hermes_state import _native

# SQLITE_CANTOPEN, as every location that does not lead to a store.
_CANNOT_OPEN = 14


def location(db_path: str | os.PathLike[str] | None, default: str | os.PathLike[str]) -> Path | str:
    """Where the store is: as given, else by HERMES_STATE_URL, else the default. Text stands for a URL."""
    named = db_path or _from_environment() or default
    # A path of Python's would take one of the URL's slashes away.
    return named if isinstance(named, str) and _native.is_url(named) else Path(named)


def _from_environment() -> str | None:
    """The URL that the environment names. What is none is not shown, as it may hold a password."""
    url = os.environ.get("HERMES_STATE_URL", "").strip()
    if url and not _native.is_url(url):
        error = sqlite3.OperationalError(
            "unable to open the store: what HERMES_STATE_URL holds is not the URL of a server; write"
            " postgresql://user@host:port/database?schema=name there, and give a file as db_path"
        )
        error.sqlite_errorcode, error.sqlite_errorname = _CANNOT_OPEN, "SQLITE_CANTOPEN"
        raise error
    return url or None


def password(location: Path | str) -> str | None:
    """What PGPASSWORD holds, for a server whose URL has no password."""
    return os.environ.get("PGPASSWORD") or None if isinstance(location, str) else None


def no_raw_sql(url: str) -> sqlite3.ProgrammingError:
    """The error for raw SQL on a store that Python's ``sqlite3`` cannot reach."""
    return sqlite3.ProgrammingError(
        f"_conn and raw SQL need a store in a file, and this one is on a server ({url}): use the methods of SessionDB,"
        " or a PostgreSQL driver of your own on the same schema"
    )
