"""The way round the store: a connection of Python's own ``sqlite3`` on the same file, for raw SQL.

It stands beside the native core, not under it: the core's lock layer lets both libraries see each other's locks. Both
take turns here only so far that a write of the store never runs inside a transaction that a caller has begun.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time

from hermes_state import _native, _server
from hermes_state._trouble import is_lock_error

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_IN_TRANSACTION = "cannot start a transaction within a transaction"

# How long a statement of a caller waits inside SQLite for a lock, and how often a write looks whether one is free.
_BUSY_WAIT_S = 1.0
_POLL_S = 0.002

# SQLITE_BUSY_SNAPSHOT: the connection's own unfinished read is in the way, which no waiting helps. Known by number from
# Python 3.11 on; before, such a write waits in vain.
_BUSY_SNAPSHOT = 517

# Connections that a fork has carried into another process. They are the parent's, so even closing them would do harm.
_inherited: list[sqlite3.Connection] = []


class RawConnection:
    """Opened when it is first asked for. ``lock`` keeps callers of the raw connection apart."""

    def __init__(self, store: _native.Store) -> None:
        self.lock = threading.RLock()
        self._store = store
        self._path = store.path
        self._process = os.getpid()
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        self._writer: int | None = None

    def get(self) -> sqlite3.Connection | None:
        """The connection; ``None`` after the close."""
        if self._connection is not None and self._process == os.getpid():
            return self._connection
        if self._process != os.getpid():
            raise sqlite3.ProgrammingError(
                f"this handle on {self._path} was opened in another process (pid {self._process});"
                " open the store again in this one"
            )
        with self.lock:
            if self._connection is None and not self._closed:
                self._connection = self._connect()
            return self._connection

    def _connect(self) -> sqlite3.Connection:
        if isinstance(self._path, str):
            raise _server.no_raw_sql(self._path)
        if str(self._path) == ":memory:":
            raise sqlite3.NotSupportedError("a store in memory is its handle's own: no second connection can reach it")
        # A path may hold characters that mean something in a URI, and the file is the store's to create.
        writable = self._is_writable()
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode={'rw' if writable else 'ro'}",
            timeout=_BUSY_WAIT_S,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )
        connection.row_factory = sqlite3.Row
        if writable:
            connection.execute("PRAGMA foreign_keys=ON")
        return connection

    def _is_writable(self) -> bool:
        """Whether the store takes writes: neither only looked at, nor of a newer release."""
        try:
            self._store.check_writable()
        except sqlite3.Error:
            return False
        return True

    def close(self) -> None:
        """Closes the connection for good."""
        if self._process != os.getpid():
            if self._connection is not None:
                _inherited.append(self._connection)
            return
        with self.lock:
            self._closed = True
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def refuse_inside_transaction(self) -> None:
        """Raises where a write of the store would run inside a transaction of the raw connection."""
        if self._connection is None or self._process != os.getpid():
            return
        if self._writer == threading.get_ident():
            raise sqlite3.OperationalError(
                f"{_IN_TRANSACTION}: this is a write inside the callback of another; use the connection it was given"
            )
        with self.lock:
            if self._connection is not None and self._connection.in_transaction:
                raise sqlite3.OperationalError(
                    f"{_IN_TRANSACTION}: one was begun on _conn and neither committed nor rolled back"
                )

    def write(self, fn: Callable[[sqlite3.Connection], Any], patience_s: float) -> Any:
        """Runs ``fn`` in a write transaction, again and again as long as a lock is in its way and patience lasts.

        The lock of the file is waited for without holding ``lock``, so that other threads proceed.
        """
        self._store.check_writable()
        started = time.monotonic()
        while True:
            try:
                with self.lock:
                    return self._attempt(fn)
            except sqlite3.OperationalError as error:
                if getattr(error, "sqlite_errorcode", None) == _BUSY_SNAPSHOT:
                    raise sqlite3.OperationalError(
                        f"{_IN_TRANSACTION}: a cursor of _conn has rows left, so the connection still reads an older"
                        " state of the store; fetch them all, or close the cursor"
                    ) from error
                if not is_lock_error(error):
                    raise
                waited = time.monotonic() - started
                if waited >= patience_s:
                    raise self._store.busy_error(waited) from error
            time.sleep(min(_POLL_S, patience_s - waited))

    def _attempt(self, fn: Callable[[sqlite3.Connection], Any]) -> Any:
        connection = self.get()
        if connection is None:
            raise sqlite3.ProgrammingError(f"the store {self._path} is closed; open it again")
        self.refuse_inside_transaction()
        self._begin(connection)
        self._writer = threading.get_ident()
        try:
            answer = fn(connection)
            connection.commit()
            return answer
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                connection.rollback()
            raise
        finally:
            self._writer = None

    @staticmethod
    def _begin(connection: sqlite3.Connection) -> None:
        """Takes the lock of the file if it is free."""
        connection.execute("PRAGMA busy_timeout=0")
        try:
            connection.execute("BEGIN IMMEDIATE")
        finally:
            connection.execute(f"PRAGMA busy_timeout={int(_BUSY_WAIT_S * 1000)}")
