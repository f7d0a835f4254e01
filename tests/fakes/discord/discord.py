"""The fake Discord as a test drives it. The package's docstring shows how."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from tests.fakes.clock import Clock
from tests.fakes.discord.apps import App
from tests.fakes.discord.calls import CallLog
from tests.fakes.discord.faults import Fault
from tests.fakes.discord.interactions import Interaction, Modal
from tests.fakes.discord.limits import Limits
from tests.fakes.discord.messages import SYSTEM, Message
from tests.fakes.discord.pace import Pace
from tests.fakes.discord.people import User
from tests.fakes.discord.places import Channel
from tests.fakes.discord.rest import PREFIX, Rest
from tests.fakes.discord.routes import ROUTES
from tests.fakes.discord.server import Server
from tests.fakes.discord.snowflakes import Snowflakes
from tests.fakes.discord.state import DiscordState
from tests.fakes.discord.user_actions import UserActions
from tests.fakes.discord.visible_state import VisibleState, previews, sights


class FakeDiscord(UserActions):
    """`async with FakeDiscord() as discord`: one app, in one guild until `another_guild` adds others."""

    def __init__(self, *, message_content: bool = True, guild_members: bool = False) -> None:
        clock = Clock()
        ids, limits = Snowflakes(clock), Limits()
        bot = User(ids.new(), "Countersign", bot=True)
        app = App(bot.id, bot, f"{bot.id}.fake.token", message_content=message_content, guild_members=guild_members)
        super().__init__(DiscordState(clock, app, limits, Pace(clock), ids, users={bot.id: bot}))
        self._rest = Rest(self.world)
        self._server = Server(self.world, self._rest, self.gateway)

    async def __aenter__(self) -> FakeDiscord:
        await self._server.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.close()
        if error is None and self.world.broken:
            raise self.world.broken[0]
        if error is None and self.world.unknown:
            raise AssertionError(f"the fake was asked for what it does not know: {self.world.unknown}")

    @property
    def url(self) -> str:
        """Value of DISCORD_API_URL; ends with /api/v10."""
        return f"{self.world.base}{PREFIX}"

    @property
    def token(self) -> str:
        """Value of DISCORD_TOKEN."""
        return self.app.token

    @property
    def clock(self) -> Clock:
        """The time of this Discord."""
        return self.world.clock

    @property
    def calls(self) -> CallLog:
        """Every call of the REST API."""
        return self.world.calls

    @property
    def pace(self) -> Pace:
        """The rate limits."""
        return self.world.pace

    @property
    def limits(self) -> Limits:
        """Lifetimes and sizes a test may make smaller."""
        return self.world.limits

    @property
    def unknown(self) -> list[str]:
        """Requests that the fake does not know; closing raises for them unless a test clears the list."""
        return self.world.unknown

    @property
    def interactions(self) -> list[Interaction]:
        """All interactions of users, oldest first."""
        return list(self.world.interactions.values())

    def close_modal(self, user: User) -> None:
        """Close the modal that a user has open. The app gets no event."""
        del self.modals[user.id]

    # Visible state

    def what_user_sees(self, user: User, channel: Channel) -> list[VisibleState]:
        """Return the messages that the user sees now, including their ephemeral ones."""
        return sights(self.world, user, channel.id)

    def modal(self, user: User) -> Modal:
        """Return the modal that a user has open. Raises LookupError without one."""
        if user.id not in self.modals:
            raise LookupError(f"{user.name} has no modal open")
        return self.modals[user.id]

    def reload(self, user: User) -> None:
        """Restart the client of a user, without its ephemeral messages and its modal."""
        self.modals.pop(user.id, None)
        for kept in self.world.messages.values():
            for message in kept.values():
                message.deleted = message.deleted or message.ephemeral_to == user.id

    def bot_messages(self, channel: Channel) -> list[Message]:
        """Return the app's own messages in a channel or thread, in order, with ephemeral ones and without system
        messages.
        """
        kept = self.world.messages.get(channel.id, {}).values()
        mine = [m for m in kept if m.author is self.bot and not m.deleted and m.type not in SYSTEM]
        return sorted(mine, key=lambda message: int(message.id))

    def threads(self, parent: Channel) -> list[Channel]:
        """Return the threads of a channel, oldest first."""
        return [c for c in self.world.channels.values() if c.parent is parent and not c.deleted]

    def typing(self, channel: Channel) -> bool:
        """Is the app shown as typing?"""
        since = self.world.typing.get(channel.id)
        return since is not None and self.world.now() < since + self.limits.typing

    def notified_ids(self, message: Message) -> set[str]:
        """Ids of users and roles, 'everyone' and 'here' that a message has notified, edits included."""
        return set(message.pings)

    def fetched_addresses(self, message: Message) -> set[str]:
        """Which addresses a message makes Discord fetch for a preview."""
        return previews(message, self.world)

    async def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait until something is so.

        Raises:
            TimeoutError: it was not within these seconds of real time.
        """
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)

    # Trouble

    def fail(self, route: str, fault: Fault, times: int = 1) -> None:
        """Let the next calls of a route meet a fault; routes are named as in 'POST /channels/{channel}/messages'."""
        assert route in ROUTES, f"no such route; there are {sorted(ROUTES)}"
        self.world.faults.plan(route, fault, times)

    async def go_down(self) -> None:
        """Close the port and every connection; `come_back` opens the same port again."""
        await self._server.close()

    async def come_back(self) -> None:
        """Open the port again after `go_down`."""
        await self._server.open()
