"""The first message of the bot in a channel: its introduction and things to try. `countersign setup` posts it."""

from __future__ import annotations

from dataclasses import dataclass

from bot.chat.message_model import Heading, Markdown, Message, Paragraph, Text, Tone
from bot.domain.conversations import ConversationKey
from bot.i18n import _


@dataclass(frozen=True, slots=True)
class FirstMessageOwner:
    """Owner of the message; `created_at` is in epoch seconds."""

    id: str
    conversation: ConversationKey
    created_at: float


def first_message(name: str, *, commands: bool) -> Message:
    """Return the message of a bot with this name. `commands` is True if it has slash commands."""
    tries = [
        _("Mention me with a question: `@{name} what can you do?`", name=name),
        _("Go on in the thread of my answer, without a mention."),
        _("Before I change anything, I post a card here. It shows the exact call, and somebody approves or denies it."),
    ]
    if commands:
        tries.append(_("`/mcp list` shows the servers that I work with, and their tools."))
    return Message(
        "first-message",
        (
            Heading(_("Hello, I am {name}", name=name)),
            Paragraph((Text(_("I answer questions with the tools of my MCP servers. This is what to try:")),)),
            Markdown("\n".join(f"- {line}" for line in tries)),
        ),
        Tone.NEUTRAL,
    )
