"""Typed lines: messages and commands.

An unknown command is never sent to the model.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

from bot.domain.commands import WHOLE_TEXT
from bot.i18n import _, gettext_lazy

COMMANDS: Mapping[str, str] = {
    "/help": gettext_lazy("what can be typed here"),
    "/mcp": gettext_lazy("servers and tools: /mcp list, /mcp tools, /mcp add, /mcp help"),
    "/profile": gettext_lazy("who the bot is in a place: /profile list, /profile set NAME"),
    "/agents": gettext_lazy("who can be asked by name here, and what each does"),
    "/ask": gettext_lazy("ask one of them: /ask NAME TEXT"),
    "/conversations": gettext_lazy("what was talked about: list, show, export, delete"),
    "/usage": gettext_lazy("tokens and money that models took: /usage me, /usage workspace"),
    "/approvals": gettext_lazy("calls that wait for you: list, approve ID, deny ID REASON"),
    "/open": gettext_lazy("continue one of these conversations: /open ID"),
    "/new": gettext_lazy("start a fresh conversation"),
    "/check": gettext_lazy("find out whether a call of unknown outcome happened"),
    "/again": gettext_lazy("run such a call once more"),
    "/stop": gettext_lazy("stop the turn that runs or waits for an approval in this conversation"),
    "/quit": gettext_lazy("leave (also Ctrl-D)"),
}
_ELSEWHERE = frozenset(
    {"/mcp", "/profile", "/agents", "/ask", "/conversations", "/usage", "/preferences", "/approvals", "/console"}
)
"""Commands that the engine's side answers."""


@dataclass(frozen=True, slots=True)
class Say:
    """A message for the assistant."""

    text: str


@dataclass(frozen=True, slots=True)
class Invoke:
    """A command that the engine's side answers."""

    command: str
    words: tuple[str, ...]


class LocalCommand(Enum):
    """Commands of the terminal itself, without arguments."""

    HELP = auto()
    NEW = auto()
    CHECK = auto()
    AGAIN = auto()
    STOP = auto()
    QUIT = auto()


RepeatCall = Literal[LocalCommand.CHECK, LocalCommand.AGAIN]
"""Commands about the last call of unknown outcome."""


@dataclass(frozen=True, slots=True)
class OpenConversation:
    """Continue an earlier conversation. The beginning of its id is enough; empty if none was typed."""

    name: str


@dataclass(frozen=True, slots=True)
class UnknownCommand:
    """A command that does not exist; `like` is one that does, if any is near."""

    command: str
    like: str = ""

    @property
    def error(self) -> str:
        """Error for the user, on one line."""
        missing = _("There is no {command}.", command=self.command)
        hint = _("Did you mean {command}?", command=self.like) if self.like else _("Type /help for what there is.")
        return f"{missing} {hint}"


Line = Say | Invoke | OpenConversation | LocalCommand | UnknownCommand
_PLAIN: Mapping[str, LocalCommand] = {
    "exit": LocalCommand.QUIT,
    "quit": LocalCommand.QUIT,
    "/exit": LocalCommand.QUIT,
    "/quit": LocalCommand.QUIT,
    "?": LocalCommand.HELP,
    "/?": LocalCommand.HELP,
    "/help": LocalCommand.HELP,
    "/new": LocalCommand.NEW,
    "/clear": LocalCommand.NEW,
    "/check": LocalCommand.CHECK,
    "/again": LocalCommand.AGAIN,
    "/stop": LocalCommand.STOP,
}


def parse(text: str) -> Line | None:
    """Parse a line; None for an empty one. A path (`/etc/hosts is ...`) is not a command."""
    text = text.strip()
    if not text:
        return None
    command = text.split(maxsplit=1)[0]
    if text in _PLAIN:
        return _PLAIN[text]
    if not text.startswith("/") or "/" in command[1:]:
        return Say(text)
    name, rest = command.lower()[1:], text[len(command) :]
    if name == "open":
        return OpenConversation(rest.strip())
    if command.lower() in _ELSEWHERE:
        return Invoke(name, (rest.strip(),) if name in WHOLE_TEXT else _words(rest))
    near = difflib.get_close_matches(command.lower(), COMMANDS, n=1, cutoff=0.5)
    return _PLAIN.get(command.lower()) or UnknownCommand(command[:40], near[0] if near else "")


def _words(text: str) -> tuple[str, ...]:
    """Split words like a shell, so that names with spaces can be quoted; at spaces if a quote is open."""
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return tuple(text.split())
