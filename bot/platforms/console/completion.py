"""What Tab offers: our own commands, and whatever the commands of the engine's side offer.

Called by the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from bot.platforms.console.slash import COMMANDS
from bot.rendering.text_safety import single_line


class SlashCompleter(Completer):
    """Completes the last word of a line that begins with a slash."""

    def __init__(self) -> None:
        self.more: Callable[[str], Sequence[str]] = lambda _text: ()
        """Whole command lines, without the slash, that begin with a text; set once the commands are there."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """The words that fit."""
        del complete_event  # Tab is the only way to ask
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        word = text.rsplit(" ", maxsplit=1)[-1]
        for offer, about in (self._words(text, word) if " " in text else COMMANDS).items():
            if offer.startswith(word):
                yield Completion(offer, start_position=-len(word), display=single_line(offer, 40), display_meta=about)

    def _words(self, text: str, word: str) -> dict[str, str]:
        """What may stand where the last word stands, each once."""
        typed = text.removeprefix("/")
        before = len(typed) - len(word)
        return {line[before:].split(" ")[0]: "" for line in self.more(typed) if line[before:]}
