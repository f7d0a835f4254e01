"""The operator's files, read before anything is opened, so that a mistake stops the start at once."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from bot.app.file_watch import LARGEST_BYTES, FilesOnDisk, FileWatch, Unusable
from bot.app.models import is_demo
from bot.domain.completions import Usage
from bot.domain.policies import Rule
from bot.domain.secret_binding import SecretGrants
from bot.domain.servers import DesiredServer, StdioTransport
from bot.domain.usage import NO_PRICES, LimitUnit, PriceList, UsageLimit
from bot.engine.config_files import read_limits, read_policies, read_prices, read_secret_grants
from bot.engine.policy.rules import Policies, undeliverable_targets, unknown_servers
from bot.errors import SettingsError
from bot.folders import NOTES, find_folders
from bot.i18n import gettext_lazy
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
    for name in ("prices_file", "limits_file", "mcp_secret_grants_file"):
        _must_exist_if_named(settings, name)
    prices = read_prices(_text(settings.prices_file, "PRICES_FILE"), str(settings.prices_file))
    return OperatorFiles(
        _policies(settings),
        _text(settings.system_prompt_file, "SYSTEM_PROMPT_FILE"),
        _servers(settings) if settings.mcp_enabled else ServersFile(),
        load_templates(settings.mcp_launch_templates_file) if settings.mcp_enabled else TemplatesFile(),
        prices,
        read_limits(_text(settings.limits_file, "LIMITS_FILE"), str(settings.limits_file), prices.currency),
        read_secret_grants(
            _text(settings.mcp_secret_grants_file, "MCP_SECRET_GRANTS_FILE"), str(settings.mcp_secret_grants_file)
        ),
        on_disk,
    )


def unusable_file(path: Path, why: Unusable) -> SettingsError:
    """Return the error of a file whose content is not read."""
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
    return replace(servers, entries=tuple(_started_in(str(base), entry) for entry in servers.entries))


def _started_in(folder: str, entry: DesiredServer) -> DesiredServer:
    transport = entry.config.transport
    if not isinstance(transport, StdioTransport) or transport.cwd is not None or not transport.command:
        return entry
    return replace(entry, config=replace(entry.config, transport=replace(transport, cwd=folder)))


def _as_servers_see(path: Path) -> Path:
    """Return a path that holds in the folder in which servers start."""
    return path.absolute() if find_folders().base.is_absolute() else path


def _environment(settings: Settings) -> dict[str, str]:
    """Return the variables for the servers' file. Unless the operator says otherwise, the bundled notes are with the
    other data, and invented weather may stand in for an outage of the service only where the demo model answers: a real
    one would present it as true.
    """
    environment = read_environment()
    if not environment.get("NOTES_FILE"):
        environment["NOTES_FILE"] = str(_as_servers_see(settings.data_folder / NOTES))
    if is_demo(settings) and not environment.get("WEATHER_SAMPLE"):
        environment["WEATHER_SAMPLE"] = "auto"
    return environment


def _policies(settings: Settings) -> Policies:
    path = settings.policy_file
    return read_policies(_text(path, "POLICY_FILE"), settings.mcp_approval_default_policy, str(path))


def _must_exist_if_named(settings: Settings, field: str) -> None:
    # A missing limits file would limit nothing although its setting suggests otherwise.
    if field in settings.model_fields_set and not (path := getattr(settings, field)).exists():
        name = field.upper()
        raise SettingsError(f"{name} names {path}, and there is no such file.", f"correct {name}, or leave it out")


def _text(path: Path, setting: str) -> str:
    """Return the text of a file; empty if it is missing. Raises SettingsError."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.", f"correct the file or {setting}") from error
