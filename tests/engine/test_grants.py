"""Approval with a grant: permitted approvers, covered calls and uncovered calls."""

from __future__ import annotations

import dataclasses

import pytest

from bot.domain.approvals import (
    ApprovalNotFound,
    ApprovalPolicy,
    ApprovalRequirements,
    ArgumentsScope,
    Decided,
    Decision,
    DecisionResult,
    DecisionType,
    HoursScope,
    NotAllowed,
    PermanentScope,
    StaleRevision,
    ThreadScope,
)
from bot.domain.audit import AuditQuery
from bot.domain.conversations import Member
from bot.domain.grants import GrantRequest
from bot.domain.messages import ToolCall
from bot.domain.policies import Rule
from bot.domain.tools import Tool
from bot.domain.turns import StepStatus, ToolStep, TurnStatus, TurnView
from bot.engine.engine import Engine
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.rules import Policies, RuleBook, Rules
from bot.i18n import use_language
from bot.storage.admin.grants import SqlGrantStore
from bot.storage.reporting import SqlReporting
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import ANA, BEN, HALL, ask_for, call, member, message, running, say, tool

ADD = tool("notes__add", server_id="n1", destructive=False)
WIPE = tool("notes__wipe", server_id="n1", destructive=True)
ADMIN, APPROVER = member(ANA), member(BEN)
SIGNATORIES = Approvers(admins=frozenset({"test:ana"}), approvers=frozenset({"test:ben"}))
THREAD = GrantRequest(ThreadScope())


@pytest.fixture
def rules(harness: EngineHarness) -> RuleBook:
    """A rule book under which every call needs an approval."""
    harness.rules = RuleBook(Policies(), SIGNATORIES)
    return harness.rules


def calls_of(view: TurnView) -> list[ToolStep]:
    return [step for step in view.steps if isinstance(step, ToolStep)]


def add(text: str, call_id: str = "c1") -> ToolCall:
    return call("notes__add", call_id, text=text)


async def ask_and_wait(harness: EngineHarness, engine: Engine, *calls: ToolCall) -> tuple[str, ToolStep]:
    """Ask for calls that await approval. Return the turn's id and the first of them."""
    harness.model.script = [ask_for(*calls), say("Done.")]
    receipt = await engine.receive(message(f"do it {len(harness.model.requests)}"))
    view = await harness.surface.wait_for(lambda view: view.turn.id == receipt.turn_id and bool(view.awaiting))
    return receipt.turn_id, view.awaiting[0]


async def approve_with_grant(
    engine: Engine, step: ToolStep, permission: GrantRequest = THREAD, by: Member = APPROVER, revision: int = 0
) -> DecisionResult:
    assert step.approval is not None
    decision = Decision(step.approval.id, revision or step.approval.revision, DecisionType.APPROVE, by.author)
    return await engine.approvals.grant(decision, permission, by)


async def run_calls(harness: EngineHarness, engine: Engine, *calls: ToolCall) -> TurnView:
    """Ask for calls that need no approval. Return the view of the ended turn."""
    harness.model.script = [ask_for(*calls), say("Done.")]
    receipt = await engine.receive(message(f"do it {len(harness.model.requests)}"))
    return await harness.surface.wait_for_end(receipt.turn_id)


async def grant_and_wait(
    harness: EngineHarness, engine: Engine, permission: GrantRequest = THREAD, by: Member = APPROVER
) -> None:
    """Approve a call of `notes__add` with this grant request and wait until the turn has ended."""
    turn_id, step = await ask_and_wait(harness, engine, add("milk"))
    assert await approve_with_grant(engine, step, permission, by) == Decided(DecisionType.APPROVE)
    await harness.surface.wait_for_end(turn_id)


async def audit_entries(harness: EngineHarness, *kinds: str) -> list[tuple[str, str]]:
    entries, _ = await SqlReporting(harness.database).audit(AuditQuery(kinds=kinds), 100, 0)
    return [(entry.kind, entry.actor) for entry in reversed(entries)]


