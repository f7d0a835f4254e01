"""Approvers are checked at the click, by the requirements of the call and their current groups."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.approvals import (
    AlreadyDecided,
    Approval,
    ApprovalPolicy,
    ApprovalRequirements,
    ApproverEvidence,
    Decided,
    Decision,
    DecisionType,
    Escalation,
    MoreApprovalsNeeded,
    NotAllowed,
    OnTimeout,
    SelfApproval,
    StaleRevision,
)
from bot.domain.audit import AuditQuery
from bot.domain.conversations import Author, Member
from bot.domain.policies import Rule
from bot.domain.turns import Notice, NoticeTarget, StepStatus, ToolRef, ToolStep, TurnView
from bot.engine.engine import Engine
from bot.engine.policy.approvers import Approvers, check_approver
from bot.engine.policy.rules import Policies, RuleBook
from bot.errors import DeliveryFailed
from bot.storage.reporting import SqlReporting
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import ANA, HALL, RecordingSurface, answers_ok, ask_for, call, message, running, say, tool, until
from tests.rules import plain

ASK, DENY = ApprovalPolicy.ASK_USER, ApprovalPolicy.ALWAYS_DENY
OPS = "test-group:ops"
BEN, ZOE, KIM = (Author("test", name.lower(), name) for name in ("Ben", "Zoe", "Kim"))
APPROVERS = Approvers(admins=frozenset({"test:admin"}), approvers=frozenset({"test:ben", OPS}), operator="console:root")
ADMIN = Author("test", "admin", "Admin")


def terms(*approvers: str, **more: object) -> ApprovalRequirements:
    return ApprovalRequirements((frozenset(approvers),) if approvers else (), **more)  # type: ignore[arg-type]


def judge_approver(
    said: ApprovalRequirements, who: Member, verdict: DecisionType = DecisionType.APPROVE
) -> ApproverEvidence | NotAllowed:
    """Check the approver of a call that Ana asked for and Kim edited."""
    return check_approver(APPROVERS, said, who, verdict, asker=ANA, editors=frozenset({"test:kim"}))


@pytest.mark.parametrize(
    ("said", "who", "counts"),
    [
        # ------------------------------------------------ a rule without approvers: the configured approvers
        (terms(), Member(BEN), "test:ben"),
        (terms(), Member(ZOE, frozenset({OPS})), OPS),
        (terms(), Member(ADMIN), "test:admin"),
        (terms(), Member(ZOE), None),
        (terms(), Member(ANA), None),
        (terms(), Member(ZOE, frozenset({OPS}), guest=True), None),
        (terms(), Member(Author("console", "root", "root")), "operator"),
        # ------------------------------------------------ a rule with approvers: only these
        (terms("test:zoe"), Member(ZOE), "test:zoe"),
        (terms("test:zoe"), Member(BEN), None),
        (terms("test:zoe"), Member(ADMIN, platform_admin=True), None),
        (terms("test:zoe"), Member(Author("console", "root", "root")), None),
        (terms("test:zoe"), Member(Author("other", "zoe", "Zoe")), None),
        (terms("test:zoe"), Member(Author("test", "kim", "test:zoe")), None),
        (terms(OPS), Member(ZOE, frozenset({OPS})), OPS),
        (terms(OPS), Member(ZOE, frozenset({"test-group:other"})), None),
        (terms(OPS), Member(Author("test", OPS, OPS)), None),
        (terms(OPS, "test:zoe"), Member(ZOE, frozenset({OPS})), "test:zoe"),
        (terms("members"), Member(ZOE), "members"),
        (terms("members"), Member(ZOE, guest=True), None),
        (terms("members"), Member(ZOE, external=True), None),
        (terms("test:zoe"), Member(ZOE, external=True), None),
        (terms("asker"), Member(ANA), "asker"),
        (terms("asker"), Member(ZOE), None),
        # ------------------------------------------------ one approver of every set
        (
            ApprovalRequirements((frozenset({OPS}), frozenset({"members"}))),
            Member(ZOE, frozenset({OPS})),
            f"{OPS}, members",
        ),
        (ApprovalRequirements((frozenset({OPS}), frozenset({"test:ben"}))), Member(ZOE, frozenset({OPS})), None),
        # ------------------------------------------------ four eyes: neither the asker nor an editor approves
        (terms(four_eyes=True), Member(BEN), "test:ben"),
        (terms("members", four_eyes=True), Member(ANA), None),
        (terms("members", four_eyes=True), Member(KIM), None),
        (terms("members", four_eyes=True), Member(ZOE), "members"),
        (terms("test:ana", four_eyes=True), Member(ANA), None),
    ],
)
def test_who_may_approve(said: ApprovalRequirements, who: Member, counts: str | None) -> None:
    found = judge_approver(said, who)
    assert found == ApproverEvidence(counts, 1) if counts else isinstance(found, NotAllowed)


def test_the_asker_may_deny_on_any_terms_and_an_editor_who_may_approve_too() -> None:
    said = terms("test:zoe", "test:kim", four_eyes=True, quorum=2)
    assert judge_approver(said, Member(ANA), DecisionType.DENY) == ApproverEvidence("asker", 2)
    assert judge_approver(said, Member(KIM), DecisionType.DENY) == ApproverEvidence("test:kim", 2)
    assert isinstance(judge_approver(said, Member(BEN), DecisionType.DENY), NotAllowed)


def test_a_user_without_the_right_reads_who_has_it() -> None:
    said = terms("members", four_eyes=True, quorum=2)
    needed = "It needs 2 of members, neither the asker nor an editor."
    for who, why in (
        (Member(ZOE, guest=True), "You may not approve this."),
        (Member(ANA), "You asked for this yourself, so others have to approve it."),
        (Member(KIM), "You have edited it, so others have to approve it."),
    ):
        assert judge_approver(said, who, DecisionType.APPROVE) == NotAllowed(f"{why} {needed}")


# ------------------------------------------------------------------ in turns


def book(said: ApprovalRequirements, *, approvers: Approvers = APPROVERS) -> RuleBook:
    return RuleBook(Policies(rules=(Rule(ASK, server="mail", requirements=said, id="policy.toml:1"),)), approvers)


def only_step(view: TurnView) -> ToolStep:
    (step,) = (step for step in view.steps if isinstance(step, ToolStep))
    return step


async def ask_and_wait(harness: EngineHarness, engine: Engine, text: str = "send it") -> tuple[str, Approval]:
    receipt = await engine.receive(message(text))
    approval = await harness.pending()
    return receipt.turn_id, approval


def by(approval: Approval, author: Author, verdict: DecisionType = DecisionType.APPROVE, reason: str = "") -> Decision:
    return Decision(approval.id, approval.revision, verdict, author, reason)


def prepare_engine(harness: EngineHarness, said: ApprovalRequirements) -> Engine:
    harness.toolbox.add(tool("mail__send", server_id="m1"), answers_ok)
    harness.rules = book(said)
    harness.model.script = [ask_for(call("mail__send", to="ben")), say("So.")]
    return harness.engine()


async def test_two_of_several_have_to_approve_and_each_counts_once(harness: EngineHarness) -> None:
    engine = prepare_engine(harness, terms("members", quorum=2))
    async with running(engine):
        turn, approval = await ask_and_wait(harness, engine)
        assert approval.requirements == terms("members", quorum=2, self_approval=SelfApproval.RULE)
        assert await engine.approvals.decide(by(approval, BEN), Member(BEN)) == MoreApprovalsNeeded(1)
        assert await engine.approvals.decide(by(approval, BEN), Member(BEN)) == AlreadyDecided(
            "You have already approved it. It needs 1 more approval."
        )
        shown = await harness.surface.wait_for(
            lambda view: any(
                step.approval is not None and step.approval.approver_names == ("Ben",) for step in view.awaiting
            )
        )
        assert only_step(shown).status is StepStatus.AWAITING
        assert harness.toolbox.calls == []
        assert await engine.approvals.decide(by(approval, ZOE), Member(ZOE)) == Decided(DecisionType.APPROVE)
        step = only_step(await harness.surface.wait_for_end(turn))
    assert step.status is StepStatus.DONE
    assert step.approval is not None
    assert step.approval.decided_by == "Ben and Zoe"
    assert len(harness.toolbox.calls) == 1


async def test_one_approver_is_enough_to_deny_also_after_approving(harness: EngineHarness) -> None:
    engine = prepare_engine(harness, terms("members", quorum=3))
    async with running(engine):
        turn, approval = await ask_and_wait(harness, engine)
        assert await engine.approvals.decide(by(approval, BEN), Member(BEN)) == MoreApprovalsNeeded(2)
        assert await engine.approvals.decide(by(approval, ZOE), Member(ZOE)) == MoreApprovalsNeeded(1)
        changed = await engine.approvals.decide(by(approval, BEN, DecisionType.DENY, "On second thoughts"), Member(BEN))
        assert changed == Decided(DecisionType.DENY)
        assert isinstance(await engine.approvals.decide(by(approval, KIM), Member(KIM)), AlreadyDecided)
        step = only_step(await harness.surface.wait_for_end(turn))
    assert step.status is StepStatus.DENIED
    assert step.approval is not None
    assert (step.approval.decided_by, step.approval.reason) == ("Ben", "On second thoughts")
    assert harness.toolbox.calls == []


async def test_two_approvals_at_once_are_both_counted(harness: EngineHarness) -> None:
    engine = prepare_engine(harness, terms("members", quorum=2))
    async with running(engine):
        turn, approval = await ask_and_wait(harness, engine)
        results = await asyncio.gather(*(engine.approvals.decide(by(approval, who), Member(who)) for who in (BEN, ZOE)))
        assert sorted(map(str, results)) == sorted(map(str, (MoreApprovalsNeeded(1), Decided(DecisionType.APPROVE))))
        await harness.surface.wait_for_end(turn)
    assert len(harness.toolbox.calls) == 1


async def test_a_rule_that_became_weaker_changes_nothing_for_a_card_that_is_out(harness: EngineHarness) -> None:
    engine = prepare_engine(harness, terms("test:zoe", four_eyes=True, quorum=1))
    async with running(engine):
        turn, approval = await ask_and_wait(harness, engine)
        assert harness.rules is not None
        harness.rules.replace_file(Policies())
        assert isinstance(await engine.approvals.decide(by(approval, BEN), Member(BEN)), NotAllowed)
        assert await engine.approvals.decide(by(approval, ZOE), Member(ZOE)) == Decided(DecisionType.APPROVE)
        await harness.surface.wait_for_end(turn)


async def test_a_rule_that_became_stricter_counts_for_a_card_that_is_out(harness: EngineHarness) -> None:
    engine = prepare_engine(harness, terms())
    async with running(engine):
        turn, approval = await ask_and_wait(harness, engine)
        assert harness.rules is not None
        harness.rules.amend([plain("m1", "send", ASK, requirements=terms("test:zoe", "test:kim", quorum=2))], [], [])
        assert await engine.approvals.decide(by(approval, BEN), Member(BEN)) == NotAllowed(
            "You may not approve this. It needs 2 of test:kim or test:zoe."
        )
        assert await engine.approvals.decide(by(approval, ZOE), Member(ZOE)) == MoreApprovalsNeeded(1)
        assert await engine.approvals.decide(by(approval, KIM), Member(KIM)) == Decided(DecisionType.APPROVE)
        await harness.surface.wait_for_end(turn)


async def test_a_user_who_just_left_the_group_may_not_approve(harness: EngineHarness) -> None:
    engine = prepare_engine(harness, terms(OPS))
    async with running(engine):
        _, approval = await ask_and_wait(harness, engine)
        assert isinstance(await engine.approvals.decide(by(approval, ZOE), Member(ZOE)), NotAllowed)
        assert await engine.approvals.decide(by(approval, ZOE), Member(ZOE, frozenset({OPS}))) == Decided(
            DecisionType.APPROVE
        )


async def test_a_call_expires_by_its_rule_and_waits_on_where_the_rule_says_so(harness: EngineHarness) -> None:
    for said, expires_in, remind_in in (
        (terms(expires=600.0), 600.0, None),
        (terms(expires=600.0, remind=True), 600.0, 300.0),
        (terms(expires=600.0, remind=True, on_timeout=OnTimeout.KEEP), None, 300.0),
        (terms(on_timeout=OnTimeout.KEEP), None, None),
        (terms(remind=True), 1800.0, 900.0),
    ):
        harness.surface.views.clear()
        engine = prepare_engine(harness, said)
        async with running(engine):
            turn, approval = await ask_and_wait(harness, engine, f"send it {said}")
            assert (approval.expires_in, approval.remind_in) == (expires_in, remind_in)
            assert approval.requirements == replace(said, self_approval=SelfApproval.DESTRUCTIVE)
            await engine.stop(turn, ANA)
            await harness.surface.wait_for_end(turn)


@dataclass
class Telling(RecordingSurface):
    """A surface that records its notices. Notices to the users in `mute` fail."""

    told: list[tuple[NoticeTarget, str]] = field(default_factory=list)
    mute: frozenset[str] = frozenset()

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        if audience.person in self.mute:
            raise DeliveryFailed("They take no messages.")
        self.told.append((audience, notice.text))


@pytest.mark.parametrize(
    ("approvers", "people"),
    [(("test:zoe", "test:ben", "other:kim", OPS), ["ben", "zoe"]), ((OPS,), [""]), (("members",), [""]), ((), ["ben"])],
)
async def test_approvers_are_reminded_once_at_half_time(
    harness: EngineHarness, approvers: tuple[str, ...], people: list[str]
) -> None:
    harness.surface = surface = Telling()
    engine = prepare_engine(harness, terms(*approvers, remind=True, expires=600.0))
    async with running(engine), running(harness.notices):
        _, approval = await ask_and_wait(harness, engine)
        await until_posted(harness, approval)
        harness.clock[0] += 299
        await looked_often(harness)
        assert surface.told == []
        harness.clock[0] += 2
        await until(lambda: len(surface.told) >= len(people))
        await looked_often(harness)
    assert [audience.person for audience, _ in surface.told] == people
    assert all(audience.private is bool(audience.person) for audience, _ in surface.told)
    assert surface.told[0][1].startswith("mail.send, which Ana asked for, still awaits approval")
    assert "test:" not in surface.told[0][1]


async def test_after_its_time_a_second_group_may_approve_too_and_the_first_still_may(harness: EngineHarness) -> None:
    harness.surface = surface = Telling()
    kim = Member(KIM, frozenset({OPS}))
    escalating = terms(
        "test:zoe", escalate=Escalation(900.0, frozenset({OPS, "test:ben"})), remind=True, expires=3600.0
    )
    engine = prepare_engine(harness, escalating)
    async with running(engine), running(harness.notices):
        turn, approval = await ask_and_wait(harness, engine)
        await until_posted(harness, approval)
        harness.clock[0] += 899
        assert isinstance(await engine.approvals.decide(by(approval, KIM), kim), NotAllowed)
        harness.clock[0] += 2
        await until(lambda: len(surface.told) == 2)
        assert [audience.person for audience, _ in surface.told] == ["ben", "zoe"]
        assert isinstance(await engine.approvals.open_call(approval.id, 1, Member(ZOE)), ToolStep)
        assert isinstance(await engine.approvals.decide(by(approval, KIM), kim), Decided)
        await surface.wait_for_end(turn)
        await looked_often(harness)
    assert len(surface.told) == 2
    (decided,), _ = await SqlReporting(harness.database).audit(AuditQuery(kinds=("decided",)), 100, 0)
    assert decided.facts["evidence"] == OPS


async def test_a_reminder_before_the_escalation_goes_to_the_first_approvers_alone(harness: EngineHarness) -> None:
    harness.surface = surface = Telling()
    engine = prepare_engine(
        harness, terms("test:zoe", escalate=Escalation(900.0, frozenset({"test:ben"})), remind=True, expires=1200.0)
    )
    async with running(engine), running(harness.notices):
        _, approval = await ask_and_wait(harness, engine)
        await until_posted(harness, approval)
        harness.clock[0] += 601
        await until(lambda: bool(surface.told))
        harness.clock[0] += 300
        await until(lambda: len(surface.told) == 3)
        await looked_often(harness)
    assert [audience.person for audience, _ in surface.told] == ["zoe", "ben", "zoe"]


@pytest.mark.parametrize(
    ("first", "second", "late"),
    [
        (terms("test:zoe", escalate=Escalation(60.0, frozenset({"a:1", "a:2"}))), terms(), {"a:1", "a:2"}),
        (terms("test:zoe", escalate=Escalation(60.0, frozenset({"a:1"}))), terms("test:ben"), set()),
        (
            terms("test:zoe", escalate=Escalation(60.0, frozenset({"a:1", "a:2"}))),
            terms("test:ben", escalate=Escalation(90.0, frozenset({"a:2"}))),
            {"a:2"},
        ),
    ],
)
def test_several_rules_escalate_only_as_all_of_them_permit(
    first: ApprovalRequirements, second: ApprovalRequirements, late: set[str]
) -> None:
    for both in (first.combine(second), second.combine(first)):
        assert both.after(89.0).approvers == both.approvers or not second.approvers
        for before, after in zip(both.approvers, both.after(90.0).approvers, strict=True):
            assert after - before == late


async def test_an_unreachable_approver_does_not_keep_others_from_being_reminded(harness: EngineHarness) -> None:
    harness.surface = surface = Telling(mute=frozenset({"ben"}))
    engine = prepare_engine(harness, terms("test:ben", "test:zoe", remind=True, expires=600.0))
    async with running(engine), running(harness.notices):
        _, approval = await ask_and_wait(harness, engine)
        await until_posted(harness, approval)
        harness.clock[0] += 301
        await until(lambda: bool(surface.told))
    assert [audience.person for audience, _ in surface.told] == ["zoe"]


async def test_where_the_card_stands_in_another_channel_those_there_are_reminded(harness: EngineHarness) -> None:
    harness.surface = surface = Telling()
    engine = prepare_engine(
        harness, terms(OPS, remind=True, expires=600.0, deliver=frozenset({f"{HALL.workspace_key}:approvals"}))
    )
    async with running(engine), running(harness.notices):
        _, approval = await ask_and_wait(harness, engine)
        await until_posted(harness, approval)
        harness.clock[0] += 301
        await until(lambda: bool(surface.told))
    assert [audience for audience, _ in surface.told] == [NoticeTarget(f"{HALL.workspace_key}:approvals:")]


async def test_no_reminder_is_sent_for_a_decided_call(harness: EngineHarness) -> None:
    harness.surface = surface = Telling()
    engine = prepare_engine(harness, terms("test:zoe", remind=True, expires=600.0))
    async with running(engine), running(harness.notices):
        turn, approval = await ask_and_wait(harness, engine)
        await until_posted(harness, approval)
        await engine.approvals.decide(by(approval, ZOE), Member(ZOE))
        await surface.wait_for_end(turn)
        harness.clock[0] += 301
        await looked_often(harness)
    assert surface.told == []


async def until_posted(harness: EngineHarness, approval: Approval) -> None:
    """Wait until the card is posted: `expires_at` is set from then on."""
    async with asyncio.timeout(10):
        while True:
            found = await harness.log.get_approval(approval.id)
            if found and found[1].approval and found[1].approval.expires_at is not None:
                return
            await asyncio.sleep(0.005)


async def looked_often(harness: EngineHarness) -> None:
    """Wait until the engine's loops have polled several more times."""
    seen = len(harness.pauses)
    await until(lambda: len(harness.pauses) > seen + 20)


