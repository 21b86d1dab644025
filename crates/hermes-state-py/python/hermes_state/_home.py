"""Where Hermes lives on this machine, and what of it the store reads."""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar, Token
from pathlib import Path

_override: ContextVar[str | None] = ContextVar("hermes_home_override", default=None)
_profile_warned = False


def set_hermes_home_override(path: str | os.PathLike[str] | None) -> Token[str | None]:
    """Uses another home in this context; ``None`` takes an override away. The token is for the reset."""
    return _override.set(None if path is None else str(path))


def reset_hermes_home_override(token: Token[str | None]) -> None:
    """Undoes one :func:`set_hermes_home_override`."""
    _override.reset(token)


def get_hermes_home() -> Path:
    """The home folder: the override of this context, the environment's HERMES_HOME, or the default of the platform."""
    override = _override.get()
    if override:
        return Path(override)
    named = os.environ.get("HERMES_HOME", "").strip()
    if named:
        return Path(named)
    home = _default_home()
    _warn_of_profile(home)
    return home


def _default_home() -> Path:
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA", "").strip()
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "hermes"
    return Path.home() / ".hermes"


def _warn_of_profile(home: Path) -> None:
    """Says, once, that another profile is active than the one whose folder is used."""
    global _profile_warned
    if _profile_warned:
        return
    try:
        profile = (home / "active_profile").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return
    if profile not in ("", "default"):
        _profile_warned = True
        print(f"hermes: HERMES_HOME is not set: using {home} although profile '{profile}' is active", file=sys.stderr)


def sessions_json() -> Path:
    """Where the gateway lists its sessions; files of old releases are completed from it."""
    return get_hermes_home() / "sessions" / "sessions.json"


def has_cjk_tokenizer() -> bool:
    """Whether the programs of this machine find the cjk tokenizer's library, and its index is switched on."""
    if os.environ.get("HERMES_CJK_FTS", "1").strip().lower() in ("0", "false", "off", "no"):
        return False
    named = os.environ.get("HERMES_FTS5_CJK_SO")
    library = Path(named).expanduser() if named else get_hermes_home() / "lib" / "libfts5_cjk.so"
    try:
        return library.is_file()
    except OSError:
        # A home that may not be entered has no library for this user; a store elsewhere opens all the same.
        return False
