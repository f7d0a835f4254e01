"""Grants given, used and revoked by two transactions on PostgreSQL at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bot.domain.approvals import NO_EVIDENCE, AlreadyDecided, Approval, Decided, Decision, DecisionType
from bot.domain.completions import StopReason
from bot.domain.grants import Grant, GrantRequest, PermanentScope, ThreadScope
from bot.domain.messages import ToolCall, assistant
from bot.domain.turns import ModelStep, StepStatus, ToolRef, ToolStep, TurnStatus
from bot.engine.approvals import build_grant
from bot.storage.grants import SqlGrantStore
from tests.audited import audit_findings
from tests.fakes.parts import ANA, BEN, HALL
from tests.ledgers import PostgresLedger, running
from tests.postgres import Server
from tests.storage.test_concurrent_turns import nothing_deadlocked, overlapping

REF = ToolRef("s", "write", definition="d", destructive=False, server_id="id-of-s")


@pytest.fixture
async def ledger(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> AsyncIterator[PostgresLedger]:
    caplog.set_level("DEBUG", "bot.storage.database")
    server: Server = await asyncio.to_thread(request.getfixturevalue, "postgres")
    ledger = PostgresLedger(await asyncio.to_thread(server.fresh, virtual_clock=True))
    yield ledger
    nothing_deadlocked(caplog)
    assert await audit_findings(ledger.database) == []
    await ledger.close()


def wanted(n: int, card: str) -> ToolStep:
    approval = Approval(card, 1, f"print-{n}", ANA, 60.0)
    return ToolStep(n, ToolCall(f"c{n}", "s__write", {"n": n}), REF, StepStatus.AWAITING, approval=approval)


def reply(*steps: ToolStep) -> ModelStep:
    return ModelStep(1, assistant("", *(step.call for step in steps)), StopReason.TOOLS)


def signed(step: ToolStep, permission: GrantRequest) -> tuple[Decision, Grant]:
    assert step.approval is not None
    decision = Decision(step.approval.id, 1, DecisionType.APPROVE, BEN)
    return decision, build_grant(permission, step, HALL, BEN)


async def granted(ledger: PostgresLedger) -> Grant:
    claim = await running(ledger, "first")
    step = wanted(2, "first")
    await ledger.log.append(claim, reply(step), [step])
    decision, grant = signed(step, GrantRequest(ThreadScope()))
    assert await ledger.log.grant(decision, grant) == Decided(DecisionType.APPROVE)
    await ledger.log.finish(claim, TurnStatus.DONE, [], "")
    return grant


async def test_a_grant_that_is_revoked_while_a_call_is_kept_on_it_is_revoked_after_that(ledger: PostgresLedger) -> None:
    grant = await granted(ledger)
    claim = await running(ledger, "second")
    step = wanted(2, "second")
    appending = ledger.log.append(claim, reply(step), [step])
    revoking = SqlGrantStore(ledger.database).revoke(grant.id, ANA)
    record, revoked = await overlapping(ledger, appending, "insert into steps", revoking)
    assert ([call.status for call in record.calls], revoked) == ([StepStatus.READY], True)
    assert await SqlGrantStore(ledger.database).active_grants(HALL.workspace_key) == []


async def test_a_call_that_is_kept_while_its_grant_is_being_revoked_asks(ledger: PostgresLedger) -> None:
    grant = await granted(ledger)
    claim = await running(ledger, "second")
    step = wanted(2, "second")
    revoking = SqlGrantStore(ledger.database).revoke(grant.id, ANA)
    revoked, record = await overlapping(
        ledger, revoking, "insert into audit", ledger.log.append(claim, reply(step), [step])
    )
    assert ([call.status for call in record.calls], revoked) == ([StepStatus.AWAITING], True)


async def test_a_call_that_is_asked_for_while_its_grant_is_being_given_runs_on_it(ledger: PostgresLedger) -> None:
    """By the same turn: a call that was signed runs, and the model's next reply comes in."""
    claim = await running(ledger, "first")
    first, second = wanted(2, "first"), wanted(3, "second")
    await ledger.log.append(claim, reply(first), [first])
    giving = ledger.log.grant(*signed(first, GrantRequest(ThreadScope())))
    settled, record = await overlapping(ledger, giving, "insert into grants", ledger.log.append(claim, None, [second]))
    assert settled == Decided(DecisionType.APPROVE)
    assert [call.status for call in record.calls] == [StepStatus.READY, StepStatus.READY]


async def test_a_duplicate_that_somebody_denies_while_the_grant_is_given_is_decided_once(
    ledger: PostgresLedger,
) -> None:
    claim = await running(ledger, "first")
    first, second = wanted(2, "first"), wanted(3, "second")
    await ledger.log.append(claim, reply(first, second), [first, second])
    giving = ledger.log.grant(*signed(first, GrantRequest(PermanentScope())), following={("second", 1): NO_EVIDENCE})
    denying = ledger.log.decide(Decision("second", 1, DecisionType.DENY, ANA))
    settled, denied = await overlapping(ledger, giving, "insert into grants", denying)
    assert settled == Decided(DecisionType.APPROVE)
    assert isinstance(denied, AlreadyDecided)
    assert [call.status for call in (await ledger.log.resume(claim)).calls] == [StepStatus.READY, StepStatus.READY]


async def test_looking_grants_up_waits_for_nobody_who_uses_one(ledger: PostgresLedger) -> None:
    await granted(ledger)
    store = SqlGrantStore(ledger.database)
    (grant,) = await store.active_grants(HALL.workspace_key)
    claim = await running(ledger, "second")
    step = wanted(2, "second")
    record, kept = await overlapping(
        ledger,
        ledger.log.append(claim, reply(step), [step]),
        "insert into steps",
        store.active_grants(HALL.workspace_key),
    )
    assert [call.status for call in record.calls] == [StepStatus.READY]
    assert [each.id for each in kept] == [grant.id]
