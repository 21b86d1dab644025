"""Sessions of messaging gateways: their peers, the routing index, finding the session that a message belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hermes_state._store import Store

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Gateway(Store):
    """The operations of messaging gateways."""

    def record_gateway_session_peer(
        self,
        session_id: str,
        *,
        source: str,
        user_id: str | None = None,
        session_key: str | None = None,
        chat_id: str | None = None,
        chat_type: str | None = None,
        thread_id: str | None = None,
        display_name: str | None = None,
        origin_json: str | None = None,
    ) -> None:
        """Records whom a session talks to; nothing without a session and a routing key.

        What is left out becomes NULL, except display name and origin, which then stay as they are. Raises
        ``sqlite3.IntegrityError`` for a source of ``None``.
        """
        if not session_id or not session_key:
            return
        self._execute_write(
            self._native.record_gateway_session_peer(
                session_id, source, user_id, session_key, chat_id, chat_type, thread_id, display_name, origin_json
            )
        )

    def save_gateway_routing_entry(self, session_key: str, entry_json: str, *, scope: str = "") -> None:
        """Sets an entry of the routing index, which is not read; nothing if key or value are empty.

        Raises ``sqlite3.IntegrityError`` for a scope of ``None``.
        """
        if not session_key or not entry_json:
            return
        self._execute_write(self._native.save_gateway_routing_entry(session_key, entry_json, scope))

    def replace_gateway_routing_entries(self, entries: Mapping[str, str] | None, *, scope: str = "") -> None:
        """Replaces all entries of a scope by these, at once; pairs with an empty key or value are left out.

        If one of them cannot be stored, nothing changes.
        """
        pairs = [(key, entry) for key, entry in (entries or {}).items() if key and entry]
        self._execute_write(self._native.replace_gateway_routing_entries(pairs, scope))

    def load_gateway_routing_entries(self, *, scope: str = "") -> dict[str, str]:
        """The entries of exactly this scope by routing key."""
        return self._native.gateway_routing_entries(scope)

    def delete_gateway_routing_entries(self, session_keys: Iterable[str], *, scope: str = "") -> None:
        """Removes entries of a scope, at once; keys that it does not have are passed over."""
        keys = list(session_keys or ())
        if keys:
            self._execute_write(self._native.delete_gateway_routing_entries(keys, scope))

    def list_gateway_sessions(self, *, platform: str | None = None, active_only: bool = True) -> list[dict[str, Any]]:
        """The newest session of each routing key as rows with ``last_active`` (seconds), most active first.

        The newest is chosen before anything is left out: one that has ended hides older ones that have not.
        """
        return self._native.gateway_sessions(platform, active_only)

    def find_session_by_origin(
        self, *, platform: str, chat_id: str, thread_id: str | None = None, user_id: str | None = None
    ) -> str | None:
        """The id of the live session that a message from there belongs to; ``None`` if there is none, or several
        people's. An empty ``thread_id`` is no thread, ``None`` is any.
        """
        return self._native.session_by_origin(platform, chat_id, thread_id, user_id)

    def find_latest_gateway_session_for_peer(
        self,
        *,
        source: str,
        user_id: str | None = None,
        session_key: str | None = None,
        chat_id: str | None = None,
        chat_type: str | None = None,
        thread_id: str | None = None,
    ) -> dict[str, Any] | None:
        """The row of the newest session that a gateway can go on with, live or closed by accident and not empty.

        It is looked for by routing key, then by the whole peer, so its key may be another one. It is not reopened.
        """
        return self._native.latest_gateway_session_for_peer(source, user_id, session_key, chat_id, chat_type, thread_id)
