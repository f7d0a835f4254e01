"""Calls that were admitted for one server and would be sent to another, or by rules that hold no more."""

from __future__ import annotations

from dataclasses import dataclass, field

from bot.domain.approvals import ApprovalPolicy, Decision, Settled, Verdict
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import ToolSet
from bot.domain.turns import StepStatus, ToolStep
from bot.domain.views import TurnView
from bot.engine.policy import Policies, Signatories
from bot.engine.rules import RuleBook
from tests.engine.conftest import House
from tests.fakes.parts import (
    ANA,
    FakeToolbox,
    ScriptedModel,
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

ALLOW, ASK = ApprovalPolicy.ALWAYS_ALLOW, ApprovalPolicy.ASK_USER


def only_call(view: TurnView) -> ToolStep:
    (step,) = (step for step in view.steps if isinstance(step, ToolStep))
    return step


async def test_a_call_signed_for_one_server_is_not_sent_to_another_that_has_taken_its_name(house: House) -> None:
    house.toolbox.add(tool("pay__send", server_id="removed-since"), answers_ok)
    house.model.script = [ask_for(call("pay__send", to="ben")), say("It changed.")]
    engine = house.engine()
    async with running(engine):
        receipt = await engine.receive(message("send it"))
        waiting = await house.surface.wait_for(lambda view: bool(view.awaiting))
        approval = waiting.awaiting[0].approval
        assert approval is not None
        house.toolbox.add(tool("pay__send", server_id="added-since"), answers_ok)
        decision = Decision(approval.id, 1, Verdict.APPROVE, ANA)
        assert await engine.decide(decision, member(ANA)) == Settled(Verdict.APPROVE)
        step = only_call(await house.surface.ended(receipt.turn_id))
    assert step.status is StepStatus.FAILED
    assert step.result is not None
    assert "has changed since it was signed" in step.result.text
    assert house.toolbox.calls == []


@dataclass
class ReplacedMeanwhile(FakeToolbox):
    """Its server is another one, of which nobody has said anything, as soon as the model has been asked."""

    model: ScriptedModel = field(default_factory=ScriptedModel)

    async def offer(self, workspace: str = EVERYWHERE) -> ToolSet:
        if self.model.requests:
            self.add(tool("pay__send", server_id="added-since"), answers_ok)
        return await super().offer(workspace)


async def test_what_was_allowed_of_one_server_is_not_run_on_another_where_it_would_ask(house: House) -> None:
    house.toolbox = ReplacedMeanwhile(model=house.model)
    house.toolbox.add(tool("pay__send", server_id="removed-since"), answers_ok)
    house.rules = RuleBook(Policies(ASK), Signatories(admins=frozenset({ANA.principal})))
    house.rules.amend([plain("removed-since", "send", ALLOW)], [], [])
    house.model.script = [ask_for(call("pay__send", to="ben")), say("It asks now.")]
    engine = house.engine()
    async with running(engine):
        view = await house.surface.ended((await engine.receive(message("send it"))).turn_id)
    step = only_call(view)
    assert step.status is StepStatus.FAILED
    assert step.result is not None
    assert step.result.text == "Not run: pay__send needs a signature now. Call it again to ask for one."
    assert house.toolbox.calls == []
