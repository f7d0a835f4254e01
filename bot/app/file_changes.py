"""Effects of a change of the operator's files, in short sentences and as a difference for commands.

No text has a value of a server's entry, because it may be a secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from bot.app.file_watch import changed_paths
from bot.app.operator_files import OperatorFiles
from bot.commands.dependencies import ConfigDiff
from bot.domain.approvals import ApprovalPolicy
from bot.domain.flows import Words
from bot.domain.policies import TaintMode
from bot.domain.servers import DesiredServer, ServerConfig
from bot.domain.tools import Tool, ToolKind, ToolSet
from bot.engine.policy.information_flow import asks_after, except_after
from bot.engine.policy.rules import Policies, Rules
from bot.i18n import _, ngettext
from bot.settings import Settings

_MOST_NAMES = 3

DescribeServer = Callable[[str], str]
"""Describe a new server by its name: its tools, or that it cannot be used; empty while nothing is known."""


def difference(before: OperatorFiles, after: OperatorFiles) -> ConfigDiff:
    """Return the difference between the files in use and those that were read."""
    old = {entry.config.name: entry for entry in before.servers.entries}
    new = {entry.config.name: entry for entry in after.servers.entries}
    changed = [(name, changed_fields(old[name], new[name])) for name in old.keys() & new.keys()]
    return ConfigDiff(
        added=tuple(sorted(new.keys() - old.keys())),
        changed=tuple(
            sorted([(name, names) for name, names in changed if names] + list(_other_changes(before, after)))
        ),
        removed=tuple(sorted(old.keys() - new.keys())),
        problems=tuple(map(str, after.problems.values())),
    )


def _other_changes(before: OperatorFiles, after: OperatorFiles) -> Iterator[tuple[str, str]]:
    if before.policies != after.policies:
        yield _("policies"), _("other rules")
    if what := _changed_names(before.launches.templates, after.launches.templates):
        yield _("launch templates"), ", ".join(what)
    if before.secret_grants != after.secret_grants:
        yield _("secret grants"), _("other grants")
    if before.system_prompt != after.system_prompt:
        yield _("system prompt"), _("another text")
    if before.prices != after.prices:
        yield _("prices"), _("other prices")
    if before.limits != after.limits:
        yield _("usage limits"), _("other limits")


def changed_fields(old: DesiredServer, new: DesiredServer) -> str:
    """Return the names of the changed fields, without values: they may be secrets."""
    names = [
        option.name
        for option in fields(ServerConfig)
        if getattr(old.config, option.name) != getattr(new.config, option.name)
    ]
    if old.enablement is not new.enablement:
        names.insert(0, str(new.enablement))
    return ", ".join(name.replace("_", " ") for name in names) or ("problem" if old.problem != new.problem else "")


def _changed_names(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change of the files that was applied. `rules` are those of places without rules of their own, after it;
    `tools` are the known ones; `programs` were allowed by it.
    """

    settings: Settings
    before: OperatorFiles
    after: OperatorFiles
    rules: Rules
    tools: Sequence[Tool] = ()
    programs: Collection[str] = ()

    @property
    def added_servers(self) -> Sequence[str]:
        """Names of the new servers."""
        return difference(self.before, self.after).added

    def sentences(self, describe_server: DescribeServer) -> list[str]:
        """Return a line for each file that changes something."""
        settings, before, after = self.settings, self.before, self.after
        lines = [
            (settings.policy_file, self._policies()),
            (self._servers_file, "; ".join(self._servers(describe_server))),
            (settings.mcp_launch_templates_file, _launch_templates(before, after)),
            (settings.system_prompt_file, before.system_prompt != after.system_prompt and _("other instructions")),
            (settings.prices_file, before.prices != after.prices and _("other prices")),
            (
                settings.limits_file,
                before.limits != after.limits and ngettext("{n} limit", "{n} limits", len(after.limits)),
            ),
            (
                settings.mcp_secret_grants_file,
                before.secret_grants != after.secret_grants
                and ngettext("{n} grant", "{n} grants", len(after.secret_grants.grants)),
            ),
            (
                settings.mcp_allowed_commands_file,
                self.programs and _("{programs} may be started", programs=_names(self.programs)),
            ),
        ]
        return [_("{file} changed: {what}.", file=path.name, what=what) for path, what in lines if what]

    @property
    def _servers_file(self) -> Path:
        """The file of the servers; that of the variables, if only they have changed."""
        file, changed = self.settings.mcp_servers_file, changed_paths(self.before.on_disk, self.after.on_disk)
        return file if file in changed else next(iter(changed), file)

    def _servers(self, describe: DescribeServer) -> Iterator[str]:
        old = {entry.config.name: entry for entry in self.before.servers.entries}
        new = {entry.config.name: entry for entry in self.after.servers.entries}
        for name in sorted(new.keys() - old.keys()):
            about = describe(name)
            yield (
                _("server {server} added, {about}", server=name, about=about)
                if about
                else _("server {server} added", server=name)
            )
        for name in sorted(old.keys() & new.keys()):
            if what := changed_fields(old[name], new[name]):
                yield _("server {server} changed ({fields})", server=name, fields=what)
        for name in sorted(old.keys() - new.keys()):
            yield _("server {server} removed", server=name)

    def _policies(self) -> str:
        old, new = self.before.policies, self.after.policies
        if old == new:
            return ""
        before, after = replace(self.rules, file=old), replace(self.rules, file=new)
        names: dict[tuple[ApprovalPolicy, tuple[Words, ...]], list[str]] = {}
        for tool in self._with_named((old, new)):
            policy = after.policy_of(tool)
            if policy is not before.policy_of(tool):
                words = self._asks_after(tool) if policy is ApprovalPolicy.ALWAYS_ALLOW else ()
                names.setdefault((policy, words), []).append(f"{tool.server}.{tool.original_name}")
        order = list(ApprovalPolicy)
        phrases = [
            except_after(_now(policy, names[policy, words]), words)
            for policy, words in sorted(names, key=lambda group: (order.index(group[0]), len(group[1])))
        ]
        if old.self_approval is not new.self_approval:
            phrases.append(
                _("users may approve their own calls") if new.self_approval else _("only approvers approve calls")
            )
        phrases += _unknown_tools(self.tools, old, new)
        if not phrases and old.default is not new.default:
            phrases.append(_("another default"))
        return "; ".join(phrases) or _("rules for some arguments, places or people")

    def _asks_after(self, tool: Tool) -> tuple[Words, ...]:
        """Return the authors after whose words the tool's calls need an approval although a rule lets them run."""
        if self.settings.taint_mode is not TaintMode.ASK:
            return ()
        return asks_after(tool, {}, ToolSet(tuple(self.tools)))

    def _with_named(self, policies: Iterable[Policies]) -> list[Tool]:
        """Return the calls among the tools, with those that the short form names of servers with unknown tools."""
        calls = [tool for tool in self.tools if tool.kind is ToolKind.CALL]
        known = {tool.server for tool in calls}
        named = {pair for content in policies for pair in _named_tools(content) if pair[0] not in known}
        return [*calls, *(self._tool(server, name) for server, name in sorted(named))]

    def _tool(self, server: str, name: str) -> Tool:
        """Return a tool that is not known yet, with what the servers' file says about it."""
        tool = Tool(f"{server}__{name}", server, name)
        configs = [entry.config for entry in self.after.servers.entries if entry.config.name == server]
        return replace(tool, trusted=configs[0].trusted, flow=configs[0].flows.flow_of(name)) if configs else tool


