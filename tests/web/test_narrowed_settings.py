"""A restart with narrower MCP_ALLOWED_… settings keeps out the servers that were stored before."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.domain.api_clients import ApiRole
from tests.app.program import program
from tests.fakes.mcp.endpoint import FakeEndpoint, result
from tests.fakes.parts import ScriptedModel, ask_for, call, say
from tests.web.api_server import opened_api, scripted_choice
from tests.web.local_server import ON_THIS_MACHINE, SERVERS, add_server
from tests.web.test_approvals import ask_for_approval, becomes_done, post_decision

NARROWER: Mapping[str, tuple[dict[str, Any], str]] = {
    "other names": ({"mcp_allowed_servers": "fake", "mcp_allowed_hosts": ON_THIS_MACHINE}, "MCP_ALLOWED_SERVERS"),
    "fewer hosts": ({"mcp_allowed_hosts": ""}, "MCP_ALLOWED_HOSTS"),
}
ASKS_FIRST = '[[rules]]\npolicy = "ASK_USER"\nserver = "jira"\n'


@pytest.mark.parametrize("narrower", NARROWER)
async def test_a_stored_server_that_is_not_allowed_any_more_is_neither_connected_nor_used(
    folder: Path, jira: FakeEndpoint, narrower: str
) -> None:
    settings, named = NARROWER[narrower]
    async with opened_api(folder, mcp_allowed_hosts=ON_THIS_MACHINE) as api:
        assert (await add_server(api, jira, apiKey="jira-8f2K9qLw4ZtX7vBn"))["status"] == "CONNECTED"
        # What it offers is known to the next start, too.
        assert (await api.post(f"{SERVERS}/jira/sync")).json()["resourceCount"] == 1
    jira.seen.clear()
    async with opened_api(folder, **settings) as api:
        kept = (await api.get(f"{SERVERS}/jira")).json()
        assert (kept["status"], kept["sessionState"]) == ("FAILED", "ERROR")
        assert named in kept["lastError"]
        connected = (await api.post(f"{SERVERS}/jira/connect")).json()
        assert (connected["connected"], connected["lastError"]) == (False, kept["lastError"])
        verified = (await api.post(f"{SERVERS}/jira/verify")).json()
        assert not verified["ok"]
        assert named in f"{verified['error']} {verified['fix']}"
        for path, body in (
            (f"{SERVERS}/jira/sync", None),
            ("/api/mcp/resources/read", {"serverId": "jira", "uri": "jira://board"}),
            ("/api/mcp/prompts/get", {"serverId": "jira", "name": "sum-up", "arguments": {"of": "x"}}),
        ):
            answer = await api.post(path, json=body)
            assert answer.status_code >= 400, path
            assert named in answer.text, (path, answer.text)
        run = {"serverId": "jira", "toolName": "find_issue", "arguments": {}}
        assert "was given" not in (await api.post("/api/mcp/tools/execute", json=run)).text
        listed = await api.post("/api/commands", json={"command": "mcp", "words": ["list"]})
        assert named in listed.text
    assert jira.seen == []


@pytest.mark.parametrize("narrower", NARROWER)
async def test_a_call_that_was_waiting_for_an_approval_is_not_sent_to_a_server_that_is_kept_out(
    folder: Path, jira: FakeEndpoint, narrower: str
) -> None:
    settings, _ = NARROWER[narrower]
    model = ScriptedModel([ask_for(call("jira__find_issue")), say("Tried.")])
    (folder / "policy.toml").write_text(ASKS_FIRST, encoding="utf-8")
    async with opened_api(folder, model=scripted_choice(model), mcp_allowed_hosts=ON_THIS_MACHINE) as api:
        await add_server(api, jira)
        approval = await ask_for_approval(api)
    jira.seen.clear()
    async with opened_api(folder, model=scripted_choice(model), **settings) as api:
        status, _ = await post_decision(api, approval, await api.token("approver", ApiRole.APPROVER), approved=True)
        assert status == 200
        await becomes_done(api, approval)
    assert "tools/call" not in jira.methods()
    said = "the operator's settings exclude the server of jira__find_issue"
    assert said in str(model.requests[-1])


async def test_a_server_of_the_operators_file_is_held_to_the_allowed_names_too(folder: Path) -> None:
    async with opened_api(folder, mcp_allowed_servers="jira") as api:
        (kept,) = (await api.get(SERVERS)).json()
        assert (kept["serverId"], kept["status"]) == ("fake", "FAILED")
        assert "MCP_ALLOWED_SERVERS" in kept["lastError"]
        assert api.endpoint.seen == []


async def test_a_secret_is_neither_asked_for_nor_taken_for_a_server_that_is_kept_out(
    folder: Path, jira: FakeEndpoint
) -> None:
    public: dict[str, Any] = {"public_url": "https://bot.example.com", "mcp_allowed_hosts": ON_THIS_MACHINE}
    async with opened_api(folder, **public) as api:
        await add_server(api, jira, apiKey="jira-8f2K9qLw4ZtX7vBn")
        words = ["secret", "rotate", "jira"]
        offered = (await api.post("/api/commands", json={"command": "mcp", "words": words})).text
        path = "/secret/" + offered.split("https://bot.example.com/secret/")[1].split(")")[0]
    async with opened_api(folder, **public, mcp_allowed_servers="fake") as api:
        refused = await api.post("/api/commands", json={"command": "mcp", "words": words})
        assert "MCP_ALLOWED_SERVERS" in refused.text
        assert "/secret/" not in refused.text
        page = await api.client.post(path, data={"version": "1", "secret": "an0ther-secret-of-jira"})
        assert "MCP_ALLOWED_SERVERS" in page.text
        cleared = await api.post("/api/commands", json={"command": "mcp", "words": ["secret", "clear", "jira", "auth"]})
        assert "is cleared" in cleared.text


async def test_doctor_names_the_servers_that_the_settings_keep_out(folder: Path, jira: FakeEndpoint) -> None:
    async with opened_api(folder, mcp_allowed_hosts=ON_THIS_MACHINE) as api:
        await add_server(api, jira, autoConnect=False)
    variables = {
        "DATABASE_URL": f"sqlite:///{folder / 'countersign.db'}",
        "MCP_SERVERS_FILE": str(folder / "servers.json"),
        "MCP_ALLOWED_HOSTS": ON_THIS_MACHINE,
        "MCP_ALLOWED_SERVERS": "other",
    }
    found = await asyncio.to_thread(program, folder, "doctor", **variables)
    for name in ("jira", "fake"):
        (line,) = [line for line in found.stdout.splitlines() if line.startswith(f"✗ {name} · standing")]
        assert "MCP_ALLOWED_SERVERS" in line


async def test_a_server_may_be_given_a_name_that_is_allowed(folder: Path, jira: FakeEndpoint) -> None:
    async with opened_api(folder, mcp_allowed_hosts=ON_THIS_MACHINE) as api:
        await add_server(api, jira)
    jira.on["tools/call"] = lambda m: result(m, {"content": []})
    async with opened_api(folder, mcp_allowed_hosts=ON_THIS_MACHINE, mcp_allowed_servers="tickets,fake") as api:
        renamed = await api.put(f"{SERVERS}/jira", json={"serverId": "tickets"})
        assert renamed.status_code == 200, renamed.text
        assert (await api.post(f"{SERVERS}/tickets/connect")).json()["connected"]
