"""A server with the tools that the official conformance suite calls."""

from __future__ import annotations

import asyncio

from mcp import types
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.utilities.types import Audio, Image

server = MCPServer("conf")
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001"
    "a5f645400000000049454e44ae426082"
)
SILENCE = b"RIFF" + bytes.fromhex("24000000") + b"WAVEfmt " + bytes(16) + b"data" + bytes(4)


def _resource() -> types.EmbeddedResource:
    contents = types.TextResourceContents(
        uri="test://embedded-resource", mime_type="text/plain", text="This is an embedded resource content."
    )
    return types.EmbeddedResource(type="resource", resource=contents)


@server.tool(structured_output=False)
def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@server.tool(structured_output=False)
def test_image_content() -> Image:
    """Return an image."""
    return Image(data=PIXEL, format="png")


@server.tool(structured_output=False)
def test_audio_content() -> Audio:
    """Return a sound."""
    return Audio(data=SILENCE, format="wav")


@server.tool(structured_output=False)
def test_embedded_resource() -> types.EmbeddedResource:
    """Return a resource."""
    return _resource()


@server.tool(structured_output=False)
def test_multiple_content_types() -> list[object]:
    """Return a text, an image and a resource."""
    return ["Multiple content types test:", Image(data=PIXEL, format="png"), _resource()]


@server.tool(structured_output=False)
def test_error_handling() -> str:
    """Fail."""
    message = "This tool intentionally returns an error for testing"
    raise ToolError(message)


@server.tool(structured_output=False)
async def test_tool_with_progress(context: Context) -> str:
    """Report progress."""
    for done in (0, 50, 100):
        await context.report_progress(done, 100)
        await asyncio.sleep(0.5)  # notes that come faster than a slow machine shows them are merged
    return "done"


@server.tool(structured_output=False)
def test_missing_capability() -> str:
    """Return a text."""
    return "no capability was missed"


if __name__ == "__main__":
    server.run()
