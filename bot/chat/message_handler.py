"""Messages of users to turns, on every chat platform: audience, order and context.

The bot answers direct messages, mentions, and what users write in a thread in which they have asked, if the audience
policy allows them. A message that mentions another user, or replies to one, ends that: the thread goes on among people
until a message mentions the bot or replies to it. Commands in a message for the bot (`@bot mcp list`) are run, other
messages become turns. A message becomes one turn, however often it arrives, and messages of one thread become turns in
order of arrival.

The context of a message is earlier messages of other users, as lines for the model. Each line is one message after its
author's name. Continuation lines are indented, so that no user can write a line in another's name. The bot's own
messages, and those up to its last turn, are in its history and left out.

A platform gives parsed messages and its own part (`MessagePlatform`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from time import time
from typing import Any, Generic, Protocol, TypeVar

from bot.chat.actions import NOT_STORED, TOO_MANY_REQUESTS, AskAgain, RunCommand
from bot.chat.background_tasks import BackgroundTasks
from bot.chat.context import ChatContext
from bot.chat.message_model import Block, Button, Buttons, ButtonStyle, Message, Paragraph, Text
from bot.chat.users import RecentEntries
from bot.domain.agents import Addressed, AgentRef, Agents, UnknownName
from bot.domain.commands import WHOLE_TEXT
from bot.domain.conversations import Attachment, ConversationKey, InboundMessage, Member
from bot.domain.locales import UNKNOWN, Locale, use_locale
from bot.domain.turns import EditEffect, Turn
from bot.engine.prompt.messages import LEFT_OUT, UNREAD, clean_name
from bot.errors import CountersignError, DatabaseUnwritable, DeliveryFailed, QueueFull
from bot.i18n import _, gettext_lazy
from bot.ports import Commands
from bot.rendering.text_safety import ELLIPSIS, single_line, strip_control

MOST_LINES = 50
LONGEST_LINE = 3_000
LONGEST_FORWARDED = 8_000
LONGEST_CONTEXT = 12_000
"""In characters, of all lines together."""
_UNNAMED = "Somebody"
log = logging.getLogger(__name__)
REMEMBERED = 5000
COMMANDS = ("mcp", "profile", "agents", "conversations", "usage", "preferences", "approvals", "console")
NOTHING_SAID = gettext_lazy("What can I do for you? Mention me together with your question.")
WITHOUT_WORDS = "(mentioned you in a reply, without words: see what it replies to)"
FORWARDED = "(forwarded a message)"
FORWARDED_LABEL = "forwarded"
PREVIEW_LABEL = "shown below the message"
EDITED = gettext_lazy("You have edited this question. The answer is about its earlier text.")
ASK_AGAIN = gettext_lazy("Ask again with this")
NO_SUCH_AGENT = gettext_lazy("There is no agent of that name here.")
LONGEST_OFFERED, LONGEST_LABEL = 1_500, 40
"""Characters of a question that a button asks, and of an agent's name on it."""
LATEST_QUESTION_SECONDS = 86_400.0
"""Age of a message that becomes a question by an edit."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
PATIENCE_SECONDS = 900.0
"""Seconds that storing a message is retried on a platform that does not deliver it again."""
DELETION_PAUSES = (0.0, 1.0, 5.0)
"""Seconds before each look for the turn of a deleted message."""
AT_ONCE = 50
"""Unstored messages of one user in memory."""
OF_ALL_AT_ONCE = 10_000
"""Unstored messages of all users in memory, some kilobytes each. More than background tasks, because a dropped message
returns only with the next backfill.
"""


@dataclass(frozen=True, slots=True)
class ThreadMessage:
    """A message as a line of the context, with the names of its files. `own` is True for the bot's."""

    id: str
    user: str
    name: str
    text: str
    files: tuple[str, ...] = ()
    own: bool = False

    @property
    def entry(self) -> tuple[str, str]:
        """Name and text for `format_lines`."""
        return self.name, append_file_names(self.text, self.files)


