"""Client of server-sent events: one connection, read event by event."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from bot.rendering.turn_events import EVENTS
from tests.turn_events import check_event
from tests.web.api_server import ADMIN_TOKEN

PATIENCE = 60.0


@dataclass(frozen=True)
class Told:
    name: str
    data: dict[str, Any]
    id: str


@dataclass
class Stream:
    """One connection. `seen` holds all events received so far."""

    answer: httpx2.Response
    seen: list[Told] = field(default_factory=list)
    _lines: AsyncIterator[str] | None = None

    @property
    def names(self) -> list[str]:
        """Names of the events so far. Consecutive pieces of a reply count once."""
        names: list[str] = []
        for each in self.seen:
            if not (names and names[-1] == each.name == "message"):
                names.append(each.name)
        return names

    @property
    def last_id(self) -> str:
        return next(each.id for each in reversed(self.seen) if each.id)

    async def next(self) -> Told | None:
        """Return the next event; None once the stream has ended."""
        if self._lines is None:
            self._lines = self.answer.aiter_lines()
        fields: dict[str, str] = {}
        async with asyncio.timeout(PATIENCE):
            async for line in self._lines:
                if not line and "event" in fields:
                    told = Told(fields["event"], json.loads(fields["data"]), fields.get("id", ""))
                    if told.name in EVENTS:
                        check_event({"event": told.name, "data": told.data, "id": told.id})
                    self.seen.append(told)
                    return told
                name, _, value = line.partition(": ")
                fields[name] = value
        return None

    async def until(self, name: str, wanted: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
        """Read until an event of this name matches `wanted`, and return its data."""
        while (told := await self.next()) is not None:
            if told.name == name and wanted(told.data):
                return told.data
        raise AssertionError(f"the stream ended without {name}: {self.names}")

    async def waiting(self) -> dict[str, Any]:
        """Return the state of the response that waits for an approval. A late client receives it in the first event."""
        told = [each.data for each in self.seen if each.name in ("init", "conversation_status")]
        known = next((each for each in told if each["waitingForApproval"]), None)
        return known or await self.until("conversation_status", lambda data: data["waitingForApproval"])

    async def read_to_end(self) -> list[Told]:
        """Read until the stream ends and return all events."""
        while await self.next() is not None:
            pass
        return self.seen


@asynccontextmanager
async def open_stream(
    client: httpx2.AsyncClient,
    method: str,
    path: str,
    *,
    token: str = ADMIN_TOKEN,
    headers: dict[str, str] | None = None,
    **more: Any,
) -> AsyncIterator[Stream]:
    """Send a request and yield the stream of its response."""
    sent = {"Authorization": f"Bearer {token}", **(headers or {})}
    async with client.stream(method, path, headers=sent, **more) as answer:
        yield Stream(answer)


@asynccontextmanager
async def open_reply_stream(
    client: httpx2.AsyncClient, text: str, conversation: str | None = None, **more: Any
) -> AsyncIterator[Stream]:
    """Send a message and yield the stream of its response."""
    body = {"conversationId": conversation, "payload": {"messages": [{"role": "user", "content": text}]}}
    async with open_stream(client, "POST", "/api/responses/stream", json=body, **more) as stream:
        assert stream.answer.status_code == 200, await stream.answer.aread()
        yield stream


def replies(seen: list[Told]) -> dict[str, str]:
    """Return the texts of the replies by their ids, joined from the pieces as a client joins them."""
    texts: dict[str, str] = {}
    for each in seen:
        if each.name == "message":
            known = texts.get(each.data["id"], "")
            assert each.data["offset"] in (0, len(known)), "a piece is missing"
            texts[each.data["id"]] = known[: each.data["offset"]] + each.data["delta"]
    return texts
