"""A Slack workspace with the bot: the fake Slack, the real SDKs, and a scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field

from bot.chat.context import Lookups
from bot.chat.listener_leases import ListenerLease
from bot.chat.users import AudiencePolicy
from bot.domain.turns import TurnView
from bot.platforms.slack.app import SlackSurface
from bot.platforms.slack.listener import SlackListener
from bot.platforms.slack.rate_limits import RateLimiter
from bot.platforms.slack.sending import Streaming
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import WebApi
from bot.platforms.slack.workspaces import SlackWorkspace, SlackWorkspaces
from tests.fakes.slack import Channel, FakeSlack, Message, User
from tests.platforms.fake_engine import FakeEngine, ScriptedCommands, SharedLeases


@dataclass
class ConnectedBot:
    """The fake, the connected bot and its parts."""

    slack: FakeSlack
    api: WebApi
    people: UserDirectory
    engine: FakeEngine
    commands: ScriptedCommands
    surface: SlackSurface
    priya: User
    channel: Channel
    listener: SlackListener
    workspaces: SlackWorkspaces
    listening: asyncio.Task[None] | None = None
    refs: dict[str, dict[str, str]] = field(default_factory=dict)

    async def draw(self, view: TurnView, surface: SlackSurface | None = None) -> dict[str, str]:
        """Deliver a view as the engine does, and keep its message refs."""
        refs = self.refs.setdefault(view.turn.id, {})
        async for drawn in (surface or self.surface).deliver(view, refs):
            refs[drawn.slot] = drawn.ref
        return refs

    def bot_posts(self, channel: Channel | None = None, thread: str | None = None) -> list[Message]:
        """Return the bot's messages, without ephemeral messages."""
        return [
            message for message in self.slack.bot_messages(channel or self.channel, thread) if not message.ephemeral_to
        ]

    def whispers(self, user: User, channel: Channel | None = None) -> list[str]:
        """Return the ephemeral messages to this user."""
        posted = self.slack.bot_messages(channel or self.channel)
        return [message.text for message in posted if message.ephemeral_to == user.id]

    async def wait_for_responses(self) -> None:
        """Wait until each event of the fake has its response."""
        await self.slack.until(lambda: all(each.settled.is_set() for each in self.slack.sent_deliveries))


@asynccontextmanager
async def connected_bot(
    *,
    listening: bool = True,
    audience: AudiencePolicy | None = None,
    groups: frozenset[str] = frozenset(),
    answers: Sequence[Sequence[object]] = (),
    streaming: Streaming = Streaming.DIRECT,
    records: Lookups | None = None,
) -> AsyncIterator[ConnectedBot]:
    """A workspace with Priya in #incidents. The listener runs in Socket Mode."""
    async with AsyncExitStack() as stack:
        slack = await stack.enter_async_context(FakeSlack())
        priya = slack.user("Priya")
        channel = slack.channel("incidents", priya)
        pacing = RateLimiter(clock=slack.clock.now, pause=_passing(slack))
        api = await stack.enter_async_context(WebApi(slack.bot_token, url=slack.url, pacing=pacing))
        people = UserDirectory(api, groups)
        engine, commands = FakeEngine(), ScriptedCommands(*answers)  # type: ignore[arg-type]
        engine.clock, leases = slack.clock.now, SharedLeases()
        workspaces = SlackWorkspaces(SlackWorkspace(api, people))
        listener = SlackListener(
            workspaces,
            api,
            app_token=slack.app.app_token,
            audience=audience,
            records=records,
            backfill_lease=lambda name: ListenerLease(leases, name, "one", "backfill"),
            clock=slack.clock.now,
        )
        place = ConnectedBot(
            slack,
            api,
            people,
            engine,
            commands,
            SlackSurface(workspaces, streaming=streaming),
            priya,
            channel,
            listener,
            workspaces,
        )
        if listening:
            place.listening = asyncio.create_task(listener.run(engine, commands))
            stack.push_async_callback(_cancel_task, place.listening)
            connected = asyncio.ensure_future(slack.sockets.wait_for_connections())
            await asyncio.wait({place.listening, connected}, return_when=asyncio.FIRST_COMPLETED)
            if place.listening.done():
                connected.cancel()
                place.listening.result()
            await connected
        yield place


def _passing(slack: FakeSlack) -> Callable[[float], Awaitable[None]]:
    """Advance the fake clock instead of a sleep."""

    async def pause(seconds: float) -> None:
        slack.clock.advance(seconds)

    return pause


async def _cancel_task(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
