"""Search."""

from __future__ import annotations

import time
from collections.abc import Iterable

from hermes_state import _native
from hermes_state._search_results import SearchResults, log_if_slow
from hermes_state._store import Store

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Search(Store):
    """The operations of search."""

    def search_messages(
        self,
        query: str | None,
        source_filter: Iterable[str] | None = None,
        exclude_sources: Iterable[str] | None = None,
        role_filter: Iterable[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        sort: str | None = None,
        include_inactive: bool = False,
        timeout_ms: float | None = None,
    ) -> SearchResults:
        """The messages that match, the best first, or by time with ``sort`` as ``newest`` or ``oldest``.

        Words are all required, ``OR``, ``NOT`` and ``AND`` join them, ``"…"`` is a phrase, ``word*`` a beginning; what
        is no such query is looked for as it stands. ``degraded`` says that rows were read because an index is damaged
        or not whole yet. With ``timeout_ms`` the search ends then, with what it has found by that time and ``partial``
        set. ``InvalidQuery`` for a query that can neither be read nor looked for.
        """
        started = time.monotonic()
        rows: int | str = "err"
        try:
            hits, degraded, partial = self._native.search(
                query, source_filter, exclude_sources, role_filter, limit, offset, sort, include_inactive, timeout_ms
            )
            rows = len(hits)
            return SearchResults(hits, degraded, partial)
        finally:
            log_if_slow(self._native, query, time.monotonic() - started, rows)

    def _search_unindexed_gap(
        self,
        fts_query: str,
        limit: int,
        *,
        include_inactive: bool = False,
        source_filter: Iterable[str] | None = None,
        exclude_sources: Iterable[str] | None = None,
        role_filter: Iterable[str] | None = None,
    ) -> list[dict[str, Any]]:
        """The hits of a cleaned query among rows that a rebuild has not reached, the newest first, without context."""
        return self._native.search_gap(fts_query, limit, include_inactive, source_filter, exclude_sources, role_filter)

    def _describe_search_path(self, query: str) -> str:
        """Who would answer: ``empty``, ``fts5``, ``fts_cjk``, ``trigram``, ``like_scan``; ``unknown`` if that fails."""
        try:
            return self._native.search_path(query)
        except Exception:
            return "unknown"

    # Helpers that are called on the class

    @staticmethod
    def _sanitize_fts5_query(query: str) -> str:
        return _native.sanitize_fts5_query(query)

    @staticmethod
    def _contains_cjk(text: str) -> bool:
        return _native.contains_cjk(text)

    @staticmethod
    def _count_cjk(text: str) -> int:
        return _native.count_cjk(text)

    @staticmethod
    def _has_lone_cjk_run(text: str) -> bool:
        return _native.has_lone_cjk_run(text)
