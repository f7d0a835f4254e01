"""Parser of the operator's file of MCP servers, `config/mcp_servers.json`.

An error in one server's entry affects this server only. An unreadable file raises SettingsError. No server is started
or contacted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from bot.domain.server_files import NOT_TAKEN, JsonPath, ServerEntry, find_sections, plain_json, unknown_keys_text
from bot.domain.server_settings import (
    SETTINGS,
    Setting,
    WrongValue,
    load_object,
    load_switch,
    load_text,
    with_settings,
)
from bot.domain.servers import (
    OAUTH_KINDS,
    AuthenticationKind,
    DesiredServer,
    HttpKind,
    HttpTransport,
    OAuthTerms,
    Protocol,
    ServerConfig,
    ServerEnablement,
    StdioTransport,
    Transport,
    is_address,
    kind_of,
)
from bot.errors import SettingsError
from bot.i18n import gettext_lazy
from bot.mcp.errors import InvalidDefinition, cause_and_fix, header_fits

T = TypeVar("T")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:\n]')
KNOWN_KEYS = frozenset(
    (
        "transport", "command", "args", "env", "cwd", "url", "headers", "disabled", "title", "description", "auth",
        "roots", *(setting.key for setting in SETTINGS),
    )
)  # fmt: skip
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_FOREIGN_VARIABLE = re.compile(r"\$\{(?:input|config|command):[^}]+\}")
"""Variable that VS Code fills in."""
_NOT_SECRET = frozenset(("HOME", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "USER", "LANG", "TZ"))
_SOUNDS_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|PWD|AUTH|CRED", re.IGNORECASE)
_PLAIN_WORD = re.compile(r"[a-z]{1,11}")
"""Words such as `always` are settings, not secrets: redacting them would garble results."""
_TERMS = ("client_id", "client_secret", "scope", "issuer")
_TRANSPORTS = gettext_lazy("use stdio, streamable_http, sse, auto or jsonrpc_http")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_USUAL = ServerConfig("", StdioTransport(""))


def lines_of(text: str) -> Mapping[JsonPath, int]:
    """Return the line of every key and list entry of a valid JSON document. Of a repeated key the last line is
    returned.
    """
    line_numbers: dict[JsonPath, int] = {}
    line = 1
    path: list[str | int] = []
    string = ""
    for token in _TOKEN.findall(text):
        match token:
            case "\n":
                line += 1
            case "{":
                path.append("")
            case "[":
                path.append(0)
                line_numbers[tuple(path)] = line
            case "}" | "]":
                path.pop()
            case ":":
                path[-1] = string
                line_numbers[tuple(path)] = line
            case "," if isinstance(path[-1], int):
                path[-1] += 1
                line_numbers[tuple(path)] = line
            case ",":
                pass
            case _:
                string = json.loads(token, strict=False)
    return line_numbers


class ConfigEntry:
    """One server's keys, read with type checks and variables substituted. Without an environment, variables stay."""

    def __init__(self, name: str, values: Mapping[str, Any], environment: Mapping[str, str] | None) -> None:
        self.name = name
        self.secrets: set[str] = set()
        self._values = ServerEntry(values)
        self._environment = environment

    @property
    def unknown(self) -> tuple[str, ...]:
        """Keys without a meaning here."""
        return tuple(key for key in self._values if key not in KNOWN_KEYS)

    def seen(self, key: str) -> str:
        """Return a key as the file spells it."""
        return self._values.seen(key)

    def has(self, key: str) -> bool:
        """Return True if the key is present and not null."""
        return self._values.get(key) is not None

    def text(self, key: str) -> str:
        """Return a text without variables; empty if it is missing."""
        return self._text(key, self._values.get(key))

    def substituted_text(self, key: str) -> str:
        """Return a text with its variables substituted; empty if it is missing."""
        return self._fill(key, self.text(key))

    def substituted_list(self, key: str) -> tuple[str, ...]:
        """Return a list of texts with their variables substituted."""
        value = self._values.get(key) or []
        if not isinstance(value, list):
            raise self._wrong(key, gettext_lazy("a list of texts"))
        return tuple(self._fill(key, self._text(f"{key}[{n}]", item)) for n, item in enumerate(value))

    def substituted_map(self, key: str) -> dict[str, str]:
        """Return an object of texts with their variables substituted."""
        load_texts = partial(load_object, wanted=gettext_lazy("an object of texts"))
        texts = self._load(key, load_texts, self._values.get(key))
        return {name: self._fill(f"{key}.{name}", self._text(f"{key}.{name}", item)) for name, item in texts.items()}

    def flag(self, key: str) -> bool:
        """Return a boolean, False if it is missing."""
        return self._load(key, load_switch, self._values.get(key) or False)

    def setting(self, setting: Setting) -> Any:
        """Return the value of a setting, the usual one if it is missing."""
        value = self._values.get(setting.key)
        return setting.of(_USUAL) if value is None else self._load(setting.key, setting.kind.load, value)

    def _text(self, key: str, value: Any) -> str:
        return "" if value is None else self._load(key, load_text, value)

    def _load(self, key: str, load: Callable[[Any], T], value: Any) -> T:
        try:
            return load(value)
        except WrongValue as wrong:
            raise self._wrong(f"{key}{wrong.place}", wrong.wanted) from None

    def _fill(self, key: str, text: str) -> str:
        def value_of(match: re.Match[str]) -> str:
            name, default = match[1], match[2]
            if self._environment is None:
                return match[0]
            value = self._environment.get(name)
            if default is not None and not value:
                return str(default)
            if value is None:
                raise _InvalidServer(
                    self,
                    "Server {server} needs the environment variable {name} for {key}, which is not set.",
                    "set {name} or write ${{{name}:-default}}",
                    name=name,
                    key=f"{self.seen(key)!r}",
                )
            if _SOUNDS_SECRET.search(name) or not (name in _NOT_SECRET or _PLAIN_WORD.fullmatch(value)):
                self.secrets.add(value)
            return value

        if self._environment is not None and (foreign := _FOREIGN_VARIABLE.search(text)):
            wanted = gettext_lazy("a value with ${{NAME}}, a variable set in .env, for {variable}", variable=foreign[0])
            raise self._wrong(key, wanted)
        return _VARIABLE.sub(value_of, text)

    def _wrong(self, key: str, wanted: str) -> InvalidDefinition:
        key = self.seen(key)
        return _InvalidServer(
            self,
            "Server {server}: {key} has the wrong type or value.",
            "make it {wanted}",
            key,
            key=f"{key!r}",
            wanted=wanted,
        )


