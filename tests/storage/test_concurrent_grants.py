"""Grants given, used and revoked by two transactions on PostgreSQL at the same time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bot.domain.approvals import (
    NO_EVIDENCE,
    AlreadyDecided,
    Approval,
    Decided,
    Decision,
    DecisionType,
    PermanentScope,
    ThreadScope,
)
from bot.domain.completions import StopReason
from bot.domain.grants import Grant, GrantRequest
from bot.domain.messages import ToolCall, assistant
from bot.domain.turns import ModelStep, StepStatus, ToolRef, ToolStep, TurnStatus
from bot.engine.approvals import build_grant
from bot.storage.admin.grants import SqlGrantStore
from tests.audit_check import audit_findings
from tests.fakes.parts import ANA, BEN, HALL
from tests.storage.test_concurrent_turns import overlapping
from tests.turn_log_harness import PostgresHarness, running

REF = ToolRef("s", "write", definition="d", destructive=False, server_id="id-of-s")


pytestmark = pytest.mark.usefixtures("no_deadlocks")


@pytest.fixture(autouse=True)
async def verified_audit(harness: PostgresHarness) -> AsyncIterator[None]:
    yield
    assert await audit_findings(harness.database) == []


def waiting_step(n: int, card: str) -> ToolStep:
    approval = Approval(card, 1, f"print-{n}", ANA, 60.0)
    return ToolStep(n, ToolCall(f"c{n}", "s__write", {"n": n}), REF, StepStatus.AWAITING, approval=approval)


def reply(*steps: ToolStep) -> ModelStep:
    return ModelStep(1, assistant("", *(step.call for step in steps)), StopReason.TOOLS)


def decision_and_grant(step: ToolStep, permission: GrantRequest) -> tuple[Decision, Grant]:
    assert step.approval is not None
    decision = Decision(step.approval.id, 1, DecisionType.APPROVE, BEN)
    return decision, build_grant(permission, step, HALL, BEN)


async def store_grant(harness: PostgresHarness) -> Grant:
    claim = await running(harness, "first")
    step = waiting_step(2, "first")
    await harness.log.append(claim, reply(step), [step])
    decision, grant = decision_and_grant(step, GrantRequest(ThreadScope()))
    assert await harness.log.grant(decision, grant) == Decided(DecisionType.APPROVE)
    await harness.log.finish(claim, TurnStatus.DONE, [], "")
    return grant


async def test_a_grant_that_is_revoked_while_a_call_is_kept_on_it_is_revoked_after_that(
    harness: PostgresHarness,
) -> None:
    grant = await store_grant(harness)
    claim = await running(harness, "second")
    step = waiting_step(2, "second")
    appending = harness.log.append(claim, reply(step), [step])
    revoking = SqlGrantStore(harness.database).revoke(grant.id, ANA)
    record, revoked = await overlapping(harness, appending, "insert into steps", revoking)
    assert ([call.status for call in record.calls], revoked) == ([StepStatus.READY], True)
    assert await SqlGrantStore(harness.database).active_grants(HALL.workspace_key) == []


async def test_a_call_that_is_kept_while_its_grant_is_being_revoked_asks(harness: PostgresHarness) -> None:
    grant = await store_grant(harness)
    claim = await running(harness, "second")
    step = waiting_step(2, "second")
    revoking = SqlGrantStore(harness.database).revoke(grant.id, ANA)
    revoked, record = await overlapping(
        harness, revoking, "insert into audit", harness.log.append(claim, reply(step), [step])
    )
    assert ([call.status for call in record.calls], revoked) == ([StepStatus.AWAITING], True)


async def test_a_call_that_is_asked_for_while_its_grant_is_being_given_runs_on_it(harness: PostgresHarness) -> None:
    """The same turn asks for it: an approved call runs, and the model's next completion arrives."""
    claim = await running(harness, "first")
    first, second = waiting_step(2, "first"), waiting_step(3, "second")
    await harness.log.append(claim, reply(first), [first])
    giving = harness.log.grant(*decision_and_grant(first, GrantRequest(ThreadScope())))
    settled, record = await overlapping(
        harness, giving, "insert into grants", harness.log.append(claim, None, [second])
    )
    assert settled == Decided(DecisionType.APPROVE)
    assert [call.status for call in record.calls] == [StepStatus.READY, StepStatus.READY]


async def test_a_duplicate_that_is_denied_while_the_grant_is_given_is_decided_once(
    harness: PostgresHarness,
) -> None:
    claim = await running(harness, "first")
    first, second = waiting_step(2, "first"), waiting_step(3, "second")
    await harness.log.append(claim, reply(first, second), [first, second])
    giving = harness.log.grant(
        *decision_and_grant(first, GrantRequest(PermanentScope())), following={("second", 1): NO_EVIDENCE}
    )
    denying = harness.log.decide(Decision("second", 1, DecisionType.DENY, ANA))
    settled, denied = await overlapping(harness, giving, "insert into grants", denying)
    assert settled == Decided(DecisionType.APPROVE)
    assert isinstance(denied, AlreadyDecided)
    assert [call.status for call in (await harness.log.resume(claim)).calls] == [StepStatus.READY, StepStatus.READY]


async def test_looking_grants_up_does_not_wait_for_a_use_of_one(harness: PostgresHarness) -> None:
    await store_grant(harness)
    store = SqlGrantStore(harness.database)
    (grant,) = await store.active_grants(HALL.workspace_key)
    claim = await running(harness, "second")
    step = waiting_step(2, "second")
    record, kept = await overlapping(
        harness,
        harness.log.append(claim, reply(step), [step]),
        "insert into steps",
        store.active_grants(HALL.workspace_key),
    )
    assert [call.status for call in record.calls] == [StepStatus.READY]
    assert [each.id for each in kept] == [grant.id]
