"""Definitions of servers as the files of other programs spell them: their sections, keys, transports and values.

The operator's own file and the import share these tables.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bot.domain.characters import spell_hidden
from bot.domain.servers import STDIO, HttpKind
from bot.i18n import gettext_lazy

JsonPath = tuple[str | int, ...]
"""Keys and indexes that lead to a value, the outermost first."""
_SECTIONS: tuple[JsonPath, ...] = (
    ("mcpServers",), ("servers",), ("mcp", "servers"), ("context_servers",), ("mcp_servers",), ("mcp",),
    ("extensions",),
)  # fmt: skip
"""Keys that lead to the servers, the first one counts: of Claude Desktop, Cursor, Windsurf, Gemini CLI and Continue, of
VS Code's `mcp.json` and settings, of Zed, Codex, opencode and Goose.
"""
_OTHER_KEYS = {
    "autoConnect": ("auto_connect", 1),
    "baseUrl": ("url", 1),
    "cmd": ("command", 1),
    "connectionTimeoutMs": ("connect_timeout", 1_000),
    "enabled": ("disabled", 1),
    "endpoint": ("url", 1),
    "environment": ("env", 1),
    "envs": ("env", 1),
    "httpUrl": ("url", 1),
    "http_headers": ("headers", 1),
    "initTimeout": ("connect_timeout", 1_000),
    "initializationTimeout": ("connect_timeout", 1),
    "name": ("title", 1),
    "requestTimeout": ("tool_timeout", 1),
    "serverUrl": ("url", 1),
    "startup_timeout_ms": ("connect_timeout", 1_000),
    "startup_timeout_sec": ("connect_timeout", 1),
    "timeout": ("tool_timeout", 1),
    "tool_timeout_sec": ("tool_timeout", 1),
    "transportType": ("transport", 1),
    "type": ("transport", 1),
    "uri": ("url", 1),
    "workingDirectory": ("cwd", 1),
}
"""Keys of servers in files of other programs: the key here, and the units in one second for times. A time in seconds of
more than `_LONGEST` counts as milliseconds, because programs differ.
"""
_LONGEST = 3600
_EFFECTS = {
    "env_http_headers env_keys env_vars": gettext_lazy("these variables are not passed on: write each as ${NAME}"),
    "envFile env_file": gettext_lazy("its file of variables is not read: write them under env"),
    "alwaysAllow always_allow autoApprove auto_approve trust": gettext_lazy(
        "approvals are not taken over: set a policy"
    ),
    "available_tools disabledTools disabled_tools enabledTools enabled_tools excludeTools includeTools": gettext_lazy(
        "all its tools are offered: set a policy that denies one"
    ),
}
NOT_TAKEN: Mapping[str, str] = {key: effect for keys, effect in _EFFECTS.items() for key in keys.split()}
"""Keys of servers in files of other programs that have no setting here, with the effect."""
_KINDS = {
    "http": HttpKind.STREAMABLE,
    "https": HttpKind.STREAMABLE,
    "httpstream": HttpKind.STREAMABLE,
    "streamable": HttpKind.STREAMABLE,
    "streamablehttp": HttpKind.STREAMABLE,
    "sse": HttpKind.SSE,
    "auto": HttpKind.AUTO,
    "remote": HttpKind.AUTO,
    "jsonrpchttp": HttpKind.JSONRPC,
    "stdio": STDIO,
    "local": STDIO,
}
_VARIABLE = re.compile(r"(?<!\$)\{env:(\w+)\}")
_DEFAULT = re.compile(r"(\$\{env:\w+):(?!-)")
_BARE_VARIABLE = re.compile(r"(?<!\S)\$([A-Z_][A-Z0-9_]+)$")
_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:[^"\\\n]|\\.)*")|,(?=\s*[}\]])')
_OF_TEXTS = ("command", "args", "env", "headers")
_MOST_NAMED = 3


class ServerEntry(dict[str, Any]):
    """One server's entry with keys, transport and values as they are spelled here. A key of this program wins."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        super().__init__()
        self._seen: dict[str, str] = {}
        self._take(entry)
        if isinstance(command := self.get("command"), list) and command and isinstance(self.get("args", []), list):
            self["command"], self["args"] = command[0], [*command[1:], *self.get("args", [])]
        if isinstance(kind := self.get("transport"), str):
            self["transport"] = transport_kind(kind)
        token, headers = self.get("bearer_token_env_var"), self.get("headers", {})
        if isinstance(token, str) and isinstance(headers, Mapping):
            del self["bearer_token_env_var"]
            self["headers"] = {"Authorization": f"Bearer ${{{token}}}", **headers}

    def seen(self, key: str) -> str:
        """Return a key, or the path of a value, as the file spells it."""
        first, dot, rest = key.partition(".")
        return f"{self._seen.get(first, first)}{dot}{rest}"

    def _take(self, entry: Mapping[str, Any]) -> None:
        present = [key for key, value in entry.items() if value is not None]
        for key in sorted(present, key=_OTHER_KEYS.__contains__):
            value, (own, units) = entry[key], _OTHER_KEYS.get(key, (key, 0))
            if own == "transport" and isinstance(value, Mapping):
                self._take(value)
            elif own == "command" and isinstance(value, Mapping):  # Zed's older form
                self._take({"command" if name == "path" else name: item for name, item in value.items()})
            elif own not in self:
                self._seen[own] = key
                is_switch = key == "enabled" and isinstance(value, bool)
                self[own] = not value if is_switch else _own_value(own, value, units)


