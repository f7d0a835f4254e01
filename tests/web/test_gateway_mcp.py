"""Other agents call our servers' tools, and ask for approvals of their own calls, as MCP clients over a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, types
from mcp.client.streamable_http import streamable_http_client

from bot.domain.api_clients import ApiRole
from tests.web.api_server import Api, opened_api

ERAS = pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
POLICY = """
[[rules]]
policy = "ALWAYS_ALLOW"
server = "fake"
tool = "look"

[[rules]]
policy = "ASK_USER"
server = "fake"
tool = "write"

[[rules]]
policy = "ALWAYS_ALLOW"
server = "claude-code"
tool = "Read"

[[rules]]
policy = "ALWAYS_DENY"
server = "claude-code"
tool = "Bash"
arguments = { command = "rm *" }
"""


@asynccontextmanager
async def a_gateway(folder: Path, **settings: Any) -> AsyncIterator[tuple[Api, str, str]]:
    """Yield the API with the tokens of an agent and an approver."""
    (folder / "policy.toml").write_text(POLICY, encoding="utf-8")
    async with opened_api(folder, **settings) as api:
        await api.post("/api/mcp/servers/fake/connect")
        yield api, await api.token("claude-code", ApiRole.MEMBER), await api.token("boss", ApiRole.APPROVER)


@asynccontextmanager
async def agent(api: Api, token: str, path: str = "/mcp", era: str = "2026-07-28") -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(
            streamable_http_client(f"http://127.0.0.1:{api.port}{path}", http_client=http),
            mode="legacy" if era == "2025-11-25" else era,
        ) as client,
    ):
        yield client


async def pending(api: Api, boss: str) -> list[Any]:
    answer: list[Any] = (await api.get("/api/responses/approvals", token=boss)).json()["approvals"]
    return answer


async def decide(api: Api, boss: str, **decision: Any) -> None:
    """Decide the one pending call, once it is there."""
    async with asyncio.timeout(30):
        while not (approvals := await pending(api, boss)):
            await asyncio.sleep(0.05)
    (approval,) = approvals
    body = {"approved": True, "revision": approval["revision"], **decision}
    answer = await api.post(f"/api/responses/approval/{approval['approvalRequestId']}", json=body, token=boss)
    assert answer.status_code == 200, answer.text


def text(result: Any) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


@ERAS
async def test_an_agent_lists_the_tools_and_an_allowed_call_returns_at_once(tmp_path: Path, era: str) -> None:
    async with a_gateway(tmp_path) as (api, token, _boss), agent(api, token, era=era) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["fake__look", "fake__write"]
        result = await client.call_tool("fake__look", {})
        assert not result.is_error
        assert text(result) == "ok"


@ERAS
async def test_a_call_stays_open_until_it_is_approved_and_says_who_is_waited_for(tmp_path: Path, era: str) -> None:
    notes: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        notes.append(message or "")

    async with a_gateway(tmp_path) as (api, token, boss), agent(api, token, era=era) as client:
        calling = asyncio.create_task(client.call_tool("fake__write", {}, progress_callback=note))
        await decide(api, boss)
        assert not (await calling).is_error
        assert any("approval by" in message for message in notes)


async def test_a_denied_call_is_an_error_with_the_reason(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, token, boss), agent(api, token) as client:
        calling = asyncio.create_task(client.call_tool("fake__write", {}))
        await decide(api, boss, approved=False, reason="not today")
        result = await calling
        assert result.is_error
        assert "not today" in text(result)


@ERAS
async def test_an_agent_that_went_away_attaches_to_its_call_with_the_same_call(tmp_path: Path, era: str) -> None:
    async with a_gateway(tmp_path) as (api, token, boss):
        async with agent(api, token, era=era) as client:
            calling = asyncio.create_task(client.call_tool("fake__write", {}))
            async with asyncio.timeout(30):
                while not await pending(api, boss):
                    await asyncio.sleep(0.05)
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)
        await decide(api, boss)
        async with agent(api, token, era=era) as client:
            assert not (await client.call_tool("fake__write", {})).is_error
        assert api.endpoint.methods().count("tools/call") == 1


async def test_two_open_calls_that_are_equal_are_two_calls(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, token, boss), agent(api, token) as client:
        calls = [asyncio.create_task(client.call_tool("fake__write", {})) for _ in range(2)]
        async with asyncio.timeout(30):
            while len(approvals := await pending(api, boss)) < 2:
                await asyncio.sleep(0.05)
        for approval in approvals:
            path = f"/api/responses/approval/{approval['approvalRequestId']}"
            await api.post(path, json={"approved": True, "revision": 1}, token=boss)
        assert [result.is_error for result in await asyncio.gather(*calls)] == [False, False]
        assert api.endpoint.methods().count("tools/call") == 2


async def test_a_permission_prompt_is_answered_with_the_whole_edited_input(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, token, boss), agent(api, token, "/mcp/approvals") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["approve"]
        question = {"tool_name": "Bash", "input": {"command": "git push", "description": "publish"}}
        calling = asyncio.create_task(client.call_tool("approve", {**question, "tool_use_id": "toolu_1"}))
        await decide(api, boss, arguments={"command": "git push --dry-run", "description": "publish"})
        result = await calling
        assert result.structured_content is None
        assert json.loads(text(result)) == {
            "behavior": "allow",
            "updatedInput": {"command": "git push --dry-run", "description": "publish"},
        }


@pytest.mark.parametrize(("tool", "arguments", "behavior"), [
    ("Read", {"path": "a"}, "allow"),
    ("Bash", {"command": "rm -rf /"}, "deny"),
])  # fmt: skip
async def test_rules_answer_a_permission_prompt_without_people(
    tmp_path: Path, tool: str, arguments: dict[str, str], behavior: str
) -> None:
    async with a_gateway(tmp_path) as (api, token, boss), agent(api, token, "/mcp/approvals") as client:
        result = await client.call_tool("approve", {"tool_name": tool, "input": arguments})
        assert not result.is_error
        assert json.loads(text(result))["behavior"] == behavior
        assert await pending(api, boss) == []


async def test_a_session_of_another_token_is_not_found(tmp_path: Path) -> None:
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"},
    }}  # fmt: skip
    accept = {"accept": "application/json, text/event-stream"}
    async with a_gateway(tmp_path) as (api, token, boss):
        opened = await api.post("/mcp", json=hello, token=token, headers=accept)
        session = {**accept, "mcp-session-id": opened.headers["mcp-session-id"]}
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert (await api.post("/mcp", json=listing, token=token, headers=session)).status_code == 200
        assert (await api.post("/mcp", json=listing, token=boss, headers=session)).status_code == 404
        assert (await api.post("/mcp", json=listing, token="wrong", headers=session)).status_code == 401


@pytest.mark.parametrize("header", [{"host": "evil.example"}, {"origin": "https://evil.example"}])
async def test_a_foreign_host_or_origin_is_refused(tmp_path: Path, header: dict[str, str]) -> None:
    async with a_gateway(tmp_path) as (api, token, _boss):
        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        answer = await api.post("/mcp", json=body, token=token, headers={"accept": "application/json", **header})
        assert 400 <= answer.status_code < 500


async def test_an_unknown_tool_is_an_error_that_names_it(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as (api, token, _boss), agent(api, token) as client:
        result = await client.call_tool("fake__lok", {})
        assert result.is_error
        assert "fake__lok" in text(result)
