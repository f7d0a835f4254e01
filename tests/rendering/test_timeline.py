"""A turn's timeline: sections, approvals and elicitations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.domain.messages import ToolCall
from bot.domain.turns import ModelRetry, StepStatus, TurnInput, TurnStatus, TurnView
from bot.rendering.timeline import (
    FAILED,
    SECOND_TRY,
    STOPPED,
    ActivityLine,
    ApprovalEntry,
    CallLine,
    ElicitationEntry,
    Failure,
    Note,
    ReplyText,
    TimelineSection,
    ToolOutput,
    answer,
    timeline,
)
from tests.rendering.turns import a_form, a_reply, a_step, a_view, an_approval


def only(view: TurnView) -> TimelineSection:
    (passage,) = timeline(view)
    assert isinstance(passage, TimelineSection)
    return passage


def outline(view: TurnView) -> list[object]:
    """Return sections as the types of their entries, approvals as their step numbers."""
    return [_part_outline(part) for part in timeline(view)]


def _part_outline(part: TimelineSection | ApprovalEntry | ElicitationEntry) -> object:
    match part:
        case TimelineSection():
            return [type(entry).__name__ for entry in part.entries]
        case ApprovalEntry():
            return [step.n for step in part.calls]
        case ElicitationEntry():
            return f"{part.number} asks {', '.join(elicitation.id for elicitation in part.elicitations)}"


def test_a_turn_without_questions_is_one_section() -> None:
    view = a_view(a_reply(0, "I look."), a_step(StepStatus.DONE, 1, result="ok"), a_reply(2, "Done."))
    assert outline(view) == [["ReplyText", "CallLine", "ReplyText"]]


def test_a_turn_of_which_nothing_is_known_is_an_empty_section() -> None:
    assert only(a_view()) == TimelineSection(0)


def test_a_question_comes_behind_the_calls_of_its_reply_and_before_the_next_ones() -> None:
    view = a_view(
        a_reply(0, "Shall I\nfile it?"),
        a_step(StepStatus.DONE, 1, result="ok"),
        a_step(StepStatus.DONE, 2, approval=an_approval(), result="ok"),
        a_step(StepStatus.DENIED, 3, approval=an_approval()),
        a_reply(4, "Done."),
    )
    assert outline(view) == [["ReplyText", "CallLine", "CallLine", "CallLine"], [2, 3], ["ReplyText"]]
    first, asking, last = timeline(view)
    assert isinstance(asking, ApprovalEntry)
    assert (asking.number, asking.reason) == (2, "Shall I file it?")
    assert [part.number for part in (first, last)] == [0, 1]


def test_a_question_of_a_server_stands_behind_the_section_of_its_call() -> None:
    asked = a_step(StepStatus.ASKING, 1, elicitations=(a_form("e1"), a_form("e2")))
    waiting = a_view(a_reply(0, "I look."), asked)
    assert outline(waiting) == [["ReplyText", "CallLine"], "1 asks e1, e2"]
    gone_on = a_view(
        a_reply(0, "I look."), replace(asked, status=StepStatus.DONE), a_reply(2, "Done."), streaming="And"
    )
    assert outline(gone_on) == [["ReplyText", "CallLine"], "1 asks e1, e2", ["ReplyText", "ReplyText"]]


def test_a_question_of_an_approved_call_stands_behind_its_card_and_moves_no_other() -> None:
    view = a_view(
        a_reply(0, ""),
        a_step(StepStatus.ASKING, 1, approval=an_approval(), elicitations=(a_form("e1"),)),
        a_step(StepStatus.AWAITING, 2, approval=an_approval()),
        a_step(StepStatus.STARTED, 3, elicitations=(a_form("e2"),)),
    )
    assert outline(view) == [["CallLine", "CallLine", "CallLine"], [1, 2], "1 asks e1", "3 asks e2"]


def test_a_question_of_a_call_run_by_hand_stands_before_its_result() -> None:
    view = a_view(a_step(StepStatus.DONE, 0, result="ok", elicitations=(a_form("e1"),)))
    by_hand = replace(view.turn, question=replace(view.turn.question, call=ToolCall("c", "notes__add_note", {})))
    assert outline(replace(view, turn=by_hand)) == [["CallLine"], "0 asks e1", ["ToolOutput"]]


def test_questions_of_two_replies_stay_apart_even_if_nothing_is_said() -> None:
    view = a_view(
        a_reply(0, ""),
        a_step(StepStatus.DONE, 1, approval=an_approval()),
        a_reply(2, ""),
        a_step(StepStatus.AWAITING, 3, approval=an_approval()),
    )
    assert outline(view) == [["CallLine"], [1], ["CallLine"], [3]]


@pytest.mark.parametrize(
    ("status", "stands"),
    [
        (StepStatus.AWAITING, StepStatus.CANCELLED),
        (StepStatus.READY, StepStatus.CANCELLED),
        (StepStatus.STARTED, StepStatus.UNKNOWN),
    ],
)
def test_nothing_is_open_in_a_turn_that_has_ended(status: StepStatus, stands: StepStatus) -> None:
    view = a_view(a_step(status, 1, approval=an_approval()), status=TurnStatus.CANCELLED)
    asking = timeline(view)[1]
    assert isinstance(asking, ApprovalEntry)
    assert [step.status for step in asking.calls] == [stands]


def test_a_reply_grows_and_running_calls_are_shown_meanwhile() -> None:
    assert only(a_view(streaming="Hel")).entries == (ReplyText("Hel", growing=True),)
    busy = replace(a_view(), activity="Thinking\nhard")
    assert only(busy).entries == (ActivityLine("Thinking hard"),)
    assert only(replace(busy, streaming="Hel")).entries == (ReplyText("Hel", growing=True),)
    paused = replace(busy, activity=ModelRetry(20, "The service is\noverloaded (529)."))
    assert only(paused).entries == (ActivityLine("Trying again in 20 s. The service is overloaded (529)."),)


def test_a_queued_turn_names_the_turn_before_it() -> None:
    view = replace(a_view(status=TurnStatus.QUEUED), ahead=2)
    assert only(view).entries == (ActivityLine("Waiting behind 2 earlier messages"),)


def test_the_end_of_a_turn_is_said_unless_it_is_an_answer() -> None:
    assert only(a_view(status=TurnStatus.CANCELLED)).entries == (Note(STOPPED),)
    assert only(a_view(status=TurnStatus.FAILED, failure="No model.")).entries == (Failure("No model.", "t1"),)
    assert only(a_view(status=TurnStatus.FAILED)).entries == (Failure(FAILED, "t1"),)
    assert only(a_view(a_reply(0, "Yes."), status=TurnStatus.DONE)).entries == (ReplyText("Yes."),)


def test_notes_stand_behind_their_reply() -> None:
    view = a_view(replace(a_reply(0, "Yes."), notes=("It was\ncut.", " ")))
    assert only(view).entries == (ReplyText("Yes."), Note("It was cut."))


def test_the_result_of_a_call_by_hand_stands_behind_it() -> None:
    view = a_view(a_step(StepStatus.FAILED, 0, result="No.\n"), status=TurnStatus.DONE)
    by_hand = replace(view, turn=replace(view.turn, question=TurnInput("run", call=ToolCall("c", "x"))))
    called, returned = only(by_hand).entries
    assert isinstance(called, CallLine)
    assert called.line.summary == ""
    assert returned == ToolOutput("No.", failed=True)
    as_json = replace(view, steps=(a_step(StepStatus.DONE, 0, result='[{"sku": "A-1", "stock": 12}]'),))
    _, returned = only(replace(as_json, turn=by_hand.turn)).entries
    assert returned == ToolOutput("sku  stock\n───  ─────\nA-1  12")


def test_only_a_second_try_after_an_unknown_outcome_says_that_the_first_may_have_happened() -> None:
    view = a_view()
    for may_have_run, notes in ((True, (Note(SECOND_TRY),)), (False, ())):
        question = TurnInput("run", call=ToolCall("c", "x"), again=True, may_have_run=may_have_run)
        assert only(replace(view, turn=replace(view.turn, question=question))).entries == notes


def test_the_answer_is_the_last_reply_as_far_as_it_has_come() -> None:
    assert answer(a_view()) == ""
    assert answer(a_view(a_reply(0, "one"), streaming="tw")) == "tw"
    assert answer(a_view(a_reply(0, "one"), a_reply(1, "two"), status=TurnStatus.DONE)) == "two"


@pytest.mark.parametrize(("status", "text"), [(StepStatus.DONE, "Added"), (StepStatus.FAILED, "")])
def test_the_answer_of_a_call_by_hand_is_its_result(status: StepStatus, text: str) -> None:
    view = a_view(a_step(status, result="Added"), status=TurnStatus.DONE)
    by_hand = replace(view.turn, question=TurnInput("Run it again", call=ToolCall("c", "notes__add_note")))
    assert answer(replace(view, turn=by_hand)) == text
