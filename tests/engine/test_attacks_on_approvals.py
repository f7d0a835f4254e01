"""Attempts to run a call without the right approval, on the engine with a real database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bot.domain.approvals import (
    AlreadyDecided,
    Approval,
    ApprovalPolicy,
    ApprovalRequirements,
    Decided,
    Decision,
    DecisionResult,
    DecisionType,
    HoursScope,
    MoreApprovalsNeeded,
    NotAllowed,
    OnTimeout,
    Revision,
    StaleRevision,
    ThreadScope,
)
from bot.domain.approvals import fingerprint as fingerprint_of
from bot.domain.audit import AuditEntry, AuditQuery
from bot.domain.conversations import Author, Member
from bot.domain.grants import GrantRequest
from bot.domain.policies import Rule
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import Tool, ToolSet
from bot.domain.turns import StepStatus, ToolStep, TurnView
from bot.engine.engine import Engine
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.rules import Policies, RuleBook
from bot.storage.reporting import SqlReporting
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import ANA, BEN, FakeToolbox, ask_for, call, message, running, say, tool, until
from tests.postgres import Server
from tests.rules import plain
from tests.turn_log_harness import Harness, PostgresHarness, sqlite_harness

ALLOW, ASK, DENY, AUTO = (
    ApprovalPolicy.ALWAYS_ALLOW,
    ApprovalPolicy.ASK_USER,
    ApprovalPolicy.ALWAYS_DENY,
    ApprovalPolicy.AUTO,
)
ZOE, KIM = Author("test", "zoe", "Zoe"), Author("test", "kim", "Kim")
FINANCE = "test-group:finance"
SEND = tool("bank__send", server_id="b1", destructive=False)
SIGNATORIES = Approvers(admins=frozenset({"test:kim"}), approvers=frozenset({"test:ben", "test:zoe"}))
APPROVE = DecisionType.APPROVE


@pytest.fixture(params=["sqlite", "postgresql"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EngineHarness]:
    """A harness on each database."""
    turn_log: Harness
    if request.param == "sqlite":
        turn_log = await sqlite_harness(tmp_path)
    else:
        postgres: Server = await asyncio.to_thread(request.getfixturevalue, "postgres")
        turn_log = PostgresHarness(await asyncio.to_thread(postgres.fresh, virtual_clock=True))
    yield EngineHarness(turn_log.database, turn_log.log, [])
    await turn_log.close()


def rule(policy: ApprovalPolicy = ASK, *approvers: str, name: str = "policy.toml:1", **more: object) -> Rule:
    """Return a rule of the operator's file for the server `bank`. A key that is not a condition is a requirement."""
    conditions = {key: more.pop(key) for key in ("tool", "arguments", "annotations") if key in more}
    terms = ApprovalRequirements((frozenset(approvers),) if approvers else (), **more)  # type: ignore[arg-type]
    return Rule(policy, server="bank", requirements=terms, id=name, of_file=True, **conditions)  # type: ignore[arg-type]


def prepare_engine(
    harness: EngineHarness, *rules: Rule, sends: tuple[dict[str, object], ...] = ({"to": "sam"},)
) -> Engine:
    """Return an engine. Its model asks for these calls."""
    harness.toolbox.add(SEND)
    harness.rules = RuleBook(Policies(rules=rules), SIGNATORIES)
    calls = [call("bank__send", f"c{number}", **arguments) for number, arguments in enumerate(sends)]
    harness.model.script = [ask_for(*calls), say("Done.")]
    return harness.engine()


async def ask_and_wait(harness: EngineHarness, engine: Engine, text: str = "send it") -> tuple[str, list[Approval]]:
    turn = (await engine.receive(message(text))).turn_id
    view = await harness.surface.wait_for(lambda view: view.turn.id == turn and bool(view.awaiting))
    return turn, [step.approval for step in view.awaiting if step.approval is not None]