# ------------------------------------------------------------------ random clicks

PEOPLE = (ANA, BEN, ZOE, KIM, ADMIN)
ENTRIES = st.sampled_from(["test:ben", "test:zoe", "test:kim", OPS, "members", "asker"])


@st.composite
def some_member(draw: st.DrawFn) -> Member:
    return Member(
        draw(st.sampled_from(PEOPLE)),
        draw(st.frozensets(st.sampled_from([OPS, "test-group:other"]))),
        platform_admin=draw(st.booleans()),
        guest=draw(st.integers(0, 4)) == 0,
        external=draw(st.integers(0, 4)) == 0,
    )


@st.composite
def some_terms(draw: st.DrawFn) -> ApprovalRequirements:
    return ApprovalRequirements(
        tuple(draw(st.lists(st.frozensets(ENTRIES, min_size=1, max_size=3), max_size=2))),
        four_eyes=draw(st.booleans()),
        quorum=draw(st.integers(1, 3)),
    )


def is_one_of(member: Member, entries: frozenset[str]) -> bool:
    """Return True if the member is in `entries`. A simple second implementation."""
    if member.guest or member.external:
        return False
    asker = "asker" in entries and member.author == ANA
    return asker or "members" in entries or bool({member.author.principal, *member.roles} & entries)


