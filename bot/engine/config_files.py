"""Parsers of the operator's TOML files: policies, secret grants, prices and usage limits.

In `policy.toml`, `prices.toml` and `limits.toml` an invalid entry is an error with its line, because a skipped one
would change the policy or hide costs. In `secret_grants.toml` it grants nothing and is reported; the others apply.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar

from bot.domain.approvals import ApprovalPolicy
from bot.domain.policies import Rule, RuleError, is_pattern, parse_policy, parse_rule
from bot.domain.secret_binding import GrantProblem, SecretGrant, SecretGrants, format_origin
from bot.domain.secrets import SecretReference
from bot.domain.toml_errors import toml_problem
from bot.domain.usage import (
    MICRO,
    NO_PRICES,
    LimitPeriod,
    LimitScope,
    LimitUnit,
    Price,
    PriceList,
    UsageLimit,
    matches_pattern,
)
from bot.engine.policy.rules import Policies, ServerPolicy
from bot.errors import SettingsError

EntryLocation = tuple[str | int, ...]
"""Path of a table or value: names, and after the name of an array of tables its index, from 0."""
_HEADER = re.compile(r"\s*(\[{1,2})([^\[\]]*(?:\"[^\"]*\"[^\[\]]*)*)\]{1,2}\s*(?:#.*)?")
_KEY = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*=")

_KEYS = frozenset(("secret", "workspaces", "hosts", "templates"))
_WORKSPACE = re.compile(r"[a-z][a-z-]{0,40}:[A-Za-z0-9._~@+-]{1,200}")
_TEMPLATE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9._-]{0,252}[a-z0-9_])?")
_IPV6 = re.compile(r"[0-9a-f:.]+")
_LINE = re.compile(r"\(at line (\d+), ")
_EXAMPLE = 'write [[grant]] and below it secret = "env:NAME", workspaces = ["slack:T123"] and hosts = ["host"]'
_PARTS = ("input", "cached_input", "cache_write", "output")
_PRICE_KEYS = {"model", *_PARTS}
_MAX_PRICE = 1_000_000
"""Highest price of a million tokens. More is a typing error, and its sums would overflow the database."""
_LIMIT_KEYS = {"per", "every", "tokens", "money", "only"}
_NAMES = {LimitScope.PERSON: "slack:U123", LimitScope.CHANNEL: "slack:T1:C5", LimitScope.WORKSPACE: "slack:T1"}
"""Example name for each scope."""
_MAX_AMOUNT = 10**15
Words = TypeVar("Words", bound=StrEnum)


def line_numbers(text: str) -> Mapping[EntryLocation, int]:
    """Return the line, from 1, of every table and key. Unusual notations may be missing."""
    lines: dict[EntryLocation, int] = {}
    counts: Counter[EntryLocation] = Counter()
    table: EntryLocation = ()
    open_text = ""
    for number, line in enumerate(text.splitlines(), 1):
        if open_text:
            open_text = "" if open_text in line else open_text
        elif header := _HEADER.fullmatch(line):
            table = _names(header[2])
            if header[1] == "[[":
                counts[table] += 1
                table = (*table, counts[table] - 1)
            for length in range(1, len(table) + 1):
                lines.setdefault(table[:length], number)
        elif key := _KEY.match(line):
            for length in range(1, len(names := _names(key[1])) + 1):
                lines.setdefault((*table, *names[:length]), number)
            value = line[key.end() :]
            open_text = next((quotes for quotes in ('"""', "'''") if value.count(quotes) % 2), "")
    return lines


def _names(key: str) -> EntryLocation:
    try:
        parsed: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        return (key,)
    names: list[str] = []
    while isinstance(parsed, dict):
        ((name, parsed),) = parsed.items()
        names.append(name)
    return tuple(names)


