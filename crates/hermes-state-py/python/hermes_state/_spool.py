"""The spool: messages that the store could not take, where that was asked for."""

from __future__ import annotations

from hermes_state._store import Store

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Spool(Store):
    """The operations on what is spooled."""

    def spool_status(self) -> dict[str, Any] | None:
        """What is spooled: how many writes are ``waiting``, ``refused`` by the store, or unreadable (``damaged``).

        Also the ``folder`` that they stand in, the ``bytes`` of those that wait, and when the ``oldest`` of these was
        spooled, in seconds since 1970 (``None`` if none waits). ``None`` without a spool.
        """
        return self._native.spool_status()

    def replay_spool(self, refused: bool = False) -> dict[str, Any]:
        """Stores what is spooled, in order and each write once; later writes of a turn do so by themselves.

        With ``refused`` also what the store refused before. Returns how many writes were ``stored``, how many
        ``found_stored``, and ``refused`` ones as pairs of ticket and reason. Raises as every write if not all could be
        stored; the rest stays spooled.
        """
        return self._native.replay_spool(refused, self._TRANSCRIPT_WRITE_PATIENCE_S)
