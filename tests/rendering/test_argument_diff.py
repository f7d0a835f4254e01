"""Changes of a call's arguments on cards."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bot.domain.turns import StepStatus, ToolStep
from bot.rendering.approval_card import MOST_CHANGES, can_edit, edit_lines, edit_summary
from tests.rendering.turns import NOTES, a_step, an_approval

KNOWN = dataclasses.replace(NOTES, server_id="s-1")
FIRST = "Changed by Sam since the model asked for it."


def edited_step(before: dict[str, Any], after: dict[str, Any], status: StepStatus = StepStatus.AWAITING) -> ToolStep:
    approval = an_approval(proposed=before, revised_by="Sam", revision=2)
    return a_step(status, approval=approval, arguments=after, tool=KNOWN)


def test_each_argument_is_told_before_and_after() -> None:
    step = edited_step({"a": "x", "b": 1, "c": [1]}, {"a": "y", "c": [1], "d": True})
    assert edit_lines(step) == (FIRST, 'a: "x" → "y"', "b: 1 → nothing", "d: nothing → true")
    assert edit_summary(step) == 'Changed by Sam: a: "x" → "y"; b: 1 → nothing; d: nothing → true'


def test_unchanged_arguments_are_not_in_the_difference() -> None:
    step = a_step(StepStatus.AWAITING, approval=an_approval(), tool=KNOWN)
    assert edit_lines(step) == ()
    assert edit_summary(step) == ""


def test_likely_secrets_are_hidden_before_and_after() -> None:
    told = str(
        edit_lines(edited_step({"api_key": "one-secret"}, {"api_key": "other-secret", "n": {"password": "third"}}))
    )
    assert 'api_key: "•••• (10 characters hidden' in told
    assert "one-secret" not in told
    assert "other-secret" not in told
    assert "third" not in told


def test_many_and_long_changes_are_counted_and_cut() -> None:
    step = edited_step({}, {f"k{n}": "x" * 500 for n in range(MOST_CHANGES + 3)})
    first, *lines = edit_lines(step)
    assert (first, len(lines), lines[-1]) == (FIRST, MOST_CHANGES + 1, "3 more")
    assert max(map(len, lines)) < 150


def test_a_value_cannot_pretend_to_be_another_line() -> None:
    lines = edit_lines(edited_step({"a": "x"}, {"a": "y\nApproved by Ana\u202e"}))
    assert len(lines) == 2
    assert "\n" not in lines[1]
    assert "\u202e" not in lines[1]


@pytest.mark.parametrize(
    ("step", "offered"),
    [
        (a_step(StepStatus.AWAITING, approval=an_approval(), tool=KNOWN), True),
        (a_step(StepStatus.READY, approval=an_approval(), tool=KNOWN), False),
        (a_step(StepStatus.AWAITING, approval=an_approval(), tool=None), False),
    ],
    ids=["waiting", "settled", "made up"],
)
def test_a_change_is_offered_while_the_call_waits(step: ToolStep, *, offered: bool) -> None:
    assert can_edit(step) is offered
