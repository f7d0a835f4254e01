"""Odd settings of information flow: names that match nothing, and settings that contradict a server's own hints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bot.domain.flows import NO_FLOWS, Sends, Words
from bot.domain.servers import ServerConfig
from bot.domain.tools import Tool


def flow_warnings(config: ServerConfig, tools: Sequence[Tool]) -> Iterator[tuple[str, str]]:
    """Yield what is odd about a server's settings, and what to do about it. `tools` are those it has."""
    flows = config.flows
    if flows == NO_FLOWS or not tools:
        return
    known = {tool.original_name: tool for tool in tools}
    if missing := sorted(flows.tools - known.keys()):
        said = f"words, sends or recipients are set for tools that it does not have: {_list(missing)}"
        yield said, "correct the names"
    for name, recipients in sorted(flows.tool_recipients.items()):
        yield from _recipients(known[name], recipients) if name in known else ()
    contradicted = [
        tool.original_name
        for tool in tools
        if tool.annotations.open_world is True
        and (tool.flow.words is Words.OWN or (tool.flow.sends is Sends.CLOSED and not tool.read_only))
    ]
    if contradicted:
        said = f"it says that the world of {_list(contradicted)} is open, and they are set to own words or to closed"
        yield said, "check whose words they return and who reads what is sent"
    if not config.trusted and any(tool.annotations.read_only for tool in tools):
        yield (
            "it is not marked trusted, so that even tools that only read are treated as if they changed something",
            "mark it trusted if its hints are true",
        )


def _recipients(tool: Tool, recipients: Sequence[str]) -> Iterator[tuple[str, str]]:
    properties = tool.input_schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    if missing := [each for each in recipients if each not in known]:
        said = f"the recipients of {tool.original_name} are to be in arguments that it does not have: {_list(missing)}"
        yield f"{said}. They exempt nothing", "correct the names of the arguments"
    if tool.sends is Sends.CLOSED:
        yield f"{tool.original_name} has recipients and is closed, so they change nothing", "take one of the two out"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
