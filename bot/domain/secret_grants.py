"""Permissions for servers of a workspace to refer to secrets of the operator, from the operator's file of grants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bot.domain.secret_binding import origin_of
from bot.domain.secrets import SecretReference
from bot.domain.servers import EVERYWHERE, HttpTransport, ServerConfig, StdioTransport, TemplateLaunch


@dataclass(frozen=True, slots=True)
class SecretGrant:
    """One grant: a reference, and the workspaces and places in which servers may use it. `templates` are names of
    launch templates, `hosts` are origins such as `https://host:443`. `line` is the line of the file, from 1.
    """

    reference: SecretReference
    workspaces: frozenset[str]
    hosts: frozenset[str] = frozenset()
    templates: frozenset[str] = frozenset()
    line: int = 0

    def covers(self, reference: SecretReference, config: ServerConfig) -> bool:
        """Return True if this server may use this reference. Everything is compared exactly."""
        if not reference.same_place(self.reference) or config.workspace not in self.workspaces:
            return False
        match config.transport:
            case HttpTransport(url):
                return origin_of(url) in self.hosts
            case StdioTransport(launch=TemplateLaunch(template)):
                return template in self.templates
            case StdioTransport():
                return False


@dataclass(frozen=True, slots=True)
class GrantProblem:
    """An entry of the file that grants nothing. `line` is 0 if the file as a whole cannot be read."""

    line: int
    cause: str
    fix: str

    @property
    def sentence(self) -> str:
        """Line, cause and fix."""
        line = f"Line {self.line}: " if self.line else ""
        return f"{line}{self.cause} It grants nothing. Fix: {self.fix}."


@dataclass(frozen=True, slots=True)
class SecretGrants:
    """Content of the file. An entry with an error grants nothing. `source` is the file's name for users."""

    grants: tuple[SecretGrant, ...] = ()
    problems: tuple[GrantProblem, ...] = ()
    source: str = "config/secret_grants.toml"

    def objection(self, reference: SecretReference, config: ServerConfig) -> tuple[str, str]:
        """Return cause and fix if this server may not use this reference; two empty strings if it may."""
        if any(grant.covers(reference, config) for grant in self.grants):
            return "", ""
        cause = f"The reference {reference} is the operator's, and is not granted to {_used_by(config)}."
        return cause, f"{_entry_for(reference, config, self.source)}, or enter the secret itself"


def no_grants() -> SecretGrants:
    """Return empty grants."""
    return SecretGrants()


FindGrants = Callable[[], SecretGrants]
"""Return the current grants of the file."""


def spelled(origin: str) -> str:
    """Return an origin as the file spells it: https and its port are left out."""
    return origin.removeprefix("https://").removesuffix(":443") if origin.startswith("https://") else origin


def _used_by(config: ServerConfig) -> str:
    where = config.workspace or "every workspace"
    match config.transport:
        case HttpTransport(url):
            return f"servers of {where} at {spelled(origin_of(url))}"
        case StdioTransport(launch=TemplateLaunch(template)):
            return f"servers of {where} that the launch template {template} starts"
        case StdioTransport():
            return f"programs of {where}"


def _entry_for(reference: SecretReference, config: ServerConfig, source: str) -> str:
    """Return the missing entry of the file as part of a sentence."""
    match config.transport:
        case HttpTransport(url):
            place = f'hosts = ["{spelled(origin_of(url))}"]'
        case StdioTransport(launch=TemplateLaunch(template)):
            place = f'templates = ["{template}"]'
        case StdioTransport():
            place = ""
    if config.workspace == EVERYWHERE or not place:
        return "have the operator define it (`countersign servers` or ADMIN_API_TOKEN)"
    entry = f'secret = "{reference}", workspaces = ["{config.workspace}"], {place}'
    return f"ask the operator for a [[grant]] in {source} with {entry}"
