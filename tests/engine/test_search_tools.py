"""Tool search, for models that cannot receive all tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from bot.domain.approvals import AlreadyDecided, ApprovalPolicy, ApprovalRequirements, Decided, ThreadScope, fingerprint
from bot.domain.audit import AuditQuery
from bot.domain.completions import Capabilities, ModelRequest
from bot.domain.grants import GrantRequest
from bot.domain.messages import MessageRole, ToolCall, ToolResult
from bot.domain.policies import Rule, TaintMode
from bot.domain.profiles import Binding, Profile
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import ServerGuidance, Tool, ToolSearch, ToolSet
from bot.domain.turns import StepStatus, ToolReplay, ToolStep, TurnStatus, TurnView
from bot.engine.builtin_tools.search_tools import CALL_TOOL, SEARCH_TOOLS, SearchTools, search_definitions
from bot.engine.builtin_tools.tool_index import ToolIndexes
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.authorization import away_text, barred_reason, withheld_reason
from bot.engine.policy.rules import Policies, RuleBook
from bot.engine.prompt.builder import FEW_TOOLS, RefusedTools, ToolSelection
from bot.engine.prompt.history import HistoryBudget
from bot.errors import ModelRejected
from bot.ports.platform import RevisionAccepted
from bot.storage.reporting import SqlReporting
from tests.engine.conftest import EngineHarness
from tests.engine.test_turns import awaiting, calls_of, decision
from tests.fakes.parts import ANA, BEN, ask_for, call, member, message, running, say, tool

OWN = [SEARCH_TOOLS, CALL_TOOL, "countersign__read_result"]
ALLOW, DENY, ASK = ApprovalPolicy.ALWAYS_ALLOW, ApprovalPolicy.ALWAYS_DENY, ApprovalPolicy.ASK_USER
SEND = tool(
    "mail__send",
    server_id="id-mail",
    description="Sends a letter.",
    input_schema={"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]},
)
TO_SAM = {"to": "sam@example.org"}


def found_tool_call(name: str, call_id: str = "c1", /, **arguments: Any) -> ToolCall:
    return ToolCall(call_id, CALL_TOOL, {"name": name, "arguments": arguments})


def searching(query: str, call_id: str = "s1") -> ToolCall:
    return call(SEARCH_TOOLS, call_id, query=query)


def names(request: ModelRequest) -> list[str]:
    return [each.name for each in request.tools]


def results(request: ModelRequest) -> list[ToolResult]:
    return [part for each in request.messages for part in each.parts if isinstance(part, ToolResult)]


async def run_turn(harness: EngineHarness, *script: Any, **changes: object) -> TurnView:
    harness.model.script = [*script]
    engine = harness.engine(**changes)
    async with running(engine):
        return await harness.surface.wait_for_end((await engine.receive(message("do it"))).turn_id)


def fill(harness: EngineHarness, count: int = 40) -> None:
    """Add `count` tools that are irrelevant to the questions."""
    for n in range(count):
        harness.toolbox.add(tool(f"lab__probe_{n:03}", server_id="id-lab", description="Measures."))


@pytest.fixture
def harness(harness: EngineHarness) -> EngineHarness:
    """A harness with forty tools and SEND."""
    fill(harness)
    harness.toolbox.add(SEND)
    return harness


# ---------------------------------------------------------------------- tools offered to a model


async def test_of_many_tools_a_model_is_given_the_same_three_of_the_bot_in_every_request(
    harness: EngineHarness,
) -> None:
    harness.allow("mail__send")
    harness.model.script = [
        ask_for(searching("send a letter")),
        ask_for(found_tool_call("mail__send", **TO_SAM)),
        say("Sent."),
        say("And?"),
    ]
    engine = harness.engine()
    async with running(engine):
        view = await harness.surface.wait_for_end((await engine.receive(message("write to Sam"))).turn_id)
        await harness.surface.wait_for_end((await engine.receive(message("and now"))).turn_id)
    assert [names(request) for request in harness.model.requests] == [OWN] * 4
    first, *others = (request.tools for request in harness.model.requests)
    assert all(each == first for each in others)
    assert view.turn.status is TurnStatus.DONE
    assert [step.notes for step in view.steps if not isinstance(step, ToolStep)] == [(), (), ()]
    assert "41 tools, of these servers: lab (40), mail (1)." in harness.model.requests[0].tools[0].description


@pytest.mark.parametrize(
    ("count", "words", "window", "all_of_them"),
    [
        pytest.param(FEW_TOOLS, 10, 128_000, True, id="few and small"),
        pytest.param(FEW_TOOLS + 1, 10, 128_000, False, id="many"),
        pytest.param(10, 4_000, 128_000, False, id="few that take more than 5 % of the window"),
        pytest.param(10, 3_000, 1_000_000, True, id="the same in a larger window"),
        pytest.param(5, 40_000, 128_000, True, id="as many as a search finds"),
        pytest.param(8, 60, 8_192, True, id="few that take less than a search in a small window"),
        pytest.param(8, 120, 8_192, False, id="few that take more than a search in a small window"),
    ],
)
def test_all_tools_are_given_while_they_are_few(count: int, words: int, window: int, all_of_them: bool) -> None:
    offered = ToolSet(tuple(tool(f"s__t{n}", description="word " * words) for n in range(count)))
    got = ToolSelection().select(offered, "m", Capabilities(context_tokens=window))
    assert (got.tools == offered.tools) is all_of_them
    if not all_of_them:
        assert [each.name for each in got.tools] == OWN


@pytest.mark.parametrize("able", [Capabilities(searches=False), Capabilities()], ids=["a model that cannot", "off"])
def test_without_search_a_model_is_given_as_many_as_services_take(able: Capabilities) -> None:
    offered = ToolSet(tuple(tool(f"s__t{n:03}") for n in range(200)))
    search = ToolSearch.OFF if able.searches else ToolSearch.AUTO
    got = ToolSelection(search).select(offered, "m", able)
    assert len(got.tools) == 128
    assert len(got.absent) == 1


# ---------------------------------------------------------------------- searching


async def test_a_search_needs_no_approval_and_says_all_that_a_call_takes(harness: EngineHarness) -> None:
    view = await run_turn(harness, ask_for(searching("send a letter")), say("Found."))
    (step,) = calls_of(view)
    assert (step.status, step.approval) == (StepStatus.DONE, None)
    (result,) = results(harness.model.requests[-1])
    first, second, *hits = result.text.splitlines()
    assert first == 'Tools for "send a letter": mail__send'
    assert CALL_TOOL in second
    assert [json.loads(hit) for hit in hits] == [
        {"name": "mail__send", "description": "Sends a letter.", "arguments": SEND.input_schema}
    ]
    assert harness.toolbox.calls == []


async def test_five_are_found_at_most_and_the_words_of_their_server_count(harness: EngineHarness) -> None:
    harness.toolbox.guidance = (ServerGuidance("lab", description="The observatory"),)
    await run_turn(harness, ask_for(searching("observatory")), say("Found."))
    (result,) = results(harness.model.requests[-1])
    assert result.text.splitlines()[0] == 'Tools for "observatory": ' + ", ".join(
        f"lab__probe_{n:03}" for n in range(5)
    )


async def test_a_search_that_finds_nothing_or_asks_for_nothing_says_so(harness: EngineHarness) -> None:
    unreadable = ToolCall("s3", SEARCH_TOOLS, unreadable="{quer")
    asked = ask_for(searching("zebra", "s1"), searching("  ", "s2"), unreadable)
    view = await run_turn(harness, asked, say("Nothing."))
    assert [step.status for step in calls_of(view)] == [StepStatus.DONE, StepStatus.FAILED, StepStatus.FAILED]
    nothing, empty, none = results(harness.model.requests[-1])
    assert nothing.text.splitlines() == [
        (
            'No tool fits "zebra". Search again in other English words: what the tool should do, and with what,'
            " such as: list calendar events."
        ),
        "Servers with their number of tools:",
        "lab (40): lab__probe_000, lab__probe_001, lab__probe_002, lab__probe_003, lab__probe_004 …",
        "mail (1): mail__send",
    ]
    assert empty.is_error
    assert none.is_error


async def test_without_a_match_the_closest_server_and_its_purpose_come_first(harness: EngineHarness) -> None:
    harness.toolbox.guidance = (ServerGuidance("mail", description="Letters of the company"),)
    await run_turn(harness, ask_for(searching("mammoth")), say("Nothing."))
    (result,) = results(harness.model.requests[-1])
    assert result.text.splitlines()[1:3] == [
        "Servers with their number of tools, the closest first:",
        "mail (1): Letters of the company",
    ]


async def test_matches_beyond_five_are_told_by_name(harness: EngineHarness) -> None:
    await run_turn(harness, ask_for(searching("measures")), say("Found."))
    (result,) = results(harness.model.requests[-1])
    _, second, *hits = result.text.splitlines()
    assert len(hits) == 5
    assert 'whose arguments "names" gets: lab__probe_005, lab__probe_006, lab__probe_007,' in second


async def test_several_tools_are_fetched_by_their_exact_names_without_a_search(harness: EngineHarness) -> None:
    wanted = call(SEARCH_TOOLS, "s1", names=["mail__send", "lab__probe_003", "mail__sent"])
    view = await run_turn(harness, ask_for(wanted), say("Found."))
    (step,) = calls_of(view)
    assert (step.status, step.approval) == (StepStatus.DONE, None)
    (result,) = results(harness.model.requests[-1])
    first, missing, _, *hits = result.text.splitlines()
    assert first == "Tools by name: mail__send, lab__probe_003"
    assert missing == "There is no tool called 'mail__sent'. Did you mean mail__send?"
    assert [json.loads(hit)["name"] for hit in hits] == ["mail__send", "lab__probe_003"]
    assert json.loads(hits[0])["arguments"] == SEND.input_schema


@pytest.mark.parametrize(
    ("names", "first"),
    [
        ("mail__send", "Tools by name: mail__send"),
        ("mail__send, lab__probe_001", "Tools by name: mail__send, lab__probe_001"),
        ('["mail__send"]', "Tools by name: mail__send"),
        (["send"], "Tools by name: mail__send"),
        (["mail__send", "mail__send", 7, None, ""], "Tools by name: mail__send"),
        (
            [f"lab__probe_{n:03}" for n in range(40)],
            "Tools by name: " + ", ".join(f"lab__probe_{n:03}" for n in range(10)),
        ),
        ([CALL_TOOL], "No tool has one of these names."),
    ],
)
async def test_names_count_as_they_are_meant(harness: EngineHarness, names: object, first: str) -> None:
    await run_turn(harness, ask_for(call(SEARCH_TOOLS, "s1", names=names)), say("Found."))
    assert results(harness.model.requests[-1])[0].text.splitlines()[0] == first


async def test_a_tool_of_an_absent_server_or_under_review_is_reported_as_such() -> None:
    offered = ToolSet(
        (SEND, tool("staging__deploy")),
        unavailable=frozenset({"prod"}),
        withheld=frozenset({"mail__burn"}),
        excluded=frozenset({"mail__bar"}),
    )

    async def enabled_tools() -> ToolSet:
        return offered

    wanted = call(SEARCH_TOOLS, "s1", names=["prod__deploy", "mail__burn", "mail__bar"], query="send")
    told = (await SearchTools(enabled_tools, ToolIndexes()).call(wanted)).text.splitlines()
    assert told[:4] == [
        "No tool has one of these names.",
        away_text("prod"),
        withheld_reason("mail__burn"),
        barred_reason("mail__bar"),
    ]
    assert told[4] == 'Tools for "send": mail__send'
    assert told[-1] == "Away now, with all of their tools: prod."


async def test_a_name_that_the_profile_does_not_enable_is_neither_listed_nor_fetched(harness: EngineHarness) -> None:
    harness.rules = RuleBook(Policies(ALLOW), Approvers())
    harness.rules.amend([], [Profile("p", "lab", servers=frozenset({"id-lab"}))], [Binding(EVERYWHERE, "p")])
    await run_turn(harness, ask_for(call(SEARCH_TOOLS, "s1", names=["mail__send"])), say("No."))
    (result,) = results(harness.model.requests[-1])
    assert result.text.splitlines() == ["No tool has one of these names.", "There is no tool called 'mail__send'."]
    assert "mail" not in json.dumps(harness.model.requests[0].tools[0].input_schema).replace("email", "")


# ---------------------------------------------------------------------- the list of names


def listed_names(tools: tuple[Tool, ...], names_tokens: int, window: int = 128_000) -> str:
    capabilities = Capabilities(context_tokens=window)
    got = ToolSelection(names_tokens=names_tokens).select(ToolSet(tools), "m", capabilities).tools
    assert [each.name for each in got] == OWN
    description: str = got[0].input_schema["properties"]["names"]["description"]
    return description.partition("\n")[2]


MANY = tuple(tool(f"{server}__tool_{n:02}") for server, count in (("b", 40), ("a", 3), ("c", 5)) for n in range(count))


def test_a_model_that_searches_sees_the_names_of_all_tools_by_server_in_an_order_that_stays() -> None:
    names = listed_names(MANY, 2_500)
    assert [line.partition(": ")[0] for line in names.splitlines()] == ["a", "b", "c"]
    assert names.splitlines()[0] == "a: tool_00, tool_01, tool_02"
    assert names == listed_names(MANY[::-1], 2_500)


@pytest.mark.parametrize(("tokens", "servers"), [(0, []), (12, ["a"]), (40, ["a", "c"]), (2_500, ["a", "b", "c"])])
def test_names_are_listed_for_as_many_servers_as_the_budget_has_room_for(tokens: int, servers: list[str]) -> None:
    assert [line.partition(": ")[0] for line in listed_names(MANY, tokens).splitlines()] == servers


def test_every_server_is_named_however_many_there_are() -> None:
    servers = [f"a-server-with-a-name-{n:02}" for n in range(35)]
    many = tuple(tool(f"{server}__tool_{n}") for server in servers for n in range(9))
    search, _ = search_definitions(many, 0)
    assert all(server in json.dumps([search.description, search.input_schema]) for server in servers)
    assert len(search.description) <= 1_024


def test_a_small_window_lists_fewer_names() -> None:
    many = tuple(tool(f"s__a_tool_with_a_long_name_{n:03}") for n in range(100))
    assert listed_names(many, 50_000, window=8_000) == ""
    assert listed_names(many, 50_000).startswith("s: a_tool_with_a_long_name_000, ")


def test_a_tool_without_the_prefix_of_its_server_is_listed_by_its_whole_name() -> None:
    assert listed_names((*MANY, tool("ping")), 2_500).splitlines()[0] == "ping"


async def test_a_tool_too_large_to_show_is_shown_in_outline(harness: EngineHarness) -> None:
    properties = {"to": {"type": "string", "description": "x" * 50_000}, "any": {"anyOf": [{}, {}]}}
    harness.toolbox.add(
        tool("mail__send", input_schema={"type": "object", "properties": properties, "required": ["to"]})
    )
    await run_turn(harness, ask_for(searching("send")), say("Found."))
    (result,) = results(harness.model.requests[-1])
    assert json.loads(result.text.splitlines()[-1])["arguments"] == {
        "type": "object",
        "properties": {"to": {"type": "string"}, "any": {}},
        "required": ["to"],
    }


async def test_tools_that_do_not_fit_beside_a_large_one_are_left_for_another_search(harness: EngineHarness) -> None:
    large = {"type": "object", "properties": {"to": {"type": "string", "description": "x" * 15_000}}}
    for n in range(3):
        harness.toolbox.add(tool(f"mail__send_{n}", input_schema=large))
    await run_turn(harness, ask_for(searching("send")), say("Found."))
    (result,) = results(harness.model.requests[-1])
    assert result.text.splitlines()[0] == 'Tools for "send": mail__send, mail__send_0'
    assert len(result.text) < 20_000


async def test_a_definition_that_no_database_takes_as_it_is_is_found_all_the_same(harness: EngineHarness) -> None:
    harness.toolbox.add(
        tool("mail__send", input_schema={"type": "object", "properties": {"to\ud800": {"const": "\0"}}})
    )
    view = await run_turn(harness, ask_for(searching("send")), say("Found."))
    assert view.turn.status is TurnStatus.DONE
    (result,) = results(harness.model.requests[-1])
    assert json.loads(result.text.splitlines()[-1])["arguments"]["properties"] == {"to\ufffd": {"const": "\0"}}


async def test_a_tool_that_the_profile_does_not_enable_is_neither_found_nor_called(harness: EngineHarness) -> None:
    harness.rules = RuleBook(Policies(ALLOW), Approvers())
    harness.rules.amend([], [Profile("p", "lab", servers=frozenset({"id-lab"}))], [Binding(EVERYWHERE, "p")])
    view = await run_turn(
        harness,
        ask_for(searching("send a letter")),
        ask_for(found_tool_call("mail__send", **TO_SAM)),
        say("It cannot be done."),
    )
    looked, called = results(harness.model.requests[-1])
    assert looked.text.startswith("No tool fits")
    assert called.text == "Not run: mail__send is not enabled in this conversation's profile."
    assert calls_of(view)[-1].status is StepStatus.FAILED
    assert harness.toolbox.calls == []


async def test_a_tool_whose_definition_a_service_refuses_can_still_be_found(harness: EngineHarness) -> None:
    refused = RefusedTools()
    refused.add("", SEND, ModelRejected("No such schema.", tool="mail__send"))
    view = await run_turn(harness, ask_for(searching("send a letter")), say("Found."), refused=refused)
    assert "mail__send" in results(harness.model.requests[-1])[0].text
    assert [step.notes for step in view.steps if not isinstance(step, ToolStep)] == [(), ()]


# ---------------------------------------------------------------------- calls of found tools


async def test_a_call_of_a_found_tool_is_a_call_of_that_tool_and_only_the_message_keeps_how_it_was_written(
    harness: EngineHarness,
) -> None:
    harness.allow("mail__send")
    view = await run_turn(harness, ask_for(found_tool_call("mail__send", "outer", **TO_SAM)), say("Sent."))
    (step,) = calls_of(view)
    assert step.call == ToolCall("outer", "mail__send", TO_SAM)
    assert step.tool is not None
    assert (step.tool.server, step.tool.name, step.tool.definition) == ("mail", "send", SEND.definition)
    assert [(name, arguments) for name, arguments, _ in harness.toolbox.calls] == [("mail__send", TO_SAM)]
    wrote, told = harness.model.requests[-1].messages[-2:]
    assert (wrote.role, wrote.tool_calls) == (
        MessageRole.ASSISTANT,
        (found_tool_call("mail__send", "outer", **TO_SAM),),
    )
    assert [part.call_id for part in told.parts if isinstance(part, ToolResult)] == ["outer"]


async def test_a_tool_that_was_found_may_be_called_by_its_own_name(harness: EngineHarness) -> None:
    harness.allow("mail__send")
    view = await run_turn(harness, ask_for(call("mail__send", **TO_SAM)), say("Sent."))
    assert [step.status for step in calls_of(view)] == [StepStatus.DONE]
    assert harness.toolbox.names == ["mail__send"]


async def test_the_approval_is_for_the_tool_and_its_arguments_and_holds_after_a_restart(
    harness: EngineHarness,
) -> None:
    harness.model.script = [ask_for(found_tool_call("mail__send", **TO_SAM)), say("Sent.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("write to Sam"))
        view = await harness.surface.wait_for(lambda view: bool(awaiting(view)))
    (step,) = awaiting(view)
    assert step.approval is not None
    assert step.approval.fingerprint == fingerprint(SEND, TO_SAM)
    assert harness.toolbox.calls == []
    again = harness.engine()
    async with running(again):
        assert isinstance(await again.approvals.decide(decision(step), member(ANA)), Decided)
        assert isinstance(await again.approvals.decide(decision(step), member(ANA)), AlreadyDecided)
        ended = await harness.surface.wait_for_end(receipt.turn_id)
    assert ended.turn.status is TurnStatus.DONE
    assert [(name, arguments) for name, arguments, _ in harness.toolbox.calls] == [("mail__send", TO_SAM)]
    entries, _ = await SqlReporting(harness.database).audit(AuditQuery(), 100, 0)
    told = [entry.facts for entry in entries if "tool" in entry.facts]
    assert told
    assert {(facts["server"], facts["tool"]) for facts in told} == {("mail", "send")}


async def test_rules_see_the_tool_and_its_arguments(harness: EngineHarness) -> None:
    harness.rules = RuleBook(
        Policies(
            ASK,
            rules=(
                Rule(ALLOW, server="mail", tool="send"),
                Rule(DENY, server="mail", arguments={"to": "*@evil.example"}),
                Rule(ALLOW, server="countersign"),
            ),
        ),
        Approvers(),
    )
    wanted = (
        found_tool_call("mail__send", "a", **TO_SAM),
        found_tool_call("mail__send", "b", to="x@evil.example"),
        found_tool_call("lab__probe_000", "c"),
    )
    harness.model.script = [ask_for(*wanted)]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("go"))
        view = await harness.surface.wait_for(
            lambda view: (
                [step.status for step in calls_of(view)] == [StepStatus.DONE, StepStatus.DENIED, StepStatus.AWAITING]
            )
        )
        await engine.stop(receipt.turn_id, ANA)
    assert [step.tool.name for step in awaiting(view) if step.tool is not None] == ["probe_000"]
    assert harness.toolbox.names == ["mail__send"]


async def test_four_eyes_an_edit_and_a_grant_are_about_the_tool_that_was_found(harness: EngineHarness) -> None:
    strict = Rule(ASK, server="mail", requirements=ApprovalRequirements(four_eyes=True))
    harness.rules = RuleBook(Policies(rules=(strict,)), Approvers(approvers=frozenset({"test:ana", "test:ben"})))
    again = found_tool_call("mail__send", "c2", **TO_SAM)
    harness.model.script = [ask_for(found_tool_call("mail__send", **TO_SAM)), ask_for(again), say("Both.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("write"))
        (step,) = awaiting(await harness.surface.wait_for(lambda view: bool(awaiting(view))))
        assert not isinstance(await engine.approvals.decide(decision(step), member(ANA)), Decided)
        assert step.approval is not None
        to_ana = {"to": "ana@example.org"}
        revised = await engine.approvals.revise(step.approval.id, step.approval.revision, to_ana, member(ANA))
        assert isinstance(revised, RevisionAccepted)
        view = await harness.surface.wait_for(
            lambda view: any(each.call.arguments == to_ana for each in awaiting(view))
        )
        (step,) = awaiting(view)
        signed = decision(step)
        by_ben = type(signed)(signed.approval_id, signed.revision, signed.type, BEN)
        assert isinstance(await engine.approvals.grant(by_ben, GrantRequest(ThreadScope()), member(BEN)), Decided)
        ended = await harness.surface.wait_for_end(receipt.turn_id)
    assert harness.toolbox.calls[0][:2] == ("mail__send", to_ana)
    second = calls_of(ended)[-1]
    assert second.grant is not None
    assert 'to: "sam@example.org" -> "ana@example.org"' in results(harness.model.requests[1])[0].text


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, 'takes the "name" of a tool'),
        ({"name": 7, "arguments": {}}, 'takes the "name" of a tool'),
        ({"name": "mail__burn", "arguments": {}}, "There is no tool called 'mail__burn'."),
        ({"name": "mail__send", "arguments": [1]}, 'the "arguments" for mail__send are not a JSON object.'),
        ({"name": "mail__send", "arguments": '{"to": "sa'}, 'the "arguments" for mail__send are not a JSON object.'),
        ({"name": "mail__send", "arguments": '{"to": NaN}'}, 'the "arguments" for mail__send are not a JSON object.'),
        ({"name": "mail__send", "to": "sam"}, 'the tool\'s arguments go into "arguments", and not beside it: to'),
        ({"name": CALL_TOOL, "arguments": {"name": "mail__send"}}, f"{CALL_TOOL} is called directly"),
        ({"name": SEARCH_TOOLS, "arguments": {"query": "send"}}, f"{SEARCH_TOOLS} is called directly"),
        ({"name": "countersign__read_result", "arguments": {"id": "1.1"}}, "read_result is called directly"),
    ],
)
async def test_a_call_that_names_nothing_to_be_called_is_refused(
    harness: EngineHarness, arguments: Mapping[str, Any], reason: str
) -> None:
    harness.rules = RuleBook(Policies(ALLOW), Approvers())
    view = await run_turn(harness, ask_for(ToolCall("c1", CALL_TOOL, arguments)), say("I see."))
    (step,) = calls_of(view)
    (told,) = results(harness.model.requests[-1])
    assert step.status is StepStatus.FAILED
    assert (told.call_id, told.is_error) == ("c1", True)
    assert reason in told.text
    assert harness.toolbox.calls == []


async def test_a_call_whose_own_text_is_no_json_is_refused(harness: EngineHarness) -> None:
    await run_turn(harness, ask_for(ToolCall("c1", CALL_TOOL, unreadable='{"name": "mai')), say("I see."))
    assert results(harness.model.requests[-1])[0].text == 'Not run: the arguments are not a JSON object: {"name": "mai'


@pytest.mark.parametrize("written", ['{"to": "sam@example.org"}', TO_SAM], ids=["as a text", "as an object"])
async def test_arguments_count_as_they_are_meant(harness: EngineHarness, written: object) -> None:
    harness.allow("mail__send")
    await run_turn(
        harness, ask_for(ToolCall("c1", CALL_TOOL, {"name": "mail__send", "arguments": written})), say("Sent.")
    )
    assert [arguments for _, arguments, _ in harness.toolbox.calls] == [TO_SAM]


async def test_a_tool_without_arguments_is_called_without_any(harness: EngineHarness) -> None:
    harness.allow("lab__probe_001")
    named = {"name": "lab__probe_001"}
    wanted = ask_for(ToolCall("a", CALL_TOOL, named), ToolCall("b", CALL_TOOL, {**named, "arguments": None}))
    await run_turn(harness, wanted, say("Done."))
    assert [arguments for _, arguments, _ in harness.toolbox.calls] == [{}, {}]


async def test_a_search_taints_nothing_and_a_result_of_a_found_tool_does(harness: EngineHarness) -> None:
    harness.rules = RuleBook(Policies(ALLOW), Approvers(admins=frozenset({"test:ana"})))
    harness.model.script = [
        ask_for(searching("measures", "s1")),
        ask_for(found_tool_call("lab__probe_000", "c1")),
        ask_for(found_tool_call("mail__send", "c2", **TO_SAM)),
    ]
    for each, _ in list(harness.toolbox.tools.values()):
        harness.toolbox.add(_of_nobody(each))
    engine = harness.engine(taint=TaintMode.ASK)
    async with running(engine):
        receipt = await engine.receive(message("go"))
        view = await harness.surface.wait_for(lambda view: bool(awaiting(view)))
        await engine.stop(receipt.turn_id, ANA)
    searched, probed, sent = calls_of(view)
    assert [searched.status, probed.status] == [StepStatus.DONE, StepStatus.DONE]
    assert sent.policy_result is not None
    assert "The model has read lab" in sent.policy_result.why


def _of_nobody(each: Tool) -> Tool:
    return tool(each.name, trusted=False, server_id=each.server_id, input_schema=each.input_schema)


async def test_later_questions_are_told_of_the_tool_or_of_the_call_as_it_was_written(harness: EngineHarness) -> None:
    harness.allow("mail__send")
    harness.model.script = [
        ask_for(found_tool_call("mail__send", "outer", **TO_SAM)),
        say("Sent."),
        say("Yes."),
        say("Yes."),
    ]
    engine = harness.engine()
    async with running(engine):
        await harness.surface.wait_for_end((await engine.receive(message("one"))).turn_id)
        await harness.surface.wait_for_end((await engine.receive(message("two"))).turn_id)
    assert "mail__send: done" in str(harness.model.requests[-1].messages)
    whole = harness.engine(memory=HistoryBudget(replay=ToolReplay.FULL))
    async with running(whole):
        await harness.surface.wait_for_end((await whole.receive(message("three"))).turn_id)
    wrote = [each for each in harness.model.requests[-1].messages if each.tool_calls]
    assert [each.tool_calls for each in wrote] == [(found_tool_call("mail__send", "outer", **TO_SAM),)]
    assert [result.call_id for result in results(harness.model.requests[-1])] == ["outer"]
