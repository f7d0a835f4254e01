"""A server that hangs, dies, lies or floods, beside one that does not: what becomes of its call, and of everybody
else's.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bot.domain.servers import ServerStatus
from bot.domain.tools import NotSent, OutcomeUnknown, Returned, ToolOutcome
from bot.ports import CallContext
from bot.tools.toolbox import McpToolbox
from tests.fakes.mcp_http import Answer, FakeEndpoint, HangUp, Message, Reaction, Silence, result
from tests.tools.boxes import ANA, call, call_with, named, raw, remote, started, text, until

DONE = "done"
IMPATIENT = CallContext(ANA, "k", deadline=1.0)
SOON = 2.0
"""Seconds within which a neighbour's call is answered, on a slow machine."""


def server(name: str, record: Path, **actions: Any) -> Any:
    """A scripted server with a tool for each action, one that says it is done, and a record of what it was told."""
    calls = {"well": {"result": {"content": [{"type": "text", "text": DONE}]}}, **actions}
    tools = [{"name": each, "inputSchema": {"type": "object"}} for each in calls]
    return raw(name, script={"listings": [[{"tools": tools}]], "calls": calls, "record": str(record)})


def sent(record: Path, tool: str) -> int:
    """How often a tool of a scripted server was called."""
    messages = [json.loads(line) for line in record.read_text().splitlines()]
    return sum(each.get("method") == "tools/call" and each["params"]["name"] == tool for each in messages)


def said(outcome: ToolOutcome) -> str:
    match outcome:
        case Returned(result):
            return result.text
        case NotSent(reason) | OutcomeUnknown(reason):
            return reason


FAULTS = [
    ("hangs", {"do": "hang"}, OutcomeUnknown, "did not answer within 1 s"),
    ("says nothing", {"do": "silence"}, OutcomeUnknown, "did not answer within 1 s"),
    ("dies", {"do": "die"}, OutcomeUnknown, "was lost before it answered"),
    ("dies with many words", {"do": "stderr"}, OutcomeUnknown, "was lost before it answered"),
    ("answers calls that nobody made", {"do": "wrong id"}, OutcomeUnknown, "did not answer within 1 s"),
    ("answers twice", {"do": "twice"}, Returned, DONE),
    ("answers what nobody understands", {"result": {"resultType": 5}}, OutcomeUnknown, "could not be read"),
    ("tells of progress for ever", {"do": "progress", "steps": 10_000, "seconds": 0.02}, OutcomeUnknown, "within 1 s"),
    ("floods with progress", {"do": "flood", "with": "progress", "lines": 2_000}, Returned, DONE),
    ("floods with changes", {"do": "flood", "with": "changes", "lines": 2_000}, Returned, DONE),
    ("floods with requests", {"do": "flood", "with": "requests", "lines": 1_000}, Returned, DONE),
    ("floods with lines that are no messages", {"do": "flood", "with": "junk", "lines": 5_000}, Returned, DONE),
    ("floods its log", {"do": "flood", "with": "stderr", "lines": 20_000}, Returned, DONE),
]


@pytest.mark.parametrize(("action", "kind", "words"), [pytest.param(*rest, id=name) for name, *rest in FAULTS])
async def test_a_bad_server_costs_its_own_call_and_nobody_elses(
    tmp_path: Path, action: dict[str, Any], kind: type[ToolOutcome], words: str
) -> None:
    bad, good = tmp_path / "bad", tmp_path / "good"
    async with started(server("bad", bad, badly=action), server("good", good)) as box:
        await box.offer()
        calling = asyncio.create_task(_called(box, action))
        await until(lambda: sent(bad, "badly"))
        since = _state(box, "good").connected_at
        for _ in range(5):
            async with asyncio.timeout(SOON):
                assert text(await call(named(box, "well", "good"), box)) == DONE
        outcome = await calling
        assert isinstance(outcome, kind), outcome
        assert words in said(outcome)
        assert sent(bad, "badly") == 1
        assert (_state(box, "good").status, _state(box, "good").connected_at) == (ServerStatus.CONNECTED, since)


