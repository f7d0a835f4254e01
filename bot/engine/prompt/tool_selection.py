"""Tool selection: the tools in a model request. If there are many, models get search tools instead (`search_tools`), or
a limited number; never a tool that their service has rejected.

Users can still run omitted tools by hand, and a model that has a name can call it.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import chain, zip_longest

from bot.domain.completions import Capabilities
from bot.domain.tools import Tool, ToolSearch, ToolSet
from bot.engine.builtin_tools.read_result import TOOL as READ_RESULT_TOOL
from bot.engine.builtin_tools.resources import resource_definitions
from bot.engine.builtin_tools.search_tools import TOOL_NAMES_TOKENS, search_definitions
from bot.engine.builtin_tools.tool_index import MOST_HITS
from bot.engine.usage import estimate_tools
from bot.errors import ModelRejected
from bot.i18n import _, gettext_lazy

log = logging.getLogger(__name__)
MOST_TOOLS = 128
"""OpenAI's limit; far more than any model chooses well among."""
FEW_TOOLS = 30
"""Models choose worse beyond 30 to 50 tools (Anthropic's documentation of its tool search)."""
SHARE_OF_WINDOW = 0.05
"""Share of a model's window for tool definitions, above which models search."""
A_SEARCH = 1_000
"""Estimated tokens of the search tools and one result: below that, a search saves nothing."""
_MAX_REMEMBERED = 1000
SOMETHING_MISSING = gettext_lazy(
    "A server is missing now, and its tools with it. Fix: ask an administrator; /mcp list names it."
)
"""Note for users who are not admins."""


def select_tools(
    enabled: ToolSet,
    search: ToolSearch,
    refused: RefusedTools,
    model: str,
    capabilities: Capabilities,
    *,
    names_tokens: int = TOOL_NAMES_TOKENS,
) -> ToolSet:
    """Return the tools for the model of this name and these capabilities. `names_tokens` is the budget for the list of
    names in the search, of which a small window takes less.
    """
    resources = resource_definitions(enabled) if enabled.requests else ()
    if search is ToolSearch.AUTO and capabilities.searches and needs_search(enabled.tools, capabilities):
        # Tools that the service rejects are found by searching and are in no request.
        budget = min(names_tokens, capabilities.context_tokens * SHARE_OF_WINDOW)
        builtin_tools = select_builtin_tools(enabled.tools, searches=True, names_tokens=budget)
        search_tools = dataclasses.replace(enabled, tools=(*builtin_tools, *resources))
        if refused.remove_refused(model, search_tools) is search_tools:
            return search_tools
    offered = within_limit(refused.remove_refused(model, enabled), MOST_TOOLS - len(resources))
    return dataclasses.replace(offered, tools=(*offered.tools, *resources)) if resources else offered


def select_builtin_tools(
    server_tools: tuple[Tool, ...],
    *,
    searches: bool = False,
    has_excerpts: bool = False,
    names_tokens: float = TOOL_NAMES_TOKENS,
) -> tuple[Tool, ...]:
    """Return the built-in tools of a model request. `searches` is True if they replace `server_tools`, `has_excerpts`
    if the request holds truncated results, `names_tokens` is the budget for the names of `server_tools`.

    A model that searches has the same tools in each round, because services cache prefixes: so recently used tools are
    not included, and `read_result` is from the first round.
    """
    search = search_definitions(server_tools, names_tokens) if searches else ()
    return (*search, READ_RESULT_TOOL) if searches or has_excerpts else ()


def needs_search(tools: tuple[Tool, ...], capabilities: Capabilities) -> bool:
    """Return True if these tools are too many for one request to this model. Depends on the arguments only, so that the
    tools stay the same from request to request.
    """
    if len(tools) <= MOST_HITS:
        return False
    return len(tools) > FEW_TOOLS or estimate_tools(tools) >= max(
        A_SEARCH, capabilities.context_tokens * SHARE_OF_WINDOW
    )


