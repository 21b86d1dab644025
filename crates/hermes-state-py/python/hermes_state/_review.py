"""The instructions that a review in the background puts into a conversation, which are no part of it."""

from __future__ import annotations

from hermes_state import _native

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _is_background_review_harness_message(msg: Any) -> bool:
    """Whether a message is such an instruction."""
    if not isinstance(msg, dict):
        return False
    role, content = msg.get("role"), msg.get("content")
    if not isinstance(role, str) or not isinstance(content, str):
        return False
    return _native.is_background_review_harness(role, content)


def _strip_background_review_harness(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages without such instructions, and without an assistant's answer directly after one."""
    if not messages:
        return messages
    kept = []
    answer_follows = False
    for message in messages:
        if _is_background_review_harness_message(message):
            answer_follows = True
        elif answer_follows and isinstance(message, dict) and message.get("role") == "assistant":
            answer_follows = False
        else:
            answer_follows = False
            kept.append(message)
    return kept
