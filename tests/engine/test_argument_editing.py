"""Editing of a call before its approval: permitted editors, the new approval, the executed arguments and the model's
result.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bot.domain.approvals import (
    AlreadyDecided,
    ApprovalNotFound,
    ApprovalPolicy,
    ApprovalRequirements,
    Decided,
    Decision,
    DecisionResult,
    DecisionType,
    NotAllowed,
    StaleRevision,
    fingerprint,
)
from bot.domain.audit import AuditQuery
from bot.domain.conversations import Author, Member
from bot.domain.policies import Rule
from bot.domain.turns import StepStatus, ToolStep
from bot.engine.approvals import SETTLED, TOOL_CHANGED, UNCHANGED
from bot.engine.engine import Engine
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.rules import Policies, RuleBook
from bot.ports.platform import EditableCall, InvalidValues, RevisionAccepted
from bot.storage.reporting import SqlReporting
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import ANA, BEN, ask_for, call, member, message, running, say, tool, words

SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string", "maxLength": 20}, "api_key": {"type": "string"}},
    "required": ["text"],
}
ADD = tool("notes__add", server_id="n1", destructive=False, input_schema=SCHEMA)
EVE, CY = Author("test", "eve", "Eve"), Author("test", "cy", "Cy")
ASKER, APPROVER, SECOND = member(ANA), member(BEN), member(CY)
SIGNATORIES = Approvers(approvers=frozenset({"test:ben", "test:cy"}))
BREAD = {"text": "bread"}


@pytest.fixture
def harness(harness: EngineHarness) -> EngineHarness:
    """A harness that asks for every call. Ben and Cy are the approvers."""
    harness.rules = RuleBook(Policies(), SIGNATORIES)
    harness.toolbox.add(ADD)
    return harness


async def ask_and_wait(harness: EngineHarness, engine: Engine, **arguments: Any) -> tuple[str, ToolStep]:
    """Let Ana ask for a call. Return the turn's id and the step that awaits approval."""
    harness.model.script = [ask_for(call("notes__add", **(arguments or {"text": "milk"}))), say("Done.")]
    receipt = await engine.receive(message("do it"))
    view = await harness.surface.wait_for(lambda view: view.turn.id == receipt.turn_id and bool(view.awaiting))
    return receipt.turn_id, view.awaiting[0]


def card(step: ToolStep) -> str:
    assert step.approval is not None
    return step.approval.id


async def approve_call(engine: Engine, step: ToolStep, revision: int, by: Member = APPROVER) -> DecisionResult:
    return await engine.approvals.decide(Decision(card(step), revision, DecisionType.APPROVE, by.author), by)


async def test_exactly_the_edited_call_runs_and_the_model_reads_editor_and_changes(harness: EngineHarness) -> None:
    engine = harness.engine()
    async with running(engine):
        turn_id, step = await ask_and_wait(harness, engine)
        assert await engine.approvals.revise(card(step), 1, BREAD, APPROVER) == RevisionAccepted(2)
        assert await approve_call(engine, step, 1) == StaleRevision()
        assert await approve_call(engine, step, 2) == Decided(DecisionType.APPROVE)
        await harness.surface.wait_for_end(turn_id)
    assert [arguments for _, arguments, _ in harness.toolbox.calls] == [BREAD]
    told = words(harness.model.requests[1])[-1]
    assert 'Ben edited this call before it was approved. It was run with text: "milk" -> "bread".' in told


async def test_the_view_names_the_editor_and_the_original_arguments(harness: EngineHarness) -> None:
    engine = harness.engine()
    async with running(engine):
        turn_id, step = await ask_and_wait(harness, engine)
        await engine.approvals.revise(card(step), 1, BREAD, APPROVER)
        view = await harness.surface.wait_for(
            lambda view: view.turn.id == turn_id and any(each.call.arguments == BREAD for each in view.awaiting)
        )
    (now,) = view.awaiting
    assert now.approval is not None
    assert now.call.arguments == BREAD
    assert (now.approval.revision, now.approval.proposed, now.approval.revised_by) == (2, {"text": "milk"}, "Ben")
    assert now.approval.fingerprint == fingerprint(ADD, BREAD)


@pytest.mark.parametrize(
    ("who", "may"),
    [
        (ASKER, True),
        (APPROVER, True),
        (member(EVE), False),
        (dataclasses.replace(APPROVER, guest=True), False),
        (dataclasses.replace(APPROVER, external=True), False),
        (dataclasses.replace(ASKER, guest=True), False),
    ],
    ids=["asker", "approver", "somebody", "guest", "outsider", "guest who asked"],
)
async def test_approvers_and_the_asker_may_edit_a_call(harness: EngineHarness, who: Member, may: bool) -> None:
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine)
        assert isinstance(await engine.approvals.get_editable_call(card(step), 1, who), EditableCall) is may
        assert isinstance(await engine.approvals.revise(card(step), 1, BREAD, who), RevisionAccepted) is may
        entries, _ = await SqlReporting(harness.database).audit(AuditQuery(kinds=("refused", "revised")), 100, 0)
    assert [(entry.kind, entry.actor) for entry in entries] == [("revised" if may else "refused", who.author.principal)]


