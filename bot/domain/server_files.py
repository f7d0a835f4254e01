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
)  # fmt: skip
"""Keys that lead to the servers, the first one counts: of Claude Desktop, Cursor, Windsurf and Gemini CLI, of VS Code's
`mcp.json` and settings, of Zed, Codex and opencode.
"""
_OTHER_KEYS = {
    "autoConnect": ("auto_connect", 1),
    "baseUrl": ("url", 1),
    "connectionTimeoutMs": ("connect_timeout", 1_000),
    "enabled": ("disabled", 1),
    "environment": ("env", 1),
    "httpUrl": ("url", 1),
    "http_headers": ("headers", 1),
    "initializationTimeout": ("connect_timeout", 1),
    "requestTimeout": ("tool_timeout", 1),
    "serverUrl": ("url", 1),
    "startup_timeout_sec": ("connect_timeout", 1),
    "tool_timeout_sec": ("tool_timeout", 1),
    "transportType": ("transport", 1),
    "type": ("transport", 1),
    "workingDirectory": ("cwd", 1),
}
"""Keys of servers in files of other programs: the key here, and the units in one second for times."""
_KINDS = {
    "http": HttpKind.STREAMABLE,
    "https": HttpKind.STREAMABLE,
    "streamablehttp": HttpKind.STREAMABLE,
    "sse": HttpKind.SSE,
    "auto": HttpKind.AUTO,
    "remote": HttpKind.AUTO,
    "jsonrpchttp": HttpKind.JSONRPC,
    "stdio": STDIO,
    "local": STDIO,
}
_VARIABLE = re.compile(r"(?<!\$)\{env:(\w+)\}")
_OF_TEXTS = ("command", "args", "env", "headers")
_MOST_NAMED = 3


class ServerEntry(dict[str, Any]):
    """One server's entry with keys, transport and values as they are spelled here. A key of this program wins."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        super().__init__()
        self._seen: dict[str, str] = {}
        self._take(entry)
        if isinstance(command := self.get("command"), list) and command:
            self["command"], self["args"] = command[0], [*command[1:], *(self.get("args") or [])]
        if isinstance(kind := self.get("transport"), str):
            self["transport"] = transport_kind(kind)

    def seen(self, key: str) -> str:
        """Return a key, or the path of a value, as the file spells it."""
        first, dot, rest = key.partition(".")
        return f"{self._seen.get(first, first)}{dot}{rest}"

    def _take(self, entry: Mapping[str, Any]) -> None:
        for key in sorted(entry, key=_OTHER_KEYS.__contains__):
            value, (own, units) = entry[key], _OTHER_KEYS.get(key, (key, 1))
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


def find_sections(document: Mapping[str, Any]) -> Iterator[tuple[JsonPath, Mapping[str, Any]]]:
    """Yield the sections of servers of a file with their paths: its own, and those of projects in `~/.claude.json`."""
    projects = document.get("projects")
    own = next((path for path in _SECTIONS if _value_at(document, path) is not None), ())
    paths = [own, *(("projects", name, "mcpServers") for name in projects)] if isinstance(projects, Mapping) else [own]
    for path in paths:
        if path and isinstance(section := _value_at(document, path), Mapping):
            yield path, section


def unknown_keys_text(keys: Iterable[str], known: Iterable[str]) -> str:
    """Return a clause that names unknown keys, and the known key that is nearest to the first; empty without any."""
    known = {*known, *_OTHER_KEYS, *(str(path[0]) for path in _SECTIONS)}
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
    objects of texts.
    """
    match value:
        case str():
            return _VARIABLE.sub(r"${env:\1}", value)
        case Mapping() if key in _OF_TEXTS:
            return {name: _text(key, item) for name, item in value.items()}
        case list() if key in _OF_TEXTS:
            return [_text(key, item) for item in value]
        case int() | float() if units > 1 and not isinstance(value, bool):
            return value / units
        case _:
            return value


def _text(key: str, value: Any) -> Any:
    return json.dumps(value) if isinstance(value, bool | int | float) else _own_value(key, value, 1)