@dataclass(frozen=True, slots=True)
class Entries:
    """Parsed table of a file, with its line numbers."""

    table: Mapping[str, Any]
    source: str
    lines: Mapping[EntryLocation, int]

    def list(self, name: str, problem: str = "must be a list of tables", fix: str = "") -> Sequence[Mapping[str, Any]]:
        """Return the entries of `[[name]]`. Raises SettingsError."""
        entries = self.table.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            raise self.error((name,), problem, fix or f"write [[{name}]] and what it says below it")
        return entries

    def number(self, value: Any, location: EntryLocation, most: int, wanted: str) -> Decimal:
        """Return a number from 0 to `most`. Raises SettingsError."""
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        if not is_number or not (number := Decimal(value)).is_finite() or not 0 <= number <= most:
            raise self.error(location, "is not a valid number", f"write {wanted}")
        return number

    def reject_hidden(self, patterns: Sequence[str], location: EntryLocation, known_as: str) -> None:
        """Raise SettingsError if an earlier pattern matches everything that the last one matches."""
        *previous, last = patterns
        if earlier := next((pattern for pattern in previous if matches_pattern(last, pattern)), None):
            raise self.error((*location, known_as), f'never applies, because "{earlier}" precedes it', "write it first")

    def reject_unknown(
        self, table: Mapping[str, Any], known: set[str], location: EntryLocation, problem: str = "is not a known key"
    ) -> None:
        """Raise SettingsError for an unknown key."""
        for key in table:
            if key not in known:
                raise self.error((*location, key), problem, f"use one of {', '.join(sorted(known))}")

    def error(
        self, location: EntryLocation, problem: str, fix: str, *, named: EntryLocation | None = None
    ) -> SettingsError:
        """Return an error with the line of the entry or of the nearest one around it, and with the path of `named`."""
        lines = (self.lines.get(location[:length]) for length in range(len(location), 0, -1))
        line = next((f", line {number}" for number in lines if number is not None), "")
        ending = "" if problem.endswith(".") else "."
        return SettingsError(f"{self.source}{line}: {_format_path(named or location)} {problem}{ending}", fix)


def read_entries(
    text: str, source: str, setting: str, parse_float: Callable[[str], float | Decimal] = Decimal
) -> Entries:
    """Parse a file. `parse_float` parses numbers with a point. Raises SettingsError."""
    try:
        return Entries(tomllib.loads(text, parse_float=parse_float), source, line_numbers(text))
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise SettingsError(
            f"{source} cannot be read: {toml_problem(text, error)}.", f"correct the file or {setting}"
        ) from error


def _format_path(location: EntryLocation) -> str:
    """Format the path of an entry. Rule numbers are omitted because the line identifies the rule."""
    return ".".join(str(part) for part in location if not isinstance(part, int))


def read_policies(text: str, default: ApprovalPolicy | None, source: str) -> Policies:
    """Parse a `policy.toml`; `default`, if given, replaces the file's own.

    Raises SettingsError with `source`, the line and the invalid entry.
    """
    return _PolicyReader(read_entries(text, source, "POLICY_FILE", float)).read(default)


