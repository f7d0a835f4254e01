"""Servers that can be added by name: the bundled ones, and those of a registry with the official registry's API.

Both have the registry's format, `server.json`. The bundled file has `_meta.countersign.auth` for servers that are
signed in to. Entries of a registry are written by others: their texts are cut and cleaned, and an entry that cannot be
used is left out.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from bot.domain.catalog import CatalogInput, CatalogResult, CatalogServer
from bot.domain.secrets import VARIABLE_NAME
from bot.domain.servers import AuthenticationKind, HttpKind
from bot.errors import ServerTrouble
from bot.i18n import gettext_lazy
from bot.mcp.oauth.http import AuthServerClient, open_client

SearchRegistry = Callable[[str], Awaitable[Sequence[CatalogServer]]]
_FILE = Path(__file__).with_name("catalog.json")
_KINDS = {
    "streamable-http": HttpKind.STREAMABLE,
    "streamable": HttpKind.STREAMABLE,
    "http": HttpKind.STREAMABLE,
    "sse": HttpKind.SSE,
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_PLACEHOLDER = re.compile(r"\{([^{}]{1,100})\}")
_LONGEST_TEXT, _LONGEST_WORD = 300, 500
_MOST_ITEMS = 40
FRESH_SECONDS, STALE_SECONDS = 600.0, 86_400.0
_PAGE = 20
_MOST_PAGES = 3
_MOST_CACHED = 100
_LONGEST_QUERY = 200
_FIX = gettext_lazy("check MCP_REGISTRY_URL, or try again later")


class Catalog:
    """Lookup and search by name. `search_registry` asks the operator's registry; None without one."""

    def __init__(self, search_registry: SearchRegistry | None = None) -> None:
        self._search_registry = search_registry

    async def find(self, name: str) -> CatalogServer | None:
        """Return the server of this name; one with a slash may be of the registry. Raises ServerTrouble."""
        bundled = next((server for server in bundled_servers() if server.name == name.lower()), None)
        if bundled is not None or self._search_registry is None or "/" not in name:
            return bundled
        return next((server for server in await self._search_registry(name) if server.name == name), None)

    async def search(self, words: str) -> CatalogResult:
        """Return the servers with all these words, the bundled ones first. Without words, only those are returned."""
        wanted = words.lower().split()
        bundled = [
            server
            for server in bundled_servers()
            if all(word in f"{server.name} {server.title} {server.description}".lower() for word in wanted)
        ]
        try:
            others = await self._search_registry(words) if wanted and self._search_registry is not None else ()
        except ServerTrouble as error:
            return CatalogResult(tuple(bundled), str(error))
        return CatalogResult((*bundled, *others))


@cache
def bundled_servers() -> tuple[CatalogServer, ...]:
    """Return the bundled servers, by name."""
    document = json.loads(_FILE.read_text(encoding="utf-8"))
    servers = (parse_server(entry, bundled=True) for entry in document["servers"])
    return tuple(sorted((server for server in servers if server is not None), key=lambda server: server.name))


def parse_server(document: Any, *, bundled: bool = False) -> CatalogServer | None:
    """Return the server of an entry of a registry; None if it cannot be used here."""
    if not isinstance(document, dict):
        return None
    inner = document.get("server")
    entry = inner if isinstance(inner, dict) else document
    name = entry.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or _is_gone(document, entry):
        return None
    try:
        return _ServerParser(name, entry, bundled=bundled).parse()
    except _Unusable:
        return None


