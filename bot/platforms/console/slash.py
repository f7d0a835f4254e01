"""Parser of typed lines: messages and commands. An unknown command is never sent to the model."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

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
    "/new": gettext_lazy("start a fresh conversation"),
    "/check": gettext_lazy("find out whether a call of unknown outcome happened"),
    "/again": gettext_lazy("run such a call once more"),
    "/stop": gettext_lazy("stop the turn that runs or waits for an approval in this conversation"),
    "/quit": gettext_lazy("leave (also Ctrl-D)"),
}


@dataclass(frozen=True, slots=True)
class Say:
    """A message for the assistant."""

    text: str


@dataclass(frozen=True, slots=True)
class Invoke:
    """A command that the engine's side answers."""

    command: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Help:
    """Show the help."""


@dataclass(frozen=True, slots=True)
class NewConversation:
    """Start a new conversation."""


@dataclass(frozen=True, slots=True)
class CheckCall:
    """Has the last call of unknown outcome happened?"""


@dataclass(frozen=True, slots=True)
class RunAgain:
    """Run the last call of unknown outcome again."""


@dataclass(frozen=True, slots=True)
class StopTurn:
    """Stop the turn that holds the conversation."""


@dataclass(frozen=True, slots=True)
class Quit:
    """Leave."""


@dataclass(frozen=True, slots=True)
class UnknownCommand:
    """A command that does not exist; `like` is one that does, if any is near."""

    command: str
    like: str = ""

    @property
    def complaint(self) -> str:
        """Error for the user, on one line."""
        missing = _("There is no {command}.", command=self.command)
        hint = _("Did you mean {command}?", command=self.like) if self.like else _("Type /help for what there is.")
        return f"{missing} {hint}"


Line = Say | Invoke | Help | NewConversation | CheckCall | RunAgain | StopTurn | Quit | UnknownCommand


_ELSEWHERE = frozenset(
    {"/mcp", "/profile", "/agents", "/ask", "/conversations", "/usage", "/preferences", "/approvals"}
)
"""Commands that the engine's side answers."""
_PLAIN: dict[str, Line] = {
    "exit": Quit(),
    "quit": Quit(),
    "/exit": Quit(),
    "/quit": Quit(),
    "?": Help(),
    "/?": Help(),
    "/help": Help(),
    "/new": NewConversation(),
    "/clear": NewConversation(),
    "/check": CheckCall(),
    "/again": RunAgain(),
    "/stop": StopTurn(),
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
    if command.lower() in _ELSEWHERE:
        name, rest = command.lower()[1:], text[len(command) :]
        return Invoke(name, (rest.strip(),) if name in WHOLE_TEXT else _words(rest))
    return _PLAIN.get(command.lower()) or _unknown(command)


def _unknown(command: str) -> UnknownCommand:
    near = difflib.get_close_matches(command.lower(), COMMANDS, n=1, cutoff=0.5)
    return UnknownCommand(command[:40], near[0] if near else "")


def _words(text: str) -> tuple[str, ...]:
    """Split words like a shell, so that names with spaces can be quoted; at spaces if a quote is open."""
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return tuple(text.split())
