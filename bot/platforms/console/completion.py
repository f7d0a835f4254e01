"""Tab completion: commands of the terminal and of the engine."""

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
        """Completer of whole command lines without the slash; empty until the commands are ready."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the matching words."""
        del complete_event  # Tab is the only way to ask
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        word = text.rsplit(" ", maxsplit=1)[-1]
        for offer, about in (self._words(text, word) if " " in text else COMMANDS).items():
            if offer.startswith(word):
                yield Completion(offer, start_position=-len(word), display=single_line(offer, 40), display_meta=about)

    def _words(self, text: str, word: str) -> dict[str, str]:
        """Return the candidates for the last word."""
        typed = text.removeprefix("/")
        before = len(typed) - len(word)
        return {line[before:].split(" ")[0]: "" for line in self.more(typed) if line[before:]}
