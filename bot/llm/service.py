"""The service a provider talks to, and how its failures are told.

Called by the provider modules, which find out what happened; this module says it: one sentence with a cause and a
fix, never with the key, and of the right kind: ModelUnavailable is tried again, ModelRejected is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import httpx2

from bot.domain.completions import Limits
from bot.errors import ModelError, ModelRejected, ModelUnavailable, SettingsError
from bot.llm.foreign_text import one_line, without_keys

_CONNECT_SECONDS = 10.0
_QUOTE_LIMIT = 300
_NO_KEY = "none"  # the vendors' clients insist on a key; servers without keys ignore it, the vendors refuse it
_PASSING = frozenset({408, 409, 425, 429})
LOOPBACK = ("all://127.0.0.1", "all://localhost", "all://[::1]")
"""Addresses on this machine, in the form of httpx2's mounts: a proxy from the environment cannot reach them."""


@dataclass(frozen=True, slots=True)
class Service:
    """One vendor at one address. `prefix` begins the names of its variables: OPENAI in OPENAI_API_KEY."""

    vendor: str
    prefix: str
    model: str
    address: str
    own_address: bool
    key: str = field(repr=False)

    @classmethod
    def at(cls, home: str, base_url: str | None, *, vendor: str, prefix: str, model: str, key: str) -> Service:
        """The vendor at its `home`, or a compatible server at `base_url`. Raises SettingsError for an address or a
        key that cannot be used.
        """
        address, key = base_url or home, key.strip() or _NO_KEY
        # The HTTP library would quote the whole header, key included, in its complaint.
        if not (key.isascii() and key.isprintable()):
            cause = f"The key in {prefix}_API_KEY holds characters that no key has."
            raise SettingsError(cause, f"Copy the key into {prefix}_API_KEY again.")
        host, home_host = _host(address), _host(home)
        if not host:
            cause = f"{prefix}_BASE_URL is not the address of a service."
            raise SettingsError(cause, "Write it whole, like http://localhost:8000/v1.")
        own = host == home_host or host.endswith(f".{home_host}")  # regions are subdomains
        return cls(vendor, prefix, model, address, own, key)

    @property
    def name(self) -> str:
        """What people call the service: the vendor, or the place of a compatible one."""
        if self.own_address:
            return self.vendor
        where = urlsplit(self.address)
        return f"The model service at {where.hostname}" + (f":{where.port}" if where.port else "")

    def timeout(self, limits: Limits) -> httpx2.Timeout:
        """How long to wait for the next byte."""
        return httpx2.Timeout(limits.idle_seconds, connect=min(limits.idle_seconds, _CONNECT_SECONDS))

    def refused(self, status: int, message: str, headers: Mapping[str, str], tool: str = "") -> ModelError:
        """The service answered with an error. `message` is its own, and untrusted; `tool` is the name of the tool that
        it is about.
        """
        quote = one_line(without_keys(message, self.key), _QUOTE_LIMIT)
        said = f": {quote}" if quote and not quote.startswith("<") else "."
        if status in _PASSING or status >= 500:
            what = "is asked too much" if status == 429 else "has a problem"
            return ModelUnavailable(f"{self.name} {what} ({status}){said}", retry_after=retry_after(headers))
        match status:
            case 401 | 403:
                cause = f"{self.name} does not accept the key ({status}){said}"
                fix = f"Check that {self.prefix}_API_KEY holds a valid key that may use {self.model}."
            case 402:
                cause, fix = f"{self.name} wants to be paid first ({status}){said}", "Check the account's credit."
            case 404:
                cause = f"{self.name} does not know the model {self.model} ({status}){said}"
                fix = "Check the model name in BOT_MODEL" + self._or_address
            case 413:
                cause = f"{self.name} cannot read that much ({status}){said}"
                fix = "Start a new conversation, or send less."
            case _ if tool:
                cause = f"{self.name} does not accept the tool {tool} ({status}){said}"
                fix = f"Have {tool} corrected by whoever runs its server, or leave it out of the profile."
            case _:
                cause, fix = f"{self.name} does not accept the request ({status}){said}", ""
        return ModelRejected(cause, fix, tool=tool)

    def interrupted(self, error: BaseException | None, limits: Limits) -> ModelUnavailable:
        """The connection failed. `error` is httpx2's, where there was one."""
        match error:
            case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.ProxyError():
                reason = one_line(without_keys(str(error), self.key), 120)
                cause = f"{self.name} cannot be reached" + (f": {reason}" if reason else ".")
                return ModelUnavailable(cause, "Check the network" + self._or_address)
            case httpx2.TimeoutException():
                return ModelUnavailable(f"{self.name} sent nothing for {limits.idle_seconds:g} seconds.")
            case _:
                return self.cut_off()

    def cut_off(self) -> ModelUnavailable:
        """The reply ended before it was finished."""
        return ModelUnavailable(f"The reply of {self._name_within} was cut off before its end.")

    def overlong(self, limits: Limits) -> ModelUnavailable:
        """The reply took longer than it may."""
        cause = f"The reply of {self._name_within} was not finished within {limits.total_seconds:g} seconds."
        return ModelUnavailable(cause)

    def garbled(self) -> ModelUnavailable:
        """The reply is not what the protocol says."""
        return ModelUnavailable(f"{self.name} sent something that is not a reply.", "Try again" + self._or_address)

    @property
    def _name_within(self) -> str:
        return self.name[0].lower() + self.name[1:] if not self.own_address else self.name

    @property
    def _or_address(self) -> str:
        return "." if self.own_address else f", and the address in {self.prefix}_BASE_URL."


def _host(address: str) -> str:
    """The host of an HTTP address, empty if it is none."""
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and parts.port != 0
    except ValueError:
        return ""
    return (parts.hostname or "") if usable else ""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from `retry-after-ms` or Retry-After in seconds or as a date (RFC 9110, 10.2.3); None if the
    service said nothing that makes sense.
    """
    for header, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(header, "")) * unit
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    try:
        at = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())
