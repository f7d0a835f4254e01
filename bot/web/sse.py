"""Server-sent events for EventSource (HTML, "Server-sent events").

Comments at intervals keep proxies from closing an idle stream. A disconnect closes the source of the events.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Send

HEARTBEAT_SECONDS = 15.0
RETRY_MILLISECONDS = 2_000
"""Reconnect delay for clients in milliseconds."""
_LINE_BREAKS = {ord(character): f"\\u{ord(character):04x}" for character in "\x7f\x85\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event; `id` comes back as `Last-Event-ID`, empty for none."""

    name: str
    data: Mapping[str, Any]
    id: str = ""

    def encode(self) -> bytes:
        """Return the event in the format of the stream. Its JSON is one line, also for parsers that split lines at
        U+2028 and the like.
        """
        data = json.dumps(self.data, separators=(",", ":"), ensure_ascii=False).translate(_LINE_BREAKS)
        lines = [f"id: {self.id}"] if self.id else []
        lines += [f"event: {self.name}", f"data: {data}"]
        # A tool may have returned half a surrogate pair.
        return ("\n".join(lines) + "\n\n").encode("utf-8", "replace")


def stream_description(events: Sequence[Mapping[str, Any]]) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of a stream of these events. Their `data` is JSON."""
    schema = {"oneOf": list(events)}
    return {200: {"content": {"text/event-stream": {"schema": schema}}, "description": "A stream of events."}}


class EventStream(StreamingResponse):
    """Response that sends events until they end. Closes their source in any case."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[ServerEvent, None],
        heartbeat: float = HEARTBEAT_SECONDS,
        # FastAPI reads the status for its document here.
        status_code: int = 200,
    ) -> None:
        self._chunks = _chunks(events, heartbeat)
        super().__init__(self._chunks, status_code, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    async def stream_response(self, send: Send) -> None:
        """Send all events."""
        async with aclosing(self._chunks):
            await super().stream_response(send)


async def _chunks(events: AsyncGenerator[ServerEvent, None], heartbeat: float) -> AsyncGenerator[bytes, None]:
    async with aclosing(events):
        yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
        next_event: asyncio.Task[ServerEvent | None] | None = None
        try:
            while True:
                next_event = next_event or asyncio.create_task(_next(events), name="next event")
                done, _ = await asyncio.wait({next_event}, timeout=heartbeat)
                if not done:
                    yield b": still here\n\n"
                    continue
                event, next_event = next_event.result(), None
                if event is None:
                    return
                yield event.encode()
        finally:
            if next_event is not None:
                next_event.cancel()
                await asyncio.wait({next_event})


async def _next(events: AsyncIterator[ServerEvent]) -> ServerEvent | None:
    """Return the next event, None after the last."""
    async for event in events:
        return event
    return None
