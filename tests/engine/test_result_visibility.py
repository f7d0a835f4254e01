"""Results that one user received are hidden from users without access to the tool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.domain.approvals import MEMBERS, ApprovalPolicy
from bot.domain.conversations import Author, InboundMessage
from bot.domain.messages import TextPart, ToolCall, ToolResult
from bot.domain.policies import Rule
from bot.domain.profiles import Binding, Profile
from bot.domain.tools import CallOutcomeUnknown, ToolOutcome
from bot.domain.turns import StepStatus, ToolRef, ToolReplay, ToolStep
from bot.engine.builtin_tools.read_result import ReadResult
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.information_flow import GONE, ResultVisibility
from bot.engine.policy.rules import Policies, RuleBook
from bot.engine.prompt.history import WITHHELD_RESULT, HistoryBudget
from bot.errors import NotFound
from tests.engine.conftest import EngineHarness
from tests.engine.test_history import large
from tests.fakes.parts import ANA, BEN, HALL, ask_for, call, message, running, say, text_outcome, tool, words

DENY, ALLOW = ApprovalPolicy.ALWAYS_DENY, ApprovalPolicy.ALWAYS_ALLOW
BENS = frozenset({BEN.principal})
REFUSED = "A policy forbids hr__read to the present author, so its results are not shown."
NOT_ENABLED = "hr__read is not enabled in this conversation's profile, so its results are not shown here."
QUIET = Profile("p1", "quiet", servers=frozenset({"id-mail"}))


def reading(where: str, call_id: str = "r1") -> ToolCall:
    return call("countersign__read_result", call_id, id=where)


@pytest.fixture
def harness(harness: EngineHarness) -> EngineHarness:
    """A harness with an allowed tool that returns a large result."""

    async def answer(wanted: ToolCall, _context: object) -> ToolOutcome:
        return text_outcome(wanted, large())

    harness.toolbox.add(tool("hr__read", read_only=True, server_id="id-hr"), answer)
    harness.rules = RuleBook(Policies(ALLOW), Approvers())
    return harness


def deny(harness: EngineHarness, **what: Any) -> None:
    assert harness.rules is not None
    harness.rules.amend([Rule(DENY, **what)], [], [])


def bind(harness: EngineHarness, profile: Profile, *rules: Rule) -> None:
    assert harness.rules is not None
    harness.rules.amend(rules, [profile], [Binding(str(HALL).rpartition(":")[0], profile.id)])


async def last_prompt(harness: EngineHarness, *asked: tuple[Author, str], replay: ToolReplay = ToolReplay.NAMES) -> str:
    """Ask these questions and return the prompt before the last answer."""
    engine = harness.engine(memory=HistoryBudget(replay=replay))
    async with running(engine):
        for author, question in asked:
            receipt = await engine.receive(message(question, author=author))
            await harness.surface.wait_for_end(receipt.turn_id)
    return words(harness.model.requests[-1])[-1]


ANA_READS = (ask_for(call("hr__read", of="sam")), say("Read."))


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param({"server": "hr", "askers": BENS}, id="its server"),
        pytest.param({"server_id": "id-hr", "tool": "read", "askers": BENS}, id="the tool"),
        pytest.param({"arguments": {"of": "s*"}, "askers": BENS}, id="the arguments it was called with"),
        pytest.param({"annotations": {"read_only": True}, "askers": BENS}, id="all that read"),
        pytest.param({"server": "hr"}, id="to everybody by now"),
    ],
)
async def test_results_of_a_denied_tool_are_kept_from_the_user(harness: EngineHarness, rule: dict[str, Any]) -> None:
    harness.model.script = [*ANA_READS, ask_for(reading("1.2")), say("I may not.")]
    engine = harness.engine()
    async with running(engine):
        await harness.surface.wait_for_end((await engine.receive(message("read it"))).turn_id)
        deny(harness, **rule)
        await harness.surface.wait_for_end((await engine.receive(message("and its end?", author=BEN))).turn_id)
    assert words(harness.model.requests[-1])[-1] == REFUSED


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param({"server": "hr", "askers": frozenset({"test:cleo"})}, id="another person"),
        pytest.param({"server": "mail", "askers": BENS}, id="another server"),
        pytest.param({"arguments": {"of": "priya"}, "askers": BENS}, id="other arguments"),
    ],
)
async def test_results_of_an_allowed_tool_are_read_to_the_user(harness: EngineHarness, rule: dict[str, Any]) -> None:
    deny(harness, **rule)
    harness.model.script = [*ANA_READS, ask_for(reading("1.2")), say("There.")]
    assert (await last_prompt(harness, (ANA, "read it"), (BEN, "and on"))).startswith("000000000 ")


async def test_an_unknown_user_gets_no_result_that_members_are_denied(
    harness: EngineHarness,
) -> None:
    async def unknown(*_asked: object) -> None:
        raise NotFound("There is nobody of that name.")

    harness.model.script = [*ANA_READS, ask_for(reading("1.2")), say("I may not.")]
    engine = harness.engine()
    async with running(engine):
        await harness.surface.wait_for_end((await engine.receive(message("read it"))).turn_id)
        deny(harness, server="hr", askers=frozenset({MEMBERS}))
        harness.surface.member = unknown  # type: ignore[method-assign, assignment]
        await harness.surface.wait_for_end((await engine.receive(message("and on", author=BEN))).turn_id)
    assert words(harness.model.requests[-1])[-1] == REFUSED


async def test_a_page_of_a_result_follows_the_rights_of_the_result(harness: EngineHarness) -> None:
    deny(harness, server="hr", askers=BENS)
    harness.model.script = [
        *(*ANA_READS, ask_for(reading("1.2")), say("There.")),
        *(ask_for(reading("2.2")), say("I may not.")),
    ]
    assert await last_prompt(harness, (ANA, "read it"), (ANA, "and on"), (BEN, "what was that?")) == REFUSED


async def test_results_of_a_removed_tool_follow_its_last_name(harness: EngineHarness) -> None:
    deny(harness, server="hr", askers=BENS)
    harness.model.script = [
        *ANA_READS,
        ask_for(reading("1.2")),
        say("No."),
        ask_for(reading("1.2", "r2")),
        say("There."),
    ]
    engine = harness.engine()
    async with running(engine):
        await harness.surface.wait_for_end((await engine.receive(message("read it"))).turn_id)
        harness.toolbox.tools.clear()
        harness.toolbox.add(tool("hr__read", server_id="id-other"))
        await harness.surface.wait_for_end((await engine.receive(message("and on", author=BEN))).turn_id)
        assert words(harness.model.requests[-1])[-1] == REFUSED
        await harness.surface.wait_for_end((await engine.receive(message("and on, again"))).turn_id)
    assert words(harness.model.requests[-1])[-1].startswith("000000000 ")


@pytest.mark.parametrize("askers", [pytest.param(BENS, id="to some"), pytest.param(frozenset(), id="to everybody")])
async def test_results_of_a_renamed_server_follow_its_present_name(
    harness: EngineHarness, askers: frozenset[str]
) -> None:
    harness.model.script = [*ANA_READS, ask_for(reading("1.2")), say("I may not."), say("I do not know.")]
    engine = harness.engine()
    async with running(engine):
        await harness.surface.wait_for_end((await engine.receive(message("read it"))).turn_id)
        harness.toolbox.tools.clear()
        harness.toolbox.add(tool("people__read", read_only=True, server_id="id-hr"))
        deny(harness, server="people", askers=askers)
        await harness.surface.wait_for_end((await engine.receive(message("and on", author=BEN))).turn_id)
    assert words(harness.model.requests[-1])[-1] == REFUSED
    await last_prompt(harness, (BEN, "and?"), replay=ToolReplay.FULL)
    assert [text for text in words(harness.model.requests[-1]) if "000000000" in text] == []


async def test_results_of_a_renamed_server_are_not_denied_by_its_old_name(harness: EngineHarness) -> None:
    deny(harness, server="hr", askers=BENS)
    harness.model.script = [*ANA_READS, ask_for(reading("1.2")), say("There.")]
    engine = harness.engine()
    async with running(engine):
        await harness.surface.wait_for_end((await engine.receive(message("read it"))).turn_id)
        harness.toolbox.tools.clear()
        harness.toolbox.add(tool("people__read", read_only=True, server_id="id-hr"))
        await harness.surface.wait_for_end((await engine.receive(message("and on", author=BEN))).turn_id)
    assert words(harness.model.requests[-1])[-1].startswith("000000000 ")


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        pytest.param(QUIET, NOT_ENABLED, id="its server is not enabled"),
        pytest.param(Profile("p1", "few", tools={"id-hr": frozenset({"write"})}), NOT_ENABLED, id="others alone are"),
        pytest.param(Profile("p1", "hr", servers=frozenset({"id-hr"})), "000000000 ", id="it is enabled"),
    ],
)
async def test_results_of_a_tool_that_the_profile_does_not_enable_are_kept_back(
    harness: EngineHarness, profile: Profile, said: str
) -> None:
    harness.model.script = [*ANA_READS, ask_for(reading("1.2")), say("Well."), say("Well.")]
    engine = harness.engine()
    async with running(engine):
        await harness.surface.wait_for_end((await engine.receive(message("read it"))).turn_id)
        bind(harness, profile)
        await harness.surface.wait_for_end((await engine.receive(message("and on"))).turn_id)
    assert words(harness.model.requests[-1])[-1].startswith(said)
    await last_prompt(harness, (ANA, "and?"), replay=ToolReplay.FULL)
    assert (WITHHELD_RESULT in words(harness.model.requests[-1])) == (said == NOT_ENABLED)


async def test_the_text_of_a_call_of_unknown_outcome_is_kept_back_too(harness: EngineHarness) -> None:
    async def lost(_wanted: ToolCall, _context: object) -> ToolOutcome:
        return CallOutcomeUnknown("The server said: 000000000, and then no more.")

    harness.toolbox.tools.clear()
    harness.toolbox.add(tool("hr__write", server_id="id-hr"), lost)
    deny(harness, server="hr", askers=BENS)
    harness.model.script = [ask_for(call("hr__write")), say("It is unclear."), say("I do not know.")]
    await last_prompt(harness, (ANA, "write it"), (BEN, "what came of it?"), replay=ToolReplay.FULL)
    assert [text for text in words(harness.model.requests[-1]) if "000000000" in text] == []
    assert WITHHELD_RESULT in words(harness.model.requests[-1])


async def test_an_unknown_outcome_itself_is_shown_to_every_user(harness: EngineHarness) -> None:
    deny(harness, server="hr", askers=BENS)
    assert harness.rules is not None
    rules, offered = harness.rules.rules(HALL), await harness.toolbox.offer()
    disclosure = ResultVisibility(rules, rules.all, offered, BEN, None, harness.log)
    cut_off = ToolStep(2, call("hr__read"), ToolRef("hr", "read", server_id="id-hr"), StepStatus.UNKNOWN)
    assert await disclosure.rejection_reason(1, cut_off) == ""
    answered = replace(cut_off, result=ToolResult("c1", (TextPart("A server has said this."),)))
    assert await disclosure.rejection_reason(1, answered) == REFUSED


async def test_a_page_of_a_result_that_is_deleted_is_not_told(harness: EngineHarness) -> None:
    """The page's tool is unknown, so the rules cannot show whether the author may see it."""
    deny(harness, server="hr", askers=BENS)
    assert harness.rules is not None
    rules, offered = harness.rules.rules(HALL), await harness.toolbox.offer()
    disclosure = ResultVisibility(rules, rules.all, offered, BEN, None, harness.log)
    page = ToolStep(2, reading("1.2"), ReadResult.reference, StepStatus.DONE, result=ToolResult("c1", (TextPart("0"),)))
    assert await disclosure.rejection_reason(3, page) == GONE


