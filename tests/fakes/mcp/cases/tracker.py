"""An issue tracker as tools, like those of code hosts: a token lets a host in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

from tests.fakes.mcp.cases.endpoint import Doorkeeper, serve_app


@dataclass
class Tracker:
    """Address of the server, and the titles of its issues."""

    url: str = ""
    issues: list[str] = field(default_factory=lambda: ["The door squeaks"])


@contextmanager
def tracker(token: str) -> Iterator[Tracker]:
    """Return the server, which requires the token."""
    made = Tracker()
    server = MCPServer("tracker", version="1.0.0", log_level="ERROR")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def list_issues() -> list[str]:
        """The open issues."""
        return [f"#{number} {title}" for number, title in enumerate(made.issues, 1)]

    @server.tool(annotations=ToolAnnotations(destructive_hint=False, idempotent_hint=False))
    def create_issue(title: str) -> str:
        """Open an issue."""
        made.issues.append(title)
        return f"Opened #{len(made.issues)} {title}"

    with serve_app(Doorkeeper(server.streamable_http_app(), "Authorization", f"Bearer {token}")) as address:
        made.url = f"{address}/mcp"
        yield made
