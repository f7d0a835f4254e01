"""Contract of every toolbox (`bot.ports.Toolbox`): with both transports, both protocol versions and no tools."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bot.domain.messages import TextPart, ToolCall
from bot.domain.servers import HttpKind, HttpTransport, ServerConfig, StdioTransport
from bot.domain.tools import CallOutcomeUnknown, CallReturned, Tool, ToolOutcome
from bot.mcp.toolbox import McpToolbox
from bot.ports import CallContext, Toolbox
from tests.fakes.mcp.endpoint import Answer, FakeEndpoint, Message, Reaction, Silence, error, result
from tests.fakes.mcp.event_stream import FakeEventStream
from tests.fakes.parts import FakeToolbox
from tests.fakes.parts import tool as a_tool
from tests.mcp.toolboxes import (
    ANA,
    FAST,
    alive,
    bad,
    call,
    call_with,
    error_text,
    raw,
    running_toolbox,
    text,
    tool_by_name,
    toolbox,
    tools_of,
    unknown,
    unsent_reason,
    until,
)

KINDS = ["stdio, 2025-11-25", "stdio, 2026-07-28", "http, 2025-11-25", "http, 2026-07-28", "sse, 2025-11-25"]
ODD_NAMES = ["plain", "get.weather now", "x" * 100 + "1", "x" * 100 + "2", "\u5929\u6c17", "b__c", "_b"]


def text_tool(*texts: str, **more: Any) -> dict[str, Any]:
    """Return a tool that returns these texts."""
    return {"result": {"content": [{"type": "text", "text": each} for each in texts], **more}}


@dataclass
class Peer:
    """A server under the test's control. `lose` drops its sessions or connections; it is available again afterwards."""

    config: ServerConfig
    heard: Callable[[str], list[Message]]
    lose: Callable[[], Awaitable[None]]


class Peers:
    """Servers of one kind, stopped at the end of the test."""

    def __init__(self, kind: str, folder: Path, stack: AsyncExitStack) -> None:
        self.transport, self.protocol = kind.split(", ")
        self.era = "legacy" if self.protocol == "2025-11-25" else "modern"
        self.pids = folder / "pids"
        self._folder = folder
        self._stack = stack

    @property
    def children(self) -> list[int]:
        return [int(line) for line in self.pids.read_text().splitlines()] if self.pids.exists() else []

    @property
    def first(self) -> str:
        """Method of the first request to a server."""
        return "initialize" if self._older else "server/discover"

    async def serve(self, name: str = "s", *, mute: bool = False, **tools: dict[str, Any]) -> Peer:
        """Start a server with these tools. A `mute` server accepts the connection and never responds."""
        return await self.offering(name, tools, mute=mute)

    async def offering(self, name: str, tools: dict[str, dict[str, Any]], *, mute: bool = False) -> Peer:
        if self.transport == "stdio":
            return self._process(name, tools, mute=mute)
        return await self._port(name, tools, mute=mute)

    async def absent(self, name: str) -> ServerConfig:
        """Return the configuration of an unreachable server."""
        if self.transport == "stdio":
            return ServerConfig(name, StdioTransport("no-such-command"))
        async with FakeEndpoint() as endpoint:
            url = endpoint.url
        return ServerConfig(name, HttpTransport(url, kind=self._kind))

    @property
    def _older(self) -> bool:
        return self.transport == "sse"

    @property
    def _kind(self) -> HttpKind:
        return HttpKind.SSE if self._older else HttpKind.STREAMABLE

    def _process(self, name: str, tools: dict[str, dict[str, Any]], *, mute: bool) -> Peer:
        record = self._folder / f"{name}.record"
        script = {
            "era": self.era,
            "probe": "silence" if mute else "answer",
            "listings": [[{"tools": [definition(tool) for tool in tools]}]],
            "calls": tools,
            "record": str(record),
            "pids": str(self.pids),
        }

        def heard(method: str) -> list[Message]:
            lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
            return [message for message in map(json.loads, lines) if message["method"] == method]

        async def lose() -> None:
            os.kill(self.children[-1], signal.SIGKILL)

        return Peer(raw(name, script=script), heard, lose)

    async def _port(self, name: str, tools: dict[str, dict[str, Any]], *, mute: bool) -> Peer:
        endpoint = await self._stack.enter_async_context(FakeEventStream() if self._older else FakeEndpoint())
        session = "s1"

        def react(message: Message) -> Reaction:
            if self.era == "legacy" and not self._older and endpoint.seen[-1][0].get("mcp-session-id") != session:
                return Answer(404)
            action = tools[message["params"]["name"]]
            match action:
                case {"result": answer}:
                    return result(message, answer)
                case {"error": {"code": code, "message": text}}:
                    return error(message, code, text)
            return Silence()

        def speak() -> None:
            if self.era == "legacy":
                endpoint.speak_legacy(session=session)
            else:
                endpoint.speak_modern()
            endpoint.on["tools/list"] = lambda m: result(m, {"tools": [definition(tool) for tool in tools]})
            endpoint.on["tools/call"] = react

        def heard(method: str) -> list[Message]:
            return [message for _, message in endpoint.seen if message.get("method") == method]

        async def lose() -> None:
            nonlocal session
            session = "s2"
            await endpoint.stop()
            speak()
            await endpoint.listen()

        speak()
        if mute:
            endpoint.on = dict.fromkeys(("server/discover", "initialize"), Silence())
        return Peer(ServerConfig(name, HttpTransport(endpoint.url, kind=self._kind)), heard, lose)