async def test_repeated_results_of_earlier_turns_are_kept_from_a_denied_user(
    harness: EngineHarness,
) -> None:
    deny(harness, server="hr", askers=BENS)
    harness.model.script = [*ANA_READS, say("I do not know."), say("It says zero.")]
    await last_prompt(harness, (ANA, "read it"), (BEN, "what does it say?"), replay=ToolReplay.FULL)
    assert [text for text in words(harness.model.requests[-1]) if "000000000" in text] == []
    assert WITHHELD_RESULT in words(harness.model.requests[-1])
    await last_prompt(harness, (ANA, "and what?"), replay=ToolReplay.FULL)
    assert WITHHELD_RESULT not in words(harness.model.requests[-1])
    assert [text[:10] for text in words(harness.model.requests[-1]) if "000000000" in text] == ["000000000 "]


async def test_a_result_run_by_hand_is_kept_from_the_model_of_a_denied_user(
    harness: EngineHarness,
) -> None:
    deny(harness, server="hr", askers=BENS)
    harness.model.script = [say("I do not know.")]
    engine = harness.engine()
    by_hand = InboundMessage(("k",), HALL, ANA, "hr read", call=call("hr__read"))
    async with running(engine):
        await harness.surface.wait_for_end((await engine.receive(by_hand)).turn_id)
        await harness.surface.wait_for_end((await engine.receive(message("what is that?", author=BEN))).turn_id)
    said = " ".join(words(harness.model.requests[-1]))
    assert WITHHELD_RESULT in said
    assert "000000000" not in said


