"""A conversation to read, when another process holds the database and nobody can be asked."""

from __future__ import annotations

from bot.domain.turns import ToolStep
from bot.domain.views import TurnView
from bot.platforms.console.console import Streams
from bot.platforms.console.look import PROMPT
from bot.platforms.console.opening import Opening
from bot.platforms.console.streams import write
from bot.rendering.changes import answer
from bot.rendering.plain import plain
from bot.rendering.tool_lines import tool_line


def _without_words(view: TurnView) -> str:
    """How a turn stands that has no answer: a call run by hand may have been turned down."""
    if not view.turn.status.ended:
        return "(not answered yet)"
    lines = [tool_line(step, view) for step in view.steps if isinstance(step, ToolStep)]
    return ", ".join(f"{line.name}: {line.state}" for line in lines) or "(no answer)"


def write_conversation(opening: Opening, streams: Streams) -> None:
    """Questions and answers to standard output, a word on what this is to standard error."""
    write(streams.stderr, f"Another process holds the database: {plain(opening.conversation)} can only be read.\n")
    for view in opening.earlier:
        text = answer(view) or view.turn.failure or _without_words(view)
        write(streams.stdout, f"{PROMPT} {plain(view.turn.question.text)}\n\n{plain(text)}\n\n")
