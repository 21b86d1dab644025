"""The store for programs with an event loop."""

from __future__ import annotations

import functools

import hermes_state as module

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class AsyncSessionDB:
    """Forwards everything to the store it was given, as ``_db``; calls run on a thread and are awaited."""

    def __init__(self, db: Any) -> None:
        self._db = db

    def __getattr__(self, name: str) -> Any:
        if name == "_db":
            # Only while an instance is being made, as by copy; without this it would look for itself for ever.
            raise AttributeError(name)
        value = getattr(self._db, name)
        if not callable(value):
            return value

        @functools.wraps(value, updated=())
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await module.asyncio.to_thread(value, *args, **kwargs)

        return call
