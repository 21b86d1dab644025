"""The session store that every AI agent on a machine can share: what callers of the module reach for.

>>> from hermes_state import SessionDB
>>> with SessionDB("/tmp/example/state.db") as db:
...     session = db.create_session("s1", "cli")
...     message = db.append_message("s1", "user", "Where is the harbour?")
"""

from __future__ import annotations

import os

from hermes_state import _native
from hermes_state._async import AsyncSessionDB
from hermes_state._backup import restore_state_db
from hermes_state._client_keys import ClientKeyConflict
from hermes_state._home import get_hermes_home, reset_hermes_home_override, set_hermes_home_override
from hermes_state._journal import apply_wal_with_fallback
from hermes_state._leases import LeaseLost
from hermes_state._lineage import _collect_delegate_child_ids as _collect_delegate_child_ids
from hermes_state._lineage import _delete_delegate_children as _delete_delegate_children
from hermes_state._native import Lease
from hermes_state._repair import RepairReport, repair_state_db_schema
from hermes_state._repair import _db_opens_cleanly as _db_opens_cleanly
from hermes_state._review import _is_background_review_harness_message as _is_background_review_harness_message
from hermes_state._review import _strip_background_review_harness as _strip_background_review_harness
from hermes_state._search_results import InvalidQuery, SearchResults
from hermes_state._session_db import SessionDB
from hermes_state._text import _scrub_surrogates as _scrub_surrogates
from hermes_state._text import workspace_key
from hermes_state._trouble import (
    PersistenceTrouble,
    classify_persistence_error,
    format_session_db_unavailable,
    get_last_init_error,
    is_malformed_db_error,
)
from hermes_state._trouble import _set_last_init_error as _set_last_init_error

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio as asyncio
    from typing import Any

__all__ = [
    "DEFAULT_DB_PATH",
    "FTS_CJK_STALE_KEY",
    "FTS_STORAGE_VERSION",
    "MAX_FTS5_QUERY_CHARS",
    "SCHEMA_SQL",
    "SCHEMA_VERSION",
    "AsyncSessionDB",
    "ClientKeyConflict",
    "InvalidQuery",
    "Lease",
    "LeaseLost",
    "PersistenceTrouble",
    "RepairReport",
    "SearchResults",
    "SessionDB",
    "Spooled",
    "apply_wal_with_fallback",
    "classify_persistence_error",
    "format_session_db_unavailable",
    "get_hermes_home",
    "get_last_init_error",
    "is_malformed_db_error",
    "repair_state_db_schema",
    "reset_hermes_home_override",
    "restore_state_db",
    "set_hermes_home_override",
    "workspace_key",
]

Spooled = _native.Spooled
SCHEMA_SQL = _native.SCHEMA_SQL
SCHEMA_VERSION = _native.SCHEMA_VERSION
FTS_STORAGE_VERSION = _native.FTS_STORAGE_VERSION
FTS_CJK_STALE_KEY = "fts_cjk_stale"
MAX_FTS5_QUERY_CHARS = _native.MAX_FTS5_QUERY_CHARS

_FTS_TRIGGERS = (
    "messages_fts_insert",
    "messages_fts_delete",
    "messages_fts_update",
    "messages_fts_trigram_insert",
    "messages_fts_trigram_delete",
    "messages_fts_trigram_update",
)
_FTS_CJK_TRIGGERS = ("messages_fts_cjk_insert", "messages_fts_cjk_delete", "messages_fts_cjk_update")

_WAL_INCOMPAT_MARKERS = ("locking protocol", "not authorized")
_MALFORMED_SCHEMA_MARKERS = ("malformed database schema", "database disk image is malformed")

# Once-only guards of this process; whoever clears or replaces them arms them anew.
_wal_fallback_warned_paths: set[str] = set()
_repair_attempted_paths: set[str] = set()

# Fixed when the module is loaded, looked up here at each opening: replacing it redirects later openings.
DEFAULT_DB_PATH = get_hermes_home() / "state.db"

if "HERMES_STATE_LOCKS" in os.environ:
    _native.require_lock_kind(os.environ["HERMES_STATE_LOCKS"])


def __getattr__(name: str) -> Any:
    # Most programs that load this module have no event loop, so they do not pay for one.
    if name == "asyncio":
        import asyncio

        globals()["asyncio"] = asyncio
        return asyncio
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
