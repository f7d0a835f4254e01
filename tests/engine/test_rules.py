"""Effective rules of a conversation: three layers of policies, and its profile."""

from __future__ import annotations

import pytest

from bot.domain.approvals import ApprovalPolicy, Decided, Decision, DecisionType, NotAllowed
from bot.domain.conversations import ConversationKey
from bot.domain.policies import Rule
from bot.domain.profiles import Binding, Profile
from bot.domain.tools import ServerGuidance, Tool, ToolSet
from bot.domain.turns import StepStatus, ToolStep, TurnStatus, TurnView
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.rules import Policies, RuleBook, ServerPolicy
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import (
    ANA,
    BEN,
    ScriptedModel,
    answers_ok,
    ask_for,
    call,
    member,
    message,
    running,
    say,
    tool,
    words,
)
from tests.rules import plain

ALLOW, DENY, ASK = ApprovalPolicy.ALWAYS_ALLOW, ApprovalPolicy.ALWAYS_DENY, ApprovalPolicy.ASK_USER

HALL = ConversationKey("test", "w", "hall", "1")
KITCHEN = ConversationKey("test", "w", "kitchen", "1")
ABROAD = ConversationKey("test", "x", "hall", "1")

ADD = Tool("notes__add", "notes", "add", server_id="n1")
LIST = Tool("notes__list", "notes", "list", server_id="n1")
SEND = Tool("mail__send", "mail", "send", server_id="m1")


def book(file: Policies | None = None, *rules: Rule, profile: Profile | None = None) -> RuleBook:
    rule_book = RuleBook(file)
    rule_book.amend(rules, [profile] if profile else [], [Binding("test:w", profile.id)] if profile else [])
    return rule_book


def of(server: str, tool_name: str, policy: ApprovalPolicy) -> Rule:
    return plain(server, tool_name, policy)


def test_an_admins_word_on_a_tool_comes_before_the_files_on_its_server() -> None:
    file = Policies(servers={"notes": ServerPolicy(default=ASK)})
    rules = book(file, of("n1", "list", ALLOW)).rules(HALL)
    assert rules.policy_of(LIST) is ALLOW
    assert rules.policy_of(ADD) is ASK


def test_an_admins_word_on_a_server_does_not_loosen_the_files_on_its_tool() -> None:
    file = Policies(servers={"notes": ServerPolicy({"add": ASK})})
    rules = book(file, of("n1", "", ALLOW)).rules(HALL)
    assert rules.policy_of(ADD) is ASK
    assert rules.policy_of(LIST) is ALLOW


@pytest.mark.parametrize("particular", ["add", ""])
def test_no_rule_allows_a_call_that_the_file_denies(particular: str) -> None:
    file = Policies(servers={"notes": ServerPolicy({"add": DENY})})
    profile = Profile("p", "p", policies=(of("n1", particular, ALLOW),))
    assert book(file, of("n1", particular, ALLOW), profile=profile).rules(HALL).policy_of(ADD) is DENY


def test_a_denial_of_an_admin_for_a_server_beats_rules_about_its_tools() -> None:
    file = Policies(servers={"notes": ServerPolicy({"add": ALLOW})})
    assert book(file, of("n1", "", DENY)).rules(HALL).policy_of(ADD) is DENY


def test_of_two_words_alike_the_stricter_counts() -> None:
    file = Policies(servers={"notes": ServerPolicy({"add": ALLOW})})
    assert book(file, of("n1", "add", ASK)).rules(HALL).policy_of(ADD) is ASK


def test_a_default_of_the_file_is_no_word_on_a_tool_and_gives_way() -> None:
    assert book(Policies(default=DENY), of("n1", "add", ALLOW)).rules(HALL).policy_of(ADD) is ALLOW
    assert book(Policies(default=DENY)).rules(HALL).policy_of(ADD) is DENY


def test_a_rule_is_for_its_server_and_not_for_another_of_the_same_name() -> None:
    elsewhere = Tool("notes__add", "notes", "add", server_id="n2")
    assert book(None, of("n1", "add", ALLOW)).rules(HALL).policy_of(elsewhere) is ASK


def test_a_rule_holds_in_the_workspace_of_its_admin_and_in_no_other() -> None:
    made = book(None, plain("n1", "add", DENY, workspace="test:w"), plain("n1", "list", DENY, workspace="test:x"))
    assert [made.rules(place).policy_of(ADD) for place in (HALL, KITCHEN, ABROAD)] == [DENY, DENY, ASK]
    assert [made.rules(place).policy_of(LIST) for place in (HALL, KITCHEN, ABROAD)] == [ASK, ASK, DENY]


def test_a_profiles_rules_hold_where_it_does() -> None:
    rule_book = RuleBook()
    profile = Profile("p", "p", policies=(of("n1", "add", DENY),))
    rule_book.amend([], [profile], [Binding("test:w:kitchen", "p")])
    assert [rule_book.rules(place).policy_of(ADD) for place in (HALL, KITCHEN, ABROAD)] == [ASK, DENY, ASK]


