"""Users with the bot on any chat platform: their actions, and the texts they see.

`slack_team` and `discord_team` run the real client library against the fake platform. The engine is the real one, on
SQLite or PostgreSQL. A story of a Team holds on every platform; the fixture `team` is each of them in turn.
"""

from __future__ import annotations

import asyncio
import functools
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.chat.approval_inbox import PendingCallReader
from bot.domain.approvals import ApprovalNotice, ApprovalPolicy
from bot.domain.completions import Completion, ModelRequest
from bot.domain.conversations import Author, ConversationKey
from bot.domain.policies import Rule
from bot.domain.profiles import Binding, Profile, ServersEnabled
from bot.domain.tools import ToolOutcome
from bot.domain.turns import TurnView
from bot.engine.approvals import ApproverNotices
from bot.engine.engine import Engine
from bot.engine.locales import LocaleResolver
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.evaluation import Reviewed, nothing_reviewed
from bot.engine.policy.rules import Policies, RuleBook, ServerPolicy
from bot.engine.surfaces import Surfaces
from bot.engine.turn_runner import TurnSettings
from bot.ports import CallContext, Commands, Listener, Surface, Toolbox
from bot.rendering.deceptive_text import disguises
from bot.storage.address import PostgresServer
from bot.storage.postgresql import PostgresDatabase, listen
from bot.storage.reporting import SqlReporting
from bot.storage.sqlite import open_sqlite
from bot.storage.turn_log.log import SqlTurnLog
from tests.fakes.parts import FakeToolbox, ScriptedModel
from tests.fakes.programs import python
from tests.migrated import at_hand
from tests.platforms.fake_engine import ScriptedCommands

PATIENCE = 60.0
PROGRAM = Path(__file__).with_name("team_process.py")
ROOT = Path(__file__).parents[2]

File = tuple[str, bytes]
"""The name of a file and its content."""


async def briskly(seconds: float) -> None:
    """Wait a twentieth of that: the engine's pauses are long for people's sake, and for real platforms'."""
    await asyncio.sleep(seconds / 20)


async def think(_request: ModelRequest) -> Completion:
    """A model that thinks for ever."""
    await asyncio.Event().wait()
    raise AssertionError("nobody lets it go on")


async def never(_asked: object, _context: CallContext) -> ToolOutcome:
    """A tool that works for ever."""
    await asyncio.Event().wait()
    raise AssertionError("nobody lets it go on")


@dataclass(frozen=True)
class Talk:
    """A question, as the platform's own message; the answer comes below it, or where it stands."""

    question: Any


