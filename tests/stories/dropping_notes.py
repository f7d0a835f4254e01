"""The bundled notes server, as a program that ends in its first call of `add`: before the note is saved, or after."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from mcp_servers.notes.notebook_file import NotebookFile
from mcp_servers.notes.server import main

_change = NotebookFile.change
_once, _moment = Path(sys.argv[1]), sys.argv[2]


def _change_and_die(file: NotebookFile, change: Any) -> Any:
    if _once.exists():
        return _change(file, change)
    _once.touch()
    if _moment == "after":
        _change(file, change)
    os._exit(1)


if __name__ == "__main__":
    setattr(NotebookFile, "change", _change_and_die)  # noqa: B010 - not the method that mypy knows
    main()
