"""A team on the plain chat service: the fake service, and the platform of the tests."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.chat.context import Lookups
from bot.domain.conversations import ConversationKey
from bot.ports import Listener, Surface
from bot.storage.turn_log.log import SqlTurnLog
from tests.fakes.plain import POST, TOKEN, Channel, Fails, FakePlain, Message, User
from tests.platforms.plain.app import open_plain
from tests.stories.team import PATIENCE, File, Talk, Team


@dataclass(kw_only=True)
class PlainTeam(Team):
    """Priya and Sam in #incidents."""

    plain: FakePlain
    channel: Channel

    def person(self, name: str, *, admin: bool = False) -> User:
        return self.plain.user(name, admin=admin)

    def stranger(self, name: str) -> User:
        return self.plain.user(name, admin=True, external=True)

    def group(self, name: str, *members: User) -> str:
        for member in members:
            member.groups.add(name)
        return f"plain-group:{name}"

    def tell_members(self) -> None:
        """The service always does."""

    def leave(self, group: str, member: User) -> None:
        member.groups.discard(group.partition(":")[2])

    def part(self, person: User) -> None:
        person.left = True

    def principal(self, person: User) -> str:
        return f"plain:{person.id}"

    def localize(self, person: User, language: str, time_zone: str) -> None:
        person.language, person.time_zone = language, time_zone

    def another_channel(self, name: str) -> Channel:
        return self.plain.channel(name)

    def ask(
        self, text: str, *, by: User | None = None, where: Channel | None = None, files: Iterable[File] = ()
    ) -> Talk:
        mention = f"{self.plain.bot.mention} {text}"
        return Talk(self.plain.say(by or self.priya, where or self.channel, mention, files=files))

    def remark(self, text: str, *, by: User) -> Talk:
        return Talk(self.plain.say(by, self.channel, text))

    def ask_below(self, talk: Talk, text: str, *, by: User | None = None) -> Talk:
        mention = f"{self.plain.bot.mention} {text}"
        return Talk(self.plain.say(by or self.priya, talk.question.channel, mention, _thread(talk)))

    def go_on(self, talk: Talk, text: str, *, by: User | None = None) -> None:
        self.plain.say(by or self.priya, talk.question.channel, text, _thread(talk))

    @property
    def mention(self) -> str:
        return self.plain.bot.mention

    def edit(self, talk: Talk, text: str) -> None:
        self.plain.edit(talk.question, f"{self.mention} {text}")

    def ask_directly(self, text: str) -> Talk:
        return Talk(self.plain.say(self.priya, self.plain.dm(self.priya), text))

    async def press(self, person: User, message: Message, label: str, *, old: Any = None) -> None:
        commands = old if old is not None else message.commands
        command = next(command for name, command in commands if name.startswith(label))
        before = self.alone(person)
        await self.plain.press(person, message, command)
        if command.startswith("!ask:"):  # Slack's fake confirms its dialog by itself
            await self.until(lambda: len(self.alone(person)) > len(before))
            if confirmation := self.alone(person)[-1].commands:
                await self.plain.press(person, message, confirmation[0][1])

    async def press_opened(self, person: User, label: str) -> None:
        await self.press(person, await self.sees(person, label), label)

    def screen(self, message: Message) -> Any:
        return message.commands

    async def fill_in(self, person: User, fields: Mapping[str, str]) -> None:
        await self.until(lambda: self.plain.form(person))
        await self.plain.submit(person, fields)

    async def rate(self, person: User, message: Message, *, good: bool) -> None:
        await self.press(person, message, "👍" if good else "👎")

    async def command(self, person: User, path: str, **values: str) -> None:
        self.ask(" ".join((path, *values.values())), by=person)

    async def open_list(self, person: User) -> None:
        self.ask("approvals", by=person)

    def conversation(self, talk: Talk) -> ConversationKey:
        return ConversationKey("plain", self.plain.workspace, talk.question.channel.id, _thread(talk))

    def messages(self, talk: Talk) -> list[Message]:
        return self._public(talk.question.channel, _thread(talk))

    def messages_in(self, channel: Channel) -> list[Message]:
        return self._public(channel, "")

    def direct(self, person: User) -> Channel:
        return self.plain.dm(person)

    def place(self, channel: Channel) -> str:
        return f"plain:{self.plain.workspace}:{channel.id}"

    def words(self, message: Message) -> str:
        return "\n".join([message.text, *(label for label, _ in message.commands)])

    def buttons(self, message: Message) -> list[str]:
        return [label for label, _ in message.commands if label not in {"👍", "👎"}]

    def files(self, talk: Talk) -> list[File]:
        return [file for message in self.messages(talk) for file in message.files]

    def private_replies(self, person: User) -> list[str]:
        return [message.text for message in (*self.alone(person), *self.plain.bot_messages(self.plain.dm(person)))]

    def alone(self, person: User) -> list[Message]:
        return [message for message in self.plain.messages.values() if message.only_for == person.id]

    def last_private_reply(self, person: User) -> str:
        return "\n".join(message.text for message in self.alone(person)[-1:])

    def notifying_mentions(self) -> set[str]:
        return set().union(*(self.notified_ids(message) for message in self.plain.bot_messages(self.channel)))

    def notified_ids(self, message: Message) -> set[str]:
        groups = set(re.findall(r"@<&([\w-]+)>", message.text))
        return groups | {user.id for user in self.plain.users.values() if user.mention in message.text}

    def fetched_addresses(self) -> set[str]:
        return set()

    async def until(self, condition: Callable[[], object], seconds: float = PATIENCE) -> None:
        await self.plain.until(condition, seconds)

    def sent_text(self) -> str:
        return "\n".join(str(call.body) for call in self.plain.calls)

    def posts(self) -> int:
        return len(self.plain.calls.of(POST))

    def failed_calls(self) -> list[Any]:
        return self.plain.calls.failed_calls()

    def unacknowledged_actions(self) -> list[Any]:
        return [event for event in self.plain.events if not event.acknowledged.is_set()]

    def is_taken(self, talk: Talk) -> bool:
        return all(event.acknowledged.is_set() for event in self.plain.events if event.message is talk.question)

    async def deliver_again(self, talk: Talk) -> None:
        for _ in range(3):
            self.plain.again(talk.question)

    def keep_to_limits(self) -> None:
        """The service has no limits but those that a test sets."""

    def refuse_next(self) -> None:
        self.plain.fail(POST, Fails("forbidden"))

    def forbid(self, talk: Talk) -> None:
        talk.question.channel.read_only = True

    def shut_out(self, talk: Talk) -> None:
        talk.question.channel.closed = True

    def close(self, talk: Talk) -> None:
        talk.question.channel.closed = True

    def close_channel(self, channel: Channel) -> None:
        channel.closed = True

    @property
    def connections(self) -> int:
        return len(self.plain.sessions)

    def _credentials(self) -> Iterable[str]:
        return "plain", self.plain.url, TOKEN

    async def _platform(self, stack: AsyncExitStack, log: SqlTurnLog) -> tuple[Surface, Listener]:
        app = await stack.enter_async_context(open_plain(TOKEN, self.plain.url))
        lookups = Lookups(
            opinion=self._keep_opinion,
            approval=log.get_approval,
            pending_calls=self._reader(log, app.surface).read,
            locales=self.locales,
        )
        return app.surface, app.listener(lookups)

    def _public(self, channel: Channel, thread: str) -> list[Message]:
        return [message for message in self.plain.bot_messages(channel, thread) if not message.only_for]


def _thread(talk: Talk) -> str:
    question: Message = talk.question
    return question.thread or ("" if question.channel.direct_with is not None else question.id)


@asynccontextmanager
async def a_plain_team(folder: Path) -> AsyncIterator[PlainTeam]:
    """The team, with no process of the bot at work yet."""
    async with FakePlain() as plain:
        priya, sam = plain.user("Priya"), plain.user("Sam", admin=True)
        channel = plain.channel("incidents")
        yield PlainTeam(database=folder / "turns.db", priya=priya, sam=sam, plain=plain, channel=channel)
