"""Policies of retention: which sessions are kept how long, by source and state."""

from __future__ import annotations

import os

from hermes_state._deletion import _folder
from hermes_state._store import Store

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Callable


def _json(policy: str | Mapping[str, Any]) -> str:
    if isinstance(policy, str):
        return policy
    import json

    return json.dumps(policy)


class Retention(Store):
    """The operations of policies.

    A policy is ``{"rules": [{"older_than": "30d", "states": [...], "sources": [...], "except_sources": [...]}]}``, or
    its JSON; all but ``older_than`` (a number and ``s``, ``m``, ``h``, ``d`` or ``w``) may be left out. A session goes
    if any rule takes it. States are ``ended`` and ``archived`` (these, if none is named), ``empty``, ``open``, and
    ``owner-gone``: never ended, and silent since before any process began that has the store open. ``ValueError`` for
    what is no policy, and nothing is changed.
    """

    if TYPE_CHECKING:
        _from_time_to_time: Callable[..., dict[str, Any]]

    def plan_retention(self, policy: str | Mapping[str, Any]) -> dict[str, Any]:
        """What ``apply_retention`` would delete, to the session; nothing is changed.

        ``sessions`` (each with ``id``, ``source``, ``title``, ``started_at``, ``ended_at``, ``archived``, ``messages``,
        ``bytes`` of text, ``delegated_by``: the session with which it goes), ``chosen`` (how many go on their own
        account), ``messages``, ``bytes``; and what stays though it is as old: ``owner_gone``, and ``open``, whose
        owners may be there.
        """
        return self._native.plan_retention(_json(policy))

    def apply_retention(
        self, policy: str | Mapping[str, Any], sessions_dir: os.PathLike[str] | None = None
    ) -> dict[str, Any]:
        """Deletes the sessions that the policy does not keep, and all that they delegated, in steps.

        Returns the plan, and ``deleted``: how many went on their own account. ``sessions_dir`` is as for
        ``prune_sessions``.
        """
        done: dict[str, Any] = self._execute_write(self._native.apply_retention(_json(policy), _folder(sessions_dir)))
        return done

    def maybe_apply_retention(
        self,
        policy: str | Mapping[str, Any],
        min_interval_hours: int = 24,
        vacuum: bool = True,
        sessions_dir: os.PathLike[str] | None = None,
    ) -> dict[str, Any]:
        """``apply_retention``, unless it or the automatic prune was done a short while ago.

        Returns what ``maybe_auto_prune_and_vacuum`` returns, and raises nothing.
        """
        return self._from_time_to_time(
            min_interval_hours, vacuum, lambda: self.apply_retention(policy, sessions_dir)["deleted"]
        )
