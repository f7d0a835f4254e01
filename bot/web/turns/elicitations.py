"""Elicitations in responses and event streams.

The address of a URL elicitation is only for the token that asked, not for other readers of the response. Answers are
never included.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from bot.domain.elicitations import Elicitation, FormMode, UrlMode
from bot.domain.turns import ToolStep, Turn
from bot.domain.views import TurnView
from bot.rendering.elicitation_card import domain_of, outcome_text, server_name, warning_text
from bot.web.routes import ResponseModel, moment

REMEMBERED = 16
"""Number of latest elicitations of a call whose end is tracked in a cursor."""
_BITS = (1 << REMEMBERED) - 1
_NUMBERED = re.compile(r"([b-vx-z])([0-9]+)_([0-9]+)")
"""Codes with counts. The other letters are codes of pending calls, whose numbers differ in meaning."""


class ElicitationShape(ResponseModel):
    """An elicitation, for the token in whose name the call runs."""

    elicitation_id: str
    conversation_id: str
    response_id: str
    tool_call_id: str
    server: str
    tool: str
    message: str = Field(description="The server's own words.")
    mode: str = Field(description="`form` or `url`.")
    requested_schema: dict[str, Any] | None = Field(description="Of a form: what `content` has to fit.")
    url: str | None = Field(description="A page to visit, sent only to the token that asked.")
    domain: str = Field(description="Where that leads to.")
    warning: str = Field(description="What to be careful of, in a sentence; mostly empty.")
    asked_of: str = Field(description="Whose answer it takes.")
    expires_in_seconds: float | None = Field(description="From when it was asked; null if it never expires.")
    expires_at: str | None
    action: str | None = Field(description="How it ended: `accept`, `decline` or `cancel`; null while it waits.")
    outcome: str = Field(description="The same in a few words.")


def elicitation_shape(
    turn: Turn, step: ToolStep, elicitation: Elicitation, conversation: str, reader: str
) -> ElicitationShape:
    """Return an elicitation for the response. `conversation` is its public id, `reader` the principal of the reader."""
    asked = elicitation.question.ask
    url = asked.url if isinstance(asked, UrlMode) and reader == turn.author.principal else None
    return ElicitationShape(
        elicitation_id=elicitation.id,
        conversation_id=conversation,
        response_id=turn.id,
        tool_call_id=f"{turn.id}:{step.n}",
        server=server_name(step),
        tool=step.tool.name if step.tool is not None else step.call.name,
        message=elicitation.question.message,
        mode="form" if isinstance(asked, FormMode) else "url",
        requested_schema=dict(asked.schema) if isinstance(asked, FormMode) else None,
        url=url,
        domain=domain_of(asked),
        warning=warning_text(elicitation.question),
        asked_of=turn.author.name or turn.author.id,
        expires_in_seconds=elicitation.expires_in,
        expires_at=None if elicitation.expires_at is None else moment(elicitation.expires_at),
        action=elicitation.reply.action.value if elicitation.reply is not None else None,
        outcome="" if elicitation.open else outcome_text(elicitation),
    )


def elicitations_of(view: TurnView, conversation: str, reader: str) -> list[ElicitationShape]:
    """Return the open elicitations of a response."""
    calls = (step for step in view.steps if isinstance(step, ToolStep) and not view.turn.status.ended)
    return [
        elicitation_shape(view.turn, step, pending_elicitation, conversation, reader)
        for step in calls
        for pending_elicitation in step.pending_elicitations
    ]


@dataclass(frozen=True, slots=True)
class ElicitationCursor:
    """Position of a client in the elicitations of one call: their number, and a bit mask of the last `REMEMBERED` that
    were sent as open, the last one in the lowest bit.
    """

    count: int = 0
    waiting: int = 0

    @classmethod
    def read(cls, code: str) -> tuple[str, ElicitationCursor]:
        """Split the code of a call into its own code and this position."""
        match = _NUMBERED.fullmatch(code)
        return (match[1], cls(int(match[2]), int(match[3]))) if match is not None else (code, cls())

    def written(self, code: str) -> str:
        """Append the position to the code of a call; unchanged without elicitations."""
        return f"{code}{self.count}_{self.waiting}" if self.count else code

    def news(self, questions: Sequence[Elicitation]) -> Iterator[tuple[Elicitation | None, ElicitationCursor]]:
        """Yield each elicitation that has ended or opened since, with the position after it. One that opened and ended
        meanwhile is None.
        """
        cursor = self
        for behind, each in enumerate(reversed(questions[: cursor.count])):
            if not each.open and cursor.waiting >> behind & 1:
                cursor = ElicitationCursor(cursor.count, cursor.waiting & ~(1 << behind))
                yield each, cursor
        for question in questions[cursor.count :]:
            cursor = ElicitationCursor(cursor.count + 1, (cursor.waiting << 1 | question.open) & _BITS)
            yield question if question.open else None, cursor