HTML = {"content-type": "text/html"}
ENDLESS = {"content-type": "text/event-stream", "content-length": "1000000"}
REMOTE_FAULTS: list[tuple[str, Any, type[ToolOutcome], str]] = [
    ("says nothing", Silence(), OutcomeUnknown, "did not answer within 1 s"),
    ("hangs up", HangUp(), OutcomeUnknown, "broke before it answered"),
    ("breaks off", Answer(200, {"content": []}, cut=5), OutcomeUnknown, "broke before it answered"),
    ("breaks a stream off", Answer(200, b"event: message\ndata: {", ENDLESS), OutcomeUnknown, "before it answered"),
    ("fails", Answer(500, b"<h1>No</h1>", HTML), Returned, "500 Internal Server Error"),
    ("answers with a page", Answer(200, b"<h1>Hello</h1>", HTML), Returned, "Unexpected content type"),
    ("is behind a gateway that gave up", Answer(504), OutcomeUnknown, "The call may have arrived"),
    ("points elsewhere", Answer(307, b"", {"location": "http://127.0.0.1:9/"}), Returned, "not followed"),
]


@pytest.mark.parametrize(("fault", "kind", "words"), [pytest.param(*rest, id=name) for name, *rest in REMOTE_FAULTS])
async def test_a_bad_server_at_an_address_costs_its_own_call_and_nobody_elses(
    fault: Any, kind: type[ToolOutcome], words: str
) -> None:
    async with FakeEndpoint() as bad, FakeEndpoint() as good:
        for endpoint in (bad, good):
            endpoint.speak_modern("well", "badly")
            endpoint.on["tools/call"] = _done
        bad.on["tools/call"] = lambda m: fault if m["params"]["name"] == "badly" else _done(m)
        async with started(remote("bad", bad.url), remote("good", good.url)) as box:
            await box.offer()
            calling = asyncio.create_task(_called(box, {}))
            await until(lambda: "tools/call" in bad.methods())
            since = _state(box, "good").connected_at
            for _ in range(5):
                async with asyncio.timeout(SOON):
                    assert text(await call(named(box, "well", "good"), box)) == DONE
            outcome = await calling
            assert isinstance(outcome, kind), outcome
            assert words in said(outcome)
            assert bad.methods().count("tools/call") == 1
            assert text(await call(named(box, "well", "bad"), box)) == DONE
            assert (_state(box, "good").status, _state(box, "good").connected_at) == (ServerStatus.CONNECTED, since)


def _done(message: Message) -> Reaction:
    return result(message, {"content": [{"type": "text", "text": DONE}]})


@pytest.mark.parametrize("action", [action for name, action, *_ in FAULTS if not name.startswith(("hangs", "tells"))])
async def test_after_a_fault_the_server_is_of_use_again(tmp_path: Path, action: dict[str, Any]) -> None:
    async with started(server("bad", tmp_path / "bad", badly=action)) as box:
        await box.offer()
        await _called(box, action)
        assert text(await call(named(box, "well", "bad"), box)) == DONE


async def test_a_flood_of_changes_is_asked_about_a_few_times(tmp_path: Path) -> None:
    record = tmp_path / "record"
    flood = {"do": "flood", "with": "changes", "lines": 2_000}
    async with started(server("s", record, badly=flood)) as box:
        await box.offer()
        assert text(await call(named(box, "badly"), box)) == DONE
        assert text(await call(named(box, "well"), box)) == DONE
        assert record.read_text().count('"tools/list"') < 50


def _called(box: McpToolbox, action: dict[str, Any]) -> Any:
    context = CallContext(ANA, "k") if action.get("do") == "flood" else IMPATIENT
    return call_with(named(box, "badly", "bad"), box, context)


def _state(box: McpToolbox, name: str) -> Any:
    return next(each for each in box.servers() if each.config.name == name)
