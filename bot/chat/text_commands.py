"""Commands that people say to the bot in a message, instead of typing them behind a slash."""

from __future__ import annotations

import shlex

from bot.domain.conversations import ConversationKey
from bot.ports import Commands

COMMANDS = ("mcp", "profile", "conversations", "usage")


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
        if not any(f"{each} ".startswith(f"{line} ") for each in commands.complete(line, conversation)):
            return ()
    return (name, *split_args(text[len(first) :]))


def split_args(text: str) -> tuple[str, ...]:
    """Words as a shell reads them, also between the curly quotes that Slack's clients make of straight ones; as they
    stand if a quote is open.
    """
    straight = text.translate({0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'"})
    try:
        return tuple(shlex.split(straight))
    except ValueError:
        return tuple(text.split())
