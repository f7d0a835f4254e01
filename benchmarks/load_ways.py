"""The three ways by which messages of the load reach the program: Slack, Discord and the HTTP API.

On Slack and Discord, which are the fakes of the tests, people write one message after the other and wait for nothing.
A program that uses the API sends the next message of a conversation when the one before is taken. Some messages come
twice: platforms deliver again, and programs that lost their answer ask again.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import httpx2

from benchmarks.load_program import ANSWER, LABEL
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord import Message as DiscordMessage
from tests.fakes.discord import User as DiscordUser
from tests.fakes.slack import FakeSlack
from tests.fakes.slack import Message as SlackMessage
from tests.fakes.slack import User as SlackUser
from tests.fakes.slack.deliveries import Delivery

A_CHANNEL = 10
"""Conversations in one channel."""
THREAD_SECONDS = 300.0
RETRY_SECONDS = 60.0
"""Slack's pause before it delivers for the third time."""
IDLE_SECONDS = 300.0
ASKING_SECONDS = 120.0
"""How long a program that uses the API asks again when its connection breaks."""
ADMIN_TOKEN = "the-operators-own-token-of-the-load"  # noqa: S105 - nobody else's


@dataclass(kw_only=True)
class Way(ABC):
    """One way. `sent` are the messages by label, with the moment in epoch seconds; `twice` counts those sent again."""

    name: str
    conversations: int
    sent: dict[str, float] = field(default_factory=dict)
    twice: int = 0

    def label(self, conversation: int, n: int) -> str:
        """What a message is known by."""
        return f"load-{self.name}-{conversation}-{n}"

    async def say(self, conversation: int, n: int, *, twice: bool) -> None:
        """Send the nth message of a conversation."""
        label = self.label(conversation, n)
        self.sent[label] = time.time()
        self.twice += twice
        await self._say(conversation, label, twice=twice)

    @property
    @abstractmethod
    def environment(self) -> dict[str, str]:
        """The settings by which the program is reached this way."""

    @abstractmethod
    async def _say(self, conversation: int, label: str, *, twice: bool) -> None:
        """Send it, and again if wanted."""

    @abstractmethod
    async def begun(self) -> None:
        """Wait until the conversations can be gone on with, of which the first message was sent."""

    @abstractmethod
    async def settled(self) -> None:
        """Wait until nothing is on its way any more."""

    @property
    def came_twice(self) -> int:
        """How many messages the program was told of more than once."""
        return self.twice

    @property
    @abstractmethod
    def acknowledged(self) -> list[float] | None:
        """Seconds from each message's sending to its acknowledgement; None where there is no such thing."""

    @abstractmethod
    async def shown(self, conversation: int) -> list[str]:
        """The labels of the answers as they stand in a conversation, from top to bottom."""


