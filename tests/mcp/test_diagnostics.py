"""Findings of the doctor, from the address to the tools. The doctor leaves no process or file."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.domain.flows import ServerFlows, Words
from bot.domain.servers import (
    CachedCapabilities,
    ConnectPolicy,
    DesiredServer,
    HttpKind,
    HttpTransport,
    ServerCapabilities,
    ServerConfig,
    ServerEnablement,
    ServerStatus,
    StdioTransport,
    SyncStatus,
)
from bot.domain.tools import Tool
from bot.examination import Check, CheckStatus
from bot.mcp.config.checks import AllowedTargets
from tests.fakes.mcp.certificates import self_signed
from tests.fakes.mcp.endpoint import Answer, FakeEndpoint, Silence, error, result, tool
from tests.fakes.mcp.event_stream import FakeEventStream
from tests.mcp.toolboxes import (
    LIMIT,
    alive,
    call,
    connected_toolbox,
    http_server,
    raw,
    real,
    remote,
    running_toolbox,
    text,
    tool_by_name,
    until,
)

WAY = ["address", "DNS", "TCP", "TLS", "HTTP", "authentication", "MCP", "tools"]
LOOPBACK = AllowedTargets(hosts=frozenset(("127.0.0.1",)))


async def all_of(checks: AsyncGenerator[Check, None]) -> list[Check]:
    async with asyncio.timeout(LIMIT), aclosing(checks):
        return [check async for check in checks]


async def diagnose_server(server: ServerConfig | DesiredServer, **options: Any) -> list[Check]:
    """Return the checks of the connection to a server that is not connected yet."""
    entry = server if isinstance(server, DesiredServer) else DesiredServer(server)
    async with running_toolbox(entry, policy=ConnectPolicy.LAZY, **options) as box:
        checks = await all_of(box.diagnose(entry.config.id))
    return [check for check in checks if check.name in (*WAY, "command")] or checks


def check_by_name(checks: list[Check], name: str) -> Check:
    return next(check for check in checks if check.name == name)


def broken_at(checks: list[Check], name: str) -> Check:
    """Return the check that broke. Earlier checks have not broken, and later ones are skipped."""
    names = [check.name for check in checks]
    at = names.index(name)
    assert all(check.finding is not CheckStatus.BROKEN for check in checks[:at]), checks
    assert all(check.finding is CheckStatus.SKIPPED for check in checks[at + 1 :]), checks
    broken = checks[at]
    assert broken.finding is CheckStatus.BROKEN, checks
    assert broken.fix
    assert broken.seconds is not None
    return broken


# servers at an address


async def test_a_healthy_server_passes_every_look(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("t")
    hints = {"readOnlyHint": False, "destructiveHint": True}
    listed = [tool("t"), {**tool("wipe out"), "annotations": hints}]
    endpoint.on["tools/list"] = lambda m: result(m, {"tools": listed})
    checks = await diagnose_server(remote("s", endpoint.url, trusted=True))
    assert [check.name for check in checks] == WAY
    assert {check.finding for check in checks if check.name != "TLS"} - {CheckStatus.DOUBTFUL} == {CheckStatus.WELL}
    assert check_by_name(checks, "TLS").finding is CheckStatus.SKIPPED
    assert "2026-07-28" in check_by_name(checks, "MCP").detail
    said = check_by_name(checks, "tools").detail
    assert said.startswith("2 tools, 2 write, 1 destructive")
    assert "wipe out as s__wipe_out_" in said


async def test_a_healthy_server_that_does_not_know_the_request_of_the_check_is_not_warned_of(
    endpoint: FakeEndpoint,
) -> None:
    endpoint.speak_modern("t")
    endpoint.on["ping"] = lambda m: Answer(404, b"")
    checks = await diagnose_server(remote("s", endpoint.url))
    assert check_by_name(checks, "HTTP").finding is CheckStatus.WELL
    assert "404" in check_by_name(checks, "HTTP").detail
    assert [check.name for check in checks if check.finding is CheckStatus.DOUBTFUL] == []


STARTS = ("server/discover", "initialize")
GONE = Answer(404, b"")
PAGE = Answer(200, b"<html>welcome</html>", {"content-type": "text/html"})
MOVED = Answer(307, headers={"location": "https://ana:passw0rd@example.org/new?key=abcdefg"})


@pytest.mark.parametrize(
    ("answers", "name", "detail", "fix"),
    [
        (dict.fromkeys(("ping", *STARTS), GONE), "MCP", "", "path of the url|check the url"),
        (dict.fromkeys(("ping", *STARTS), PAGE), "MCP", "", "."),
        (dict.fromkeys(STARTS, Silence()), "MCP", "within 0.3 s", "connect_timeout"),
        ({"ping": MOVED}, "HTTP", "answers 307 Temporary Redirect and points to https://example.org/new.$", "instead"),
    ],
    ids=["a wrong path", "no MCP server", "silence", "a redirect"],
)
async def test_an_answer_that_ends_the_checks(
    endpoint: FakeEndpoint, answers: dict[str, Any], name: str, detail: str, fix: str
) -> None:
    endpoint.on.update(answers)
    check = broken_at(await diagnose_server(remote("s", endpoint.url, connect_timeout=0.3)), name)
    assert re.search(detail, check.detail)
    assert re.search(fix, check.fix)


async def test_an_address_that_is_not_allowed_is_not_even_looked_up(endpoint: FakeEndpoint) -> None:
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    config = ServerConfig("s", HttpTransport(endpoint.url), id="u1")
    [standing] = await diagnose_server(config, resolve=resolve)
    assert standing.is_broken
    assert "private network" in standing.detail
    inside = replace(config, transport=HttpTransport(f"https://tools.example:{endpoint.port}/mcp"))
    assert "private network" in broken_at(await diagnose_server(inside, resolve=resolve), "DNS").detail
    assert endpoint.seen == []
    assert asked == ["tools.example"]


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Unknown"), r"some\.example is not known: Unknown\."),
        (None, r"No answer within 0\.1 s"),
    ],
)
async def test_a_name_that_is_not_resolved_is_named(
    failure: OSError | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        if failure is not None:
            raise failure
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr("bot.mcp.doctor._CHECK_SECONDS", 0.1)
    config = ServerConfig("s", HttpTransport("https://some.example/mcp"), id="u1")
    assert re.match(said, broken_at(await diagnose_server(config, resolve=resolve), "DNS").detail)


@pytest.mark.parametrize(
    ("kind", "http", "mcp"),
    [
        (HttpKind.SSE, "a web server answers (200 OK)", "speaks MCP 2025-11-25"),
        (
            HttpKind.AUTO,
            "a web server answers (405 Method Not Allowed), as one of HTTP+SSE does",
            "speaks MCP 2025-11-25 over HTTP+SSE",
        ),
    ],
)
async def test_a_server_of_http_and_sse_is_asked_for_its_stream(kind: HttpKind, http: str, mcp: str) -> None:
    async with FakeEventStream() as server:
        server.speak_legacy("t")
        checks = await diagnose_server(ServerConfig("s", HttpTransport(server.url, kind=kind)))
    assert (check_by_name(checks, "HTTP").finding, check_by_name(checks, "HTTP").detail) == (CheckStatus.WELL, http)
    assert check_by_name(checks, "MCP").detail.startswith(mcp)


async def test_a_server_without_mcp_is_not_said_to_speak_it(endpoint: FakeEndpoint) -> None:
    found = await diagnose_server(ServerConfig("s", HttpTransport(endpoint.url, kind=HttpKind.JSONRPC)))
    mcp = next(check for check in found if check.name == "MCP")
    assert mcp.finding is CheckStatus.SKIPPED
    assert mcp.detail == "It speaks JSON-RPC 2.0 and not MCP, so it is contacted at the first call only."


async def test_a_closed_port_is_named(endpoint: FakeEndpoint) -> None:
    port = endpoint.port
    await endpoint.stop()
    said = broken_at(await diagnose_server(remote("s", f"http://127.0.0.1:{port}/mcp")), "TCP")
    assert f"port {port}" in said.detail
    assert "firewall" in said.fix


@pytest.mark.parametrize(
    ("certificate", "trusted", "said"),
    [
        ({}, False, "self-signed"),
        ({"days": -1.0}, True, "expired"),
        ({"host": "other.example"}, True, "another host"),
    ],
)
async def test_an_error_of_a_certificate_is_named(
    certificate: dict[str, Any], trusted: bool, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, file = self_signed(tmp_path, **certificate)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
    async with FakeEndpoint(tls=context) as endpoint:
        check = broken_at(await diagnose_server(remote("s", endpoint.url)), "TLS")
    assert said in check.detail


@pytest.mark.parametrize(
    ("days", "finding"), [(365.0, CheckStatus.WELL), (3.5, CheckStatus.DOUBTFUL)], ids=["long", "for a few days"]
)
async def test_a_good_certificate_passes_and_one_that_soon_expires_is_reported(
    days: float, finding: CheckStatus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, file = self_signed(tmp_path, days=days, host="tools.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with FakeEndpoint(tls=context) as endpoint:
        endpoint.speak_modern("t")
        config = ServerConfig("s", HttpTransport(f"https://tools.example:{endpoint.port}/mcp"), id="u1")
        allowances = AllowedTargets(hosts=frozenset(("tools.example",)))
        checks = await diagnose_server(config, allowances=allowances, resolve=resolve)
        assert endpoint.seen[0][0]["host"] == f"tools.example:{endpoint.port}"
    assert check_by_name(checks, "TLS").finding is finding
    assert check_by_name(checks, "MCP").finding is CheckStatus.WELL


async def test_a_port_without_tls_is_named() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        check = broken_at(await diagnose_server(remote("s", f"https://127.0.0.1:{port}/mcp")), "TLS")
    assert "does not speak TLS" in check.detail


async def test_the_real_server_passes_every_look() -> None:
    with http_server() as (url, _):
        checks = await diagnose_server(ServerConfig("s", HttpTransport(url), id="u1"), allowances=LOOPBACK)
    assert [check.name for check in checks if check.finding in (CheckStatus.BROKEN, CheckStatus.DOUBTFUL)] == [], checks
    assert "12 tools" in check_by_name(checks, "tools").detail


@pytest.mark.parametrize(
    ("headers", "sent"),
    [
        ({}, "no Authorization header"),
        ({"Authorization": "Bearer top-secret-1"}, "an Authorization header of the kind Bearer"),
        ({"authorization": "top-secret-1"}, "an Authorization header of the kind of its own"),
    ],
)
async def test_a_refusal_has_the_requested_and_the_sent_sign_in(
    endpoint: FakeEndpoint, headers: dict[str, str], sent: str
) -> None:
    endpoint.on["ping"] = Answer(401, b"", {"www-authenticate": 'Basic realm="top-secret-1"'})
    checks = await diagnose_server(remote("s", endpoint.url, headers))
    check = broken_at(checks, "authentication")
    assert check.detail == f"The server answers 401 Unauthorized. It asks for Basic. The bot sends {sent}."
    assert "top-secret-1" not in repr(checks)


async def test_tools_that_are_not_offered_are_counted(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern()
    endpoint.on["tools/list"] = lambda m: result(m, {"tools": [tool("t"), tool("t"), {"name": 5}, {}]})
    check = check_by_name(await diagnose_server(remote("s", endpoint.url)), "tools")
    assert check.finding is CheckStatus.DOUBTFUL
    assert "1 tool," in check.detail
    assert "not offered: 2 without a name, a second s__t" in check.detail


@pytest.mark.parametrize(
    ("setting", "value"), [("auto_context_tool", "search"), ("preview", {"t": "get"})], ids=["context", "preview"]
)
async def test_a_missing_tool_of_a_setting_is_reported(endpoint: FakeEndpoint, setting: str, value: Any) -> None:
    endpoint.speak_modern("t")
    check = check_by_name(await diagnose_server(remote("s", endpoint.url, **{setting: value})), "tools")
    assert (check.finding, check.fix) == (CheckStatus.DOUBTFUL, f"correct its {setting}")


# processes


async def test_a_process_that_works_passes_and_is_ended(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    checks = await diagnose_server(raw(script={"listings": [[{"tools": [tool("t")]}]], "pids": str(pids)}))
    assert [(check.name, check.finding) for check in checks] == [
        ("command", CheckStatus.WELL),
        ("MCP", CheckStatus.WELL),
        ("tools", CheckStatus.WELL),
    ]
    assert not alive(int(pids.read_text()))


@pytest.mark.parametrize(
    ("transport", "said"),
    [
        (StdioTransport("no-such-command"), "no-such-command was not found"),
        (StdioTransport("python", cwd="/no/such/folder"), "The folder /no/such/folder does not exist."),
        (StdioTransport(str(Path(__file__))), "cannot be executed"),
    ],
)
async def test_a_command_that_cannot_be_started_is_named_and_not_started(transport: StdioTransport, said: str) -> None:
    assert said in broken_at(await diagnose_server(ServerConfig("s", transport)), "command").detail


async def test_a_program_that_an_admin_may_not_run_is_not_run(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    config = replace(raw(script={"pids": str(pids)}), id="u1")
    [standing] = await diagnose_server(config)
    assert standing.is_broken
    assert "the operator has not allowed" in standing.detail
    assert not pids.exists()


async def test_the_last_words_of_a_process_are_quoted_without_its_secrets() -> None:
    config = real("s", "--start", "exit", env={"FAKE_TOKEN": "tok-en-123"})
    checks = await diagnose_server(DesiredServer(config, secrets=frozenset(("tok-en-123",))))
    assert "no licence found, token ***" in broken_at(checks, "MCP").detail
    assert "tok-en-123" not in repr(checks)


async def test_a_definition_that_cannot_be_used_is_not_looked_at_further() -> None:
    entry = DesiredServer(ServerConfig("s", StdioTransport("")), problem="Server s has no key. Fix: set it.")
    [check] = await diagnose_server(entry)
    assert (check.finding, check.detail, check.fix) == (CheckStatus.BROKEN, "Server s has no key.", "set it")


async def test_closing_the_toolbox_ends_running_checks(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    config = raw(script={"probe": "silence", "pids": str(pids)})
    async with running_toolbox(config, policy=ConnectPolicy.LAZY) as box:
        running = asyncio.create_task(all_of(box.diagnose("file:s")))
        await until(pids.exists)
        await box.close()
        assert not alive(int(pids.read_text()))
        assert check_by_name(await running, "MCP").is_broken


# managed servers


async def test_a_kept_server_is_looked_at_with_its_sync_and_its_calls(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("t")
    async with connected_toolbox(remote("s", endpoint.url)) as box:
        for _ in range(3):
            assert text(await call(tool_by_name(box, "t"), box)) == "ok"
        since = box.servers()[0].connected_at
        checks = await all_of(box.diagnose("file:s"))
        assert box.servers()[0].connected_at == since
    assert [check.name for check in checks] == ["standing", *WAY, "sync", "calls"]
    assert check_by_name(checks, "standing").detail == "connected"
    assert check_by_name(checks, "sync").finding is CheckStatus.WELL
    assert "the last 3" in check_by_name(checks, "calls").detail
    assert "limit 30 s" in check_by_name(checks, "calls").detail


@pytest.mark.parametrize("is_trusted", [False, True])
async def test_odd_settings_of_information_flow_are_reported(endpoint: FakeEndpoint, is_trusted: bool) -> None:
    """Those of a server that the operator trusts in the file are not doubted."""
    missing: dict[str, Any] = {"tool_words": {"gone": Words.SHARED}, "tool_recipients": {"t": ("to",)}}
    flows = ServerFlows(Words.OWN, **({} if is_trusted else missing))
    endpoint.speak_modern()
    hints = {"openWorldHint": True, "readOnlyHint": True}
    endpoint.on["tools/list"] = lambda m: result(m, {"tools": [{**tool("t"), "annotations": hints}]})
    async with connected_toolbox(remote("s", endpoint.url, flows=flows, trusted=is_trusted)) as box:
        checks = await all_of(box.diagnose("file:s"))
    odd = [check for check in checks if check.finding is CheckStatus.DOUBTFUL]
    assert {check.name for check in odd} == (set() if is_trusted else {"information flow"})
    assert [check.detail for check in odd] == [
        "Words, sends or recipients are set for tools that it does not have: gone.",
        "The recipients of t are to be in arguments that it does not have: to. They exempt nothing.",
        "It says that the world of t is open, and they are set to own words or to closed.",
        "It is not marked trusted, so that even tools that only read are treated as if they changed something.",
    ][: 0 if is_trusted else 4]


@pytest.mark.parametrize("is_connected", [True, False])
async def test_a_server_that_does_not_answer_is_found_out(endpoint: FakeEndpoint, is_connected: bool) -> None:
    endpoint.speak_modern("t")
    async with running_toolbox(remote("s", endpoint.url), policy=ConnectPolicy.LAZY) as box:
        if is_connected:
            await box.connect("file:s")
        for method in ("tools/list",) if is_connected else STARTS:
            endpoint.on[method] = lambda m: error(m, -32603, "the licence has run out")
        if not is_connected:
            await box.connect("file:s")
        checks = await all_of(box.diagnose("file:s"))
    assert check_by_name(checks, "MCP").finding is (CheckStatus.DOUBTFUL if is_connected else CheckStatus.BROKEN)
    assert "the licence has run out" in check_by_name(checks, "MCP").detail
    assert ("the licence has run out" in checks[0].detail) is not is_connected


async def test_slow_calls_are_a_reason_to_raise_the_limit(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("t")
    async with connected_toolbox(remote("s", endpoint.url, tool_timeout=10.0)) as box:
        kept = box._servers.get("file:s")
        assert kept is not None
        assert kept.connection is not None
        kept.connection.durations.extend([0.1] * 18 + [8.5, 9.5])
        check = check_by_name(await all_of(box.diagnose("file:s")), "calls")
    assert check.finding is CheckStatus.DOUBTFUL
    assert check.detail == "the last 20: half within 0.10 s, 95 % within 9.50 s, limit 10 s"
    assert "tool_timeout" in check.fix


@pytest.mark.parametrize("standing", [ServerEnablement.DISABLED, ServerEnablement.DISCONNECTED])
async def test_looking_at_a_server_that_is_off_does_not_switch_it_on(
    standing: ServerEnablement, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    async with running_toolbox(DesiredServer(raw(script={"pids": str(pids)}), standing)) as box:
        checks = await all_of(box.diagnose("file:s"))
        assert box.servers()[0].status in (ServerStatus.DISABLED, ServerStatus.DISCONNECTED)
    assert checks[0].finding is CheckStatus.SKIPPED
    assert all(check.finding is not CheckStatus.WELL for check in checks if check.name in ("MCP", "tools"))
    assert not pids.exists()


async def test_old_and_failed_syncs_are_reported() -> None:
    old = CachedCapabilities(SyncStatus.SYNCED, ServerCapabilities(), at=1000.0)
    failed = CachedCapabilities(SyncStatus.SYNC_FAILED, ServerCapabilities(), at=1000.0, problem="No. Fix: look.")
    config = remote("s", "http://127.0.0.1:9/mcp")
    for synced, fix in ((old, "sync, so that"), (failed, "look"), (CachedCapabilities(), "connect it")):
        async with running_toolbox(
            DesiredServer(config, ServerEnablement.ON, synced), policy=ConnectPolicy.LAZY
        ) as box:
            check = check_by_name(await all_of(box.diagnose("file:s")), "sync")
        assert check.finding is CheckStatus.DOUBTFUL
        assert check.fix.startswith(fix)


async def test_tools_that_services_of_models_have_refused_are_named_with_the_reason() -> None:
    def refusal_reasons(tool: Tool) -> dict[str, str]:
        reason = {"": "The schema of s__t\u202e holds hunter2-the-secret.", "openai:small": "Too deep."}
        return reason if tool.original_name == "t" else {}

    script = {"listings": [[{"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("t", "u")]}]]}
    entry = DesiredServer(raw(script=script), secrets=frozenset(["hunter2-the-secret"]))
    async with connected_toolbox(entry, refused=refusal_reasons) as box:
        [check] = [check async for check in box.diagnose("file:s") if check.name == "models"]
    assert check.finding is CheckStatus.DOUBTFUL
    assert "s__t by the model: The schema of s__t" in check.detail
    assert "s__t by openai:small: Too deep." in check.detail
    assert "s__u" not in check.detail
    assert "hunter2" not in check.detail
    assert check.detail.isprintable()
    assert check.fix