@dataclass(frozen=True, slots=True)
class RepliedTo:
    """Original message of a reply. `user` is empty if unknown; `is_bot` is True for a message of the bot."""

    channel: str
    message: str
    user: str = ""
    is_bot: bool = False


@dataclass(frozen=True, slots=True)
class MessageContent:
    """All that a message displays: its author's text, files, and the message that it replies to; forwarded messages and
    previews of links, whose texts are of others. `title` is that of the post that it begins. `command_text` is the text
    with the ids of mentioned users and groups, for commands, empty on a platform without markup.
    """

    text: str
    forwarded: tuple[ThreadMessage, ...] = ()
    title: str = ""
    command_text: str = ""
    files: tuple[Attachment, ...] = ()
    replied_to: RepliedTo | None = None

    @property
    def whole(self) -> str:
        """The text with the others below it."""
        return "\n".join(filter(None, (self.text, *(f"({part.name}) {part.text}" for part in self.forwarded))))


def context_messages(
    thread: Sequence[ThreadMessage], replied_to: Sequence[ThreadMessage], last_turn: Turn | None
) -> Sequence[ThreadMessage]:
    """Return the messages of the context: those that are replied to, and those of the thread since its last turn."""
    if last_turn is not None:
        # A platform may put the channel before the id.
        message_id = last_turn.question.message_id.rpartition(":")[2]
        question = None if last_turn.content_deleted else (last_turn.author.id, last_turn.question.text)
        asked = [n for n, message in enumerate(thread, start=1) if (message.user, message.text) == question]
        asked += [n for n, message in enumerate(thread, start=1) if message_id and message.id == message_id]
        thread = thread[max(asked, default=0) :]
    known = {message.id for message in thread}
    originals = (message for message in replied_to if message.id not in known)
    return [message for message in (*originals, *thread) if not message.own]


def format_lines(messages: Sequence[tuple[str, str]], longest: int = LONGEST_LINE) -> tuple[str, ...]:
    """Return names and texts as lines for the model, the newest as far as there is room."""
    lines: list[str] = []
    room = LONGEST_CONTEXT
    for name, written in reversed(messages):
        text = strip_control(written).strip()
        text = text if len(text) <= longest else text[: longest - 1].rstrip() + ELLIPSIS
        # A colon in a name would let its bearer speak in another's.
        line = f"{clean_name(name) or _UNNAMED}: {text}".replace("\n", "\n    ")
        if len(lines) >= MOST_LINES or len(line) > room:
            lines.append(LEFT_OUT)
            break
        lines.append(line)
        room -= len(line)
    return tuple(reversed(lines))


def prepend_title(title: str, text: str) -> str:
    """Return the text of a message below the title that it was posted under, if any."""
    return "\n\n".join(filter(None, (title, text)))


def forwarded_label(author: str, place: str) -> str:
    """Return the name of a forwarded message in the context: by its author and place, as far as they are known."""
    origin = f" from {clean_name(author)}" if author else ""
    return f"{FORWARDED_LABEL}{origin}" + (f" in #{clean_name(place)}" if place else "")


def append_file_names(text: str, names: Sequence[str]) -> str:
    """Return a message's text with the names of its files."""
    return "\n".join(filter(None, (text, *(f"[file: {single_line(name, 80)}]" for name in names))))


def describe_files(files: Sequence[Attachment]) -> str:
    """Return the text for a message of files alone."""
    return f"(sent {len(files)} files)" if len(files) > 1 else "(sent a file)"


