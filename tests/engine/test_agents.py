"""Turns of agents: which agent answers in which conversation, and changes of it while a turn waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.domain.agents import PLACE_AGENT, AgentRef
from bot.domain.approvals import ApprovalPolicy, Decided, Decision, DecisionType, NotAllowed, ThreadScope
from bot.domain.conversations import Author
from bot.domain.grants import GrantRequest
from bot.domain.profiles import Binding, Profile
from bot.domain.turns import StepStatus, ToolStep, TurnStatus
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.rules import Policies, RuleBook
from bot.errors import NotFound
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import ANA, BEN, HALL, answers_ok, ask_for, call, member, message, running, say, tool

SUPPORT = Profile("p1", "support", persona="You are support.", approvers=frozenset({"test:ben"}))
ASKED = AgentRef("p1", "support")
HERE, ELSEWHERE = Binding("test:w:hall", "p1", by_name=True), Binding("test:w:attic", "p1", by_name=True)


def book(*bindings: Binding, profile: Profile = SUPPORT) -> RuleBook:
    rules = RuleBook(Policies(ApprovalPolicy.ASK_USER), Approvers(approvers=frozenset({"test:ana"})))
    rules.amend((), (profile,), bindings)
    return rules


async def test_the_engine_takes_no_message_for_an_agent_of_another_place(harness: EngineHarness) -> None:
    harness.rules = book(ELSEWHERE)
    engine = harness.engine()
    assert str(HALL).startswith("test:w:hall:")
    with pytest.raises(NotFound):
        await engine.receive(replace(message("hi"), agent=ASKED))
    assert await engine.recent_turns(HALL, 1) == []
    harness.rules.amend((), (SUPPORT,), (HERE,))
    receipt = await engine.receive(replace(message("hi"), agent=ASKED))
    harness.rules.amend((), (), ())
    again = await engine.receive(replace(message("hi"), agent=ASKED))
    assert (again.turn_id, again.redelivery) == (receipt.turn_id, True)


async def test_a_call_waits_for_the_approvers_of_its_agent_and_is_not_sent_once_the_agent_is_gone(
    harness: EngineHarness,
) -> None:
    harness.toolbox.add(tool("bank__send", server_id="b1"), answers_ok)
    harness.rules = book(HERE)
    harness.model.script = [ask_for(call("bank__send", to="Zoe"))]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(replace(message("pay Zoe"), agent=ASKED))
        approval = await harness.pending()
        harness.rules.amend((), (SUPPORT,), (ELSEWHERE,))
        by_ana = await engine.approvals.decide(Decision(approval.id, 1, DecisionType.APPROVE, ANA), member(ANA))
        assert isinstance(by_ana, NotAllowed)
        by_ben = await engine.approvals.decide(Decision(approval.id, 1, DecisionType.APPROVE, BEN), member(BEN))
        assert by_ben == Decided(DecisionType.APPROVE)
        view = await harness.surface.wait_for_end(receipt.turn_id)
    (step,) = (step for step in view.steps if isinstance(step, ToolStep))
    assert step.status is StepStatus.FAILED
    assert (view.turn.status, harness.toolbox.calls) == (TurnStatus.FAILED, [])
    assert "“support” cannot be asked here any more" in view.turn.failure


async def test_a_grant_covers_no_call_of_an_agent_that_has_other_approvers(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("bank__send", server_id="b1", destructive=False), answers_ok)
    harness.rules = book(HERE)
    engine = harness.engine()

    async def ask(agent: AgentRef, granted_by: Author | None = None) -> StepStatus:
        """Ask for the call and approve it with a grant if `granted_by` is given. Return its final status."""
        harness.model.script = [ask_for(call("bank__send", to="Zoe")), say("Done.")]
        receipt = await engine.receive(replace(message(f"pay Zoe {len(harness.model.requests)}"), agent=agent))
        if granted_by is not None:
            view = await harness.surface.wait_for(lambda view: view.turn.id == receipt.turn_id and bool(view.awaiting))
            assert view.awaiting[0].approval is not None
            decision = Decision(view.awaiting[0].approval.id, 1, DecisionType.APPROVE, granted_by)
            granted = await engine.approvals.grant(decision, GrantRequest(ThreadScope()), member(granted_by))
            assert granted == Decided(DecisionType.APPROVE)
        view = await harness.surface.wait_for_end(receipt.turn_id)
        (step,) = (step for step in view.steps if isinstance(step, ToolStep))
        assert (step.grant is None) is (granted_by is not None)
        return step.status

    async with running(engine):
        assert await ask(PLACE_AGENT, ANA) is StepStatus.DONE
        assert await ask(PLACE_AGENT) is StepStatus.DONE
        assert await ask(ASKED, BEN) is StepStatus.DONE
        assert await ask(ASKED) is StepStatus.DONE
        assert await ask(PLACE_AGENT) is StepStatus.DONE


async def test_a_profile_that_was_renamed_is_still_the_one_that_was_asked(harness: EngineHarness) -> None:
    harness.rules = book(HERE)
    harness.model.script = [say("One."), say("Two.")]
    engine = harness.engine()
    async with running(engine):
        first = await engine.receive(replace(message("one"), agent=ASKED))
        await harness.surface.wait_for_end(first.turn_id)
        other = Profile("p2", "support", persona="You are somebody else.")
        renamed = replace(SUPPORT, name="help desk")
        harness.rules.amend((), (renamed, other), (HERE, Binding("test:w:hall", "p2", by_name=True)))
        second = await engine.receive(message("two"))
        view = await harness.surface.wait_for_end(second.turn_id)
    assert view.turn.question.agent == ASKED
    assert ["You are support." in request.messages[0].text for request in harness.model.requests] == [True, True]


async def test_a_call_that_is_run_again_belongs_to_the_agent_of_its_turn(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("bank__send", server_id="b1"), answers_ok)
    harness.rules = book(HERE)
    harness.model.script = [ask_for(call("bank__send", to="Zoe")), say("Denied.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(replace(message("pay Zoe"), agent=ASKED))
        approval = await harness.pending()
        await engine.approvals.decide(Decision(approval.id, 1, DecisionType.DENY, BEN), member(BEN))
        view = await harness.surface.wait_for_end(receipt.turn_id)
        (step,) = (step for step in view.steps if isinstance(step, ToolStep))
        again = await engine.run_again(receipt.turn_id, step.n, ANA)
        assert (await engine.view(again.turn_id)).turn.question.agent == ASKED