def test_the_nearest_binding_holds() -> None:
    rule_book = RuleBook()
    profiles = [Profile("1", "everybody"), Profile("2", "workspace"), Profile("3", "channel")]
    rule_book.amend([], profiles, [Binding("", "1"), Binding("test:w", "2"), Binding("test:w:kitchen", "3")])
    assert rule_book.rules(KITCHEN).profile.name == "channel"
    assert rule_book.rules(HALL).profile.name == "workspace"
    assert rule_book.rules(ABROAD).profile.name == "everybody"


def test_a_binding_to_a_profile_that_is_gone_holds_nothing() -> None:
    rule_book = RuleBook()
    rule_book.amend([], [], [Binding("test:w", "1")])
    assert rule_book.rules(HALL).profile.name == "default"


def test_a_profile_enables_servers_and_of_some_of_them_only_tools() -> None:
    rules = book(profile=Profile("p", "p", servers=frozenset({"n1"}), tools={"n1": frozenset({"list"})})).rules(HALL)
    guidance = (ServerGuidance("notes", "Mind it.", auto_context_tool="notes__add"), ServerGuidance("mail", "Hush."))
    enabled = rules.enabled_tools(ToolSet((ADD, LIST, SEND), guidance))
    assert [each.name for each in enabled.tools] == ["notes__list"]
    assert enabled.guidance == (ServerGuidance("notes", "Mind it."),)


def tool_steps(view: TurnView) -> list[ToolStep]:
    return [step for step in view.steps if isinstance(step, ToolStep)]


async def test_a_call_that_the_profile_does_not_enable_is_refused_though_the_model_knows_its_name(
    harness: EngineHarness,
) -> None:
    harness.toolbox.add(tool("notes__list", server_id="n1"), answers_ok)
    harness.toolbox.add(tool("mail__send", server_id="m1"), answers_ok)
    harness.rules = book(Policies(ALLOW), profile=Profile("p", "p", servers=frozenset({"n1"})))
    harness.model.script = [ask_for(call("mail__send")), say("I may not.")]
    view = await harness.run_turn("send it")
    (step,) = tool_steps(view)
    assert step.status is StepStatus.FAILED
    assert step.result is not None
    assert step.result.text == "Not run: mail__send is not enabled in this conversation's profile."
    assert harness.toolbox.calls == []
    assert [each.name for each in harness.model.requests[0].tools] == ["notes__list"]


async def test_a_call_approved_before_the_profile_lost_its_server_is_not_sent(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("mail__send", server_id="m1"), answers_ok)
    harness.rules = RuleBook(approvers=Approvers(admins=frozenset({ANA.principal})))
    harness.model.script = [ask_for(call("mail__send")), say("I may not.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("send it"))
        approval = await harness.pending()
        harness.rules.amend([], [Profile("p", "p", servers=frozenset())], [Binding("", "p")])
        assert await engine.approvals.decide(
            Decision(approval.id, 1, DecisionType.APPROVE, ANA), member(ANA)
        ) == Decided(DecisionType.APPROVE)
        view = await harness.surface.wait_for_end(receipt.turn_id)
    assert tool_steps(view)[0].status is StepStatus.FAILED
    assert harness.toolbox.calls == []


async def test_persona_and_model_are_the_profiles(harness: EngineHarness) -> None:
    harness.rules = book(profile=Profile("p", "p", persona="Speak like a pilot.", model="demo:other"))
    harness.model.others["demo:other"] = other = ScriptedModel([say("Roger.")])
    view = await harness.run_turn("hi")
    assert view.turn.status is TurnStatus.DONE
    assert harness.model.requests == []
    assert words(other.requests[0])[0] == "Be useful.\n\nSpeak like a pilot."


async def test_a_profiles_approvers_sign_instead_of_the_others(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("mail__send", server_id="m1"), answers_ok)
    profile = Profile("p", "p", approvers=frozenset({BEN.principal}))
    harness.rules = RuleBook(approvers=Approvers(approvers=frozenset({ANA.principal})))
    harness.rules.amend([], [profile], [Binding("test:w", "p")])
    harness.model.script = [ask_for(call("mail__send")), say("Sent.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("send it"))
        approval = await harness.pending()
        refused = await engine.approvals.decide(Decision(approval.id, 1, DecisionType.APPROVE, ANA), member(ANA))
        reason = "An approver must approve this, as the profile of this place says."
        assert refused == NotAllowed(f"You may not approve this. {reason} It needs ben.")
        await engine.approvals.decide(Decision(approval.id, 1, DecisionType.APPROVE, BEN), member(BEN))
        view = await harness.surface.wait_for_end(receipt.turn_id)
    assert tool_steps(view)[0].status is StepStatus.DONE
