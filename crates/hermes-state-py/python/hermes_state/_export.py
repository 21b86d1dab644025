"""Sessions as they leave a store and come into one."""

from __future__ import annotations

from hermes_state._store import Store

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Export(Store):
    """The operations that take sessions out and bring them in."""

    _IMPORT_MAX_SESSIONS = 500
    _IMPORT_MAX_MESSAGES_PER_SESSION = 10_000
    _IMPORT_MAX_TOTAL_MESSAGES = 50_000
    _IMPORT_MAX_SESSION_BYTES = 5 * 1024 * 1024
    _IMPORT_MAX_TOTAL_BYTES = 25 * 1024 * 1024

    def export_session(self, session_id: str) -> dict[str, Any] | None:
        """A session with all its columns and, as ``messages``, its active messages; ``None`` if it does not exist."""
        return self._native.export_session(session_id)

    def export_session_lineage(self, session_id: str) -> dict[str, Any] | None:
        """The whole compressed conversation that a session is part of; ``None`` if it does not exist.

        The columns are those of the last session, ``messages`` and ``message_count`` are of all, ``segments`` holds the
        export of each and ``lineage_session_ids`` their ids.
        """
        return self._native.export_session_lineage(session_id)

    def export_all(self, source: str | None = None) -> list[dict[str, Any]]:
        """All sessions, or those from ``source``, as ``export_session`` gives them, each also with ``last_active``.

        The latest active comes first; children and archived ones are among them; 100,000 at most.
        """
        return self._native.export_all(source)

    def import_sessions(self, sessions: list[dict[str, Any]]) -> dict[str, Any]:
        """Brings exported sessions in, all of them or, if anything is wrong with one, none.

        A session that is there is skipped. The report has ``ok``, the numbers ``imported``, ``skipped`` and
        ``detached`` (imported without the parent they name), ``imported_ids``, ``skipped_ids`` and ``errors``, each
        with ``index``, ``error`` and, if it has one, ``session_id``. More than the ``_IMPORT_MAX_…`` limits allow is an
        error of its entry; more sessions than that, or no list, raises ``ValueError``.
        """
        if not isinstance(sessions, list):
            raise ValueError("sessions must be a list")
        limits = (
            self._IMPORT_MAX_SESSIONS,
            self._IMPORT_MAX_MESSAGES_PER_SESSION,
            self._IMPORT_MAX_TOTAL_MESSAGES,
            self._IMPORT_MAX_SESSION_BYTES,
            self._IMPORT_MAX_TOTAL_BYTES,
        )
        report: dict[str, Any] = self._execute_write(self._native.import_sessions(sessions, limits))
        return report
