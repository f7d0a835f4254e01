"""Stored approvals on each database: counted once each, by the requirements of their call, also in races."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import sqlalchemy as sa

from bot.domain.approvals import (
    AlreadyDecided,
    Approval,
    ApprovalNotice,
    ApprovalRequirements,
    Approver,
    ApproverEvidence,
    Decided,
    Decision,
    DecisionType,
    MoreApprovalsNeeded,
    OnTimeout,
    Portion,
    PossibleApprovers,
    Revision,
    StaleRevision,
    ViewRequired,
)
from bot.domain.completions import StopReason
from bot.domain.conversations import Author
from bot.domain.messages import ToolCall, assistant
from bot.domain.secrets import SecretSpan, StoredSecret
from bot.domain.turns import Claim, ModelStep, StepStatus, ToolRef, ToolStep, Wakeup
from bot.storage.database import Rank
from tests.audit_check import audit_findings
from tests.fakes.parts import ANA, BEN, HALL, NEWEST, until
from tests.turn_log_harness import Harness, PostgresHarness, running

ZOE, KIM = Author("test", "zoe", "Zoe"), Author("test", "kim", "Kim")
TERMS = ApprovalRequirements(
    (frozenset({"test:ben", "test-group:ops"}), frozenset({"members"})),
    four_eyes=True,
    quorum=2,
    expires=600.0,
    on_timeout=OnTimeout.KEEP,
    remind=True,
    deliver=frozenset({"test:w:kitchen", "test:ben"}),
)
WANTS = ModelStep(1, assistant("", ToolCall("c2", "s__write", {})), StopReason.TOOLS)


async def waiting(harness: Harness, terms: ApprovalRequirements = TERMS, **more: object) -> Claim:
    """Store a call that awaits approval under these requirements. Return its turn's claim."""
    claim = await running(harness)
    approval = Approval("card-1", 1, "print", ANA, 60.0, requirements=terms, **more)  # type: ignore[arg-type]
    call = ToolCall("c2", "s__write", {"a": 1})
    step = ToolStep(2, call, ToolRef("s", "write"), StepStatus.AWAITING, approval=approval)
    await harness.log.append(claim, WANTS, [step])
    return claim


def make_decision(by: Author, revision: int = 1, verdict: DecisionType = DecisionType.APPROVE) -> Decision:
    return Decision("card-1", revision, verdict, by)


async def call(harness: Harness) -> ToolStep:
    approval = await harness.log.get_approval("card-1")
    assert approval is not None
    return approval[1]


async def rows(harness: Harness, question: str) -> list[tuple[object, ...]]:
    return await harness.database.run(lambda connection: [tuple(row) for row in connection.execute(sa.text(question))])


async def test_the_terms_a_call_was_asked_on_are_kept_with_it(harness: Harness) -> None:
    await waiting(harness, remind_in=30.0)
    log = await harness.restart()
    found = await log.get_approval("card-1")
    assert found is not None
    approval = found[1].approval
    assert approval is not None
    assert (approval.requirements, approval.remind_in, approval.approver_names, approval.editors) == (
        TERMS,
        30.0,
        (),
        frozenset(),
    )


async def test_approvals_are_counted_until_there_are_enough_over_a_restart(harness: Harness) -> None:
    claim = await waiting(harness, replace(TERMS, quorum=3))
    assert await harness.log.suspend(claim) is None
    assert await harness.log.decide(make_decision(BEN), ApproverEvidence("test:ben")) == MoreApprovalsNeeded(2)
    await harness.restart()
    assert await harness.log.decide(make_decision(BEN), ApproverEvidence("test:ben")) == AlreadyDecided(
        "You have already approved it. It needs 2 more approvals."
    )
    assert await harness.log.decide(make_decision(ZOE), ApproverEvidence("test-group:ops")) == MoreApprovalsNeeded(1)
    assert await harness.log.claim(1) == [], "it goes on waiting"
    assert await harness.log.decide(make_decision(KIM), ApproverEvidence("members")) == Decided(DecisionType.APPROVE)
    (claim,) = await harness.log.claim(1)
    step = await call(harness)
    assert step.approval is not None
    assert (step.status, step.approval.decided_by) == (StepStatus.READY, "Ben and Zoe and Kim")
    question = "select principal, decision, evidence from decisions order by principal"
    assert await rows(harness, question) == [
        ("test:ben", "approve", "test:ben"),
        ("test:kim", "approve", "members"),
        ("test:zoe", "approve", "test-group:ops"),
    ]
    kinds = await rows(harness, "select kind, actor from audit where kind in ('signed', 'decided') order by seq")
    assert kinds == [("signed", "test:ben"), ("signed", "test:zoe"), ("decided", "test:kim")]
    assert await audit_findings(harness.database) == []


