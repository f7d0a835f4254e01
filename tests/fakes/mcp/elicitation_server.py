"""A real MCP server whose tools send elicitations: `python -m tests.fakes.mcp.elicitation_server stdio` or `... http`.

It imports nothing of the product. `book` asks in both eras; `ask`, `visit`, `pay` and `together` only before 2026. Over
HTTP it prints `PORT <number>` when it is ready.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Annotated, Any, Literal

from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp.types import ElicitRequestURLParams
from pydantic import BaseModel, Field

from tests.fakes.mcp.server import serve_http

server = MCPServer("asking", version="1", log_level="ERROR")
visited = 0


class Booking(BaseModel):
    """Fields of a booking."""

    seats: int = Field(default=2, title="Seats", ge=1, le=9)
    where: Literal["front", "back"] = "front"


def seats(day: str) -> Elicit[Booking]:
    """Ask how many, and where."""
    return Elicit(f"How many seats on {day}?", Booking)


@server.tool()
async def book(day: str, booking: Annotated[ElicitationResult[Booking], Resolve(seats)]) -> str:
    """Book seats."""
    return f"{day}: {booking.model_dump_json()}"


@server.tool()
async def ask(message: str, ctx: Context, pause: float = 0.0) -> str:
    """Ask in the middle of the call, after a while."""
    await asyncio.sleep(pause)
    answer = await ctx.elicit(message, Booking)
    await asyncio.sleep(pause)
    return json.dumps({"asked": message, **json.loads(answer.model_dump_json())})


@server.tool()
async def visit(url: str, ctx: Context) -> str:
    """Have a page visited in the middle of the call."""
    answer = await ctx.elicit_url("Please sign.", url, "visit-1")
    return answer.action


@server.tool()
async def pay(ctx: Context) -> str:
    """Want a page visited before anything else."""
    global visited  # noqa: PLW0603  # the program is its state
    visited += 1
    if visited == 1:
        page = ElicitRequestURLParams(message="Pay first.", url="https://pay.example.com/1", elicitation_id="pay-1")
        raise UrlElicitationRequiredError([page])
    return f"paid, call {visited}"


@server.tool()
async def together(ctx: Context) -> str:
    """Ask twice at once."""
    answers: list[Any] = await asyncio.gather(*(ctx.elicit(f"{n}?", Booking) for n in range(2)))
    return ",".join(answer.action for answer in answers)


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("transport", choices=["stdio", "http", "sse"])
    match parser.parse_args().transport:
        case "http":
            asyncio.run(serve_http(server.streamable_http_app()))
        case "sse":
            asyncio.run(serve_http(server.sse_app()))
        case _:
            server.run()


if __name__ == "__main__":
    main()
