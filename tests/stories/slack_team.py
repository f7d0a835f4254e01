"""A team in Slack: the fake workspace, the real SDKs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.chat.context import Lookups
from bot.chat.users import AudiencePolicy
from bot.domain.conversations import ConversationKey
from bot.engine.policy.rules import RuleBook
from bot.platforms.slack.app import SlackSurface
from bot.platforms.slack.listener import SlackListener
from bot.platforms.slack.rate_limits import RateLimiter
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import WebApi, conversation
from bot.platforms.slack.workspaces import SlackWorkspace, SlackWorkspaces
from bot.ports import Listener, Surface
from bot.storage.turn_log.log import SqlTurnLog
from tests.fakes.slack import Channel, Fails, FakeSlack, Message, TooMany, User
from tests.fakes.slack.deliveries import Delivery
from tests.stories.team import PATIENCE, File, Talk, Team


@dataclass(kw_only=True)
class SlackTeam(Team):
    """Priya and Sam in #incidents."""

    slack: FakeSlack
    channel: Channel

    def person(self, name: str, *, admin: bool = False) -> User:
        return self._in_channel(self.slack.user(name, admin=admin))

    def stranger(self, name: str) -> User:
        return self._in_channel(self.slack.user(name, guest="multi", admin=True))

    def group(self, name: str, *members: User) -> str:
        return f"slack-group:{self.slack.group(name, *members).id}"

    def tell_members(self) -> None:
        """The service always does."""

    def leave(self, group: str, member: User) -> None:
        user_group, users = self.slack.workspace.groups[group.partition(":")[2]], self.slack.workspace.users
        self.slack.change_group(user_group, *(users[user] for user in user_group.users if user != member.id))

    def part(self, person: User) -> None:
        person.deleted = True

    def principal(self, person: User) -> str:
        return f"slack:{person.id}"

    def localize(self, person: User, language: str, time_zone: str) -> None:
        person.locale, person.time_zone = language, time_zone

    def another_channel(self, name: str) -> Channel:
        return self.slack.channel(name, self.priya, self.sam)

    def ask(
        self, text: str, *, by: User | None = None, where: Channel | None = None, files: Iterable[File] = ()
    ) -> Talk:
        said = f"{self.slack.bot.mention} {text}"
        return Talk(self.slack.say(by or self.priya, where or self.channel, said, files=files))

    def remark(self, text: str, *, by: User) -> Talk:
        return Talk(self.slack.say(by, self.channel, text))

    def ask_below(self, talk: Talk, text: str, *, by: User | None = None) -> Talk:
        said = f"{self.slack.bot.mention} {text}"
        self.slack.say(by or self.priya, self.channel, said, thread_ts=talk.question.ts)
        return talk

    def go_on(self, talk: Talk, text: str, *, by: User | None = None) -> None:
        self.slack.say(by or self.priya, self._place(talk), text, thread_ts=talk.question.ts)

    @property
    def mention(self) -> str:
        return self.slack.bot.mention

    def edit(self, talk: Talk, text: str) -> None:
        self.slack.edit(talk.question, f"{self.mention} {text}")

    def ask_directly(self, text: str) -> Talk:
        return Talk(self.slack.say(self.priya, self.slack.dm(self.priya), text))

    async def press(self, person: User, message: Message, label: str, *, old: Any = None) -> None:
        blocks = old if old is not None else self.screen(message)
        name = next(each for each in _labels(blocks["blocks"]) if each.startswith(label))
        await self.slack.press(person, message, name, as_of=old)

    async def press_opened(self, person: User, label: str) -> None:
        modal = self.slack.modal(person)
        name = next(each for each in _labels(modal.drawn["blocks"]) if each.startswith(label))
        await self.slack.press(person, modal, name)

    def screen(self, message: Message) -> Any:
        return message.to_json()

    async def fill_in(self, person: User, fields: Mapping[str, str]) -> None:
        await self.until(lambda: self.slack.modals(person))
        await self.slack.submit(person, fields)

    async def rate(self, person: User, message: Message, *, good: bool) -> None:
        await self.slack.press(person, message, "Good answer" if good else "Bad answer")

    async def command(self, person: User, path: str, **values: str) -> None:
        name, _, verb = path.partition(" ")
        await self.slack.command(person, f"/{name}", " ".join((verb, *values.values())), self.channel)

    async def open_list(self, person: User) -> None:
        await self.slack.command(person, "/approvals", "", self.channel)

    def conversation(self, talk: Talk) -> ConversationKey:
        return conversation(self.slack.workspace.team.id, self._place(talk).id, talk.question.ts)

    def messages(self, talk: Talk) -> list[Message]:
        posted = self.slack.bot_messages(self._place(talk), talk.question.ts)
        return [message for message in posted if not message.ephemeral_to]

    def messages_in(self, channel: Channel) -> list[Message]:
        return [
            message
            for message in self.slack.bot_messages(channel)
            if not message.ephemeral_to and not message.thread_ts
        ]

    def direct(self, person: User) -> Channel:
        return self.slack.dm(person)

    def place(self, channel: Channel) -> str:
        return f"slack:{self.slack.workspace.team.id}:{channel.id}"

    def words(self, message: Message) -> str:
        return _block_text(message.blocks) if message.blocks else message.text

    def buttons(self, message: Message) -> list[str]:
        return _labels(message.blocks)

    def files(self, talk: Talk) -> list[File]:
        return [(file.name, file.content) for message in self.messages(talk) for file in message.files]

    def private_replies(self, person: User) -> list[str]:
        told = [message for message in self.slack.bot_messages(self.channel) if message.ephemeral_to == person.id]
        if person.team is self.slack.workspace.team:
            told += self.slack.bot_messages(self.slack.dm(person))
        return [each.text for each in told]

    def alone(self, person: User) -> list[Message]:
        return [message for message in self.slack.bot_messages(self.channel) if message.ephemeral_to == person.id]

    def last_private_reply(self, person: User) -> str:
        return "\n".join(_block_text(modal.drawn["blocks"]) for modal in self.slack.modals(person))

    def notifying_mentions(self) -> set[str]:
        posted = self.slack.bot_messages(self.channel)
        written = {mark for message in posted for mark in ("<!", "<@") if mark in message.text}
        return written | {kind for kind in ("broadcast", "user", "usergroup") if f"'type': '{kind}'" in _blocks(posted)}

    def notified_ids(self, message: Message) -> set[str]:
        return self.slack.notified_ids(message)

    def fetched_addresses(self) -> set[str]:
        places = (self.channel, self.slack.dm(self.priya))
        return set().union(
            *(self.slack.fetched_addresses(message) for place in places for message in self.slack.bot_messages(place))
        )

    async def until(self, condition: Callable[[], object], seconds: float = PATIENCE) -> None:
        await self.slack.until(condition, seconds)

    def sent_text(self) -> str:
        return "\n".join(str(call.args) for call in self.slack.calls)

    def posts(self) -> int:
        return len(self.slack.calls.of("chat.postMessage", "chat.startStream", "chat.postEphemeral"))

    def failed_calls(self) -> list[Any]:
        return self.slack.calls.failed_calls()

    def unacknowledged_actions(self) -> list[Any]:
        return [each for each in self.slack.sent_deliveries if not each.is_acknowledged or len(each.attempts) > 1]

    def is_taken(self, talk: Talk) -> bool:
        return any(delivery.is_acknowledged for delivery in self._deliveries(talk))

    async def deliver_again(self, talk: Talk) -> None:
        self.slack.clock.advance(61)  # what was not acknowledged comes again
        await self.slack.post.idle(30)
        attempts = [self.slack.post.again(delivery) for delivery in self._deliveries(talk) for _ in range(3)]
        await self.until(lambda: all(attempt.outcome for attempt in attempts), 30)

    def keep_to_limits(self) -> None:
        self.slack.pace.strict = True

    def limit_next_reads(self) -> None:
        self.slack.fail("conversations.replies", TooMany(1))

    def refuse_next(self) -> None:
        self.slack.fail("chat.postMessage", Fails("restricted_action"))

    def forbid(self, talk: Talk) -> None:
        self._place(talk).posting_restricted = True

    def shut_out(self, talk: Talk) -> None:
        self._place(talk).members.remove(self.slack.bot.id)

    def close(self, talk: Talk) -> None:
        self._place(talk).archived = True

    def close_channel(self, channel: Channel) -> None:
        channel.archived = True

    @property
    def connections(self) -> int:
        return self.slack.sockets.ever

    def _credentials(self) -> Iterable[str]:
        return "slack", self.slack.url, self.slack.bot_token, self.slack.app.app_token

    async def _platform(self, stack: AsyncExitStack, log: SqlTurnLog) -> tuple[Surface, Listener]:
        pacing = RateLimiter(clock=self.slack.clock.now, pause=_passing(self.slack))
        api = await stack.enter_async_context(WebApi(self.slack.bot_token, url=self.slack.url, pacing=pacing))
        named = RuleBook(self._policies()).named | self.approvers.admins | self.approvers.approvers
        people = UserDirectory(api, frozenset(each for each in named if each.startswith("slack-group:")))
        workspaces = SlackWorkspaces(SlackWorkspace(api, people))
        surface = SlackSurface(workspaces)
        records = Lookups(
            opinion=self._keep_opinion,
            approval=log.get_approval,
            pending_calls=self._reader(log, surface).read,
            locales=self.locales,
        )
        listener = SlackListener(
            workspaces, api, app_token=self.slack.app.app_token, audience=AudiencePolicy(), records=records
        )
        return surface, listener

    def _place(self, talk: Talk) -> Channel:
        return self.slack.workspace.channel(talk.question.channel)

    def _deliveries(self, talk: Talk) -> list[Delivery]:
        return [each for each in self.slack.sent_deliveries if each.event.get("ts") == talk.question.ts]

    def _in_channel(self, user: User) -> User:
        self.channel.members.append(user.id)
        return user


