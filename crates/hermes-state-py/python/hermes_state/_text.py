"""Small helpers on texts and rows that callers of the store share with it."""

from __future__ import annotations

from collections.abc import Mapping

from hermes_state import _native

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _scrub_surrogates(value: Any) -> Any:
    """Text with each lone surrogate replaced by U+FFFD; any other value as it is."""
    return _native.scrub_surrogates(value)


def workspace_key(row: Mapping[str, Any]) -> str | None:
    """The repository, or else the folder, that a session's row belongs to; ``None`` if it has neither."""
    keys = row.keys()
    for column in ("git_repo_root", "cwd"):
        place = (row[column] if column in keys else None) or ""
        if not isinstance(place, str):
            raise AttributeError(f"{column} is text, not {type(place).__name__}")
        if place.strip():
            return place.strip()
    return None
