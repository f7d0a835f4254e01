"""A real MCP server with resources and prompts: `python tests/fakes/mcp/library.py stdio|http`.

It imports nothing of the product. Over HTTP it listens on a port that the operating system chooses, and prints `PORT
<number>` when it is ready. The endpoint is `/mcp`.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import sys
from itertools import count

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import AssistantMessage, Message, UserMessage
from mcp.types import ResourceLink

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
LONG = "It was a long night. " * 5_000
server = MCPServer("library", version="1.0.0", log_level="ERROR")
reads = count(1)


@server.resource("library://desk/hours", name="hours", title="Opening hours", mime_type="text/plain")
def opening_hours() -> str:
    """When the library is open."""
    return "nine to five"


@server.resource("library://desk/novel", name="novel", title="A long novel", mime_type="text/plain")
def novel() -> str:
    """A text larger than one read."""
    return LONG


@server.resource("library://desk/map.png", name="map", title="Map", mime_type="image/png")
def floor_map() -> bytes:
    """Where the shelves are."""
    return PIXEL


@server.resource("library://reads/{of}", name="reads", title="Reads")
def count_reads(of: str) -> str:
    """Number of reads of this."""
    return f"{of} {next(reads)}"


@server.resource("library://shelf/{shelf}", name="shelf", title="Books of a shelf")
def books(shelf: str) -> str:
    """Return the articles of a shelf."""
    return f"Shelf {shelf}: maps and atlases."


@server.prompt(title="Write a review")
def review(book: str, tone: str = "kind") -> list[Message]:
    """Ask for a review of a book."""
    return [
        UserMessage("I would like a review."),
        AssistantMessage("Of which book?"),
        UserMessage(f"Of {book}. Be {tone}."),
    ]


@server.tool()
def find(title: str) -> ResourceLink:
    """Find a book by its title."""
    return ResourceLink(type="resource_link", uri="library://shelf/7", name=title)


@server.tool()
async def announce(uri: str, ctx: Context) -> str:
    """Say that a resource has changed."""
    await ctx.notify_resource_updated(uri)
    return "announced"


async def serve_http() -> None:
    """Serve on a free port until killed."""
    listener = socket.create_server(("127.0.0.1", 0))
    app = server.streamable_http_app()
    program = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    serving = asyncio.create_task(program.serve(sockets=[listener]))
    while not program.started and not serving.done():
        await asyncio.sleep(0.01)
    sys.stdout.write(f"PORT {listener.getsockname()[1]}\n")
    sys.stdout.flush()
    await serving


if __name__ == "__main__":
    if sys.argv[1] == "http":
        asyncio.run(serve_http())
    else:
        server.run()
