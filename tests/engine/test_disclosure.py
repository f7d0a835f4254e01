"""What a tool has told one person is not told to another whom a rule denies that tool."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import Author, InboundMessage
from bot.domain.messages import ToolCall
from bot.domain.past import Replay
from bot.domain.policies import Rule
from bot.domain.terms import MEMBERS
from bot.domain.tools import ToolOutcome
from bot.engine.memory import KEPT_BACK, Memory
from bot.engine.policy import Policies, Signatories
from bot.engine.rules import RuleBook
from bot.errors import NotFound
from tests.engine.conftest import House
from tests.engine.test_remembering import large
from tests.fakes.parts import ANA, BEN, HALL, ask_for, call, message, returned, running, say, tool, words

DENY, ALLOW = ApprovalPolicy.ALWAYS_DENY, ApprovalPolicy.ALWAYS_ALLOW
BENS = frozenset({BEN.principal})
REFUSED = "A policy forbids hr__read to whoever asks now, so its results are not read to them either."


def reading(where: str, call_id: str = "r1") -> ToolCall:
    return call("countersign__read_result", call_id, id=where)


@pytest.fixture
def house(house: House) -> House:
    """A tool with a large answer, which everybody may use."""

    async def answer(wanted: ToolCall, _context: object) -> ToolOutcome:
        return returned(wanted, large())

    house.toolbox.add(tool("hr__read", read_only=True, server_id="id-hr"), answer)
    house.rules = RuleBook(Policies(ALLOW), Signatories())
    return house


def deny(house: House, **what: Any) -> None:
    assert house.rules is not None
    house.rules.amend([Rule(DENY, **what)], [], [])


async def told(house: House, *asked: tuple[Author, str], replay: Replay = Replay.NAMES) -> str:
    """What the model read last before it answered the last of these."""
    engine = house.engine(memory=Memory(replay=replay))
    async with running(engine):
        for author, question in asked:
            receipt = await engine.receive(message(question, author=author))
            await house.surface.ended(receipt.turn_id)
    return words(house.model.requests[-1])[-1]


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
async def test_who_is_denied_a_tool_is_not_read_what_it_has_told_others(house: House, rule: dict[str, Any]) -> None:
    house.model.script = [*ANA_READS, ask_for(reading("1.2")), say("I may not.")]
    engine = house.engine()
    async with running(engine):
        await house.surface.ended((await engine.receive(message("read it"))).turn_id)
        deny(house, **rule)
        await house.surface.ended((await engine.receive(message("and its end?", author=BEN))).turn_id)
    assert words(house.model.requests[-1])[-1] == REFUSED


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param({"server": "hr", "askers": frozenset({"test:cleo"})}, id="another person"),
        pytest.param({"server": "mail", "askers": BENS}, id="another server"),
        pytest.param({"arguments": {"of": "priya"}, "askers": BENS}, id="other arguments"),
    ],
)
async def test_who_is_denied_something_else_is_read_it(house: House, rule: dict[str, Any]) -> None:
    deny(house, **rule)
    house.model.script = [*ANA_READS, ask_for(reading("1.2")), say("There.")]
    assert (await told(house, (ANA, "read it"), (BEN, "and on"))).startswith("000000000 ")


async def test_to_somebody_of_whom_nobody_knows_who_they_are_nothing_is_read_that_members_are_denied(
    house: House,
) -> None:
    async def unknown(*_asked: object) -> None:
        raise NotFound("There is nobody of that name.")

    house.model.script = [*ANA_READS, ask_for(reading("1.2")), say("I may not.")]
    engine = house.engine()
    async with running(engine):
        await house.surface.ended((await engine.receive(message("read it"))).turn_id)
        deny(house, server="hr", askers=frozenset({MEMBERS}))
        house.surface.member = unknown  # type: ignore[method-assign, assignment]
        await house.surface.ended((await engine.receive(message("and on", author=BEN))).turn_id)
    assert words(house.model.requests[-1])[-1] == REFUSED


async def test_a_page_of_a_result_is_read_to_nobody_who_may_not_read_the_result(house: House) -> None:
    deny(house, server="hr", askers=BENS)
    house.model.script = [
        *(*ANA_READS, ask_for(reading("1.2")), say("There.")),
        *(ask_for(reading("2.2")), say("I may not.")),
    ]
    assert await told(house, (ANA, "read it"), (ANA, "and on"), (BEN, "what was that?")) == REFUSED


async def test_what_a_tool_has_said_that_is_gone_is_read_by_the_name_that_it_had(house: House) -> None:
    deny(house, server="hr", askers=BENS)
    house.model.script = [*ANA_READS, ask_for(reading("1.2")), say("No."), ask_for(reading("1.2", "r2")), say("There.")]
    engine = house.engine()
    async with running(engine):
        await house.surface.ended((await engine.receive(message("read it"))).turn_id)
        house.toolbox.tools.clear()
        house.toolbox.add(tool("hr__read", server_id="id-other"))
        await house.surface.ended((await engine.receive(message("and on", author=BEN))).turn_id)
        assert words(house.model.requests[-1])[-1] == REFUSED
        await house.surface.ended((await engine.receive(message("and on, again"))).turn_id)
    assert words(house.model.requests[-1])[-1].startswith("000000000 ")


async def test_results_of_earlier_turns_that_are_told_again_are_kept_back_from_who_is_denied_the_tool(
    house: House,
) -> None:
    deny(house, server="hr", askers=BENS)
    house.model.script = [*ANA_READS, say("I do not know."), say("It says zero.")]
    await told(house, (ANA, "read it"), (BEN, "what does it say?"), replay=Replay.FULL)
    assert [text for text in words(house.model.requests[-1]) if "000000000" in text] == []
    assert KEPT_BACK in words(house.model.requests[-1])
    await told(house, (ANA, "and what?"), replay=Replay.FULL)
    assert KEPT_BACK not in words(house.model.requests[-1])
    assert [text[:10] for text in words(house.model.requests[-1]) if "000000000" in text] == ["000000000 "]


async def test_what_a_person_ran_by_hand_is_kept_back_from_a_model_that_asks_for_who_is_denied_it(
    house: House,
) -> None:
    deny(house, server="hr", askers=BENS)
    house.model.script = [say("I do not know.")]
    engine = house.engine()
    by_hand = InboundMessage(("k",), HALL, ANA, "hr read", call=call("hr__read"))
    async with running(engine):
        await house.surface.ended((await engine.receive(by_hand)).turn_id)
        await house.surface.ended((await engine.receive(message("what is that?", author=BEN))).turn_id)
    said = " ".join(words(house.model.requests[-1]))
    assert KEPT_BACK in said
    assert "000000000" not in said


async def test_who_was_refused_a_call_is_told_again_why(house: House) -> None:
    deny(house, server="hr", askers=BENS)
    house.model.script = [ask_for(call("hr__read")), say("I may not."), say("As I said.")]
    await told(house, (BEN, "read it"), (BEN, "why not?"), replay=Replay.FULL)
    assert "Not run: a policy forbids hr__read." in words(house.model.requests[-1])


@pytest.mark.parametrize(
    ("rule", "is_told"),
    [
        pytest.param({"server": "hr", "askers": BENS}, False, id="denied to some"),
        pytest.param({"server": "mail", "askers": BENS}, True, id="another tool is denied"),
    ],
)
async def test_a_summary_which_everybody_is_told_is_made_without_results_that_are_denied_to_some(
    house: House, rule: dict[str, Any], is_told: bool
) -> None:
    deny(house, **rule)
    long = say("word " * 800)
    house.model.script = [ANA_READS[0], long, say("They read."), say("Yes.")]
    engine = house.engine(memory=Memory(tokens=1_000, replay=Replay.FULL))
    async with running(engine):
        for question in ("read it", "and now?"):
            await house.surface.ended((await engine.receive(message(question))).turn_id)
    (summed,) = [request for request in house.model.requests if "Sum up" in words(request)[0]]
    assert ("000000000 " in words(summed)[-1], KEPT_BACK in words(summed)[-1]) == (is_told, not is_told)


async def test_where_nothing_runs_that_no_rule_allows_results_are_for_those_whom_one_allows_the_tool(
    house: House,
) -> None:
    house.rules = RuleBook(Policies(DENY), Signatories())
    house.rules.amend([Rule(ALLOW, server="hr", askers=frozenset({ANA.principal}))], [], [])
    house.model.script = [*ANA_READS, ask_for(reading("1.2")), say("There."), ask_for(reading("1.2")), say("No.")]
    assert await told(house, (ANA, "read it"), (ANA, "and on"), (BEN, "and on?")) == REFUSED
    assert [text for text in words(house.model.requests[3]) if text.startswith("000000000 ")] != []
