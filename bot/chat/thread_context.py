"""Context of a thread: earlier messages of other users as lines for the model, and whether the bot follows the thread.

Each line is one message after its author's name. Continuation lines are indented, so that no user can write a line in
another's name. In a thread with a turn of the bot, messages without a mention are for the bot unless they mention
another user. The operator may switch that off.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TypeVar

from bot.domain.conversations import Attachment, ConversationKey
from bot.engine.author_labels import clean_name
from bot.ports import EngineApi
from bot.rendering.text_safety import ELLIPSIS, single_line, strip_control

REMEMBERED = 5000


class ThreadTracker:
    """Knows in which conversations the bot is engaged. `follow_threads`: those go on without a mention."""

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
        """The bot has a turn in this conversation."""
        self._engaged[conversation] = None
        self._engaged.move_to_end(conversation)
        while len(self._engaged) > REMEMBERED:
            self._engaged.popitem(last=False)


MOST_LINES = 50
LONGEST_LINE = 1_000
LONGEST_CONTEXT = 12_000
"""In characters, of all lines together."""
LEFT_OUT = "(earlier messages of this thread are left out)"

L = TypeVar("L")


def format_lines(said: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Names and texts as lines for the model, the newest as far as there is room."""
    kept: list[str] = []
    room = LONGEST_CONTEXT
    for name, text in reversed(said):
        line = _line(name, text)
        if len(kept) >= MOST_LINES or len(line) > room:
            kept.append(LEFT_OUT)
            break
        kept.append(line)
        room -= len(line)
    return tuple(reversed(kept))


def messages_since(lines: Sequence[L], seen: Callable[[L], bool]) -> Sequence[L]:
    """The lines after the last one that has been `seen`, all of them if none has."""
    for place in reversed(range(len(lines))):
        if seen(lines[place]):
            return lines[place + 1 :]
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
