"""How sessions descend from each other, asked on a connection of the caller's, within the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Text that is no JSON holds no marker.
_CONFIG = "CASE WHEN json_valid(s.model_config) THEN s.model_config END"
_DELEGATED = f"COALESCE(json_type({_CONFIG}, '$._delegate_from'), 'null') <> 'null'"
_BRANCHED = f"COALESCE(json_type({_CONFIG}, '$._branched_from'), 'null') <> 'null'"


def _rows(
    conn: sqlite3.Connection | sqlite3.Cursor, sql: str, parameters: tuple[Any, ...] = ()
) -> list[tuple[Any, ...]]:
    connection = conn.connection if isinstance(conn, sqlite3.Cursor) else conn
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(sql, parameters).fetchall()


def is_compression_ancestor(conn: sqlite3.Connection | sqlite3.Cursor, ancestor_id: str, descendant_id: str) -> bool:
    """Whether steps to parents that ended by compression lead from the one session to the other.

    A session that is marked as a branch or delegate belongs to no conversation of its parent's, and takes no step.
    """
    if not ancestor_id or not descendant_id or ancestor_id == descendant_id:
        return False
    step = (
        "SELECT p.id FROM sessions s JOIN sessions p ON p.id = s.parent_session_id"
        f" WHERE s.id = ? AND p.end_reason = 'compression' AND NOT ({_BRANCHED}) AND NOT ({_DELEGATED})"
    )
    seen = set()
    current = descendant_id
    while current not in seen:
        seen.add(current)
        parents = _rows(conn, step, (current,))
        if not parents:
            return False
        current = parents[0][0]
        if current == ancestor_id:
            return True
    return False


def _collect_delegate_child_ids(conn: sqlite3.Connection | sqlite3.Cursor, parent_ids: Iterable[str]) -> list[str]:
    """The ids of all delegates of these sessions, of their delegates, and so on; none of the given ones among them."""
    # The driver says what an id may be.
    given = {_rows(conn, "SELECT CAST(? AS TEXT)", (parent,))[0][0] for parent in parent_ids if parent}
    if not given:
        return []
    delegates_of: dict[str, list[str]] = {}
    delegates = f"SELECT s.id, s.parent_session_id, json_extract({_CONFIG}, '$._delegate_from') FROM sessions s"
    for child, parent, delegator in _rows(conn, f"{delegates} WHERE {_DELEGATED}"):
        for origin in {parent, delegator}:
            delegates_of.setdefault(origin, []).append(child)
    found: list[str] = []
    seen = set(given)
    frontier = list(given)
    while frontier:
        for child in delegates_of.get(frontier.pop(), ()):
            if child not in seen:
                seen.add(child)
                found.append(child)
                frontier.append(child)
    return found


def _delete_delegate_children(conn: sqlite3.Connection | sqlite3.Cursor, parent_ids: Iterable[str]) -> list[str]:
    """Deletes all delegates of these sessions with their messages; other children of theirs lose their parent.

    Returns the ids of what was deleted. The sessions themselves stay.
    """
    found = _collect_delegate_child_ids(conn, parent_ids)
    if found:
        for statement in (
            "DELETE FROM messages WHERE session_id = ?",
            "UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id = ?",
            "DELETE FROM sessions WHERE id = ?",
        ):
            conn.executemany(statement, [(child,) for child in found])
    return found
