"""Events as programs read them: the shape is a promise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bot.domain.elicitations import DECLINED
from bot.domain.messages import ToolCall
from bot.domain.turns import BlockingTurn, ModelRetry, StepStatus
from bot.rendering.turn_events import (
    ApprovalRequested,
    ApprovalSettled,
    ElicitationRequested,
    ElicitationSettled,
    ModelPaused,
    ReplyUpdated,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
    TurnEvent,
    TurnFailed,
    TurnFinished,
    TurnQueued,
    event_json,
)
from tests.rendering.turns import a_form, a_link, a_step, an_approval

CALL = {"step": 4, "call": "call-4", "server": "notes", "tool": "add_note", "arguments": {"text": "Buy milk"}}
QUESTION = {
    "step": 4,
    "call": "call-4",
    "server": "notes",
    "tool": "add_note",
    "elicitation": "eli-12345678",
    "expires_in": 1800.0,
    "expires_at": None,
}
ASKED = {
    "approval": "apr-12345678",
    "revision": 1,
    "fingerprint": "f1",
    "expires_in": 1800.0,
    "expires_at": None,
    "self_approval": "",
}


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (
            TurnQueued("t1", 2, BlockingTurn("t0")),
            {
                "event": "turn_queued",
                "ahead": 2,
                "behind": "t0",
                "behind_approval": False,
                "behind_question": False,
                "offers": [],
            },
        ),
        (
            TurnQueued("t1", 1, BlockingTurn("t0", awaits_approval=True)),
            {
                "event": "turn_queued",
                "ahead": 1,
                "behind": "t0",
                "behind_approval": True,
                "behind_question": False,
                "offers": [{"offer": "stop", "label": "Stop what is ahead", "turn": "t0"}],
            },
        ),
        (ReplyUpdated("t1", "Hel"), {"event": "reply_updated", "text": "Hel"}),
        (
            ModelPaused("t1", ModelRetry(20, "Anthropic is overloaded (529).")),
            {"event": "model_paused", "seconds": 20, "reason": "Anthropic is overloaded (529)."},
        ),
        (ToolStarted("t1", a_step(StepStatus.STARTED, n=4)), {"event": "tool_started", **CALL, "status": "started"}),
        (
            ToolProgressed("t1", a_step(StepStatus.STARTED, n=4), "1/2"),
            {"event": "tool_progressed", **CALL, "status": "started", "text": "1/2"},
        ),
        (
            ToolFinished("t1", a_step(StepStatus.DONE, n=4, result="Added")),
            {"event": "tool_finished", **CALL, "status": "done", "result": "Added", "is_error": False, "offers": []},
        ),
        (
            ToolFinished("t1", a_step(StepStatus.UNKNOWN, n=4)),
            {
                "event": "tool_finished",
                **CALL,
                "status": "unknown",
                "result": "",
                "is_error": False,
                "offers": [
                    {"offer": "check", "label": "Check", "turn": "t1", "step": 4},
                    {"offer": "run_again", "label": "Run again", "turn": "t1", "step": 4},
                ],
            },
        ),
        (
            ToolFinished("t1", a_step(StepStatus.CANCELLED, n=4)),
            {"event": "tool_finished", **CALL, "status": "cancelled", "result": "", "is_error": False, "offers": []},
        ),
        (
            ApprovalRequested("t1", a_step(StepStatus.AWAITING, n=4, approval=an_approval())),
            {"event": "approval_requested", **CALL, "status": "awaiting", **ASKED},
        ),
        (
            ApprovalSettled(
                "t1", a_step(StepStatus.DENIED, n=4, approval=an_approval(decided_by="Ben", reason="use INC"))
            ),
            {
                "event": "approval_settled",
                **(CALL | ASKED),
                "status": "denied",
                "decided_by": "Ben",
                "reason": "use INC",
            },
        ),
        (
            ElicitationRequested("t1", a_step(StepStatus.ASKING, n=4), a_form(properties={})),
            {
                "event": "elicitation_requested",
                **QUESTION,
                "message": "What is it called?",
                "mode": "form",
                "schema": {"type": "object", "properties": {}, "required": []},
            },
        ),
        (
            ElicitationSettled("t1", a_step(StepStatus.DONE, n=4), a_link(reply=DECLINED, answered_by="Ana")),
            {
                "event": "elicitation_settled",
                **QUESTION,
                "message": "Please say that we may.",
                "mode": "url",
                "url": "https://jira.example.com/consent?id=7",
                "action": "decline",
                "answered_by": "Ana",
                "reason": "",
            },
        ),
        (TurnFinished("t1", "Done."), {"event": "turn_finished", "text": "Done.", "cancelled": False}),
        (TurnFinished("t1", "", cancelled=True), {"event": "turn_finished", "text": "", "cancelled": True}),
        (TurnFailed("t1", "No model."), {"event": "turn_failed", "reason": "No model."}),
    ],
)
def test_every_event_has_its_fields_and_no_others(event: TurnEvent, fields: dict[str, Any]) -> None:
    assert event_json(event) == {"turn": "t1", **fields}


def test_a_tool_the_model_made_up_belongs_to_no_server() -> None:
    made_up = a_step(StepStatus.FAILED, tool=None, call=ToolCall("c", "no_such_tool"))
    described = event_json(ToolFinished("t1", made_up))
    assert (described["server"], described["tool"]) == (None, "no_such_tool")


def test_text_stays_as_it_was_and_is_harmless_as_json() -> None:
    line = json.dumps(event_json(ReplyUpdated("t1", "\x1b[2J\u202e\nhalf \ud83d")))
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["text"] == "\x1b[2J\u202e\nhalf \ud83d"
