"""Rules for the addresses and commands that admins may give a server, and the fingerprint of its endpoint.

A server added in chat must not reach loopback, the private network or the cloud's metadata service. Names are checked
when a server is defined. Their addresses are checked at each connection, because DNS answers change. Servers of the
operator's file are not limited. The program of a launch template is checked when a definition is loaded or entered, and
again before each start, because the template and the files may have changed. Other programs have to be in
`AllowedPrograms`.

Approvals are bound to the fingerprint, because an admin may change a server's address while a call waits. It is the
same in every process with the same definition and contains no secret.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import socket
import tempfile
import unicodedata
from collections.abc import Awaitable, Callable, Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from urllib.parse import urlsplit

from bot.domain.launch_templates import InvalidSlotValue, LaunchTemplate, Templates
from bot.domain.secrets import redact
from bot.domain.servers import HttpTransport, ServerConfig, StdioTransport, TemplateLaunch, is_address
from bot.domain.tools import digest
from bot.errors import SettingsError
from bot.i18n import gettext_lazy
from bot.machine import Proxy, find_proxy
from bot.mcp.errors import InvalidDefinition, without_stop

IpAddress = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]
_LONGEST = 2048
_METADATA_NAMES = frozenset(
    (
        "metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal",
        "metadata.tencentyun.com",
    )
)  # fmt: skip
_METADATA = frozenset(
    map(
        ip_address,
        (
            "169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.23", "100.100.100.200", "192.0.0.192",
            "168.63.129.16", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254",
        ),
    )
)  # fmt: skip
"""Addresses of the metadata services of AWS, Google, Azure, Alibaba, Oracle and Tencent."""
_NAT64 = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
_COMPATIBLE = IPv6Network("::/96")
_HOST = re.compile(r"\w+://[^/?#]*")
PROGRAMS_SETTING = "MCP_ALLOWED_COMMANDS_FILE"
_FILE_HEADING = (
    "# Programs that may run as MCP servers on this machine, one a line. `countersign servers add` adds to them.\n"
)
_LARGEST_FILE = 64 * 1024
_FILE_MODE = 0o644


def resolve_launch(config: ServerConfig, templates: Templates) -> ServerConfig:
    """Return the server with the program of its template, if it has one. Raises InvalidDefinition."""
    match config.transport:
        case StdioTransport(env=env, launch=TemplateLaunch() as launch):
            filled = _fill_template(_template(launch, templates), launch)
            return replace(config, transport=replace(filled, env={**filled.env, **env}))
        case _:
            return config


def check_launch(process: StdioTransport, launch: TemplateLaunch, templates: Templates) -> None:
    """Check that the template starts this process now, without reading the disk. Raises InvalidDefinition."""
    template = _template(launch, templates)
    filled = _fill_template(template, launch)
    if (filled.command, filled.args, filled.cwd) != (process.command, process.args, process.cwd) or any(
        process.env.get(name) != value for name, value in filled.env.items()
    ):
        raise InvalidDefinition(
            "What the launch template {template} starts is not what it was when this server was looked at.",
            "run /mcp reload, then review the server again",
            template=launch.template,
        )
    stray = sorted(process.env.keys() - filled.env.keys() - set(template.secrets.values()))
    if stray:
        raise InvalidDefinition(
            "The launch template {template} has no slot for the variable {variable}.",
            "remove that secret",
            template=launch.template,
            variable=stray[0],
        )


def check_paths(config: ServerConfig, templates: Templates) -> None:
    """Check that each path exists and is below its folder after following links. Reads the disk: run it in a
    thread. Raises InvalidDefinition.
    """
    if launch := config.launch:
        for slot, folder, path in _template(launch, templates).paths(launch.values):
            _check_path(slot, Path(folder), Path(path))


def check_start(config: ServerConfig, templates: Templates) -> None:
    """Run both checks before a process is started. Reads the disk: run it in a thread. Raises InvalidDefinition."""
    match config.transport:
        case StdioTransport(launch=TemplateLaunch() as launch) as process:
            check_launch(process, launch, templates)
            check_paths(config, templates)


def _check_path(slot: str, folder: Path, path: Path) -> None:
    try:
        real, root = path.resolve(strict=True), folder.resolve(strict=True)
    except (OSError, RuntimeError):
        raise InvalidDefinition(
            "There is no {path}, as {slot} says.", "name an existing path, or create it", path=path, slot=slot
        ) from None
    if not real.is_relative_to(root):
        raise InvalidDefinition(
            gettext_lazy("{path}, as {slot} says, leads out of {folder}.", path=path, slot=slot, folder=folder),
            gettext_lazy("name a path below {folder}", folder=folder),
        )


def _template(launch: TemplateLaunch, templates: Templates) -> LaunchTemplate:
    template = templates.get(launch.template)
    if template is None:
        raise InvalidDefinition(
            "It is started by the launch template {template}, which is missing or invalid.",
            "the operator puts it into the file of launch templates, or an admin removes this server",
            template=launch.template,
        )
    return template


def _fill_template(template: LaunchTemplate, launch: TemplateLaunch) -> StdioTransport:
    try:
        return template.fill_slots(launch.values)
    except InvalidSlotValue as misfilled:
        slot, error = next(iter(misfilled.errors.items()))
        reason = without_stop(error)
        cause = (
            gettext_lazy(
                "{slot} does not fit the launch template {template} as it is now: {reason}.",
                slot=slot,
                template=template.name,
                reason=reason,
            )
            if slot
            else gettext_lazy("{template}: {reason}.", template=template.name, reason=reason)
        )
        raise InvalidDefinition(cause, "edit the server, or correct the template") from None


@dataclass(frozen=True, slots=True)
class AllowedTargets:
    """Targets that admins may use beyond the public network.

    `hosts` are `host` or `host:port`. `commands` are programs, spelled as in a definition. `templates` returns the
    current launch templates. `names` are the only server names that may run, those of the operator's file included;
    empty allows all. `proxy` is the only way to them, if it is set.
    """

    hosts: frozenset[str] = frozenset()
    commands: Container[str] = frozenset()
    templates: Callable[[], Templates] = dict
    names: frozenset[str] = frozenset()
    proxy: str | None = field(default=None, repr=False)

    def proxy_for(self, url: str) -> Proxy | None:
        """Return the proxy for a server of an admin, unless NO_PROXY names its host."""
        return find_proxy(url, setting=("MCP_PROXY", self.proxy)) if self.proxy else None

    def allows_slug(self, slug: str) -> bool:
        """Return True if a server of this name may be added and run."""
        return not self.names or slug in self.names

    def allows_host(self, host: str, port: int) -> bool:
        """Return True if the operator allows this host, at least on this port."""
        bare = _normalize_host(host)
        spelled = f"[{bare}]" if ":" in bare else bare
        listed = {_plain_entry(entry) for entry in self.hosts}
        return not listed.isdisjoint((bare, spelled, f"{spelled}:{port}"))


def origin_of(url: str) -> tuple[str, int]:
    """Return the host and the port of a usable address."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def check_definition(config: ServerConfig, allowances: AllowedTargets) -> None:
    """Check a server's name and target without resolving host names. Raises InvalidDefinition."""
    if not allowances.allows_slug(config.name):
        raise InvalidDefinition(
            gettext_lazy("MCP_ALLOWED_SERVERS does not list the name {server}.", server=config.name),
            gettext_lazy("add the name to MCP_ALLOWED_SERVERS and restart, or remove or rename the server"),
        )
    check_target(config, allowances)