# -------------------- values


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformMessage:
    """A message as a platform has parsed it. A question for the bot becomes an `InboundMessage`.

    `keys` identify it in the database, `id` in this process. Messages with the same
    `thread_key` are handled in order.
    The text of `content` has no outer mention of the bot; `mentions` are the mentioned users and groups.
    `may_be_in_thread` is False if the message is certainly in no thread. `sent_at` is in
    epoch seconds.
    `may_notify` is True for exactly one of the events of a message: replies without a row in the database are sent for
    that event, because other processes may get the other events. `late` messages are read by the backfill: their
    authors no longer wait.
    """

    id: str
    keys: tuple[str, ...]
    thread_key: str
    user: str
    content: MessageContent
    sent_at: float = 0.0
    mentions_bot: bool = False
    direct: bool = False
    may_be_in_thread: bool = False
    mentions: frozenset[str] = frozenset()
    may_notify: bool = True
    late: bool = False

    @property
    def addresses_bot(self) -> bool:
        """True for a direct message and for a mention."""
        return self.direct or self.mentions_bot

    @property
    def replies_to_bot(self) -> bool:
        """True for a reply to a message of the bot."""
        return self.content.replied_to is not None and self.content.replied_to.is_bot

    @property
    def addresses_other(self) -> bool:
        """True for a mention of another user, or a reply to one."""
        original = self.content.replied_to
        replies = original is not None and not (original.is_bot or original.user == self.user)
        return replies or bool(self.mentions - {self.user})


@dataclass(frozen=True, slots=True)
class Location:
    """Location of a message. `open_thread` opens a thread at the message, named after the text that it is given, and
    returns its id, empty if the bot may open none; it is missing where answers need no new thread. The same message
    always gets the same thread. `locale` is that of the place, as far as the platform says it.
    """

    conversation: ConversationKey
    in_thread: bool = False
    open_thread: Callable[[str], Awaitable[str]] | None = None
    locale: Locale = UNKNOWN


M = TypeVar("M", bound=PlatformMessage)
M_contra = TypeVar("M_contra", bound=PlatformMessage, contravariant=True)


class MessagePlatform(Protocol[M_contra]):
    """The platform's part of handling a message. All methods raise DeliveryFailed."""

    name: str
    redelivers: bool
    """True if the platform sends a message again whose handling raised an error."""
    reading_seconds: float
    """Limit of the reading of the context."""

    async def locate(self, message: M_contra) -> Location | None:
        """Return the location of a message, or None if the bot does not work there."""

    async def find_author(self, message: M_contra, conversation: ConversationKey) -> Member | None:
        """Return the author, with rights that may be some minutes old, or None for a bot."""

    async def resolve_names(self, messages: Sequence[ThreadMessage]) -> Sequence[ThreadMessage]:
        """Return the messages as their readers see them, with the names of users."""

    async def read_earlier(
        self, message: M_contra, *, in_thread: bool
    ) -> tuple[Sequence[ThreadMessage], Sequence[ThreadMessage]]:
        """Return the messages before a message, oldest first: those of its thread, if it is in one, and the chain of
        those that it replies to.
        """

    async def run_command(self, message: M_contra, conversation: ConversationKey, words: tuple[str, ...]) -> None:
        """Start a command in a message: its words, with the command's name first."""

    async def notify_author(self, message: M_contra, text: str) -> None:
        """Show a notice to the author alone, if they can be reached."""

    async def show_to_author(self, message: M_contra, conversation: ConversationKey, shown: Message) -> None:
        """Show a message to the author alone, if they can be reached. Its buttons act in the conversation."""

    async def post_hint(self, message: M_contra, text: str) -> None:
        """Show a hint to the author, below the message if possible."""


# -------------------- state of one process


@dataclass(slots=True)
class _Thread(Generic[M]):
    """A thread with messages that are being handled. `lines` are read up to the latest of them and end with it."""

    latest: M
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    lines: Sequence[ThreadMessage] = ()
    unread_until: float = -math.inf
    """Time of the latest message that had arrived when a reading failed."""

    def lines_before(self, message: M) -> Sequence[ThreadMessage] | None:
        """Return the lines before a message, None if they are not read. Raises TimeoutError if they cannot be."""
        if message.sent_at <= self.unread_until:
            raise TimeoutError
        return next((self.lines[:n] for n, line in enumerate(self.lines) if line.id == _own_id(message)), None)


def _own_id(message: PlatformMessage) -> str:
    """Return the id without the channel that a platform may put before it."""
    return message.id.rpartition(":")[2]


