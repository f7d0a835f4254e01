"""Actions on servers over HTTP: connect, sync, capabilities, and status changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.fakes.mcp.endpoint import Answer, FakeEndpoint
from tests.web.api_server import ADMIN_TOKEN, Api, opened_api
from tests.web.local_server import ON_THIS_MACHINE, SERVERS, add_server


async def events(
    api: Api, path: str, client: httpx2.AsyncClient | None = None
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Yield the events of a stream."""
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    async with (client or api.client).stream("GET", path, headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        name = ""
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))


async def test_a_disconnected_server_stays_so_until_it_is_asked_for(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira)
    answer = await api.post(f"{SERVERS}/jira/disconnect")
    assert answer.json() == {"connected": False, "status": "DISCONNECTED", "lastError": None}
    for verb in ("sync", "verify"):
        assert (await api.post(f"{SERVERS}/jira/{verb}")).status_code == 409
    answer = await api.post(f"{SERVERS}/jira/connect")
    assert answer.json() == {"connected": True, "status": "CONNECTED", "lastError": None, "signInUrl": None}


async def test_a_server_that_cannot_be_reached_says_why_in_every_place(api: Api, jira: FakeEndpoint) -> None:
    await jira.stop()
    kept = await add_server(api, jira)
    assert kept["status"] == "FAILED"
    assert kept["lastError"]
    assert (await api.get(f"{SERVERS}/jira?vocab=idle-error")).json()["status"] == "ERROR"
    assert (await api.post(f"{SERVERS}/jira/connect")).json()["connected"] is False
    looked_at = (await api.post(f"{SERVERS}/jira/verify")).json()
    assert looked_at["ok"] is False
    assert looked_at["error"]
    assert (await api.post(f"{SERVERS}/jira/sync")).status_code == 502


async def test_verifying_says_in_a_word_or_look_by_look_whether_a_server_can_be_used(
    api: Api, jira: FakeEndpoint
) -> None:
    await add_server(api, jira)
    short = (await api.post(f"{SERVERS}/jira/verify")).json()
    assert (short["ok"], short["era"], short["error"]) == (True, "2026-07-28", None)
    assert short["latencyMs"] >= 0
    deep = (await api.post(f"{SERVERS}/jira/verify?deep=true")).json()
    assert {"DNS", "TCP", "HTTP", "MCP", "tools"} <= {check["name"] for check in deep["checks"]}
    assert len(deep["checks"]) > len(short["checks"])


async def test_syncing_lists_new_changed_and_removed_tools(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira)
    jira.speak_modern("find_issue", "close_issue")
    answer = (await api.post(f"{SERVERS}/jira/sync")).json()
    assert answer["syncStatus"] == "SYNCED"
    assert "create_issue" in answer["gone"]
    assert "close_issue" in answer["new"]
    jira.on["tools/list"] = Answer(500)
    assert (await api.post(f"{SERVERS}/jira/sync")).status_code == 502


async def test_all_offers_of_a_server_are_read_whole(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira, policy="ALWAYS_ALLOW")
    await api.post(f"{SERVERS}/jira/sync")
    known = (await api.get(f"{SERVERS}/jira/capabilities")).json()
    assert [(each["name"], each["offeredAs"], each["policy"]) for each in known["tools"]] == [
        ("find_issue", "jira__find_issue", "ALWAYS_ALLOW"),
        ("create_issue", "jira__create_issue", "ALWAYS_ALLOW"),
    ]
    assert known["tools"][0]["inputSchema"] == {"type": "object", "properties": {}}
    assert [each["uri"] for each in known["resources"]] == ["jira://board"]
    assert known["prompts"][0]["arguments"] == [{"name": "of", "description": "", "required": True}]
    tools = (await api.get("/api/mcp/tools")).json()
    assert {(tool["serverId"], tool["name"]) for tool in tools} >= {("fake", "look"), ("jira", "find_issue")}


