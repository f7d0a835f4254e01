"""The context of a message: earlier messages of other users as lines for the model.

Each line is one message after its author's name. Continuation lines are indented, so that no user can write a line in
another's name. The bot's own messages, and those up to its last turn, are in its history and left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.domain.conversations import Attachment
from bot.domain.turns import Turn
from bot.engine.prompt.text_format import clean_name
from bot.rendering.text_safety import ELLIPSIS, single_line, strip_control

MOST_LINES = 50
LONGEST_LINE = 1_000
LONGEST_CONTEXT = 12_000
"""In characters, of all lines together."""
LEFT_OUT = "(earlier messages of this thread are left out)"
UNREAD = "(what was said here before could not be read)"
_UNNAMED = "Somebody"


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
class EarlierMessages:
    """Messages before another one, oldest first: those of its `thread`, and the chain of those that it replies to."""

    thread: Sequence[ThreadMessage] = ()
    replied_to: Sequence[ThreadMessage] = ()


def context_messages(earlier: EarlierMessages, last_turn: Turn | None) -> Sequence[ThreadMessage]:
    """Return the messages of the context: those that are replied to, and those of the thread since its last turn."""
    thread = earlier.thread if last_turn is None else _messages_since(earlier.thread, last_turn)
    known = {message.id for message in thread}
    replied_to = (message for message in earlier.replied_to if message.id not in known)
    return [message for message in (*replied_to, *thread) if not message.own]


def _messages_since(messages: Sequence[ThreadMessage], turn: Turn) -> Sequence[ThreadMessage]:
    """Return the messages after the last one that is the input of the turn; all if there is none."""
    for position in reversed(range(len(messages))):
        if (messages[position].user, messages[position].text) == (turn.author.id, turn.question.text):
            return messages[position + 1 :]
    return messages


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


def _line(name: str, text: str) -> str:
    text = strip_control(text).strip()
    text = text if len(text) <= LONGEST_LINE else text[: LONGEST_LINE - 1].rstrip() + ELLIPSIS
    # A colon in a name would let its bearer speak in another's.
    return f"{clean_name(name) or _UNNAMED}: {text}".replace("\n", "\n    ")


def prepend_title(title: str, text: str) -> str:
    """Return the text of a message below the title that it was posted under, if any."""
    return "\n\n".join(filter(None, (title, text)))


def append_file_names(text: str, names: Sequence[str]) -> str:
    """Return a message's text with the names of its files."""
    return "\n".join(filter(None, (text, *(f"[file: {single_line(name, 80)}]" for name in names))))


def describe_files(files: Sequence[Attachment]) -> str:
    """Return the text for a message of files alone."""
    return f"(sent {len(files)} files)" if len(files) > 1 else "(sent a file)"
