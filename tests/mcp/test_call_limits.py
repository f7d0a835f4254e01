"""Timeout, concurrency and retry of calls."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from bot.domain.tools import CallOutcomeUnknown, CallReturned, ToolOutcome
from bot.ports import CallContext
from tests.fakes.mcp.endpoint import OK, Answer, FakeEndpoint, HangUp, Message, Reaction, Silence, error, result
from tests.mcp.toolboxes import (
    ANA,
    call,
    call_with,
    connected_toolbox,
    faster,
    raw,
    remote,
    text,
    tool_by_name,
    unknown,
    unsent_reason,
    until,
)

IMPATIENT = faster(leave=0.1)
"""Timing for processes that do not end by themselves."""


def server(action: dict[str, Any], **limits: Any) -> Any:
    """Return a scripted server with two tools of the same action."""
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("t", "u")]
    return raw(script={"listings": [[{"tools": tools}]], "calls": {"t": action, "u": action}}, **limits)


# time


async def test_progress_gives_a_call_more_time() -> None:
    told: list[str] = []
    slow = {"do": "progress", "steps": 10, "seconds": 0.1}
    async with connected_toolbox(server(slow, tool_timeout=0.6)) as box:
        context = CallContext(ANA, "k", on_progress=told.append)
        assert text(await call_with(tool_by_name(box, "t"), box, context)) == "done"
    assert set(told) <= {str(step) for step in range(1, 11)}
    assert told


@pytest.mark.parametrize(
    ("progress", "limits", "deadline", "seconds"),
    [
        ({"steps": 10_000, "seconds": 0.02}, {"tool_timeout": 0.5, "tool_timeout_max": 0.7}, None, "0.7"),
        ({"steps": 10_000, "seconds": 0.02}, {}, 0.5, "0.5"),
        ({"steps": 2, "seconds": 0.1, "ends": False}, {"tool_timeout": 0.3}, None, r"0\.\d"),
    ],
    ids=["of the server", "of the caller", "of silence after progress"],
)
async def test_progress_does_not_give_a_call_more_than_its_longest_time(
    progress: dict[str, Any], limits: dict[str, float], deadline: float | None, seconds: str
) -> None:
    async with connected_toolbox(server({"do": "progress", **progress}, **limits), pacing=IMPATIENT) as box:
        reason = unknown(await call_with(tool_by_name(box, "t"), box, CallContext(ANA, "k", deadline=deadline)))
        assert re.fullmatch(f"Server s did not answer within {seconds} s.", reason)


async def test_a_single_tool_may_have_a_time_of_its_own() -> None:
    async with connected_toolbox(server({"do": "silence"}, tool_timeout=0.4, tool_timeouts={"t": 0.1})) as box:
        assert "within 0.1 s" in unknown(await call(tool_by_name(box, "t"), box))
        assert "within 0.4 s" in unknown(await call(tool_by_name(box, "u"), box))


async def test_time_that_connecting_takes_is_not_the_calls(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("t")
    pacing = faster(idle_after=0.05)
    async with connected_toolbox(remote("s", endpoint.url, tool_timeout=1.0), pacing=pacing) as box:
        tool = tool_by_name(box, "t")
        held = asyncio.Event()
        arrived = endpoint.hold("server/discover", held)
        await until(lambda: box.servers()[0].status.name == "IDLE")
        calling = asyncio.create_task(call(tool, box))
        await arrived.wait()
        await asyncio.wait({calling}, timeout=1.2)
        assert not calling.done()
        held.set()
        assert text(await calling) == "ok"


# room


async def test_a_server_works_on_eight_calls_at_once_and_the_others_wait_for_room(endpoint: FakeEndpoint) -> None:
    held = asyncio.Event()
    endpoint.speak_modern("t")
    endpoint.hold("tools/call", held)
    async with connected_toolbox(remote("s", endpoint.url)) as box:
        tool = tool_by_name(box, "t")
        calls = [asyncio.create_task(call(tool, box)) for _ in range(20)]
        await until(lambda: endpoint.methods().count("tools/call") == 8)
        await box.sync("file:s")
        assert endpoint.methods().count("tools/call") == 8
        reason = unsent_reason(await call_with(tool, box, CallContext(ANA, "k", deadline=0.1)))
        assert reason == "Server s is busy: 8 calls to it are under way."
        for given_up in (calls[0], calls[11]):
            given_up.cancel()
        await until(lambda: endpoint.methods().count("tools/call") == 9)
        held.set()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(each.cancelled() for each in calls) == 2
        assert {text(each) for each in outcomes if not isinstance(each, BaseException)} == {"ok"}
        assert endpoint.methods().count("tools/call") == 19


# a second time

HARMLESS: list[dict[str, Any]] = [{"readOnlyHint": True}, {"idempotentHint": True}]
CUT = Answer(200, {"jsonrpc": "2.0", "id": 0, "result": OK}, cut=20)
ONCE: list[tuple[str, Reaction]] = [
    ("hangs up", HangUp()),
    ("breaks off", CUT),
    ("gateway", Answer(502)),
    ("error", Answer(500)),
    ("accepted", Answer(202)),
]


async def outcome_of(
    reaction: Reaction | Any, *, trusted: bool, hints: dict[str, Any], afterwards: Any = None, **limits: Any
) -> tuple[ToolOutcome, int]:
    """Return the outcome of a call when the server does that at first, and the number of times it was sent."""
    async with FakeEndpoint() as endpoint:
        endpoint.speak_modern()
        tool = {"name": "t", "inputSchema": {"type": "object", "properties": {}}, "annotations": hints}
        endpoint.on["tools/list"] = lambda m: result(m, {"tools": [tool]})
        async with connected_toolbox(remote("s", endpoint.url, trusted=trusted, **limits)) as box:

            def reacting(message: Message) -> Reaction:
                first = endpoint.methods().count("tools/call") == 1
                then = reaction if first or afterwards is None else afterwards
                done: Reaction = then(message) if callable(then) else then
                return done

            endpoint.on["tools/call"] = reacting
            return await call(tool_by_name(box, "t"), box), endpoint.methods().count("tools/call")


@pytest.mark.parametrize("hints", HARMLESS)
@pytest.mark.parametrize("fault", [reaction for _, reaction in ONCE], ids=[name for name, _ in ONCE])
async def test_a_call_whose_answer_was_lost_is_sent_again_if_a_trusted_server_says_that_does_no_harm(
    fault: Reaction, hints: dict[str, Any]
) -> None:
    outcome, sent = await outcome_of(fault, trusted=True, hints=hints, afterwards=lambda m: result(m, OK))
    assert (text(outcome), sent) == ("ok", 2)


@pytest.mark.parametrize("fault", [reaction for _, reaction in ONCE], ids=[name for name, _ in ONCE])
async def test_it_is_sent_again_once_and_then_its_outcome_is_unknown(fault: Reaction) -> None:
    outcome, sent = await outcome_of(fault, trusted=True, hints={"readOnlyHint": True})
    assert isinstance(outcome, CallOutcomeUnknown)
    assert sent == 2


@pytest.mark.parametrize(
    ("trusted", "hints"),
    [
        (False, {"readOnlyHint": True}),
        (False, {"idempotentHint": True}),
        (True, {}),
        (True, {"destructiveHint": False}),
    ],
)
@pytest.mark.parametrize("fault", [reaction for _, reaction in ONCE], ids=[name for name, _ in ONCE])
async def test_any_other_call_whose_answer_was_lost_is_not_sent_again(
    fault: Reaction, trusted: bool, hints: dict[str, Any]
) -> None:
    outcome, sent = await outcome_of(fault, trusted=trusted, hints=hints, afterwards=lambda m: result(m, OK))
    assert isinstance(outcome, CallOutcomeUnknown)
    assert sent == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Silence(), CallOutcomeUnknown),
        (lambda m: result(m, {"resultType": 5}), CallOutcomeUnknown),
        (lambda m: error(m, -32603, "no disk"), CallReturned),
        (Answer(401), CallReturned),
        (lambda m: result(m, {**OK, "isError": True}), CallReturned),
    ],
    ids=["time is over", "cannot be read", "error", "401", "tool failed"],
)
async def test_a_lasting_error_is_not_sent_again(fault: Any, kind: type[ToolOutcome]) -> None:
    hints = {"readOnlyHint": True}
    outcome, sent = await outcome_of(
        fault, trusted=True, hints=hints, afterwards=lambda m: result(m, OK), tool_timeout=0.5
    )
    assert isinstance(outcome, kind)
    assert sent == 1


async def test_a_call_that_was_sent_and_cannot_be_sent_again_is_not_said_to_be_unsent(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern()
    tool = {"name": "t", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    endpoint.on["tools/list"] = lambda m: result(m, {"tools": [tool]})
    async with connected_toolbox(remote("s", endpoint.url, trusted=True), pacing=faster(call_wait=0.2)) as box:

        def ends(_message: Message) -> Reaction:
            endpoint.on = dict.fromkeys(("server/discover", "initialize", "tools/list"), Answer(500))
            return HangUp()

        endpoint.on["tools/call"] = ends
        assert "before it answered" in unknown(await call(tool_by_name(box, "t"), box))
