"""The reference server with all capabilities, over each of its transports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from bot.domain.messages import ImagePart
from bot.domain.servers import HttpKind, ServerConfig, ServerStatus, TextContents
from bot.domain.tools import CallReturned, ToolKind
from bot.ports import CallContext
from tests.mcp.toolboxes import ANA, call, call_with, error_text, running_toolbox, text, tool_by_name
from tests.real_servers.servers import everything_at, from_npm

pytestmark = pytest.mark.real_servers

TOOLS = {"echo", "get-structured-content", "get-sum", "get-tiny-image", "trigger-long-running-operation"}


@pytest.fixture(scope="module", params=["stdio", "streamable HTTP", "HTTP+SSE", "HTTP+SSE, found out"])
def everything(request: pytest.FixtureRequest) -> Iterator[ServerConfig]:
    """Yield the server, over each of its transports."""
    match request.param:
        case "stdio":
            yield from_npm("mcp-server-everything")
        case "streamable HTTP":
            with everything_at("streamableHttp", HttpKind.STREAMABLE) as server:
                yield server
        case found_out:
            with everything_at("sse", HttpKind.AUTO if "found out" in found_out else HttpKind.SSE) as server:
                yield server


async def test_it_connects_and_shows_its_tools_its_resources_and_its_prompts(everything: ServerConfig) -> None:
    async with running_toolbox(everything) as box:
        state = await box.connect(everything.id)
        assert (state.status, state.problem) == (ServerStatus.CONNECTED, "")
        offered = await box.sync(everything.id)
        assert {tool.original_name for tool in offered.tools} >= TOOLS
        assert [tool.flags for tool in offered.tools if tool.flags] == []
        assert "simple-prompt" in [prompt.name for prompt in offered.prompts]
        assert len(offered.templates) == 2
        (read,) = await box.read_resource(everything.id, offered.resources[0].uri)
        assert isinstance(read, TextContents)
        assert read.text.startswith("# ")
        assert await box.get_prompt(everything.id, "args-prompt", {"city": "Lisbon"})


async def test_its_tools_give_texts_structured_content_and_pictures(everything: ServerConfig) -> None:
    async with running_toolbox(everything) as box:
        await box.connect(everything.id)
        assert text(await call(tool_by_name(box, "get-sum"), box, a=2, b=3)) == "The sum of 2 and 3 is 5."
        weather = await call(tool_by_name(box, "get-structured-content"), box, location="Chicago")
        assert isinstance(weather, CallReturned)
        assert weather.result.structured["conditions"] == "Light rain / drizzle"
        picture = await call(tool_by_name(box, "get-tiny-image"), box)
        assert isinstance(picture, CallReturned)
        assert [part.mime_type for part in picture.result.parts if isinstance(part, ImagePart)] == ["image/png"]


async def test_arguments_that_do_not_fit_are_told_to_the_model(everything: ServerConfig) -> None:
    async with running_toolbox(everything) as box:
        await box.connect(everything.id)
        assert "nothing was sent" in error_text(await call(tool_by_name(box, "get-sum"), box, a="two", b=3))


async def test_each_of_many_calls_at_once_gets_its_own_answer(everything: ServerConfig) -> None:
    async with running_toolbox(everything) as box:
        await box.connect(everything.id)
        tool = tool_by_name(box, "echo")
        answers = await asyncio.gather(*(call(tool, box, f"turn:{n}", message=f"number {n}") for n in range(50)))
        assert [text(answer) for answer in answers] == [f"Echo: number {n}" for n in range(50)]


async def test_a_long_call_tells_how_far_it_is(everything: ServerConfig) -> None:
    async with running_toolbox(everything) as box:
        await box.connect(everything.id)
        told: list[str] = []
        context = CallContext(ANA, "turn:1", on_progress=told.append)
        outcome = await call_with(
            tool_by_name(box, "trigger-long-running-operation"), box, context, duration=0.3, steps=3
        )
        assert "completed" in text(outcome)
        assert told == ["1/3", "2/3", "3/3"]


async def test_a_call_that_is_given_up_leaves_the_server_fit_for_the_next(everything: ServerConfig) -> None:
    async with running_toolbox(everything) as box:
        await box.connect(everything.id)
        going = asyncio.Event()
        context = CallContext(ANA, "turn:1", on_progress=lambda _: going.set())
        long = asyncio.create_task(
            call_with(tool_by_name(box, "trigger-long-running-operation"), box, context, duration=60, steps=600)
        )
        async with asyncio.timeout(15):
            await going.wait()
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long
        assert text(await call(tool_by_name(box, "echo"), box, message="still here")) == "Echo: still here"


async def test_its_resources_and_prompts_are_had_through_calls(everything: ServerConfig) -> None:
    async with running_toolbox(everything) as box:
        await box.connect(everything.id)
        await box.sync(everything.id)
        tools = {tool.kind: tool for tool in (await box.offer()).requests}
        assert tools.keys() == {ToolKind.LIST_RESOURCES, ToolKind.READ_RESOURCE, ToolKind.GET_PROMPT}
        listed = text(await call(tools[ToolKind.LIST_RESOURCES], box))
        read = tools[ToolKind.READ_RESOURCE]
        template = next(json.loads(line)["uri_template"] for line in listed.splitlines() if "uri_template" in line)
        assert template == "demo://resource/dynamic/text/{resourceId}"
        assert "Resource 1" in text(await call(read, box, uri=template, values={"resourceId": "1"}))
        for _ in range(3):
            assert text(await call(read, box, uri=json.loads(listed.splitlines()[-1])["uri"])).startswith("# ")
            await asyncio.sleep(0.4)
        assert "nowhere" in error_text(await call(read, box, uri="demo://nowhere/at/all"))
        prompt = tools[ToolKind.GET_PROMPT]
        asked = await call(prompt, box, name="args-prompt", arguments={"city": "Lisbon"})
        assert isinstance(asked, CallReturned)
        assert "Lisbon" in asked.result.text
        assert asked.result.structured == {"roles": ["user"]}
