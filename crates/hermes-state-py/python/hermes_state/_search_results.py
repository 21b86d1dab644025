"""What a search answers, and the log of the slow ones."""

from __future__ import annotations

import os
from collections.abc import Iterable

from hermes_state import _native
from hermes_state._log import logger

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Rows = list[dict[str, Any]]
else:
    Rows = list


class InvalidQuery(ValueError):  # noqa: N818 - a name that callers catch
    """A search that can neither be read as a query nor looked for as it stands."""


class SearchResults(Rows):
    """A list of hits that knows how far it can be trusted to be complete."""

    degraded: bool
    """An index is missing or damaged, and rows were read instead."""
    partial: bool
    """The search ended before it had seen everything."""

    def __init__(self, hits: Iterable[dict[str, Any]] = (), degraded: bool = False, partial: bool = False) -> None:
        super().__init__(hits)
        self.degraded = degraded
        self.partial = partial


def log_if_slow(store: _native.Store, query: Any, elapsed_s: float, rows: int | str) -> None:
    """Says that a search took longer than HERMES_SEARCH_SLOW_MS; no trouble with that is the caller's."""
    try:
        limit_ms = float(os.environ.get("HERMES_SEARCH_SLOW_MS", "1000"))
    except ValueError:
        limit_ms = 1000.0
    elapsed_ms = elapsed_s * 1000
    if elapsed_ms < limit_ms:
        return
    try:
        path = store.search_path(query)
    except Exception:
        path = "unknown"
    logger().info(
        "slow session search: path=%s elapsed=%.0fms rows=%s query=%r", path, elapsed_ms, rows, str(query or "")[:200]
    )
