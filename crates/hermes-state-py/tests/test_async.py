"""The face for programs with an event loop."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import hermes_state
import pytest
from hermes_state import AsyncSessionDB, SessionDB


@pytest.mark.each_engine
def test_calls_are_awaited_on_another_thread(location: Path | str) -> None:
    async def main() -> None:
        store = AsyncSessionDB(SessionDB(location))
        assert await store.create_session("s", "cli") == "s"
        ids = await asyncio.gather(*(store.append_message("s", "user", content=str(n)) for n in range(20)))
        assert sorted(ids) == list(range(1, 21))
        assert await store.sanitize_title(" x ") == "x"
        assert store.db_path == location
        assert store.MAX_TITLE_LENGTH == 100
        assert isinstance(store._db, SessionDB)
        with pytest.raises(sqlite3.IntegrityError):
            await store.append_message("nobody", "user")
        with pytest.raises(AttributeError):
            store.no_such_method  # noqa: B018
        await store.close()
        with pytest.raises(sqlite3.ProgrammingError):
            await store.session_count()

    asyncio.run(main())


def test_the_loop_runs_while_a_call_waits(path: Path) -> None:
    from conftest import held_lock

    async def main() -> None:
        with SessionDB(path) as db:
            store = AsyncSessionDB(db)
            ticks = 0
            with held_lock(path, 0.6):
                call = asyncio.ensure_future(store.set_meta("a", "1"))
                while not call.done():
                    await asyncio.sleep(0.01)
                    ticks += 1
            assert ticks > 20

    asyncio.run(main())


def test_it_works_on_any_object_and_looks_asyncio_up_when_called(monkeypatch: pytest.MonkeyPatch) -> None:
    class Thing:
        value = 5

        def where(self, *, plus: int) -> tuple[int, int]:
            return threading.get_ident(), self.value + plus

    thing = Thing()
    facade = AsyncSessionDB(thing)
    facade.value = 7
    assert thing.value == 5
    thread, total = asyncio.run(facade.where(plus=2))
    assert thread != threading.get_ident()
    assert total == 7
    assert facade.where is not facade.where

    class Fake:
        @staticmethod
        async def to_thread(function: Any, *args: Any, **kwargs: Any) -> str:
            return "replaced"

    monkeypatch.setattr(hermes_state, "asyncio", Fake)
    assert asyncio.run(facade.where(plus=2)) == "replaced"
