"""Files below one folder as tools, over standard input and output: `python files.py FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

server = MCPServer("files", version="1.0.0", log_level="ERROR")
root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path()


def inside(path: str) -> Path:
    """Return the path of the file. Raises if it is not in the folder."""
    found = (root / path).resolve()
    if not found.is_relative_to(root):
        raise ToolError(f"{path} is outside the folder")
    return found


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def list_directory(path: str = ".") -> list[str]:
    """The names in a folder."""
    return sorted(each.name for each in inside(path).iterdir())


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def read_file(path: str) -> str:
    """The text of a file."""
    return inside(path).read_text(encoding="utf-8")


@server.tool(annotations=ToolAnnotations(destructive_hint=True, idempotent_hint=True))
def write_file(path: str, content: str) -> str:
    """Write a file, over the one that may be there."""
    inside(path).write_text(content, encoding="utf-8")
    return f"Wrote {path}"


if __name__ == "__main__":
    server.run()
