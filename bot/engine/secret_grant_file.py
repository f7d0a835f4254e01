"""Parser of the operator's secret grants, `config/secret_grants.toml`.

Entries are checked one by one: an invalid one grants nothing and is reported with its line; the others apply.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from bot.domain.secret_binding import GrantProblem, SecretGrant, SecretGrants, spelled
from bot.domain.secrets import SecretReference
from bot.engine.toml_lines import line_numbers

_KEYS = frozenset(("secret", "workspaces", "hosts", "templates"))
_WORKSPACE = re.compile(r"[a-z][a-z-]{0,40}:[A-Za-z0-9._~@+-]{1,200}")
_TEMPLATE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9._-]{0,252}[a-z0-9_])?")
_IPV6 = re.compile(r"[0-9a-f:.]+")
_LINE = re.compile(r"\(at line (\d+), column \d+\)")
_EXAMPLE = 'write [[grant]] and below it secret = "env:NAME", workspaces = ["slack:T123"] and hosts = ["host"]'


class _InvalidEntry(Exception):
    """An invalid entry, with its fix."""

    def __init__(self, cause: str, fix: str) -> None:
        super().__init__(cause)
        self.cause = cause
        self.fix = fix


def read_secret_grants(text: str, source: str) -> SecretGrants:
    """Parse the file. A file that is not TOML grants nothing."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = _LINE.search(str(error))
        problem = GrantProblem(int(match[1]) if match else 0, f"The file is not TOML: {error}.", "correct that line")
        return SecretGrants(problems=(problem,), source=source)
    lines = line_numbers(text)
    problems = [
        GrantProblem(lines.get((key,), 0), f"{key!r} is not a known key.", _EXAMPLE)
        for key in document
        if key != "grant"
    ]
    entries = document.get("grant", [])
    if not isinstance(entries, list):
        problems.append(GrantProblem(lines.get(("grant",), 0), "[grant] is not an entry.", _EXAMPLE))
        entries = []
    grants = []
    for number, entry in enumerate(entries):
        line = lines.get(("grant", number), 0)
        try:
            grants.append(_grant(entry, line))
        except _InvalidEntry as error:
            problems.append(GrantProblem(line, error.cause, error.fix))
    return SecretGrants(tuple(grants), tuple(problems), source)


def _grant(entry: Any, line: int) -> SecretGrant:
    if not isinstance(entry, Mapping):
        raise _InvalidEntry("The entry is not a table.", _EXAMPLE)
    if unknown := sorted(entry.keys() - _KEYS):
        raise _InvalidEntry(f"{unknown[0]!r} is not a known key.", f"use {', '.join(sorted(_KEYS))}")
    hosts = frozenset(_host(text) for text in _texts(entry, "hosts"))
    templates = frozenset(_matching(text, _TEMPLATE, "launch template") for text in _texts(entry, "templates"))
    workspaces = frozenset(
        _matching(text, _WORKSPACE, "workspace", "write platform:id, such as slack:T123")
        for text in _texts(entry, "workspaces")
    )
    if not workspaces:
        raise _InvalidEntry("It names no workspace, so it grants nothing.", 'write workspaces = ["slack:T123"]')
    if not hosts and not templates:
        raise _InvalidEntry(
            "It names no host and no launch template, so it grants nothing.", 'write hosts = ["jira.example.com"]'
        )
    return SecretGrant(_reference(entry.get("secret")), workspaces, hosts, templates, line)


def _reference(value: Any) -> SecretReference:
    try:
        return SecretReference.parse(value if isinstance(value, str) else "")
    except ValueError:
        # The value may be a secret itself, so it is not quoted.
        raise _InvalidEntry(
            "'secret' is not a reference.", 'write secret = "env:NAME" or "file:/absolute/path"'
        ) from None


def _texts(entry: Mapping[str, Any], key: str) -> Sequence[str]:
    value = entry.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _InvalidEntry(f"{key!r} is not a list of texts.", f'write {key} = ["…"]')
    return value


def _matching(text: str, pattern: re.Pattern[str], noun: str, fix: str = "correct its name") -> str:
    if not pattern.fullmatch(text):
        raise _InvalidEntry(f"{text[:80]!r} is not a {noun}. Patterns are not allowed.", fix)
    return text


def _host(text: str) -> str:
    """Parse `host`, `host:port` or `[address]:port` into an origin. The default scheme is https."""
    fix = "write host or host:port, such as jira.example.com:8443; http://host:port only for an address without TLS"
    scheme, separator, rest = text.strip().lower().partition("://")
    if not separator:
        scheme, rest = "https", scheme
    port = "80" if scheme == "http" else "443"
    if rest.startswith("["):
        name, bracket, given_port = rest[1:].partition("]")
        is_valid = bool(bracket) and bool(_IPV6.fullmatch(name)) and (not given_port or given_port.startswith(":"))
        port, name = given_port[1:] or port, f"[{name}]"
    else:
        name, colon, given_port = rest.partition(":")
        is_valid = bool(_NAME.fullmatch(name))
        port = given_port if colon else port
    if scheme not in ("http", "https") or not is_valid or not (port.isascii() and port.isdigit()):
        raise _InvalidEntry(f"{text[:80]!r} is not a host.", fix)
    if not 0 < int(port) < 65_536:
        raise _InvalidEntry(f"{text[:80]!r} has a port that does not exist.", fix)
    return f"{scheme}://{name}:{int(port)}"


def describe_grant(grant: SecretGrant) -> str:
    """Return what a grant allows, in a sentence."""
    places = [*map(spelled, sorted(grant.hosts)), *(f"launch template {name}" for name in sorted(grant.templates))]
    return f"{grant.reference} is granted to servers of {', '.join(sorted(grant.workspaces))} at {', '.join(places)}."
