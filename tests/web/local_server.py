"""A server on this machine that is not in the operator's file, and the setting that lets a bot connect to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.fakes.mcp.endpoint import FakeEndpoint, Message, result
from tests.web.api_server import Api

SERVERS = "/api/mcp/servers"
ON_THIS_MACHINE = "127.0.0.1"
"""MCP_ALLOWED_HOSTS of such a bot."""


@asynccontextmanager
async def opened_jira() -> AsyncIterator[FakeEndpoint]:
    """Serve two tools, a resource and a prompt. A tool returns its arguments."""
    async with FakeEndpoint(capabilities={"tools": {}, "resources": {}, "prompts": {}}) as endpoint:
        endpoint.speak_modern("find_issue", "create_issue")
        endpoint.on["tools/call"] = lambda m: result(m, {"content": [{"type": "text", "text": _call_text(m)}]})
        endpoint.on["resources/list"] = lambda m: result(
            m, {"resources": [{"uri": "jira://board", "name": "board", "mimeType": "text/plain"}]}
        )
        endpoint.on["resources/templates/list"] = lambda m: result(m, {"resourceTemplates": []})
        endpoint.on["resources/read"] = lambda m: result(
            m, {"contents": [{"uri": "jira://board", "mimeType": "text/plain", "text": "two issues"}]}
        )
        prompt = {"name": "sum-up", "arguments": [{"name": "of", "required": True}]}
        endpoint.on["prompts/list"] = lambda m: result(m, {"prompts": [prompt]})
        endpoint.on["prompts/get"] = lambda m: result(
            m, {"messages": [{"role": "user", "content": {"type": "text", "text": _prompt_text(m)}}]}
        )
        yield endpoint


def _call_text(message: Message) -> str:
    return f"{message['params']['name']} was given {message['params'].get('arguments', {})}"


def _prompt_text(message: Message) -> str:
    return f"Sum up {message['params']['arguments']['of']}."


async def add_server(api: Api, jira: FakeEndpoint, **more: Any) -> dict[str, Any]:
    """Add the server under the name `jira` and return the response's body."""
    answer = await api.post(SERVERS, json={"name": "jira", "url": jira.url, **more})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found