async def test_a_refused_caller_reads_the_reason_again(harness: EngineHarness) -> None:
    deny(harness, server="hr", askers=BENS)
    harness.model.script = [ask_for(call("hr__read")), say("I may not."), say("As I said.")]
    await last_prompt(harness, (BEN, "read it"), (BEN, "why not?"), replay=ToolReplay.FULL)
    assert "Not run: a policy forbids hr__read." in words(harness.model.requests[-1])


async def summed_up(harness: EngineHarness) -> str:
    """Return the prompt of the summary of a turn in which Ana called the tool."""
    harness.model.script = [ANA_READS[0], say("word " * 800), say("They read."), say("Yes.")]
    engine = harness.engine(memory=HistoryBudget(tokens=1_000, replay=ToolReplay.FULL))
    async with running(engine):
        for question in ("read it", "and now?"):
            await harness.surface.wait_for_end((await engine.receive(message(question))).turn_id)
    (summed,) = [request for request in harness.model.requests if "Sum up" in words(request)[0]]
    return words(summed)[-1]


@pytest.mark.parametrize(
    ("rule", "is_told"),
    [
        pytest.param({"server": "hr", "askers": BENS}, False, id="denied to some"),
        pytest.param({"server": "hr", "profile": "strict"}, False, id="denied in a profile that does not hold there"),
        pytest.param({"server": "mail", "askers": BENS}, True, id="another tool is denied"),
    ],
)
async def test_a_summary_which_everybody_is_told_is_made_without_results_that_are_denied_to_some(
    harness: EngineHarness, rule: dict[str, Any], is_told: bool
) -> None:
    deny(harness, **rule)
    summed = await summed_up(harness)
    assert ("000000000 " in summed, WITHHELD_RESULT in summed) == (is_told, not is_told)