async def test_an_edit_by_the_asker_is_no_approval(harness: EngineHarness) -> None:
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine)
        await engine.approvals.revise(card(step), 1, BREAD, ASKER)
        assert isinstance(await approve_call(engine, step, 2, ASKER), NotAllowed)
        assert harness.toolbox.calls == []


async def test_four_eyes_count_the_editor(harness: EngineHarness) -> None:
    harness.rules = RuleBook(
        Policies(rules=(Rule(ApprovalPolicy.ASK_USER, requirements=ApprovalRequirements(four_eyes=True)),)), SIGNATORIES
    )
    engine = harness.engine()
    async with running(engine):
        turn_id, step = await ask_and_wait(harness, engine)
        assert await engine.approvals.revise(card(step), 1, BREAD, APPROVER) == RevisionAccepted(2)
        refused = await approve_call(engine, step, 2)
        assert isinstance(refused, NotAllowed)
        assert refused.reason.startswith("You have edited it")
        assert await engine.approvals.revise(card(step), 2, {"text": "butter"}, APPROVER) == RevisionAccepted(3)
        assert await approve_call(engine, step, 3, SECOND) == Decided(DecisionType.APPROVE)
        await harness.surface.wait_for_end(turn_id)
    assert [arguments for _, arguments, _ in harness.toolbox.calls] == [{"text": "butter"}]


async def test_approvals_that_were_given_before_a_change_do_not_count_for_it(harness: EngineHarness) -> None:
    harness.rules = RuleBook(
        Policies(rules=(Rule(ApprovalPolicy.ASK_USER, requirements=ApprovalRequirements(quorum=2)),)), SIGNATORIES
    )
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine)
        await approve_call(engine, step, 1)
        await engine.approvals.revise(card(step), 1, BREAD, SECOND)
        assert not isinstance(await approve_call(engine, step, 2), Decided)
        assert harness.toolbox.calls == []


async def test_an_edit_that_does_not_fit_the_tool_is_refused(harness: EngineHarness) -> None:
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine)
        long = await engine.approvals.revise(card(step), 1, {"text": "x" * 21}, APPROVER)
        missing = await engine.approvals.revise(card(step), 1, {}, APPROVER)
        same = await engine.approvals.revise(card(step), 1, {"text": "milk"}, APPROVER)
        assert await engine.approvals.revise(card(step), 1, BREAD, APPROVER) == RevisionAccepted(2)
    assert isinstance(long, InvalidValues)
    assert [each.argument for each in long.problems] == ["text"]
    assert isinstance(missing, InvalidValues)
    assert [each.argument for each in missing.problems] == [""]
    assert isinstance(same, InvalidValues)
    assert same.problems[0].problem == UNCHANGED


async def test_an_edit_that_a_policy_denies_is_refused(harness: EngineHarness) -> None:
    denied = Rule(ApprovalPolicy.ALWAYS_DENY, tool="*add", arguments={"text": "bread"})
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine)
        assert harness.rules is not None
        harness.rules.replace_file(Policies(rules=(denied,)))
        found = await engine.approvals.revise(card(step), 1, BREAD, APPROVER)
    assert isinstance(found, InvalidValues)
    assert "A policy forbids" in found.problems[0].problem


async def test_a_tool_that_has_changed_keeps_its_calls_from_being_changed(harness: EngineHarness) -> None:
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine)
        harness.toolbox.add(dataclasses.replace(ADD, description="another"))
        assert await engine.approvals.get_editable_call(card(step), 1, APPROVER) == NotAllowed(TOOL_CHANGED)
        assert await engine.approvals.revise(card(step), 1, BREAD, APPROVER) == NotAllowed(TOOL_CHANGED)


async def test_a_call_that_is_settled_unknown_or_out_of_date_cannot_be_changed(harness: EngineHarness) -> None:
    engine = harness.engine()
    async with running(engine):
        turn_id, step = await ask_and_wait(harness, engine)
        assert await engine.approvals.revise("nobody's", 1, BREAD, APPROVER) == ApprovalNotFound()
        assert await engine.approvals.revise(card(step), 7, BREAD, APPROVER) == StaleRevision()
        await approve_call(engine, step, 1)
        view = await harness.surface.wait_for_end(turn_id)
        assert await engine.approvals.revise(card(step), 1, BREAD, APPROVER) == AlreadyDecided(SETTLED)
    assert [each.status for each in view.steps if isinstance(each, ToolStep)] == [StepStatus.DONE]


async def test_the_model_reads_no_secret_that_a_user_has_typed(harness: EngineHarness) -> None:
    engine = harness.engine()
    async with running(engine):
        turn_id, step = await ask_and_wait(harness, engine)
        await engine.approvals.revise(card(step), 1, {"text": "milk", "api_key": "very-secret"}, APPROVER)
        assert isinstance(await engine.approvals.open_call(card(step), 2, APPROVER), ToolStep)
        await approve_call(engine, step, 2)
        await harness.surface.wait_for_end(turn_id)
    told = words(harness.model.requests[1])[-1]
    assert "api_key: nothing -> ••••" in told
    assert "very-secret" not in told
