"""Calls that were admitted for another server or by outdated rules."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from bot.domain.approvals import ApprovalPolicy, Decided, Decision, DecisionType, NotAllowed
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import ToolSet
from bot.domain.turns import StepStatus, ToolStep, TurnView
from bot.engine.approvals import TOOL_CHANGED
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.rules import Policies, RuleBook
from tests.engine.conftest import EngineHarness
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


async def test_a_call_approved_for_one_server_is_not_sent_to_another_that_has_taken_its_name(
    harness: EngineHarness,
) -> None:
    harness.toolbox.add(tool("pay__send", server_id="removed-since"), answers_ok)
    harness.model.script = [ask_for(call("pay__send", to="ben")), say("It changed.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("send it"))
        approval = await harness.pending()
        harness.toolbox.add(tool("pay__send", server_id="added-since"), answers_ok)
        decision = Decision(approval.id, 1, DecisionType.APPROVE, ANA)
        assert await engine.approvals.decide(decision, member(ANA)) == Decided(DecisionType.APPROVE)
        step = only_call(await harness.surface.wait_for_end(receipt.turn_id))
    assert step.status is StepStatus.FAILED
    assert step.result is not None
    assert "has changed since it was approved" in step.result.text
    assert harness.toolbox.calls == []


@dataclass
class ReplacedMeanwhile(FakeToolbox):
    """A toolbox that moves its tool to a new server without a policy after the first model request."""

    model: ScriptedModel = field(default_factory=ScriptedModel)

    async def offer(self, workspace: str = EVERYWHERE) -> ToolSet:
        if self.model.requests:
            self.add(tool("pay__send", server_id="added-since"), answers_ok)
        return await super().offer(workspace)


async def test_a_call_allowed_for_one_server_does_not_run_on_another_that_asks(harness: EngineHarness) -> None:
    harness.toolbox = ReplacedMeanwhile(model=harness.model)
    harness.toolbox.add(tool("pay__send", server_id="removed-since"), answers_ok)
    harness.rules = RuleBook(Policies(ASK), Approvers(admins=frozenset({ANA.principal})))
    harness.rules.amend([plain("removed-since", "send", ALLOW)], [], [])
    harness.model.script = [ask_for(call("pay__send", to="ben")), say("It asks now.")]
    view = await harness.run_turn("send it")
    step = only_call(view)
    assert step.status is StepStatus.FAILED
    assert step.result is not None
    assert step.result.text == "Not run: pay__send needs an approval now. Call it again to request one."
    assert harness.toolbox.calls == []


@dataclass
class StandsIn(ReplacedMeanwhile):
    """A toolbox that moves its tool to another server of the group after the first model request."""

    async def offer(self, workspace: str = EVERYWHERE) -> ToolSet:
        if self.model.requests:
            self.add(replace(tool("pay__send", server_id="2"), server="spare"), answers_ok)
        return await FakeToolbox.offer(self, workspace)


async def test_an_allowed_call_is_not_sent_to_a_server_that_stands_in_though_all_may_be_called_there(
    harness: EngineHarness,
) -> None:
    harness.toolbox = StandsIn(model=harness.model)
    harness.toolbox.add(replace(tool("pay__send", server_id="1"), server="main"), answers_ok)
    harness.rules = RuleBook(Policies(ALLOW), Approvers(admins=frozenset({ANA.principal})))
    harness.model.script = [ask_for(call("pay__send", to="ben")), ask_for(call("pay__send", to="ben")), say("Sent.")]
    view = await harness.run_turn("send it")
    refused, sent = (step for step in view.steps if isinstance(step, ToolStep))
    assert refused.result is not None
    assert refused.result.text == (
        "Not run: the call was for server main, which is away now. Server spare has pay__send, too. Call it again "
        "to use that one."
    )
    assert sent.tool is not None
    assert (sent.tool.server, sent.status) == ("spare", StepStatus.DONE), (
        "the record names the server that got the call"
    )
    assert harness.toolbox.names == ["pay__send"]


async def test_a_call_approved_for_a_server_at_one_place_is_not_sent_to_where_an_admin_has_moved_it(
    harness: EngineHarness,
) -> None:
    harness.toolbox.add(tool("pay__send", place="here"), answers_ok)
    harness.model.script = [ask_for(call("pay__send", to="ben")), say("It moved.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("send it"))
        approval = await harness.pending()
        harness.toolbox.add(tool("pay__send", place="there"), answers_ok)
        assert await engine.approvals.get_editable_call(approval.id, 1, member(ANA)) == NotAllowed(TOOL_CHANGED)
        decision = Decision(approval.id, 1, DecisionType.APPROVE, ANA)
        assert await engine.approvals.decide(decision, member(ANA)) == Decided(DecisionType.APPROVE)
        step = only_call(await harness.surface.wait_for_end(receipt.turn_id))
    assert step.status is StepStatus.FAILED
    assert step.result is not None
    assert "has changed since it was approved" in step.result.text
    assert harness.toolbox.calls == []


@dataclass
class Withholding(FakeToolbox):
    """A toolbox that withholds the tools in `withheld` until an admin reviews them."""

    withheld: set[str] = field(default_factory=set)

    async def offer(self, workspace: str = EVERYWHERE) -> ToolSet:
        offered = await super().offer(workspace)
        tools = tuple(each for each in offered.tools if each.name not in self.withheld)
        return replace(offered, tools=tools, withheld=frozenset(self.withheld))


async def test_a_call_approved_before_its_tool_changed_does_not_run_and_names_the_review(
    harness: EngineHarness,
) -> None:
    toolbox = harness.toolbox = Withholding()
    toolbox.add(tool("pay__send"), answers_ok)
    harness.model.script = [ask_for(call("pay__send", to="ben")), say("An admin has to look.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("send it"))
        approval = await harness.pending()
        toolbox.withheld.add("pay__send")
        decision = Decision(approval.id, 1, DecisionType.APPROVE, ANA)
        assert await engine.approvals.decide(decision, member(ANA)) == Decided(DecisionType.APPROVE)
        step = only_call(await harness.surface.wait_for_end(receipt.turn_id))
    assert step.status is StepStatus.FAILED
    assert step.result is not None
    assert step.result.text == (
        "Not run: pay__send is new or has changed, and an admin has to review it first: `/mcp review pay`."
    )
    assert step.result.unreviewed
    assert toolbox.calls == []


async def test_a_model_that_calls_a_tool_by_name_that_waits_for_an_admin_is_told_so(harness: EngineHarness) -> None:
    toolbox = harness.toolbox = Withholding()
    toolbox.add(tool("pay__send"), answers_ok)
    toolbox.withheld.add("pay__send")
    harness.rules = RuleBook(Policies(ALLOW))
    harness.model.script = [ask_for(call("pay__send", to="ben")), say("An admin has to look.")]
    engine = harness.engine()
    async with running(engine):
        step = only_call(await harness.surface.wait_for_end((await engine.receive(message("send it"))).turn_id))
    assert step.status is StepStatus.FAILED
    assert step.result is not None
    assert "an admin has to review it first" in step.result.text
    assert step.result.unreviewed
    assert toolbox.calls == []
    assert harness.model.requests[0].tools == ()
