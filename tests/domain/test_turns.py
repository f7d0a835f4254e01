"""Properties of a turn record."""

from __future__ import annotations

from bot.domain.messages import ImagePart, Message, MessageRole, TextPart, ToolCall, ToolResult, assistant
from bot.domain.turns import ModelStep, Step, StepStatus, ToolStep, Turn, TurnInput, TurnRecord, TurnStatus
from tests.fakes.parts import ANA, HALL


def record(*steps: Step) -> TurnRecord:
    return TurnRecord(Turn("t1", HALL, 1, ANA, TurnInput("?"), TurnStatus.RUNNING, 0.0), steps, 1)


def call(n: int, status: StepStatus) -> ToolStep:
    return ToolStep(n, ToolCall(f"c{n}", "s__t"), None, status)


def test_steps_differ_by_kind_and_position() -> None:
    reply = ModelStep(1, assistant("", ToolCall("c2", "s__t"), ToolCall("c3", "s__t"), ToolCall("c4", "s__t")))
    ready, awaiting, done = call(2, StepStatus.READY), call(3, StepStatus.AWAITING), call(4, StepStatus.DONE)
    turn = record(reply, ready, awaiting, done)
    assert turn.replies == (reply,)
    assert turn.calls == (ready, awaiting, done)
    assert turn.ready_calls == (ready,)
    assert turn.calls_awaiting_approval == (awaiting,)


def test_the_answer_is_a_last_reply_that_asks_for_nothing() -> None:
    asking = ModelStep(1, assistant("Let me look.", ToolCall("c2", "s__t")))
    answer = ModelStep(3, assistant("Done."))
    assert record().answer is None
    assert record(asking).answer is None
    assert record(asking, call(2, StepStatus.DONE)).answer is None
    assert record(asking, call(2, StepStatus.DONE), answer).answer is answer
    assert record(answer, call(4, StepStatus.READY)).answer is None


def test_a_messages_text_is_joined_as_it_stands_and_a_results_by_lines() -> None:
    parts = (TextPart("one"), ImagePart(b"", "image/png"), TextPart("two"))
    assert Message(MessageRole.USER, parts).text == "onetwo"
    assert ToolResult("c1", parts).text == "one\ntwo"


def test_a_reply_without_text_has_calls_only_and_keeps_their_order() -> None:
    first, second = ToolCall("b", "s__t"), ToolCall("a", "s__t")
    assert assistant("", first, second).parts == (first, second)
    assert assistant("Hm.", first, second).tool_calls == (first, second)
