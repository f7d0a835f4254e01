"""What was allowed beforehand: given with a signature, used by later calls, ended by time and by people; on each
database.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from bot.domain.approval_requirements import ApprovalRequirements
from bot.domain.approvals import (
    NO_EVIDENCE,
    AlreadyDecided,
    Approval,
    ApprovalPolicy,
    Decided,
    Decision,
    DecisionType,
    Revision,
    StaleRevision,
)
from bot.domain.approvals import fingerprint as fingerprint_of
from bot.domain.audit import AuditEntry, AuditQuery
from bot.domain.completions import StopReason
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.domain.grants import (
    ArgumentsScope,
    Grant,
    GrantRequest,
    GrantUse,
    HoursScope,
    PermanentScope,
    Scope,
    ThreadScope,
    requirements_digest,
)
from bot.domain.messages import TextPart, ToolCall, ToolResult, assistant
from bot.domain.policies import StoredPolicyResult
from bot.domain.servers import HttpTransport, ServerConfig, ServerRecord
from bot.domain.tools import Tool
from bot.domain.turns import Claim, ModelStep, StepStatus, ToolRef, ToolStep, TurnStatus
from bot.engine.approvals import build_grant
from bot.storage.encryption import SecretBox
from bot.storage.grants import SqlGrantStore
from bot.storage.reporting import SqlReporting
from bot.storage.servers import SqlServerStore
from tests.audited import audit_findings
from tests.fakes.parts import ANA, BEN, HALL
from tests.ledgers import Ledger, running

TOOL = Tool("s__write", "s", "write", server_id="id-of-s")
REF = ToolRef("s", "write", definition=TOOL.definition, destructive=False, server_id="id-of-s")
NUMBERS = itertools.count(1)
"""For what must be new each time: cards, messages."""
ELSEWHERE = ConversationKey("test", "w", "hall", "2")
ABROAD = ConversationKey("test", "v", "hall", "1")


def wanted(
    n: int,
    card: str = "",
    asker: Author = ANA,
    *,
    rule: str = "",
    terms: ApprovalRequirements | None = None,
    **arguments: Any,
) -> ToolStep:
    """A call that waits for a signature."""
    print_of = fingerprint_of(TOOL, arguments)
    approval = Approval(
        card or f"card-{next(NUMBERS)}", 1, print_of, asker, 60.0, terms=terms or ApprovalRequirements()
    )
    ruling = StoredPolicyResult(ApprovalPolicy.ASK_USER, rule)
    return ToolStep(
        n, ToolCall(f"c{n}", "s__write", arguments), REF, StepStatus.AWAITING, approval=approval, ruling=ruling
    )


def as_it(step: ToolStep, **changes: Any) -> ToolStep:
    """The same call of a tool that is not quite the same."""
    return dataclasses.replace(step, tool=dataclasses.replace(REF, **changes))


async def asks(ledger: Ledger, *steps: ToolStep, where: ConversationKey = HALL) -> tuple[Claim, Sequence[ToolStep]]:
    """A turn in which the model asks for these calls; and how they are kept."""
    claim = await running(ledger, f"hi {next(NUMBERS)}", where)
    reply = ModelStep(1, assistant("", *(step.call for step in steps)), StopReason.TOOLS)
    record = await ledger.log.append(claim, reply, steps)
    return claim, record.calls


async def over(ledger: Ledger, claim: Claim) -> None:
    await ledger.log.finish(claim, TurnStatus.DONE, [], "")


def given(step: ToolStep, scope: Scope | None = None, by: Author = BEN, **more: bool) -> tuple[Decision, Grant]:
    """What signing this call with a grant comes to."""
    assert step.approval is not None
    grant = build_grant(GrantRequest(scope or ThreadScope(), **more), step, HALL, by)
    return Decision(step.approval.id, step.approval.revision, DecisionType.APPROVE, by), grant


async def granted(ledger: Ledger, scope: Scope | None = None, *, rule: str = "", **more: bool) -> Grant:
    """A grant that was given in HALL with the signature of a call with the argument `a=1`; its turn is over."""
    claim, (step,) = await asks(ledger, wanted(2, rule=rule, a=1))
    decision, grant = given(step, scope, BEN, **more)
    assert await ledger.log.grant(decision, grant) == Decided(DecisionType.APPROVE)
    await over(ledger, claim)
    return grant


async def runs(ledger: Ledger, step: ToolStep, where: ConversationKey = HALL) -> bool:
    """Whether such a call runs without asking."""
    claim, (kept,) = await asks(ledger, step, where=where)
    await over(ledger, claim)
    assert kept.status in (StepStatus.READY, StepStatus.AWAITING)
    assert (kept.status is StepStatus.READY) == (kept.grant is not None) == (kept.approval is None)
    return kept.status is StepStatus.READY


async def entries(ledger: Ledger, *kinds: str) -> list[AuditEntry]:
    page, _ = await SqlReporting(ledger.database).audit(AuditQuery(kinds=kinds), 100, 0)
    return list(reversed(page))


# ---------------------------------------------------------------------- what is covered


async def test_the_call_that_was_signed_says_what_was_granted_with_it(ledger: Ledger) -> None:
    for scope in (ThreadScope(), ArgumentsScope(), HoursScope(8), PermanentScope()):
        grant = await granted(ledger, scope)
        approval = await ledger.log.get_approval(grant.approval_id)
        assert approval is not None
        assert approval[1].approval is not None
        assert approval[1].approval.granted == scope
        assert await SqlGrantStore(ledger.database).revoke(grant.id, BEN)


async def test_the_next_call_in_the_thread_runs_and_says_on_which_grant(ledger: Ledger) -> None:
    grant = await granted(ledger)
    claim, (step,) = await asks(ledger, wanted(2, "the-second-card", a=2))
    print_of = fingerprint_of(TOOL, {"a": 2})
    assert (step.status, step.approval) == (StepStatus.READY, None)
    assert step.grant == GrantUse(
        grant.id, "test:ben", "Ben", print_of, "", requirements_digest(ApprovalRequirements())
    )
    assert await ledger.log.get_approval("the-second-card") is None
    await ledger.log.start_call(claim, 2)
    await ledger.log.finish_call(claim, 2, StepStatus.DONE, ToolResult("c2", (TextPart("ok"),)))
    (ran,) = await entries(ledger, "ran")
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
    ledger: Ledger, *, scope: Scope, here: bool, elsewhere: bool, abroad: bool, same: bool, other: bool
) -> None:
    await granted(ledger, scope)
    assert await runs(ledger, wanted(2, a=1)) == here
    assert await runs(ledger, wanted(2, a=1), ELSEWHERE) == elsewhere
    assert await runs(ledger, wanted(2, a=1), ABROAD) == abroad
    assert await runs(ledger, wanted(2, a=1)) == same
    assert await runs(ledger, wanted(2, a=2)) == other


@pytest.mark.parametrize(
    "change",
    [
        lambda step: as_it(step, server_id="another"),
        lambda step: as_it(step, name="delete"),
        lambda step: as_it(step, definition="has changed"),
        lambda step: as_it(step, destructive=True),
        lambda _: wanted(2, asker=BEN, a=1),
        lambda _: wanted(2, rule="policy.toml:9", a=1),
        lambda _: wanted(2, terms=ApprovalRequirements(approvers=(frozenset({"test:sam"}),)), a=1),
        lambda _: wanted(2, terms=ApprovalRequirements(quorum=2), a=1),
        lambda _: wanted(2, terms=ApprovalRequirements(four_eyes=True), a=1),
    ],
    ids=[
        "another server", "another tool", "the tool has changed",
        "it is destructive now", "another asker", "another rule asks", "other approvers", "two signatures", "four eyes",
    ],
)  # fmt: skip
@pytest.mark.parametrize("scope", [ThreadScope(), PermanentScope()])
async def test_a_call_that_differs_in_anything_asks(
    ledger: Ledger, scope: Scope, change: Callable[[ToolStep], ToolStep]
) -> None:
    await granted(ledger, scope)
    assert not await runs(ledger, change(wanted(2, a=1)))
    assert await runs(ledger, wanted(2, a=1))


async def test_what_is_for_everyone_is_for_everyone(ledger: Ledger) -> None:
    await granted(ledger, PermanentScope(), everyone=True)
    assert await runs(ledger, wanted(2, asker=BEN, a=1))
    assert await runs(ledger, wanted(2, asker=Author("test", "sam", "Sam"), a=1), ELSEWHERE)


async def test_what_is_for_a_destructive_tool_too_covers_it(ledger: Ledger) -> None:
    await granted(ledger, destructive=True)
    assert await runs(ledger, as_it(wanted(2, a=1), destructive=True))


async def test_nobodys_own_grant_stands_in_for_four_eyes(ledger: Ledger) -> None:
    terms = ApprovalRequirements(four_eyes=True)
    step = wanted(2, terms=terms, a=1)
    claim, _ = await asks(ledger, step)
    await ledger.log.grant(*given(step, PermanentScope(), BEN, everyone=True))
    await over(ledger, claim)
    assert await runs(ledger, wanted(2, terms=terms, a=1))
    assert not await runs(ledger, wanted(2, "of-ben", BEN, terms=terms, a=1))


async def test_a_call_that_is_run_once_more_takes_a_fresh_signature(ledger: Ledger) -> None:
    await granted(ledger, PermanentScope())
    call = wanted(1, a=1).call
    await ledger.log.enqueue(InboundMessage(("again",), HALL, ANA, "again", call=call, again=True))
    (claim,) = await ledger.log.claim(8)
    record = await ledger.log.append(claim, None, [wanted(1, a=1)])
    assert record.calls[0].status is StepStatus.AWAITING


# ---------------------------------------------------------------------- time


async def test_a_grant_of_a_thread_ends_when_it_was_not_used_for_an_hour(ledger: Ledger) -> None:
    await granted(ledger)
    for _ in range(3):
        ledger.time += 3599
        assert await runs(ledger, wanted(2, a=1))
    ledger.time += 3600
    assert not await runs(ledger, wanted(2, a=1))
    assert await SqlGrantStore(ledger.database).active_grants(HALL.workspace_key) == []


async def test_a_grant_for_hours_ends_then_however_often_it_is_used(ledger: Ledger) -> None:
    await granted(ledger, HoursScope(2))
    ledger.time += 7199
    assert await runs(ledger, wanted(2, a=1))
    ledger.time += 1
    assert not await runs(ledger, wanted(2, a=1))


async def test_a_grant_for_always_stays_until_it_is_revoked(ledger: Ledger) -> None:
    grant = await granted(ledger, PermanentScope())
    ledger.time += 10 * 365 * 86400
    assert await runs(ledger, wanted(2, a=1))
    assert await SqlGrantStore(ledger.database).revoke(grant.id, ANA)
    assert not await runs(ledger, wanted(2, a=1))


# ---------------------------------------------------------------------- giving


async def test_duplicates_that_wait_in_the_turn_follow_the_grant_and_others_do_not(ledger: Ledger) -> None:
    first, same, other = (
        wanted(2, "card-2", a=1),
        wanted(3, "card-3", a=2),
        as_it(wanted(4, "card-4", a=1), name="delete"),
    )
    claim, (step, *_) = await asks(ledger, first, same, other)
    decision, grant = given(step)
    following = {("card-3", 1): NO_EVIDENCE, ("card-4", 1): NO_EVIDENCE}
    assert await ledger.log.grant(decision, grant, following=following) == Decided(DecisionType.APPROVE)
    record = await ledger.log.resume(claim)
    assert [call.status for call in record.calls] == [StepStatus.READY, StepStatus.READY, StepStatus.AWAITING]
    assert [call.approval.decided_by for call in record.calls if call.approval] == ["Ben", "Ben", ""]
    decided = [(entry.actor, entry.facts["approval"]) for entry in await entries(ledger, "decided")]
    assert decided == [("test:ben", "card-2"), ("test:ben", "card-3")]
    (row,) = await entries(ledger, "granted")
    assert (row.actor, row.subject, row.turn_id) == ("test:ben", "id-of-s", claim.turn_id)
    assert row.facts["followed"] == ["card-3"]
    assert (row.facts["grant"], row.facts["scope"], row.facts["person"]) == (grant.id, "thread", "test:ana")


async def test_a_duplicate_that_whoever_grants_may_not_sign_or_has_not_seen_so_does_not_follow(ledger: Ledger) -> None:
    first, edited, another = wanted(2, a=1), wanted(3, "card-edited", a=2), wanted(4, a=3)
    claim, (step, *_) = await asks(ledger, first, edited, another)
    assert await ledger.log.revise(Revision("card-edited", 1, {"a": 3}, fingerprint_of(TOOL, {"a": 3}), BEN))
    following = {("card-edited", 1): NO_EVIDENCE}
    assert await ledger.log.grant(*given(step), following=following) == Decided(DecisionType.APPROVE)
    statuses = [call.status for call in (await ledger.log.resume(claim)).calls]
    assert statuses == [StepStatus.READY, StepStatus.AWAITING, StepStatus.AWAITING]


async def test_a_decision_that_does_not_count_grants_nothing(ledger: Ledger) -> None:
    _, (step,) = await asks(ledger, wanted(2, a=1))
    decision, grant = given(step)
    old = dataclasses.replace(decision, revision=7)
    assert await ledger.log.grant(old, grant) == StaleRevision()
    await ledger.log.decide(dataclasses.replace(decision, verdict=DecisionType.DENY))
    assert isinstance(await ledger.log.grant(decision, grant), AlreadyDecided)
    assert await SqlGrantStore(ledger.database).active_grants(HALL.workspace_key) == []
    assert await entries(ledger, "granted") == []


async def test_of_two_who_grant_at_once_one_does(ledger: Ledger) -> None:
    _, (step,) = await asks(ledger, wanted(2, a=1))
    settled = await asyncio.gather(*(ledger.log.grant(*given(step, PermanentScope(), by)) for by in (ANA, BEN)))
    assert sorted(isinstance(each, Decided) for each in settled) == [False, True]
    assert len(await SqlGrantStore(ledger.database).active_grants(HALL.workspace_key)) == 1


async def test_transactions_that_are_run_twice_give_use_and_revoke_once(ledger: Ledger) -> None:
    """A COMMIT whose answer was lost is run again: its first outcome is unknown."""
    run_once = ledger.database.run_once

    async def twice(transaction: Callable[[sa.Connection], object]) -> object:
        await run_once(transaction)
        return await run_once(transaction)

    ledger.database.run_once = twice  # type: ignore[method-assign, assignment]
    store = SqlGrantStore(ledger.database)
    claim, (step, same) = await asks(ledger, wanted(2, a=1), wanted(3, a=1))
    decision, grant = given(step)
    assert same.approval is not None
    following = {(same.approval.id, 1): NO_EVIDENCE}
    assert await ledger.log.grant(decision, grant, following=following) == Decided(DecisionType.APPROVE)
    await over(ledger, claim)
    assert [each.id for each in await store.active_grants(HALL.workspace_key)] == [grant.id]
    assert await runs(ledger, wanted(2, a=1))
    assert await store.revoke(grant.id, ANA)
    kinds = [entry.kind for entry in await entries(ledger, "decided", "granted", "revoked grant")]
    assert kinds == ["decided", "decided", "granted", "revoked grant"]
    assert await audit_findings(ledger.database) == []


async def test_a_step_that_was_kept_on_a_grant_is_not_asked_for_when_its_commit_is_made_again(ledger: Ledger) -> None:
    """The grant was revoked between the two."""
    grant = await granted(ledger)
    run_once = ledger.database.run_once
    store = SqlGrantStore(ledger.database)
    claim = await running(ledger, "again")

    async def revoked_between(transaction: Callable[[sa.Connection], object]) -> object:
        ledger.database.run_once = run_once  # type: ignore[method-assign]
        await run_once(transaction)
        assert await store.revoke(grant.id, ANA)
        return await run_once(transaction)

    ledger.database.run_once = revoked_between  # type: ignore[method-assign, assignment]
    step = wanted(2, "the-second-card", a=1)
    record = await ledger.log.append(claim, ModelStep(1, assistant("", step.call), StopReason.TOOLS), [step])
    assert [call.status for call in record.calls] == [StepStatus.READY]
    assert await ledger.log.get_approval("the-second-card") is None


# ---------------------------------------------------------------------- looking up and ending


async def test_grants_are_listed_by_workspace_with_all_that_is_known_of_them(ledger: Ledger) -> None:
    store = SqlGrantStore(ledger.database)
    first = await granted(ledger)
    ledger.time += 10
    second = await granted(ledger, HoursScope(1), rule="another", destructive=True)
    kept = await store.active_grants(HALL.workspace_key)
    assert [each.id for each in kept] == [second.id, first.id]
    thread = kept[1]
    assert dataclasses.replace(thread, created_at=0.0, expires_at=None, used_at=None) == first
    assert (thread.expires_at, thread.created_at) == (thread.created_at + 3600, ledger.time - 10)
    assert (kept[0].expires_at, kept[0].place, kept[0].destructive) == (ledger.time + 3600, "test:w", True)
    assert await store.active_grants("test:v") == []


async def test_what_is_not_in_force_is_not_revoked_and_leaves_nothing(ledger: Ledger) -> None:
    store = SqlGrantStore(ledger.database)
    grant = await granted(ledger)
    assert not await store.revoke("made-up", ANA)
    assert await store.revoke(grant.id, BEN)
    assert not await store.revoke(grant.id, ANA)
    assert [entry.actor for entry in await entries(ledger, "revoked grant")] == ["test:ben"]
    later = await granted(ledger)
    ledger.time += 3600
    assert not await store.revoke(later.id, ANA)


async def test_a_deleted_conversation_takes_its_grants_along(ledger: Ledger) -> None:
    await granted(ledger)
    always = await granted(ledger, PermanentScope(), rule="another")
    assert await SqlReporting(ledger.database).delete(HALL, ANA)
    assert [grant.id for grant in await SqlGrantStore(ledger.database).active_grants(HALL.workspace_key)] == [always.id]


async def test_a_server_that_is_removed_takes_what_was_granted_of_it_along(ledger: Ledger) -> None:
    servers = SqlServerStore(ledger.database, SecretBox(), {})
    config = ServerConfig("s", HttpTransport("https://x.example/mcp"), id="id-of-s", workspace="test:w")
    kept = await servers.add(ServerRecord(config), {}, ANA)
    await granted(ledger, PermanentScope())
    await servers.remove("id-of-s", kept.version, ANA)
    assert await SqlGrantStore(ledger.database).active_grants(HALL.workspace_key) == []


async def test_a_server_that_is_reached_elsewhere_from_now_on_has_nothing_granted_and_one_renamed_keeps_it(
    ledger: Ledger,
) -> None:
    servers, grants = SqlServerStore(ledger.database, SecretBox(), {}), SqlGrantStore(ledger.database)
    config = ServerConfig("s", HttpTransport("https://x.example/mcp"), id="id-of-s", workspace="test:w")
    kept = await servers.add(ServerRecord(config), {}, ANA)
    grant = await granted(ledger, PermanentScope())
    renamed = dataclasses.replace(kept, config=dataclasses.replace(config, name="t", title="T"))
    kept = await servers.change(renamed, {}, ANA, changes={"name": "s → t"})
    assert [each.id for each in await grants.active_grants(HALL.workspace_key)] == [grant.id]
    moved = dataclasses.replace(kept.config, transport=HttpTransport("https://y.example/mcp"))
    await servers.change(dataclasses.replace(kept, config=moved), {}, ANA, changes={"url": "x → y"})
    assert await grants.active_grants(HALL.workspace_key) == []


async def test_grants_that_ended_long_ago_are_deleted_with_old_turns(ledger: Ledger) -> None:
    await granted(ledger)
    revoked = await granted(ledger, PermanentScope(), rule="revoked")
    always = await granted(ledger, PermanentScope(), rule="always")
    await SqlGrantStore(ledger.database).revoke(revoked.id, ANA)

    async def left() -> set[str]:
        statement = sa.text("select id from grants")
        return set(await ledger.database.run(lambda connection: connection.execute(statement).scalars().all()))

    ledger.time += 3600 + 86_399
    await ledger.log.delete_old(86_400, 500)
    assert len(await left()) == 2, "the thread's has not ended for a day"
    ledger.time += 2
    await ledger.log.delete_old(86_400, 500)
    assert await left() == {always.id}


async def test_strange_names_do_no_harm(ledger: Ledger) -> None:
    strange = Author("test", "a\0b\ud83d", "c\0\ud83d")
    claim, (step,) = await asks(ledger, wanted(2, a=1))
    await ledger.log.grant(*given(step, by=strange))
    await over(ledger, claim)
    (kept,) = await SqlGrantStore(ledger.database).active_grants(HALL.workspace_key)
    assert kept.granted_by == "test:a\ufffdb?"
    assert await runs(ledger, wanted(2, a=1))
