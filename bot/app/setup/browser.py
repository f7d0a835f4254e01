"""Opening a page in the person's browser."""

from __future__ import annotations

import os
import sys
import webbrowser

_DISPLAYS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")


def can_open_browser() -> bool:
    """Return True if a browser with windows is likely there: one of a terminal would take the terminal away."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in _DISPLAYS) and not os.environ.get("SSH_CONNECTION")


def open_browser(url: str) -> bool:
    """Open a page; return False if that failed."""
    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False
