"""The operator's files: on disk, as they are read, and the effects of a change in short sentences.

They are read before anything is opened, so that a mistake stops the start at once. A file is known by the digest of its
content, so a save without a change, a rename and the swapped link of a Kubernetes volume are told apart. Most checks
only compare stamps. No text about a change has a value of a server's entry, because it may be a secret.
"""

from __future__ import annotations

import difflib
import hashlib
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from pathlib import Path

from bot.admin.dependencies import ConfigDiff
from bot.app.models import is_demo
from bot.domain.approvals import ApprovalPolicy
from bot.domain.completions import Usage
from bot.domain.flows import Words
from bot.domain.policies import Rule, TaintMode
from bot.domain.secret_binding import SecretGrants
from bot.domain.servers import DesiredServer, ServerConfig, StdioTransport
from bot.domain.tools import Tool, ToolKind, ToolSet
from bot.domain.usage import NO_PRICES, LimitUnit, PriceList, UsageLimit
from bot.engine.config_files import read_limits, read_policies, read_prices, read_secret_grants
from bot.engine.policy.information_flow import asks_after, except_after
from bot.engine.policy.rules import Policies, Rules, undeliverable_targets, unknown_servers
from bot.errors import SettingsError
from bot.folders import NOTES, find_folders
from bot.i18n import _, gettext_lazy, ngettext
from bot.mcp.config.file import ServersFile, load_servers
from bot.mcp.config.templates import TemplatesFile, load_templates
from bot.settings import Settings, read_environment

log = logging.getLogger(__name__)

_FILES = ("policy_file", "system_prompt_file", "prices_file", "limits_file")
_MCP_FILES = (
    "mcp_servers_file",
    "mcp_launch_templates_file",
    "mcp_secret_grants_file",
    "mcp_allowed_commands_file",
)
_LINE = re.compile(r"\bline \d+")
RACY_SECONDS = 2.0
"""Age of a change below which an equal stamp proves nothing: a second save within one tick of the clock leaves it as it
is. The coarsest file systems count in two seconds.
"""
LARGEST_BYTES = 16 * 1024 * 1024
"""Size of the largest file that is read: a larger one was not written for this program."""
_MOST_NAMES = 3

DescribeServer = Callable[[str], str]
"""Describe a new server by its name: its tools, or that it cannot be used; empty while nothing is known."""

# -------------------- files on disk


class Unusable(Enum):
    """Why the content of a file is not read."""

    KIND = "not a regular file"
    SIZE = "too large"


@dataclass(frozen=True, slots=True)
class FileState:
    """One file: the digest of its content, empty if it is missing. `is_open_to_all` is True if every user of the
    machine may write to it. `owner` is the id of its owner. `unusable` says why its content is not read.
    """

    digest: str = ""
    size: int = 0
    is_open_to_all: bool = False
    unusable: Unusable | None = None
    owner: int = field(default=-1, compare=False)


MISSING = FileState()
FilesOnDisk = Mapping[Path, FileState]
"""States of all files at one moment."""


def changed_paths(before: FilesOnDisk, after: FilesOnDisk) -> list[Path]:
    """Return the files with another content, in order."""
    paths = sorted(before.keys() | after.keys())
    return [path for path in paths if before.get(path, MISSING).digest != after.get(path, MISSING).digest]


class FileWatch:
    """Watch of files. `paths` returns those of now. `clock` is in epoch seconds, like the times of files. Use it in one
    thread at a time.
    """

    def __init__(self, paths: Callable[[], Iterable[Path]], *, clock: Callable[[], float] = time.time) -> None:
        self._paths = paths
        self._clock = clock
        self._known: dict[Path, tuple[tuple[int, ...], FileState]] = {}
        """Stamps and states of files that have not changed for a while."""

    def look(self) -> FilesOnDisk:
        """Return the state of every file. Never raises: an unreadable file has a state of its own."""
        return {path: self._state(path) for path in self._paths()}

    def _state(self, path: Path) -> FileState:
        now = self._clock()
        known_stamp, state = self._known.pop(path, ((), MISSING))
        try:
            status = path.stat()
            stamp = _stamp(status)
            if stamp != known_stamp:
                state = _read(path, status)
        except (FileNotFoundError, NotADirectoryError):
            return MISSING
        except OSError as error:
            return FileState(f"error {error.errno}")
        # The stamp is older than the content, so that a change between them is found by the next look.
        if now - max(status.st_mtime, status.st_ctime) > RACY_SECONDS:
            self._known[path] = stamp, state
        return state


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode)