@dataclass(kw_only=True)
class SlackWay(Way):
    """Threads in channels of the fake Slack, each with a person of its own."""

    slack: FakeSlack
    _people: list[SlackUser] = field(default_factory=list)
    _channels: list[Any] = field(default_factory=list)
    _roots: dict[int, SlackMessage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.slack.pace.strict = False
        self._people = [self.slack.user(f"Person {n}") for n in range(self.conversations)]
        for first in range(0, self.conversations, A_CHANNEL):
            self._channels.append(self.slack.channel(f"load-{first}", *self._people[first : first + A_CHANNEL]))

    @property
    def environment(self) -> dict[str, str]:
        return {
            "SLACK_BOT_TOKEN": self.slack.bot_token,
            "SLACK_APP_TOKEN": self.slack.app.app_token,
            "SLACK_API_URL": self.slack.url,
        }

    async def _say(self, conversation: int, label: str, *, twice: bool) -> None:
        channel, root = self._channels[conversation // A_CHANNEL], self._roots.get(conversation)
        text = f"{self.slack.bot.mention} {label}"
        said = self.slack.say(self._people[conversation], channel, text, thread_ts=root.ts if root else None)
        self._roots.setdefault(conversation, said)
        if twice:
            await asyncio.sleep(0)
            self.slack.post.again(self.slack.sent[-1])

    async def begun(self) -> None:
        """A thread is there with its first message."""

    async def settled(self) -> None:
        """Slack tries once more, as it does a minute later, what it has heard nothing of."""
        self.slack.clock.advance(RETRY_SECONDS)
        await self.slack.post.idle(IDLE_SECONDS)

    @property
    def acknowledged(self) -> list[float]:
        """Of every event, and there are two for a mention: what its attempts took, without Slack's pauses between."""
        return [sum(attempt.seconds for attempt in each.attempts) for each in self._events() if each.acknowledged]

    @property
    def came_twice(self) -> int:
        return sum(len(each.attempts) > 1 for each in self._events())

    def _events(self) -> list[Delivery]:
        """What people said; Slack tells the bot of its own messages, too."""
        people = {each.id for each in self._people}
        return [each for each in self.slack.sent if each.event.get("user") in people]

    async def shown(self, conversation: int) -> list[str]:
        root, channel = self._roots[conversation], self._channels[conversation // A_CHANNEL]
        return _answered(f"{each.text} {each.blocks}" for each in self.slack.posted(channel, root.ts))


@dataclass(kw_only=True)
class DiscordWay(Way):
    """Threads that the bot opens in channels of the fake Discord."""

    discord: FakeDiscord
    _people: list[DiscordUser] = field(default_factory=list)
    _channels: list[Any] = field(default_factory=list)
    _first: dict[int, DiscordMessage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.discord.pace.strict = False
        self._people = [self.discord.user(f"Person {n}") for n in range(self.conversations)]
        self._channels = [self.discord.channel(f"load-{n}") for n in range(0, self.conversations, A_CHANNEL)]

    @property
    def environment(self) -> dict[str, str]:
        return {"DISCORD_TOKEN": self.discord.token, "DISCORD_API_URL": self.discord.url}

    async def _say(self, conversation: int, label: str, *, twice: bool) -> None:
        first = self._first.get(conversation)
        place: Any = self._channels[conversation // A_CHANNEL] if first is None else first.thread
        text = f"{self.discord.bot.mention} {label}"
        said = self.discord.say(self._people[conversation], place, text)
        self._first.setdefault(conversation, said)
        if twice:
            await asyncio.sleep(0)
            self.discord.again(said)

    async def begun(self) -> None:
        """The bot has opened the threads."""
        await self.discord.until(lambda: all(each.thread for each in self._first.values()), THREAD_SECONDS)

    async def settled(self) -> None:
        """Nothing comes by itself."""

    @property
    def acknowledged(self) -> None:
        """Discord asks for no acknowledgement."""

    async def shown(self, conversation: int) -> list[str]:
        thread = self._first[conversation].thread
        assert thread is not None
        return _answered(f"{each.content} {each.components}" for each in self.discord.posted(thread))


@dataclass(kw_only=True)
class HttpWay(Way):
    """Conversations of one token over the HTTP API, each on a connection of its own."""

    _client: httpx2.AsyncClient = field(default_factory=httpx2.AsyncClient)
    _seconds: list[float] = field(default_factory=list)

    async def meet(self, port: int) -> None:
        """From now on the program is there."""
        await self._client.aclose()
        self._client = httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
            limits=httpx2.Limits(max_connections=self.conversations),
            timeout=120,
        )

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.aclose()

    @property
    def environment(self) -> dict[str, str]:
        # One token stands for many people here.
        limits = {"MAX_RUNNING_TURNS_PER_USER": "1000", "MAX_QUEUED_TURNS_PER_USER": "100000"}
        return {"ADMIN_API_TOKEN": ADMIN_TOKEN, "PORT": "0", **limits}

    async def _say(self, conversation: int, label: str, *, twice: bool) -> None:
        self._seconds.append(await self._ask(conversation, label))
        if twice:
            await self._ask(conversation, label)

    async def _ask(self, conversation: int, label: str) -> float:
        """Ask until it is taken; seconds until then."""
        began = time.perf_counter()
        while True:
            try:
                await self._ask_once(conversation, label)
            except httpx2.TransportError:
                self.twice += 1
                if time.perf_counter() - began > ASKING_SECONDS:
                    raise
            else:
                return time.perf_counter() - began

    async def _ask_once(self, conversation: int, label: str) -> None:
        """Ask, and leave when it is taken: the answer's head says so."""
        async with self._client.stream(
            "POST",
            "/api/responses/stream",
            headers={"Idempotency-Key": label},
            json={"conversationId": f"load-{conversation}", "payload": {"input": label}},
        ) as answer:
            if answer.status_code != 200:
                raise RuntimeError(f"{answer.status_code}: {(await answer.aread()).decode()}")

    async def begun(self) -> None:
        """A conversation is there with its first message."""

    async def settled(self) -> None:
        """Nothing comes by itself."""

    @property
    def acknowledged(self) -> list[float]:
        """Of every message."""
        return self._seconds

    async def shown(self, conversation: int) -> list[str]:
        answer = await self._client.get(f"/api/conversations/load-{conversation}")
        return _answered(each["content"] for each in answer.json()["messages"] if each["role"] == "ASSISTANT")


def _answered(texts: Any) -> list[str]:
    """The labels that messages answer, each once for a message."""
    found = [dict.fromkeys(label for label in LABEL.findall(text) if ANSWER.format(label) in text) for text in texts]
    return [label for labels in found for label in labels]
