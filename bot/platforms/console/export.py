"""A conversation to read, when another process holds the database and nobody can be asked."""

from __future__ import annotations

from bot.domain.turns import ToolStep
from bot.domain.views import TurnView
from bot.platforms.console.console import Streams
from bot.platforms.console.plain_output import write
from bot.platforms.console.startup import StartState
from bot.platforms.console.theme import PROMPT
from bot.rendering.text_safety import strip_control
from bot.rendering.tool_status import tool_status
from bot.rendering.view_diff import answer


def _without_words(view: TurnView) -> str:
    """How a turn stands that has no answer: a call run by hand may have been turned down."""
    if not view.turn.status.ended:
        return "(not answered yet)"
    lines = [tool_status(step, view) for step in view.steps if isinstance(step, ToolStep)]
    return ", ".join(f"{line.name}: {line.state}" for line in lines) or "(no answer)"


def export_conversation(opening: StartState, streams: Streams) -> None:
    """Questions and answers to standard output, a word on what this is to standard error."""
    write(
        streams.stderr, f"Another process holds the database: {strip_control(opening.conversation)} can only be read.\n"
    )
    for view in opening.earlier:
        text = answer(view) or view.turn.failure or _without_words(view)
        write(streams.stdout, f"{PROMPT} {strip_control(view.turn.question.text)}\n\n{strip_control(text)}\n\n")
