"""Parser of typed lines: messages and commands. An unknown command is never sent to the model.

Tab completion: commands of the terminal and of the engine.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from bot.domain.commands import WHOLE_TEXT, Verb
from bot.i18n import _, gettext_lazy
from bot.rendering.text_safety import single_line

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


class SlashCompleter(Completer):
    """Completes the last word of a line that begins with a slash, for the menu that opens with it."""

    def __init__(self) -> None:
        self.more: Callable[[str], Sequence[str]] = lambda _text: ()
        """Completer of whole command lines without the slash; empty until the commands are ready."""
        self.verbs: Mapping[str, Sequence[Verb]] = {}
        """Verbs by command, which describe the words of a line; empty until the commands are ready."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the matching words."""
        del complete_event
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        word = text.rsplit(" ", maxsplit=1)[-1]
        for offer, about in (self._words(text, word) if " " in text else COMMANDS).items():
            if offer.casefold().startswith(word.casefold()):
                yield Completion(
                    offer, start_position=-len(word), display=single_line(offer, 40), display_meta=str(about)
                )

    def _words(self, text: str, word: str) -> Mapping[str, str]:
        """Return the candidates for the last word."""
        words = text.removeprefix("/")
        before = len(words) - len(word)
        candidates = [line[before:].split(" ")[0] for line in self.more(words) if line[before:]]
        command, *earlier = words[:before].split()
        return {candidate: self._about(command, [*earlier, candidate]) for candidate in candidates}

    def _about(self, command: str, words: Sequence[str]) -> str:
        """Describe a word by its verb: the summary of the verb, or the second words of several. Empty for a value."""
        path = " ".join(words)
        verbs = self.verbs.get(command, ())
        if (verb := next((verb for verb in verbs if verb.path == path), None)) is not None:
            return str(verb.summary)
        return ", ".join(verb.path.removeprefix(f"{path} ") for verb in verbs if verb.path.startswith(f"{path} "))