class _PolicyReader:
    def __init__(self, file: Entries) -> None:
        self._file = file
        self._short = file.source.replace("\\", "/").rpartition("/")[2]

    def read(self, default: ApprovalPolicy | None) -> Policies:
        known = {"default", "rules", "self_approval", "servers"}
        self._file.reject_unknown(self._file.table, known, (), "means nothing here")
        self_approval = self._file.table.get("self_approval", True)
        if not isinstance(self_approval, bool):
            raise self._file.error(("self_approval",), f"is {self_approval!r:.60}.", "write true or false")
        own_default = self._policy(self._file.table.get("default", ApprovalPolicy.ASK_USER), ("default",))
        servers = self._table(self._file.table.get("servers", {}), ("servers",))
        self._reject_patterns(servers, ("servers",))
        policies = {name: self._server(entry, ("servers", name)) for name, entry in servers.items()}
        rules = self._file.list("rules", "must be rules of their own", "write [[rules]] and a rule's entries below it")
        lines: dict[tuple[str, str], int] = {}
        for location, line in self._file.lines.items():
            match location:
                case ("servers", str(server), "tools", str(tool)):
                    lines[server, tool] = line
                case ("servers", str(server), "default"):
                    lines[server, ""] = line
                case _:
                    pass
        return Policies(
            default=default or own_default,
            servers=policies,
            rules=tuple(self._rule(entry, number) for number, entry in enumerate(rules)),
            self_approval=self_approval,
            name=self._short,
            lines=lines,
        )

    def _server(self, entry: Any, location: EntryLocation) -> ServerPolicy:
        entry = self._table(entry, location)
        self._file.reject_unknown(entry, {"default", "tools"}, location, "means nothing here")
        tools = self._table(entry.get("tools", {}), (*location, "tools"))
        self._reject_patterns(tools, (*location, "tools"))
        return ServerPolicy(
            tools={name: self._policy(policy, (*location, "tools", name)) for name, policy in tools.items()},
            default=self._policy(entry["default"], (*location, "default")) if "default" in entry else None,
        )

    def _rule(self, entry: Mapping[str, Any], number: int) -> Rule:
        location: EntryLocation = ("rules", number)
        try:
            rule = parse_rule(entry)
        except RuleError as error:
            raise self._file.error((*location, *error.key.split(".", 1)), str(error), "correct the rule") from error
        return dataclasses.replace(rule, id=f"{self._short}:{self._file.lines.get(location, number + 1)}")

    def _table(self, value: Any, location: EntryLocation) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise self._file.error(
                location, "must be a table", f"write [{_format_path(location)}] and the entries below it"
            )
        return value

    def _reject_patterns(self, names: Mapping[str, Any], location: EntryLocation) -> None:
        # `"delete_*" = "ALWAYS_DENY"` would match no tool, and give a false sense of safety.
        for name in names:
            if is_pattern(name):
                raise self._file.error(
                    (*location, name),
                    f"has the pattern {name!r}, and patterns mean nothing here.",
                    'write [[rules]] with policy, server and tool = "delete_*", where they do',
                    named=location,
                )

    def _policy(self, value: Any, location: EntryLocation) -> ApprovalPolicy:
        try:
            return parse_policy(value)
        except RuleError:
            policies = ", ".join(policy.value for policy in ApprovalPolicy)
            raise self._file.error(location, f"is {value!r:.60}.", f"use one of {policies}") from None


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
    except (ValueError, RecursionError) as error:
        reason = toml_problem(text, error)
        match = _LINE.search(reason)
        problem = GrantProblem(int(match[1]) if match else 0, f"The file is not TOML: {reason}.", "correct that line")
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
    secret = entry.get("secret")
    try:
        reference = SecretReference.parse(secret if isinstance(secret, str) else "")
    except ValueError:
        # The value may be a secret itself, so it is not quoted.
        fix = 'write secret = "env:NAME" or "file:/absolute/path"'
        raise _InvalidEntry("'secret' is not a reference.", fix) from None
    return SecretGrant(reference, workspaces, hosts, templates, line)


def _texts(entry: Mapping[str, Any], key: str) -> Sequence[str]:
    value = entry.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
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
    """Return the permissions of a grant, in a sentence."""
    places = [
        *map(format_origin, sorted(grant.hosts)),
        *(f"launch template {name}" for name in sorted(grant.templates)),
    ]
    return f"{grant.reference} is granted to servers of {', '.join(sorted(grant.workspaces))} at {', '.join(places)}."


def read_prices(text: str, source: str) -> PriceList:
    """Parse a `prices.toml`. Raises SettingsError with `source` and the line."""
    file = read_entries(text, source, "PRICES_FILE")
    file.reject_unknown(file.table, {"currency", "models"}, ())
    prices: list[Price] = []
    for number, entry in enumerate(file.list("models")):
        prices.append(_price(file, entry, ("models", number)))
        file.reject_hidden([price.model for price in prices], ("models", number), "model")
    currency = file.table.get("currency", "")
    if not isinstance(currency, str) or (currency != "" and not (currency.isalpha() and len(currency) == 3)):
        raise file.error(("currency",), "is not a currency", 'write its three letters, such as currency = "EUR"')
    if not prices:
        return NO_PRICES
    if not currency:
        raise SettingsError(f"{source} has prices and no currency.", 'write currency = "EUR" at its beginning')
    return PriceList(currency.upper(), tuple(prices))


