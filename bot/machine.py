"""Variables of this machine that network libraries read: proxies, certificates, the time zone.

Each library reads them in its own way, or fails in its own words. So they are read here, for all connections alike.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from itertools import chain
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bot.domain.hosts import is_host, is_this_machine
from bot.domain.locales import machine_time_zone, zone_of_variable
from bot.errors import SettingsError
from bot.i18n import gettext_lazy

_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_KEY_LOG = "SSLKEYLOGFILE"
_HASHED = "[0-9a-f]" * 8 + ".[0-9]"
"""Name of a certificate's file in a folder, by which OpenSSL finds it."""
_LONGEST_SHOWN = 100
_dropped: dict[str, str] = {}
"""Variables that this process has taken from its environment."""
_SCHEMES = {"https": "https", "wss": "https", "http": "http", "ws": "http"}


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy, and the variable that names it. `url` may hold a password and is never shown."""

    variable: str
    url: str = field(repr=False)

    @classmethod
    def parse(cls, variable: str, value: str) -> Proxy:
        """Return the proxy of a variable. Raises SettingsError if it cannot be used."""
        url = value if "://" in value else f"http://{value}"
        try:
            parts = urlsplit(url)
            host, port, rest = parts.hostname or "", parts.port, (parts.path.strip("/"), parts.query, parts.fragment)
            is_address = parts.scheme in ("http", "https") and is_host(host) and port != 0
            unquote(parts.netloc).encode("latin-1")  # raises ValueError for a user that HTTP cannot name
            # Words such as `none` and `DIRECT` are no hosts.
            is_word = "://" not in value and port is None and "." not in host
            usable = is_address and not is_word and not any(rest) and url.isprintable() and " " not in url
        except ValueError:
            usable = False
        if not usable:
            scheme = re.match(r"[A-Za-z0-9+.-]{1,20}(?=://)", value)
            shown = f" ({scheme[0]}://…)" if scheme else ""
            raise SettingsError(
                f"{variable}{shown} is not the address of a proxy that can be used.",
                f"set {variable} to http://host:port, or unset it for this program",
            )
        return cls(variable, url)

    @property
    def fix(self) -> str:
        """Fix of a request that did not get through the proxy."""
        return gettext_lazy("check {variable}, and that the proxy lets the bot out", variable=self.variable)


def find_proxy(
    url: str, environment: Mapping[str, str] = os.environ, setting: tuple[str, str] | None = None
) -> Proxy | None:
    """Return the proxy for requests to a URL: that of a setting by its name and value, else of HTTPS_PROXY or
    HTTP_PROXY, else of ALL_PROXY. None if there is none, or NO_PROXY names the host; this machine needs none. Raises
    SettingsError for a proxy or a URL that cannot be used.
    """
    try:
        parts = urlsplit(url)
        scheme = _SCHEMES.get(parts.scheme, "http")
        port = parts.port or (443 if scheme == "https" else 80)
    except ValueError as error:  # which may quote a password
        raise SettingsError("A request has no valid address.", "write the address as https://host/path") from error
    host = (parts.hostname or "").lower()
    direct = re.split(r"[,\s]+", (environment.get("no_proxy") or environment.get("NO_PROXY") or "").strip().lower())
    if is_this_machine(host) or any(_matches(entry, host, port) for entry in direct):
        return None
    proxies = (setting,) if setting else _proxies(environment, (scheme, "all"))
    return next((Proxy.parse(*given) for given in proxies), None)


def check_certificates(environment: Mapping[str, str] = os.environ) -> None:
    """Raise SettingsError if SSL_CERT_FILE or SSL_CERT_DIR name nothing that holds certificates."""
    for problem in _file_problems(environment, _CERTIFICATES):
        raise problem


def drop_key_log() -> None:
    """Take an SSLKEYLOGFILE that cannot be written from the environment, because libraries fail with it when they load.
    `machine_problems` still yields it.
    """
    for _problem in _file_problems(os.environ, (_KEY_LOG,)):
        _dropped[_KEY_LOG] = os.environ.pop(_KEY_LOG)


def machine_problems(environment: Mapping[str, str] | None = None) -> Iterator[SettingsError]:
    """Yield the variables that cannot be used as they are, by default those of this process."""
    if environment is None:
        environment = {**os.environ, **_dropped}
    for name, value in _proxies(environment, ("https", "http", "all")):
        try:
            Proxy.parse(name, value)
        except SettingsError as problem:
            yield problem
    yield from _file_problems(environment, (*_CERTIFICATES, _KEY_LOG))
    zone = environment.get("TZ", "")
    if zone.strip() and not environment.get("TIME_ZONE") and zone_of_variable(zone) is None:
        clause = f"is not the name of a time zone, so times are in {machine_time_zone(environment)} without TIME_ZONE"
        yield _unusable("TZ", zone, clause, "set TZ or TIME_ZONE to a name such as Asia/Tokyo")


def _unusable(name: str, value: str, clause: str, fix: str) -> SettingsError:
    shown = repr(value)
    shown = shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}…"
    return SettingsError(f"{name} is {shown}, which {clause}.", fix)


def _file_problems(environment: Mapping[str, str], names: tuple[str, ...]) -> Iterator[SettingsError]:
    """Yield those of the variables whose files cannot be used."""
    for name in filter(environment.get, names):
        if reason := _unusable_reason(name, environment[name]):
            fix = "record no keys" if name == _KEY_LOG else "use the certificates of this machine"
            clause = f"cannot be used: {reason}"
            yield _unusable(name, environment[name], clause, f"correct {name}, or unset it to {fix}")


def _proxies(environment: Mapping[str, str], schemes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the variables of these schemes with their values. The small spelling wins."""
    for scheme in schemes:
        for name in (f"{scheme}_proxy", f"{scheme}_PROXY".upper()):
            if value := environment.get(name, "").strip():
                yield name, value
                break


def _matches(entry: str, host: str, port: int) -> bool:
    """Return True if an entry of NO_PROXY names this host: a name with its subdomains, an address, a network or `*`,
    perhaps with a port.
    """
    name = entry
    if found := re.fullmatch(r"(\[.+\]|[^:]+):([0-9]{1,5})", entry):
        name = found[1] if int(found[2]) == port else ""
    with suppress(ValueError):
        return ip_address(host) in ip_network(name.strip("[]"), strict=False)
    name = name.removeprefix("*").removeprefix(".")
    return entry == "*" or (bool(name) and f".{host}".endswith(f".{name}"))


def _unusable_reason(name: str, value: str) -> str:
    """Return why the libraries cannot use the file or the folders of a variable; empty if they can."""
    import ssl  # noqa: PLC0415 - rarely needed, and slow to load

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        match name:
            case "SSL_CERT_FILE":
                context.load_verify_locations(value)
            case "SSL_CERT_DIR":
                for file in chain.from_iterable(Path(folder).glob(_HASHED) for folder in value.split(os.pathsep)):
                    with suppress(OSError):
                        context.load_verify_locations(file)
                        return ""
                return "it has no certificate under the name that `openssl rehash` gives it"
            case _:
                context.keylog_filename = value
    except ssl.SSLError:
        return "it holds no certificate"
    except OSError as error:
        return error.strerror or str(error)
    return ""
