"""A finished turn to write out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bot.domain.messages import TextPart, ToolCall, ToolResult, assistant
from bot.domain.turns import ModelStep, StepStatus, ToolRef, ToolStep, Turn, TurnInput, TurnStatus, TurnView
from tests.fakes.parts import ANA, HALL


def a_view(text: str = "hello", reply: str = "Hello!", result: str = "3 notes", **changes: Any) -> TurnView:
    call = ToolStep(
        1,
        ToolCall("c1", "notes__list", {"of": "ana"}),
        ToolRef("notes", "list"),
        StepStatus.DONE,
        result=ToolResult("c1", (TextPart(result),)),
    )
    turn = Turn("t1", HALL, 1, ANA, TurnInput(text), TurnStatus.DONE, 1_800_000_000.0)
    return TurnView(replace(turn, **changes), (call, ModelStep(2, assistant(reply))), 3)