@pytest.mark.parametrize("permission", [THREAD, GrantRequest(HoursScope(1)), GrantRequest(ArgumentsScope())])
async def test_the_next_call_of_the_kind_runs_without_a_card(
    harness: EngineHarness, rules: RuleBook, permission: GrantRequest
) -> None:
    harness.toolbox.add(ADD)
    engine = harness.engine()
    async with running(engine):
        await grant_and_wait(harness, engine, permission)
        view = await run_calls(harness, engine, add("milk"))
    (step,) = calls_of(view)
    assert (step.status, step.approval) == (StepStatus.DONE, None)
    assert step.grant is not None
    assert (step.grant.by, step.grant.name) == ("test:ben", "Ben")
    assert harness.toolbox.names == ["notes__add"] * 2


async def test_calls_that_wait_in_the_same_turn_follow_at_once(harness: EngineHarness, rules: RuleBook) -> None:
    harness.toolbox.add(ADD)
    engine = harness.engine()
    async with running(engine):
        turn_id, step = await ask_and_wait(harness, engine, *(add(f"item {n}", f"c{n}") for n in range(4)))
        await approve_with_grant(engine, step)
        view = await harness.surface.wait_for_end(turn_id)
    assert [each.status for each in calls_of(view)] == [StepStatus.DONE] * 4
    assert len(harness.toolbox.calls) == 4


@pytest.mark.parametrize(
    ("tool_wanted", "permission", "by", "said"),
    [
        (ADD, GrantRequest(PermanentScope()), APPROVER, "Only an admin can allow that."),
        (ADD, GrantRequest(ThreadScope(), everyone=True), APPROVER, "Only an admin can allow that."),
        (WIPE, GrantRequest(ThreadScope(), destructive=True), APPROVER, "Only an admin can allow that."),
        (WIPE, THREAD, ADMIN, "It may be destructive, so each call needs its own approval"),
        (WIPE, GrantRequest(PermanentScope()), ADMIN, "It may be destructive, so each call needs its own approval"),
        (ADD, GrantRequest(HoursScope(0)), ADMIN, "That takes between one minute and 168 hours."),
        (ADD, GrantRequest(HoursScope(float("nan"))), ADMIN, "That takes between one minute and 168 hours."),
        (ADD, GrantRequest(HoursScope(169)), ADMIN, "That takes between one minute and 168 hours."),
    ],
)
async def test_an_approver_without_the_right_to_grant_reads_it_and_nothing_is_approved(
    harness: EngineHarness, rules: RuleBook, *, tool_wanted: Tool, permission: GrantRequest, by: Member, said: str
) -> None:
    harness.toolbox.add(tool_wanted)
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine, call(tool_wanted.name))
        refused = await approve_with_grant(engine, step, permission, by)
        assert isinstance(refused, NotAllowed)
        assert said in refused.reason
    assert await SqlGrantStore(harness.database).active_grants(HALL.workspace_key) == []
    assert await audit_entries(harness, "decided", "granted", "refused") == [("refused", by.author.principal)]
    assert harness.toolbox.calls == []


async def test_an_admin_may_say_so_for_a_destructive_tool_and_for_always(
    harness: EngineHarness, rules: RuleBook
) -> None:
    harness.toolbox.add(WIPE)
    engine = harness.engine()
    async with running(engine):
        turn_id, step = await ask_and_wait(harness, engine, call("notes__wipe"))
        assert await approve_with_grant(
            engine, step, GrantRequest(PermanentScope(), destructive=True), ADMIN
        ) == Decided(DecisionType.APPROVE)
        await harness.surface.wait_for_end(turn_id)
        view = await run_calls(harness, engine, call("notes__wipe"))
    assert [each.status for each in calls_of(view)] == [StepStatus.DONE]


