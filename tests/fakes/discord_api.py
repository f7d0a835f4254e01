"""Plain HTTP to the fake Discord, for tests of the fake itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientSession, FormData

from tests.fakes.discord import Channel, FakeDiscord, Interaction, Message


@dataclass(frozen=True)
class Said:
    """What Discord answered."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def refusal(self) -> tuple[int, int]:
        """Status and code of a refusal; the code is 0 if it was none."""
        return self.status, self.body.get("code", 0) if isinstance(self.body, dict) else 0

    @property
    def errors(self) -> dict[str, str]:
        """The codes of a refused form's errors, by the path of the field."""
        return dict(_flat("", self.body.get("errors", {})))


class DiscordApi:
    """Calls as the bot makes them."""

    def __init__(self, discord: FakeDiscord, session: ClientSession) -> None:
        self.discord, self._session = discord, session

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        files: Iterable[tuple[str, bytes]] = (),
        token: str | None = None,
    ) -> Said:
        """One call; with files it is multipart, as discord.py sends it."""
        headers = {"Authorization": f"Bot {self.discord.token if token is None else token}"}
        data: Any = None
        if files:
            data = FormData(quote_fields=False)
            data.add_field("payload_json", json.dumps(body or {}), content_type="application/json")
            for n, (name, content) in enumerate(files):
                data.add_field(f"files[{n}]", content, filename=name, content_type="application/octet-stream")
        elif body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        url = self.discord.url + path
        async with self._session.request(method, url, data=data, headers=headers, params=query or {}) as answer:
            text = await answer.text()
            read = json.loads(text) if answer.headers.get("Content-Type") == "application/json" else text
            return Said(answer.status, read, answer.headers)

    async def post(self, channel: Channel, body: Any, files: Iterable[tuple[str, bytes]] = ()) -> Said:
        """Post a message."""
        return await self.call("POST", f"/channels/{channel.id}/messages", body, files=files)

    async def posted(self, channel: Channel, content: str = "hello") -> Message:
        """Post a message that must be taken."""
        said = await self.post(channel, {"content": content})
        assert said.status == 200, said
        return self.discord.posted(channel)[-1]

    async def edit(self, message: Message, body: Any) -> Said:
        """Change a message."""
        return await self.call("PATCH", f"/channels/{message.channel.id}/messages/{message.id}", body)

    async def answer(self, interaction: Interaction, kind: int, data: Any = None) -> Said:
        """Answer an interaction."""
        path = f"/interactions/{interaction.id}/{interaction.token}/callback"
        body = {"type": kind} | ({} if data is None else {"data": data})
        return await self.call("POST", path, body, token="", query={"with_response": "1"})

    async def follow(self, interaction: Interaction, method: str, body: Any = None, message: str = "") -> Said:
        """Use an interaction's token afterwards: on '@original', on a message's id, or to post a further message."""
        path = f"/webhooks/{self.discord.app.id}/{interaction.token}" + (f"/messages/{message}" if message else "")
        return await self.call(method, path, body, token="")


@asynccontextmanager
async def asked(discord: FakeDiscord, doing: Awaitable[Interaction]) -> AsyncIterator[Interaction]:
    """Somebody does something and waits until the test has answered, or has let it fail."""
    before = len(discord.interactions)
    task = asyncio.ensure_future(doing)
    await discord.until(lambda: len(discord.interactions) > before or task.done())
    yield discord.interactions[-1]
    await task


def _flat(where: str, errors: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, inner in errors.items():
        if name == "_errors":
            yield where.strip("."), inner[0]["code"]
        else:
            yield from _flat(f"{where}.{name}", inner)
