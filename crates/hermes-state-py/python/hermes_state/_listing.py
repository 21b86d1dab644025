"""Finding sessions: listings, pages, counts."""

from __future__ import annotations

from collections.abc import Iterable

from hermes_state import _native
from hermes_state._store import Store

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Listing(Store):
    """The operations that list and count sessions."""

    _SESSION_COMPACT_EXCLUDED = _native.COMPACT_EXCLUDED

    def session_count(
        self,
        source: str | None = None,
        cwd_prefix: str | None = None,
        min_message_count: int = 0,
        include_archived: bool = False,
        archived_only: bool = False,
        exclude_children: bool = False,
        exclude_sources: Iterable[str | None] | None = None,
    ) -> int:
        """How many sessions there are; with ``exclude_children`` as many as a listing pages through."""
        return self._native.session_count(
            source, cwd_prefix, min_message_count, include_archived, archived_only, exclude_children, exclude_sources
        )

    def list_sessions_rich(
        self,
        source: str | None = None,
        exclude_sources: Iterable[str | None] | None = None,
        cwd_prefix: str | None = None,
        limit: int = 20,
        offset: int = 0,
        include_children: bool = False,
        min_message_count: int = 0,
        project_compression_tips: bool = True,
        order_by_last_active: bool = False,
        include_archived: bool = False,
        archived_only: bool = False,
        id_query: str | None = None,
        search_query: str | None = None,
        compact_rows: bool = False,
    ) -> list[dict[str, Any]]:
        """Sessions with their last activity and a preview, newest first."""
        return self._native.list_sessions(
            source,
            exclude_sources,
            cwd_prefix,
            limit,
            offset,
            include_children,
            min_message_count,
            project_compression_tips,
            order_by_last_active,
            include_archived,
            archived_only,
            id_query,
            search_query,
            compact_rows,
        )

    def list_sessions_page(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        titled: bool | None = None,
        active_since: float | None = None,
        source: str | None = None,
        exclude_sources: Iterable[str | None] | None = None,
        cwd_prefix: str | None = None,
        include_children: bool = False,
        min_message_count: int = 0,
        project_compression_tips: bool = True,
        order_by_last_active: bool = False,
        include_archived: bool = False,
        archived_only: bool = False,
        id_query: str | None = None,
        search_query: str | None = None,
        compact_rows: bool = False,
    ) -> tuple[list[dict[str, Any]], str | None]:
        """One page of sessions as ``list_sessions_rich`` has them, and the cursor of the next (``None``: the last).

        All filters come before the limit. Turning pages, with the same filters, gives each session that was there when
        the first was made exactly once, whatever is created or goes on meanwhile. ``titled`` asks whether any session
        of the conversation has a title, ``active_since`` (seconds since the epoch) when something was last said in
        it. A negative limit asks for all. ``ValueError`` for a limit of zero and for a cursor that is none, or of the
        other order.
        """
        return self._native.list_sessions_page(
            limit,
            cursor,
            titled,
            active_since,
            source,
            exclude_sources,
            cwd_prefix,
            include_children,
            min_message_count,
            project_compression_tips,
            order_by_last_active,
            include_archived,
            archived_only,
            id_query,
            search_query,
            compact_rows,
        )

    def list_cron_job_runs(self, job_id: str, limit: int = 20, offset: int = 0) -> list[dict[str, Any]]:
        """The runs of a scheduled job, newest first: rich rows of ``cron`` whose ids begin with ``cron_<job_id>_``."""
        return self._native.list_cron_job_runs(str(job_id), limit, offset)

    def search_sessions_by_id(
        self, query: str | None, limit: int = 20, include_archived: bool = True
    ) -> list[dict[str, Any]]:
        """Conversations one of whose ids contains the text: equal ids first, then beginnings, each newest first."""
        return self._native.search_sessions_by_id(query, limit, include_archived) if query else []

    def search_sessions(self, source: str | None = None, limit: int = 20, offset: int = 0) -> list[dict[str, Any]]:
        """Sessions of every kind with their ``last_active``, the most recently active first."""
        return self._native.search_sessions(source, limit, offset)