def signed_by(approval: Approval, by: Author, revision: int = 0) -> Decision:
    return Decision(approval.id, revision or approval.revision, APPROVE, by)


async def signs(engine: Engine, approval: Approval, by: Author, *groups: str, revision: int = 0) -> DecisionResult:
    return await engine.approvals.decide(signed_by(approval, by, revision), Member(by, frozenset(groups)))


def calls_of(view: TurnView) -> list[ToolStep]:
    return [step for step in view.steps if isinstance(step, ToolStep)]


async def audit_entries(harness: EngineHarness, *kinds: str) -> list[AuditEntry]:
    entries, _ = await SqlReporting(harness.database).audit(AuditQuery(kinds=kinds), 500, 0)
    return list(reversed(entries))


# ------------------------------------------------------------------ approval of unseen calls and of own calls


@dataclass
class Interrupted(FakeToolbox):
    """A toolbox that runs a callback of `meanwhile` before each offer."""

    meanwhile: list[Callable[[], Awaitable[object]]] = field(default_factory=list)

    async def offer(self, workspace: str = EVERYWHERE) -> ToolSet:
        while self.meanwhile:
            await self.meanwhile.pop()()
        return await super().offer(workspace)


async def test_an_editor_does_not_approve_under_four_eyes_by_naming_the_revision_that_is_about_to_come(
    harness: EngineHarness,
) -> None:
    harness.toolbox = box = Interrupted()
    engine = prepare_engine(harness, rule(four_eyes=True))
    async with running(engine):
        _, (approval,) = await ask_and_wait(harness, engine)
        other = {"to": "mallory"}
        mine = Revision(approval.id, 1, other, fingerprint_of(SEND, other), BEN)
        box.meanwhile.append(lambda: harness.log.revise(mine))
        assert await signs(engine, approval, BEN, revision=2) == StaleRevision()
        assert isinstance(await signs(engine, approval, BEN, revision=2), NotAllowed)
    assert harness.toolbox.calls == []


@dataclass
class Changing(FakeToolbox):
    """A toolbox that changes the tool's description at the `at`th offer."""

    looks: int = 0
    at: int = 0

    async def offer(self, workspace: str = EVERYWHERE) -> ToolSet:
        self.looks += 1
        if self.looks == self.at:
            self.add(replace(SEND, description="Sends, and tells everybody."))
        return await super().offer(workspace)


@pytest.mark.parametrize("look", [1, 2])
async def test_no_edit_takes_an_approval_over_to_a_tool_that_changes_meanwhile(
    harness: EngineHarness, look: int
) -> None:
    harness.toolbox = box = Changing()
    engine = prepare_engine(harness, Rule(ASK, server="bank", id="policy.toml:1"))
    async with running(engine):
        _, (approval,) = await ask_and_wait(harness, engine)
        box.at = box.looks + look
        assert isinstance(await engine.approvals.revise(approval.id, 1, {"to": "kim"}, Member(BEN)), NotAllowed)
        assert box.looks == box.at, "it changed at a look that matters"
        found = await harness.log.get_approval(approval.id)
        assert found is not None
        stands = found[1].approval
        assert stands is not None
        assert stands == replace(approval, expires_at=stands.expires_at)


async def test_a_revision_that_was_never_shown_is_not_approved(harness: EngineHarness) -> None:
    engine = prepare_engine(harness, rule())
    async with running(engine):
        _, (approval,) = await ask_and_wait(harness, engine)
        for revision in (-1, 2, 3, 10**9):
            assert await signs(engine, approval, BEN, revision=revision) == StaleRevision()
    assert harness.toolbox.calls == []