def within_limit(offered: ToolSet, most: int = MOST_TOOLS) -> ToolSet:
    """Return at most `most` tools, the same ones for the same offer. Servers take turns, by name, so that a large one
    does not displace the others. `absent` gets the number of omitted tools.
    """
    if len(offered.tools) <= most:
        return offered
    servers: dict[str, list[Tool]] = {}
    for tool in sorted(offered.tools, key=lambda tool: (tool.server, tool.name)):
        servers.setdefault(tool.server, []).append(tool)
    by_turns = (tool for tool in chain.from_iterable(zip_longest(*servers.values())) if tool is not None)
    selected = {tool.name for tool, _ in zip(by_turns, range(most), strict=False)}
    omitted = _omission_notes(servers, selected, most)
    return dataclasses.replace(
        offered,
        tools=tuple(tool for tool in offered.tools if tool.name in selected),
        absent=(*offered.absent, *omitted),
    )


def add_builtin_tools(tools: tuple[Tool, ...], *, has_excerpts: bool) -> tuple[Tool, ...]:
    """Return the tools of a request with the missing built-in ones at the end, so that the prefix stays the same. At
    MOST_TOOLS they replace the last tools.
    """
    added = tuple(tool for tool in select_builtin_tools(tools, has_excerpts=has_excerpts) if tool not in tools)
    return (*tools[: MOST_TOOLS - len(added)], *added) if added else tools


class RefusedTools:
    """Tools that model services have rejected since the start of this process. A changed definition is tried again."""

    def __init__(self) -> None:
        self._reasons: OrderedDict[tuple[str, str, str], str] = OrderedDict()

    def add(self, model: str, tool: Tool, error: ModelRejected) -> None:
        """Record that the service of this model rejected the tool."""
        log.warning("tool %s rejected by %s, omitted from now on: %s", tool.name, model or "the model", error.cause)
        self._reasons[_key(model, tool)] = error.cause
        while len(self._reasons) > _MAX_REMEMBERED:
            self._reasons.popitem(last=False)

    def reasons(self, tool: Tool) -> Mapping[str, str]:
        """Return the reasons for rejecting this definition, by model."""
        return {
            model: cause
            for (model, name, definition), cause in self._reasons.items()
            if (name, definition) == (tool.name, tool.definition)
        }

    def remove_refused(self, model: str, offered: ToolSet) -> ToolSet:
        """Return the tools without those that this model's service has rejected; `absent` names them."""
        names = {name for _, name, _ in self._reasons}
        refused = {
            tool.name: refused_note(tool)
            for tool in offered.tools
            if tool.name in names and _key(model, tool) in self._reasons
        }
        if not refused:
            return offered
        return dataclasses.replace(
            offered,
            tools=tuple(tool for tool in offered.tools if tool.name not in refused),
            absent=(*offered.absent, *refused.values()),
        )


def refused_note(tool: Tool) -> str:
    """Return the note for users on a rejected tool."""
    if tool.is_builtin:
        return _(
            "The model's service does not accept the definition of {tool}, so the model answers without it. "
            "Fix: set TOOL_SEARCH=off, or use another model.",
            tool=tool.name,
        )
    return _(
        "The model's service does not accept the definition of {tool}, so the model answers without it. "
        "Fix: have its server corrected, or leave the tool out of the profile.",
        tool=tool.name,
    )


def _key(model: str, tool: Tool) -> tuple[str, str, str]:
    return model, tool.name, tool.definition


def _omission_notes(servers: dict[str, list[Tool]], selected: set[str], most: int) -> Iterable[str]:
    for server, tools in servers.items():
        count = sum(tool.name not in selected for tool in tools)
        if count:
            yield _(
                "{count} of the {all} tools of server {server} are left out, because a model takes {most}. "
                "Fix: enable fewer of them in the profile.",
                count=count,
                all=len(tools),
                server=server,
                most=most,
            )
