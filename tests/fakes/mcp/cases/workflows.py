"""Automated workflows offered as tools, like those of n8n: an API key lets a host in, and one of them sends mail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

from tests.fakes.mcp.cases.endpoint import Doorkeeper, serve_app

KEY_HEADER = "X-N8N-API-KEY"


@dataclass
class Workflows:
    """Address of the server, and the mail that went out."""

    url: str = ""
    sent: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def workflows(key: str) -> Iterator[Workflows]:
    """Return the server, which requires the key."""
    made = Workflows()
    server = MCPServer("n8n", version="1.0.0", log_level="ERROR")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def list_workflows() -> list[str]:
        """The workflows that can be run."""
        return ["send_email"]

    @server.tool(annotations=ToolAnnotations(destructive_hint=False, open_world_hint=True))
    def send_email(to: str, subject: str, body: str) -> str:
        """Run the workflow that sends a message."""
        made.sent.append({"to": to, "subject": subject, "body": body})
        return f"Execution {len(made.sent)}: sent to {to}"

    with serve_app(Doorkeeper(server.streamable_http_app(), KEY_HEADER, key)) as address:
        made.url = f"{address}/mcp"
        yield made