@pytest.mark.parametrize(
    ("rule", "is_told"),
    [
        pytest.param({"profile": "loose"}, False, id="in a profile alone"),
        pytest.param({"askers": frozenset({ANA.principal})}, False, id="to some alone"),
        pytest.param({}, True, id="to everybody"),
    ],
)
async def test_where_rules_allow_a_summary_has_results_allowed_to_every_user(
    harness: EngineHarness, rule: dict[str, Any], is_told: bool
) -> None:
    harness.rules = RuleBook(Policies(DENY), Approvers())
    bind(harness, Profile("p1", "loose"), Rule(ALLOW, server="hr", **rule))
    summed = await summed_up(harness)
    assert ("000000000 " in summed, WITHHELD_RESULT in summed) == (is_told, not is_told)


async def test_where_rules_allow_results_are_for_users_whom_one_allows_the_tool(
    harness: EngineHarness,
) -> None:
    harness.rules = RuleBook(Policies(DENY), Approvers())
    harness.rules.amend([Rule(ALLOW, server="hr", askers=frozenset({ANA.principal}))], [], [])
    harness.model.script = [*ANA_READS, ask_for(reading("1.2")), say("There."), ask_for(reading("1.2")), say("No.")]
    assert await last_prompt(harness, (ANA, "read it"), (ANA, "and on"), (BEN, "and on?")) == REFUSED
    assert [text for text in words(harness.model.requests[3]) if text.startswith("000000000 ")] != []