async def test_a_turn_that_waits_wakes_the_processes_that_may_deliver_what_comes_after_it(harness: Harness) -> None:
    if not isinstance(harness, PostgresHarness):
        return  # one process, which wakes itself
    claim = await waiting(harness)
    wakeups: list[Wakeup] = []
    listening = asyncio.create_task(harness.listen(wakeups.append))
    try:
        await until(lambda: len(wakeups) == 1)  # the listener has started
        assert await harness.log.suspend(claim) is None
        await until(lambda: wakeups == [Wakeup(), Wakeup()])
    finally:
        listening.cancel()


async def test_stricter_present_requirements_count(harness: Harness) -> None:
    await waiting(harness, ApprovalRequirements())
    assert await harness.log.decide(make_decision(BEN), ApproverEvidence("test:ben", quorum=2)) == MoreApprovalsNeeded(
        1
    )
    assert await harness.log.decide(make_decision(ZOE), ApproverEvidence("test:zoe", quorum=2)) == Decided(
        DecisionType.APPROVE
    )


async def test_weaker_present_requirements_change_nothing(harness: Harness) -> None:
    await waiting(harness)
    assert await harness.log.decide(make_decision(BEN), ApproverEvidence("test:ben", quorum=1)) == MoreApprovalsNeeded(
        1
    )


async def test_an_approval_that_counts_no_more_is_taken_out_and_may_be_given_anew(harness: Harness) -> None:
    """The rules became stricter: Ana may not approve at all, and Ben only as a member of the group."""
    await waiting(harness, ApprovalRequirements(quorum=3))
    assert await harness.log.decide(make_decision(ANA), ApproverEvidence("members")) == MoreApprovalsNeeded(2)
    assert await harness.log.decide(make_decision(BEN), ApproverEvidence("members")) == MoreApprovalsNeeded(1)
    ops = frozenset({"test-group:ops"})
    stricter = ApproverEvidence(
        "test-group:ops", approvers=(ops, frozenset({"members", *ops})), excluded=frozenset({"test:ana"})
    )
    assert await harness.log.decide(make_decision(ZOE), stricter) == MoreApprovalsNeeded(2), "of three, Zoe alone"
    step = await call(harness)
    assert step.approval is not None
    assert (step.status, step.approval.approver_names) == (StepStatus.AWAITING, ("Zoe",))
    assert await harness.log.decide(make_decision(BEN), stricter) == MoreApprovalsNeeded(1)
    assert isinstance(await harness.log.decide(make_decision(BEN), stricter), AlreadyDecided)
    assert await harness.log.decide(make_decision(KIM), stricter) == Decided(DecisionType.APPROVE)
    assert await rows(harness, "select principal from decisions order by principal") == [
        ("test:ben",),
        ("test:kim",),
        ("test:zoe",),
    ]
    assert await audit_findings(harness.database) == []


async def test_a_second_press_does_not_revive_an_approval_that_no_longer_counts(harness: Harness) -> None:
    await waiting(harness, ApprovalRequirements(quorum=2))
    assert await harness.log.decide(make_decision(ANA), ApproverEvidence("members")) == MoreApprovalsNeeded(1)
    barring = ApproverEvidence("members", excluded=frozenset({"test:ana"}))
    assert await harness.log.decide(make_decision(BEN), barring) == MoreApprovalsNeeded(1)
    for _ in range(3):
        assert isinstance(await harness.log.decide(make_decision(BEN), barring), AlreadyDecided)
    assert await harness.log.decide(make_decision(ZOE), barring) == Decided(DecisionType.APPROVE)
    step = await call(harness)
    assert step.approval is not None
    assert step.approval.decided_by == "Ben and Zoe"


async def test_one_denial_settles_it_and_an_approval_can_be_taken_back_by_one(harness: Harness) -> None:
    await waiting(harness, replace(TERMS, quorum=3))
    assert await harness.log.decide(make_decision(BEN)) == MoreApprovalsNeeded(2)
    assert await harness.log.decide(make_decision(BEN, verdict=DecisionType.DENY)) == Decided(DecisionType.DENY)
    assert isinstance(await harness.log.decide(make_decision(ZOE)), AlreadyDecided)
    step = await call(harness)
    assert step.approval is not None
    assert (step.status, step.approval.decided_by) == (StepStatus.DENIED, "Ben")
    assert await rows(harness, "select principal, decision from decisions") == [("test:ben", "deny")]


