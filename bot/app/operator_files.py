"""The files an operator edits, read before anything is opened, so that a mistake is told at once."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from bot.domain.policies import Rule
from bot.engine.idle_rules import strangers, unwritable
from bot.engine.policy import Policies
from bot.engine.policy_file import read_policies
from bot.errors import SettingsError
from bot.settings import Settings, read_environment
from bot.tools.config_file import ServersFile, read_servers
from bot.tools.template_file import TemplatesFile, read_templates

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OperatorFiles:
    """What the operator has written: which tools may run, what the model is told, which servers there are, and which
    programs admins may have started.
    """

    policies: Policies
    system_prompt: str
    servers: ServersFile
    launches: TemplatesFile = TemplatesFile()

    def strangers(self) -> list[str]:
        """Servers that have policies and do not exist: a policy under a misspelt name forbids nothing."""
        configured = {entry.config.name for entry in self.servers.entries}
        return sorted(self.policies.servers.keys() - configured) if configured else []

    def stray_rules(self) -> list[Rule]:
        """Rules about servers that do not exist here: of those that admins have added nothing is known yet."""
        names = [entry.config.name for entry in self.servers.entries]
        return strangers(self.policies.rules, names) if names else []

    def warn(self, settings: Settings) -> None:
        """Log what is odd about them and keeps nothing from working."""
        for name in self.strangers():
            log.warning(
                "%s has policies for %r, which is no enabled server of %s",
                settings.policy_file,
                name,
                settings.mcp_servers_file,
            )
        for rule in self.stray_rules():
            log.warning("%s is about %r, which no enabled server is called", rule.id, rule.server)
        for rule in self.policies.rules:
            if groups := unwritable(rule):
                log.warning("%s: %s cannot be written to, so the card stays in the thread", rule.id, ", ".join(groups))
        for warning in (*self.servers.warnings, *self.launches.problems, *self.launches.warnings):
            log.warning(warning)


def read_operator_files(settings: Settings) -> OperatorFiles:
    """Read all of them; a missing file is an empty one. Raises SettingsError."""
    return OperatorFiles(
        _policies(settings),
        _system_prompt(settings.system_prompt_file),
        read_servers(settings.mcp_servers_file, read_environment()) if settings.mcp_enabled else ServersFile(),
        read_templates(settings.mcp_launch_templates_file) if settings.mcp_enabled else TemplatesFile(),
    )


def _policies(settings: Settings) -> Policies:
    path = settings.policy_file
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.", "correct the file or POLICY_FILE") from error
    return read_policies(text, settings.mcp_approval_default_policy, str(path))


def _system_prompt(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.", "correct the file or SYSTEM_PROMPT_FILE") from error
