"""Choice of the tools that a model is offered, if several servers have one of the same name.

Servers of one fallback group stand in for each other: of those that have the tool the first that is up offers it. The
tool names that server, so that policies, cards and the audit are about the one that gets the call. Between other
servers an equal name is a collision: the second one's tool is not offered. Shared servers come before those of a
workspace, and those of the operator's file before those of admins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bot.domain.servers import EVERYWHERE, ServerConfig, ToolNaming
from bot.domain.tools import Tool, ToolKind
from bot.mcp.registry import ManagedServer
from bot.mcp.review import offered_name


@dataclass(frozen=True, slots=True)
class ChosenTools:
    """Tools to offer, sorted by name, so that equal tools give equal prompts. `collisions` are the tools that are not,
    by the id of their server, with the reason.
    """

    tools: tuple[Tool, ...]
    collisions: Mapping[str, tuple[str, ...]]


def choose_tools(servers: Iterable[ManagedServer]) -> ChosenTools:
    """Choose the tools of servers that can be used now."""
    offered: dict[str, Tool] = {}
    collisions: dict[str, list[str]] = {}
    for group in _groups(servers):
        chosen: dict[str, Tool] = {}
        for managed in group:
            for tool in managed.tools:
                chosen.setdefault(tool.name, tool)
        for tool in chosen.values():
            if (first := offered.setdefault(tool.name, tool)) is not tool:
                reason = f"{tool.original_name}: server {first.server} has a tool that the model knows as {tool.name}"
                collisions.setdefault(tool.server_id, []).append(reason)
    return ChosenTools(
        tuple(offered[name] for name in sorted(offered)),
        {server_id: tuple(reasons) for server_id, reasons in collisions.items()},
    )


def named_by_server(config: ServerConfig, tool: Tool) -> Tool:
    """Return a tool of this server under the name with its server, if models know it by another one."""
    if tool.kind is not ToolKind.CALL or not (config.fallback_group or config.tool_names is ToolNaming.PLAIN):
        return tool
    return replace(tool, name=offered_name(config.name, tool.original_name))


def stand_in(servers: Iterable[ManagedServer], tool: Tool) -> Tool | None:
    """Return the same tool of another server in the tool's fallback group that is up, or None."""
    for group in _groups(servers):
        if any(managed.config.id == tool.server_id for managed in group):
            others = (managed for managed in group if managed.config.id != tool.server_id and managed.is_up)
            return next((other for managed in others for other in managed.tools if other.name == tool.name), None)
    return None


def _groups(servers: Iterable[ManagedServer]) -> Sequence[Sequence[ManagedServer]]:
    """Return the servers of each fallback group, the one to be used first, and each other server alone."""
    groups: dict[str, list[ManagedServer]] = {}
    for managed in servers:
        # The id of a server has another form than the name of a group.
        groups.setdefault(managed.config.fallback_group or f"server {managed.config.id}", []).append(managed)
    for group in groups.values():
        group.sort(key=lambda managed: (not managed.is_up, managed.config.fallback_order, managed.config.name))
    return sorted(groups.values(), key=lambda group: min(map(_precedence, group)))


def _precedence(managed: ManagedServer) -> tuple[bool, bool, str, str]:
    config = managed.config
    return (config.workspace != EVERYWHERE, not config.from_file, config.name, config.id)