async def test_an_edit_after_the_first_of_two_approvals_takes_both_anew_and_counts_the_editor_out(
    harness: EngineHarness,
) -> None:
    engine = prepare_engine(harness, rule(ASK, "members", quorum=2, four_eyes=True))
    async with running(engine):
        turn, (approval,) = await ask_and_wait(harness, engine)
        assert await signs(engine, approval, BEN) == MoreApprovalsNeeded(1)
        other = {"to": "kim"}
        assert await harness.log.revise(Revision(approval.id, 1, other, fingerprint_of(SEND, other), ZOE))
        assert await signs(engine, approval, KIM) == StaleRevision()
        assert isinstance(await signs(engine, approval, ZOE, revision=2), NotAllowed)
        assert isinstance(await signs(engine, approval, ANA, revision=2), NotAllowed)
        assert await signs(engine, approval, BEN, revision=2) == MoreApprovalsNeeded(1)
        assert await signs(engine, approval, BEN, revision=2) == AlreadyDecided(
            "You have already approved it. It needs 1 more approval."
        )
        assert harness.toolbox.calls == []
        assert await signs(engine, approval, KIM, revision=2) == Decided(APPROVE)
        await harness.surface.wait_for_end(turn)
    assert [arguments for _, arguments, _ in harness.toolbox.calls] == [other]


async def test_a_member_or_admin_of_another_platform_has_no_rights_here(harness: EngineHarness) -> None:
    engine = prepare_engine(harness, rule(ASK, "members"))
    async with running(engine):
        _, (approval,) = await ask_and_wait(harness, engine)
        stranger = Author("elsewhere", "ben", "Ben")
        boss = Member(stranger, frozenset({FINANCE}), platform_admin=True)
        assert isinstance(await engine.approvals.decide(signed_by(approval, stranger), boss), NotAllowed)
        harness.rules = RuleBook(Policies(rules=(rule(),)))
        other = harness.engine()
        assert isinstance(await other.approvals.decide(signed_by(approval, stranger), boss), NotAllowed)
    assert harness.toolbox.calls == []


# ------------------------------------------------------------------ approvals that no longer count


async def test_of_two_approvals_the_askers_does_not_count_any_more_where_four_eyes_are_wanted_since(
    harness: EngineHarness,
) -> None:
    engine = prepare_engine(harness, rule(ASK, "members", quorum=2))
    async with running(engine):
        turn, (approval,) = await ask_and_wait(harness, engine)
        assert await signs(engine, approval, ANA) == MoreApprovalsNeeded(1)
        assert harness.rules is not None
        harness.rules.amend([plain("b1", "send", ASK, requirements=ApprovalRequirements(four_eyes=True))], [], [])
        assert await signs(engine, approval, BEN) == MoreApprovalsNeeded(1)
        assert harness.toolbox.calls == []
        assert await signs(engine, approval, ZOE) == Decided(APPROVE)
        (step,) = calls_of(await harness.surface.wait_for_end(turn))
    assert step.approval is not None
    assert step.approval.decided_by == "Ben and Zoe"
    rows = await audit_entries(harness, "signed", "decided")
    assert [row.facts.get("no_longer_count") for row in rows] == [None, ["test:ana"], None]


async def test_an_approver_from_before_a_stricter_rule_approves_anew_if_the_rule_allows_it(
    harness: EngineHarness,
) -> None:
    engine = prepare_engine(harness, rule(ASK, "members", quorum=2))
    async with running(engine):
        turn, (approval,) = await ask_and_wait(harness, engine)
        assert await signs(engine, approval, BEN, FINANCE) == MoreApprovalsNeeded(1)
        assert harness.rules is not None
        harness.rules.amend(
            [plain("b1", "send", ASK, requirements=ApprovalRequirements((frozenset({FINANCE}),)))], [], []
        )
        assert isinstance(await signs(engine, approval, KIM), NotAllowed)
        assert await signs(engine, approval, ZOE, FINANCE) == MoreApprovalsNeeded(1), "Ben had signed as any member"
        assert await signs(engine, approval, BEN, FINANCE) == Decided(APPROVE)
        await harness.surface.wait_for_end(turn)
    assert len(harness.toolbox.calls) == 1


