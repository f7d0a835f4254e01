"""Parts of the handling of messages: audience, deduplication, order in a conversation, following of threads, typed
commands, and the context of a thread.

The audience policy says which users the bot responds to. Approver and admin rights are checked elsewhere.

The context is earlier messages of other users as lines for the model. Each line is one message after its author's name.
Continuation lines are indented, so that no user can write a line in another's name. In a thread with a turn of the bot,
messages without a mention are for the bot unless they mention another user. The operator may switch that off.
"""

from __future__ import annotations

import asyncio
import shlex
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from bot.domain.conversations import Attachment, ConversationKey
from bot.engine.prompt.text_format import clean_name
from bot.ports import Commands, EngineApi
from bot.rendering.text_safety import ELLIPSIS, single_line, strip_control

REMEMBERED = 5000
MOST_LINES = 50
LONGEST_LINE = 1_000
LONGEST_CONTEXT = 12_000
"""In characters, of all lines together."""
LEFT_OUT = "(earlier messages of this thread are left out)"
COMMANDS = ("mcp", "profile", "conversations", "usage")

L = TypeVar("L")


class KeyedLock:
    """Lock by key: one holder at a time for each key, in order of arrival."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def acquire(self, key: str) -> AsyncIterator[None]:
        """Wait for the lock of a key, and hold it for the block."""
        lock, users = self._locks.get(key) or (asyncio.Lock(), 0)
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            _, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, users - 1)


class RecentKeys:
    """The latest keys of messages, because Slack delivers some events twice and not every event has a database row."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, None] = OrderedDict()

    def add(self, key: str) -> bool:
        """Return True if the key is new."""
        if key in self._seen:
            return False
        self.remember(key)
        return True

    def __contains__(self, key: str) -> bool:
        return key in self._seen

    def remember(self, key: str) -> None:
        """Add a key that is known to be handled."""
        self._seen[key] = None
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)

    def discard(self, key: str) -> None:
        """Remove a key, so that its next delivery is new."""
        self._seen.pop(key, None)


class ThreadTracker:
    """Conversations in which the bot has a turn. With `follow_threads` they go on without a mention."""

    def __init__(self, *, follow_threads: bool = True) -> None:
        self._follow = follow_threads
        self._engaged: OrderedDict[ConversationKey, None] = OrderedDict()

    async def is_following(self, conversation: ConversationKey, engine: EngineApi) -> bool:
        """Return True if the bot answers unmentioned messages in the thread."""
        if not self._follow:
            return False
        # Only a yes is remembered: any process may make it one at any time.
        if conversation not in self._engaged and await engine.recent_turns(conversation, 1):
            self.follow(conversation)
        return conversation in self._engaged

    def follow(self, conversation: ConversationKey) -> None:
        """Add a conversation in which the bot has a turn."""
        self._engaged[conversation] = None
        self._engaged.move_to_end(conversation)
        while len(self._engaged) > REMEMBERED:
            self._engaged.popitem(last=False)


def format_lines(messages: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return names and texts as lines for the model, the newest as far as there is room."""
    lines: list[str] = []
    room = LONGEST_CONTEXT
    for name, text in reversed(messages):
        line = _line(name, text)
        if len(lines) >= MOST_LINES or len(line) > room:
            lines.append(LEFT_OUT)
            break
        lines.append(line)
        room -= len(line)
    return tuple(reversed(lines))


def messages_since(lines: Sequence[L], seen: Callable[[L], bool]) -> Sequence[L]:
    """Return the lines after the last one that was `seen`; all lines if the model has seen none."""
    for position in reversed(range(len(lines))):
        if seen(lines[position]):
            return lines[position + 1 :]
    return lines


def append_file_names(text: str, names: Sequence[str]) -> str:
    """Return a message's text with the names of its files."""
    return "\n".join(filter(None, (text, *(f"[file: {single_line(name, 80)}]" for name in names))))


def describe_files(files: Sequence[Attachment]) -> str:
    """Return the text for a message of files alone."""
    return f"(sent {len(files)} files)" if len(files) > 1 else "(sent a file)"


def _line(name: str, text: str) -> str:
    text = strip_control(text).strip()
    text = text if len(text) <= LONGEST_LINE else text[: LONGEST_LINE - 1].rstrip() + ELLIPSIS
    # A colon in a name would let its bearer speak in another's.
    return f"{clean_name(name) or 'Somebody'}: {text}".replace("\n", "\n    ")


def parse_command(text: str, commands: Commands, conversation: ConversationKey) -> tuple[str, ...]:
    """Return the words of a typed command, its name first; empty for other text. `profile`, `conversations` and `usage`
    are ordinary words too: they count as commands only with a verb.
    """
    first, *rest = text.split(maxsplit=2) or [""]
    name = first.lower().removeprefix("/")
    if name not in COMMANDS:
        return ()
    if name != "mcp" and not first.startswith("/") and rest:
        line = f"{name} {rest[0].lower()}"
        if not any(f"{completion} ".startswith(f"{line} ") for completion in commands.complete(line, conversation)):
            return ()
    return (name, *split_args(text[len(first) :]))


def split_args(text: str) -> tuple[str, ...]:
    """Return words as a shell reads them, also between the curly quotes that Slack's clients make of straight ones. If
    a quote is open, split at blanks only.
    """
    straight = text.translate({0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'"})
    try:
        return tuple(shlex.split(straight))
    except ValueError:
        return tuple(text.split())


NOT_FOR_GUESTS = "I may not answer guests of this workspace. Please ask a full member."
NOT_FOR_STRANGERS = "I may not answer people from outside, only members."


class MessageAuthor(Protocol):
    """Facts about a message's author that decide if the bot responds."""

    @property
    def guest(self) -> bool:
        """True for a guest: a member of the workspace with fewer rights."""

    @property
    def external(self) -> bool:
        """True for a user of another workspace, and for a bot."""


@dataclass(frozen=True, slots=True)
class AudiencePolicy:
    """Rules of response. Guests belong to the workspace, external users to another one (Slack Connect); neither gets
    an answer unless the operator allows it. `follow_threads`: the bot also answers unmentioned messages in its
    threads.
    """

    follow_threads: bool = True
    guests: bool = False
    strangers: bool = False

    def rejection(self, who: MessageAuthor) -> str:
        """Why this person is not answered, empty if they are."""
        if who.external and not self.strangers:
            return NOT_FOR_STRANGERS
        return NOT_FOR_GUESTS if who.guest and not self.guests else ""