@pytest.fixture(params=KINDS)
async def peers(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Peers]:
    async with AsyncExitStack() as stack:
        yield Peers(request.param, tmp_path, stack)


@asynccontextmanager
async def open_toolbox(*all_peers: Peer, **options: Any) -> AsyncIterator[McpToolbox]:
    """Yield a toolbox after its first offer."""
    async with running_toolbox(*(peer.config for peer in all_peers), **options) as box:
        await box.offer()
        yield box


def definition(name: str) -> dict[str, Any]:
    properties = {"n": {"type": "integer"}}
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


async def names(*configs: ServerConfig) -> dict[tuple[str, str], str]:
    """Return the offered name of each tool by its server and original name."""
    async with running_toolbox(*configs) as box:
        offered = (await box.offer()).tools
    assert len({tool.name for tool in offered}) == len(offered)
    return {(tool.server, tool.original_name): tool.name for tool in offered}


# offered tools


async def test_every_name_is_one_that_models_take_and_leads_to_its_tool(peers: Peers) -> None:
    odd = await peers.offering("a", {name: text_tool(f"a {name}") for name in ODD_NAMES})
    clash = await peers.offering("a__b", {"c": text_tool("a__b c")})
    async with open_toolbox(odd, clash) as box:
        tools = (await box.offer()).tools
        assert len(tools) == len({tool.name for tool in tools}) == len(ODD_NAMES) + 1
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool.name) for tool in tools)
        assert "a__plain" in {tool.name for tool in tools}
        for tool in tools:
            assert text(await call(tool, box)) == f"{tool.server} {tool.original_name}"


async def test_a_name_never_changes_because_of_another_server(peers: Peers) -> None:
    odd = (await peers.offering("a", {name: text_tool("") for name in ODD_NAMES})).config
    clash = (await peers.offering("a__b", {"c": text_tool("")})).config
    together = await names(odd, clash)
    assert await names(clash, odd) == together
    assert await names(odd) | await names(clash) == together


async def test_the_same_tools_are_the_same_offer(peers: Peers) -> None:
    peer = await peers.serve(t=text_tool("ok"), u=text_tool("ok"))
    async with open_toolbox(peer) as box:
        one, two = await box.offer(), await box.offer()
    async with open_toolbox(peer) as box:
        three = await box.offer()
    assert one == two == three
    assert [tool.name for tool in one.tools] == ["s__t", "s__u"]


# unreachable servers


async def test_a_server_that_is_not_there_is_named_and_the_others_work(peers: Peers) -> None:
    good = await peers.serve("good", t=text_tool("ok"))
    async with running_toolbox(await peers.absent("bad"), good.config) as box:
        offer = await box.offer()
        assert [tool.name for tool in offer.tools] == ["good__t"]
        (sentence,) = offer.absent
        assert "bad" in sentence
        assert "Fix:" in sentence
        assert text(await call(tool_by_name(box, "t", "good"), box)) == "ok"