async def test_an_approver_who_lost_the_role_between_two_approvals_gives_no_second_one(harness: EngineHarness) -> None:
    engine = prepare_engine(harness, rule(ASK, FINANCE, quorum=2))
    async with running(engine):
        turn, (approval,) = await ask_and_wait(harness, engine)
        assert await signs(engine, approval, BEN, FINANCE) == MoreApprovalsNeeded(1)
        assert isinstance(await signs(engine, approval, BEN), NotAllowed)
        assert isinstance(await signs(engine, approval, ZOE), NotAllowed)
        assert harness.toolbox.calls == []
        assert await signs(engine, approval, ZOE, FINANCE) == Decided(APPROVE)
        await harness.surface.wait_for_end(turn)
    assert len(harness.toolbox.calls) == 1


async def test_a_denial_between_two_of_three_approvals_ends_it(harness: EngineHarness) -> None:
    engine = prepare_engine(harness, rule(ASK, FINANCE, quorum=2))
    async with running(engine):
        turn, (approval,) = await ask_and_wait(harness, engine)
        assert await signs(engine, approval, BEN, FINANCE) == MoreApprovalsNeeded(1)
        denial = replace(signed_by(approval, ZOE), type=DecisionType.DENY)
        assert isinstance(await engine.approvals.decide(denial, Member(ZOE)), NotAllowed), (
            "no denial without the role either"
        )
        assert await engine.approvals.decide(denial, Member(ZOE, frozenset({FINANCE}))) == Decided(DecisionType.DENY)
        assert isinstance(await signs(engine, approval, KIM, FINANCE), AlreadyDecided)
        await harness.surface.wait_for_end(turn)
    assert harness.toolbox.calls == []


# ------------------------------------------------------------------ requirements of combined rules


async def test_auto_that_asks_keeps_its_terms_beside_other_asking_rules(harness: EngineHarness) -> None:
    """The admin's rule ASK is stricter than AUTO and names no approvers."""
    engine = prepare_engine(harness, rule(AUTO, FINANCE, four_eyes=True))
    assert harness.rules is not None
    harness.rules.amend([plain("b1", "send", ASK)], [], [])
    async with running(engine):
        _, (approval,) = await ask_and_wait(harness, engine)
        assert isinstance(await signs(engine, approval, BEN), NotAllowed)
        assert isinstance(await signs(engine, approval, ANA, FINANCE), NotAllowed)
        assert await signs(engine, approval, ZOE, FINANCE) == Decided(APPROVE)


async def test_auto_that_asks_counts_where_it_is_not_known_whether_it_fits(harness: EngineHarness) -> None:
    """The hints of an untrusted server do not count. The default would allow the call."""
    harness.toolbox.add(replace(SEND, trusted=False))
    careful = rule(AUTO, FINANCE, annotations={"destructive": True})
    harness.rules = RuleBook(Policies(ALLOW, rules=(careful,)), SIGNATORIES)
    harness.model.script = [ask_for(call("bank__send", to="sam")), say("Done.")]
    engine = harness.engine()
    async with running(engine):
        _, (approval,) = await ask_and_wait(harness, engine)
        assert isinstance(await signs(engine, approval, BEN), NotAllowed)
    assert harness.toolbox.calls == []


def test_a_time_that_one_rule_sets_is_not_lifted_by_another_that_waits_on() -> None:
    strict, patient = (
        ApprovalRequirements(expires=3600.0),
        ApprovalRequirements(on_timeout=OnTimeout.KEEP, expires=60.0),
    )
    assert strict.combine(patient).on_timeout is patient.combine(strict).on_timeout is OnTimeout.DENY
    assert ApprovalRequirements().combine(patient) == patient


# ------------------------------------------------------------------ grants