def _read(path: Path, status: os.stat_result) -> FileState:
    if not stat.S_ISREG(status.st_mode):
        # Reading a pipe would wait, and take its content away.
        return FileState("not a regular file", unusable=Unusable.KIND)
    if status.st_size > LARGEST_BYTES:
        return FileState(f"{status.st_size} bytes", status.st_size, unusable=Unusable.SIZE)
    content = path.read_bytes()
    is_open_to_all = bool(status.st_mode & stat.S_IWOTH)
    return FileState(hashlib.sha256(content).hexdigest(), len(content), is_open_to_all, owner=status.st_uid)


# -------------------- reading


@dataclass(frozen=True, slots=True)
class OperatorFiles:
    """Contents of the operator's files: policies, instructions, servers, launch templates, prices, usage limits and
    secret grants. `on_disk` are the files as they were just before they were read.
    """

    policies: Policies
    system_prompt: str
    servers: ServersFile
    launches: TemplatesFile = TemplatesFile()
    prices: PriceList = NO_PRICES
    limits: tuple[UsageLimit, ...] = ()
    secret_grants: SecretGrants = SecretGrants()
    on_disk: FilesOnDisk = field(default_factory=dict, compare=False)

    @property
    def problems(self) -> Mapping[str, SettingsError]:
        """Entries that cannot be used, by a key that stays the same while other lines are written above them."""
        servers = {
            f"server {entry.config.name}": SettingsError(entry.problem)  # with its fix
            for entry in self.servers.entries
            if entry.problem
        }
        templates = {
            _LINE.sub("", problem): SettingsError(problem, "correct that template, or take it out")
            for problem in self.launches.problems
        }
        source = self.secret_grants.source
        grants = {
            problem.cause: SettingsError(f"{source}: {problem.sentence}") for problem in self.secret_grants.problems
        }
        return servers | templates | grants

    def unknown_servers(self) -> list[str]:
        """Return servers with policies that are not defined: a policy under a misspelt name has no effect."""
        configured = {entry.config.name for entry in self.servers.entries}
        return sorted(self.policies.servers.keys() - configured) if configured else []

    def unused_rules(self) -> list[Rule]:
        """Return rules about servers that no file defines. Servers of admins are not known yet at this point."""
        names = [entry.config.name for entry in self.servers.entries]
        return unknown_servers(self.policies.rules, names) if names else []

    def unpriced_models(self, models: Iterable[str]) -> list[str]:
        """Return the models without a price if a limit on money is set: the limit does not count them."""
        limited = any(limit.unit is LimitUnit.MONEY for limit in self.limits)
        return [name for name in models if self.prices.cost(name, Usage()) is None] if limited else []

    def warnings(self, settings: Settings) -> list[str]:
        """Return sentences about entries that have no effect."""
        unknown = (
            f"{settings.policy_file} has policies for {name!r}, which is no enabled server of "
            f"{settings.mcp_servers_file}"
            for name in self.unknown_servers()
        )
        unused = (f"{rule.id} is about {rule.server!r}, which is no enabled server" for rule in self.unused_rules())
        undeliverable = (
            f"{rule.id}: all members cannot be written to, so the card stays in the thread"
            for rule in self.policies.rules
            if undeliverable_targets(rule)
        )
        grants = (f"{self.secret_grants.source}: {problem.sentence}" for problem in self.secret_grants.problems)
        others = (*self.servers.warnings, *self.launches.problems, *self.launches.warnings)
        return [*unknown, *unused, *undeliverable, *grants, *others]

    def warn(self, settings: Settings) -> None:
        """Log warnings about entries that have no effect."""
        for warning in self.warnings(settings):
            log.warning("%s", warning)


def watch_files(settings: Settings) -> FileWatch:
    """Return a watch of all files that the operator writes, and of those with variables for them."""
    fields = (*_FILES, *(_MCP_FILES if settings.mcp_enabled else ()))
    paths = [*(getattr(settings, field_name) for field_name in fields), find_folders().env_file]
    return FileWatch(lambda: [*paths, *_variable_files(settings.settings_folder)])


def holds_variables(path: Path, settings: Settings) -> bool:
    """Return True for a file of variables."""
    return path == find_folders().env_file or path.parent == settings.settings_folder


