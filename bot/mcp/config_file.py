"""The operator's file of MCP servers, `config/mcp_servers.json`.

Called by the composition root, once. What is wrong with one server is that server's problem and never the others';
only a file that cannot be read as such is an error. Nothing here starts or reaches a server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bot.domain.servers import DesiredServer, ServerConfig, ServerEnablement, StdioTransport
from bot.errors import SettingsError
from bot.mcp.config_entry import KNOWN_KEYS, ConfigEntry, server_config
from bot.mcp.errors import InvalidDefinition
from bot.mcp.json_lines import Path as JsonPath
from bot.mcp.json_lines import lines_of

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SECTIONS = ("mcpServers", "servers")


@dataclass(frozen=True, slots=True)
class ServersFile:
    """What the file says. An entry that cannot be used has its `problem` and neither command nor address, unless it is
    disabled: then it is just that. The `secrets` of an entry are the values in it that came from the environment.
    """

    entries: tuple[DesiredServer, ...] = ()
    warnings: tuple[str, ...] = ()


def load_servers(path: Path, environment: Mapping[str, str]) -> ServersFile:
    """Read the file and fill in `${NAME}` and `${NAME:-default}` from `environment`.

    A missing file means no servers. Raises SettingsError if the file cannot be read, is not JSON or has no object of
    servers in it.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return ServersFile()
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8 text.", "Save it as UTF-8.") from error
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be read: {error.strerror}.", "Check the path and its permissions."
        ) from error
    warnings: list[str] = []
    key, section = _section(path, _parsed(path, text, warnings), warnings)
    lines = lines_of(text)
    entries: list[DesiredServer] = []
    for name, value in section.items():
        try:
            entry = _entry(name, value, environment)
            warnings += (f"{path}: server {name!r} has an unknown key {key!r}, it is ignored." for key in entry.unknown)
            entries.append(_disabled(entry) if entry.flag("disabled") else _enabled(entry))
        except InvalidDefinition as unusable:
            where = _line(lines, (key, name, *unusable.key.split(".", 1)))
            problem = f"{unusable.cause} Fix: {unusable.fix} (in {path}{where})."
            entries.append(DesiredServer(_nothing(name), problem=problem))
    return ServersFile(tuple(entries), tuple(warnings))


def _line(lines: Mapping[JsonPath, int], at: JsonPath) -> str:
    """The line of a key, or of what it stands in where the key itself is missing."""
    found = (lines.get(at[:length]) for length in range(len(at), 0, -1))
    return next((f", line {each}" for each in found if each is not None), "")


def _enabled(entry: ConfigEntry) -> DesiredServer:
    config = server_config(entry)  # Only then are the secrets in it known.
    return DesiredServer(config, secrets=frozenset(entry.secrets))


def _disabled(entry: ConfigEntry) -> DesiredServer:
    """A server that nobody uses may be unfinished, such as one whose variables are not set: that is no problem yet."""
    try:
        return replace(_enabled(entry), standing=ServerEnablement.DISABLED)
    except InvalidDefinition:
        return DesiredServer(_nothing(entry.name), ServerEnablement.DISABLED, secrets=frozenset(entry.secrets))


def _nothing(name: str) -> ServerConfig:
    return ServerConfig(name, StdioTransport(""))


def _parsed(path: Path, text: str, warnings: list[str]) -> Any:
    def without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        warnings.extend(f"{path}: the key {key!r} appears twice, the last one counts." for key in _repeated(pairs))
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=without_repetition)
    except json.JSONDecodeError as error:
        raise SettingsError(
            f"{path} is not valid JSON: {error.msg} in line {error.lineno}, column {error.colno}.",
            "Correct that line; a comma too many or too few is the usual reason.",
        ) from error
    except RecursionError as error:
        raise SettingsError(f"{path} is nested too deeply to be read.", "Correct the file.") from error


def _repeated(pairs: list[tuple[str, Any]]) -> Iterator[str]:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            yield key
        seen.add(key)


def _section(path: Path, document: Any, warnings: list[str]) -> tuple[str, Mapping[str, Any]]:
    """The servers, and the key that they stand under."""
    example = 'Write {"mcpServers": {"name": {"command": "..."}}}.'
    if not isinstance(document, dict):
        raise SettingsError(f"{path} does not hold a JSON object.", example)
    section_key = next((key for key in _SECTIONS if key in document), None)
    warnings += (f"{path}: unknown key {key!r}, it is ignored." for key in document if key != section_key)
    if section_key is None:
        if document:
            raise SettingsError(f'{path} has no "mcpServers".', example)
        return "", {}
    section = document[section_key]
    if not isinstance(section, dict):
        raise SettingsError(f"{path}: {section_key!r} is not an object of servers.", example)
    return section_key, section


def _entry(name: str, value: Any, environment: Mapping[str, str]) -> ConfigEntry:
    if not _NAME.fullmatch(name):
        raise InvalidDefinition(
            f"The server name {name[:80]!r} is not usable.", "use 1 to 64 letters, digits, underscores and hyphens"
        )
    if not isinstance(value, dict):
        raise InvalidDefinition(
            f"Server {name!r} is not an object.", 'write {"command": "..."} or {"url": "https://..."}'
        )
    return ConfigEntry(name, value, environment, unknown=tuple(key for key in value if key not in KNOWN_KEYS))
