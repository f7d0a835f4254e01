"""The name of the user who has started the program."""

from __future__ import annotations

import getpass
import os


def login_name() -> str:
    """Return the name as the system knows it; `uid-N` if it knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user that has no name
        return f"uid-{os.getuid()}"