def check_target(config: ServerConfig, allowances: AllowedTargets) -> None:
    """Check the address or program of a server that an admin defines, without resolving names. Raises
    InvalidDefinition.
    """
    if config.from_file:
        return
    match config.transport:
        case StdioTransport(launch=TemplateLaunch() as launch) as process:
            check_launch(process, launch, allowances.templates())
        case StdioTransport(command=command):
            if command not in allowances.commands:
                raise InvalidDefinition(
                    "This server would run a program on the bot's machine that the operator has not allowed.",
                    "allow it with `countersign servers add` at a terminal of this machine, which asks; or name it "
                    "in MCP_ALLOWED_COMMANDS, or put the server into the servers file",
                )
        case HttpTransport(url=url):
            _check_url(url, allowances)


def _check_url(url: str, allowances: AllowedTargets) -> None:
    if len(url) > _LONGEST or not is_address(url):
        raise InvalidDefinition("The url is not an http or https address.", "write https://host/path")
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise InvalidDefinition(
            "The url holds a user name or password, which all users would see.",
            "leave it out of the url and store it as a secret of the server",
        )
    host, port = origin_of(url)
    literal = parse_ip(host)
    if literal is None:
        _check_name(host, port, allowances)
    else:
        check_ip(literal, host, port, allowances)
    if parts.scheme == "http" and not allowances.allows_host(host, port):
        raise InvalidDefinition("The url begins with http://, so secrets would be readable on the way.", "use https://")