async def test_a_user_who_may_not_approve_may_not_grant_and_is_in_the_audit_once(
    harness: EngineHarness, rules: RuleBook
) -> None:
    harness.toolbox.add(ADD)
    engine = harness.engine()
    outsider = Member(BEN, guest=True)
    async with running(engine):
        _, step = await ask_and_wait(harness, engine, add("milk"))
        for _ in range(50):
            assert isinstance(await approve_with_grant(engine, step, by=outsider), NotAllowed)
            assert step.approval is not None
            decision = Decision(step.approval.id, 1, DecisionType.APPROVE, BEN)
            assert isinstance(await engine.approvals.decide(decision, outsider), NotAllowed)
    assert await audit_entries(harness, "decided", "granted", "refused") == [("refused", "test:ben")]


async def test_the_audit_has_the_reason_of_a_refusal_in_english(harness: EngineHarness, rules: RuleBook) -> None:
    harness.toolbox.add(ADD)
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine, add("milk"))
        assert step.approval is not None
        with use_language("ja"):
            decision = Decision(step.approval.id, 1, DecisionType.APPROVE, BEN)
            decided = await engine.approvals.decide(decision, Member(BEN, guest=True))
            granted = await approve_with_grant(engine, step, GrantRequest(PermanentScope()))
    assert isinstance(decided, NotAllowed)
    assert isinstance(granted, NotAllowed)
    assert not decided.reason.isascii()
    assert not granted.reason.isascii()
    entries, _ = await SqlReporting(harness.database).audit(AuditQuery(kinds=("refused",)), 100, 0)
    reasons = {str(entry.facts["reason"]) for entry in entries}
    assert "Only an admin can allow that." in reasons
    assert any(reason.startswith("You may not approve this.") for reason in reasons)
    assert all(reason.isascii() for reason in reasons)


@pytest.mark.parametrize(
    "set_rules", [(), (Rule(ApprovalPolicy.ASK_USER, askers=frozenset({"test:ana"}), id="policy.toml:1"),)]
)
def test_a_grant_holds_in_places_of_every_language(set_rules: tuple[Rule, ...]) -> None:
    here = Rules(Policies(rules=set_rules), conversation=HALL)
    english = here.judge(ADD, {}, ANA).stored.asked_by
    with use_language("ja"):
        assert here.judge(ADD, {}, ANA).stored.asked_by == english


async def test_a_changed_or_missing_call_is_not_granted(harness: EngineHarness, rules: RuleBook) -> None:
    harness.toolbox.add(ADD)
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine, add("milk"))
        assert await approve_with_grant(engine, step, revision=9) == StaleRevision()
        made_up = Decision("made-up", 1, DecisionType.APPROVE, BEN)
        assert await engine.approvals.grant(made_up, THREAD, APPROVER) == ApprovalNotFound()
    assert await audit_entries(harness, "decided", "granted", "refused") == []


async def test_a_denial_grants_nothing(harness: EngineHarness, rules: RuleBook) -> None:
    harness.toolbox.add(ADD)
    engine = harness.engine()
    async with running(engine):
        turn_id, step = await ask_and_wait(harness, engine, add("milk"))
        assert step.approval is not None
        denial = Decision(step.approval.id, 1, DecisionType.DENY, BEN)
        assert await engine.approvals.grant(denial, THREAD, APPROVER) == Decided(DecisionType.DENY)
        await harness.surface.wait_for_end(turn_id)
    assert await audit_entries(harness, "granted") == []


