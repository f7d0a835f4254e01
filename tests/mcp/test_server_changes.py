"""Servers that are added, changed and removed while the toolbox runs, and the moments of connecting to them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.domain.pins import ReviewPolicy
from bot.domain.servers import (
    CachedCapabilities,
    ConnectPolicy,
    DesiredServer,
    HttpTransport,
    OAuthTerms,
    Protocol,
    ServerCapabilities,
    ServerConfig,
    ServerEnablement,
    ServerSnapshot,
    ServerStatus,
    StdioTransport,
    SyncStatus,
)
from bot.domain.tools import CallOutcomeUnknown, CallReturned, Tool, ToolOutcome
from bot.errors import NotFound, ServerTrouble
from bot.examination import CheckStatus
from bot.mcp.config.checks import AllowedTargets, definition_fingerprint
from bot.mcp.redaction import KnownSecrets
from bot.mcp.toolbox import McpToolbox
from tests.fakes.mcp.certificates import self_signed
from tests.fakes.mcp.endpoint import OK, Answer, FakeEndpoint, Message, Reaction, Silence, result, tool
from tests.mcp.toolboxes import (
    alive,
    call,
    connected_toolbox,
    entries,
    faster,
    raw,
    remote,
    running_toolbox,
    text,
    tool_by_name,
    unknown,
    unsent_reason,
    until,
)

LOOPBACK = AllowedTargets(hosts=frozenset(("127.0.0.1",)))
KNOWN = CachedCapabilities(
    SyncStatus.SYNCED, ServerCapabilities((Tool("old__t", "old", "t", trusted=True, server_id="elsewhere"),)), at=1000.0
)

ELSEWHERE = remote("s", "http://127.0.0.1:9/mcp")


def synced_server(config: ServerConfig, *names: str) -> DesiredServer:
    """Return a server whose tools were synced just now."""
    tools = tuple(Tool(f"{config.name}__{name}", config.name, name) for name in names or ("t",))
    capabilities = ServerCapabilities(tools, definition=definition_fingerprint(config))
    return DesiredServer(config, synced=CachedCapabilities(SyncStatus.SYNCED, capabilities, at=time.time()))


def _with_synced(entry: DesiredServer, **fields: Any) -> DesiredServer:
    return replace(entry, synced=replace(entry.synced, **fields))


def _with_config(entry: DesiredServer, **fields: Any) -> DesiredServer:
    return replace(entry, config=replace(entry.config, **fields))


def _with_header(entry: DesiredServer) -> HttpTransport:
    assert isinstance(entry.config.transport, HttpTransport)
    return replace(entry.config.transport, headers={"x-toolset": "more"})


def offering(*names: str, pids: Path | None = None, **actions: Any) -> dict[str, Any]:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in (*names, *actions)]
    calls = {name: {"result": OK} for name in names} | actions
    return {"listings": [[{"tools": tools}]], "calls": calls, **({} if pids is None else {"pids": str(pids)})}


def state(box: McpToolbox, name: str = "s") -> ServerSnapshot:
    return next(server for server in box.servers() if server.config.name == name)


def status(box: McpToolbox, name: str = "s") -> ServerStatus:
    return state(box, name).status


async def offered_names(box: McpToolbox, workspace: str = "") -> list[str]:
    return [tool.name for tool in (await box.offer(workspace)).tools]


def theirs(endpoint: FakeEndpoint, name: str = "s", **fields: Any) -> ServerConfig:
    """Return a server that an admin has defined."""
    return ServerConfig(name, HttpTransport(endpoint.url), **{"id": f"id-{name}", **fields})


# following


async def test_a_new_server_is_used_and_one_that_is_gone_is_not() -> None:
    async with running_toolbox(raw("a", script=offering("t"))) as box:
        assert await offered_names(box) == ["a__t"]
        gone = tool_by_name(box, "t", "a")
        await box.reconcile(entries(raw("b", script=offering("t"))))
        await until(lambda: status(box, "b") is ServerStatus.CONNECTED)
        assert await offered_names(box) == ["b__t"]
        assert [server.config.name for server in box.servers()] == ["b"]
        assert "MCP server a not found" in unsent_reason(await call(gone, box))


async def test_an_unchanged_server_keeps_its_connection_and_its_calls(tmp_path: Path) -> None:
    record = tmp_path / "record"
    script = {**offering("t", slow={"do": "silence"}), "record": str(record)}
    async with connected_toolbox(raw("a", script=script)) as box:
        since = state(box, "a").connected_at
        waiting = asyncio.create_task(call(tool_by_name(box, "slow", "a"), box))
        await until(lambda: "tools/call" in record.read_text())
        await box.reconcile(entries(raw("b", script=offering("t")), raw("a", script=script)))
        assert state(box, "a").connected_at == since
        assert text(await call(tool_by_name(box, "t", "a"), box)) == "ok"
        assert not waiting.done()
    assert isinstance(await waiting, CallOutcomeUnknown)


async def test_a_change_makes_a_new_connection_while_the_old_one_ends_its_calls() -> None:
    held = asyncio.Event()
    async with FakeEndpoint() as one, FakeEndpoint() as other:
        one.speak_modern("t")
        other.speak_modern("t")
        slow = one.hold("tools/call", held)
        async with connected_toolbox(remote("s", one.url)) as box:
            waiting = asyncio.create_task(call(tool_by_name(box, "t"), box))
            await slow.wait()
            await box.reconcile(entries(remote("s", other.url)))
            await until(lambda: status(box) is ServerStatus.CONNECTED)
            assert text(await call(tool_by_name(box, "t"), box)) == "ok"
            assert "tools/call" in other.methods()
            assert not waiting.done()
            held.set()
            assert text(await waiting) == "ok"


@asynccontextmanager
async def leaving(folder: Path, farewell: float) -> AsyncIterator[tuple[McpToolbox, asyncio.Task[ToolOutcome], Path]]:
    """Remove a server in the middle of a call that never ends. Yield also the call and the file of process ids."""
    pids, record = folder / "pids", folder / "record"
    script = {**offering("t", slow={"do": "silence"}, pids=pids), "record": str(record)}
    async with connected_toolbox(raw(script=script), pacing=faster(farewell=farewell)) as box:
        waiting = asyncio.create_task(call(tool_by_name(box, "slow"), box))
        await until(lambda: "tools/call" in record.read_text())
        await box.reconcile([])
        yield box, waiting, pids


async def test_a_call_that_does_not_end_is_not_waited_for_long(tmp_path: Path) -> None:
    async with leaving(tmp_path, 0.1) as (box, waiting, pids):
        assert await offered_names(box) == []
        assert "before it answered" in unknown(await waiting)
        await until(lambda: not alive(int(pids.read_text())))


async def test_closing_ends_also_closing_connections(tmp_path: Path) -> None:
    async with leaving(tmp_path, 60.0) as (_, waiting, pids):
        pass
    assert isinstance(await waiting, CallOutcomeUnknown)
    assert not alive(int(pids.read_text()))


@pytest.mark.parametrize(
    ("standing", "stands", "said"),
    [
        (ServerEnablement.DISABLED, ServerStatus.DISABLED, []),
        (ServerEnablement.DISCONNECTED, ServerStatus.DISCONNECTED, ["Server s is disconnected."]),
    ],
)
async def test_a_server_that_is_switched_off_offers_nothing_at_once_and_comes_back(
    standing: ServerEnablement, stands: ServerStatus, said: list[str], tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    config = raw(script=offering("t", pids=pids))
    async with running_toolbox(config) as box:
        assert await offered_names(box) == ["s__t"]
        tool = tool_by_name(box, "t")
        await box.reconcile([DesiredServer(config, standing, KNOWN)])
        offer = await box.offer()
        assert offer.tools == ()
        assert [sentence.partition(" Fix: ")[0] for sentence in offer.absent] == said
        assert status(box) is stands
        unsent_reason(await call(tool, box))
        await until(lambda: not alive(int(pids.read_text())))
        await box.reconcile([DesiredServer(config, ServerEnablement.ON, KNOWN)])
        assert text(await call(tool, box)) == "ok"
        assert len(pids.read_text().splitlines()) == 2


async def test_a_disconnected_server_stays_so_until_it_is_asked_for(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    entry = DesiredServer(raw(script=offering("t", pids=pids)), ServerEnablement.DISCONNECTED, KNOWN)
    async with running_toolbox(entry, policy=ConnectPolicy.EAGER) as box:
        await box.reconcile([entry])
        with pytest.raises(ServerTrouble, match="disconnected"):
            await box.sync("file:s")
        assert not pids.exists()
        assert (await box.connect("file:s")).status is ServerStatus.CONNECTED
        since = state(box).connected_at
        await box.reconcile([replace(entry, enablement=ServerEnablement.ON)])
        assert state(box).connected_at == since
        assert text(await call(tool_by_name(box, "t"), box)) == "ok"


async def test_following_changes_does_not_wait_for_servers(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with running_toolbox(raw(script={"probe": "silence", "pids": str(pids)})) as box:
        await until(pids.exists)
        async with asyncio.timeout(10):
            for n in range(20):
                await box.reconcile(
                    entries(raw(script={"probe": "silence", "pids": str(pids)}, connect_timeout=20.0 + n))
                )
        await box.reconcile([])
    assert not any(alive(int(pid)) for pid in pids.read_text().splitlines())


async def test_a_removed_server_is_not_started_by_a_late_reader(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with running_toolbox(raw(script=offering("t", pids=pids)), policy=ConnectPolicy.LAZY) as box:
        checks = box.diagnose("file:s")
        assert (await anext(checks)).name == "standing"
        await box.reconcile([])
        await until(lambda: not [task for task in asyncio.all_tasks() if task.get_name().startswith("mcp:leaving")])
        found = {check.name: check async for check in checks}
        assert found["MCP"].finding is CheckStatus.BROKEN
    assert not pids.exists()


async def test_a_closed_toolbox_follows_no_changes(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with running_toolbox() as box:
        pass
    await box.reconcile(entries(raw(script=offering("t", pids=pids))))
    assert box.servers() == []


async def test_an_entry_that_cannot_be_used_says_why_and_mends_itself() -> None:
    config = raw(script=offering("t"))
    async with running_toolbox(DesiredServer(config, problem="Server s has no key. Fix: set it.")) as box:
        assert (await box.offer()).absent == ("Server s has no key. Fix: set it.",)
        assert status(box) is ServerStatus.FAILED
        with pytest.raises(ServerTrouble, match="no key") as refused:
            await box.sync("file:s")
        assert refused.value.fix == "set it"
        await box.reconcile(entries(config))
        await until(lambda: status(box) is ServerStatus.CONNECTED)


# definitions of admins


async def test_an_admins_server_must_be_allowed(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("t")
    async with running_toolbox(theirs(endpoint)) as box:
        [absent] = (await box.offer()).absent
        assert "MCP_ALLOWED_HOSTS" in absent
        assert endpoint.seen == []
    async with running_toolbox(theirs(endpoint), allowances=LOOPBACK) as box:
        assert await offered_names(box) == ["s__t"]


async def test_an_admins_program_is_not_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    config = replace(raw(script=offering("t", pids=pids)), id="id-s")
    async with running_toolbox(config) as box:
        assert "the operator has not allowed" in (await box.offer()).absent[0]
        await box.connect("id-s")
        assert not pids.exists()
    async with running_toolbox(config, allowances=AllowedTargets(commands=frozenset(("python",)))) as box:
        assert await offered_names(box) == ["s__t"]


async def test_a_program_that_is_not_allowed_is_not_started_for_any_definer(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    config = raw(script=offering("t", pids=pids))
    allowed = AllowedTargets(commands=frozenset(("python",)), names=frozenset(("other",)))
    for theirs in (config, replace(config, id="id-s")):
        async with running_toolbox(theirs, allowances=allowed) as box:
            assert "MCP_ALLOWED_SERVERS" in (await box.offer()).absent[0]
            assert (await box.connect(theirs.id)).status is ServerStatus.FAILED
            checks = [check async for check in box.diagnose(theirs.id)]
            assert any("MCP_ALLOWED_SERVERS" in check.detail for check in checks)
        assert not pids.exists()


async def test_a_name_that_later_leads_inside_is_not_followed_there(endpoint: FakeEndpoint) -> None:
    """DNS rebinding: a name that resolves to loopback is followed only if the operator allows it."""
    asked: list[str] = []
    answers = ["192.0.2.1"]

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return list(answers)

    endpoint.speak_modern("t")
    url = f"http://tools.example:{endpoint.port}/mcp"
    config = ServerConfig("s", HttpTransport(url), id="id-s")
    by_name = AllowedTargets(hosts=frozenset(("tools.example",)))
    answers[:] = ["127.0.0.1"]
    async with running_toolbox(config, allowances=by_name, resolve=resolve) as box:
        assert await offered_names(box) == ["s__t"]
        assert endpoint.seen[0][0]["host"] == f"tools.example:{endpoint.port}"
    endpoint.seen.clear()
    public = replace(config, transport=HttpTransport(f"https://tools.example:{endpoint.port}/mcp"))
    async with running_toolbox(public, resolve=resolve) as box:
        [absent] = (await box.offer()).absent
    assert "private network" in absent
    assert endpoint.seen == []
    assert set(asked) == {"tools.example"}


async def test_every_request_of_a_connection_goes_to_a_checked_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, file = self_signed(tmp_path, host="tools.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    answers = ["127.0.0.1"]

    async def resolve(host: str, port: int) -> list[str]:
        return list(answers)

    async with FakeEndpoint(tls=context) as endpoint:
        endpoint.speak_modern("t")
        url = f"https://tools.example:{endpoint.port}/mcp"
        config = ServerConfig("s", HttpTransport(url), id="id-s")
        async with running_toolbox(config, allowances=LOOPBACK, resolve=resolve) as box:
            [tool] = (await box.offer()).tools
            assert text(await call(tool, box)) == "ok"
            for inside in ("127.0.0.2", "10.0.0.1"):
                answers[:] = [inside]
                assert "private network" in unsent_reason(await call(tool, box))
            assert endpoint.methods().count("tools/call") == 1


# workspaces


async def test_a_workspace_has_its_own_servers_and_everybodys(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("t")
    shared = remote("everywhere", endpoint.url)
    ones = theirs(endpoint, "mine", id="1", workspace="slack:T1")
    others = theirs(endpoint, "mine", id="2", workspace="slack:T2")
    async with running_toolbox(shared, ones, others, allowances=LOOPBACK) as box:
        assert await offered_names(box) == ["everywhere__t"]
        for workspace, server_id in (("slack:T1", "1"), ("slack:T2", "2")):
            offer = await box.offer(workspace)
            assert [tool.name for tool in offer.tools] == ["everywhere__t", "mine__t"]
            assert [tool.server_id for tool in offer.tools] == ["file:everywhere", server_id]
            assert text(await call(offer.tools[1], box)) == "ok"
        assert await offered_names(box, "slack:T3") == ["everywhere__t"]


async def test_problems_of_another_workspace_are_not_shown() -> None:
    broken = DesiredServer(ServerConfig("s", StdioTransport(""), id="1", workspace="slack:T1"), problem="No. Fix: yes.")
    async with running_toolbox(broken) as box:
        assert (await box.offer("slack:T1")).absent == ("No. Fix: yes.",)
        assert (await box.offer("slack:T2")).absent == ()


# when a server is connected to


@pytest.mark.parametrize(
    ("policy", "connected"),
    [
        (ConnectPolicy.EAGER, {"auto", "manual"}),
        (ConnectPolicy.AUTO, {"auto"}),
        (ConnectPolicy.LAZY, set()),
    ],
)
async def test_the_start_policy_decides_which_servers_connect_at_the_start(
    policy: ConnectPolicy, connected: set[str]
) -> None:
    async with FakeEndpoint() as auto, FakeEndpoint() as manual:
        for endpoint in (auto, manual):
            endpoint.speak_modern("t")
        configs = remote("auto", auto.url), remote("manual", manual.url, auto_connect=False)
        async with running_toolbox(*configs, policy=policy) as box:
            await box.wait_ready()
            assert {
                server.config.name for server in box.servers() if server.status is ServerStatus.CONNECTED
            } == connected
            assert {name for name, endpoint in (("auto", auto), ("manual", manual)) if endpoint.seen} == connected


async def test_an_idle_server_offers_its_known_tools_and_its_first_call_connects_it(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("t", "new")
    entry = DesiredServer(remote("s", endpoint.url, system_instruction="Be exact."), synced=KNOWN)
    async with running_toolbox(entry, policy=ConnectPolicy.LAZY) as box:
        offer = await box.offer()
        [tool] = offer.tools
        assert (tool.name, tool.server, tool.server_id, tool.trusted) == ("s__t", "s", "file:s", False)
        assert offer.guidance_for("s").system_instruction == "Be exact."
        assert offer.absent == ()
        assert status(box) is ServerStatus.IDLE
        assert (state(box).tool_count, state(box).synced_at) == (1, 1000.0)
        assert endpoint.seen == []
        outcomes = await asyncio.gather(*(call(tool, box) for _ in range(50)))
        assert all(isinstance(outcome, CallReturned) for outcome in outcomes)
        assert endpoint.methods().count("server/discover") == 1
        offer = await box.offer()
        assert [tool.name for tool in offer.tools] == ["s__t"]
        assert offer.withheld == {"s__new"}


async def test_an_unknown_server_offers_nothing_until_it_is_connected(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("t")
    async with running_toolbox(remote("s", endpoint.url), policy=ConnectPolicy.LAZY) as box:
        offer = await box.offer()
        assert (offer.tools, status(box)) == ((), ServerStatus.PENDING)
        assert "has not been connected yet" in offer.absent[0]
        assert (await box.connect("file:s")).status is ServerStatus.CONNECTED
        assert await offered_names(box) == ["s__t"]


async def test_an_offer_does_not_wait_for_a_server_whose_tools_are_known(endpoint: FakeEndpoint) -> None:
    endpoint.on = dict.fromkeys(("server/discover", "initialize"), Silence())
    async with running_toolbox(synced_server(remote("s", endpoint.url)), first_wait=60.0) as box:
        await until(lambda: status(box) is ServerStatus.CONNECTING)
        async with asyncio.timeout(15):
            assert await offered_names(box) == ["s__t"]


async def test_an_offer_waits_for_a_server_that_was_defined_otherwise_when_its_tools_were_listed(
    endpoint: FakeEndpoint,
) -> None:
    endpoint.speak_modern("t", "new")
    before = synced_server(ELSEWHERE)
    entry = DesiredServer(remote("s", endpoint.url), synced=before.synced)
    async with running_toolbox(entry, review=ReviewPolicy.OFF) as box:
        assert await offered_names(box) == ["s__new", "s__t"]


# servers whose stored tools are recent


async def test_a_server_whose_tools_are_known_is_connected_by_their_first_call_alone(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("t")
    entry = synced_server(remote("s", endpoint.url))
    async with running_toolbox(entry, known_for=60.0) as box:
        offer = await box.offer()
        await box.reconcile([entry])
        assert [tool.name for tool in offer.tools] == ["s__t"]
        assert (offer.absent, offer.unavailable) == ((), frozenset())
        assert (status(box), endpoint.seen) == (ServerStatus.IDLE, [])
        assert text(await call(offer.tools[0], box)) == "ok"
        assert status(box) is ServerStatus.CONNECTED


async def test_the_tools_of_a_connection_are_enough_for_the_next_start(tmp_path: Path) -> None:
    stored: dict[str, ServerCapabilities] = {}

    async def on_synced(server_id: str, capabilities: ServerCapabilities) -> None:
        stored[server_id] = capabilities

    pids = tmp_path / "pids"
    config = raw("s", script=offering("t", pids=pids))
    async with running_toolbox(config, on_synced=on_synced, known_for=60.0) as box:
        assert await offered_names(box) == ["s__t"]
    synced = CachedCapabilities(SyncStatus.SYNCED, stored["file:s"], at=time.time())
    async with running_toolbox(DesiredServer(config, synced=synced), known_for=60.0) as box:
        assert await offered_names(box) == ["s__t"]
    assert len(pids.read_text().split()) == 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda entry: replace(entry, synced=CachedCapabilities()), id="never listed"),
        pytest.param(lambda entry: _with_synced(entry, at=time.time() - 61.0), id="listed long ago"),
        pytest.param(lambda entry: _with_synced(entry, at=time.time() + 61.0), id="listed in the future"),
        pytest.param(lambda entry: _with_synced(entry, status=SyncStatus.SYNC_FAILED), id="not listed since"),
        pytest.param(lambda entry: replace(entry, synced=synced_server(ELSEWHERE).synced), id="listed elsewhere"),
        pytest.param(lambda entry: _with_config(entry, transport=_with_header(entry)), id="another header"),
        pytest.param(lambda entry: _with_config(entry, use_instructions=True), id="its instructions are wanted"),
        pytest.param(lambda entry: _with_config(entry, protocol=Protocol.V2025_06_18), id="another protocol"),
        pytest.param(lambda entry: _with_config(entry, sign_in=OAuthTerms()), id="without its sign-in"),
    ],
)
async def test_a_server_whose_tools_may_be_others_is_connected_at_the_start(
    endpoint: FakeEndpoint,
    change: Callable[[DesiredServer], DesiredServer],
) -> None:
    endpoint.speak_modern("t")
    async with running_toolbox(change(synced_server(remote("s", endpoint.url))), known_for=60.0):
        await until(lambda: bool(endpoint.seen))


async def test_all_known_servers_are_connected_at_the_start_by_an_eager_policy(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("t")
    async with running_toolbox(
        synced_server(remote("s", endpoint.url)), known_for=60.0, policy=ConnectPolicy.EAGER
    ) as box:
        await until(lambda: status(box) is ServerStatus.CONNECTED)


async def test_a_call_is_not_sent_if_the_started_server_lists_another_tool_than_was_known(
    endpoint: FakeEndpoint,
) -> None:
    """The card of the call showed the stored definition."""
    endpoint.speak_modern("t")
    endpoint.on["tools/list"] = lambda m: result(m, {"tools": [{**tool("t"), "description": "Deletes all."}]})
    for review, reason in ((ReviewPolicy.CHANGED, "review"), (ReviewPolicy.OFF, "has changed since")):
        async with running_toolbox(synced_server(remote("s", endpoint.url)), known_for=60.0, review=review) as box:
            [shown] = (await box.offer()).tools
            assert reason in unsent_reason(await call(shown, box))
    assert "tools/call" not in endpoint.methods()


async def test_a_known_server_that_fails_stays_offered_and_is_connected_to_by_the_call(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("t")
    await endpoint.stop()
    entry = DesiredServer(remote("s", endpoint.url), synced=KNOWN)
    async with running_toolbox(entry, policy=ConnectPolicy.LAZY, pacing=faster(first_pause=60.0)) as box:
        before = await box.offer()
        [tool] = before.tools
        assert "cannot be reached" in unsent_reason(await call(tool, box))
        assert status(box) is ServerStatus.FAILED
        assert await box.offer() == before
        await endpoint.listen()
        assert text(await call(tool, box)) == "ok"


async def test_tools_that_another_process_listed_are_offered_here() -> None:
    entry = DesiredServer(remote("s", "http://127.0.0.1:9/mcp"))
    async with running_toolbox(entry, policy=ConnectPolicy.LAZY) as box:
        assert await offered_names(box) == []
        await box.reconcile([replace(entry, synced=KNOWN)])
        assert await offered_names(box) == ["s__t"]
        assert status(box) is ServerStatus.IDLE


# signing in


@pytest.mark.parametrize("code", [401, 403])
async def test_a_server_that_does_not_know_us_is_not_stormed(endpoint: FakeEndpoint, code: int) -> None:
    endpoint.speak_modern("t")

    def refusing(message: Message) -> Reaction:
        if endpoint.seen[-1][0].get("authorization") == "Bearer right-key":
            return result(message, {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
        return Answer(code, b"no", {"www-authenticate": 'Bearer realm="x"'})

    endpoint.on["server/discover"] = endpoint.on["initialize"] = refusing
    wrong = DesiredServer(remote("s", endpoint.url, {"Authorization": "Bearer wrong-key"}), synced=KNOWN)
    paused: list[float] = []

    def chance() -> float:
        paused.append(0.5)
        return 0.5

    async with running_toolbox(wrong, chance=chance) as box:
        await until(lambda: status(box) is ServerStatus.AUTH_REQUIRED)
        offer = await box.offer()
        assert offer.tools == ()
        assert str(code) in offer.absent[0]
        assert "Fix:" in offer.absent[0]
        tried = len(endpoint.seen)
        tool = Tool("s__t", "s", "t", server_id="file:s")
        assert str(code) in unsent_reason(await call(tool, box))
        assert len(endpoint.seen) == tried
        assert (await box.connect("file:s")).status is ServerStatus.AUTH_REQUIRED
        assert len(endpoint.seen) > tried
        assert paused == []  # the pause is that of a missing sign-in, not that of a failure
        await box.reconcile(entries(remote("s", endpoint.url, {"Authorization": "Bearer right-key"})))
        assert text(await call(tool, box)) == "ok"


# secrets


async def test_a_secret_is_known_before_a_server_can_say_it(
    endpoint: FakeEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="bot")
    known = KnownSecrets()

    def telling(message: Message) -> Reaction:
        said = 'the key is stored-s3cr3t-8Kx2, "quo\\"ted-Zk29vT4x" and stored-s3cr3t-8Kx2'
        return result(
            message, {"content": [{"type": "text", "text": said}], "structuredContent": {"stored-s3cr3t-8Kx2": [said]}}
        )

    endpoint.speak_modern("t")
    endpoint.on["tools/call"] = telling
    async with running_toolbox(secrets=known) as box:
        secrets = frozenset(("stored-s3cr3t-8Kx2", 'quo"ted-Zk29vT4x'))
        await box.reconcile([DesiredServer(remote("s", endpoint.url), secrets=secrets)])
        await until(lambda: status(box) is ServerStatus.CONNECTED)
        [tool] = (await box.offer()).tools
        outcome = await call(tool, box)
        assert known("stored-s3cr3t-8Kx2") == "***"
    assert isinstance(outcome, CallReturned)
    assert "***" in text(outcome)
    for shown in (repr(outcome), caplog.text):
        assert "s3cr3t-8Kx2" not in shown
        assert "ted-Zk29vT4x" not in shown


async def capabilities(box: McpToolbox) -> None:
    box.capabilities("nobody")


async def examine(box: McpToolbox) -> None:
    box.diagnose("nobody")


@pytest.mark.parametrize(
    "asking",
    [
        lambda box: box.connect("nobody"),
        lambda box: box.sync("nobody"),
        lambda box: box.read_resource("nobody", "note://1"),
        lambda box: box.get_prompt("nobody", "p", {}),
        capabilities,
        examine,
    ],
)
async def test_an_unknown_server_is_not_found(asking: Callable[[McpToolbox], Awaitable[Any]]) -> None:
    async with running_toolbox() as box:
        with pytest.raises(NotFound, match="no such MCP server"):
            await asking(box)
