"""Export of a conversation, for use while another process has the database."""

from __future__ import annotations

from bot.domain.turns import ToolStep
from bot.domain.views import TurnView
from bot.platforms.console.console import Streams
from bot.platforms.console.plain_output import write
from bot.platforms.console.startup import StartState
from bot.platforms.console.theme import PROMPT
from bot.rendering.text_safety import strip_control
from bot.rendering.tool_status import tool_status
from bot.rendering.turn_events import answer


def _without_words(view: TurnView) -> str:
    """Return the state of a turn without an answer; a manual call may have been denied."""
    if not view.turn.status.ended:
        return "(not answered yet)"
    lines = [tool_status(step, view) for step in view.steps if isinstance(step, ToolStep)]
    return ", ".join(f"{line.name}: {line.state}" for line in lines) or "(no answer)"


def export_conversation(opening: StartState, streams: Streams) -> None:
    """Write questions and answers to standard output, an explanation to standard error."""
    write(
        streams.stderr, f"Another process holds the database: {strip_control(opening.conversation)} can only be read.\n"
    )
    for view in opening.earlier:
        text = answer(view) or view.turn.failure or _without_words(view)
        write(streams.stdout, f"{PROMPT} {strip_control(view.turn.question.text)}\n\n{strip_control(text)}\n\n")
