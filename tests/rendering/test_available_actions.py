"""Actions for calls of unknown outcome and for turns that wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.domain.messages import ToolCall
from bot.domain.turns import BlockingTurn, StepStatus, TurnInput, TurnStatus, TurnView
from bot.rendering.timeline import (
    CheckCallAction,
    ContinueTurnAction,
    RunAgainAction,
    StopTurnAction,
    available_actions,
    blocking_turn,
    call_to_check,
    call_to_run_again,
    waiting_text,
)
from tests.rendering.turns import a_reply, a_step, a_view, an_approval

APPROVAL = BlockingTurn("t0", awaits_approval=True)
QUESTION = BlockingTurn("t0", awaits_answer=True)


def queued_view(ahead: int, blocker: BlockingTurn | None) -> TurnView:
    return replace(a_view(status=TurnStatus.QUEUED), ahead=ahead, blocker=blocker)


def of_turn(turn_id: str, view: TurnView, *, again: bool = False) -> TurnView:
    call = ToolCall("c", "notes__add_note") if again else None
    turn = replace(view.turn, id=turn_id, question=TurnInput("hello", call=call, again=again))
    return replace(view, turn=turn)


def test_a_call_of_unknown_outcome_can_be_checked_and_run_again_whether_its_turn_has_ended_or_not() -> None:
    steps = a_reply(0, "hm"), a_step(StepStatus.DONE, n=1), a_step(StepStatus.UNKNOWN, n=2)
    for status in (TurnStatus.RUNNING, TurnStatus.DONE, TurnStatus.CANCELLED):
        offered = available_actions(a_view(*steps, status=status))
        assert offered[-2:] == (CheckCallAction("t1", 2), RunAgainAction("t1", 2))
        assert offered[:-2] == ((ContinueTurnAction("t1"),) if status is TurnStatus.CANCELLED else ())


@pytest.mark.parametrize("status", [status for status in StepStatus if status is not StepStatus.UNKNOWN])
def test_no_other_call_is_offered_anything(status: StepStatus) -> None:
    assert available_actions(a_view(a_step(status, approval=an_approval()))) == ()


@pytest.mark.parametrize(
    ("ahead", "blocker", "words", "offered"),
    [
        (0, None, "", ()),
        (1, BlockingTurn("t0"), "Waiting behind 1 earlier message", ()),
        (3, BlockingTurn("t0"), "Waiting behind 3 earlier messages", ()),
        (1, APPROVAL, "Waiting behind an approval", (StopTurnAction("t0"),)),
        (2, APPROVAL, "Waiting behind an approval and 1 earlier message", (StopTurnAction("t0"),)),
        (3, APPROVAL, "Waiting behind an approval and 2 earlier messages", (StopTurnAction("t0"),)),
        (1, QUESTION, "Waiting behind a question of a server", (StopTurnAction("t0"),)),
    ],
)
def test_a_queued_message_names_the_turn_before_it_and_offers_to_stop_one_that_waits_for_people(
    ahead: int, blocker: BlockingTurn | None, words: str, offered: tuple[StopTurnAction, ...]
) -> None:
    view = queued_view(ahead, blocker)
    assert (waiting_text(view), available_actions(view)) == (words, offered)


def test_a_turn_that_runs_waits_for_nothing() -> None:
    assert waiting_text(replace(a_view(), ahead=1, blocker=APPROVAL)) == ""
    assert available_actions(replace(a_view(), ahead=1, blocker=APPROVAL)) == ()


def test_the_newest_call_of_unknown_outcome_is_meant() -> None:
    old = of_turn("t1", a_view(a_step(StepStatus.UNKNOWN, n=1), a_step(StepStatus.UNKNOWN, n=2)))
    new = of_turn("t2", a_view(a_step(StepStatus.UNKNOWN, n=1), a_step(StepStatus.DONE, n=2)))
    assert call_to_check([old]) == CheckCallAction("t1", 2)
    assert call_to_check([old, new]) == CheckCallAction("t2", 1)
    assert call_to_run_again([old, new]) == RunAgainAction("t2", 1)
    plain = of_turn("t3", a_view(a_step(StepStatus.FAILED), a_step(StepStatus.DENIED, n=1)))
    assert call_to_check([plain]) is None
    assert call_to_run_again([plain]) is None


@pytest.mark.parametrize(
    ("end", "meant"),
    [
        (StepStatus.DENIED, RunAgainAction("t2", 1)),
        (StepStatus.EXPIRED, RunAgainAction("t2", 1)),
        (StepStatus.CANCELLED, RunAgainAction("t2", 1)),
        (StepStatus.FAILED, RunAgainAction("t2", 1)),
        (StepStatus.UNKNOWN, RunAgainAction("t2", 1)),
        (StepStatus.DONE, RunAgainAction("t1", 1)),
        (StepStatus.AWAITING, RunAgainAction("t1", 1)),
    ],
)
def test_a_second_try_that_came_to_nothing_can_be_followed_by_a_third(end: StepStatus, meant: RunAgainAction) -> None:
    first = of_turn("t1", a_view(a_step(StepStatus.UNKNOWN, n=1)))
    second = of_turn("t2", a_view(a_step(end, n=1)), again=True)
    assert call_to_run_again([first, second]) == meant


def test_the_first_turn_that_has_not_ended_is_in_the_way() -> None:
    ended = of_turn("t1", a_view(status=TurnStatus.DONE))
    waits = of_turn("t2", a_view(status=TurnStatus.WAITING))
    behind = of_turn("t3", queued_view(1, APPROVAL))
    assert blocking_turn([ended, waits, behind]) == StopTurnAction("t2")
    assert blocking_turn([ended]) is None