def _is_gone(document: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    """Return True for deleted entries and old versions."""
    for holder in (document, entry):
        meta = holder.get("_meta")
        for value in meta.values() if isinstance(meta, dict) else ():
            if isinstance(value, dict) and (value.get("status") == "deleted" or value.get("isLatest") is False):
                return True
    return entry.get("status") == "deleted"


class _Unusable(Exception):
    """The entry has nothing that can be connected or started here."""


class _ServerParser:
    def __init__(self, name: str, entry: Mapping[str, Any], *, bundled: bool) -> None:
        self._name = name
        self._entry = entry
        self._bundled = bundled
        self._inputs: dict[str, CatalogInput] = {}

    def parse(self) -> CatalogServer:
        """Return the server. A remote one is preferred, because it runs nothing here. Raises _Unusable."""
        remotes = sorted(
            _objects(self._entry, "remotes"), key=lambda remote: _remote_kind(remote) is not HttpKind.STREAMABLE
        )
        remote = next((remote for remote in remotes if _remote_kind(remote) is not None), None)
        url, headers, groups, variables = "", (), (), ()  # type: tuple[str, Any, Any, Any]
        kind = HttpKind.STREAMABLE
        if remote is not None:
            url, kind = self._template(remote, "url"), _remote_kind(remote) or kind
            headers = self._named(_objects(remote, "headers"), _HEADER_NAME)
        else:
            package = next(filter(_can_run, _objects(self._entry, "packages")), None)
            if package is None:
                raise _Unusable
            variables = self._named(_objects(package, "environmentVariables"), VARIABLE_NAME)
            groups = tuple(self._command_line(package, [variable for variable, _text in variables]))
        own = self._entry.get("_meta", {}).get("countersign", {}) if self._bundled else {}
        return CatalogServer(
            self._name,
            _text(self._entry, "title"),
            _text(self._entry, "description"),
            url,
            kind,
            AuthenticationKind(own.get("auth", AuthenticationKind.NONE)),
            headers,
            groups,
            variables,
            tuple(self._inputs.values()),
            self._bundled,
        )

    def _command_line(self, package: Mapping[str, Any], variables: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Yield the words that fetch a package and run it, in groups. The entry does not choose the program."""
        identifier, version = _word(package, "identifier"), _word(package, "version")
        runtime = _objects(package, "runtimeArguments")
        match _package_type(package):
            case "npm":
                yield ("npx",)
                yield from self._arguments(runtime) if runtime else (("-y",),)
                yield (f"{identifier}@{version}" if version else identifier,)
            case "pypi":
                yield ("uvx",)
                yield from self._arguments(runtime)
                yield (f"{identifier}@{version}" if version else identifier,)
            case _:
                yield ("docker", "run", "-i", "--rm")
                yield from (("-e", variable) for variable in variables)
                yield from self._arguments(runtime)
                tagged = not version or ":" in identifier.rpartition("/")[2] or "@" in identifier
                yield (identifier if tagged else f"{identifier}:{version}",)
        yield from self._arguments(_objects(package, "packageArguments"))

    def _arguments(self, arguments: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
        for argument in arguments:
            option = _word(argument, "name") if argument.get("type") == "named" else ""
            has_value = bool(argument.get("value") or argument.get("default") or argument.get("valueHint"))
            if option and not has_value:
                if _flag(argument, "isRequired"):
                    yield (option,)
                continue
            hint = _word(argument, "valueHint") or option or "value"
            value = self._template(argument, "value") if argument.get("value") else self._input(hint, argument)
            yield (option, value) if option else (value,)

    def _named(self, items: Sequence[Mapping[str, Any]], pattern: re.Pattern[str]) -> tuple[tuple[str, str], ...]:
        """Return headers or variables; one without a fixed value is an input of its own name."""
        named = []
        for item in items:
            name = _word(item, "name")
            if not pattern.fullmatch(name):
                raise _Unusable
            named.append((name, self._template(item, "value") if item.get("value") else self._input(name, item)))
        return tuple(named)

    def _template(self, holder: Mapping[str, Any], key: str) -> str:
        """Return a text whose placeholders are inputs."""
        text = _word(holder, key)
        if not text:
            raise _Unusable
        described = holder.get("variables")
        variables = described if isinstance(described, dict) else {}

        def placeholder(match: re.Match[str]) -> str:
            variable = variables.get(match[1])
            return self._input(match[1], {"isRequired": True, **(variable if isinstance(variable, dict) else {})})

        return _PLACEHOLDER.sub(placeholder, text)

    def _input(self, name: str, described: Mapping[str, Any]) -> str:
        """Add an input, and return its placeholder."""
        key = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:40]
        if not key or len(self._inputs) >= _MOST_ITEMS:
            raise _Unusable
        choices = described.get("choices")
        default = described.get("default")
        self._inputs.setdefault(
            key,
            CatalogInput(
                key,
                _text(described, "description"),
                _flag(described, "isRequired"),
                _flag(described, "isSecret"),
                _clean(str(default), _LONGEST_WORD) if isinstance(default, str | int | float) else "",
                tuple(_clean(str(choice), 100) for choice in choices[:_MOST_ITEMS])
                if isinstance(choices, list)
                else (),
            ),
        )
        return f"{{{key}}}"


def _remote_kind(remote: Mapping[str, Any]) -> HttpKind | None:
    return _KINDS.get(str(remote.get("type") or remote.get("transport_type")))


def _package_type(package: Mapping[str, Any]) -> str:
    return str(_get(package, "registryType")).lower()


def _can_run(package: Mapping[str, Any]) -> bool:
    transport = package.get("transport")
    speaks = transport.get("type", "stdio") if isinstance(transport, dict) else "stdio"
    return (
        _package_type(package) in ("npm", "pypi", "oci", "docker")
        and speaks == "stdio"
        and bool(_word(package, "identifier"))
    )


def _get(holder: Mapping[str, Any], key: str) -> Any:
    return holder.get(key, holder.get(re.sub(r"(?=[A-Z])", "_", key).lower()))


def _objects(holder: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = _get(holder, key)
    return [item for item in value[:_MOST_ITEMS] if isinstance(item, dict)] if isinstance(value, list) else []


def _flag(holder: Mapping[str, Any], key: str) -> bool:
    return _get(holder, key) is True


def _text(holder: Mapping[str, Any], key: str) -> str:
    value = _get(holder, key)
    return _clean(value, _LONGEST_TEXT) if isinstance(value, str) else ""


def _word(holder: Mapping[str, Any], key: str) -> str:
    """Return a word that is used, unchanged. Raises _Unusable if it is too long or not printable."""
    value = _get(holder, key)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > _LONGEST_WORD or not value.isprintable():
        raise _Unusable
    return value


def _clean(text: str, longest: int) -> str:
    visible = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(visible.split())[:longest]


class PublicRegistry:
    """Search by name in a registry: `GET /v0/servers?search=…`. `open_network` returns the network that reaches it.

    The address is the operator's and https. Responses are limited in size, time and number; the host is checked as
    those of admins' servers are, and redirects are not followed. Results are cached, and old ones used while the
    registry is away.
    """

    def __init__(
        self,
        address: str,
        open_network: Callable[[], httpx2.AsyncBaseTransport],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert urlsplit(address).scheme == "https", "a registry is reached by https alone"
        self._address = f"{address.rstrip('/')}/v0/servers"
        self._host = urlsplit(address).hostname or ""
        self._open_network = open_network
        self._clock = clock
        self._cache: OrderedDict[str, tuple[tuple[CatalogServer, ...], float]] = OrderedDict()

    async def search(self, words: str) -> Sequence[CatalogServer]:
        """Return the newest versions of servers whose names contain the words. Raises ServerTrouble."""
        query = " ".join(words.split())[:_LONGEST_QUERY]
        cached, at = self._cache.get(query, ((), -math.inf))
        age = self._clock() - at
        if age < FRESH_SECONDS:
            return cached
        try:
            servers = await self._fetch(query)
        except ServerTrouble:
            if age < STALE_SECONDS:
                return cached
            raise
        self._cache[query] = (servers, self._clock())
        self._cache.move_to_end(query)
        while len(self._cache) > _MOST_CACHED:
            self._cache.popitem(last=False)
        return servers

    async def _fetch(self, query: str) -> tuple[CatalogServer, ...]:
        servers: dict[str, CatalogServer] = {}
        cursor = ""
        async with open_client(self._open_network(), gettext_lazy("Asking the registry")) as client:
            for _ in range(_MOST_PAGES):
                document = await self._page(client, query, cursor)
                listed = document.get("servers")
                parsed = map(parse_server, listed[: 2 * _PAGE] if isinstance(listed, list) else ())
                servers |= {server.name: server for server in parsed if server is not None}
                cursor = _next_cursor(document)
                if not cursor:
                    break
        return tuple(servers.values())

    async def _page(self, client: AuthServerClient, query: str, cursor: str) -> dict[str, Any]:
        parameters = {
            "search": query,
            "version": "latest",
            "limit": str(_PAGE),
            **({"cursor": cursor} if cursor else {}),
        }
        response = await client.send(httpx2.Request("GET", httpx2.URL(self._address, params=parameters)))
        if response.status_code != 200:
            raise ServerTrouble(
                gettext_lazy(
                    "The registry {registry} answers with status {status}.",
                    registry=self._host,
                    status=response.status_code,
                ),
                _FIX,
            )
        try:
            document = json.loads(response.content)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise ServerTrouble(
                gettext_lazy("The answer of the registry {registry} is no list of servers.", registry=self._host), _FIX
            )
        return document


def _next_cursor(document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    cursor = metadata.get("nextCursor", metadata.get("next_cursor")) if isinstance(metadata, dict) else None
    return cursor if isinstance(cursor, str) and len(cursor) <= 1000 else ""