Clicks = st.lists(st.tuples(some_member(), st.sampled_from(DecisionType), st.integers(1, 2)), min_size=1, max_size=12)


@given(some_terms(), Clicks)
def test_no_user_outside_the_approver_set_ever_decides_in_any_order_of_clicks(
    said: ApprovalRequirements, clicks: object
) -> None:
    for who, verdict, _ in clicks:  # type: ignore[attr-defined]
        found = judge_approver(said, who, verdict)
        if isinstance(found, NotAllowed):
            continue
        own_denial = verdict is DecisionType.DENY and who.author == ANA
        named = all(is_one_of(who, entries) for entries in said.approvers)
        assert own_denial or (named if said.approvers else APPROVERS.evidence(who))
        assert verdict is DecisionType.DENY or not said.four_eyes or who.author not in (ANA, KIM)
        assert found.quorum == said.quorum


@given(some_terms(), some_terms(), some_member())
def test_joined_terms_are_met_only_by_a_user_who_meets_both(
    one: ApprovalRequirements, other: ApprovalRequirements, who: Member
) -> None:
    both = judge_approver(one.combine(other), who, DecisionType.APPROVE)
    if isinstance(both, ApproverEvidence):
        for each in (one, other):
            alone = judge_approver(each, who, DecisionType.APPROVE)
            assert isinstance(alone, ApproverEvidence) or not each.approvers
            assert both.quorum >= each.quorum
    assert one.combine(other).combine(one) == replace(one.combine(other))