def _check_name(host: str, port: int, allowances: AllowedTargets) -> None:
    name = _normalize_host(host)
    if name in _METADATA_NAMES:
        raise _metadata(host)
    if (name == "localhost" or name.endswith(".localhost")) and not allowances.allows_host(host, port):
        raise _not_public(host, port)


def check_ip(address: IpAddress, host: str, port: int, allowances: AllowedTargets) -> None:
    """Check one address of `host`. Raises InvalidDefinition if admins may not use it."""
    meanings = _meanings(address)
    if not _METADATA.isdisjoint(meanings):
        raise _metadata(host)
    for candidate in meanings:
        if _public(candidate) or allowances.allows_host(host, port) or allowances.allows_host(str(candidate), port):
            continue
        raise _not_public(host, port)


async def resolve_allowed(host: str, port: int, allowances: AllowedTargets, resolve: Resolve) -> list[str]:
    """Return the addresses of a host after checking each. Raises InvalidDefinition, and OSError."""
    _check_name(host, port, allowances)
    literal = parse_ip(host)
    addresses = [str(literal)] if literal is not None else await resolve(host, port)
    for candidate in addresses:
        check_ip(ip_address(candidate), host, port, allowances)
    return addresses


async def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host name, in the system's order. Raises OSError."""
    answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def parse_ip(host: str) -> IpAddress | None:
    """Parse a host as an IP address, also as `2130706433`, `0x7f.1` or `0177.0.0.1`, which the system's resolver
    accepts. Return None for a name.
    """
    plain = _normalize_host(host)
    with suppress(ValueError):
        return ip_address(plain)
    with suppress(OSError):
        return IPv4Address(socket.inet_aton(plain))
    return None


def _normalize_host(host: str) -> str:
    return unicodedata.normalize("NFKC", host).lower().rstrip(".").removeprefix("[").removesuffix("]")


def _plain_entry(entry: str) -> str:
    entry = entry.strip().lower()
    bare = entry.removeprefix("[").removesuffix("]")
    return bare if entry.startswith("[") and entry.endswith("]") else entry


def _meanings(address: IpAddress) -> list[IpAddress]:
    """Return the address and the IPv4 addresses embedded in it: mapped, compatible, translated or tunnelled."""
    if isinstance(address, IPv4Address):
        return [address]
    within: list[IpAddress | None] = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        within.append(IPv4Address(int(address) & 0xFFFFFFFF))
    standing_for = [candidate for candidate in within if candidate is not None]
    return standing_for if address.ipv4_mapped is not None else [address, *standing_for]


def _public(address: IpAddress) -> bool:
    local = isinstance(address, IPv6Address) and (address.is_site_local or address in _LOCAL_NAT64)
    special = address.is_multicast or address.is_reserved or address.is_unspecified or local
    return address.is_global and not special


def _metadata(host: str) -> InvalidDefinition:
    return InvalidDefinition(
        gettext_lazy("{host} is a cloud's metadata service, which gives out the keys of this machine.", host=host),
        gettext_lazy("use another server"),
    )


def _not_public(host: str, port: int) -> InvalidDefinition:
    spelled = f"[{host}]" if ":" in host else host
    return InvalidDefinition(
        gettext_lazy("{host} is on this machine or in a private network, which admins may not use.", host=host),
        gettext_lazy(
            "use a public address, or have {host}:{port} in MCP_ALLOWED_HOSTS of the bot",
            host=spelled,
            port=port,
        ),
    )