@dataclass(kw_only=True)
class Team(ABC):
    """Priya asks, Sam administers; there is a channel in which both are."""

    database: Path
    priya: Any
    sam: Any
    model: ScriptedModel = field(default_factory=ScriptedModel)
    toolbox: FakeToolbox = field(default_factory=FakeToolbox)
    servers: Toolbox | None = None
    """Real servers, instead of those functions."""
    allowed: set[str] = field(default_factory=set)
    approvers: Approvers = Approvers()
    rules: tuple[Rule, ...] = ()
    self_approval: bool = True
    reviewed: Reviewed = nothing_reviewed
    profiles: tuple[Profile, ...] = ()
    bindings: tuple[Binding, ...] = ()
    servers_enabled: ServersEnabled = ServersEnabled.ALL
    approval_seconds: float = 1800.0
    early_seconds: float = 4.0
    """Seconds in which a turn posts nothing unless a user must act."""
    approval_notice: ApprovalNotice = ApprovalNotice.MENTION
    keeps_content: bool = True
    """False if content is deleted once an answer is out."""
    pause: Callable[[float], Awaitable[None]] = briskly
    commands: Commands = field(default_factory=ScriptedCommands)
    server: str = ""
    """The address of a database on PostgreSQL, instead of the file."""
    locales: LocaleResolver = LocaleResolver()
    tells_time_zones: bool = True
    """True if the platform knows the time zones of its users."""
    book: RuleBook = field(default_factory=RuleBook)
    """The rules of the last process."""
    opinions: list[tuple[bool, Author]] = field(default_factory=list)
    """Feedback on answers, as it is stored."""

    @asynccontextmanager
    async def at_work(self, *, receiving: bool = True, drawing: bool = True) -> AsyncIterator[Engine]:
        """One process of the bot, from its start to its end; one that does not receive has the bot's token alone."""
        async with AsyncExitStack() as stack:
            log = await self._turn_log(stack)
            surface, listener = await self._platform(stack, log)
            self.book = self._rule_book()
            engine = Engine(
                log,
                self.model,
                self.servers or self.toolbox,
                [surface] if drawing else [],
                rules=self.book,
                settings=TurnSettings(
                    approval_seconds=self.approval_seconds,
                    early_seconds=self.early_seconds,
                    approval_notice=self.approval_notice,
                    keeps_content=self.keeps_content,
                ),
                pause=self.pause,
            )
            notices = ApproverNotices(
                log, Surfaces([surface] if drawing else []), self.book, LocaleResolver(), pause=self.pause
            )
            tasks = [asyncio.create_task(engine.run()), asyncio.create_task(notices.run())]
            stack.push_async_callback(_cancel_tasks, tasks)
            if receiving:
                before = self.connections
                tasks.append(listening := asyncio.create_task(listener.run(engine, self.commands)))
                await self.until(lambda: listening.done() or self.connections > before or self.stands_by)
                assert not listening.done(), listening.exception()
            yield engine

    @asynccontextmanager
    async def working_on(self, text: str, **asking: Any) -> AsyncIterator[Talk]:
        """One process of the bot, which is asked this at its start."""
        async with self.at_work():
            yield self.ask(text, **asking)

    @asynccontextmanager
    async def waiting_on(self, text: str, **asking: Any) -> AsyncIterator[tuple[Talk, Any]]:
        """One process of the bot, which is asked this at its start, and shows a card to sign for it."""
        async with self.working_on(text, **asking) as talk:
            yield talk, await self.card(talk)

    @asynccontextmanager
    async def process(self, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """The bot as a process of its own (`team_process.py`), connected."""
        before = self.connections
        await at_hand(self.database)
        process = await asyncio.create_subprocess_exec(
            *(await asyncio.to_thread(python), str(PROGRAM), str(self.database), *self._credentials()),
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            cwd=ROOT,
        )
        try:
            await self.until(lambda: process.returncode is not None or self.connections > before, 30)
            assert process.returncode is None, "it ended at once"
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    # What people do

    @abstractmethod
    def person(self, name: str, *, admin: bool = False) -> Any:
        """Add another member of the team, who is in the channel."""

    @abstractmethod
    def stranger(self, name: str) -> Any:
        """Add a user to the channel from outside the audience: a guest, or one of another organization."""

    @abstractmethod
    def group(self, name: str, *members: Any) -> str:
        """A group or role as settings name it."""

    @abstractmethod
    def tell_members(self) -> None:
        """Let the platform report members of groups from now on, where that is a switch."""

    @abstractmethod
    def leave(self, group: str, member: Any) -> None:
        """Remove a user from a group."""

    @abstractmethod
    def part(self, person: Any) -> None:
        """Remove a user from the workspace."""

    @abstractmethod
    def principal(self, person: Any) -> str:
        """A user's id as settings name it."""

    @abstractmethod
    def localize(self, person: Any, language: str, time_zone: str) -> None:
        """Set the language of a user's client, such as `ja`, and the time zone where the platform knows it."""

    @abstractmethod
    def another_channel(self, name: str) -> Any:
        """A channel beside the one in which everybody is."""

    @abstractmethod
    def ask(self, text: str, *, by: Any = None, where: Any = None, files: Iterable[File] = ()) -> Talk:
        """Let Priya, or another user, mention the bot in the channel, or in another one."""

    @abstractmethod
    def remark(self, text: str, *, by: Any) -> Talk:
        """Post a message in the channel that is not for the bot."""

    @abstractmethod
    def ask_below(self, talk: Talk, text: str, *, by: Any = None) -> Talk:
        """Mention the bot where something was said before."""

    @abstractmethod
    def go_on(self, talk: Talk, text: str, *, by: Any = None) -> None:
        """Say more where the answer is, without a mention."""

    @property
    @abstractmethod
    def mention(self) -> str:
        """The mention of the bot."""

    @abstractmethod
    def edit(self, talk: Talk, text: str) -> None:
        """Change the question, which mentions the bot afterwards."""

    def private_offers(self, person: Any, label: str) -> list[Any]:
        """Messages of the bot to this person alone with such a button."""
        private = [*self.alone(person), *self.messages_in(self.direct(person))]
        return [message for message in private if label in self.buttons(message)]

    @abstractmethod
    def ask_directly(self, text: str) -> Talk:
        """Priya writes to the bot alone."""

    @abstractmethod
    async def press(self, person: Any, message: Any, label: str, *, old: Any = None) -> None:
        """Press the button whose label begins with this text. `old` is an outdated message that the person still sees
        (`screen`).
        """

    @abstractmethod
    async def press_opened(self, person: Any, label: str) -> None:
        """Press a button, whose label begins with this text, in the view that this person has opened."""

    @abstractmethod
    def screen(self, message: Any) -> Any:
        """The message as it is on the screen now, for a click that comes late."""

    @abstractmethod
    async def fill_in(self, person: Any, fields: Mapping[str, str]) -> None:
        """Fill in and send the form that a user has open."""

    async def fill_in_again(self, person: Any, fields: Mapping[str, str]) -> None:
        """Correct a form that did not fit, where it stands."""
        await self.fill_in(person, fields)

    @abstractmethod
    async def rate(self, person: Any, message: Any, *, good: bool) -> None:
        """Give feedback of a user on an answer."""

    @abstractmethod
    async def command(self, person: Any, path: str, **values: str) -> None:
        """Give a command in the channel: `command(priya, "mcp resource ask", server="files", uri="file:///x")`."""

    @abstractmethod
    async def open_list(self, person: Any) -> None:
        """Ask for the calls that wait for this user, with a command in the channel."""

    # What people see

    @abstractmethod
    def conversation(self, talk: Talk) -> ConversationKey:
        """The conversation of the answer, as the engine knows it."""

    @abstractmethod
    def messages(self, talk: Talk) -> list[Any]:
        """Return the bot's messages at the place of the answer, oldest first, without private ones."""

    @abstractmethod
    def messages_in(self, channel: Any) -> list[Any]:
        """Return the bot's messages in a channel outside of threads, oldest first, without private ones."""

    @abstractmethod
    def direct(self, person: Any) -> Any:
        """Return the direct conversation of a user with the bot, as a channel."""

    @abstractmethod
    def place(self, channel: Any) -> str:
        """A channel as settings name it."""

    @abstractmethod
    def words(self, message: Any) -> str:
        """Text of a message, its buttons included."""

    @abstractmethod
    def buttons(self, message: Any) -> list[str]:
        """The labels of a message's buttons."""

    @abstractmethod
    def files(self, talk: Talk) -> list[File]:
        """The files that the bot has shared where the answer is."""

    @abstractmethod
    def private_replies(self, person: Any) -> list[str]:
        """Private replies to this user."""

    @abstractmethod
    def alone(self, person: Any) -> list[Any]:
        """The messages of the bot in the channel that only this person sees, oldest first."""

    @abstractmethod
    def last_private_reply(self, person: Any) -> str:
        """The private reply to this user's last click."""

    @abstractmethod
    def notifying_mentions(self) -> set[str]:
        """Return every mention in messages of the bot that notified a user or could have, as the platform writes it."""

    @abstractmethod
    def notified_ids(self, message: Any) -> set[str]:
        """Return the ids of the users whom a message notifies."""

    @abstractmethod
    def fetched_addresses(self) -> set[str]:
        """Every address that something of the bot's makes the platform ask for."""

    @abstractmethod
    async def until(self, condition: Callable[[], object], seconds: float = PATIENCE) -> None:
        """Wait until something is so."""

    # What the platform sees of the bot, and does to it

    @abstractmethod
    def sent_text(self) -> str:
        """Everything that the bot has ever sent to the platform."""

    notifies_always = True
    """True if the platform notifies of every post."""

    @abstractmethod
    def posts(self) -> int:
        """Number of messages that the bot has ever posted."""

    def loud_posts(self) -> int:
        """Number of those that notify."""
        return self.posts()

    @abstractmethod
    def failed_calls(self) -> list[Any]:
        """The bot's requests that the platform has rejected."""

    @abstractmethod
    def unacknowledged_actions(self) -> list[Any]:
        """Actions of users that the bot has not acknowledged at the first attempt, where the platform expects it."""

    @abstractmethod
    def is_taken(self, talk: Talk) -> bool:
        """True if the message is not sent again: from here on it is the bot's to answer."""

    @abstractmethod
    async def deliver_again(self, talk: Talk) -> None:
        """Deliver the question again, several times, to any process."""

    @abstractmethod
    def keep_to_limits(self) -> None:
        """Let the platform limit the rate of calls from now on."""

    def limit_next_reads(self) -> None:  # noqa: B027 - not every platform limits them
        """Let the platform limit the next reading of messages for a moment."""

    @abstractmethod
    def refuse_next(self) -> None:
        """The next message that the bot posts is refused, as one that it may not post."""

    @abstractmethod
    def forbid(self, talk: Talk) -> None:
        """Let the platform refuse new posts of the bot in the channel from now on. It may edit its messages."""

    @abstractmethod
    def shut_out(self, talk: Talk) -> None:
        """The bot no longer sees the channel."""

    @abstractmethod
    def close(self, talk: Talk) -> None:
        """Close the place of the answer for every user."""

    @abstractmethod
    def close_channel(self, channel: Any) -> None:
        """Close a channel for every user."""

    def visible_text(self, talk: Talk) -> str:
        """Everything that can be read of the bot where the answer is."""
        return "\n".join(self.words(message) for message in self.messages(talk))

    async def reads(self, talk: Talk, text: str, seconds: float = PATIENCE) -> Any:
        """Wait until a message of the bot has this text, and return it."""

        def matching_messages() -> list[Any]:
            return [message for message in self.messages(talk) if text in self.words(message)]

        await self.until(matching_messages, seconds)
        return matching_messages()[-1]

    async def hears(self, person: Any, text: str, seconds: float = PATIENCE) -> None:
        """Wait until this person alone is told something."""
        await self.until(lambda: any(text in each for each in self.private_replies(person)), seconds)

    async def sees(self, person: Any, label: str, seconds: float = PATIENCE) -> Any:
        """Wait until this person alone sees a button whose label begins with this text, and return the last message
        with one.
        """

        def matching_messages() -> list[Any]:
            return [each for each in self.alone(person) if any(name.startswith(label) for name in self.buttons(each))]

        await self.until(matching_messages, seconds)
        return matching_messages()[-1]

    def label(self, english: str) -> str:
        """The label of a button as the platform has it."""
        return english

    async def card(self, talk: Talk) -> Any:
        """Wait until there is a card to sign; its message."""
        return await self.offers(talk, "Approve")

    async def card_in(self, channel: Any) -> Any:
        """Wait until there is a card to sign in another channel; its message."""

        def matching_messages() -> list[Any]:
            return [each for each in self.messages_in(channel) if "Approve" in str(self.buttons(each))]

        await self.until(matching_messages)
        return matching_messages()[-1]

    async def offers(self, talk: Talk, label: str) -> Any:
        """Wait until there is a button whose label begins with this text, and return the last message with one."""

        def matching_messages() -> list[Any]:
            return [
                message
                for message in self.messages(talk)
                if any(name.startswith(label) for name in self.buttons(message))
            ]

        await self.until(matching_messages)
        return matching_messages()[-1]

    async def settles(self, message: Any) -> None:
        """Wait until there is nothing left to press below a message."""
        await self.until(lambda: self.buttons(message) == [])

    async def turn(self, engine: Engine, talk: Talk) -> TurnView:
        """The last turn where the answer comes, as it stands on disk; waits until there is one."""
        async with asyncio.timeout(PATIENCE):
            while not (found := await engine.recent_turns(self.conversation(talk), 1)):
                await asyncio.sleep(0.01)
        return found[0]

    # The bot

    @property
    @abstractmethod
    def connections(self) -> int:
        """Number of connections that a process has opened to receive."""

    @property
    def stands_by(self) -> bool:
        """True if a process that is ready to receive does not connect now, because another one has."""
        return False

    @abstractmethod
    async def _platform(self, stack: AsyncExitStack, log: SqlTurnLog) -> tuple[Surface, Listener]:
        """The surface and the listener of one process."""

    @abstractmethod
    def _credentials(self) -> Iterable[str]:
        """The platform's arguments for `team_process.py`."""

    def _reader(self, log: SqlTurnLog, surface: Any) -> PendingCallReader:
        members = Surfaces((surface,))
        return PendingCallReader(SqlReporting(log._database), log, self._rule_book(), surface, members=members)

    def _rule_book(self) -> RuleBook:
        default_profile = self.servers_enabled.default_profile
        book = RuleBook(
            self._policies(), self.approvers, self.reviewed, default_profile=default_profile, disguises=disguises
        )
        book.amend((), self.profiles, self.bindings)
        return book

    async def _keep_opinion(self, _turn_id: str, good: bool, by: Author) -> None:
        self.opinions.append((good, by))

    async def _turn_log(self, stack: AsyncExitStack) -> SqlTurnLog:
        if self.server:
            address = PostgresServer(self.server)
            shared = PostgresDatabase(address)
            stack.push_async_callback(shared.close)
            return SqlTurnLog(shared, functools.partial(listen, address))
        database = open_sqlite(await at_hand(self.database))
        stack.push_async_callback(database.close)
        log = SqlTurnLog(database)
        await log.adopt_orphans()
        return log

    def _policies(self) -> Policies:
        servers: dict[str, dict[str, ApprovalPolicy]] = {}
        for name in self.allowed:
            server, _, tool = name.partition("__")
            servers.setdefault(server, {})[tool] = ApprovalPolicy.ALWAYS_ALLOW
        short = {server: ServerPolicy(tools) for server, tools in servers.items()}
        return Policies(servers=short, rules=self.rules, self_approval=self.self_approval)


async def _cancel_tasks(tasks: list[asyncio.Task[None]]) -> None:
    for task in reversed(tasks):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