def _variable_files(folder: Path | None) -> list[Path]:
    """Return the files of SETTINGS_FOLDER."""
    if folder is None:
        return []
    try:
        return [Path(entry.path) for entry in os.scandir(folder) if not entry.name.startswith(".")]
    except OSError:
        return []  # the reading of the files raises it


def read_operator_files(settings: Settings) -> OperatorFiles:
    """Read all files; a missing file counts as empty. Raises SettingsError."""
    on_disk = watch_files(settings).look()
    for path, state in on_disk.items():
        if state.unusable and not holds_variables(path, settings):  # an .env may be a pipe, of a program for passwords
            raise unusable_file(path, state.unusable)
    # A missing limits file would limit nothing although its setting suggests otherwise.
    for field_name in ("prices_file", "limits_file", "mcp_secret_grants_file"):
        if field_name in settings.model_fields_set and not (path := getattr(settings, field_name)).exists():
            name = field_name.upper()
            raise SettingsError(f"{name} names {path}, and there is no such file.", f"correct {name}, or leave it out")
    prices = read_prices(*_text(settings, "prices_file"))
    policies, policy_file = _text(settings, "policy_file")
    return OperatorFiles(
        read_policies(policies, settings.mcp_approval_default_policy, policy_file),
        _text(settings, "system_prompt_file")[0],
        _servers(settings) if settings.mcp_enabled else ServersFile(),
        load_templates(settings.mcp_launch_templates_file) if settings.mcp_enabled else TemplatesFile(),
        prices,
        read_limits(*_text(settings, "limits_file"), prices.currency),
        read_secret_grants(*_text(settings, "mcp_secret_grants_file")),
        on_disk,
    )


def unusable_file(path: Path, why: Unusable) -> SettingsError:
    """Return the error of a file with unread content."""
    match why:
        case Unusable.KIND:
            cause = gettext_lazy("{file} is not a regular file.", file=path)
        case Unusable.SIZE:
            cause = gettext_lazy("{file} is larger than {size} MiB.", file=path, size=LARGEST_BYTES >> 20)
    return SettingsError(cause, gettext_lazy("replace it by the right file, or set another path"))


def _servers(settings: Settings) -> ServersFile:
    """Read the servers. Their programs start in the folder of the files, if that is another than the working folder."""
    servers = load_servers(settings.mcp_servers_file, _environment(settings))
    base = find_folders().base
    if not (base.is_absolute() and base.is_dir()):
        return servers
    entries = []
    for entry in servers.entries:
        transport = entry.config.transport
        if isinstance(transport, StdioTransport) and transport.cwd is None and transport.command:
            transport = replace(transport, cwd=str(base))
        entries.append(replace(entry, config=replace(entry.config, transport=transport)))
    return replace(servers, entries=tuple(entries))


def _environment(settings: Settings) -> dict[str, str]:
    """Return the variables for the servers' file. Unless the operator says otherwise, the bundled notes are with the
    other data, and invented weather may stand in for an outage of the service only where the demo model answers: a real
    one would present it as true.
    """
    environment = read_environment()
    if not environment.get("NOTES_FILE"):
        notes = settings.data_folder / NOTES  # servers start in the base folder
        environment["NOTES_FILE"] = str(notes.absolute() if find_folders().base.is_absolute() else notes)
    if is_demo(settings) and not environment.get("WEATHER_SAMPLE"):
        environment["WEATHER_SAMPLE"] = "auto"
    return environment


def _text(settings: Settings, field_name: str) -> tuple[str, str]:
    """Return the text of a file, empty if it is missing, and its path. Raises SettingsError."""
    path = getattr(settings, field_name)
    try:
        return path.read_text(encoding="utf-8-sig"), str(path)
    except FileNotFoundError:
        return "", str(path)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.", f"correct the file or {field_name.upper()}") from error


# -------------------- effects of a change


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
    if names := _changed_names(before.launches.templates, after.launches.templates):
        yield _("launch templates"), ", ".join(names)
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
        tool = Tool(f"{server}__{name}", server, name)
        configs = [entry.config for entry in self.after.servers.entries if entry.config.name == server]
        return replace(tool, trusted=configs[0].trusted, flow=configs[0].flows.flow_of(name)) if configs else tool


def _named_tools(content: Policies) -> set[tuple[str, str]]:
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
