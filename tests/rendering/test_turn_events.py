"""Events of a stream: each change of the view once."""

from __future__ import annotations

import dataclasses
import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.approvals import Approval, ApprovalRequirements
from bot.domain.elicitations import DECLINED, Elicitation
from bot.domain.messages import TextPart, ToolCall, ToolResult, assistant
from bot.domain.turns import ModelRetry, ModelStep, Step, StepStatus, ToolRef, ToolStep, TurnStatus, TurnView
from bot.rendering.turn_events import Cursor, EventEncoder, StreamEvent, event_schema
from tests.fakes.parts import ANA
from tests.rendering.turns import a_form, a_link
from tests.turn_events import PUBLISHED
from tests.web.test_turn_streams import TURN

PLACE = ("notes", lambda _terms, _conversation, _agent: "api-role:approver")
REPLY = ModelStep(1, assistant("I write it.", ToolCall("c1", "fake__write")))
ASKED = Approval("a1", 1, "print", ANA, 60.0)


def view(*steps: Step, status: TurnStatus = TurnStatus.RUNNING, begun: bool | None = None, **moment: Any) -> TurnView:
    begun = status is not TurnStatus.QUEUED if begun is None else begun
    return TurnView(dataclasses.replace(TURN, status=status, begun=begun), steps, len(steps), **moment)


def write(
    status: StepStatus, approval: Approval | None = None, text: str = "hi", asked: tuple[Elicitation, ...] = ()
) -> ToolStep:
    call = ToolCall("c1", "fake__write", {"text": text})
    result = ToolResult("c1", (TextPart("ok"),)) if status is StepStatus.DONE else None
    return ToolStep(2, call, ToolRef("fake", "write"), status, approval=approval, result=result, elicitations=asked)


def teller(cursor: str = "") -> EventEncoder:
    return EventEncoder(*PLACE, Cursor.parse(cursor) if cursor else Cursor("t1"))


def event_outlines(events: list[StreamEvent]) -> list[tuple[str, Any]]:
    """Return the name of each event, with its status or delta."""
    return [
        (event.name, event.data.get("status") if event.name != "message" else event.data["delta"]) for event in events
    ]


def test_a_reply_grows_and_one_that_is_begun_anew_says_so() -> None:
    tells = teller()
    pieces = [
        event.data
        for text in ("One", "One two", "", "Three", "Three four")
        for event in tells.encode(view(streaming=text))
        if event.name == "message"
    ]
    assert [(piece["offset"], piece["delta"]) for piece in pieces] == [
        (0, "One"),
        (3, " two"),
        (0, "Three"),
        (5, " four"),
    ]
    (whole,) = tells.encode(view(ModelStep(1, assistant("Three four five."))))
    assert (whole.data["id"], whole.data["offset"], whole.data["delta"]) == ("t1:1", 10, " five.")
    assert list(tells.encode(view(ModelStep(1, assistant("Three four five."))))) == []


def test_a_stream_that_is_taken_up_elsewhere_goes_on_in_the_middle_of_a_word() -> None:
    (*_, last) = teller().encode(view(streaming="The wea"))
    (rest,) = teller(str(last.cursor)).encode(view(streaming="The weather"))
    assert (rest.data["offset"], rest.data["delta"]) == (7, "ther")
    (other,) = teller(str(last.cursor)).encode(view(streaming="Something else"))
    assert (other.data["offset"], other.data["delta"]) == (0, "Something else")


def test_a_waiting_call_is_one_event_for_each_change_and_each_approval() -> None:
    tells, two = teller(), dataclasses.replace(ASKED, requirements=ApprovalRequirements(quorum=2))
    list(tells.encode(view(REPLY)))
    waits = [view(REPLY, write(StepStatus.AWAITING, each)) for each in (two, two)]
    edited = dataclasses.replace(two, revision=2, proposed={"text": "hi"}, revised_by="Ben")
    waits.append(view(REPLY, write(StepStatus.AWAITING, edited, "hello")))
    waits.append(view(REPLY, write(StepStatus.AWAITING, dataclasses.replace(edited, approver_names=("Ben",)), "hello")))
    asked = [each.data for now in waits for each in tells.encode(now) if each.name == "approval_required"]
    assert [(each["revision"], each["arguments"], each["signatures"]) for each in asked] == [
        (1, {"text": "hi"}, []),
        (2, {"text": "hello"}, []),
        (2, {"text": "hello"}, ["Ben"]),
    ]
    assert asked[1]["changes"] == [{"name": "text", "before": '"hi"', "after": '"hello"'}]


