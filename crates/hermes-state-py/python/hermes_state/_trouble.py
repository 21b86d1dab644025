"""Why the store is unavailable, and what kind of trouble an error is.

The rules go by an error's text, since they serve errors of callers' own connections; the store itself goes by codes.
"""

from __future__ import annotations

import sqlite3
import threading

import hermes_state as module
from hermes_state import _native

_last_init_error: str | None = None
_last_init_error_lock = threading.Lock()


def get_last_init_error() -> str | None:
    """Why the last construction that failed in this process did so; a later success does not clear it."""
    with _last_init_error_lock:
        return _last_init_error


def _set_last_init_error(msg: str | None) -> None:
    global _last_init_error
    with _last_init_error_lock:
        _last_init_error = msg


def format_session_db_unavailable(prefix: str = "Session database not available") -> str:
    """A sentence for people that tells the reason, if it is known."""
    cause = get_last_init_error()
    if not cause:
        return f"{prefix}."
    hint = ""
    if any(marker in cause.lower() for marker in module._WAL_INCOMPAT_MARKERS):
        hint = " (state.db may be on NFS/SMB/FUSE — see https://www.sqlite.org/wal.html)"
    return f"{prefix}: {cause}{hint}."


def is_malformed_db_error(exc: BaseException) -> bool:
    """Whether the error says that the file itself is damaged."""
    text = str(exc).lower()
    return isinstance(exc, sqlite3.DatabaseError) and any(marker in text for marker in module._MALFORMED_SCHEMA_MARKERS)


def is_lock_error(exc: BaseException) -> bool:
    """Whether somebody else holds a lock that was needed."""
    text = str(exc).lower()
    return isinstance(exc, sqlite3.OperationalError) and ("locked" in text or "busy" in text)


def is_trigram_unavailable_error(exc: BaseException) -> bool:
    """Whether one index alone cannot be used, because its tokenizer is not there."""
    text = str(exc).lower()
    return "no such tokenizer: trigram" in text or "no such tokenizer: cjk_unicode61" in text


def is_fts5_unavailable_error(exc: BaseException) -> bool:
    """Whether full-text search, or one of its tokenizers, is not there."""
    text = str(exc).lower()
    return is_trigram_unavailable_error(exc) or ("no such module" in text and "fts5" in text)


def is_fts_write_corruption_error(exc: BaseException) -> bool:
    """Whether a write met a damaged search index."""
    text = str(exc).lower()
    return is_malformed_db_error(exc) or ("fts5" in text and "corrupt" in text)


class PersistenceTrouble(str):
    """The name of a kind of trouble, with one sentence for people."""

    @property
    def sentence(self) -> str:
        """What is the matter and what to do, for the person at the terminal."""
        return _native.trouble_sentences()[self]


def classify_persistence_error(exc: BaseException) -> PersistenceTrouble:
    """What kept something from being stored, so that people can be told.

    One of ``locked``, ``disk``, ``readonly``, ``corrupt``, ``replaced``, ``too_new``, ``descriptors`` and ``unknown``,
    as text that has a ``sentence``. Takes errors of the store, of ``sqlite3``, and of the system.
    """
    return PersistenceTrouble(_kind_of(exc))


def _kind_of(exc: BaseException) -> str:
    known = getattr(exc, "persistence_kind", None)
    if isinstance(known, str) and known in _native.trouble_sentences():
        return known
    code, errno = getattr(exc, "sqlite_errorcode", None), getattr(exc, "errno", None)
    kind = _native.trouble_of_number(
        code if isinstance(code, int) else None,
        errno if isinstance(exc, OSError) and isinstance(errno, int) else None,
    )
    if kind != "unknown" or not isinstance(exc, sqlite3.Error):
        return kind
    # Before Python 3.11 errors of sqlite3 have no code.
    text = str(exc).lower()
    return next((kind for kind, words in _WORDS if any(word in text for word in words)), "unknown")


_WORDS = (
    ("corrupt", ("malformed", "is not a database", "fts5: corrupt", "corrupt structure", "vtable constructor failed")),
    ("locked", ("is locked", "busy", "locking protocol")),
    ("disk", ("disk is full", "disk i/o error")),
    ("readonly", ("readonly database",)),
    ("descriptors", ("too many open files",)),
)
