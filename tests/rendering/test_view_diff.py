"""From views to events: whichever views are skipped, what happened is told once and in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.elicitations import CANCELLED, DECLINED
from bot.domain.messages import ToolCall
from bot.domain.turns import BlockingTurn, Step, StepStatus, TurnInput, TurnStatus, TurnView
from bot.rendering.turn_events import (
    ApprovalRequested,
    ApprovalSettled,
    ElicitationRequested,
    ElicitationSettled,
    ReplyUpdated,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
    TurnEvent,
    TurnFailed,
    TurnFinished,
    TurnQueued,
    answer,
    diff_events,
)
from tests.rendering.turns import a_form, a_reply, a_step, a_view, an_approval

DECIDED = an_approval(decided_by="Ben")


def a_history() -> list[TurnView]:
    """A turn that reads, asks, writes and answers, view by view."""
    first = a_reply(0, "Let me look.")
    reads = [a_step(status, n=1) for status in (StepStatus.READY, StepStatus.DONE)]
    asks = a_step(StepStatus.AWAITING, n=2, approval=an_approval())
    signed = [a_step(status, n=2, approval=DECIDED) for status in (StepStatus.READY, StepStatus.STARTED)]
    written = a_step(StepStatus.DONE, n=2, approval=DECIDED, result="Added")
    calls: list[Step] = [first, reads[1]]
    return [
        a_view(),
        a_view(streaming="Let"),
        a_view(streaming="Let me look."),
        a_view(first, reads[0], asks),
        a_view(first, reads[0], asks, running=frozenset({1})),
        a_view(first, reads[0], asks, running=frozenset({1}), progress={1: "1/2"}),
        a_view(*calls, asks),
        a_view(*calls, asks, status=TurnStatus.WAITING),
        a_view(*calls, signed[0]),
        a_view(*calls, signed[1]),
        a_view(*calls, written),
        a_view(*calls, written, streaming="Do"),
        a_view(*calls, written, a_reply(3, "Done."), status=TurnStatus.DONE),
    ]


def told(views: Sequence[TurnView]) -> list[TurnEvent]:
    events: list[TurnEvent] = []
    before: TurnView | None = None
    for view in views:
        events += diff_events(before, view)
        before = view
    return events


def outline(events: Sequence[TurnEvent]) -> list[str]:
    lines = []
    for event in events:
        match event:
            case ReplyUpdated(_, text) | TurnFinished(_, text):
                lines.append(f"{type(event).__name__} {text}")
            case TurnQueued(_, ahead, blocker):
                lines.append(f"TurnQueued {ahead} {blocker}")
            case TurnFailed(_, reason):
                lines.append(f"TurnFailed {reason}")
            case ToolProgressed(_, step, text):
                lines.append(f"ToolProgressed {step.n} {text}")
            case ElicitationRequested(_, _, each) | ElicitationSettled(_, _, each):
                lines.append(f"{type(event).__name__} {each.id}")
            case ToolStarted() | ToolFinished() | ApprovalRequested() | ApprovalSettled():
                lines.append(f"{type(event).__name__} {event.step.n}")
    return lines


def test_a_turn_seen_in_full_is_told_step_by_step() -> None:
    assert outline(told(a_history())) == [
        "ReplyUpdated Let",
        "ReplyUpdated Let me look.",
        "ApprovalRequested 2",
        "ToolStarted 1",
        "ToolProgressed 1 1/2",
        "ToolFinished 1",
        "ApprovalSettled 2",
        "ToolStarted 2",
        "ToolFinished 2",
        "ReplyUpdated Do",
        "ReplyUpdated Done.",
        "TurnFinished Done.",
    ]


def test_a_turn_of_which_only_the_end_is_seen_is_told_in_the_order_of_its_steps() -> None:
    assert outline(told(a_history()[-1:])) == [
        "ReplyUpdated Let me look.",
        "ToolStarted 1",
        "ToolFinished 1",
        "ApprovalRequested 2",
        "ApprovalSettled 2",
        "ToolStarted 2",
        "ToolFinished 2",
        "ReplyUpdated Done.",
        "TurnFinished Done.",
    ]


def test_what_is_told_late_is_told_as_it_was() -> None:
    late = {type(event): event.step for event in told(a_history()[-1:]) if hasattr(event, "step") and event.step.n == 2}
    assert {kind: (step.status, step.result is None) for kind, step in late.items()} == {
        ApprovalRequested: (StepStatus.AWAITING, True),
        ApprovalSettled: (StepStatus.READY, True),
        ToolStarted: (StepStatus.STARTED, True),
        ToolFinished: (StepStatus.DONE, False),
    }
    assert late[ApprovalRequested].approval == an_approval()
    assert late[ApprovalSettled].approval == DECIDED


def asked_back() -> list[TurnView]:
    """A call whose server asks back twice, view by view."""
    first, second = a_form("e1"), a_form("e2")
    answered = replace(first, reply=DECLINED, answered_by="Ana")
    late = replace(second, reply=CANCELLED, reason="The question expired without an answer.")
    steps = [
        a_step(StepStatus.STARTED),
        a_step(StepStatus.ASKING, elicitations=(first,)),
        a_step(StepStatus.READY, elicitations=(answered,)),
        a_step(StepStatus.STARTED, elicitations=(answered,)),
        a_step(StepStatus.ASKING, elicitations=(answered, second)),
        a_step(StepStatus.READY, elicitations=(answered, late)),
        a_step(StepStatus.DONE, elicitations=(answered, late), result="ok"),
    ]
    return [a_view(step) for step in steps]


@given(st.sets(st.integers(0, 5)), st.integers(1, 3))
def test_what_a_server_asks_back_is_told_once_whichever_views_are_skipped(skipped: set[int], repeats: int) -> None:
    seen = [view for index, view in enumerate(asked_back()) if index not in skipped for _ in range(repeats)]
    lines = outline(told(seen))
    assert sorted(lines) == [
        "ElicitationRequested e1",
        "ElicitationRequested e2",
        "ElicitationSettled e1",
        "ElicitationSettled e2",
        "ToolFinished 0",
        "ToolStarted 0",
    ]
    assert (lines[0], lines[-1]) == ("ToolStarted 0", "ToolFinished 0")
    for name in ("e1", "e2"):
        assert lines.index(f"ElicitationRequested {name}") < lines.index(f"ElicitationSettled {name}")


def test_what_was_asked_is_told_as_it_was_and_how_it_ended_as_it_is() -> None:
    events = {type(event): event for event in told(asked_back()[-1:])}
    asked, settled = events[ElicitationRequested], events[ElicitationSettled]
    assert isinstance(asked, ElicitationRequested)
    assert isinstance(settled, ElicitationSettled)
    assert (asked.elicitation, asked.step.status) == (a_form("e2"), StepStatus.ASKING)
    assert settled.elicitation.reason == "The question expired without an answer."


@given(st.sets(st.integers(0, 11)), st.integers(1, 3))
def test_skipping_and_repeating_views_changes_nothing_of_what_is_told(skipped: set[int], repeats: int) -> None:
    history = a_history()
    seen = [view for index, view in enumerate(history) if index not in skipped for _ in range(repeats)]
    lines = outline(told(seen))
    lasting = [line for line in lines if not line.startswith(("ToolProgressed", "ReplyUpdated Let", "ReplyUpdated Do"))]
    assert sorted(lasting) == sorted([*(f"ToolStarted {n}" for n in (1, 2)), *(f"ToolFinished {n}" for n in (1, 2)),
                                      "ApprovalRequested 2", "ApprovalSettled 2", "TurnFinished Done."])  # fmt: skip
    assert len(set(lines)) == len(lines)
    for earlier, later in (
        ("ToolStarted 1", "ToolFinished 1"),
        ("ApprovalRequested 2", "ApprovalSettled 2"),
        ("ApprovalSettled 2", "ToolStarted 2"),
        ("ToolStarted 2", "ToolFinished 2"),
        ("ToolFinished 2", "ReplyUpdated Done."),
        ("ReplyUpdated Done.", "TurnFinished Done."),
    ):
        assert lines.index(earlier) < lines.index(later)


def test_after_the_end_there_is_nothing() -> None:
    end = a_history()[-1]
    assert diff_events(end, end) == ()
    assert diff_events(end, a_view(streaming="more")) == ()


def test_a_card_whose_arguments_changed_is_asked_for_again() -> None:
    old = a_view(a_step(StepStatus.AWAITING, approval=an_approval()))
    new = a_view(a_step(StepStatus.AWAITING, approval=an_approval(revision=2)))
    assert outline(diff_events(old, new)) == ["ApprovalRequested 0"]


@pytest.mark.parametrize("status", [StepStatus.DENIED, StepStatus.EXPIRED, StepStatus.CANCELLED])
def test_a_call_that_never_ran_was_not_started(status: StepStatus) -> None:
    asked = a_view(a_step(StepStatus.AWAITING, approval=an_approval()))
    over = a_view(a_step(status, approval=an_approval()))
    assert outline(diff_events(asked, over)) == ["ApprovalSettled 0", "ToolFinished 0"]


def test_a_reply_that_starts_again_is_told_from_its_beginning() -> None:
    assert outline(diff_events(a_view(streaming="First try"), a_view(streaming="Sec"))) == ["ReplyUpdated Sec"]


def test_a_failed_and_a_stopped_turn_say_so() -> None:
    failed = a_view(status=TurnStatus.FAILED, failure="No model.")
    assert diff_events(None, failed) == (TurnFailed("t1", "No model."),)
    stopped = a_view(a_reply(0, "Half"), status=TurnStatus.CANCELLED)
    assert diff_events(a_view(a_reply(0, "Half")), stopped) == (TurnFinished("t1", "Half", cancelled=True),)


def test_the_answer_is_the_last_reply_as_far_as_it_has_come() -> None:
    assert answer(a_view()) == ""
    assert answer(a_view(a_reply(0, "one"), streaming="tw")) == "tw"
    assert answer(a_view(a_reply(0, "one"), a_reply(1, "two"), status=TurnStatus.DONE)) == "two"


def test_a_place_in_the_queue_is_told_when_it_changes() -> None:
    runs, waits = BlockingTurn("t0"), BlockingTurn("t0", awaits_approval=True)
    views = [
        replace(a_view(status=TurnStatus.QUEUED), ahead=ahead, blocker=blocker)
        for ahead, blocker in ((2, runs), (2, runs), (2, waits), (1, runs), (0, None))
    ]
    assert told([*views, a_view(streaming="Hi")]) == [
        TurnQueued("t1", 2, runs),
        TurnQueued("t1", 2, waits),
        TurnQueued("t1", 1, runs),
        ReplyUpdated("t1", "Hi"),
    ]


@pytest.mark.parametrize(
    ("status", "text"),
    [(StepStatus.DONE, "Added"), (StepStatus.FAILED, ""), (StepStatus.UNKNOWN, ""), (StepStatus.DENIED, "")],
)
def test_a_call_run_by_hand_is_answered_by_what_it_returned(status: StepStatus, text: str) -> None:
    view = a_view(a_step(status, result="Added"), status=TurnStatus.DONE)
    by_hand = replace(view.turn, question=TurnInput("Run it again", call=ToolCall("c", "notes__add_note")))
    view = replace(view, turn=by_hand)
    assert answer(view) == text
    assert told([view])[-1] == TurnFinished("t1", text)
