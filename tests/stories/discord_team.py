"""A team on a Discord server: the fake Discord, the real discord.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.chat.context import Lookups
from bot.chat.users import AudiencePolicy
from bot.domain.conversations import ConversationKey
from bot.platforms.discord.app import open_discord
from bot.platforms.discord.listener import DiscordListener
from bot.platforms.discord.rest import conversation
from bot.ports import Listener, Surface
from bot.storage.turn_log.log import SqlTurnLog
from tests.fakes.discord import Channel, Fails, FakeDiscord, Message, Permission, TooMany, User
from tests.fakes.discord.components import BUTTON
from tests.platforms.fake_engine import SharedLeases
from tests.stories.team import PATIENCE, File, Talk, Team

SUPPRESS_NOTIFICATIONS = 1 << 12
"""Among the flags of a message."""


@dataclass(kw_only=True)
class DiscordTeam(Team):
    """Priya and Sam in #incidents."""

    discord: FakeDiscord
    channel: Channel
    leases: SharedLeases = field(default_factory=SharedLeases)
    processes: int = 0
    tells_time_zones: bool = False

    def person(self, name: str, *, admin: bool = False) -> User:
        return self.discord.user(name, admin=admin)

    def stranger(self, name: str) -> User:
        return self.discord.user(name, admin=True, pending=True)

    def group(self, name: str, *members: User) -> str:
        return f"discord-role:{self.discord.role(name, *members, mentionable=True).id}"

    def tell_members(self) -> None:
        self.discord.app.guild_members = True

    def leave(self, group: str, member: User) -> None:
        self.discord.take(member, self.discord.guild.roles[group.partition(":")[2]])

    def part(self, person: User) -> None:
        self.discord.leave(person)

    def principal(self, person: User) -> str:
        return f"discord:{person.id}"

    def localize(self, person: User, language: str, time_zone: str) -> None:
        person.locale = language

    def another_channel(self, name: str) -> Channel:
        return self.discord.channel(name)

    def ask(
        self, text: str, *, by: User | None = None, where: Channel | None = None, files: Iterable[File] = ()
    ) -> Talk:
        said = f"{self.discord.bot.mention} {text}"
        return Talk(self.discord.say(by or self.priya, where or self.channel, said, files=files))

    def remark(self, text: str, *, by: User) -> Talk:
        return Talk(self.discord.say(by, self.channel, text))

    def ask_below(self, talk: Talk, text: str, *, by: User | None = None) -> Talk:
        return Talk(self.discord.reply(by or self.priya, talk.question, f"{self.discord.bot.mention} {text}"))

    def go_on(self, talk: Talk, text: str, *, by: User | None = None) -> None:
        self.discord.say(by or self.priya, self._place(talk), text)

    @property
    def mention(self) -> str:
        return self.discord.bot.mention

    def edit(self, talk: Talk, text: str) -> None:
        self.discord.edit(talk.question, f"{self.mention} {text}")

    def ask_directly(self, text: str) -> Talk:
        return Talk(self.discord.say(self.priya, self.discord.dm(self.priya), text))

    async def press(self, person: User, message: Message, label: str, *, old: Any = None) -> None:
        shown = old if old is not None else self.screen(message)
        name = next(custom_id for said, custom_id in shown if said.startswith(label))
        pressed = await self.discord.press(person, message, name, hidden=old is not None)
        if name.startswith("cs:ask:"):  # Slack's fake confirms its dialog by itself
            await self.discord.until(lambda: pressed.messages)
            if _buttons(pressed.messages[-1]):
                await self.discord.press(person, pressed.messages[-1], self.label("Approve"))

    async def press_opened(self, person: User, label: str) -> None:
        await self.press(person, await self.sees(person, label), label)

    def screen(self, message: Message) -> Any:
        return [(button.get("label", ""), button.get("custom_id", "")) for button in _buttons(message)]

    async def fill_in(self, person: User, fields: Mapping[str, str]) -> None:
        await self.discord.submit(person, fields)

    async def fill_in_again(self, person: User, fields: Mapping[str, str]) -> None:
        again = await self.sees(person, "Correct it")
        await self.press(person, again, "Correct it")
        await self.fill_in(person, fields)

    async def rate(self, person: User, message: Message, *, good: bool) -> None:
        wanted = "👍" if good else "👎"
        (button,) = [each for each in _buttons(message) if each.get("emoji", {}).get("name") == wanted]
        await self.discord.press(person, message, button["custom_id"])

    async def command(self, person: User, path: str, **values: str) -> None:
        name = path.partition(" ")[0]
        await self.until(lambda: name in [command["name"] for command in self.discord.app.commands.get("", [])])
        await self.discord.command(person, path, self.channel, values)

    async def open_list(self, person: User) -> None:
        await self.until(lambda: "approvals" in [command["name"] for command in self.discord.app.commands.get("", [])])
        await self.discord.command(person, "approvals list", self.channel)

    def conversation(self, talk: Talk) -> ConversationKey:
        place = self._place(talk)
        if place.parent is not None:
            return conversation(self.discord.guild.id, place.parent.id, place.id)
        return conversation(self.discord.guild.id, place.id, "")

    def messages(self, talk: Talk) -> list[Message]:
        return [message for message in self.discord.bot_messages(self._place(talk)) if not message.ephemeral_to]

    def messages_in(self, channel: Channel) -> list[Message]:
        return [message for message in self.discord.bot_messages(channel) if not message.ephemeral_to]

    def direct(self, person: User) -> Channel:
        return self.discord.dm(person)

    def place(self, channel: Channel) -> str:
        return f"discord:{self.discord.guild.id}:{channel.id}"

    def words(self, message: Message) -> str:
        reader = self.discord.world.users.get(message.ephemeral_to, self.sam)
        if message.channel.guild is None:
            reader = message.channel.recipients[0]
        seen = self.discord.what_user_sees(reader, message.channel)
        return next((each.words for each in seen if each.id == message.id), "")

    def buttons(self, message: Message) -> list[str]:
        return [label for button in _buttons(message) if (label := button.get("label", ""))]

    def files(self, talk: Talk) -> list[File]:
        return [(file.name, file.content) for message in self.messages(talk) for file in message.files]

    def private_replies(self, person: User) -> list[str]:
        here = self.alone(person)
        return [_all_text(each) for each in (*here, *self.discord.bot_messages(self.discord.dm(person)))]

    def alone(self, person: User) -> list[Message]:
        posted = [message for place in self._places() for message in self.discord.bot_messages(place)]
        return [message for message in posted if message.ephemeral_to == person.id]

    def last_private_reply(self, person: User) -> str:
        last = [interaction for interaction in self.discord.interactions if interaction.user is person][-1:]
        return "\n".join(_all_text(message) for asked in last for message in asked.messages)

    def notifying_mentions(self) -> set[str]:
        return set().union(
            *(
                self.discord.notified_ids(message)
                for place in self._places()
                for message in self.discord.bot_messages(place)
            )
        )

    def notified_ids(self, message: Message) -> set[str]:
        return self.discord.notified_ids(message)

    def fetched_addresses(self) -> set[str]:
        places = (*self._places(), self.discord.dm(self.priya))
        return set().union(
            *(
                self.discord.fetched_addresses(message)
                for place in places
                for message in self.discord.bot_messages(place)
            )
        )

    async def until(self, condition: Callable[[], object], seconds: float = PATIENCE) -> None:
        await self.discord.until(condition, seconds)

    def sent_text(self) -> str:
        return "\n".join(str(call.body) for call in self.discord.calls)

    notifies_always = False

    def posts(self) -> int:
        return len(self._posts())

    def loud_posts(self) -> int:
        return sum(not call.body.get("flags", 0) & SUPPRESS_NOTIFICATIONS for call in self._posts())

    def _posts(self) -> list[Any]:
        return self.discord.calls.of("POST /channels/{channel}/messages")

    def failed_calls(self) -> list[Any]:
        return self.discord.calls.failed_calls()

    def unacknowledged_actions(self) -> list[Any]:
        return [interaction for interaction in self.discord.interactions if interaction.answered is None]

    def is_taken(self, talk: Talk) -> bool:
        return bool(self.messages(talk))  # Discord is not told; people see it

    async def deliver_again(self, talk: Talk) -> None:
        for _ in range(3):
            self.discord.again(talk.question)

    def keep_to_limits(self) -> None:
        self.discord.pace.strict = True

    def limit_next_reads(self) -> None:
        self.discord.fail("GET /channels/{channel}/messages", TooMany(0.1))

    def refuse_next(self) -> None:
        self.discord.fail("POST /channels/{channel}/messages", Fails(50013))

    def forbid(self, talk: Talk) -> None:
        place = self._place(talk)
        denied = (Permission.SEND_MESSAGES, Permission.SEND_MESSAGES_IN_THREADS)
        (place.parent or place).forbid(self.discord.bot, *denied)

    def shut_out(self, talk: Talk) -> None:
        place = self._place(talk)
        (place.parent or place).forbid(self.discord.bot, Permission.VIEW_CHANNEL)

    def close(self, talk: Talk) -> None:
        self.discord.remove(self._place(talk))

    def close_channel(self, channel: Channel) -> None:
        self.discord.remove(channel)

    @property
    def connections(self) -> int:
        return self.discord.gateway.identify_count

    @property
    def stands_by(self) -> bool:
        return bool(self.leases.held and self.discord.gateway.live)

    def _credentials(self) -> Iterable[str]:
        return "discord", self.discord.url, self.discord.token

    async def _platform(self, stack: AsyncExitStack, log: SqlTurnLog) -> tuple[Surface, Listener]:
        office = await stack.enter_async_context(open_discord(self.discord.token, url=self.discord.url))
        self.processes += 1
        listener = DiscordListener(
            office.rest,
            office.people,
            self.leases,
            f"process {self.processes}",
            audience=AudiencePolicy(),
            records=Lookups(
                opinion=self._keep_opinion,
                approval=log.get_approval,
                pending_calls=self._reader(log, office.surface).read,
                locales=self.locales,
            ),
        )
        return office.surface, listener

    def _place(self, talk: Talk) -> Channel:
        place: Channel = talk.question.thread or talk.question.channel
        return place

    def _places(self) -> list[Channel]:
        return [self.channel, *self.discord.threads(self.channel)]


@asynccontextmanager
async def a_discord_team(folder: Path) -> AsyncIterator[DiscordTeam]:
    """Open the team without a running bot."""
    async with FakeDiscord() as discord:
        discord.pace.strict = False
        priya, sam = discord.user("Priya"), discord.user("Sam", admin=True)
        channel = discord.channel("incidents")
        yield DiscordTeam(database=folder / "turns.db", priya=priya, sam=sam, discord=discord, channel=channel)


def _walk(components: list[Any]) -> list[Any]:
    inner = [each for component in components for each in _walk(component.get("components", []))]
    return [*components, *inner]


def _buttons(message: Message) -> list[Any]:
    return [each for each in _walk(message.components) if each.get("type") == BUTTON]


def _all_text(message: Message) -> str:
    return " ".join([message.content, *(str(each.get("content") or "") for each in _walk(message.components))])
