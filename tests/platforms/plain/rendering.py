"""Message of the chat layer as literal text, with a list of commands to type in place of buttons."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bot.chat import message_model as model
from bot.chat.actions import Action, FeedbackValue, SendFeedback, encode, with_question
from bot.rendering.approval_card import argument_lines
from bot.rendering.tables import columns
from bot.rendering.text_safety import ELLIPSIS
from tests.platforms.plain.api import GROUP

LONGEST_TEXT = 3_900
"""Characters, below the service's 4,000."""
MOST_COMMANDS = 24


@dataclass(frozen=True, slots=True)
class PlainMessage:
    """An outgoing message. `channel` is empty for the conversation of its turn."""

    name: str
    text: str
    commands: tuple[tuple[str, str], ...] = ()
    asks: bool = False
    channel: str = ""

    @property
    def body(self) -> dict[str, Any]:
        """Body of a post or an edit."""
        return {"text": self.text or ELLIPSIS, "commands": list(self.commands)}


def plain_message(message: model.Message) -> PlainMessage:
    """Return a message of the chat layer as an outgoing message. Arguments fill the remaining characters."""
    arguments = sum(isinstance(block, model.Arguments) for block in message.blocks)
    used = sum(len(_text(block, 0, message.notifies)) + 1 for block in message.blocks)
    room = (LONGEST_TEXT - used) // max(arguments, 1)
    text = "\n".join(filter(None, (_text(block, room, message.notifies) for block in message.blocks)))
    commands = tuple(_commands(message.blocks))[:MOST_COMMANDS]
    return PlainMessage(message.name, text[:LONGEST_TEXT], commands, message.asks)


def escape(text: str) -> str:
    """Return a text that mentions no user."""
    return text.replace("@<", "@\N{WORD JOINER}<")


def _text(  # noqa: PLR0911 - one case for each kind of block
    block: model.Block, room: int, notifies: Container[str]
) -> str:
    match block:
        case model.Heading(text) | model.Markdown(text) | model.Code(text):
            return escape(text)
        case model.Paragraph(spans) | model.Footer(spans):
            return "".join(_span(span, notifies) for span in spans)
        case model.Details(lines) | model.Caption(lines):
            return "\n".join(map(escape, lines))
        case model.Table(headings, rows):
            return escape(columns([headings, *rows]))
        case model.Facts(facts):
            return "\n".join(escape(f"{name}: {value}") for name, value in facts)
        case model.Quote(text):
            return "\n".join(f"> {escape(line)}" for line in text.split("\n"))
        case model.Arguments(arguments):
            return escape(argument_lines(arguments, room)) if room else ""
        case _:
            return ""


def _span(span: model.Span, notifies: Container[str]) -> str:
    match span:
        case model.Text(text):
            return escape(text)
        case model.Mention(user):
            is_mention = user.principal in notifies or not user.name
            return f"@<{user.id}>" if is_mention else escape(user.name)
        case model.GroupMention(principal, name):
            group = principal.removeprefix(GROUP)
            return f"@<&{group}>" if principal in notifies else escape(name or group)
        case model.Time(at):
            return datetime.fromtimestamp(at, UTC).strftime("%H:%M UTC")
        case model.Link(url, text):
            return f"{escape(text)} ({url})"
        case model.ChannelLink(channel):
            return f"#{channel}"


def _commands(blocks: Sequence[model.Block]) -> Iterable[tuple[str, str]]:
    for block in blocks:
        match block:
            case model.Buttons(buttons, more, links):
                yield from ((link.label, link.url) for link in links)
                yield from ((button.label, command(_action(button))) for button in buttons)
                yield from ((entry.label, command(entry.action)) for entry in more)
            case model.Feedback(turn_id):
                yield "👍", command(SendFeedback(turn_id, FeedbackValue.GOOD))
                yield "👎", command(SendFeedback(turn_id, FeedbackValue.BAD))


def _action(button: model.Button) -> Action:
    """Return the action of a button. A command has no dialog: a message asks before a destructive call."""
    match button.action:
        case action if button.confirmation is not None:
            return with_question(action)
        case action:
            return action


def command(action: Action) -> str:
    """Return the text that users type for an action."""
    return f"!{encode(action)}"