class Threads(Generic[M]):
    """Threads by key, as long as messages of them are handled: one at a time, in order of arrival."""

    def __init__(self) -> None:
        self._threads: dict[str, _Thread[M]] = {}

    @asynccontextmanager
    async def enter(self, message: M) -> AsyncIterator[None]:
        """Wait for the earlier messages of the thread, and let later ones wait during the block."""
        thread = self._threads.setdefault(message.thread_key, _Thread(message))
        thread.users += 1
        if message.sent_at > thread.latest.sent_at:
            thread.latest = message
        try:
            async with thread.lock:
                yield
        finally:
            thread.users -= 1
            if not thread.users:
                del self._threads[message.thread_key]

    async def read(self, message: M, platform: MessagePlatform[M]) -> tuple[Sequence[ThreadMessage], ...]:
        """Return `read_earlier` of a message of a thread. One reading serves those that have arrived before it, and so
        does one that failed.
        """
        thread = self._threads[message.thread_key]
        latest = thread.latest
        if message.content.replied_to or latest.content.replied_to:
            return await platform.read_earlier(message, in_thread=True)
        if (known := thread.lines_before(message)) is not None:
            return known, ()
        until, thread.unread_until = thread.unread_until, math.inf
        try:
            # It counts as a reading of this message's author.
            lines, _ = await platform.read_earlier(replace(latest, user=message.user), in_thread=True)
            thread.lines, thread.unread_until = (*lines, ThreadMessage(_own_id(latest), latest.user, "", "")), until
        finally:
            thread.unread_until = min(thread.unread_until, thread.latest.sent_at)
        return thread.lines_before(message) or (), ()


class RecentIds:
    """Ids of the latest handled messages, because a message may arrive twice and not every one has a database row."""

    def __init__(self) -> None:
        self._ids = RecentEntries[str, None](REMEMBERED)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._ids

    def add(self, message_id: str) -> bool:
        """Add an id. Return False if it was there already."""
        if message_id in self._ids:
            return False
        self._ids[message_id] = None
        return True


# -------------------- commands in messages


def parse_command(text: str, commands: Commands, conversation: ConversationKey) -> tuple[str, ...]:
    """Return the words of a typed command, its name first; empty for other text. `profile`, `conversations`,
    `usage` and `approvals` are ordinary words too: they count as commands only with a verb.
    """
    first, *rest = text.split(maxsplit=2) or [""]
    name = first.lower().removeprefix("/")
    if name in WHOLE_TEXT and first.startswith("/") and not rest:
        return (name,)  # with a text, it is an address
    if name not in COMMANDS:
        return ()
    if name != "mcp" and not first.startswith("/") and rest:
        line = f"{name} {rest[0].lower()}"
        if not any(f"{completion} ".startswith(f"{line} ") for completion in commands.complete(line, conversation)):
            return ()
    return (name, *split_args(text[len(first) :]))


