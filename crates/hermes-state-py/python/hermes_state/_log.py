"""The module's logger, whose library is loaded only by the rare call that has something to say."""

from __future__ import annotations

# Read by type checkers; importing `typing` would cost more than the whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging


def logger() -> logging.Logger:
    """The logger named after the module."""
    import logging

    return logging.getLogger("hermes_state")