def transport_kind(word: str) -> str:
    """Return the name of a transport here, by any of its names; an unknown word as it is."""
    return _KINDS.get(re.sub("[-_ ]", "", word).lower(), word)


def plain_json(text: str) -> str:
    """Return JSON without comments and trailing commas, with the same lines."""
    text = _COMMENT.sub(lambda match: match[1] or " " + "\n" * match[0].count("\n"), text)
    return _TRAILING_COMMA.sub(lambda match: match[1] or "", text)


def find_sections(document: Mapping[str, Any]) -> Iterator[tuple[JsonPath, Mapping[str, Any]]]:
    """Yield the sections of servers of a file with their paths: its own, and those of projects in `~/.claude.json`. A
    file without sections may be one itself. Servers in a list have names.
    """
    projects = document.get("projects")
    own = next((path for path in _SECTIONS if _value_at(document, path) is not None), ())
    paths = [own, *(("projects", name, "mcpServers") for name in projects)] if isinstance(projects, Mapping) else [own]
    for path in paths:
        section = _value_at(document, path)
        if isinstance(section, list) and section and all(isinstance(item, Mapping) for item in section):
            names = [str(item.get("name", number)) for number, item in enumerate(section, start=1)]
            once = (name if name not in names[:at] else f"{name}-{at + 1}" for at, name in enumerate(names))
            section = dict(zip(once, section, strict=True))
        if not path:
            items = {} if projects else {name: item for name, item in document.items() if isinstance(item, Mapping)}
            section = {name: item for name, item in items.items() if {"command", "url"} & ServerEntry(item).keys()}
        if isinstance(section, Mapping) and (path or section):
            yield path, section


def unknown_keys_text(keys: Iterable[str], known: Iterable[str]) -> str:
    """Return a clause that names unknown keys, and the known key that is nearest to the first; empty without any."""
    own = (key for key, _units in _OTHER_KEYS.values())
    known = {*known, *own, *_OTHER_KEYS, *NOT_TAKEN, *(str(path[0]) for path in _SECTIONS)}
    unknown = [key for key in keys if key not in known]
    if not unknown:
        return ""
    names = ", ".join(f"'{spell_hidden(key)[:40]}'" for key in unknown[:_MOST_NAMED])
    near = next((match for key in unknown for match in difflib.get_close_matches(key[:40], known, n=1)), "")
    did_you_mean = gettext_lazy("unknown: {keys}. Did you mean '{key}'?", keys=names, key=near)
    return did_you_mean if near else gettext_lazy("unknown: {keys}.", keys=names)


def _value_at(document: Any, path: JsonPath) -> Any:
    for key in path:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document


def _own_value(key: str, value: Any, units: int) -> Any:
    """Return a value with the variables and the units of this program. Numbers and booleans become texts in lists and
    objects of texts, and null is left out.
    """
    match value:
        case str():
            value = _DEFAULT.sub(r"\1:-", _VARIABLE.sub(r"${env:\1}", value))
            return _BARE_VARIABLE.sub(r"${env:\1}", value) if key in ("env", "headers") else value
        case Mapping() if key in _OF_TEXTS:
            return {name: _text(key, item) for name, item in value.items() if item is not None}
        case list() if key in _OF_TEXTS:
            return [_text(key, item) for item in value if item is not None]
        case int() | float() if units and key.endswith("_timeout") and not isinstance(value, bool):
            units = 1_000 if value > _LONGEST else units
            return value / units if units > 1 else value
        case _:
            return value


def _text(key: str, value: Any) -> Any:
    return json.dumps(value) if isinstance(value, bool | int | float) else _own_value(key, value, 1)
