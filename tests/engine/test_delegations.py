"""Delegations: who may decide in the place of an approver, and what is recorded."""

from __future__ import annotations

import pytest

from bot.domain.approvals import (
    AlreadyDecided,
    ApprovalRequirements,
    Decided,
    DecisionType,
    MoreApprovalsNeeded,
    NotAllowed,
    ThreadScope,
)
from bot.domain.audit import AuditQuery
from bot.domain.conversations import Author, Member
from bot.domain.grants import DELEGATION, Grant, GrantRequest
from bot.domain.turns import ToolStep
from bot.storage.admin.grants import SqlGrantStore
from bot.storage.reporting import SqlReporting
from tests.engine.conftest import EngineHarness
from tests.engine.test_approver_check import ask_and_wait, by, prepare_engine, terms
from tests.fakes.parts import ANA, BEN, HALL, running

ZOE, KIM = Author("test", "zoe", "Zoe"), Author("test", "kim", "Kim")


async def delegate(harness: EngineHarness, giver: Author, to: Author, seconds: float = 600.0) -> Grant:
    """Hand the giver's right to decide to another user."""
    grant = Grant(
        f"{giver.id}-{to.id}", DELEGATION, "", "", "", "", HALL.workspace_key, to.principal, giver.principal,
        giver.name, "", lasts=seconds,
    )  # fmt: skip
    assert await SqlGrantStore(harness.database).delegate(grant)
    return grant


async def decision_entries(harness: EngineHarness) -> list[tuple[str, object]]:
    entries, _count = await SqlReporting(harness.database).audit(AuditQuery(kinds=("decided", "signed")), 9, 0)
    return [(entry.actor, entry.facts["evidence"]) for entry in reversed(entries)]


async def test_a_delegate_decides_for_the_approver_and_the_audit_and_the_card_say_for_whom(
    harness: EngineHarness,
) -> None:
    engine = prepare_engine(harness, terms("test:ben"))
    async with running(engine):
        turn, approval = await ask_and_wait(harness, engine)
        assert isinstance(await engine.approvals.decide(by(approval, ZOE), Member(ZOE)), NotAllowed)
        await delegate(harness, BEN, ZOE)
        grant = await engine.approvals.grant(by(approval, ZOE), GrantRequest(ThreadScope()), Member(ZOE))
        assert grant == NotAllowed("You decide this for Ben. It can be approved, not granted.")
        assert await engine.approvals.decide(by(approval, ZOE), Member(ZOE)) == Decided(DecisionType.APPROVE)
        view = await harness.surface.wait_for_end(turn)
    (step,) = [step for step in view.steps if isinstance(step, ToolStep)]
    assert step.approval is not None
    assert step.approval.decided_by == "Zoe for Ben"
    assert await decision_entries(harness) == [("test:zoe", "test:ben, for test:ben")]


@pytest.mark.parametrize(
    ("requirements", "giver", "delegate_"),
    [
        (terms("test:ben"), KIM, Member(ZOE)),
        (terms("test:ben"), BEN, Member(ANA)),
        (terms("members", four_eyes=True), ANA, Member(ZOE, guest=True)),
        (terms("test:ben"), BEN, Member(ZOE, guest=True)),
        (terms("test:ben"), BEN, Member(ZOE, external=True)),
    ],
)
async def test_a_delegate_may_do_no_more_than_the_approver_and_decides_no_own_call(
    harness: EngineHarness, requirements: ApprovalRequirements, giver: Author, delegate_: Member
) -> None:
    engine = prepare_engine(harness, requirements)
    async with running(engine):
        _turn, approval = await ask_and_wait(harness, engine)
        await delegate(harness, giver, delegate_.author)
        decision = by(approval, delegate_.author)
        assert isinstance(await engine.approvals.decide(decision, delegate_), NotAllowed)


async def test_an_asker_under_four_eyes_has_no_right_to_hand_on(harness: EngineHarness) -> None:
    engine = prepare_engine(harness, terms("test:ana", "test:ben", four_eyes=True))
    async with running(engine):
        _turn, approval = await ask_and_wait(harness, engine)
        await delegate(harness, ANA, ZOE)
        assert isinstance(await engine.approvals.decide(by(approval, ZOE), Member(ZOE)), NotAllowed)


async def test_a_delegation_is_not_delegated_on_and_ends(harness: EngineHarness) -> None:
    engine = prepare_engine(harness, terms("test:ben"))
    async with running(engine):
        _turn, approval = await ask_and_wait(harness, engine)
        given = await delegate(harness, BEN, ZOE)
        await delegate(harness, ZOE, KIM)
        assert isinstance(await engine.approvals.decide(by(approval, KIM), Member(KIM)), NotAllowed)
        assert await SqlGrantStore(harness.database).revoke(given.id, BEN)
        assert isinstance(await engine.approvals.decide(by(approval, ZOE), Member(ZOE)), NotAllowed)
        await delegate(harness, BEN, KIM, seconds=0.0)
        assert isinstance(await engine.approvals.decide(by(approval, KIM), Member(KIM)), NotAllowed)


async def test_the_right_of_an_approver_counts_once_whoever_uses_it(harness: EngineHarness) -> None:
    engine = prepare_engine(harness, terms("test:ben", "test:zoe", quorum=2))
    async with running(engine):
        _turn, approval = await ask_and_wait(harness, engine)
        await delegate(harness, BEN, KIM)
        assert await engine.approvals.decide(by(approval, KIM), Member(KIM)) == MoreApprovalsNeeded(1)
        assert isinstance(await engine.approvals.decide(by(approval, BEN), Member(BEN)), AlreadyDecided)
        await delegate(harness, ZOE, KIM)
        assert isinstance(await engine.approvals.decide(by(approval, KIM), Member(KIM)), AlreadyDecided)
        assert await engine.approvals.decide(by(approval, ZOE), Member(ZOE)) == Decided(DecisionType.APPROVE)
    assert await decision_entries(harness) == [("test:kim", "test:ben, for test:ben"), ("test:zoe", "test:zoe")]


async def test_a_later_token_of_the_same_name_takes_over_no_delegation(harness: EngineHarness) -> None:
    engine = prepare_engine(harness, terms("test:ben"))
    async with running(engine):
        _turn, approval = await ask_and_wait(harness, engine)
        await delegate(harness, BEN, ZOE)
        (given,) = await SqlGrantStore(harness.database).delegations(HALL.workspace_key)
        later = Member(ZOE, since=given.created_at + 1)
        assert isinstance(await engine.approvals.decide(by(approval, ZOE), later), NotAllowed)
        earlier = Member(ZOE, since=given.created_at - 1)
        assert await engine.approvals.decide(by(approval, ZOE), earlier) == Decided(DecisionType.APPROVE)