def test_progress_of_running_calls_is_streamed() -> None:
    tells = teller()
    running = write(StepStatus.STARTED)
    events = [
        each.data["progress"]
        for text in ("", "10 %", "10 %", "20 %")
        for each in tells.encode(view(REPLY, running, progress={2: text} if text else {}))
        if each.name == "tool_call_update"
    ]
    assert events == [None, "10 %", "20 %"]


def test_a_late_follower_gets_states_and_no_history() -> None:
    done = dataclasses.replace(ASKED, decided_by="Ben")
    whole = view(REPLY, write(StepStatus.DONE, done), ModelStep(3, assistant("Written.")), status=TurnStatus.DONE)
    assert event_outlines(list(teller().encode(whole))) == [
        ("init", "COMPLETED"),
        ("message", "I write it."),
        ("tool_call_update", "COMPLETED"),
        ("message", "Written."),
        ("conversation_status", "COMPLETED"),
        ("done", "COMPLETED"),
    ]


def test_a_place_in_the_queue_is_told_as_it_changes() -> None:
    tells = teller()
    queued = [view(status=TurnStatus.QUEUED, ahead=ahead) for ahead in (2, 2, 1)]
    events = [each for now in (*queued, view()) for each in tells.encode(now)]
    assert [(event.name, event.data["status"], event.data["ahead"]) for event in events] == [
        ("init", "CREATED", 2),
        ("conversation_status", "CREATED", 1),
        ("conversation_status", "STREAMING", 0),
    ]


def test_a_response_that_has_begun_is_never_told_to_be_only_created_again() -> None:
    tells, approved = teller(), dataclasses.replace(ASKED, decided_by="Ben")
    queued = [
        view(status=TurnStatus.QUEUED),
        view(streaming="I wri"),
        view(status=TurnStatus.QUEUED),  # stale view from before the beginning
        view(status=TurnStatus.QUEUED, begun=True),  # released turn
        view(REPLY, write(StepStatus.AWAITING, ASKED), status=TurnStatus.WAITING),
        view(REPLY, write(StepStatus.READY, approved), status=TurnStatus.QUEUED, begun=True),
        view(REPLY, write(StepStatus.DONE, approved)),
    ]
    events = [each for now in queued for each in tells.encode(now) if each.name in ("init", "conversation_status")]
    assert [(event.data["status"], event.data["waitingForApproval"]) for event in events] == [
        ("CREATED", False),
        ("STREAMING", False),
        ("STREAMING", True),
        ("STREAMING", False),
    ]
    for late in (queued[3], queued[5]):
        init = next(teller().encode(late))
        assert (init.name, init.data["status"]) == ("init", "STREAMING")


def test_a_question_of_a_server_is_an_event_at_its_start_and_its_end() -> None:
    tells = teller()
    first, second, third = (a_form(name) for name in ("e1", "e2", "e3"))
    done = [dataclasses.replace(each, reply=DECLINED, answered_by="Ana") for each in (first, second, third)]
    walk = [
        write(StepStatus.STARTED),
        write(StepStatus.STARTED, asked=(first,)),
        write(StepStatus.ASKING, asked=(first, second)),
        write(StepStatus.ASKING, asked=(first, done[1])),
        write(StepStatus.ASKING, asked=(done[0], done[1], third)),
        write(StepStatus.DONE, asked=tuple(done)),
    ]
    events = [(each.name, each.data) for now in walk for each in tells.encode(view(REPLY, now))]
    asked = [
        (name.removeprefix("elicitation_"), data["elicitationId"])
        for name, data in events
        if name.startswith("elicitation_")
    ]
    assert asked == [
        ("required", "e1"),
        ("required", "e2"),
        ("settled", "e2"),
        ("settled", "e1"),
        ("required", "e3"),
        ("settled", "e3"),
    ]
    calls = [data["waitingForAnswer"] for name, data in events if name == "tool_call_update"]
    assert calls == [False, True, False]


def test_a_question_that_began_and_ended_meanwhile_is_no_event() -> None:
    done = a_form(reply=DECLINED, answered_by="Ana")
    events = list(teller().encode(view(REPLY, write(StepStatus.DONE, asked=(done,)))))
    assert not [event for event in events if event.name.startswith("elicitation_")]
    assert list(teller(str(events[-1].cursor)).encode(view(REPLY, write(StepStatus.DONE, asked=(done,))))) == []


def test_an_address_is_for_its_own_reader() -> None:
    waits = view(REPLY, write(StepStatus.ASKING, asked=(a_link(),)))
    mine = dataclasses.replace(teller(), reader=waits.turn.author.principal)
    urls = [
        each.data["url"]
        for tells in (mine, teller())
        for each in tells.encode(waits)
        if each.name == "elicitation_required"
    ]
    assert urls == ["https://jira.example.com/consent?id=7", None]