async def test_a_denying_policy_denies_despite_a_grant(harness: EngineHarness, rules: RuleBook) -> None:
    harness.toolbox.add(ADD)
    engine = harness.engine()
    async with running(engine):
        await grant_and_wait(harness, engine, GrantRequest(PermanentScope(), everyone=True, destructive=True), ADMIN)
        rules.amend([Rule(ApprovalPolicy.ALWAYS_DENY, server_id="n1", tool="add")], [], [])
        view = await run_calls(harness, engine, add("milk"))
    assert [each.status for each in calls_of(view)] == [StepStatus.DENIED]
    assert len(harness.toolbox.calls) == 1


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (Rule(ApprovalPolicy.ALWAYS_DENY, server_id="n1", tool="add"), "a policy forbids"),
        (Rule(ApprovalPolicy.ASK_USER, server_id="n1", tool="add", id="new"), "approval now"),
        (
            Rule(ApprovalPolicy.ASK_USER, server_id="n1", tool="add", requirements=ApprovalRequirements(quorum=2)),
            "approval now",
        ),
    ],
)
async def test_a_rule_that_comes_between_the_grant_and_the_sending_still_counts(
    harness: EngineHarness, rules: RuleBook, rule: Rule, said: str
) -> None:
    harness.toolbox.add(ADD)
    engine = harness.engine()
    async with running(engine):
        await grant_and_wait(harness, engine)
        offer = harness.toolbox.offer
        looks = 0

        async def changing(workspace: str = "") -> object:
            nonlocal looks
            looks += 1
            if looks == 2:  # 1: tools for the model and decisions on its calls, 2: this call before it is sent
                rules.amend([rule], [], [])
            return await offer(workspace)

        harness.toolbox.offer = changing  # type: ignore[method-assign, assignment]
        view = await run_calls(harness, engine, add("bread"))
    (step,) = calls_of(view)
    assert step.grant is not None, "it was covered when the model asked"
    assert step.status is StepStatus.FAILED
    assert step.result is not None
    assert said in step.result.text
    assert len(harness.toolbox.calls) == 1


async def test_a_tool_that_has_changed_asks_again(harness: EngineHarness, rules: RuleBook) -> None:
    harness.toolbox.add(ADD)
    engine = harness.engine()
    async with running(engine):
        await grant_and_wait(harness, engine)
        harness.toolbox.add(dataclasses.replace(ADD, description="Adds, and tells everybody."))
        _, step = await ask_and_wait(harness, engine, add("milk"))
    assert step.status is StepStatus.AWAITING


async def test_a_revoked_grant_asks_again(harness: EngineHarness, rules: RuleBook) -> None:
    harness.toolbox.add(ADD)
    engine = harness.engine()
    store = SqlGrantStore(harness.database)
    async with running(engine):
        await grant_and_wait(harness, engine)
        (grant,) = await store.active_grants(HALL.workspace_key)
        assert await store.revoke(grant.id, ANA)
        _, step = await ask_and_wait(harness, engine, add("milk"))
    assert step.status is StepStatus.AWAITING


async def test_a_call_that_takes_two_approvals_is_not_granted(harness: EngineHarness, rules: RuleBook) -> None:
    rules.amend([Rule(ApprovalPolicy.ASK_USER, server_id="n1", requirements=ApprovalRequirements(quorum=2))], [], [])
    harness.toolbox.add(ADD)
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine, add("milk"))
        refused = await approve_with_grant(engine, step, GrantRequest(PermanentScope()), ADMIN)
    assert isinstance(refused, NotAllowed)
    assert "2 approvals each time" in refused.reason


async def test_a_rule_that_takes_two_approvals_by_now_keeps_a_grant_from_being_given(
    harness: EngineHarness, rules: RuleBook
) -> None:
    harness.toolbox.add(ADD)
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine, add("milk"))
        rules.amend(
            [Rule(ApprovalPolicy.ASK_USER, server_id="n1", requirements=ApprovalRequirements(quorum=2))], [], []
        )
        assert isinstance(await approve_with_grant(engine, step), NotAllowed)
    assert await audit_entries(harness, "decided", "signed", "granted") == []


async def test_a_call_run_by_hand_follows_a_grant_and_one_run_again_does_not(
    harness: EngineHarness, rules: RuleBook
) -> None:
    harness.toolbox.add(ADD)
    engine = harness.engine()
    async with running(engine):
        await grant_and_wait(harness, engine)
        by_hand = dataclasses.replace(message("by hand"), call=add("milk"))
        view = await harness.surface.wait_for_end((await engine.receive(by_hand)).turn_id)
        assert [each.status for each in calls_of(view)] == [StepStatus.DONE]
        again = dataclasses.replace(message("again"), call=add("milk"), again=True)
        turn_id = (await engine.receive(again)).turn_id
        view = await harness.surface.wait_for(lambda view: view.turn.id == turn_id and bool(view.awaiting))
    assert view.turn.status is not TurnStatus.DONE