async def test_an_approval_is_on_the_arguments_as_they_were(harness: Harness) -> None:
    await waiting(harness)
    assert await harness.log.decide(make_decision(BEN)) == MoreApprovalsNeeded(1)
    assert await harness.log.revise(Revision("card-1", 1, {"a": 2}, "other print", KIM))
    assert await harness.log.revise(Revision("card-1", 2, {"a": 3}, "third print", ZOE))
    step = await call(harness)
    assert step.approval is not None
    assert (step.approval.approver_names, step.approval.editors) == ((), frozenset({"test:kim", "test:zoe"}))
    assert await harness.log.decide(make_decision(ANA, 1)) == StaleRevision()
    assert await harness.log.decide(make_decision(BEN, 3)) == MoreApprovalsNeeded(1)
    assert await harness.log.decide(make_decision(ANA, 3)) == Decided(DecisionType.APPROVE)


async def test_an_approval_whose_commit_gave_no_answer_is_counted_once(harness: Harness) -> None:
    await waiting(harness, replace(TERMS, quorum=3))
    run_once = harness.database.run_once

    async def twice(transaction: Callable[[sa.Connection], object], rank: Rank = "ordinary") -> object:
        await run_once(transaction, rank)
        return await run_once(transaction, rank)

    harness.database.run_once = twice  # type: ignore[method-assign, assignment]
    for by, comes in (
        (BEN, MoreApprovalsNeeded(2)),
        (ZOE, MoreApprovalsNeeded(1)),
        (KIM, Decided(DecisionType.APPROVE)),
    ):
        assert await harness.log.decide(make_decision(by)) == comes
    assert len(await rows(harness, "select 1 from audit where kind in ('signed', 'decided')")) == 3


@pytest.mark.parametrize("seed", range(6))
async def test_of_many_clicks_at_once_as_many_people_decide_as_have_to(harness: Harness, seed: int) -> None:
    quorum = 1 + seed % 3
    await waiting(harness, replace(TERMS, quorum=quorum))
    people = [ANA, BEN, ZOE, KIM]
    clicks = [make_decision(by) for by in people] * 3
    random.Random(seed).shuffle(clicks)
    settled = await asyncio.gather(*(harness.log.decide(click) for click in clicks))
    assert [each for each in settled if isinstance(each, Decided)] == [Decided(DecisionType.APPROVE)]
    assert sorted(each.needed for each in settled if isinstance(each, MoreApprovalsNeeded)) == list(range(1, quorum))
    assert len(await rows(harness, "select principal from decisions where decision = 'approve'")) == quorum


# ------------------------------------------------------------------ reminders


async def deliver_view(harness: Harness, claim: Claim) -> None:
    await harness.log.acquire_delivery(claim.turn_id, NEWEST)
    await harness.log.mark_delivered(claim.turn_id, NEWEST)


async def test_a_reminder_is_due_after_its_time_from_when_the_card_was_posted_and_handed_out_once(
    harness: Harness,
) -> None:
    claim = await waiting(harness, remind_in=30.0)
    harness.time += 100
    assert await harness.log.take_reminders([""], 8) == [], "nobody has seen it"
    await deliver_view(harness, claim)
    harness.time += 29
    assert await harness.log.take_reminders([""], 8) == []
    harness.time += 1
    assert await harness.log.take_reminders(["test:elsewhere:"], 8) == []
    ((turn, step),) = await harness.log.take_reminders([f"{HALL.workspace_key}:"], 8)
    assert (turn.id, step.n) == (claim.turn_id, 2)
    assert await harness.log.take_reminders([""], 8) == []


async def test_no_reminder_is_sent_for_settled_calls_or_calls_without_one(harness: Harness) -> None:
    claim = await waiting(harness, ApprovalRequirements(), remind_in=30.0)
    await deliver_view(harness, claim)
    assert await harness.log.decide(make_decision(BEN)) == Decided(DecisionType.APPROVE)
    harness.time += 31
    assert await harness.log.take_reminders([""], 8) == []


async def test_no_reminder_is_sent_for_a_call_that_has_timed_out_unseen(harness: Harness) -> None:
    claim = await waiting(harness, ApprovalRequirements(), remind_in=30.0)
    await deliver_view(harness, claim)
    harness.time += 60
    assert await harness.log.take_reminders([""], 8) == []


