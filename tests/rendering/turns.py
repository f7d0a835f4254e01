"""Sample steps and views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bot.domain.approvals import Approval
from bot.domain.conversations import Author, ConversationKey
from bot.domain.elicitations import Elicitation, ElicitationRequest, FormMode, UrlMode
from bot.domain.messages import TextPart, ToolCall, ToolResult, assistant
from bot.domain.turns import ModelStep, Step, StepStatus, ToolRef, ToolStep, Turn, TurnInput, TurnStatus, TurnView

ANA = Author("slack", "U1", "Ana")
NOTES = ToolRef("notes", "add_note", read_only=False, destructive=False)


def a_step(status: StepStatus, n: int = 0, **changes: Any) -> ToolStep:
    """Return a step that calls `notes.add_note`. `result` is the text of its result."""
    text = changes.pop("result", None)
    call = ToolCall(f"call-{n}", "notes__add_note", changes.pop("arguments", {"text": "Buy milk"}))
    result = None if text is None else ToolResult(call.id, (TextPart(text),))
    return replace(ToolStep(n, call, NOTES, status, result=result), **changes)


def an_approval(**changes: Any) -> Approval:
    return replace(Approval("apr-12345678", 1, "f1", ANA, expires_in=1800.0), **changes)


def a_form(elicitation_id: str = "eli-12345678", **changes: Any) -> Elicitation:
    """Return an elicitation with a form. `properties` are the properties of its schema."""
    properties = changes.pop("properties", {"title": {"type": "string", "title": "Title"}})
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    question = ElicitationRequest("k", changes.pop("message", "What is it called?"), FormMode(schema))
    return replace(Elicitation(elicitation_id, question, round=1, expires_in=1800.0), **changes)


def a_link(elicitation_id: str = "eli-12345678", **changes: Any) -> Elicitation:
    """Return an elicitation with a page to visit at `url`."""
    url = changes.pop("url", "https://jira.example.com/consent?id=7")
    question = ElicitationRequest("k", changes.pop("message", "Please say that we may."), UrlMode(url))
    return replace(Elicitation(elicitation_id, question, round=1, expires_in=1800.0), **changes)


def a_reply(n: int, text: str, *calls: ToolCall) -> ModelStep:
    return ModelStep(n, assistant(text, *calls))


def a_view(
    *steps: Step,
    status: TurnStatus = TurnStatus.RUNNING,
    failure: str = "",
    streaming: str = "",
    running: frozenset[int] = frozenset(),
    progress: Mapping[int, str] | None = None,
) -> TurnView:
    key = ConversationKey("slack", "T1", "C1", "1")
    turn = Turn("t1", key, 1, ANA, TurnInput("hello"), status, 0.0, failure)
    return TurnView(turn, steps, 1, streaming=streaming, running=running, progress=progress or {})
