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
from pathlib import Path
from urllib.parse import urlsplit

from bot.domain.locales import time_zone_name
from bot.errors import SettingsError

_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_UNREADABLE = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
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
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
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


def find_proxy(url: str, environment: Mapping[str, str] = os.environ) -> Proxy | None:
    """Return the proxy for requests to a URL: that of HTTPS_PROXY or HTTP_PROXY, else of ALL_PROXY. None if there is
    none, or NO_PROXY names the host; this machine needs none. Raises SettingsError for a proxy that cannot be used.
    """
    parts = urlsplit(url)
    host, scheme = (parts.hostname or "").lower(), _SCHEMES.get(parts.scheme, "http")
    port = parts.port or (443 if scheme == "https" else 80)
    direct = re.split(r"[,\s]+", (environment.get("no_proxy") or environment.get("NO_PROXY") or "").strip().lower())
    if _is_this_machine(host) or any(_matches(entry, host, port) for entry in direct):
        return None
    return next((Proxy.parse(*given) for given in _proxies(environment, (scheme, "all"))), None)


def check_certificates(environment: Mapping[str, str] = os.environ) -> None:
    """Raise SettingsError if SSL_CERT_FILE or SSL_CERT_DIR name nothing that holds certificates."""
    for name in _CERTIFICATES:
        if value := environment.get(name, ""):
            try:
                _load_certificates(name, value)
            except OSError as error:
                reason = error.strerror if type(error) in _UNREADABLE else "it holds no certificate"
                raise SettingsError(
                    f"{name} is {value!r}, which cannot be used: {reason}.",
                    f"correct {name}, or unset it to use the certificates of this machine",
                ) from error


def machine_problems(environment: Mapping[str, str] = os.environ) -> Iterator[SettingsError]:
    """Yield the variables of this machine that cannot be used as they are."""
    for name, value in _proxies(environment, ("https", "http", "all")):
        try:
            Proxy.parse(name, value)
        except SettingsError as problem:
            yield problem
    try:
        check_certificates(environment)
    except SettingsError as problem:
        yield problem
    zone = environment.get("TZ", "")
    if zone.strip() and not environment.get("TIME_ZONE") and time_zone_name(zone.removeprefix(":")) is None:
        yield SettingsError(
            f"TZ is {zone!r}, which is not the name of a time zone, so times are in UTC.",
            "set TZ or TIME_ZONE to a name such as Asia/Tokyo",
        )


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
    if found := re.fullmatch(r"(\[.+\]|[^:]+):([0-9]+)", entry):
        name = found[1] if int(found[2]) == port else ""
    with suppress(ValueError):
        return ip_address(host) in ip_network(name.strip("[]"), strict=False)
    name = name.removeprefix("*").removeprefix(".")
    return entry == "*" or (bool(name) and f".{host}".endswith(f".{name}"))


def _is_this_machine(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def _load_certificates(name: str, value: str) -> None:
    """Raises OSError."""
    import ssl  # noqa: PLC0415 - rarely needed, and slow to load

    if name == "SSL_CERT_FILE":
        ssl.create_default_context(cafile=value)
    elif not any(Path(value).iterdir()):
        raise OSError("empty")
