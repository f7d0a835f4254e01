"""Clicks of users without the right to approve, and of approvers on missing and outdated cards. CI tries more."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable

from bot.domain.approvals import (
    Approval,
    ApprovalNotFound,
    ApprovalPolicy,
    ApprovalRequirements,
    Decision,
    DecisionType,
    HoursScope,
    NotAllowed,
    StaleRevision,
)
from bot.domain.approvals import fingerprint as fingerprint_of
from bot.domain.audit import AuditQuery
from bot.domain.completions import StopReason
from bot.domain.conversations import Author, Member
from bot.domain.grants import GrantRequest
from bot.domain.messages import ToolCall, assistant
from bot.domain.policies import Rule
from bot.domain.turns import ModelStep, StepStatus, ToolRef, ToolStep
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.rules import Policies, RuleBook
from bot.storage.reporting import SqlReporting
from tests.audit_check import audit_findings
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import ANA, BEN, message, tool

ZOE = Author("test", "zoe", "Zoe")
FINANCE = "test-group:finance"
SEND = tool("bank__send", server_id="b1", destructive=False)
TERMS = ApprovalRequirements((frozenset({FINANCE, "test:ana"}),), four_eyes=True)
CARDS, CLICKS = 3, 10_000 if "CI" in os.environ else 1_500
AT_ONCE = 50


async def test_thousands_of_hostile_clicks_approve_nothing_and_leave_a_bounded_audit(harness: EngineHarness) -> None:
    """Fifty clicks at once."""
    harness.toolbox.add(SEND)
    asking = Rule(ApprovalPolicy.ASK_USER, server="bank", requirements=TERMS, id="policy.toml:1", of_file=True)
    harness.rules = RuleBook(Policies(rules=(asking,)), Approvers(admins=frozenset({"test:kim"})))
    engine = harness.engine()
    cards = await cards_that_wait(harness)
    chance = random.Random(7)
    people = [Author("test", f"p{number}", f"P{number}") for number in range(20)]
    pressed: set[str] = set()
    clicks: list[tuple[tuple[type, ...], Decision, Member]] = []
    answers: list[Awaitable[object]] = []
    for _ in range(CLICKS):
        by = chance.choice([*people, ANA, BEN])
        member = Member(
            by,
            frozenset(chance.sample([FINANCE.upper(), "test-group:ops", "members", "asker"], 2)),
            platform_admin=chance.random() < 0.3,
            guest=chance.random() < 0.3,
            external=chance.random() < 0.3,
        )
        card, revision = chance.choice(cards), chance.choice([-1, 0, 1, 2, 3, 2**31])
        if chance.random() < 0.7:  # an invented, truncated or combined id
            card = chance.choice(["", "*", "%", card[:-1], card + " ", card.upper() + "x", chance.randbytes(8).hex()])
            expected: tuple[type, ...] = (ApprovalNotFound,)
        elif by == ANA or chance.random() < 0.9:
            expected = (NotAllowed,)
        else:  # an approver with a wrong revision
            by, member = ZOE, Member(ZOE, frozenset({FINANCE}))
            revision = chance.choice([-1, 0, 2, 3, 2**31])
            expected = (StaleRevision, NotAllowed)
        verdict = DecisionType.APPROVE if by == ANA else chance.choice(list(DecisionType))
        decision = Decision(card, revision, verdict, by, "mine" * chance.randint(0, 3))
        permission = GrantRequest(HoursScope(chance.choice([1, -1, 1e9])), everyone=chance.random() < 0.5)
        granting = chance.random() < 0.2
        answers.append(
            engine.approvals.grant(decision, permission, member)
            if granting
            else engine.approvals.decide(decision, member)
        )
        clicks.append((expected, decision, member))
        pressed.add(by.principal)
        if len(answers) == AT_ONCE:
            for found, click in zip(await asyncio.gather(*answers), clicks, strict=True):
                assert isinstance(found, click[0]), (click, found)
            answers, clicks = [], []
    for card in cards:
        approval = await harness.log.get_approval(card)
        assert approval is not None
        assert (approval[1].status, approval[1].approval and approval[1].approval.approver_names) == (
            StepStatus.AWAITING,
            (),
        )
    archive = SqlReporting(harness.database)
    assert await archive.audit(AuditQuery(kinds=("decided", "signed", "granted", "revised")), 1, 0) == ([], 0)
    rows, count = await archive.audit(AuditQuery(kinds=("refused",)), 1, 0)
    assert rows
    assert count <= CARDS * len(pressed) * 3, "one for each person, card and reason"
    assert await audit_findings(harness.database) == []
    assert harness.toolbox.calls == []


async def cards_that_wait(harness: EngineHarness) -> list[str]:
    """Return the ids of the approvals of CARDS calls in one turn of Ana."""
    await harness.log.enqueue(message("send them"))
    (claim,) = await harness.log.claim(1)
    asking = [ToolCall(f"c{number}", "bank__send", {"to": str(number)}) for number in range(CARDS)]
    steps = [
        ToolStep(
            number + 2,
            each,
            ToolRef("bank", "send", definition=SEND.definition, destructive=False, server_id="b1"),
            StepStatus.AWAITING,
            approval=Approval(
                f"card-{number:04}", 1, fingerprint_of(SEND, each.arguments), ANA, 600.0, requirements=TERMS
            ),
        )
        for number, each in enumerate(asking)
    ]
    await harness.log.append(claim, ModelStep(1, assistant("", *asking), StopReason.TOOLS), steps)
    await harness.log.suspend(claim)
    return [step.approval.id for step in steps if step.approval is not None]
