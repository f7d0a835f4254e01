"""One-line summary of a call, in each status."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.grants import GrantUse
from bot.domain.messages import FilePart, ImagePart, TextPart, ToolCall, ToolResult
from bot.domain.tools import UNSURE
from bot.domain.turns import StepStatus, StepTimes, ToolStep
from bot.i18n import use_time_zone
from bot.rendering.approval_card import approval_card, outcome_parts
from bot.rendering.text_safety import single_line
from bot.rendering.timeline import NAME_LIMIT, SUMMARY_LIMIT, StatusIcon, ToolStatus, tool_status
from tests.rendering.turns import a_step, a_view, an_approval


def line(step: ToolStep) -> ToolStatus:
    return tool_status(step, a_view(step))


@pytest.mark.parametrize(
    ("status", "mark", "state"),
    [
        (StepStatus.AWAITING, StatusIcon.WAITING, "waits for approval"),
        (StepStatus.EXPIRED, StatusIcon.SKIPPED, "timed out, not run"),
    ],
)
def test_a_call_that_was_not_sent_has_a_mark_and_words(status: StepStatus, mark: StatusIcon, state: str) -> None:
    assert line(a_step(status)) == ToolStatus(mark, "notes.add_note", state)


def test_a_call_that_was_stopped_while_it_ran_is_not_said_to_be_unsent() -> None:
    stopped = a_step(StepStatus.CANCELLED, times=StepTimes(1.0, 2.0, 3.0))
    waiting = a_step(StepStatus.CANCELLED, times=StepTimes(1.0, None, 3.0))
    assert [line(step).state for step in (stopped, waiting)] == ["stopped while running", "cancelled, not run"]
    decided = an_approval(decided_by="Ben")
    assert [approved_card(replace(step, approval=decided)) for step in (stopped, waiting)] == [
        ("Approved by Ben", "stopped while running"),
        ("Approved by Ben", "cancelled, not run"),
    ]


def approved_card(step: ToolStep) -> tuple[str, ...]:
    card = approval_card(step)
    assert card is not None
    return (card.outcome, *outcome_parts(step, a_view(step)))


def test_a_repeatable_call_runs_although_its_start_is_not_on_disk() -> None:
    step = a_step(StepStatus.READY, n=3)
    assert tool_status(step, a_view(step, running=frozenset({3}))).state == "running"


@pytest.mark.parametrize(
    ("status", "name", "state"),
    [
        (StepStatus.DONE, "Ana\x1b[31m\n", "allowed by Ana"),
        (StepStatus.DONE, "", "allowed by slack:U1"),
        (StepStatus.FAILED, "Ana", "failed, allowed by Ana"),
    ],
)
def test_a_call_that_ran_on_a_grant_says_whose_and_until_when(status: StepStatus, name: str, state: str) -> None:
    grant = GrantUse("g1", "slack:U1", name, "f1")
    assert line(a_step(status, grant=grant)).state == state
    with use_time_zone("Asia/Tokyo"):
        until = line(a_step(status, grant=replace(grant, until=1_790_000_000.0))).state
    assert until == f"{state} until 21 Sept 2026, 23:13"


def test_a_running_call_says_how_far_it_is() -> None:
    step = a_step(StepStatus.STARTED, n=3)
    assert tool_status(step, a_view(step, progress={3: "2/5\ncopying"})).summary == "2/5 copying"


def test_a_name_the_model_made_up_stands_as_it_is() -> None:
    step = a_step(StepStatus.FAILED, tool=None, call=ToolCall("c", "no such\x1b[31m tool"))
    assert line(step).name == "no such tool"


@pytest.mark.parametrize(
    ("text", "summary", "more"),
    [
        ("Saved", "Saved", ""),
        ("", "", ""),
        ("\n\n First\n\nsecond\n", "First", "+1 line"),
        ("a\nb\nc", "a", "+2 lines"),
        ('{\n  "total": 3\n}', "total 3", ""),
        ("[\n1\n]", "1", ""),
        ("[\n1\n", "2 lines", ""),
        ("\x1b[31mred\u202e", "red", ""),
    ],
)
def test_a_result_is_summed_up_by_its_first_line(text: str, summary: str, more: str) -> None:
    done = line(a_step(StepStatus.DONE, result=text))
    assert (done.summary, done.more) == (summary, more)


def test_a_result_of_images_and_files_is_counted() -> None:
    parts = (ImagePart(b"", "image/png"), ImagePart(b"", "image/png"), FilePart(b"", "text/plain", "a.txt"))
    step = replace(a_step(StepStatus.DONE), result=ToolResult("call-0", parts))
    assert line(step).summary == "2 images, 1 file"
    assert line(replace(step, result=ToolResult("call-0", (*parts, TextPart("done"))))).summary == "done"


@pytest.mark.parametrize(
    ("decided", "summary"),
    [
        ({"decided_by": "Ben", "reason": "use\x1b[31m INC"}, "by Ben: use INC"),
        ({"decided_by": "Ben"}, "by Ben"),
        ({}, "A policy forbids it."),
    ],
)
def test_a_denial_has_its_user_and_reason(decided: dict[str, str], summary: str) -> None:
    step = a_step(StepStatus.DENIED, approval=an_approval(**decided), result="A policy forbids it.")
    assert line(step).summary == summary


@given(st.sampled_from(StepStatus), st.text(max_size=300), st.text(max_size=120))
def test_every_line_is_plain_and_bounded(status: StepStatus, text: str, name: str) -> None:
    step = a_step(status, result=text, tool=None, call=ToolCall("c", name), approval=an_approval(decided_by=name))
    made = tool_status(step, a_view(step, progress={0: text}))
    for part in (made.name, made.state, made.summary, made.more):
        assert single_line(part, 1_000) == part
    assert len(made.name) <= NAME_LIMIT
    assert len(made.summary) <= SUMMARY_LIMIT + 50


def test_an_unknown_outcome_shows_its_reason_and_no_instructions_for_the_model() -> None:
    text = f"No answer within 30 s. {UNSURE} Check before trying again, and tell the person."
    unknown = line(a_step(StepStatus.UNKNOWN, result=text))
    assert (unknown.state, unknown.summary) == ("may or may not have happened", "No answer within 30 s.")