async def test_of_many_processes_that_look_at_once_one_reminds(harness: Harness) -> None:
    claim = await waiting(harness, remind_in=30.0)
    await deliver_view(harness, claim)
    harness.time += 31
    logs = [harness.log] * 4
    if isinstance(harness, PostgresHarness):
        logs = [harness.another() for _ in range(4)]
    results = await asyncio.gather(*(log.take_reminders([""], 8) for log in logs))
    assert sum(len(each) for each in results) == 1


# ------------------------------------------------------------------ private notices

IN_PRIVATE = PossibleApprovers(((Approver("test:ben", "Ben", ApprovalNotice.PRIVATE), Approver("members")),), "a note")


async def test_approvers_are_notified_in_private_once_as_soon_as_the_card_is_posted(harness: Harness) -> None:
    claim = await waiting(harness, possible_approvers=IN_PRIVATE)
    assert await harness.log.take_private_notices([""], 8) == [], "there is no card to link to yet"
    await deliver_view(harness, claim)
    assert await harness.log.take_private_notices(["test:elsewhere:"], 8) == []
    ((turn, step),) = await harness.log.take_private_notices([f"{HALL.workspace_key}:"], 8)
    assert step.approval is not None
    assert (turn.id, step.approval.possible_approvers) == (claim.turn_id, IN_PRIVATE)
    log = await harness.restart()
    assert await log.take_private_notices([""], 8) == []


async def test_no_private_notice_is_sent_for_decided_or_mentioned_calls(harness: Harness) -> None:
    mentioned = PossibleApprovers(((Approver("test:ben", "Ben", ApprovalNotice.MENTION),),))
    await deliver_view(harness, await waiting(harness, possible_approvers=mentioned))
    assert await harness.log.take_private_notices([""], 8) == []


async def test_of_many_processes_that_look_at_once_one_notifies(harness: Harness) -> None:
    await deliver_view(harness, await waiting(harness, possible_approvers=IN_PRIVATE))
    logs = [harness.log] * 4
    if isinstance(harness, PostgresHarness):
        logs = [harness.another() for _ in range(4)]
    results = await asyncio.gather(*(log.take_private_notices([""], 8) for log in logs))
    assert sum(len(each) for each in results) == 1


async def test_an_approval_that_takes_a_view_counts_for_users_who_opened_every_page(harness: Harness) -> None:
    await waiting(harness, ApprovalRequirements())
    viewing = ApproverEvidence("members", must_view=True)
    assert await harness.log.decide(make_decision(BEN), viewing) == ViewRequired()
    assert await harness.log.record_view("card-1", 1, Portion(1, 2), BEN)
    assert await harness.log.record_view("card-1", 1, Portion(1, 2), ZOE)
    assert await harness.log.record_view("card-1", 1, Portion(2, 2), ZOE)
    assert not await harness.log.record_view("card-1", 2, Portion(), BEN)
    assert not await harness.log.record_view("card-2", 1, Portion(), BEN)
    assert await harness.log.decide(make_decision(BEN), viewing) == ViewRequired()
    log = await harness.restart()
    assert await log.decide(make_decision(ZOE), viewing) == Decided(DecisionType.APPROVE)
    assert not await log.record_view("card-1", 1, Portion(2, 2), BEN)
    opened = await rows(harness, "select actor from audit where kind = 'opened' order by seq")
    assert opened == [("test:ben",), ("test:zoe",)]


async def test_a_form_is_on_record_and_takes_the_place_of_no_view(harness: Harness) -> None:
    await waiting(harness, ApprovalRequirements())
    viewing = ApproverEvidence("members", must_view=True)
    assert await harness.log.record_view("card-1", 1, Portion(0), BEN)
    assert await harness.log.decide(make_decision(BEN), viewing) == ViewRequired()
    for page in (1, 2):
        assert await harness.log.record_view("card-1", 1, Portion(page, 2), BEN)
    assert await harness.log.record_view("card-1", 1, Portion(0), BEN)
    assert await harness.log.decide(make_decision(BEN), viewing) == Decided(DecisionType.APPROVE)


async def test_where_stored_secrets_are_is_kept_for_each_revision(harness: Harness) -> None:
    first = (StoredSecret((0, 1), SecretSpan(2, 9, "header X-Key"), in_key=True),)
    second = (StoredSecret((1,), SecretSpan(0, 3, "header X-Key")),)
    await waiting(harness, ApprovalRequirements(), secrets=first)
    log = await harness.restart()
    assert await log.revise(Revision("card-1", 1, {"a": 2}, "other", BEN, second))
    approval = (await call(harness)).approval
    assert approval is not None
    assert (approval.secrets, approval.proposed_secrets) == (second, first)