@asynccontextmanager
async def a_slack_team(folder: Path) -> AsyncIterator[SlackTeam]:
    """Open the team without a running bot."""
    async with FakeSlack() as slack:
        slack.pace.strict = False
        priya, sam = slack.user("Priya"), slack.user("Sam", admin=True)
        channel = slack.channel("incidents", priya, sam)
        yield SlackTeam(database=folder / "turns.db", priya=priya, sam=sam, slack=slack, channel=channel)


def _blocks(messages: list[Message]) -> str:
    return str([message.blocks for message in messages])


def _labels(blocks: list[Any]) -> list[str]:
    elements = [each for block in blocks if block["type"] == "actions" for each in block["elements"]]
    return [element["text"]["text"] for element in elements if element["type"] == "button"]


def _block_text(part: Any) -> str:
    match part:
        case {"type": "divider"}:
            return ""
        case {"text": str(text)}:
            return text
        case dict():
            return " ".join(_block_text(each) for each in part.values() if isinstance(each, (dict, list)))
        case list():
            return "\n".join(_block_text(each) for each in part)
        case _:
            return ""


def _passing(slack: FakeSlack) -> Callable[[float], Awaitable[None]]:
    async def pause(seconds: float) -> None:
        slack.clock.advance(seconds)

    return pause
