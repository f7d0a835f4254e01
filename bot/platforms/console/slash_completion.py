"""Tab completion of typed commands: those of the terminal and of the engine.

It is apart from the parser, because a chat without a terminal does not load the library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from bot.domain.commands import Verb
from bot.platforms.console.slash import COMMANDS
from bot.rendering.text_safety import single_line


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