def _named_tools(content: Policies) -> set[tuple[str, str]]:
    """Return the servers and tools that the short form names."""
    return {(server, name) for server, policy in content.servers.items() for name in policy.tools}


def _unknown_tools(tools: Iterable[Tool], old: Policies, new: Policies) -> Iterator[str]:
    """Yield a phrase for each tool that is newly named, and that its server does not have."""
    by_server: dict[str, list[str]] = {}
    for tool in tools:
        by_server.setdefault(tool.server, []).append(tool.original_name)
    for server, name in sorted(_named_tools(new) - _named_tools(old)):
        if server in by_server and name not in by_server[server]:
            [close] = difflib.get_close_matches(name, by_server[server], 1) or [""]
            yield (
                _("{server} has no tool {name} (did you mean {close}?)", server=server, name=name, close=close)
                if close
                else _("{server} has no tool {name}", server=server, name=name)
            )


def _now(policy: ApprovalPolicy, tools: Sequence[str]) -> str:
    """Return a phrase about tools with another policy than before."""
    names, count = _names(tools), len(tools)
    match policy:
        case ApprovalPolicy.ALWAYS_ALLOW:
            return ngettext("{tools} now runs without a card", "{tools} now run without a card", count, tools=names)
        case ApprovalPolicy.ALWAYS_DENY:
            return ngettext("{tools} is now forbidden", "{tools} are now forbidden", count, tools=names)
        case _:
            return ngettext("{tools} now needs an approval", "{tools} now need an approval", count, tools=names)


def _names(names: Collection[str]) -> str:
    *shown, last = sorted(names)[:_MOST_NAMES]
    more = len(names) - _MOST_NAMES
    if more > 0:
        return ngettext("{names} and {n} more", "{names} and {n} more", more, names=", ".join([*shown, last]))
    return _("{names} and {last}", names=", ".join(shown), last=last) if shown else last


def _launch_templates(before: OperatorFiles, after: OperatorFiles) -> str:
    names = _changed_names(before.launches.templates, after.launches.templates)
    if not names:
        return ""
    return ngettext("launch template {names}", "launch templates {names}", len(names), names=_names(names))
