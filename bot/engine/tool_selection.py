"""Which of the enabled tools a model is given: all of them while they are few. Where there are many, models search them
(`search_tools`), or are given no more than services take; and none that their service has refused.

Called by `turn_runner`. What is left out is left out of the request only: people can still run it by hand, and a model
that has its name can call it.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import chain, zip_longest

from bot.domain.completions import Capabilities
from bot.domain.tools import OWN_SERVER, Tool, ToolSearch, ToolSet
from bot.engine.builtin_tools.read_result import TOOL as READING
from bot.engine.builtin_tools.search_tools import search_tool_set
from bot.engine.token_estimates import estimate_tools
from bot.engine.tool_index import MOST_HITS
from bot.errors import ModelRejected

log = logging.getLogger(__name__)

MOST_TOOLS = 128
"""OpenAI's limit; far more than any model chooses well among."""
FEW_TOOLS = 30
"""Beyond 30 to 50, models choose worse (Anthropic's documentation of its tool search)."""
SHARE_OF_WINDOW = 0.05
"""Of a model's window, for definitions of tools that most questions do not need."""
A_SEARCH = 1_000
"""Tokens, as an estimate: the bot's own tools and what one search finds. Nothing is saved where all tools take less."""
_REMEMBERED = 1000
SOMETHING_MISSING = "A server is missing now, and its tools with it. Fix: ask an administrator; /mcp list names it."
"""What somebody is told who does not administer."""


def select_tools(
    enabled: ToolSet, search: ToolSearch, refused: RefusedTools, model: str, able: Capabilities
) -> ToolSet:
    """What the model of that name is given of the enabled tools; `able` is what it can do."""
    if search is ToolSearch.AUTO and able.searches and needs_search(enabled.tools, able):
        # What its service would refuse stands in no request: it can be found and called.
        own = dataclasses.replace(enabled, tools=search_tool_set(enabled.tools))
        if refused.without(model, own) is own:
            return own
    return within_limit(refused.without(model, enabled))


def needs_search(tools: tuple[Tool, ...], able: Capabilities) -> bool:
    """Whether these tools are more than this model should be given at once. It depends on nothing but the two, so that
    what is given stays the same from request to request. Of as many as one search finds, none is spared by searching.
    """
    if len(tools) <= MOST_HITS:
        return False
    return len(tools) > FEW_TOOLS or estimate_tools(tools) >= max(A_SEARCH, able.context_tokens * SHARE_OF_WINDOW)


def within_limit(offered: ToolSet, most: int = MOST_TOOLS) -> ToolSet:
    """At most so many tools, the same ones for the same offer. Every server has its turn, by name, until there is no
    room left: one with hundreds of tools does not crowd out the others. `absent` says how many are left out.
    """
    if len(offered.tools) <= most:
        return offered
    servers: dict[str, list[Tool]] = {}
    for tool in sorted(offered.tools, key=lambda tool: (tool.server, tool.name)):
        servers.setdefault(tool.server, []).append(tool)
    in_turn = (tool for tool in chain.from_iterable(zip_longest(*servers.values())) if tool is not None)
    kept = {tool.name for tool, _ in zip(in_turn, range(most), strict=False)}
    left_out = _left_out(servers, kept, most)
    return dataclasses.replace(
        offered,
        tools=tuple(tool for tool in offered.tools if tool.name in kept),
        absent=(*offered.absent, *left_out),
    )


def with_reading(given: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """The tools with the one to read on in results behind them, so that the others stay where they were. Where they are
    as many as services take, the last makes room.
    """
    return given if READING in given else (*given[: MOST_TOOLS - 1], READING)


class RefusedTools:
    """The tools that models' services have refused since this process began, so that none has to refuse them in every
    round. One whose definition changes is tried again.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str, str], str] = OrderedDict()

    def add(self, model: str, tool: Tool, problem: ModelRejected) -> None:
        """The service of the model of that name does not take this tool."""
        log.warning("the tool %s is not offered to %s any more: %s", tool.name, model or "the model", problem.cause)
        self._known[_key(model, tool)] = problem.cause
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def reasons(self, tool: Tool) -> Mapping[str, str]:
        """Why this very definition was refused, by the names of the models."""
        return {
            model: cause
            for (model, name, definition), cause in self._known.items()
            if (name, definition) == (tool.name, tool.definition)
        }

    def without(self, model: str, offered: ToolSet) -> ToolSet:
        """The offer without those that this model's service has refused; `absent` names them."""
        names = {name for _, name, _ in self._known}
        refused = {
            tool.name: refused_note(tool)
            for tool in offered.tools
            if tool.name in names and _key(model, tool) in self._known
        }
        if not refused:
            return offered
        return dataclasses.replace(
            offered,
            tools=tuple(tool for tool in offered.tools if tool.name not in refused),
            absent=(*offered.absent, *refused.values()),
        )


def refused_note(tool: Tool) -> str:
    """What people are told of a tool that a service has refused."""
    fix = "have its server corrected, or leave the tool out of the profile"
    if tool.server == OWN_SERVER:
        fix = "set TOOL_SEARCH=off, or use another model"
    return (
        f"The model's service does not accept the definition of {tool.name}, so the model answers without it."
        f" Fix: {fix}."
    )


def _key(model: str, tool: Tool) -> tuple[str, str, str]:
    return model, tool.name, tool.definition


def _left_out(servers: dict[str, list[Tool]], kept: set[str], most: int) -> Iterable[str]:
    for server, tools in servers.items():
        count = sum(tool.name not in kept for tool in tools)
        if count:
            yield (
                f"{count} of the {len(tools)} tools of server {server} are left out, because a model takes {most}."
                " Fix: enable fewer of them in the profile."
            )