class _InvalidServer(InvalidDefinition):
    """Entry that cannot be used. `{server}` in its texts is the quoted name."""

    def __init__(self, entry: ConfigEntry, cause: str, fix: str, key: str = "", /, **values: object) -> None:
        super().__init__(cause, fix, key, server=f"{entry.name!r}", **values)


def server_config(entry: ConfigEntry) -> ServerConfig:
    """Return the server that an entry defines. Raises InvalidDefinition."""
    transport = _transport(entry)
    config = ServerConfig(
        name=entry.name,
        transport=transport,
        roots=_roots(entry, transport),
        title=entry.text("title"),
        description=entry.text("description"),
        sign_in=_sign_in(entry),
    )
    config = with_settings(config, {setting.key: entry.setting(setting) for setting in SETTINGS})
    if config.protocol is not Protocol.AUTO and kind_of(transport) == HttpKind.JSONRPC:
        raise _InvalidServer(
            entry,
            "Server {server}: 'protocol' is a version of MCP, which a server of jsonrpc_http does not speak.",
            "take 'protocol' out",
            "protocol",
        )
    return config


def _roots(entry: ConfigEntry, transport: Transport) -> tuple[str, ...]:
    folders = entry.substituted_list("roots")
    if folders and not isinstance(transport, StdioTransport):
        raise _InvalidServer(
            entry,
            "Server {server}: 'roots' are folders of this machine, for a server that runs here.",
            "take 'roots' out",
            "roots",
        )
    if relative := next((folder for folder in folders if not Path(folder).is_absolute()), ""):
        raise _InvalidServer(
            entry,
            "Server {server}: {folder} in 'roots' is not an absolute path.",
            "write the whole path of the folder",
            "roots",
            folder=f"{relative!r:.200}",
        )
    return folders


def _sign_in(entry: ConfigEntry) -> OAuthTerms | None:
    """Return the OAuth settings of an entry, or None. Other ways to sign in are headers."""
    if not entry.has("auth"):
        return None
    terms = entry.substituted_map("auth")
    kind = terms.pop("type", "").replace("-", "_")
    if kind not in OAUTH_KINDS:
        raise _InvalidServer(
            entry,
            "Server {server}: 'auth.type' is neither oauth nor client_credentials.",
            "write one of them; a key or a password goes into 'headers'",
        )
    if strange := sorted(terms.keys() - _TERMS):
        raise _InvalidServer(
            entry,
            "Server {server}: 'auth' has no {key}.",
            "use type, {terms}",
            key=f"{strange[0]!r}",
            terms=", ".join(_TERMS),
        )
    if not entry.has("url"):
        raise _InvalidServer(entry, "Server {server} is a program, which has no sign-in.", "take 'auth' out")
    if any(name.lower() == "authorization" for name in entry.substituted_map("headers")):
        raise _InvalidServer(
            entry, "Server {server} has both 'auth' and a header Authorization.", "take one of them out"
        )
    if kind == AuthenticationKind.CLIENT_CREDENTIALS and not (terms.get("client_id") and terms.get("client_secret")):
        raise _InvalidServer(
            entry,
            "Server {server}: 'auth' of client_credentials lacks a client_id or a client_secret.",
            gettext_lazy("give both, the secret as ${NAME}"),
        )
    if terms.get("client_secret") and not terms.get("client_id"):
        raise _InvalidServer(
            entry, "Server {server}: 'auth' has a client_secret and no client_id.", "give both or neither"
        )
    if terms.get("client_secret"):
        entry.secrets.add(terms["client_secret"])
    return OAuthTerms(AuthenticationKind(kind), **terms)