def may(said: ApprovalRequirements, who: Member, verdict: DecisionType) -> bool:
    """Return True if the member may make this decision. A simple second implementation."""
    if verdict is DecisionType.DENY and who.author == ANA:
        return True
    if verdict is DecisionType.APPROVE and said.four_eyes and who.author == ANA:
        return False
    return (
        all(is_one_of(who, entries) for entries in said.approvers) if said.approvers else bool(APPROVERS.evidence(who))
    )


@pytest.mark.parametrize("seed", range(25))
async def test_a_call_is_decided_by_approvers_and_by_the_required_number_after_any_clicks(
    harness: EngineHarness, seed: int
) -> None:
    chance = random.Random(seed)
    entries = ["test:ben", "test:zoe", "test:kim", OPS, "members", "asker"]
    sets = tuple(frozenset(chance.sample(entries, 2)) for _ in range(chance.randint(0, 2)))
    approval_requirements = ApprovalRequirements(sets, four_eyes=chance.random() < 0.5, quorum=chance.randint(1, 3))
    harness.rules = book(approval_requirements)
    engine = harness.engine()
    receipt = await harness.log.enqueue(message("send it"))
    (claim,) = await harness.log.claim(1)
    approval = Approval("card", 1, "print", ANA, None, requirements=approval_requirements)
    step = ToolStep(1, call("mail__send"), ToolRef("mail", "send"), StepStatus.AWAITING, approval=approval)
    await harness.log.append(claim, None, [step])
    signed: set[str] = set()
    settled: DecisionType | None = None
    for _ in range(40):
        who = Member(
            chance.choice(PEOPLE),
            frozenset(chance.sample([OPS, "test-group:other"], chance.randint(0, 2))),
            platform_admin=chance.random() < 0.2,
            guest=chance.random() < 0.2,
            external=chance.random() < 0.2,
        )
        verdict = DecisionType.DENY if chance.random() < 0.05 else DecisionType.APPROVE
        revision = chance.choice([1, 1, 1, 2])
        found = await engine.approvals.decide(Decision("card", revision, verdict, who.author), who)
        if not may(approval_requirements, who, verdict):
            assert isinstance(found, NotAllowed)
        elif settled is not None:
            assert isinstance(found, AlreadyDecided)
        elif revision != 1:
            assert found == StaleRevision()
        elif verdict is DecisionType.DENY:
            settled = verdict
            assert found == Decided(verdict)
        elif who.author.principal in signed:
            assert isinstance(found, AlreadyDecided)
        else:
            signed.add(who.author.principal)
            settled = verdict if len(signed) == approval_requirements.quorum else None
            assert found == (
                Decided(verdict) if settled else MoreApprovalsNeeded(approval_requirements.quorum - len(signed))
            )
    (kept,) = (each for each in (await harness.log.get_view(receipt.turn_id)).steps if isinstance(each, ToolStep))
    ends = {None: StepStatus.AWAITING, DecisionType.APPROVE: StepStatus.READY, DecisionType.DENY: StepStatus.DENIED}
    assert kept.status is ends[settled]
