"""A real MCP server that asks the user before it books: `python tests/fakes/mcp/booking.py modern|older`.

It imports nothing of the product. Over HTTP it listens on a port that the operating system chooses, and prints
`PORT <number>` when it is ready. The endpoint is `/mcp`. Since 2026-07-28 a server answers a call with its elicitation
and is called again; an older server sends the elicitation during the call.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from typing import Annotated, Any

import uvicorn
from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp.types import ElicitRequest, ElicitRequestURLParams, InputRequiredResult, ToolAnnotations
from pydantic import BaseModel, Field

PAGE = "https://pay.example.com/c/7f3a?for=K7P2"
STATE = "where the payment stands"
server = MCPServer("travel", version="1.0.0", log_level="ERROR")


class Trip(BaseModel):
    """Fields of a booking."""

    seats: int = Field(title="Seats", ge=1)
    note: str = Field("", title="A note for the guard")


async def ask_how_many(train: str) -> Elicit[Trip]:
    """Ask for the fields of a train booking."""
    return Elicit(f"The {train} has seats left. How many?", Trip)


@server.tool(annotations=ToolAnnotations(title="Book train"))
async def book(train: str, trip: Annotated[ElicitationResult[Trip], Resolve(ask_how_many)]) -> str:
    """Book seats on a train."""
    match trip:
        case AcceptedElicitation(data=data):
            return f"Booked {data.seats} on the {train}. Note: {data.note or 'none'}."
        case _:
            return f"Nothing was booked: {trip.action}."


@server.tool(annotations=ToolAnnotations(title="Pay"), structured_output=False)
async def pay(ctx: Context) -> str | InputRequiredResult:
    """Pay for a booking, on the bank's own page."""
    message = "Confirm the payment with your bank."
    if str(ctx.protocol_version) < "2026":
        return f"The payment: {(await ctx.elicit_url(message, PAGE, 'e1')).action}."
    if ctx.input_responses is None:
        elicit_request = ElicitRequest(params=ElicitRequestURLParams(message=message, url=PAGE, elicitation_id="e1"))
        return InputRequiredResult(input_requests={"page": elicit_request}, request_state=STATE)
    assert ctx.request_state == STATE
    return f"The payment: {getattr(ctx.input_responses['page'], 'action', '')}."


class Older:
    """The application as it was before servers could be discovered."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        asked = json.loads(body)
        if asked.get("method") == "server/discover":
            error = {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "Method not found"}}
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": json.dumps(error).encode()})
            return
        read = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Any:
            return read.pop() if read else await receive()

        await self._app(scope, again, send)


async def main(era: str) -> None:
    """Serve until killed."""
    app = server.streamable_http_app()
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(Older(app) if era == "older" else app, log_level="critical", timeout_graceful_shutdown=1)
    program = uvicorn.Server(config)
    serving = asyncio.create_task(program.serve(sockets=[listener]))
    while not program.started and not serving.done():
        await asyncio.sleep(0.01)
    sys.stdout.write(f"PORT {listener.getsockname()[1]}\n")
    sys.stdout.flush()
    await serving


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