def _transport(entry: ConfigEntry) -> Transport:
    match entry.text("transport"):
        case "stdio":
            return _stdio(entry)
        case "" if entry.has("command") and not entry.has("url"):
            return _stdio(entry)
        case "" if entry.has("url") and not entry.has("command"):
            return _http(entry, HttpKind.STREAMABLE)
        case "":
            problem = gettext_lazy(
                "Server {server} has neither or both of {command} and {url}, and no 'transport'.",
                server=f"{entry.name!r}",
                command=f"{entry.seen('command')!r}",
                url=f"{entry.seen('url')!r}",
            )
            unknown = unknown_keys_text(entry.unknown, KNOWN_KEYS)
            raise InvalidDefinition(
                gettext_lazy("{problem} Its keys are {unknown}", problem=problem, unknown=unknown)
                if unknown
                else problem,
                "give it a command (stdio) or a url (streamable_http)",
                next(iter(entry.unknown), ""),
            )
        case word if word in list(HttpKind):
            return _http(entry, HttpKind(word))
        case other:
            raise _InvalidServer(
                entry, "Server {server}: there is no transport {transport}.", _TRANSPORTS, transport=f"{other[:40]!r}"
            )


def _stdio(entry: ConfigEntry) -> Transport:
    command = entry.substituted_text("command")
    if not command:
        raise _InvalidServer(entry, "Server {server} has no 'command'.", "name the program that is the server")
    return StdioTransport(
        command, entry.substituted_list("args"), entry.substituted_map("env"), entry.substituted_text("cwd") or None
    )


def _http(entry: ConfigEntry, kind: HttpKind) -> Transport:
    url = entry.substituted_text("url")
    if not is_address(url):
        raise _InvalidServer(
            entry,
            "Server {server}: {key} is not an http or https address.",
            "write https://host/path",
            key=f"{entry.seen('url')!r}",
        )
    headers = entry.substituted_map("headers")
    for name, value in headers.items():
        if not header_fits(name, value):
            raise _InvalidServer(
                entry,
                "Server {server}: {key} is not a valid header.",
                "use plain ASCII text",
                key=f"{entry.seen(f'headers.{name}')!r}",
            )
    return HttpTransport(url, headers, kind)


@dataclass(frozen=True, slots=True)
class ServersFile:
    """Contents of the file. An invalid entry has a `problem` and no command or address. A disabled one has no problem.
    `secrets` of an entry are its values from the environment.
    """

    entries: tuple[DesiredServer, ...] = ()
    warnings: tuple[str, ...] = ()


