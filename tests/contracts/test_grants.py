"""Grants on each database: given with an approval, used by later calls, expired and revoked."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from bot.domain.approvals import (
    NO_EVIDENCE,
    AlreadyDecided,
    Approval,
    ApprovalPolicy,
    ApprovalRequirements,
    ArgumentsScope,
    Decided,
    Decision,
    DecisionType,
    HoursScope,
    PermanentScope,
    Revision,
    Scope,
    StaleRevision,
    ThreadScope,
)
from bot.domain.approvals import fingerprint as fingerprint_of
from bot.domain.audit import AuditEntry, AuditQuery
from bot.domain.completions import StopReason
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.domain.grants import DELEGATION, Grant, GrantRequest, GrantUse, requirements_digest
from bot.domain.messages import TextPart, ToolCall, ToolResult, assistant
from bot.domain.policies import StoredPolicyResult
from bot.domain.servers import HttpTransport, ServerConfig, ServerRecord
from bot.domain.tools import Tool
from bot.domain.turns import Claim, ModelStep, StepStatus, ToolRef, ToolStep, TurnStatus
from bot.engine.approvals import build_grant
from bot.storage.admin.grants import SqlGrantStore
from bot.storage.admin.servers import SqlServerStore
from bot.storage.database import Rank
from bot.storage.encryption import SecretBox
from bot.storage.reporting import SqlReporting
from tests.audit_check import audit_findings
from tests.fakes.parts import ANA, BEN, HALL
from tests.turn_log_harness import Harness, running

TOOL = Tool("s__write", "s", "write", server_id="id-of-s")
REF = ToolRef("s", "write", definition=TOOL.definition, destructive=False, server_id="id-of-s")
NUMBERS = itertools.count(1)
"""Numbers for unique ids of cards and messages."""
ELSEWHERE = ConversationKey("test", "w", "hall", "2")
ABROAD = ConversationKey("test", "v", "hall", "1")


def waiting_call(
    n: int,
    card: str = "",
    asker: Author = ANA,
    *,
    rule: str = "",
    terms: ApprovalRequirements | None = None,
    **arguments: Any,
) -> ToolStep:
    """Return a call that awaits approval."""
    print_of = fingerprint_of(TOOL, arguments)
    approval = Approval(
        card or f"card-{next(NUMBERS)}", 1, print_of, asker, 60.0, requirements=terms or ApprovalRequirements()
    )
    policy_result = StoredPolicyResult(ApprovalPolicy.ASK_USER, rule)
    return ToolStep(
        n,
        ToolCall(f"c{n}", "s__write", arguments),
        REF,
        StepStatus.AWAITING,
        approval=approval,
        policy_result=policy_result,
    )


def as_it(step: ToolStep, **changes: Any) -> ToolStep:
    """Return the same call of a changed tool."""
    return dataclasses.replace(step, tool=dataclasses.replace(REF, **changes))


async def asks(harness: Harness, *steps: ToolStep, where: ConversationKey = HALL) -> tuple[Claim, Sequence[ToolStep]]:
    """Store a turn in which the model asks for these calls. Return its claim and the stored calls."""
    claim = await running(harness, f"hi {next(NUMBERS)}", where)
    reply = ModelStep(1, assistant("", *(step.call for step in steps)), StopReason.TOOLS)
    record = await harness.log.append(claim, reply, steps)
    return claim, record.calls


async def over(harness: Harness, claim: Claim) -> None:
    await harness.log.finish(claim, TurnStatus.DONE, [], "")


def approval_with_grant(
    step: ToolStep, scope: Scope | None = None, by: Author = BEN, **more: bool
) -> tuple[Decision, Grant]:
    """Return the approval of this call, with its grant."""
    assert step.approval is not None
    grant = build_grant(GrantRequest(scope or ThreadScope(), **more), step, HALL, by)
    return Decision(step.approval.id, step.approval.revision, DecisionType.APPROVE, by), grant


async def store_grant(harness: Harness, scope: Scope | None = None, *, rule: str = "", **more: bool) -> Grant:
    """Return a grant given in HALL with the approval of a call with the argument `a=1`. Its turn has ended."""
    claim, (step,) = await asks(harness, waiting_call(2, rule=rule, a=1))
    decision, grant = approval_with_grant(step, scope, BEN, **more)
    assert await harness.log.grant(decision, grant) == Decided(DecisionType.APPROVE)
    await over(harness, claim)
    return grant


async def runs(harness: Harness, step: ToolStep, where: ConversationKey = HALL) -> bool:
    """Return True if such a call runs without an approval."""
    claim, (kept,) = await asks(harness, step, where=where)
    await over(harness, claim)
    assert kept.status in (StepStatus.READY, StepStatus.AWAITING)
    assert (kept.status is StepStatus.READY) == (kept.grant is not None) == (kept.approval is None)
    return kept.status is StepStatus.READY


async def entries(harness: Harness, *kinds: str) -> list[AuditEntry]:
    page, _ = await SqlReporting(harness.database).audit(AuditQuery(kinds=kinds), 100, 0)
    return list(reversed(page))


# ---------------------------------------------------------------------- covered calls


async def test_an_approved_call_names_its_grant(harness: Harness) -> None:
    for scope in (ThreadScope(), ArgumentsScope(), HoursScope(8), PermanentScope()):
        grant = await store_grant(harness, scope)
        approval = await harness.log.get_approval(grant.approval_id)
        assert approval is not None
        assert approval[1].approval is not None
        assert approval[1].approval.granted == scope
        assert await SqlGrantStore(harness.database).revoke(grant.id, BEN)


async def test_the_next_call_in_the_thread_runs_and_says_on_which_grant(harness: Harness) -> None:
    grant = await store_grant(harness)
    claim, (step,) = await asks(harness, waiting_call(2, "the-second-card", a=2))
    print_of = fingerprint_of(TOOL, {"a": 2})
    assert (step.status, step.approval) == (StepStatus.READY, None)
    assert step.grant is not None
    assert step.grant.until is not None
    assert step.grant == GrantUse(
        grant.id, "test:ben", "Ben", print_of, "", requirements_digest(ApprovalRequirements()), step.grant.until
    )
    assert await harness.log.get_approval("the-second-card") is None
    await harness.log.start_call(claim, 2)
    await harness.log.finish_call(claim, 2, StepStatus.DONE, ToolResult("c2", (TextPart("ok"),)))
    (ran,) = await entries(harness, "ran")
    assert (ran.facts["grant"], ran.facts["granted_by"], ran.facts["fingerprint"]) == (grant.id, "test:ben", print_of)


@pytest.mark.parametrize(
    ("scope", "here", "elsewhere", "abroad", "same", "other"),
    [
        (ThreadScope(), True, False, False, True, True),
        (ArgumentsScope(), True, False, False, True, False),
        (HoursScope(2), True, True, False, True, True),
        (PermanentScope(), True, True, False, True, True),
    ],
)
async def test_where_and_for_what_each_scope_holds(
    harness: Harness, *, scope: Scope, here: bool, elsewhere: bool, abroad: bool, same: bool, other: bool
) -> None:
    await store_grant(harness, scope)
    assert await runs(harness, waiting_call(2, a=1)) == here
    assert await runs(harness, waiting_call(2, a=1), ELSEWHERE) == elsewhere
    assert await runs(harness, waiting_call(2, a=1), ABROAD) == abroad
    assert await runs(harness, waiting_call(2, a=1)) == same
    assert await runs(harness, waiting_call(2, a=2)) == other


@pytest.mark.parametrize(
    "change",
    [
        lambda step: as_it(step, server_id="another"),
        lambda step: as_it(step, name="delete"),
        lambda step: as_it(step, definition="has changed"),
        lambda step: as_it(step, destructive=True),
        lambda _: waiting_call(2, asker=BEN, a=1),
        lambda _: waiting_call(2, rule="policy.toml:9", a=1),
        lambda _: waiting_call(2, terms=ApprovalRequirements(approvers=(frozenset({"test:sam"}),)), a=1),
        lambda _: waiting_call(2, terms=ApprovalRequirements(quorum=2), a=1),
        lambda _: waiting_call(2, terms=ApprovalRequirements(four_eyes=True), a=1),
    ],
    ids=[
        "another server", "another tool", "the tool has changed",
        "it is destructive now", "another asker", "another rule asks", "other approvers", "two signatures", "four eyes",
    ],
)  # fmt: skip
@pytest.mark.parametrize("scope", [ThreadScope(), PermanentScope()])
async def test_a_call_that_differs_in_anything_asks(
    harness: Harness, scope: Scope, change: Callable[[ToolStep], ToolStep]
) -> None:
    await store_grant(harness, scope)
    assert not await runs(harness, change(waiting_call(2, a=1)))
    assert await runs(harness, waiting_call(2, a=1))


async def test_a_grant_for_everyone_holds_for_every_user(harness: Harness) -> None:
    await store_grant(harness, PermanentScope(), everyone=True)
    assert await runs(harness, waiting_call(2, asker=BEN, a=1))
    assert await runs(harness, waiting_call(2, asker=Author("test", "sam", "Sam"), a=1), ELSEWHERE)


async def test_a_grant_for_destructive_tools_too_covers_one(harness: Harness) -> None:
    await store_grant(harness, destructive=True)
    assert await runs(harness, as_it(waiting_call(2, a=1), destructive=True))


async def test_no_own_grant_replaces_four_eyes(harness: Harness) -> None:
    terms = ApprovalRequirements(four_eyes=True)
    step = waiting_call(2, terms=terms, a=1)
    claim, _ = await asks(harness, step)
    await harness.log.grant(*approval_with_grant(step, PermanentScope(), BEN, everyone=True))
    await over(harness, claim)
    assert await runs(harness, waiting_call(2, terms=terms, a=1))
    assert not await runs(harness, waiting_call(2, "of-ben", BEN, terms=terms, a=1))


async def test_a_call_that_is_run_once_more_takes_a_fresh_approval(harness: Harness) -> None:
    await store_grant(harness, PermanentScope())
    call = waiting_call(1, a=1).call
    await harness.log.enqueue(InboundMessage(("again",), HALL, ANA, "again", call=call, again=True))
    (claim,) = await harness.log.claim(8)
    record = await harness.log.append(claim, None, [waiting_call(1, a=1)])
    assert record.calls[0].status is StepStatus.AWAITING


# ---------------------------------------------------------------------- time


async def test_a_grant_of_a_thread_ends_when_it_was_not_used_for_an_hour(harness: Harness) -> None:
    await store_grant(harness)
    for _ in range(3):
        harness.time += 3599
        assert await runs(harness, waiting_call(2, a=1))
    harness.time += 3600
    assert not await runs(harness, waiting_call(2, a=1))
    assert await SqlGrantStore(harness.database).active_grants(HALL.workspace_key) == []


async def test_a_grant_for_hours_ends_then_however_often_it_is_used(harness: Harness) -> None:
    await store_grant(harness, HoursScope(2))
    harness.time += 7199
    assert await runs(harness, waiting_call(2, a=1))
    harness.time += 1
    assert not await runs(harness, waiting_call(2, a=1))


async def test_a_grant_for_always_stays_until_it_is_revoked(harness: Harness) -> None:
    grant = await store_grant(harness, PermanentScope())
    harness.time += 10 * 365 * 86400
    assert await runs(harness, waiting_call(2, a=1))
    assert await SqlGrantStore(harness.database).revoke(grant.id, ANA)
    assert not await runs(harness, waiting_call(2, a=1))


# ---------------------------------------------------------------------- giving


async def test_duplicates_that_wait_in_the_turn_follow_the_grant_and_others_do_not(harness: Harness) -> None:
    first, same, other = (
        waiting_call(2, "card-2", a=1),
        waiting_call(3, "card-3", a=2),
        as_it(waiting_call(4, "card-4", a=1), name="delete"),
    )
    claim, (step, *_) = await asks(harness, first, same, other)
    decision, grant = approval_with_grant(step)
    following = {("card-3", 1): NO_EVIDENCE, ("card-4", 1): NO_EVIDENCE}
    assert await harness.log.grant(decision, grant, following=following) == Decided(DecisionType.APPROVE)
    record = await harness.log.resume(claim)
    assert [call.status for call in record.calls] == [StepStatus.READY, StepStatus.READY, StepStatus.AWAITING]
    assert [call.approval.decided_by for call in record.calls if call.approval] == ["Ben", "Ben", ""]
    decided = [(entry.actor, entry.facts["approval"]) for entry in await entries(harness, "decided")]
    assert decided == [("test:ben", "card-2"), ("test:ben", "card-3")]
    (row,) = await entries(harness, "granted")
    assert (row.actor, row.subject, row.turn_id) == ("test:ben", "id-of-s", claim.turn_id)
    assert row.facts["followed"] == ["card-3"]
    assert (row.facts["grant"], row.facts["scope"], row.facts["person"]) == (grant.id, "thread", "test:ana")


async def test_a_duplicate_that_the_granter_may_not_approve_or_has_not_seen_does_not_follow(
    harness: Harness,
) -> None:
    first, edited, another = waiting_call(2, a=1), waiting_call(3, "card-edited", a=2), waiting_call(4, a=3)
    claim, (step, *_) = await asks(harness, first, edited, another)
    assert await harness.log.revise(Revision("card-edited", 1, {"a": 3}, fingerprint_of(TOOL, {"a": 3}), BEN))
    following = {("card-edited", 1): NO_EVIDENCE}
    assert await harness.log.grant(*approval_with_grant(step), following=following) == Decided(DecisionType.APPROVE)
    statuses = [call.status for call in (await harness.log.resume(claim)).calls]
    assert statuses == [StepStatus.READY, StepStatus.AWAITING, StepStatus.AWAITING]


async def test_a_decision_that_does_not_count_grants_nothing(harness: Harness) -> None:
    _, (step,) = await asks(harness, waiting_call(2, a=1))
    decision, grant = approval_with_grant(step)
    old = dataclasses.replace(decision, revision=7)
    assert await harness.log.grant(old, grant) == StaleRevision()
    await harness.log.decide(dataclasses.replace(decision, type=DecisionType.DENY))
    assert isinstance(await harness.log.grant(decision, grant), AlreadyDecided)
    assert await SqlGrantStore(harness.database).active_grants(HALL.workspace_key) == []
    assert await entries(harness, "granted") == []


async def test_of_two_grants_at_once_one_is_made(harness: Harness) -> None:
    _, (step,) = await asks(harness, waiting_call(2, a=1))
    settled = await asyncio.gather(
        *(harness.log.grant(*approval_with_grant(step, PermanentScope(), by)) for by in (ANA, BEN))
    )
    assert sorted(isinstance(each, Decided) for each in settled) == [False, True]
    assert len(await SqlGrantStore(harness.database).active_grants(HALL.workspace_key)) == 1


async def test_transactions_that_are_run_twice_give_use_and_revoke_once(harness: Harness) -> None:
    """The response to a COMMIT is lost, so the transaction runs again: its first outcome is unknown."""
    run_once = harness.database.run_once

    async def twice(transaction: Callable[[sa.Connection], object], rank: Rank = "ordinary") -> object:
        await run_once(transaction, rank)
        return await run_once(transaction, rank)

    harness.database.run_once = twice  # type: ignore[method-assign, assignment]
    store = SqlGrantStore(harness.database)
    claim, (step, same) = await asks(harness, waiting_call(2, a=1), waiting_call(3, a=1))
    decision, grant = approval_with_grant(step)
    assert same.approval is not None
    following = {(same.approval.id, 1): NO_EVIDENCE}
    assert await harness.log.grant(decision, grant, following=following) == Decided(DecisionType.APPROVE)
    await over(harness, claim)
    assert [each.id for each in await store.active_grants(HALL.workspace_key)] == [grant.id]
    assert await runs(harness, waiting_call(2, a=1))
    assert await store.revoke(grant.id, ANA)
    kinds = [entry.kind for entry in await entries(harness, "decided", "granted", "revoked grant")]
    assert kinds == ["decided", "decided", "granted", "revoked grant"]
    assert await audit_findings(harness.database) == []


async def test_a_step_that_was_kept_on_a_grant_is_not_asked_for_when_its_commit_is_made_again(harness: Harness) -> None:
    """The grant is revoked between the two commits."""
    grant = await store_grant(harness)
    run_once = harness.database.run_once
    store = SqlGrantStore(harness.database)
    claim = await running(harness, "again")

    async def revoked_between(transaction: Callable[[sa.Connection], object], rank: Rank = "ordinary") -> object:
        harness.database.run_once = run_once  # type: ignore[method-assign]
        await run_once(transaction, rank)
        assert await store.revoke(grant.id, ANA)
        return await run_once(transaction, rank)

    harness.database.run_once = revoked_between  # type: ignore[method-assign, assignment]
    step = waiting_call(2, "the-second-card", a=1)
    record = await harness.log.append(claim, ModelStep(1, assistant("", step.call), StopReason.TOOLS), [step])
    assert [call.status for call in record.calls] == [StepStatus.READY]
    assert await harness.log.get_approval("the-second-card") is None


# ---------------------------------------------------------------------- listing and revoking


async def test_grants_are_listed_by_workspace_with_all_that_is_known_of_them(harness: Harness) -> None:
    store = SqlGrantStore(harness.database)
    first = await store_grant(harness)
    harness.time += 10
    second = await store_grant(harness, HoursScope(1), rule="another", destructive=True)
    kept = await store.active_grants(HALL.workspace_key)
    assert [each.id for each in kept] == [second.id, first.id]
    thread = kept[1]
    assert dataclasses.replace(thread, created_at=0.0, expires_at=None, used_at=None) == first
    assert (thread.expires_at, thread.created_at) == (thread.created_at + 3600, harness.time - 10)
    assert (kept[0].expires_at, kept[0].place, kept[0].destructive) == (harness.time + 3600, "test:w", True)
    assert await store.active_grants("test:v") == []


async def test_a_grant_not_in_force_is_not_revoked_and_leaves_no_entry(harness: Harness) -> None:
    store = SqlGrantStore(harness.database)
    grant = await store_grant(harness)
    assert not await store.revoke("made-up", ANA)
    assert await store.revoke(grant.id, BEN)
    assert not await store.revoke(grant.id, ANA)
    assert [entry.actor for entry in await entries(harness, "revoked grant")] == ["test:ben"]
    later = await store_grant(harness)
    harness.time += 3600
    assert not await store.revoke(later.id, ANA)


async def test_a_deleted_conversation_takes_its_grants_along(harness: Harness) -> None:
    await store_grant(harness)
    always = await store_grant(harness, PermanentScope(), rule="another")
    assert await SqlReporting(harness.database).delete(HALL, ANA)
    assert [grant.id for grant in await SqlGrantStore(harness.database).active_grants(HALL.workspace_key)] == [
        always.id
    ]


async def test_a_removed_server_takes_its_grants_along(harness: Harness) -> None:
    servers = SqlServerStore(harness.database, SecretBox(), {})
    config = ServerConfig("s", HttpTransport("https://x.example/mcp"), id="id-of-s", workspace="test:w")
    kept = await servers.add(ServerRecord(config), {}, ANA)
    await store_grant(harness, PermanentScope())
    await servers.remove("id-of-s", kept.version, ANA)
    assert await SqlGrantStore(harness.database).active_grants(HALL.workspace_key) == []


async def test_a_server_that_is_reached_elsewhere_from_now_on_has_nothing_granted_and_one_renamed_keeps_it(
    harness: Harness,
) -> None:
    servers, grants = SqlServerStore(harness.database, SecretBox(), {}), SqlGrantStore(harness.database)
    config = ServerConfig("s", HttpTransport("https://x.example/mcp"), id="id-of-s", workspace="test:w")
    kept = await servers.add(ServerRecord(config), {}, ANA)
    grant = await store_grant(harness, PermanentScope())
    renamed = dataclasses.replace(kept, config=dataclasses.replace(config, name="t", title="T"))
    kept = await servers.change(renamed, {}, ANA, changes={"name": "s → t"})
    assert [each.id for each in await grants.active_grants(HALL.workspace_key)] == [grant.id]
    moved = dataclasses.replace(kept.config, transport=HttpTransport("https://y.example/mcp"))
    await servers.change(dataclasses.replace(kept, config=moved), {}, ANA, changes={"url": "x → y"})
    assert await grants.active_grants(HALL.workspace_key) == []


async def test_grants_that_ended_long_ago_are_deleted_with_old_turns(harness: Harness) -> None:
    await store_grant(harness)
    revoked = await store_grant(harness, PermanentScope(), rule="revoked")
    always = await store_grant(harness, PermanentScope(), rule="always")
    await SqlGrantStore(harness.database).revoke(revoked.id, ANA)

    async def left() -> set[str]:
        statement = sa.text("select id from grants")
        return set(await harness.database.run(lambda connection: connection.execute(statement).scalars().all()))

    harness.time += 3600 + 86_399
    await harness.log.delete_old(86_400, 500)
    assert len(await left()) == 2, "the thread's has not ended for a day"
    harness.time += 2
    await harness.log.delete_old(86_400, 500)
    assert await left() == {always.id}


async def test_strange_names_do_no_harm(harness: Harness) -> None:
    strange = Author("test", "a\0b\ud83d", "c\0\ud83d")
    claim, (step,) = await asks(harness, waiting_call(2, a=1))
    await harness.log.grant(*approval_with_grant(step, by=strange))
    await over(harness, claim)
    (kept,) = await SqlGrantStore(harness.database).active_grants(HALL.workspace_key)
    assert kept.granted_by == "test:a\ufffdb?"
    assert await runs(harness, waiting_call(2, a=1))


# ---------------------------------------------------------------------- delegations


async def test_a_delegation_is_stored_whole_covers_no_call_and_is_in_the_audit(harness: Harness) -> None:
    store, workspace = SqlGrantStore(harness.database), HALL.workspace_key
    given = Grant(
        "d1", DELEGATION, "", "", "", "", workspace, ANA.principal, BEN.principal, "Ben", "", lasts=3600.0
    )  # fmt: skip
    assert await store.delegate(given)
    assert not await store.delegate(given)
    (kept,) = await store.delegations(workspace)
    assert kept == dataclasses.replace(
        given, lasts=None, created_at=kept.created_at, expires_at=kept.created_at + 3600.0
    )
    assert await harness.log.delegations(workspace) == [kept]
    assert (await store.active_grants(workspace), await store.delegations(ABROAD.workspace_key)) == ([], [])
    assert not await runs(harness, waiting_call(2, a=1))
    assert await store.revoke("d1", ANA)
    assert await store.delegations(workspace) == []
    assert await store.delegate(dataclasses.replace(given, id="d2"))
    harness.time += 3600
    assert await store.delegations(workspace) == []
    audited = await entries(harness, "granted", "revoked grant")
    rows = [(row.kind, row.actor, row.facts.get("person")) for row in audited]
    assert rows == [
        ("granted", "test:ben", "test:ana"),
        ("revoked grant", "test:ana", "test:ana"),
        ("granted", "test:ben", "test:ana"),
    ]
    assert await audit_findings(harness.database) == []