async def test_no_duplicate_is_approved_with_a_grant_after_the_granter_lost_the_right(
    harness: EngineHarness,
) -> None:
    engine = prepare_engine(harness, rule(), sends=({"to": "sam"}, {"to": "mallory"}, {"to": "ben"}))
    async with running(engine):
        _, (approval, *_) = await ask_and_wait(harness, engine)
        assert harness.rules is not None
        strict = ApprovalRequirements((frozenset({FINANCE}),))
        harness.rules.amend([plain("b1", "send", ASK, requirements=strict, arguments={"to": "mallory"})], [], [])
        assert await engine.approvals.grant(
            signed_by(approval, BEN), GrantRequest(ThreadScope()), Member(BEN)
        ) == Decided(APPROVE)
        await until(lambda: len(harness.toolbox.calls) == 2)
        view = await harness.surface.wait_for(lambda view: len(view.awaiting) == 1 and len(harness.toolbox.calls) == 2)
        (waiting,) = view.awaiting
        assert waiting.call.arguments == {"to": "mallory"}
        assert waiting.approval is not None
        assert await signs(engine, waiting.approval, ZOE, FINANCE) == Decided(APPROVE)
    assert [entry.actor for entry in await audit_entries(harness, "decided")] == ["test:ben", "test:ben", "test:zoe"]


async def test_another_rule_in_the_same_line_asks_despite_a_grant(
    harness: EngineHarness,
) -> None:
    engine = prepare_engine(harness, rule())
    async with running(engine):
        turn, (approval,) = await ask_and_wait(harness, engine)
        day = GrantRequest(HoursScope(24))
        assert await engine.approvals.grant(signed_by(approval, BEN), day, Member(BEN)) == Decided(APPROVE)
        await harness.surface.wait_for_end(turn)
        harness.model.script = [ask_for(call("bank__send", to="sam")), say("Done.")]
        same = await engine.receive(message("once more"))
        (step,) = calls_of(await harness.surface.wait_for_end(same.turn_id))
        assert step.grant is not None, "the same rule asks"
        assert harness.rules is not None
        harness.rules.replace_file(Policies(rules=(rule(arguments={"to": "s*"}),)))
        harness.model.script = [ask_for(call("bank__send", to="sam")), say("Done.")]
        _, waiting = await ask_and_wait(harness, engine, "and again")
    assert len(waiting) == 1
    assert len(harness.toolbox.calls) == 2


# ------------------------------------------------------------------ between the approval and the call


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (replace(SEND, description="Sends, and tells everybody."), "has changed since it was approved"),
        (replace(SEND, input_schema={"type": "object"}), "has changed since it was approved"),
        (replace(SEND, server="bank2"), "has changed since it was approved"),
        (replace(SEND, server_id="b2"), "has changed since it was approved"),
        (None, "is not available now"),
    ],
    ids=["described anew", "another schema", "renamed", "removed and added again", "removed"],
)
async def test_a_tool_that_differs_from_the_approved_one_is_not_called(
    harness: EngineHarness, now: Tool | None, said: str
) -> None:
    engine = prepare_engine(harness, rule())
    async with running(engine):
        turn, (approval,) = await ask_and_wait(harness, engine)
        harness.toolbox.tools.clear()
        if now is not None:
            harness.toolbox.add(now)
        assert await signs(engine, approval, BEN) == Decided(APPROVE)
        (step,) = calls_of(await harness.surface.wait_for_end(turn))
    assert step.status is StepStatus.FAILED
    assert step.result is not None
    assert said in step.result.text
    assert harness.toolbox.calls == []


async def test_an_approval_given_to_one_process_is_good_in_another_and_no_second_time(harness: EngineHarness) -> None:
    engine = prepare_engine(harness, rule())
    async with running(engine):
        turn, (approval,) = await ask_and_wait(harness, engine)
    second, third = harness.engine(), harness.engine()
    assert await signs(second, approval, BEN) == Decided(APPROVE)
    assert isinstance(await signs(third, approval, ZOE), AlreadyDecided)
    async with running(third):
        await harness.surface.wait_for_end(turn)
        assert isinstance(await signs(engine, approval, BEN), AlreadyDecided)
    assert len(harness.toolbox.calls) == 1