def split_args(text: str) -> tuple[str, ...]:
    """Return words as a shell reads them, also between the curly quotes that Slack's clients make of straight ones, and
    with the long dash that they make of two before an option. If a quote is open, split at blanks only.
    """
    straight = text.translate({0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'"})
    straight = re.sub(r"(?<!\S)\u2014(?=[a-z])", "--", straight)
    try:
        return tuple(shlex.split(straight))
    except ValueError:
        return tuple(text.split())


# -------------------- handling


class MessageHandler(Generic[M]):
    """Handles the messages of one platform. `on_unreadable` handles messages of followed threads in which the bot can
    read no content.
    """

    def __init__(
        self,
        platform: MessagePlatform[M],
        context: ChatContext,
        *,
        on_unreadable: Callable[[M], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._platform = platform
        self._engine = context.engine
        self._commands = context.commands
        self._audience = context.audience
        self._background_tasks = context.background_tasks
        self._locales = context.records.locales
        self._on_unreadable = on_unreadable
        self._threads = Threads[M]()
        self._storing = BackgroundTasks(OF_ALL_AT_ONCE, AT_ONCE)
        self._done = RecentIds()
        self._delayed = RecentIds()

    async def handle(self, message: M) -> None:
        """Handle a message that arrives; ignore one that is not for the bot. If the platform redelivers, return when it
        is stored, and raise CountersignError if it has to come again. Otherwise, store it in the background.
        """
        if not self._may_be_for_bot(message):
            return
        if self._platform.redelivers:
            with self._engine.arrivals.one():
                async with self._threads.enter(message):
                    await self._process(message)
            return
        started = self._storing.start_for(message.user, self._store(message), f"{self._platform.name}: {message.id}")
        if not started and message.addresses_bot:
            self._notify_author(message, TOO_MANY_REQUESTS)

    async def handle_late(self, message: M) -> None:
        """Handle a message that arrived while no process received. Return when it is stored or given up."""
        message = replace(message, late=True)
        if not self._may_be_for_bot(message):
            return
        try:
            await self._store(message)
        except CountersignError as error:
            log.warning("missed message %s not processed: %s", message.id, error)
        except Exception:
            log.exception("missed message %s not processed", message.id)

    async def handle_edit(self, message: M) -> None:
        """Handle a message as its author has edited it. A message without a turn is a question now if it addresses the
        bot; no command is run. The author of a question that is being answered is offered to ask the new text. If the
        platform redelivers, raise CountersignError if the edit has to come again.
        """
        if not message.addresses_bot and not message.may_be_in_thread:
            return
        if self._platform.redelivers:
            await self._edit(message)
        else:
            self._storing.start_for(message.user, self._edit(message), f"{self._platform.name}: edit of {message.id}")

    async def _edit(self, message: M) -> None:
        async with self._threads.enter(message):
            location = await self._platform.locate(message)
            author = None if location is None else await self._platform.find_author(message, location.conversation)
            if location is None or author is None or self._audience.rejection(author):
                return
            author = await self._with_locale(author, location)
            with use_locale(author.locale):
                (read,) = await self._platform.resolve_names(
                    [ThreadMessage(message.id, message.user, "", message.content.text)]
                )
                if not read.text:
                    return
                text, agent, _unknown = self._read_address(message, location, read.text)
                edited = await self._engine.edit_question(message.keys, text, author.author, agent)
                if edited is None:
                    is_recent = message.addresses_bot and time() - message.sent_at < LATEST_QUESTION_SECONDS
                    if is_recent and not parse_command(read.text, self._commands, location.conversation):
                        await self._follow(message, location)
                        await self._ask(message, location, author, read.text)
                elif edited.effect is EditEffect.STORED:
                    shown = ask_again_message(edited.turn_id)
                    showing = self._platform.show_to_author(message, edited.conversation, shown)
                    self._background_tasks.start_for(message.user, showing, f"{self._platform.name}: edited question")

    async def handle_deletion(self, message_id: str, keys: Sequence[str]) -> None:
        """Handle a message that was deleted on its platform. If the platform redelivers, raise CountersignError if the
        deletion has to come again.
        """
        self._done.add(message_id)
        if not (self._platform.redelivers and await self._engine.delete_question(keys)):
            self._background_tasks.start(self._delete(keys), f"{self._platform.name}: deletion of {message_id}")

    async def _delete(self, keys: Sequence[str]) -> None:
        """Delete a question, which this process or another one may be about to store."""
        for pause in DELETION_PAUSES:
            await asyncio.sleep(pause)
            try:
                if await self._engine.delete_question(keys):
                    return
            except CountersignError as error:
                log.warning("deleted message from %s not handled, retrying: %s", self._platform.name, error)

    async def close(self) -> None:
        """Finish storing the received messages, within a time limit."""
        await self._storing.close()

    def _may_be_for_bot(self, message: M) -> bool:
        return message.id not in self._done and (message.addresses_bot or message.may_be_in_thread)

    async def _store(self, message: M) -> None:
        """Process a message, retrying on errors. Raises permanent errors."""
        pause = FIRST_PAUSE
        try:
            async with self._threads.enter(message), asyncio.timeout(PATIENCE_SECONDS):
                await self._engine.arrivals.wait()
                while True:
                    try:
                        return await self._process(message)
                    except CountersignError as error:
                        if isinstance(error, DeliveryFailed) and error.permanent:
                            raise
                        log.warning("message from %s not stored, retrying: %s", self._platform.name, error)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
        except TimeoutError:
            log.error("message %s from %s not stored, dropped until the next backfill", message.id, self._platform.name)

    async def _process(self, message: M) -> None:
        if message.id in self._done:
            return
        location = await self._platform.locate(message)
        if location is None or not await self._is_for_bot(message, location):
            return
        author = await self._platform.find_author(message, location.conversation)
        if author is None:
            return
        author = await self._with_locale(author, location)
        with use_locale(author.locale):
            if rejection := self._audience.rejection(author):
                if message.addresses_bot and not message.late:
                    self._reject(message, rejection)
                return
            await self._follow(message, location)
            # The backfill reads many messages that are turns already: their context is not read again.
            if message.late and await self._engine.is_stored(message.keys):
                return
            (read,) = await self._platform.resolve_names(
                [ThreadMessage(message.id, message.user, "", message.content.text)]
            )
            text = message.content.command_text or read.text
            words = parse_command(text, self._commands, location.conversation) if message.addresses_bot else ()
            if not words:
                await self._ask(message, location, author, read.text)
            elif message.may_notify and not message.late:  # no row tells whether a late command was run
                await self._platform.run_command(message, location.conversation, words)
                self._done.add(message.id)

    async def _with_locale(self, author: Member, location: Location) -> Member:
        """Return the author with the language and time zone of texts for them alone, in place of what is told."""
        own = await self._locales.for_user(author.author, author.locale, location.conversation, location.locale)
        return replace(author, language=own.language, time_zone=own.time_zone)

    async def _is_for_bot(self, message: M, location: Location) -> bool:
        """Return True if the bot answers it. A message of a followed thread to another user ends the following, and one
        of a user who has asked nothing there is not for the bot.
        """
        if message.addresses_bot:
            return True
        if not (location.in_thread and self._audience.follow_threads):
            return False
        if message.replies_to_bot and not message.addresses_other:
            return True
        by = "" if message.addresses_other else message.user
        if not await self._engine.is_followed(location.conversation, message.sent_at, by):
            return False
        if message.addresses_other:
            await self._engine.save_addressee(location.conversation, is_bot=False, at=message.sent_at)
            self._done.add(message.id)
        return not message.addresses_other

    async def _follow(self, message: M, location: Location) -> None:
        """Follow a thread again in which a message turns to the bot."""
        if not (location.in_thread and (message.addresses_bot or message.replies_to_bot)):
            return
        if not await self._engine.is_followed(location.conversation, message.sent_at):
            await self._engine.save_addressee(location.conversation, is_bot=True, at=message.sent_at)

    async def _ask(self, message: M, location: Location, author: Member, text: str) -> None:
        text, agent, unknown = self._read_address(message, location, text)
        text = prepend_title(message.content.title, text or _placeholder_text(message))
        if text and unknown is None:
            await self._start_turn(message, location, author, text, agent)
        elif message.late or not message.may_notify:
            return
        elif unknown is not None:
            if self._done.add(message.id):
                shown = unknown_agent_message(self._engine.agents(location.conversation), unknown)
                showing = self._platform.show_to_author(message, location.conversation, shown)
                self._background_tasks.start_for(message.user, showing, f"{self._platform.name}: unknown agent")
        elif message.addresses_bot:
            if self._done.add(message.id):
                self._background_tasks.send_notice(
                    message.user, NOTHING_SAID, lambda text: self._platform.post_hint(message, text)
                )
        elif self._on_unreadable is not None:
            name = f"{self._platform.name}: unreadable message"
            self._background_tasks.start_for(message.user, self._on_unreadable(message), name)

    def _read_address(
        self, message: M, location: Location, text: str
    ) -> tuple[str, AgentRef | None, UnknownName | None]:
        """Return the question, and the agent that it names, or the name of none here. Only a message for the bot names
        one.
        """
        if message.addresses_bot:
            match self._engine.agents(location.conversation).read_address(text):
                case Addressed(agent, rest):
                    return rest, agent, None
                case unknown:
                    return text, None, unknown
        return text, None, None

    async def _start_turn(
        self, message: M, location: Location, author: Member, text: str, agent: AgentRef | None
    ) -> None:
        conversation = location.conversation
        if location.open_thread is not None and not message.replies_to_bot:
            # Before the message is stored, so that a retry finds the same thread. A reply to an answer in the channel
            # is answered there.
            conversation = replace(conversation, thread=await location.open_thread(text))
        inbound = InboundMessage(
            keys=message.keys,
            conversation=conversation,
            author=author.author,
            text=text,
            attachments=message.content.files,
            context=await self._context(message, location),
            message_id=message.id,
            agent=agent,
        )
        try:
            await self._engine.receive(
                self._locales.with_known(inbound, author.locale, location.locale, direct=message.direct)
            )
        except QueueFull as error:
            self._reject(message, error.user_message)
            return
        except DatabaseUnwritable:
            if message.may_notify and self._delayed.add(message.id):
                self._notify_author(message, NOT_STORED)
            raise
        self._done.add(message.id)

    async def _context(self, message: M, location: Location) -> tuple[str, ...]:
        below = await self._platform.resolve_names(message.content.forwarded)
        forwarded = format_lines([line.entry for line in below], LONGEST_FORWARDED)
        if not (location.in_thread or message.content.replied_to):
            return forwarded
        try:
            async with asyncio.timeout(self._platform.reading_seconds):
                reading = (
                    self._threads.read(message, self._platform)
                    if location.in_thread
                    else self._platform.read_earlier(message, in_thread=False)
                )
                thread, replied_to = await reading
        except (DeliveryFailed, TimeoutError):
            return (UNREAD, *forwarded)
        thread, replied_to = [await self._platform.resolve_names(messages) for messages in (thread, replied_to)]
        last_turn = await self._engine.latest_turn(location.conversation) if thread else None
        lines = context_messages(thread, replied_to, last_turn)
        return (*format_lines([line.entry for line in lines]), *forwarded)

    def _reject(self, message: M, why: str) -> None:
        if message.may_notify and self._done.add(message.id):
            self._notify_author(message, why)

    def _notify_author(self, message: M, why: str) -> None:
        self._background_tasks.send_notice(message.user, why, lambda text: self._platform.notify_author(message, text))


def ask_again_message(turn_id: str) -> Message:
    """Return the offer to ask the edited text of a question."""
    button = Button(str(ASK_AGAIN), AskAgain(turn_id), ButtonStyle.PRIMARY)
    return Message("edited", (Paragraph((Text(str(EDITED)),)), Buttons((button,))))


def unknown_agent_message(agents: Agents, unknown: UnknownName) -> Message:
    """Return the reply to a name that no agent here has, with the agent that was probably meant."""
    meant = unknown.meant
    here = _("Agents here: {names}", names=", ".join(agents.names)) if agents.here else ""
    blocks: list[Block] = [Paragraph((Text(" ".join(filter(None, (str(NO_SUCH_AGENT), here)))),))]
    if meant is not None:
        blocks.append(Paragraph((Text(_("Did you mean {name}?", name=meant.agent.name)),)))
        if 0 < len(meant.text) <= LONGEST_OFFERED:
            asking = RunCommand(("ask", meant.agent.name, meant.text))
            label = _("Ask {name}", name=single_line(meant.agent.name, LONGEST_LABEL))
            blocks.append(Buttons((Button(label, asking, ButtonStyle.PRIMARY),)))
    return Message("agents", tuple(blocks))


def _placeholder_text(message: PlatformMessage) -> str:
    """Return the input for a message without text; empty if there is nothing to answer."""
    if message.content.files:
        return describe_files(message.content.files)
    if message.content.forwarded:
        return FORWARDED
    if message.mentions_bot and message.content.replied_to is not None and not message.replies_to_bot:
        return WITHOUT_WORDS
    return ""
