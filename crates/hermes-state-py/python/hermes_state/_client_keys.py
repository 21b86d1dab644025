"""The error of a key that a caller uses for two messages."""

from __future__ import annotations

import sqlite3


class ClientKeyConflict(sqlite3.IntegrityError):
    """A ``client_key`` belongs to a message with other content; nothing was stored.

    ``message_id`` is that message, ``None`` if it was to be stored by the same call.
    """

    session_id: str
    client_key: str
    message_id: int | None
