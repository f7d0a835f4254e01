"""Login name of the user who runs the program."""

from __future__ import annotations

import getpass
import os


def login_name() -> str:
    """Return the system's login name; `uid-N` if it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user that has no name
        return f"uid-{os.getuid()}"
