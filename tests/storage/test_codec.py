from __future__ import annotations

import json
from typing import Any, TypeVar

import pytest

from bot.domain.approvals import ApprovalPolicy, ApprovalRequirements, OnTimeout
from bot.domain.completions import StopReason, Usage
from bot.domain.conversations import Attachment
from bot.domain.flows import OtherSource, PersonSource, Sources, ToolSource, Words
from bot.domain.grants import GrantUse
from bot.domain.messages import (
    FilePart,
    ImageAudience,
    ImagePart,
    Message,
    MessageRole,
    StoredFile,
    TextPart,
    ToolCall,
    ToolResult,
)
from bot.domain.policies import StoredPolicyResult
from bot.domain.secrets import SecretSpan, StoredSecret
from bot.domain.turns import CallOrigin, ModelStep, StepStatus, ToolRef, ToolStep, TurnInput
from bot.storage.codec import UNREADABLE, Body, converter, decode, encode, json_text

T = TypeVar("T")

CALL = ToolCall("c1", "weather__get", {"area": "Tokyo", "days": [1, 2.5, None, {"deep": True}]}, "not JSON")
RESULT = ToolResult(
    "c1",
    (TextPart("Not run."), StoredFile("f" * 64, "image/png", "map.png", 9, ImageAudience.ALL)),
    is_error=True,
    structured={"days": [{"rain": 0.5}]},
    own=True,
)
REPLY = ModelStep(
    3,
    Message(MessageRole.ASSISTANT, (TextPart("Let me see."), CALL), {"thinking": [{"signature": "x"}]}),
    StopReason.TOOLS,
    Usage(1, 2, 3, 4, 5),
    ("Another model answered.",),
    "large",
    sources=(ToolSource("s", "t", "i", "d", "p"), PersonSource("slack:U1"), OtherSource.THREAD),
)
STEP = ToolStep(
    4,
    CALL,
    ToolRef("weather", "get", "Weather", "d" * 64, True, False, "id", "place"),
    StepStatus.DONE,
    repeatable=True,
    origin=CallOrigin.CONTEXT,
    grant=GrantUse("g", "slack:U2", "Ana", "f", "rule", "terms", 1_790_000_000.0),
    policy_result=StoredPolicyResult(ApprovalPolicy.ASK_USER, "r", "ask", "because", Words.STRANGERS),
)
VALUES = [
    TurnInput("Rain?", (Attachment("a", "b.txt", "text/plain", 7),), ("earlier",), CALL, again=True, may_have_run=True),
    RESULT,
    ApprovalRequirements(
        (frozenset({"slack:U2", "slack:U1"}), frozenset({"admin"})),
        four_eyes=True,
        quorum=2,
        expires=60.0,
        on_timeout=OnTimeout.KEEP,
        remind=True,
        deliver=frozenset({"slack:T1:C9", "approvers"}),
    ),
]


def stored_body(body: Any) -> Any:
    """Return a body as the database returns it."""
    return json.loads(json_text(body))


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_the_same_when_it_is_read(value: object) -> None:
    body = stored_body(encode(value))
    assert body["v"] == 1
    assert decode(type(value), body) == value


def test_a_step_is_the_same_when_it_is_read_with_its_columns() -> None:
    assert decode(ModelStep, stored_body(encode(REPLY)), n=3) == REPLY
    body, columns = stored_body(encode(STEP)), {"n": 4, "status": "done", "repeatable": True}
    assert decode(ToolStep, body, **columns) == STEP
    assert decode(ToolStep, body, **columns, result=stored_body(encode(RESULT))).result == RESULT
    assert not {"n", "status", "repeatable", "result", "approval"} & body.keys()


@pytest.mark.parametrize(
    ("value", "kind"),
    [(REPLY.sources, Sources), ((StoredSecret((1, 0), SecretSpan(2, 9, "token"), True),), tuple[StoredSecret, ...])],
)
def test_a_list_of_values_is_the_same_when_it_is_read(value: T, kind: type[T]) -> None:
    assert converter.structure(stored_body(converter.unstructure(value, kind)), kind) == value


def test_arguments_keep_their_order() -> None:
    call = ToolCall("c", "t", {"z": 1, "a": {"y": 2, "b": 3}})
    assert json_text(decode(ToolCall, stored_body(encode(call))).arguments) == '{"z": 1, "a": {"y": 2, "b": 3}}'


def test_a_field_that_an_earlier_body_lacks_has_its_default() -> None:
    body: Body = {"v": 1, "text": "Rain?"}
    assert decode(TurnInput, body) == TurnInput("Rain?")
    reply: Body = {"v": 1, "message": {"role": "assistant", "parts": [{"type": "text", "text": "Yes."}]}}
    assert decode(ModelStep, reply, n=1) == ModelStep(1, Message(MessageRole.ASSISTANT, (TextPart("Yes."),)))


def test_a_field_that_a_later_release_added_is_left_out() -> None:
    assert decode(TurnInput, {"v": 2, "text": "Rain?", "mood": "good"}) == TurnInput("Rain?")


def test_a_source_that_only_a_later_release_knows_is_an_unknown_result() -> None:
    assert converter.structure(["rumour", {"page": "x"}, 5], Sources) == (OtherSource.RESULT,) * 3


@pytest.mark.parametrize(
    "change", [{"parts": [{"type": "hologram"}]}, {"parts": 5}, {"parts": None}, {"parts": [{"text": "x"}]}]
)
def test_a_body_that_cannot_be_read_raises_an_error_that_readers_expect(change: Body) -> None:
    with pytest.raises(UNREADABLE):
        decode(ToolResult, {**encode(RESULT), **change})


@pytest.mark.parametrize("part", [ImagePart(b"x", "image/png", "map.png"), FilePart(b"x", "text/plain", "map.png")])
def test_bytes_do_not_get_into_a_body(part: ImagePart | FilePart) -> None:
    with pytest.raises(TypeError, match=r"map\.png"):
        encode(ToolResult("c", (part,)))