STEPS = (REPLY, write(StepStatus.AWAITING, ASKED))
FORM = a_form()
ANSWERED = dataclasses.replace(FORM, reply=DECLINED, answered_by="Ana")
WALK = [
    view(status=TurnStatus.QUEUED, ahead=1),
    view(),
    view(streaming="I write"),
    view(REPLY),
    view(*STEPS),
    view(*STEPS, status=TurnStatus.WAITING),
    view(REPLY, write(StepStatus.READY, ASKED)),
    view(REPLY, write(StepStatus.STARTED, ASKED)),
    view(REPLY, write(StepStatus.ASKING, ASKED, asked=(FORM,))),
    view(REPLY, write(StepStatus.ASKING, ASKED, asked=(FORM,)), status=TurnStatus.WAITING),
    view(REPLY, write(StepStatus.STARTED, ASKED, asked=(ANSWERED,))),
    view(REPLY, write(StepStatus.DONE, ASKED, asked=(ANSWERED,))),
    view(REPLY, write(StepStatus.DONE, ASKED, asked=(ANSWERED,)), streaming="Writ"),
    view(
        REPLY,
        write(StepStatus.DONE, ASKED, asked=(ANSWERED,)),
        ModelStep(3, assistant("Written.")),
        status=TurnStatus.DONE,
    ),
]


@given(chance=st.randoms(use_true_random=False))
def test_however_often_a_stream_breaks_off_nothing_is_lost_or_doubled(chance: Random) -> None:
    views = [each for each in WALK if each is WALK[-1] or chance.random() < 0.6]
    got: list[StreamEvent] = []
    for now in views:
        # A new connection, possibly in another process. It may close after any event.
        while True:
            events = list(teller(str(got[-1].cursor) if got else "").encode(now))
            taken = len(events) - chance.randint(0, len(events))
            got += events[:taken]
            if taken == len(events):
                break
    texts: dict[str, str] = {}
    for each in got:
        if each.name == "message":
            known = texts.get(each.data["id"], "")
            assert each.data["offset"] == len(known)
            texts[each.data["id"]] = known + each.data["delta"]
    assert texts == {"t1:1": "I write it.", "t1:3": "Written."}
    kinds = [each.name for each in got]
    assert (kinds.count("init"), kinds.count("done"), kinds[-1]) == (1, 1, "done")
    assert kinds.count("approval_required") <= 1
    assert kinds.count("elicitation_required") == kinds.count("elicitation_settled") <= 1
    calls = [each.data["status"] for each in got if each.name == "tool_call_update"]
    assert calls.count("COMPLETED") == 1
    assert got[-1].cursor.is_over


@given(
    state=st.sampled_from(["-", "i", "q3", "r", "w", "n", "b", "d", "f", "e", "x", "z9"]),
    steps=st.lists(st.sampled_from(["m", "a1", "a7_2", "w1", "s", "q1_1", "d999999_999999", "d", "z"]), max_size=6),
    length=st.integers(0, 99),
    check=st.integers(0, 2**32 - 1),
)
def test_a_forged_cursor_breaks_nothing(state: str, steps: list[str], length: int, check: int) -> None:
    text = str(Cursor("t1", state, tuple(steps), length, check))
    assert str(Cursor.parse(text)) == text
    for now in WALK:
        events = list(teller(text).encode(now))
        assert all(event.cursor.turn_id == "t1" for event in events)


@pytest.mark.parametrize(
    "text", ["", "t1", "t1.r.0.0.", "t1.r.-1.00000000.", "t1.r.0.00000000.!", "a b.r.0.00000000.m"]
)
def test_an_invalid_cursor_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a cursor"):
        Cursor.parse(text)


def test_the_published_schema_is_that_of_the_code() -> None:
    assert json.loads(PUBLISHED.read_text()) == event_schema(), "make schema writes it anew"


def test_a_model_that_is_asked_again_is_told_once_for_each_time() -> None:
    tells, retry = teller(), ModelRetry(20, "Busy.")
    activities: tuple[str | ModelRetry, ...] = ("Thinking", retry, retry, "Thinking", retry)
    events = [event for activity in activities for event in tells.encode(view(activity=activity))]
    retries = [event.data for event in events if event.name == "model_retry"]
    assert retries == [{"responseId": "t1", "conversationId": "notes", "seconds": 20, "reason": "Busy."}] * 2
