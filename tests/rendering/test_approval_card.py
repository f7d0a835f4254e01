"""Approval cards show exactly the call that runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.approvals import Approval, ApprovalPolicy, ApprovalRequirements, SelfApproval
from bot.domain.conversations import CONSOLE, Author
from bot.domain.flows import Words
from bot.domain.policies import StoredPolicyResult
from bot.domain.turns import StepStatus, ToolRef
from bot.i18n import use_language
from bot.rendering.approval_card import (
    ApprovalCard,
    approval_card,
    approved_by_text,
    asker_name,
    format_duration,
    headline,
    required_approvers_text,
)
from bot.rendering.call_arguments import VALUE_LIMIT, VALUE_LINES, CardArgument
from bot.rendering.text_safety import strip_control
from tests.rendering.turns import a_step, an_approval

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def make_card(
    approval: Approval | None = None, status: StepStatus = StepStatus.AWAITING, **changes: Any
) -> ApprovalCard:
    made = approval_card(a_step(status, approval=approval or an_approval(), **changes))
    assert made is not None
    return made


def argument(value: Any, name: str = "text") -> CardArgument:
    (only,) = make_card(arguments={name: value}).arguments
    return only


def test_a_call_that_needed_no_approval_has_no_card() -> None:
    assert approval_card(a_step(StepStatus.DONE, result="ok")) is None


def test_a_card_names_the_call_the_asker_and_the_time() -> None:
    made = make_card()
    assert (made.approval_id, made.revision) == ("apr-12345678", 1)
    assert (made.title, made.server, made.tool) == ("Add note (notes)?", "notes", "add_note")
    assert (asker_name(an_approval()), made.expires_in, made.outcome) == ("Ana", 1800, "")
    assert made.arguments == (CardArgument("text", "Buy milk", "Buy milk"),)
    assert not made.shortened


@pytest.mark.parametrize(
    ("tool", "title"),
    [
        (ToolRef("jira", "create_issue"), "Create issue (jira)?"),
        (ToolRef("jira", "createIssue"), "Create issue (jira)?"),
        (ToolRef("jira", "issues.create-one"), "Issues create one (jira)?"),
        (ToolRef("jira", "x", title="File it?"), "File it (jira)?"),
        (ToolRef("jira", "drop_all", title="\x1b[31m\u202eFile\nit"), "Drop all (jira)?"),
        (ToolRef("jira", "drop_all", title="Re\u0430d"), "Drop all (jira)?"),
        (ToolRef("jira", "drop_all", title="jira.read_issue"), "Drop all (jira)?"),
        (ToolRef("jira", "drop_all", title="wiki__read"), "Drop all (jira)?"),
        (ToolRef("jira", "drop_all", title="Read/write an issue"), "Read/write an issue (jira)?"),
        (ToolRef("jira", "drop.all", title="drop.all"), "Drop.all (jira)?"),
        (ToolRef("jira", "x", title="課題を作る"), "課題を作る (jira)?"),
        (None, "notes__add_note?"),
    ],
)
def test_the_title_names_the_effect_and_the_server(tool: ToolRef | None, title: str) -> None:
    assert make_card(tool=tool).title == title


@pytest.mark.parametrize(
    ("tool", "risk"),
    [
        (ToolRef("s", "t", read_only=True, destructive=False), "reads"),
        (ToolRef("s", "t", read_only=False, destructive=False), "writes"),
        (ToolRef("s", "t", read_only=False, destructive=True), "destructive"),
        (ToolRef("s", "t", read_only=False, destructive=True, unknown=True), "unknown"),
        (None, "destructive"),
    ],
)
def test_the_risk_is_one_word_and_the_worst_of_a_missing_tool(tool: ToolRef | None, risk: str) -> None:
    assert make_card(tool=tool).risk == risk


def test_arguments_keep_their_order_and_are_spelled_as_json_where_they_are_no_text() -> None:
    shown = {
        each.name: each.preview for each in make_card(arguments={"b": [1, "é"], "a": None, "c": {"k": True}}).arguments
    }
    assert list(shown.items()) == [("b", '[1,"é"]'), ("a", "null"), ("c", '{"k":true}')]


def test_a_long_value_is_cut_and_says_how_long_it_is() -> None:
    long = argument("x" * 1_000)
    assert long.preview == "x" * VALUE_LIMIT + "… (1,000 characters)"
    assert long.full == "x" * 1_000
    assert long.shortened


def test_many_short_lines_cannot_push_the_title_out_of_sight() -> None:
    tall = argument("\n" * 150 + "end")
    assert tall.preview.count("\n") < VALUE_LINES
    assert tall.preview.endswith("… (153 characters)")
    assert tall.full.endswith("end")


def test_hidden_characters_are_spelled_out_in_names_and_values() -> None:
    tricky = argument("a\u202eb\x1b[8m", name="na\u200bme")
    assert (tricky.name, tricky.preview) == ("na\\u{200b}me", "a\\u{202e}b\\u{1b}[8m")


@pytest.mark.parametrize(
    ("status", "approval", "outcome"),
    [
        (StepStatus.DENIED, {"decided_by": "Ben", "reason": "use\nINC"}, "Denied by Ben: use INC"),
        (StepStatus.DENIED, {"decided_by": "Ben"}, "Denied by Ben"),
        (StepStatus.DONE, {}, "Approved"),
    ],
)
def test_a_settled_card_says_how_it_ended(status: StepStatus, approval: dict[str, str], outcome: str) -> None:
    assert make_card(an_approval(**approval), status).outcome == outcome


def test_an_asker_without_a_name_is_named_by_their_id() -> None:
    assert asker_name(an_approval(requested_for=Author("slack", "U9", ""))) == "U9"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (-5, "0 s"), (59.6, "60 s"), (60, "1 min"), (90, "90 s"), (1800, "30 min"), (3600, "1 h"),
     (5400, "90 min"), (86_400, "1 day"), (172_800, "2 days"), (100_000, "28 h")],
)  # fmt: skip
def test_a_span_of_time_is_told_in_its_largest_unit_that_fits(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


@given(st.dictionaries(st.text(min_size=1, max_size=10), JSON, max_size=4), st.text(max_size=20))
def test_a_card_of_any_arguments_can_be_drawn_as_it_stands(arguments: dict[str, Any], title: str) -> None:
    made = make_card(arguments=arguments, tool=ToolRef("s", "t", title=title))
    texts = [made.title, *(text for each in made.arguments for text in (each.name, each.preview, each.full))]
    assert [strip_control(text) for text in texts] == texts
    assert len(made.arguments) == len(arguments)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"project": "OPS", "summary": "Login\nfails"}, "Add note “Login fails” (notes)?"),
        ({"issue": "OPS-17"}, "Add note “OPS-17” (notes)?"),
        ({"a": "x", "b": "y"}, "Add note (notes)?"),
        ({"title": "x" * 61}, "Add note (notes)?"),
        ({"password": "hunter2"}, "Add note (notes)?"),
        ({"name": "a” (other)? “b"}, "Add note “a (other)? b” (notes)?"),
        ({}, "Add note (notes)?"),
    ],
)
def test_a_headline_has_the_main_argument_if_that_is_short_and_no_secret(arguments: dict[str, str], line: str) -> None:
    step = a_step(StepStatus.AWAITING, approval=an_approval(), arguments=arguments)
    made = approval_card(step)
    assert made is not None
    assert headline(step, made) == line


SIGNERS = frozenset({"test-group:ops", "test:ben"})


@pytest.mark.parametrize(
    ("terms", "needs"),
    [
        (ApprovalRequirements(), ""),
        (ApprovalRequirements(expires=60.0, remind=True), ""),
        (ApprovalRequirements((SIGNERS,)), "needs 1 of test-group:ops or test:ben"),
        (ApprovalRequirements((SIGNERS,), four_eyes=True), "needs 1 of test-group:ops or test:ben, not Ana or Sam"),
        (ApprovalRequirements(quorum=2), "needs 2 of the approvers"),
        (ApprovalRequirements(quorum=2, self_approval=SelfApproval.ALLOWED), "needs 2 of the approvers"),
        (ApprovalRequirements((frozenset({"asker"}),)), "needs 1 of Ana"),
        (
            ApprovalRequirements((SIGNERS, frozenset({"members"})), quorum=2),
            "needs 2 of test-group:ops or test:ben and of the members here",
        ),
        (
            ApprovalRequirements((frozenset(f"test:p{n}" for n in range(9)),)),
            "needs 1 of test:p0 or test:p1 or test:p2 or test:p3 or test:p4 or 4 more",
        ),
    ],
)
def test_a_card_names_the_approvers_of_a_rule(terms: ApprovalRequirements, needs: str) -> None:
    approval = an_approval(requirements=terms, revised_by="Sam")
    assert required_approvers_text(a_step(StepStatus.AWAITING, approval=approval), approval) == needs


@pytest.mark.parametrize(
    ("reason", "english", "japanese"),
    [
        (SelfApproval.ALLOWED, "Ana may approve this", "Anaが承認できます"),
        (
            SelfApproval.DESTRUCTIVE,
            "An approver must approve this, because it may delete data",
            "データを削除する可能性があるため、承認者の承認が必要です",
        ),
        (
            SelfApproval.TAINT,
            "An approver must approve this, because the model has read words of others",
            "モデルがほかの人の文章を読んだため、承認者の承認が必要です",
        ),
        (
            SelfApproval.SETTING,
            "An approver must approve this, as the operator has set",
            "運用者の設定により、承認者の承認が必要です",
        ),
        (SelfApproval.RULE, "", ""),
        (SelfApproval.PROGRAM, "", ""),
        (SelfApproval.UNKNOWN, "", ""),
    ],
)
def test_a_card_says_if_the_asker_may_approve_it_and_if_not_why(
    reason: SelfApproval, english: str, japanese: str
) -> None:
    approval = an_approval(requirements=ApprovalRequirements(self_approval=reason))
    step = a_step(StepStatus.AWAITING, approval=approval)
    assert required_approvers_text(step, approval) == english
    with use_language("ja"):
        assert required_approvers_text(step, approval) == japanese


@pytest.mark.parametrize(
    ("platform", "reason", "is_allowed", "english", "japanese"),
    [
        (
            "slack",
            SelfApproval.TAINT,
            True,
            (
                "A rule allows this, but the model has read words of others (notes) · "
                "A new conversation starts without them"
            ),
            (
                "ルールで許可されていますが、モデルがほかの人の文章（notes）を読んでいます · "
                "新しい会話には、それが含まれません"
            ),
        ),
        (
            CONSOLE,
            SelfApproval.TAINT,
            True,
            (
                "A rule allows this, but the model has read words of others (notes) · "
                "/new starts a conversation without them"
            ),
            (
                "ルールで許可されていますが、モデルがほかの人の文章（notes）を読んでいます · "
                "/new で、それを含まない会話を始められます"
            ),
        ),
        (
            "slack",
            SelfApproval.SETTING,
            True,
            (
                "A rule allows this, but the model has read words of others (notes) · "
                "An approver must approve this, as the operator has set · A new conversation starts without them"
            ),
            (
                "ルールで許可されていますが、モデルがほかの人の文章（notes）を読んでいます · "
                "運用者の設定により、承認者の承認が必要です · 新しい会話には、それが含まれません"
            ),
        ),
        (
            "slack",
            SelfApproval.TAINT,
            False,
            "An approver must approve this, because the model has read words of others (notes)",
            "モデルがほかの人の文章（notes）を読んだため、承認者の承認が必要です",
        ),
        (
            "slack",
            SelfApproval.DESTRUCTIVE,
            False,
            "An approver must approve this, because it may delete data",
            "データを削除する可能性があるため、承認者の承認が必要です",
        ),
    ],
)
def test_a_card_names_the_words_of_others_that_it_asks_for(
    platform: str, reason: SelfApproval, is_allowed: bool, english: str, japanese: str
) -> None:
    result = StoredPolicyResult(ApprovalPolicy.ASK_USER, taint=Words.SHARED, sources="notes", is_allowed=is_allowed)
    approval = an_approval(
        requirements=ApprovalRequirements(self_approval=reason), requested_for=Author(platform, "ana", "Ana")
    )
    step = replace(a_step(StepStatus.AWAITING, approval=approval), policy_result=result)
    assert required_approvers_text(step, approval) == english
    with use_language("ja"):
        assert required_approvers_text(step, approval) == japanese


def test_a_card_names_the_approvals_so_far() -> None:
    approval = an_approval(
        requirements=ApprovalRequirements(quorum=3), approver_names=("Ben", "Zoe"), decided_by="Ben and Zoe and Kim"
    )
    assert approved_by_text(approval) == "2 of 3 approved by Ben and Zoe"
    assert make_card(approval, StepStatus.DONE).outcome == "Approved by Ben and Zoe and Kim"
    assert approved_by_text(an_approval(requirements=ApprovalRequirements(quorum=3))) == ""