def load_servers(path: Path, environment: Mapping[str, str]) -> ServersFile:
    """Read the file and substitute `${NAME}` and `${NAME:-default}` from `environment`.

    A missing file means no servers. Raises SettingsError if the file cannot be read, is not JSON or has no object of
    servers.
    """
    try:
        text = plain_json(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return ServersFile()
    except UnicodeDecodeError as error:
        raise SettingsError(
            gettext_lazy("{path} is not UTF-8 text.", path=path), gettext_lazy("Save it as UTF-8.")
        ) from error
    except OSError as error:
        raise SettingsError(
            gettext_lazy("{path} cannot be read: {reason}.", path=path, reason=error.strerror),
            gettext_lazy("Check the path and its permissions."),
        ) from error
    warnings: list[str] = []
    document = _parse_json(path, text, warnings)
    lines = lines_of(text)
    entries: list[DesiredServer] = []
    for at, value in _sections(path, document, lines, warnings):
        name = str(at[-1])
        try:
            entry = _entry(name, value, environment)
            for key in entry.unknown:
                texts = {"path": _place(path, lines, (*at, key)), "name": f"{name!r}", "key": key}
                texts |= {"effect": NOT_TAKEN.get(key, ""), "unknown": unknown_keys_text([key], KNOWN_KEYS)}
                warnings.append(
                    gettext_lazy("{path}: '{key}' of server {name}: {effect}.", **texts)
                    if key in NOT_TAKEN
                    else gettext_lazy("{path}: a key of server {name} is ignored, because it is {unknown}", **texts)
                )
            entries.append(_server(entry))
        except InvalidDefinition as unusable:
            line = _line(lines, (*at, *unusable.key.split(".", 1)))
            fix = (
                gettext_lazy("{fix} (in {file})", fix=unusable.fix, file=path)
                if line is None
                else gettext_lazy("{fix} (in {file}, line {line})", fix=unusable.fix, file=path, line=line)
            )
            problem = cause_and_fix(unusable.cause, fix)
            entries.append(DesiredServer(_nothing(name), problem=problem))
    return ServersFile(tuple(entries), tuple(warnings))


def _line(lines: Mapping[JsonPath, int], at: JsonPath) -> int | None:
    line_numbers = (lines.get(at[:length]) for length in range(len(at), 0, -1))
    return next((number for number in line_numbers if number is not None), None)


def _server(entry: ConfigEntry) -> DesiredServer:
    """Return a server. A disabled one may be incomplete, for example with a variable that is not set."""
    is_disabled = entry.flag("disabled")
    try:
        config = server_config(entry)  # Collects the secrets of the entry.
    except InvalidDefinition:
        if not is_disabled:
            raise
        config = _nothing(entry.name)
    enablement = ServerEnablement.DISABLED if is_disabled else ServerEnablement.ON
    return DesiredServer(config, enablement, secrets=frozenset(entry.secrets))


def _nothing(name: str) -> ServerConfig:
    return ServerConfig(name, StdioTransport(""))


def _parse_json(path: Path, text: str, warnings: list[str]) -> Any:
    def without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        warnings.extend(
            gettext_lazy("{path}: the key {key} appears twice, the last one counts.", path=path, key=f"{key!r}")
            for key in _repeated_keys(pairs)
        )
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=without_repetition)
    except json.JSONDecodeError as error:
        raise SettingsError(
            gettext_lazy(
                "{path} is not valid JSON: {reason} in line {line}, column {column}.",
                path=path,
                reason=error.msg,
                line=error.lineno,
                column=error.colno,
            ),
            gettext_lazy("Correct that line; a comma too many or too few is the usual reason."),
        ) from error
    except RecursionError as error:
        raise SettingsError(
            gettext_lazy("{path} is nested too deeply to be read.", path=path), gettext_lazy("Correct the file.")
        ) from error
    except ValueError as error:  # Python reads no number of thousands of digits
        raise SettingsError(
            gettext_lazy("{path} has a number that is too long to be read.", path=path),
            gettext_lazy("Correct the file."),
        ) from error


def _repeated_keys(pairs: list[tuple[str, Any]]) -> Iterator[str]:
    names: set[str] = set()
    for key, _ in pairs:
        if key in names:
            yield key
        names.add(key)


def _place(path: Path, lines: Mapping[JsonPath, int], at: JsonPath) -> str:
    line = _line(lines, at)
    return str(path) if line is None else gettext_lazy("{path}, line {line}", path=path, line=line)


def _sections(
    path: Path, document: Any, lines: Mapping[JsonPath, int], warnings: list[str]
) -> Iterator[tuple[JsonPath, Any]]:
    """Yield the servers with their paths. The first one of a name counts."""
    example = gettext_lazy('Write {"mcpServers": {"name": {"command": "..."}}}.')
    if not isinstance(document, dict):
        raise SettingsError(gettext_lazy("{path} does not hold a JSON object.", path=path), example)
    sections = dict(find_sections(document))
    warnings += (
        gettext_lazy(
            "{path}: a key is ignored, because it is {unknown}",
            path=_place(path, lines, (key,)),
            unknown=unknown_keys_text([key], ()) or gettext_lazy("not needed"),
        )
        for key in document
        if key not in {name for at, section in sections.items() for name in at[:1] or section}
    )
    if not sections and document:
        missing = gettext_lazy('{path} has no object of servers under "mcpServers".', path=path)
        unknown = unknown_keys_text(document, ())
        raise SettingsError(
            gettext_lazy("{problem} Its keys are {unknown}", problem=missing, unknown=unknown) if unknown else missing,
            example,
        )
    names: set[str] = set()
    for at, section in sections.items():
        yield from (((*at, name), value) for name, value in section.items() if name not in names)
        names |= section.keys()


def _entry(name: str, value: Any, environment: Mapping[str, str]) -> ConfigEntry:
    if not _NAME.fullmatch(name):
        raise InvalidDefinition(
            gettext_lazy("The server name {name} is not usable.", name=f"{name[:80]!r}"),
            gettext_lazy("use 1 to 64 letters, digits, underscores and hyphens"),
        )
    if not isinstance(value, dict):
        raise InvalidDefinition(
            gettext_lazy("Server {name} is not an object.", name=f"{name!r}"),
            gettext_lazy('write {"command": "..."} or {"url": "https://..."}'),
        )
    return ConfigEntry(name, value, environment)