async def test_silent_servers_delay_neither_the_start_nor_one_another(peers: Peers) -> None:
    mute = [await peers.serve(name, mute=True) for name in "abcdef"]
    good = await peers.serve("good", t=text_tool("ok"))
    async with running_toolbox(*(peer.config for peer in (*mute, good)), first_wait=0.1) as box:
        await until(lambda: all(peer.heard(peers.first) for peer in mute))
        await until(lambda: tools_of(box, "good"))
        async with asyncio.timeout(10):
            offer = await box.offer()
        assert [tool.name for tool in offer.tools] == ["good__t"]
        assert [sentence.split()[1] for sentence in offer.absent] == list("abcdef")
        assert text(await call(tool_by_name(box, "t", "good"), box)) == "ok"


async def test_the_first_offer_waits_for_servers_that_come_and_no_longer_than_it_may(peers: Peers) -> None:
    mute, good = await peers.serve("mute", mute=True), await peers.serve("good", t=text_tool("ok"))
    async with running_toolbox(good.config, first_wait=60.0) as box:
        assert len((await box.offer()).tools) == 1
    async with running_toolbox(mute.config, first_wait=0.2) as box, asyncio.timeout(10):
        assert (await box.offer()).absent == ("Server mute is still connecting. Fix: ask again in a moment.",)


async def test_a_lost_server_is_found_again(peers: Peers) -> None:
    peer = await peers.serve(t=text_tool("ok"))
    async with open_toolbox(peer) as box:
        tool = tool_by_name(box, "t")
        assert text(await call(tool, box)) == "ok"
        await peer.lose()
        async with asyncio.timeout(15):
            while not isinstance(outcome := await call(tool, box), CallReturned):
                await asyncio.sleep(0.01)
        assert text(outcome) == "ok"
        assert [each.name for each in (await box.offer()).tools] == ["s__t"]


# results of calls


async def test_a_tool_returns_its_texts_and_its_structure(peers: Peers) -> None:
    peer = await peers.serve(
        t=text_tool("one", "two", structuredContent={"n": [1, None]}), bare={"result": {"content": []}}
    )
    async with open_toolbox(peer) as box:
        outcome = await call(tool_by_name(box, "t"), box)
        assert isinstance(outcome, CallReturned)
        assert outcome.result.call_id == "c1"
        assert outcome.result.parts == (TextPart("one"), TextPart("two"), TextPart('{"n": [1, null]}'))
        assert outcome.result.structured == {"n": [1, None]}
        assert text(await call(tool_by_name(box, "bare"), box)) == ""


async def test_other_content_has_a_text_that_stands_for_it(peers: Peers) -> None:
    content = [
        {"type": "image", "data": "AA==", "mimeType": "image/png"},
        {"type": "audio", "data": "AA==", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "note://1", "blob": "AA=="}},
        {"type": "resource_link", "uri": "file:///plan", "name": "plan"},
        {"type": "hologram"},
    ]
    async with open_toolbox(await peers.serve(t={"result": {"content": content}})) as box:
        assert text(await call(tool_by_name(box, "t"), box)).split("\n") == [
            "[Image: image/png]",
            "[Audio: audio/wav]",
            "[Resource: note://1]",
            "[Link: plan file:///plan]",
            "[Unsupported content: hologram]",
        ]


async def test_a_failure_is_a_result_that_the_model_reads(peers: Peers) -> None:
    refusal = {"error": {"code": -32602, "message": "no such city"}}
    peer = await peers.serve(fails=text_tool("the disk is full", isError=True), refuses=refusal)
    async with open_toolbox(peer) as box:
        assert error_text(await call(tool_by_name(box, "fails"), box)) == "the disk is full"
        assert "no such city" in error_text(await call(tool_by_name(box, "refuses"), box))


async def test_arguments_that_do_not_fit_are_told_and_never_sent(peers: Peers) -> None:
    peer = await peers.serve(t=text_tool("ok"))
    async with open_toolbox(peer) as box:
        assert 'n: "five" is not of type "integer"' in error_text(await call(tool_by_name(box, "t"), box, n="five"))
        assert peer.heard("tools/call") == []