async def test_how_a_server_stands_is_told_as_it_changes(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira)
    await api.post(f"{SERVERS}/jira/sync")
    async with asyncio.timeout(20):
        stream = events(api, f"{SERVERS}/jira/status/stream?vocab=pending-failed")
        name, data = await anext(stream)
        assert (name, data["serverId"], data["status"]) == ("status_update", "jira", "CONNECTED")
        assert "config" not in data
        await api.post(f"{SERVERS}/jira/sync")
        name, data = await anext(stream)
        assert (name, data["syncStatus"]) == ("capabilities_synced", "SYNCED")
        await api.post(f"{SERVERS}/jira/disconnect")
        name, data = await anext(stream)
        assert (name, data["status"]) == ("connection_change", "DISCONNECTED")
        await api.delete(f"{SERVERS}/jira")
        name, data = await anext(stream)
        assert (name, data["serverId"]) == ("server_removed", "jira")
        assert [each async for each in stream] == []


async def test_a_stream_ends_cleanly_when_the_program_leaves(folder: Path) -> None:
    # The client is closed last, so that the program ends the stream.
    async with asyncio.timeout(30), httpx2.AsyncClient(timeout=20) as client:
        async with opened_api(folder) as api:
            stream = events(api, f"http://127.0.0.1:{api.port}{SERVERS}/fake/status/stream", client)
            assert (await anext(stream))[0] == "status_update"
        assert [each async for each in stream] == []


async def test_the_tools_of_the_model_are_one_call(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira, systemInstruction="Jira is read-only on Fridays.")
    told = (await api.get("/api/mcp/instructions")).json()
    assert told["instructions"] == "Jira is read-only on Fridays."
    assert {each["serverId"] for each in told["servers"]} == {"fake", "jira"}
    await api.post(f"{SERVERS}/jira/disconnect")
    assert (await api.get("/api/mcp/instructions")).json()["instructions"] == ""


@pytest.mark.usefixtures("rare_polls")
async def test_the_operators_file_is_read_again_and_the_difference_told_first(folder: Path) -> None:
    async with opened_api(folder, mcp_allowed_hosts=ON_THIS_MACHINE) as api:
        await _reloads(api, folder)


async def _reloads(api: Api, folder: Path) -> None:
    await api.get(SERVERS)  # the bot has read its files by the answer, and they are not polled from then on
    file = folder / "servers.json"
    entries = json.loads(file.read_text("utf-8"))["mcpServers"]
    file.write_text(json.dumps({"mcpServers": {"other": entries["fake"]}}), "utf-8")
    told = (await api.post("/api/mcp/reload?dryRun=true")).json()
    assert told == {"added": ["other"], "changed": {}, "removed": ["fake"], "problems": [], "applied": False}
    assert [each["serverId"] for each in (await api.get(SERVERS)).json()] == ["fake"]
    assert (await api.post("/api/mcp/reload")).json()["applied"] is True
    assert [each["serverId"] for each in (await api.get(SERVERS)).json()] == ["other"]


async def test_a_new_tool_is_approved_by_the_digest_of_the_shown_definition(api: Api, jira: FakeEndpoint) -> None:
    await add_server(api, jira)
    await api.post(f"{SERVERS}/jira/sync")
    review = f"{SERVERS}/jira/review"
    assert (await api.get(review)).json() == {"serverId": "jira", "tools": [], "definition": None}
    jira.speak_modern("find_issue", "create_issue", "close_issue")
    await api.post(f"{SERVERS}/jira/sync")
    waiting = (await api.get(review)).json()
    [tool] = waiting["tools"]
    assert (tool["name"], tool["review"], tool["pinnedBy"]) == ("close_issue", "new", None)
    assert (await api.post(review, json={"definition": "f" * 64})).status_code == 409
    approved = await api.post(review, json={"tool": "close_issue", "definition": tool["definition"]})
    assert approved.json() == {"approved": ["close_issue"]}
    assert (await api.get(review)).json()["tools"] == []
