"""The client that the official conformance suite tries: our toolbox, doing with a server what a turn would do.

    MCP_CONFORMANCE_SCENARIO=NAME python -m tests.conformance.client URL

The suite starts it once for each scenario and gives it the address of a server that watches what it says. It connects,
calls the tools it is offered, reads a resource and has a prompt written out; which version of the protocol is spoken is
found out as always. Where the server wants to be signed in to, or asks something back, a person without a will of their
own does that. Prints what happened; exit code 1 if the server cannot be connected to or a call has no answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bot.domain.conversations import Author
from bot.domain.messages import ToolCall
from bot.domain.servers import HttpTransport, OAuthTerms, ServerConfig, ServerStatus
from bot.domain.tools import CallNotSent, CallReturned, Tool
from bot.errors import ServerTrouble
from bot.mcp.toolbox import McpToolbox
from tests.conformance.answers import answering_all
from tests.conformance.browser_user import Person, signing_in

LIMIT = 25.0
"""Seconds for everything."""
_SOMEBODY = Author("console", "ana", "Ana")
_SAMPLES: Mapping[str, Any] = {
    "string": "text",
    "integer": 5,
    "number": 3,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}


async def use(url: str, context: Mapping[str, Any]) -> bool:
    """Use the server as far as it goes; whether that went well."""
    registered = OAuthTerms(client_id=context.get("client_id", ""), client_secret=context.get("client_secret", ""))
    sign_in = registered if registered.client_id else None
    server = ServerConfig("suite", HttpTransport(url), tool_timeout=10.0, sign_in=sign_in)
    async with signing_in(server) as (box, person):
        state = await person.connect(server.id)
        if state.status is not ServerStatus.CONNECTED:
            print(f"{state.status}: {state.problem}", file=sys.stderr)
            return False
        print(f"connected, protocol {state.protocol}")
        called = await _call_everything(box, person, context)
        await _look_at_the_rest(box, server.id)
        return called


async def _call_everything(box: McpToolbox, person: Person, context: Mapping[str, Any]) -> bool:
    """Make the calls that the suite wants, or one of each tool; whether all were answered."""
    tools = (await box.offer()).tools
    answered = True
    for n, (tool, arguments) in enumerate(_calls(tools, context)):
        call = ToolCall(f"call-{n}", tool.name, _corrected_arguments(box, tool, arguments))
        outcome = await answering_all(box, tool, call, _SOMEBODY, f"conformance:{n}")
        if isinstance(outcome, CallNotSent) and await person.signs_in(tool.server_id):
            outcome = await answering_all(box, tool, call, _SOMEBODY, f"conformance:{n}")
        print(f"{tool.original_name}: {outcome}")
        answered &= isinstance(outcome, CallReturned)
    return answered


async def _look_at_the_rest(box: McpToolbox, server: str) -> None:
    try:
        offered = await box.sync(server)
        for resource in offered.resources[:1]:
            print(f"{resource.uri}: {await box.read_resource(server, resource.uri)}")
        for prompt in offered.prompts[:1]:
            arguments = {argument.name: "text" for argument in prompt.arguments}
            print(f"{prompt.name}: {await box.get_prompt(server, prompt.name, arguments)}")
    except ServerTrouble as trouble:
        print(trouble, file=sys.stderr)


def _calls(tools: Sequence[Tool], context: Mapping[str, Any]) -> Iterator[tuple[Tool, Mapping[str, Any]]]:
    by_name = {tool.original_name: tool for tool in tools}
    wanted = context.get("toolCalls", ())
    for each in wanted:
        yield by_name[each["name"]], each["arguments"]
    if not wanted:
        for tool in tools:
            yield tool, _arguments(tool, tools[0])


def _corrected_arguments(box: McpToolbox, tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments as a model sends them at its second try: nothing leaves the toolbox that does not fit the tool's
    schema, so an argument that is null and must not be is left out.
    """
    wrong = {misfit.argument for misfit in box.validate(tool.input_schema, arguments)}
    return {name: value for name, value in arguments.items() if value is not None or name not in wrong}


def _arguments(tool: Tool, first: Tool) -> Mapping[str, Any]:
    """Something for each argument that a tool requires. One that wants a schema gets that of the first tool, as it came
    (scenario json-schema-2020-12-preservation).
    """
    properties = tool.input_schema.get("properties", {})
    return {
        name: first.input_schema if name == "schema" else _SAMPLES.get(properties.get(name, {}).get("type", "object"))
        for name in tool.input_schema.get("required", ())
    }


async def main() -> int:
    """Run against the address that is the last argument; the exit code."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    async with asyncio.timeout(LIMIT):
        return 0 if await use(sys.argv[-1], context) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
