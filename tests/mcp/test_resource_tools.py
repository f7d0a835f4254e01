"""Resources and prompts of a server as tools: listing, reading, and the text of a result."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bot.domain.flows import Sends, Words
from bot.domain.messages import FilePart, ImagePart, ToolCall
from bot.domain.servers import EVERYWHERE, Resource, ServerCapabilities, ServerConfig, StdioTransport
from bot.domain.tools import CallNotSent, CallReturned, Tool, ToolKind, ToolOutcome
from bot.mcp.redaction import Redaction
from bot.mcp.resource_tools import PAGE, list_resources, request_tools
from bot.mcp.toolbox import McpToolbox
from bot.ports import CallContext
from tests.fakes.mcp.endpoint import Answer, FakeEndpoint, Message, error, result
from tests.mcp.toolboxes import ANA, error_text, real, remote, running_toolbox, text

ALL: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def make_endpoint(capabilities: dict[str, Any] | None = None) -> FakeEndpoint:
    """Return a server with one resource and one prompt, whose answers the test sets."""
    endpoint = FakeEndpoint(capabilities=ALL if capabilities is None else capabilities)
    endpoint.speak_legacy("look")
    endpoint.on["resources/list"] = lambda m: result(m, {"resources": [{"uri": "note://1", "name": "one"}]})
    endpoint.on["resources/templates/list"] = lambda m: result(m, {"resourceTemplates": []})
    endpoint.on["prompts/list"] = lambda m: result(m, {"prompts": [{"name": "greet"}]})
    return endpoint


async def wait_for_tool(box: McpToolbox, kind: ToolKind) -> Tool:
    """Wait until the server is listed, and return its tool of that kind."""
    while True:
        tools = [tool for tool in (await box.offer(EVERYWHERE)).requests if tool.kind is kind]
        if tools:
            return tools[0]
        await asyncio.sleep(0.02)


async def run(box: McpToolbox, kind: ToolKind, **arguments: Any) -> ToolOutcome:
    tool = await wait_for_tool(box, kind)
    return await box.call(tool, ToolCall("c", tool.name, arguments), CallContext(ANA, "t:1"))


async def read(box: McpToolbox, uri: str) -> ToolOutcome:
    return await run(box, ToolKind.READ_RESOURCE, uri=uri)


async def test_a_real_servers_resources_templates_and_prompts_are_had_through_calls() -> None:
    async with running_toolbox(real("s")) as box:
        listed = text(await run(box, ToolKind.LIST_RESOURCES))
        assert '"uri": "note://plan"' in listed
        assert '"uri_template": "note://by/{author}"' in listed
        assert text(await read(box, "note://plan")) == "the plan"
        assert text(await read(box, "note://by/ana")) == "by ana"
        outcome = await run(box, ToolKind.GET_PROMPT, name="greet", arguments={"name": "Bo"})
        assert isinstance(outcome, CallReturned)
        assert "Bo" in outcome.result.text
        assert outcome.result.structured == {"roles": ["user"]}


async def test_an_address_that_the_server_does_not_know_is_an_error_that_the_model_reads() -> None:
    async with running_toolbox(real("s")) as box:
        outcome = await read(box, "note://nowhere")
        assert isinstance(outcome, CallReturned)
        assert outcome.result.is_error
        assert "note://nowhere" in outcome.result.text


async def test_arguments_that_do_not_fit_are_not_sent() -> None:
    async with make_endpoint() as endpoint, running_toolbox(remote("s", endpoint.url)) as box:
        outcome = await run(box, ToolKind.READ_RESOURCE, uri=5)
        assert isinstance(outcome, CallReturned)
        assert "The arguments do not fit" in outcome.result.text
    assert "resources/read" not in endpoint.methods()


async def test_blobs_become_images_and_files_and_long_texts_are_bounded() -> None:
    contents = [
        {"uri": "note://1", "mimeType": "text/plain", "text": "x" * 200_000},
        {"uri": "note://x/pic.png", "mimeType": "image/png", "blob": PNG},
        {"uri": "note://x/data.bin", "mimeType": "application/octet-stream", "blob": "AAEC"},
    ]
    async with make_endpoint() as endpoint:
        endpoint.on["resources/read"] = lambda m: result(m, {"contents": contents})
        async with running_toolbox(remote("s", endpoint.url)) as box:
            outcome = await read(box, "note://1")
    assert isinstance(outcome, CallReturned)
    parts = outcome.result.parts
    assert len(outcome.result.text) <= 50_000
    assert "the user has the full text in a file" in outcome.result.text
    assert [part.name for part in parts if isinstance(part, ImagePart)] == ["pic.png"]
    assert "data.bin" in [part.name for part in parts if isinstance(part, FilePart)]


async def test_a_resource_without_contents_is_an_error() -> None:
    async with make_endpoint() as endpoint:
        endpoint.on["resources/read"] = lambda m: result(m, {"contents": []})
        async with running_toolbox(remote("s", endpoint.url)) as box:
            outcome = await read(box, "note://1")
    assert isinstance(outcome, CallReturned)
    assert outcome.result.is_error
    assert outcome.result.text == "Server s has nothing at that address."


async def test_the_roles_of_a_prompts_messages_are_kept() -> None:
    def message(role: str, words: str) -> dict[str, Any]:
        return {"role": role, "content": {"type": "text", "text": words}}

    async with make_endpoint() as endpoint:
        messages = [message("user", "Hello"), message("assistant", "Yes?"), message("user", "Go")]
        endpoint.on["prompts/get"] = lambda m: result(m, {"messages": messages})
        async with running_toolbox(remote("s", endpoint.url)) as box:
            outcome = await run(box, ToolKind.GET_PROMPT, name="greet")
    assert isinstance(outcome, CallReturned)
    assert outcome.result.structured == {"roles": ["user", "assistant", "user"]}
    assert outcome.result.text == "Hello\nYes?\nGo"


async def test_a_server_that_is_away_is_named_and_nothing_is_offered_of_it() -> None:
    async with make_endpoint() as endpoint:
        endpoint.on["resources/read"] = lambda m: error(m, -32002, "Resource not found")
        async with running_toolbox(remote("s", endpoint.url)) as box:
            tool = await wait_for_tool(box, ToolKind.READ_RESOURCE)
            assert "Resource not found" in error_text(await read(box, "note://2"))
            await endpoint.stop()
            outcome = await box.call(tool, ToolCall("c", tool.name, {"uri": "note://1"}), CallContext(ANA, "t:1"))
    assert isinstance(outcome, CallNotSent)
    assert "Server s" in outcome.reason


def config(**more: Any) -> ServerConfig:
    return ServerConfig("s", StdioTransport("x"), **more)


def test_a_server_without_resources_and_prompts_offers_none() -> None:
    assert request_tools(config(), ServerCapabilities()) == ()


def test_a_tool_of_the_server_with_that_name_comes_first() -> None:
    own = Tool("s__read_mcp_resource", "s", "read_mcp_resource")
    capabilities = ServerCapabilities((own,), (Resource("a:1", "one"),))
    assert [tool.kind for tool in request_tools(config(), capabilities)] == [ToolKind.LIST_RESOURCES]


@pytest.mark.parametrize("trusted", [True, False])
def test_reading_is_read_only_and_its_text_is_strangers(trusted: bool) -> None:
    tools = request_tools(config(trusted=trusted), ServerCapabilities((), (Resource("a:1", "one"),)))
    for tool in tools:
        assert tool.read_only
        assert tool.words is Words.STRANGERS
        assert trusted or tool.sends is Sends.WORLD


def test_ten_thousand_resources_are_paged_and_found_by_words() -> None:
    many = tuple(
        Resource(f"note://{n}", f"note {n}", description="about trees" if n == 7_777 else "") for n in range(10_000)
    )
    capabilities = ServerCapabilities((), many)
    tool = request_tools(config(), capabilities)[0]

    def resource_lines(**arguments: Any) -> list[str]:
        answer = list_resources(ToolCall("c", tool.name, arguments), tool, capabilities, Redaction(()))
        return answer.text.splitlines()

    first = resource_lines()
    assert first[0] == "10000 of s, from 1:"
    assert len(first) == PAGE + 3
    assert first[-2] == f"[{10_000 - PAGE} more: offset {PAGE} lists on; words in query find one.]"
    assert json.loads(resource_lines(offset=9_999)[1])["uri"] == "note://9999"
    assert "The server may have more than" in first[-1]
    assert resource_lines(offset=10_000) == ["The list ends before that: it has 10000 entries."]
    assert json.loads(resource_lines(query="TREES about")[1])["uri"] == "note://7777"
    assert resource_lines(query="nothing like it") == [
        "None of the 10000 resources of s fits. Use other words, or none."
    ]


async def test_ten_thousand_resources_of_a_server_with_small_pages_are_listed() -> None:
    def page(message: Message) -> Answer:
        first = int((message.get("params") or {}).get("cursor", "0"))
        resources = [{"uri": f"note://{n}", "name": f"n{n}"} for n in range(first, first + 50)]
        return result(message, {"resources": resources, "nextCursor": str(first + 50)})

    async with make_endpoint() as endpoint:
        endpoint.on["resources/list"] = page
        async with running_toolbox(remote("s", endpoint.url, list_timeout=60.0)) as box:
            listed = text(await run(box, ToolKind.LIST_RESOURCES, query="n9999"))
    assert json.loads(listed.splitlines()[1])["uri"] == "note://9999"