async def test_a_call_that_got_no_answer_in_time_may_have_happened(peers: Peers) -> None:
    peer = await peers.serve(hangs={"do": "silence"}, t=text_tool("ok"))
    async with open_toolbox(peer) as box:
        context = CallContext(ANA, "k", deadline=0.2)
        assert (
            unknown(await call_with(tool_by_name(box, "hangs"), box, context))
            == "Server s did not answer within 0.2 s."
        )
        assert len(peer.heard("tools/call")) == 1
        assert text(await call(tool_by_name(box, "t"), box)) == "ok"


async def test_a_call_that_finds_no_server_did_not_happen(peers: Peers) -> None:
    async with running_toolbox(await peers.absent("s")) as box:
        unsent_reason(await call(Tool("s__t", "s", "t", server_id="file:s"), box))
        unsent_reason(await call(Tool("n__t", "nowhere", "t"), box))


async def test_a_cancelled_call_leaves_its_siblings_and_the_connection_alone(peers: Peers) -> None:
    peer = await peers.serve(hangs={"do": "silence"}, t=text_tool("ok"))
    async with open_toolbox(peer) as box:
        since = box.servers()[0].connected_at
        calls = [asyncio.create_task(call(tool_by_name(box, "hangs"), box)) for _ in range(2)]
        await until(lambda: len(peer.heard("tools/call")) == 2)
        calls[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await calls[0]
        assert text(await call(tool_by_name(box, "t"), box)) == "ok"
        assert not calls[1].done()
        assert box.servers()[0].connected_at == since
    assert isinstance(await calls[1], CallOutcomeUnknown)


# the end


async def test_after_closing_nothing_is_left(peers: Peers) -> None:
    peer = await peers.serve(hangs={"do": "silence"})
    mute = await peers.serve("mute", mute=True)
    box = toolbox(peer.config, mute.config, await peers.absent("absent"), pacing=FAST, first_wait=0.5)
    await box.start()
    await box.offer()
    # The first wait limits the wait for the mute server; the other may need more on a busy machine.
    await until(lambda: any(tools_of(box, "s")))
    tool = tool_by_name(box, "hangs")
    waiting = asyncio.create_task(call(tool, box))
    await until(lambda: peer.heard("tools/call"))
    await box.close()
    assert not any(map(alive, peers.children))
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("mcp:")]
    assert isinstance(await waiting, CallOutcomeUnknown)
    unsent_reason(await call(tool, box))
    offer = await box.offer()
    assert offer.tools == ()
    assert [sentence.split()[1] for sentence in offer.absent] == ["absent", "mute", "s"]
    await box.close()


# toolboxes without tools, and the fake toolbox


@pytest.fixture(params=["switched off", "no servers", "fake"])
async def empty(request: pytest.FixtureRequest) -> AsyncIterator[Toolbox]:
    config = ServerConfig("s", StdioTransport("no-such-command"))
    match request.param:
        case "switched off":
            async with running_toolbox(config, bad("bad", "Bad."), enabled=False) as box:
                yield box
        case "no servers":
            async with running_toolbox() as box:
                yield box
        case _:
            yield FakeToolbox()


async def test_a_toolbox_without_tools_offers_none_and_sends_nothing(empty: Toolbox) -> None:
    offer = await empty.offer()
    assert (offer.tools, offer.guidance, offer.absent) == ((), (), ())
    assert offer.find("s__t") is None
    unsent_reason(await empty.call(a_tool("s__t"), ToolCall("c1", "s__t"), CallContext(ANA, "k")))


async def test_the_fake_offers_and_calls_like_the_real_ones() -> None:
    fake = FakeToolbox()
    fake.add(a_tool("s__t"))
    toolbox: Toolbox = fake
    one, two = await toolbox.offer(), await toolbox.offer()
    assert one == two
    tool = one.find("s__t")
    assert tool is not None
    outcome: ToolOutcome = await toolbox.call(tool, ToolCall("c1", tool.name), CallContext(ANA, "k"))
    assert text(outcome) == "ok"
