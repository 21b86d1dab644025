"""An open store: opening, closing, writing, and the way round it."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from types import TracebackType

import hermes_state as module
from hermes_state import _home, _native, _repair, _server, _trouble
from hermes_state._log import logger
from hermes_state._raw import RawConnection

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from typing_extensions import Self


class Store:
    """What all operations stand on."""

    # How many seconds a write waits for the process that holds the write lock; read at the start of each write.
    _WRITE_PATIENCE_S = 20
    _TRANSCRIPT_WRITE_PATIENCE_S = 60

    # Between which two lengths older releases paused before they tried again. Here a write waits for its turn instead.
    _WRITE_RETRY_MIN_S = 0.020
    _WRITE_RETRY_MAX_S = 0.150

    _CHECKPOINT_EVERY_N_WRITES = 50
    _OPTIMIZE_EVERY_N_WRITES = 1000

    # No write has had to do without a damaged search index yet.
    _fts_runtime_rebuild_attempted = False

    def __init__(
        self,
        db_path: str | os.PathLike[str] | None = None,
        read_only: bool = False,
        *,
        spool: bool = False,
        spool_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        # Lock contention is survived, not reported: the writes of a turn wait 30 seconds and more for a sibling
        # (_TRANSCRIPT_WRITE_PATIENCE_S), this opening and all other writes as long as _WRITE_PATIENCE_S says.
        self.read_only = read_only
        self._spools = bool(spool) and not read_only
        self._spool_dir = None if spool_dir is None else Path(spool_dir)
        self._write_count = 0
        self._count_lock = threading.Lock()
        try:
            location = _server.location(db_path, module.DEFAULT_DB_PATH)
            self._native = self._open(location)
            # A path as it was given; a URL, which is text, without its password.
            self.db_path: Path | str = self._native.path if isinstance(location, str) else location
        except Exception as error:
            module._set_last_init_error(f"{type(error).__name__}: {error}")
            raise
        # The path as it was resolved, so that a change of the working folder leads nowhere else.
        self._raw = RawConnection(self._native)

    def _open(self, location: Path | str) -> _native.Store:
        """Opens the store; a damaged file is repaired, once in the life of this process, and opened again."""

        folder = self._spool_dir
        if folder is None and isinstance(location, str):
            # Beside a server there is no place for it.
            folder = _home.get_hermes_home() / "spool"

        def attempt(spools: bool) -> _native.Store:
            return _native.Store(
                location,
                bool(self.read_only),
                type(self)._WRITE_PATIENCE_S,
                _home.sessions_json(),
                _home.has_cjk_tokenizer(),
                _server.password(location),
                spools,
                folder,
            )

        try:
            native = attempt(False)
        except sqlite3.DatabaseError as error:
            if not self.read_only and isinstance(location, Path) and _repair.repair_at_opening(location, error):
                return attempt(self._spools)
            if not self._spools:
                raise
            # Opened at a later use, and spooled for until then, if that is of any help.
            return attempt(True)
        except OSError:
            if not self._spools:
                raise
            return attempt(True)
        if self._spools:
            native, unspooled = attempt(True), native
            unspooled.close()
        return native

    def close(self) -> None:
        """Closes the store once running calls are done. Closing again does nothing."""
        self._raw.close()
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # An instance whose opening failed has no store, and nobody to tell.
        if hasattr(self, "_raw"):
            self.close()

    # The way round the store

    @property
    def _conn(self) -> sqlite3.Connection | None:
        # Raises ProgrammingError where there is no file.
        return self._raw.get()

    @property
    def _lock(self) -> Any:
        return self._raw.lock

    @property
    def _fts_enabled(self) -> bool:
        return self._native.indexes()[0]

    @property
    def _trigram_available(self) -> bool:
        return self._native.indexes()[1]

    @property
    def _fts_cjk_loaded(self) -> bool:
        # A server needs no tokenizer: it finds Chinese, Japanese and Korean text by the index of words.
        return not self.read_only and isinstance(self.db_path, Path) and _home.has_cjk_tokenizer()

    @property
    def _fts_cjk_available(self) -> bool:
        return self._native.indexes()[2]

    # Writing

    def _execute_write(self, fn: Any, patience_s: float | None = None) -> Any:
        """Runs a write in one transaction: one of this class's own, or ``fn(conn)`` for raw SQL on ``_conn``.

        ``fn`` may run several times and must not commit; whatever leaves it undoes its work. Raw SQL needs a file.
        """
        native = isinstance(fn, _native.Write)
        patience = patience_s
        if patience is None:
            patience = self._TRANSCRIPT_WRITE_PATIENCE_S if native and fn.transcript else self._WRITE_PATIENCE_S
        if native:
            self._raw.refuse_inside_transaction()
            answer = self._native.run(fn, patience)
        else:
            answer = self._raw.write(fn, patience)
        self._count_write()
        return answer

    def _count_write(self) -> None:
        with self._count_lock:
            self._write_count += 1
            count = self._write_count
        try:
            if count % self._CHECKPOINT_EVERY_N_WRITES == 0:
                self._try_wal_checkpoint()
            if count % self._OPTIMIZE_EVERY_N_WRITES == 0:
                self._try_optimize_fts()
        except Exception as error:
            # The write is stored; nothing that comes after it may say otherwise.
            logger().warning("upkeep after a write failed: %s", error)

    def _try_wal_checkpoint(self) -> None:
        """Merges the log into the file as far as that makes nobody wait; a server sees to that by itself."""
        try:
            self._native.checkpoint()
        except Exception as error:
            logger().warning("WAL checkpoint (PASSIVE) failed: %s", error)

    def optimize_fts(self) -> int:
        """Merges the search indexes, and returns how many; results stay as they are.

        An index that is locked, or read-only, is left out with a warning. What is left to merge of a very large one is
        gone on with by the next call.
        """
        return self._native.merge_indexes(self._WRITE_PATIENCE_S)

    def _try_optimize_fts(self) -> None:
        """Merges the search indexes; no trouble with that is the caller's."""
        try:
            self.optimize_fts()
        except Exception as error:
            logger().warning("the search indexes were not merged: %s", error)

    # Keys and values

    def get_meta(self, key: str) -> Any:
        """The value of a key, or ``None``."""
        return self._native.meta(key)

    def set_meta(self, key: str, value: Any, *, cursor: Any = None) -> None:
        """Sets a key; on a cursor of the caller it is a statement in the caller's transaction."""
        if cursor is None:
            self._execute_write(self._native.set_meta(key, value))
        else:
            cursor.execute(
                "INSERT INTO state_meta (key, value) VALUES (?, ?)"
                " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (key, value),
            )

    # Helpers that are called on the class

    @staticmethod
    def _parse_schema_columns(schema_sql: str) -> dict[str, dict[str, str]]:
        return _native.parse_schema_columns(schema_sql)

    _is_fts5_unavailable_error: Callable[[BaseException], bool] = staticmethod(_trouble.is_fts5_unavailable_error)
    _is_trigram_unavailable_error: Callable[[BaseException], bool] = staticmethod(_trouble.is_trigram_unavailable_error)
    _is_fts_write_corruption_error: Callable[[BaseException], bool] = staticmethod(
        _trouble.is_fts_write_corruption_error
    )
