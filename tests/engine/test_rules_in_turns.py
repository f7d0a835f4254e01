"""Rules in turns: applied when the model asks for a call, and again before it is sent."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from bot.domain.approvals import ApprovalPolicy, ApprovalRequirements, Decided, Decision, DecisionType, NotAllowed
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.policies import Rule, StoredPolicyResult
from bot.domain.turns import StepStatus, ToolStep, TurnView
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.rules import Policies, RuleBook
from bot.errors import DeliveryFailed
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import (
    ANA,
    BEN,
    FakeToolbox,
    RecordingSurface,
    answers_ok,
    ask_for,
    call,
    member,
    message,
    running,
    say,
    tool,
)
from tests.rules import plain

ALLOW, DENY, ASK = ApprovalPolicy.ALWAYS_ALLOW, ApprovalPolicy.ALWAYS_DENY, ApprovalPolicy.ASK_USER


def book(*rules: Rule, default: ApprovalPolicy = ASK) -> RuleBook:
    return RuleBook(Policies(default, rules=rules), Approvers(admins=frozenset({ANA.principal})))


def steps(view: TurnView) -> list[ToolStep]:
    return [step for step in view.steps if isinstance(step, ToolStep)]


async def test_arguments_decide_and_the_deciding_rule_is_stored_with_the_call(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("mail__send"), answers_ok)
    harness.rules = book(
        Rule(ALLOW, server="mail", id="policy.toml:1"),
        Rule(DENY, server="mail", arguments={"to": "*@evil.example"}, id="policy.toml:5"),
    )
    harness.model.script = [
        ask_for(call("mail__send", "c1", to="ben@home.example"), call("mail__send", "c2", to="x@evil.example")),
        say("Done."),
    ]
    view = await harness.run_turn("send both")
    assert [step.status for step in steps(view)] == [StepStatus.DONE, StepStatus.DENIED]
    assert [arguments for _, arguments, _ in harness.toolbox.calls] == [{"to": "ben@home.example"}]
    stored = await harness.log.get_view(view.turn.id)
    assert [step.policy_result for step in steps(stored)] == [
        StoredPolicyResult(
            ALLOW, "policy.toml:1", "ALWAYS_ALLOW: mail.*", "It is the only rule that matches this call."
        ),
        StoredPolicyResult(
            DENY,
            "policy.toml:5",
            "ALWAYS_DENY: mail.* where to is *@evil.example",
            "A rule that denies wins over all others.",
        ),
    ]


async def test_a_denial_that_came_after_the_approval_wins(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("mail__send", server_id="m1"), answers_ok)
    harness.rules = book()
    harness.model.script = [ask_for(call("mail__send", to="ben")), say("I may not.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("send it"))
        approval = await harness.pending()
        harness.rules.amend([plain("m1", "", DENY, arguments={"to": "b*"})], [], [])
        signed = await engine.approvals.decide(Decision(approval.id, 1, DecisionType.APPROVE, ANA), member(ANA))
        assert signed == Decided(DecisionType.APPROVE)
        (step,) = steps(await harness.surface.wait_for_end(receipt.turn_id))
    assert step.status is StepStatus.FAILED
    assert step.result is not None
    assert step.result.text == "Not run: a policy forbids mail__send."
    assert harness.toolbox.calls == []


async def test_a_rule_set_before_a_turn_counts_for_it_and_for_a_waiting_call(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("mail__send", server_id="m1"), answers_ok)
    harness.rules, saved = book(), [Policies(ALLOW)]

    async def prepare() -> None:
        assert harness.rules is not None
        harness.rules.replace_file(saved[-1])

    harness.model.script = [
        ask_for(call("mail__send")),
        say("Sent."),
        ask_for(call("mail__send")),
        say("I may not."),
    ]
    harness.rules.follow = prepare
    engine = harness.engine()
    async with running(engine):
        (step,) = steps(await harness.surface.wait_for_end((await engine.receive(message("send it"))).turn_id))
        assert step.status is StepStatus.DONE
        saved.append(Policies(ASK))
        receipt = await engine.receive(message("send it again", "m2"))
        approval = await harness.pending()
        only_ben = ApprovalRequirements((frozenset({BEN.principal}),))
        saved.append(Policies(rules=(Rule(ASK, requirements=only_ben),)))
        refused = await engine.approvals.decide(Decision(approval.id, 1, DecisionType.APPROVE, ANA), member(ANA))
        assert isinstance(refused, NotAllowed)
        saved.append(Policies(DENY))
        approved = await engine.approvals.decide(Decision(approval.id, 1, DecisionType.APPROVE, ANA), member(ANA))
        assert approved == Decided(DecisionType.APPROVE)
        (step,) = steps(await harness.surface.wait_for_end(receipt.turn_id))
    assert step.status is StepStatus.FAILED
    assert len(harness.toolbox.calls) == 1


@dataclass
class DeniedMeanwhile(FakeToolbox):
    """A toolbox that adds a denying rule at the second offer, after the model has answered."""

    rules: RuleBook = field(default_factory=RuleBook)
    offers: int = 0

    async def offer(self, workspace: str = "") -> object:  # type: ignore[override]
        self.offers += 1
        if self.offers == 2:
            self.rules.amend([plain("m1", "send", DENY)], [], [])
        return await super().offer(workspace)


async def test_a_denial_that_came_before_an_allowed_call_was_sent_wins(harness: EngineHarness) -> None:
    harness.rules = book(default=ALLOW)
    harness.toolbox = DeniedMeanwhile(rules=harness.rules)
    harness.toolbox.add(tool("mail__send", server_id="m1"), answers_ok)
    harness.model.script = [ask_for(call("mail__send")), say("I may not.")]
    engine = harness.engine()
    async with running(engine):
        (step,) = steps(await harness.surface.wait_for_end((await engine.receive(message("send it"))).turn_id))
    assert step.status is StepStatus.FAILED
    assert step.policy_result is not None
    assert step.policy_result.policy is ALLOW
    assert harness.toolbox.calls == []


@dataclass
class People(RecordingSurface):
    """A surface with the groups of users. Lookups fail while `away`, and hang if `silent`."""

    groups: frozenset[str] = frozenset()
    away: bool = False
    asked: int = 0

    async def member(self, author: Author, where: ConversationKey) -> Member:
        self.asked += 1
        if self.away:
            raise DeliveryFailed("The platform is away.")
        return Member(author, self.groups)


@pytest.mark.parametrize(
    ("groups", "away", "comes"),
    [
        ({"test-group:g"}, False, StepStatus.DONE),
        (set(), False, StepStatus.DENIED),
        ({"test-group:g"}, True, StepStatus.DENIED),
    ],
)
async def test_the_asker_is_looked_up_and_has_the_least_rights_without_an_answer(
    harness: EngineHarness, groups: set[str], away: bool, comes: StepStatus
) -> None:
    harness.surface = people = People(groups=frozenset(groups), away=away)
    harness.toolbox.add(tool("mail__send"), answers_ok)
    harness.rules = book(Rule(ALLOW, askers=frozenset({"test-group:g"})), default=DENY)
    harness.model.script = [ask_for(call("mail__send")), say("So.")]
    engine = harness.engine()
    async with running(engine):
        (step,) = steps(await harness.surface.wait_for_end((await engine.receive(message("send it"))).turn_id))
    assert step.status is comes
    assert people.asked == (2 if comes is StepStatus.DONE else 1), "once more before it is sent"


async def test_no_user_is_looked_up_without_a_rule_about_users(harness: EngineHarness) -> None:
    harness.surface = people = People(away=True)
    harness.toolbox.add(tool("mail__send"), answers_ok)
    harness.rules = book(Rule(ALLOW, askers=frozenset({ANA.principal})))
    harness.model.script = [ask_for(call("mail__send")), say("So.")]
    engine = harness.engine()
    async with running(engine):
        (step,) = steps(await harness.surface.wait_for_end((await engine.receive(message("send it"))).turn_id))
    assert step.status is StepStatus.DONE
    assert people.asked == 0