def endpoint_fingerprint(config: ServerConfig) -> str:
    """Return a digest of a server's address without credentials, or of its program. Headers and environment are left
    out: they authenticate the bot, they do not identify the server.
    """
    match config.transport:
        case HttpTransport(url):
            return _address(url)
        case StdioTransport(command, args, _, cwd):
            return _program(command, tuple(args), cwd or "")


def definition_fingerprint(config: ServerConfig) -> str:
    """Return a digest of the fields that decide which tools a server lists: endpoint, names of variables or headers,
    and protocol. Values are left out, because they may be secrets.
    """
    match config.transport:
        case HttpTransport(headers=values) | StdioTransport(env=values):
            names = sorted(values)
    return digest([endpoint_fingerprint(config), *names, config.protocol, str(config.use_instructions)])


@functools.lru_cache(64)
def _address(url: str) -> str:
    return digest(["http", *_redact_url(_without_credentials(url))])


@functools.lru_cache(64)  # Needed by each tool, and a long argument takes milliseconds to scan.
def _program(command: str, args: tuple[str, ...], folder: str) -> str:
    return digest(["stdio", command, [redact(argument) for argument in args], folder])


def _redact_url(url: str) -> tuple[str, ...]:
    """Return an address without parts that look like secrets. The host is kept in any case."""
    match = _HOST.match(url)
    host = match[0] if match else ""
    return (host, redact(url[len(host) :]))


def _without_credentials(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


class AllowedPrograms:
    """Container of the programs of this machine that the operator has allowed as servers: those of a setting
    (`listed`), and those of a file. Raises SettingsError if the file exists and cannot be read.

    The file has one program a line, spelled as in a server's definition. The operator's terminal adds to it; a running
    bot reads it again before it applies a change of servers.
    """

    def __init__(self, listed: Iterable[str], path: Path) -> None:
        self._listed = frozenset(listed)
        self._path = path
        self._allowed = self._read()

    def __contains__(self, program: object) -> bool:
        return program in self._listed or program in self._allowed

    @property
    def allowed(self) -> frozenset[str]:
        """The programs of the file."""
        return self._allowed

    def check(self) -> None:
        """Raise SettingsError if the file cannot be used as it is now."""
        self._read()

    def refresh(self) -> None:
        """Read the file again. Raises SettingsError."""
        self._allowed = self._read()

    def allow(self, program: str) -> None:
        """Add a program to the file. Raises SettingsError."""
        if not program or program.startswith("#") or program != program.strip() or not program.isprintable():
            raise SettingsError(
                gettext_lazy("The name of this program cannot be written on a line."),
                gettext_lazy("start it by a name without odd characters"),
            )
        allowed = self._read()
        if program not in allowed:
            self._write([*sorted(allowed), program])
        self.refresh()

    def _read(self) -> frozenset[str]:
        try:
            with self._path.open(encoding="utf-8") as file:
                text = file.read(_LARGEST_FILE + 1)
        except (FileNotFoundError, NotADirectoryError):
            return frozenset()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(
                gettext_lazy("{path} cannot be read: {error}.", path=self._path, error=str(error)),
                gettext_lazy("correct the file or {setting}", setting=PROGRAMS_SETTING),
            ) from error
        if len(text) > _LARGEST_FILE:
            raise SettingsError(
                gettext_lazy("{path} is too large.", path=self._path), gettext_lazy("write one program a line")
            )
        lines = (line.strip() for line in text.splitlines())
        return frozenset(line for line in lines if line and not line.startswith("#"))

    def _write(self, programs: Iterable[str]) -> None:
        """Replace the file at once, so that no reader sees half of it."""
        text = _FILE_HEADING + "".join(f"{program}\n" for program in programs)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text)
                # The bot may run as another user than the operator's terminal, and the file holds no secret.
                Path(temporary).chmod(_FILE_MODE)
                Path(temporary).replace(self._path)
            except OSError:
                with suppress(OSError):
                    Path(temporary).unlink()
                raise
        except OSError as error:
            raise SettingsError(
                gettext_lazy("{path} cannot be written: {reason}.", path=self._path, reason=error.strerror),
                gettext_lazy(
                    "let it be written, or name the program in MCP_ALLOWED_COMMANDS; {setting} is another place",
                    setting=PROGRAMS_SETTING,
                ),
            ) from error
