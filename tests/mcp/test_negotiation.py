"""Negotiation of transport and protocol version with a server, and the cache of its result."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.domain.servers import (
    CachedCapabilities,
    DesiredServer,
    Handshake,
    HttpKind,
    HttpTransport,
    Protocol,
    ServerCapabilities,
    ServerConfig,
    ServerStatus,
    SyncStatus,
    kind_of,
)
from bot.examination import CheckStatus
from bot.mcp.errors import RequestContext
from bot.mcp.toolbox import McpToolbox
from bot.mcp.transports.open import ProtocolNegotiation
from tests.fakes.mcp.endpoint import OK, Answer, FakeEndpoint, error, result, tool
from tests.fakes.mcp.event_stream import FakeEventStream
from tests.mcp.toolboxes import call, connected_toolbox, raw, running_toolbox, text, tool_by_name, until

INFO = {"serverInfo": {"name": "s", "version": "1"}}
WEEK = 7 * 86_400.0


def auto(url: str, **fields: Any) -> ServerConfig:
    return ServerConfig("s", HttpTransport(url, kind=HttpKind.AUTO), **fields)


def synced_server(config: ServerConfig, capabilities: ServerCapabilities) -> DesiredServer:
    """Return the server with the state that another process reads from the database."""
    return DesiredServer(config, synced=CachedCapabilities(SyncStatus.SYNCED, capabilities, 1.0))


async def met(box: McpToolbox) -> ServerCapabilities:
    """Return the capabilities of the server once it is connected."""
    await box.offer()
    await until(lambda: box.servers()[0].status is ServerStatus.CONNECTED)
    return box.capabilities("file:s")


@pytest.mark.parametrize("refusal", [400, 404, 405])
async def test_a_server_that_knows_no_streamable_http_is_spoken_to_by_the_first_transport(refusal: int) -> None:
    async with FakeEventStream(refuses=refusal) as server:
        server.speak_legacy("t")
        async with connected_toolbox(auto(server.url)) as box:
            assert text(await call(tool_by_name(box, "t"), box)) == "ok"
        assert server.opened == 1


async def test_the_transport_that_was_found_is_remembered_across_starts() -> None:
    async with FakeEventStream() as server:
        server.speak_legacy("t")
        async with running_toolbox(auto(server.url)) as box:
            known = await met(box)
        assert known.handshake is not None
        assert known.handshake.transport == "sse"
        server.seen.clear()
        async with running_toolbox(synced_server(auto(server.url), known)) as box:
            assert (await met(box)).handshake == known.handshake
        assert server.methods()[:2] == ["GET", "initialize"]


async def test_a_server_that_has_learned_streamable_http_is_found_again() -> None:
    async with FakeEventStream() as server:
        server.speak_legacy("t")
        async with running_toolbox(auto(server.url)) as box:
            known = await met(box)
        port = server.port
    async with FakeEndpoint(port=port) as endpoint:
        endpoint.speak_modern("t")
        config = auto(server.url)
        async with running_toolbox(synced_server(config, known)) as box:
            assert (await met(box)).handshake is None
        assert endpoint.methods()[:2] == ["GET", "server/discover"]


async def test_streamable_http_comes_first(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("t")
    async with running_toolbox(auto(endpoint.url)) as box:
        await met(box)
    assert "GET" not in endpoint.methods()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(401), "401 Unauthorized"),
        (Answer(500), "500 Internal Server Error"),
        (
            lambda m: error(m, -32022, "Unsupported protocol version", {"supported": ["2099-01-01"]}, status=400),
            "400 Bad Request",
        ),
    ],
)
async def test_an_unrelated_error_does_not_lead_to_the_older_transport(
    endpoint: FakeEndpoint, answer: Any, said: str
) -> None:
    endpoint.on["server/discover"] = endpoint.on["initialize"] = answer
    async with running_toolbox(auto(endpoint.url)) as box:
        [absent] = (await box.offer()).absent
    assert said in absent
    assert "GET" not in endpoint.methods()


VERSIONS = "Unsupported protocol version: 2025-11-25 (supported versions: 2025-06-18, 2025-03-26, 2024-10-07)"
DATA = {"supported": ["2025-03-26", "2025-06-18"], "requested": "2025-11-25"}


@pytest.mark.parametrize("kind", [HttpKind.AUTO, HttpKind.STREAMABLE, HttpKind.SSE])
@pytest.mark.parametrize(
    "refusal",
    [
        lambda m: error(m, -32602, "Unsupported protocol version", DATA),
        lambda m: error(m, -32602, "Unsupported protocol version", DATA, status=400),
        lambda m: error(m, -32600, VERSIONS),
        lambda _: Answer(400, VERSIONS.encode(), {"content-type": "text/plain"}),
        lambda _: Answer(400, {"error": VERSIONS}),
    ],
)
async def test_a_server_that_refuses_the_newest_version_is_offered_the_newest_one_that_it_names(
    kind: HttpKind, refusal: Any
) -> None:
    async with FakeEventStream() if kind is HttpKind.SSE else FakeEndpoint() as endpoint:
        endpoint.speak_legacy("t")
        spoken = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": INFO["serverInfo"]}

        def initialize(message: dict[str, Any]) -> Answer:
            wanted = message["params"]["protocolVersion"]
            answer = result(message, spoken) if wanted == "2025-06-18" else refusal(message)
            assert isinstance(answer, Answer)
            return answer

        endpoint.on["initialize"] = initialize
        async with running_toolbox(ServerConfig("s", HttpTransport(endpoint.url, kind=kind))) as box:
            assert (await met(box)).protocol == "2025-06-18"
            tool_by_name(box, "t")
        assert endpoint.methods().count("initialize") == 2


@pytest.mark.parametrize("kind", [HttpKind.AUTO, HttpKind.STREAMABLE])
@pytest.mark.parametrize("status", [200, 400, 426])
async def test_a_server_that_refuses_the_newest_version_and_names_none_is_reported_with_the_setting(
    endpoint: FakeEndpoint, kind: HttpKind, status: int
) -> None:
    endpoint.speak_legacy("t")
    endpoint.on["initialize"] = lambda m: error(m, -32602, "Version too new for t0p-secret", status=status)
    endpoint.on["GET"] = Answer(405)
    config = ServerConfig("s", HttpTransport(endpoint.url, {"Authorization": "Bearer t0p-secret"}, kind=kind))
    async with running_toolbox(config) as box:
        await until(lambda: box.servers()[0].problem)
        problem = box.servers()[0].problem
    assert "Version too new for " in problem
    assert "t0p-secret" not in problem
    assert problem.endswith("set its protocol to that, such as 2025-06-18.")


PINNED = "Fix: check that it is an MCP server and speaks MCP 2025-11-25, or set its protocol to auto."


@pytest.mark.parametrize(
    ("refusal", "fix"),
    [
        (
            lambda m: error(m, -32602, "Unsupported protocol version", DATA),
            "Fix: set its protocol to 2025-06-18 or auto.",
        ),
        (lambda m: error(m, -32000, VERSIONS, status=400), "Fix: set its protocol to 2025-06-18 or auto."),
        (Answer(426, b"Use 2025-06-18"), "Fix: set its protocol to 2025-06-18 or auto."),
        (Answer(501, b"no such MCP-Protocol-Version"), PINNED),
        (Answer(426), PINNED),
        (Answer(400), PINNED),
    ],
)
async def test_a_set_version_that_is_refused_is_reported_with_the_version_that_the_server_names(
    endpoint: FakeEndpoint, refusal: Any, fix: str
) -> None:
    endpoint.speak_legacy("t")
    endpoint.on["initialize"] = refusal
    async with running_toolbox(ServerConfig("s", HttpTransport(endpoint.url), protocol=Protocol.V2025_11_25)) as box:
        await until(lambda: box.servers()[0].problem)
        assert box.servers()[0].problem.endswith(fix)
    assert "server/discover" not in endpoint.methods()


@pytest.mark.parametrize(
    ("post", "get", "said"),
    [
        (Answer(400, {"message": "Tenant is missing"}), Answer(405), '400 Bad Request. It says: "Tenant is missing".'),
        (Answer(404), Answer(200, b"<p>Hi</p>", {"content-type": "text/html"}), "404 Not Found."),
        (Answer(405), Answer(401), "401 Unauthorized."),
        (Answer(404), Answer(503), "503 Service Unavailable."),
    ],
)
async def test_a_server_without_either_transport_is_reported_with_the_answer_that_says_more(
    post: Answer, get: Answer, said: str
) -> None:
    async with FakeEndpoint() as server, running_toolbox(auto(server.url)) as box:
        server.on = {"server/discover": post, "initialize": post, "GET": get}
        await until(lambda: box.servers()[0].problem)
        assert said in box.servers()[0].problem


def unaware(message: dict[str, Any]) -> Answer:
    """Answer any method with a result, like a server of plain JSON-RPC 2.0."""
    return Answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": {"data": "response data"}})


@pytest.mark.parametrize(
    "answer", [unaware, lambda m: error(m, -32601, "Method not found"), lambda m: result(m, {}) and unaware(m)]
)
async def test_a_server_of_plain_json_rpc_is_found_out(endpoint: FakeEndpoint, answer: Any) -> None:
    endpoint.on = {"server/discover": answer, "initialize": answer, "get_weather": unaware}
    async with running_toolbox(ServerConfig("weather", HttpTransport(endpoint.url, kind=HttpKind.AUTO))) as box:
        await until(lambda: box.servers()[0].status is ServerStatus.CONNECTED)
        [tool] = (await box.offer()).tools
        assert (tool.name, box.servers()[0].protocol) == ("mcp_weather", "JSON-RPC 2.0")
        assert text(await call(tool, box, method="get_weather")) == '{"data": "response data"}'
        checks = {check.name: check async for check in box.diagnose("file:weather")}
        assert "JSON-RPC 2.0 and not MCP" in checks["MCP"].detail
    async with running_toolbox(ServerConfig("weather", HttpTransport(endpoint.url, kind=HttpKind.STREAMABLE))) as box:
        await until(lambda: box.servers()[0].problem)
        problem = box.servers()[0].problem
        assert problem.endswith("if it speaks JSON-RPC 2.0 without MCP, set its transport to jsonrpc_http.")
        assert "validation" not in problem
        assert "pydantic" not in problem


async def test_a_server_that_dies_of_the_question_for_its_protocol_does_so_once(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    config = raw(script={"era": "legacy", "probe": "exit", "pids": str(pids)})
    async with running_toolbox(config) as box:
        known = await met(box)
    assert len(pids.read_text().split()) == 2
    async with running_toolbox(synced_server(config, known)) as box:
        await met(box)
    assert len(pids.read_text().split()) == 3


async def test_a_server_that_is_silent_about_its_protocol_is_not_waited_for_again(tmp_path: Path) -> None:
    record = tmp_path / "record"
    config = raw(script={"era": "legacy", "probe": "silence", "record": str(record)})
    handshake = ProtocolNegotiation(config, None).on_connected("2025-11-25", "0.9")
    server_capabilities = ServerCapabilities(server_version="0.9", handshake=handshake)
    async with running_toolbox(synced_server(config, server_capabilities)) as box:
        await met(box)
    assert '"initialize"' in record.read_text()
    assert '"server/discover"' not in record.read_text()


async def test_a_server_that_is_connected_again_is_not_asked_again(tmp_path: Path) -> None:
    record = tmp_path / "record"
    config = raw(script={"era": "legacy", "record": str(record), "calls": {"t": {"do": "die"}}, "listings": [LISTING]})
    async with running_toolbox(config) as box:
        await met(box)
        await call(tool_by_name(box, "t"), box)
        await until(lambda: record.read_text().count('"initialize"') == 2)
    assert record.read_text().count('"server/discover"') == 1


LISTING = [{"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}]
NOTHING = RequestContext()


def test_a_negotiated_transport_counts_for_a_week() -> None:
    now = [1000.0]
    approach = ProtocolNegotiation(raw(script={}), None, lambda: now[0])
    known = approach.on_connected("2025-11-25")
    assert known is not None
    assert approach.mode == "legacy"
    now[0] += WEEK - 1
    assert ProtocolNegotiation(raw(script={}), known, lambda: now[0]).mode == "legacy"
    assert approach.on_connected("2025-11-25") == known
    now[0] += 1
    assert approach.mode == "auto"
    assert ProtocolNegotiation(raw(script={}), known, lambda: now[0]).mode == "auto"


def test_the_transport_that_was_found_counts_for_a_week_too() -> None:
    now = [1000.0]
    approach = ProtocolNegotiation(auto("https://a.example/mcp"), None, lambda: now[0])
    assert approach.on_failed(None, RequestContext(sent=True, status=405), hung_up=False)
    approach.on_connected("2025-11-25")
    assert kind_of(approach.config.transport) == "sse"
    now[0] += WEEK
    assert kind_of(approach.config.transport) == "streamable_http"


def test_a_negotiation_of_another_program_or_address_does_not_count() -> None:
    here, there = auto("https://a.example/mcp"), auto("https://b.example/mcp")
    known = ProtocolNegotiation(here, None).on_connected("2025-11-25")
    assert ProtocolNegotiation(here, known).mode == "legacy"
    assert ProtocolNegotiation(there, known).mode == "auto"
    assert ProtocolNegotiation(replace(here, transport=HttpTransport("https://a.example/mcp")), known).mode == "legacy"
    assert ProtocolNegotiation(raw(script={}), known).mode == "auto"


def test_a_known_transport_is_skipped_in_every_second_try() -> None:
    approach = ProtocolNegotiation(raw(script={}), Handshake("stdio", "elsewhere", 0.0))
    approach.on_connected("2025-11-25")
    modes = []
    for _ in range(4):
        assert approach.on_failed(None, NOTHING, hung_up=False) is False
        modes.append(approach.mode)
    assert modes == ["auto", "legacy", "auto", "legacy"]


def test_a_server_of_the_newest_protocol_is_always_asked() -> None:
    approach = ProtocolNegotiation(raw(script={}), None)
    assert approach.on_connected("2026-07-28") is None
    assert approach.mode == "auto"


def test_a_negotiation_counts_for_the_same_version_of_the_server() -> None:
    approach = ProtocolNegotiation(raw(script={}), None)
    known = approach.on_connected("2025-11-25", "1.0")
    assert approach.on_connected("2025-11-25", "1.0") == known
    again = ProtocolNegotiation(raw(script={}), known, version="1.0")
    assert again.mode == "legacy"
    assert again.on_connected("2025-11-25", "2.0") is None
    assert again.mode == "auto"
    assert again.on_connected("2025-11-25", "2.0") is not None
    assert again.mode == "legacy"


async def test_a_server_that_has_become_another_version_is_asked_for_its_protocol_at_the_next_start(
    tmp_path: Path,
) -> None:
    record = tmp_path / "record"
    config = raw(script={"era": "legacy", "record": str(record)})
    handshake = ProtocolNegotiation(config, None).on_connected("2025-11-25")
    known = ServerCapabilities(server_version="0.1", handshake=handshake)
    for asked in (0, 1, 1):
        async with running_toolbox(synced_server(config, known)) as box:
            known = await met(box)
        assert record.read_text().count('"server/discover"') == asked


def test_a_server_that_lets_the_time_pass_is_not_asked_in_every_second_try() -> None:
    approach = ProtocolNegotiation(raw(script={}), None)
    modes = [approach.mode]
    for _ in range(3):
        assert approach.on_failed(None, NOTHING, hung_up=False) is False
        modes.append(approach.mode)
    assert modes == ["auto", "legacy", "auto", "legacy"]


@pytest.mark.parametrize("protocol", [protocol for protocol in Protocol if protocol.begins_with_handshake])
async def test_a_set_version_is_offered_at_once(tmp_path: Path, protocol: Protocol) -> None:
    record = tmp_path / "record"
    script = {"record": str(record), "listings": [[{"tools": [tool("t")]}]], "calls": {"t": {"result": OK}}}
    async with running_toolbox(raw(script=script, protocol=protocol)) as box:
        known = await met(box)
        assert (known.protocol, known.handshake) == (protocol, None)
        assert text(await call(tool_by_name(box, "t"), box)) == "ok"
        check = next(check for check in [check async for check in box.diagnose("file:s")] if check.name == "MCP")
    assert (check.finding, check.detail) == (CheckStatus.WELL, f"speaks MCP {protocol}, version 0.9, as set")
    first = json.loads(record.read_text().splitlines()[0])
    assert (first["method"], first["params"]["protocolVersion"]) == ("initialize", protocol)


async def test_a_set_version_is_offered_over_http_on_every_transport() -> None:
    older = Protocol.V2025_06_18
    async with FakeEndpoint() as modern, FakeEventStream() as stream:
        for server in (modern, stream):
            server.speak_legacy("t")
            server.on["initialize"] = lambda message: result(
                message, {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}} | INFO
            )
            async with running_toolbox(auto(server.url, protocol=older)) as box:
                assert (await met(box)).protocol == older
            assert "server/discover" not in server.methods()


async def test_a_server_that_chooses_another_version_is_used_and_the_doctor_says_so() -> None:
    config = raw(script={"era": "legacy", "version": "2025-03-26"}, protocol=Protocol.V2025_06_18)
    async with running_toolbox(config) as box:
        assert (await met(box)).protocol == "2025-03-26"
        check = next(check for check in [check async for check in box.diagnose("file:s")] if check.name == "MCP")
    assert check.finding is CheckStatus.DOUBTFUL
    assert check.detail == "speaks MCP 2025-03-26, version 0.9, and its protocol is set to 2025-06-18"
    assert check.fix == "set its protocol to 2025-03-26 or auto"


async def test_a_server_that_does_not_know_the_newest_version_is_not_used_if_that_is_set() -> None:
    newest = Protocol.V2026_07_28
    async with running_toolbox(raw(script={"era": "legacy"}, protocol=newest)) as box:
        await until(lambda: box.servers()[0].status is ServerStatus.FAILED)
        assert box.servers()[0].problem == (
            "Server s: It speaks MCP 2025-11-25, and its protocol is set to 2026-07-28. "
            "Fix: set its protocol to 2025-11-25 or auto."
        )
    async with running_toolbox(raw(script={}, protocol=newest)) as box:
        assert (await met(box)).protocol == newest