def _price(file: Entries, entry: Mapping[str, Any], location: EntryLocation) -> Price:
    file.reject_unknown(entry, _PRICE_KEYS, location)
    model = entry.get("model")
    if not isinstance(model, str) or not model.strip():
        raise file.error(location, "names no model", 'write model = "PROVIDER:NAME", with * for any letters')
    for needed in ("input", "output"):
        if needed not in entry:
            raise file.error(location, f"has no price for {needed}", f"write {needed} = and what a million tokens cost")
    wanted = "what a million tokens cost, such as 3.00, or 0"
    parts = {name: file.number(entry[name], (*location, name), _MAX_PRICE, wanted) for name in _PARTS if name in entry}
    plain = {"cached_input": parts["input"], "cache_write": parts["input"]}
    return Price(model.strip(), **{**plain, **parts})


def read_limits(text: str, source: str, currency: str) -> tuple[UsageLimit, ...]:
    """Parse a `limits.toml`; amounts are in the prices' currency. Raises SettingsError with `source` and the line."""
    file = read_entries(text, source, "LIMITS_FILE")
    file.reject_unknown(file.table, {"limits"}, ())
    limits: list[UsageLimit] = []
    for number, entry in enumerate(file.list("limits")):
        for limit in _limits(file, entry, number, currency):
            limits.append(limit)
            kind = [other.only for other in limits if other.kind == limit.kind]
            file.reject_hidden(kind, ("limits", number), "only")
    return tuple(limits)


def _limits(file: Entries, entry: Mapping[str, Any], number: int, currency: str) -> Iterator[UsageLimit]:
    location = ("limits", number)
    file.reject_unknown(entry, _LIMIT_KEYS, location)
    per, every = _choice(file, entry, number, "per", LimitScope), _choice(file, entry, number, "every", LimitPeriod)
    only = entry.get("only", "*")
    name = _NAMES[per]
    if not isinstance(only, str) or not ("*" in only or only.count(":") >= name.count(":")):
        fix = f'write a name such as only = "{name}", or leave it out'
        raise file.error((*location, "only"), "matches no name", fix)
    if "tokens" not in entry and "money" not in entry:
        raise file.error(location, "limits nothing", "write tokens = and how many, or money = and how much")
    if "tokens" in entry:
        tokens = file.number(entry["tokens"], (*location, "tokens"), _MAX_AMOUNT, "how many tokens, such as 200_000")
        if tokens != int(tokens):
            raise file.error((*location, "tokens"), "is not a whole number", "write how many tokens, such as 200_000")
        yield UsageLimit(per, every, LimitUnit.TOKENS, int(tokens), only.strip())
    if "money" in entry:
        if not currency:
            fix = "write prices into PRICES_FILE, or tokens ="
            raise file.error((*location, "money"), "limits money, and there are no prices", fix)
        money = file.number(entry["money"], (*location, "money"), _MAX_AMOUNT, f"how much, in {currency}, such as 5.00")
        yield UsageLimit(per, every, LimitUnit.MONEY, int(money * MICRO), only.strip())


def _choice(file: Entries, entry: Mapping[str, Any], number: int, key: str, choices: type[Words]) -> Words:
    try:
        return choices(entry.get(key, ""))
    except ValueError:
        options = " or ".join(f'"{choice}"' for choice in choices)
        location = ("limits", number, key) if key in entry else ("limits", number)
        problem = "is not a known value" if key in entry else f"has no {key}"
        raise file.error(location, problem, f"write {key} = {options}") from None
