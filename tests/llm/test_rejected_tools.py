"""A request that is rejected because of one tool: the error names the tool."""

from __future__ import annotations

import pytest

from bot.domain.tools import Tool
from bot.errors import ModelRejected
from bot.llm.provider_service import rejected_tool
from tests.fakes.llm import Reply, Request, Say, Status
from tests.fakes.llm_openai import refused_parameters
from tests.llm.conversation import EACH_PROVIDER, Provider, asking, complete, events, talking

NAMES = ("a__one", "a__two", "b__one")
TOOLS = tuple(Tool(name, name[0], name[3:]) for name in NAMES)


def refuse_second(request: Request) -> Reply:
    """Answer as the real services do if they reject the second tool of a request."""
    if "a__two" not in request.tool_names:
        return Say("Done without it.")
    n = request.tool_names.index("a__two")
    if request.api == "openai":
        return refused_parameters(n, "Invalid schema for function 'a__two': In context=(), array schema missing items.")
    return Status(400, f"tools.{n}.custom.input_schema: JSON schema is invalid.", "invalid_request_error")


@EACH_PROVIDER
async def test_the_error_names_the_tool_that_the_service_refuses(provider: Provider) -> None:
    async with talking(provider, rule=refuse_second) as (model, _):
        with pytest.raises(ModelRejected) as caught:
            await events(model, asking(tools=TOOLS))
        assert caught.value.tool == "a__two"
        assert "does not accept the tool a__two (400)" in caught.value.cause
        answer = await complete(model, asking(tools=(TOOLS[0], TOOLS[2])))
    assert answer.message.text == "Done without it."


@EACH_PROVIDER
async def test_a_request_that_is_refused_for_something_else_names_no_tool(provider: Provider) -> None:
    async with talking(provider, Status(400, "messages.1: not like this", "invalid_request_error")) as (model, _):
        with pytest.raises(ModelRejected) as caught:
            await events(model, asking(tools=TOOLS))
    assert caught.value.tool == ""


@pytest.mark.parametrize(
    ("param", "message", "tool"),
    [
        ("tools[1].function.parameters", "Invalid schema.", "a__two"),
        ("tools[2].parameters", "", "b__one"),
        ("", "tools.0.custom.input_schema.type: Field required", "a__one"),
        ("", "Invalid 'tools[2].function.description': string too long.", "b__one"),
        ("", 'Invalid schema for function "a__two": got type null', "a__two"),
        ("", "tool a__one: unsupported schema", "a__one"),
        ("", "function a__one and function a__two are the same", ""),
        ("tools[7].function.parameters", "", ""),
        ("tools", "Invalid 'tools': array too long.", ""),
        ("messages", "Invalid schema for response_format 'x'", ""),
        ("", "", ""),
    ],
)
def test_a_tool_is_found_by_its_number_or_by_its_name(param: str, message: str, tool: str) -> None:
    assert rejected_tool(400, param, message, NAMES) == tool


def test_trouble_of_another_kind_is_no_tool_s_fault() -> None:
    assert rejected_tool(500, "tools[1].function.parameters", "", NAMES) == ""
