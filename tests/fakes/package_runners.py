"""`npx` and `uvx` without a network: for any package, they start one scripted MCP server with the tool `look`."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

_RAW = Path(__file__).parent / "mcp/raw.py"
_TOOL = {"name": "look", "description": "Look at something.", "inputSchema": {"type": "object"}}
_SCRIPT = {
    "listings": [[{"tools": [_TOOL]}]],
    "calls": {"look": {"result": {"content": [{"type": "text", "text": "seen"}]}}},
}


class PackageRunners:
    """The two programs in one folder, and the arguments of each start."""

    def __init__(self, folder: Path) -> None:
        self._bin = folder / "runners"
        self._bin.mkdir()
        server = shlex.join((sys.executable, "-S", "-E", str(_RAW), json.dumps(_SCRIPT)))
        for name in ("npx", "uvx"):
            program = self._bin / name
            program.write_text(
                f'#!/bin/sh\nprintf "%s\\n" "$*" >> {shlex.quote(str(self._file(name)))}\n'
                f"env > {shlex.quote(str(self._bin / 'environment'))}\nexec {server}\n"
            )
            program.chmod(0o755)

    @property
    def path(self) -> str:
        """A PATH that begins with the folder of the programs."""
        return f"{self._bin}{os.pathsep}{os.environ['PATH']}"

    def starts(self, name: str) -> list[str]:
        """Return the arguments of each start."""
        file = self._file(name)
        return file.read_text().splitlines() if file.exists() else []

    def variable(self, name: str) -> str | None:
        """Return an environment variable of the last start, or None."""
        lines = (self._bin / "environment").read_text().splitlines()
        return dict(line.partition("=")[::2] for line in lines).get(name)

    def _file(self, name: str) -> Path:
        return self._bin / f"{name}.arguments"
