"""Parser of the operator's policy file.

Invalid entries are errors with their line: a skipped entry would change the policy silently.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from typing import Any

from bot.domain.approvals import ApprovalPolicy
from bot.domain.policies import Rule, is_pattern
from bot.domain.policy_syntax import RuleError, parse_policy, parse_rule
from bot.engine.policy import Policies, ServerPolicy
from bot.engine.toml_lines import EntryLocation, line_numbers
from bot.errors import SettingsError


def read_policies(text: str, default: ApprovalPolicy | None, source: str) -> Policies:
    """Parse a `policy.toml`; `default`, if given, replaces the file's own.

    Raises SettingsError with `source`, the line and the invalid entry.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{source} cannot be read: {error}.", "correct the file or POLICY_FILE") from error
    return _Reader(table, source, line_numbers(text)).read(default)


class _Reader:
    def __init__(self, table: Mapping[str, Any], source: str, lines: Mapping[EntryLocation, int]) -> None:
        self._document = table
        self._source = source
        self._lines = lines
        self._short = source.replace("\\", "/").rpartition("/")[2]

    def read(self, default: ApprovalPolicy | None) -> Policies:
        self._reject_unknown(self._document, {"default", "rules", "servers"}, ())
        own_default = self._policy(self._document.get("default", ApprovalPolicy.ASK_USER), ("default",))
        servers = self._table(self._document.get("servers", {}), ("servers",))
        self._reject_patterns(servers, ("servers",))
        return Policies(
            default=default or own_default,
            servers={name: self._server(entry, ("servers", name)) for name, entry in servers.items()},
            rules=self._rules(self._document.get("rules", [])),
            name=self._short,
            lines=self._short_lines(),
        )

    def _short_lines(self) -> Mapping[tuple[str, str], int]:
        """Return the lines of the short form, by server and tool; the tool is empty for a server's default."""
        lines: dict[tuple[str, str], int] = {}
        for place, line in self._lines.items():
            match place:
                case ("servers", str(server), "tools", str(tool)):
                    lines[server, tool] = line
                case ("servers", str(server), "default"):
                    lines[server, ""] = line
                case _:
                    pass
        return lines

    def _server(self, entry: Any, place: EntryLocation) -> ServerPolicy:
        entry = self._table(entry, place)
        self._reject_unknown(entry, {"default", "tools"}, place)
        tools = self._table(entry.get("tools", {}), (*place, "tools"))
        self._reject_patterns(tools, (*place, "tools"))
        return ServerPolicy(
            tools={name: self._policy(policy, (*place, "tools", name)) for name, policy in tools.items()},
            default=self._policy(entry["default"], (*place, "default")) if "default" in entry else None,
        )

    def _rules(self, entries: Any) -> tuple[Rule, ...]:
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            raise self._error(("rules",), "must be rules of their own", "write [[rules]] and a rule's entries below it")
        return tuple(self._rule(entry, number) for number, entry in enumerate(entries))

    def _rule(self, entry: Mapping[str, Any], number: int) -> Rule:
        place: EntryLocation = ("rules", number)
        try:
            rule = parse_rule(entry)
        except RuleError as error:
            raise self._error((*place, *error.key.split(".", 1)), str(error), "correct the rule") from error
        return dataclasses.replace(rule, id=f"{self._short}:{self._lines.get(place, number + 1)}")

    def _table(self, value: Any, place: EntryLocation) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise self._error(place, "must be a table.", f"write [{_format_path(place)}] and the entries below it")
        return value

    def _reject_unknown(self, table: Mapping[str, Any], known: set[str], place: EntryLocation) -> None:
        for key in table:
            if key not in known:
                raise self._error((*place, key), "means nothing here.", f"use one of {', '.join(sorted(known))}")

    def _reject_patterns(self, names: Mapping[str, Any], place: EntryLocation) -> None:
        # `"delete_*" = "ALWAYS_DENY"` would match no tool, and give a false sense of safety.
        for name in names:
            if is_pattern(name):
                raise self._error(
                    (*place, name),
                    f"has the pattern {name!r}, and patterns mean nothing here.",
                    'write [[rules]] with policy, server and tool = "delete_*", where they do',
                    named=place,
                )

    def _policy(self, value: Any, place: EntryLocation) -> ApprovalPolicy:
        try:
            return parse_policy(value)
        except RuleError:
            policies = ", ".join(policy.value for policy in ApprovalPolicy)
            raise self._error(place, f"is {value!r:.60}.", f"use one of {policies}") from None

    def _error(
        self, place: EntryLocation, problem: str, fix: str, *, named: EntryLocation | None = None
    ) -> SettingsError:
        lines = (self._lines.get(place[:length]) for length in range(len(place), 0, -1))
        line = next((f", line {number}" for number in lines if number is not None), "")
        ending = "" if problem.endswith(".") else "."
        return SettingsError(f"{self._source}{line}: {_format_path(named or place)} {problem}{ending}", fix)


def _format_path(place: EntryLocation) -> str:
    """Format the path of an entry. Rule numbers are omitted because the line identifies the rule."""
    return ".".join(str(part) for part in place if not isinstance(part, int))
