"""Senders of a load: Slack, Discord and the HTTP API.

On Slack and Discord (the fakes of the tests) users send messages without waiting. An API client sends the next
message of a conversation when the previous one is accepted. Some messages are sent twice: platforms redeliver, and
clients retry.
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
"""Slack's pause before its third delivery, in seconds."""
IDLE_SECONDS = 300.0
ASKING_SECONDS = 120.0
"""Seconds for which an API client retries after its connection breaks."""
ADMIN_TOKEN = "the-operators-own-token-of-the-load"  # noqa: S105 - used by this load only


@dataclass(kw_only=True)
class Way(ABC):
    """One sender. `sent` are the messages by label, with their time in epoch seconds; `twice` counts repeated ones."""

    name: str
    conversations: int
    sent: dict[str, float] = field(default_factory=dict)
    twice: int = 0

    def label(self, conversation: int, n: int) -> str:
        """Return the label of a message."""
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
        """Settings of the program for this platform."""

    @abstractmethod
    async def _say(self, conversation: int, label: str, *, twice: bool) -> None:
        """Send a message, twice if asked."""

    @abstractmethod
    async def begun(self) -> None:
        """Wait until the conversations of the first messages exist."""

    @abstractmethod
    async def settled(self) -> None:
        """Wait until no delivery is pending."""

    @property
    def came_twice(self) -> int:
        """Number of messages that were delivered more than once."""
        return self.twice

    @property
    @abstractmethod
    def acknowledged(self) -> list[float] | None:
        """Seconds from sending each message to its acknowledgement; None on a platform without one."""

    @abstractmethod
    async def shown(self, conversation: int) -> list[str]:
        """Return the labels of the answers visible in a conversation, from top to bottom."""


@dataclass(kw_only=True)
class SlackWay(Way):
    """Threads in channels of the fake Slack, each with a user of its own."""

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
            self.slack.post.again(self.slack.sent_deliveries[-1])

    async def begun(self) -> None:
        """Return at once: a thread exists with its first message."""

    async def settled(self) -> None:
        """Deliver again the events without acknowledgement, as Slack does a minute later."""
        self.slack.clock.advance(RETRY_SECONDS)
        await self.slack.post.idle(IDLE_SECONDS)

    @property
    def acknowledged(self) -> list[float]:
        """Seconds of all attempts of each event, without Slack's pauses. A mention has two events."""
        return [sum(attempt.seconds for attempt in event.attempts) for event in self._events() if event.is_acknowledged]

    @property
    def came_twice(self) -> int:
        return sum(len(event.attempts) > 1 for event in self._events())

    def _events(self) -> list[Delivery]:
        """Return the events of users. Slack also sends the bot's own messages."""
        people = {each.id for each in self._people}
        return [each for each in self.slack.sent_deliveries if each.event.get("user") in people]

    async def shown(self, conversation: int) -> list[str]:
        root, channel = self._roots[conversation], self._channels[conversation // A_CHANNEL]
        return _answered(f"{message.text} {message.blocks}" for message in self.slack.bot_messages(channel, root.ts))


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
        """Wait until the bot has opened the threads."""
        await self.discord.until(lambda: all(each.thread for each in self._first.values()), THREAD_SECONDS)

    async def settled(self) -> None:
        """Return at once: there are no later deliveries."""

    @property
    def acknowledged(self) -> None:
        """Discord has no acknowledgement."""

    async def shown(self, conversation: int) -> list[str]:
        thread = self._first[conversation].thread
        assert thread is not None
        return _answered(f"{message.content} {message.components}" for message in self.discord.bot_messages(thread))


@dataclass(kw_only=True)
class HttpWay(Way):
    """Conversations of one token over the HTTP API, each on a connection of its own."""

    _client: httpx2.AsyncClient = field(default_factory=httpx2.AsyncClient)
    _seconds: list[float] = field(default_factory=list)

    async def meet(self, port: int) -> None:
        """Set the port of the program."""
        await self._client.aclose()
        self._client = httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
            limits=httpx2.Limits(max_connections=self.conversations),
            timeout=120,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    @property
    def environment(self) -> dict[str, str]:
        # One token stands for many users here.
        limits = {
            "MAX_RUNNING_TURNS_PER_USER": "1000",
            "MAX_QUEUED_TURNS_PER_USER": "100000",
            "API_REQUESTS_PER_TOKEN": "2000",
            "API_STREAMS_PER_TOKEN": "1000",
        }
        return {"ADMIN_API_TOKEN": ADMIN_TOKEN, "PORT": "0", **limits}

    async def _say(self, conversation: int, label: str, *, twice: bool) -> None:
        self._seconds.append(await self._ask(conversation, label))
        if twice:
            await self._ask(conversation, label)

    async def _ask(self, conversation: int, label: str) -> float:
        """Send a message until it is accepted. Return the seconds until then."""
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
        """Send a message and return when the response's status shows that it is accepted."""
        async with self._client.stream(
            "POST",
            "/api/responses/stream",
            headers={"Idempotency-Key": label},
            json={"conversationId": f"load-{conversation}", "payload": {"input": label}},
        ) as answer:
            if answer.status_code != 200:
                raise RuntimeError(f"{answer.status_code}: {(await answer.aread()).decode()}")

    async def begun(self) -> None:
        """Return at once: a conversation exists with its first message."""

    async def settled(self) -> None:
        """Return at once: there are no later deliveries."""

    @property
    def acknowledged(self) -> list[float]:
        """Seconds to the acknowledgement of every message."""
        return self._seconds

    async def shown(self, conversation: int) -> list[str]:
        answer = await self._client.get(f"/api/conversations/load-{conversation}")
        return _answered(each["content"] for each in answer.json()["messages"] if each["role"] == "ASSISTANT")


def _answered(texts: Any) -> list[str]:
    """Return the labels that messages answer, once for each message."""
    found = [dict.fromkeys(label for label in LABEL.findall(text) if ANSWER.format(label) in text) for text in texts]
    return [label for labels in found for label in labels]
