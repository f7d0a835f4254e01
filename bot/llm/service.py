"""The service a provider talks to, and how its failures are told.

Called by the provider modules, which find out what happened; this module says it: one sentence with a cause and a
fix, never with the key, and of the right kind: ModelUnavailable is tried again, ModelRejected is not.
"""

from __future__ import annotations

import math
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import httpx2

from bot.domain.completions import Limits
from bot.errors import ContextTooLong, ModelBarred, ModelError, ModelRejected, ModelUnavailable, SettingsError
from bot.llm.complaints import Complaint, Problem, problem_of, status_of
from bot.llm.foreign_text import one_line, without_keys
from bot.llm.providers import is_at
from bot.llm.refused_tools import refused_tool

_CONNECT_SECONDS = 10.0
_QUOTE_LIMIT = 300
_LATER = "Ask again in a while."
_NO_KEY = "none"  # the vendors' clients insist on a key; servers without keys ignore it, the vendors refuse it
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
        own = is_at(address, home_host)
        return cls(vendor, prefix, model, address, own, key)

    @property
    def name(self) -> str:
        """What people call the service: the vendor, or the place of a compatible one."""
        if self.own_address:
            return self.vendor
        where = urlsplit(self.address)
        return f"The model service at {where.hostname}" + (f":{where.port}" if where.port else "")

    def timeout(self) -> httpx2.Timeout:
        """How long the HTTP library may take: to connect. How long a reply may take is for `streaming` to say."""
        return httpx2.Timeout(None, connect=_CONNECT_SECONDS)

    def refused(self, complaint: Complaint, tools: Sequence[str] = ()) -> ModelError:
        """The service answered with an error. `tools` are the names of those on offer, in their order."""
        quote = one_line(without_keys(complaint.message, self.key), _QUOTE_LIMIT)
        status = status_of(complaint)
        said = f" ({status})" + (f": {quote}" if quote and not quote.startswith("<") else ".")
        kind: type[ModelRejected] = ModelRejected
        match problem_of(complaint):
            case Problem.BUSY:
                cause = f"{self.name} is asked too much{said}"
                return ModelUnavailable(cause, _LATER, retry_after=retry_after(complaint.headers))
            case Problem.OUT_OF_ORDER:
                cause = f"{self.name} {'is overloaded' if status == 529 else 'has a problem'}{said}"
                return ModelUnavailable(cause, _LATER, retry_after=retry_after(complaint.headers))
            case Problem.KEY:
                fix = f"Check that {self.prefix}_API_KEY holds a valid key that may use {self.model}."
                kind, cause = ModelBarred, f"{self.name} does not accept the key{said}"
            case Problem.CREDIT:
                return ModelBarred(
                    f"{self.name} wants to be paid first{said}", "Check the account's credit and limits."
                )
            case Problem.MODEL:
                kind, cause = ModelBarred, f"{self.name} does not know the model {self.model}{said}"
                fix = "Check the model name in BOT_MODEL" + self._or_address
            case Problem.TOO_LONG:
                fix = "Start a new conversation, or send less."
                kind, cause = ContextTooLong, f"{self.name} cannot read that much{said}"
            case Problem.FILTERED:
                fix = "Put it in other words, or leave out what the service objects to."
                cause = f"{self.name} does not take this content{said}"
            case Problem.NO_TOOLS | Problem.REASONING | Problem.TOKEN_LIMIT | Problem.REQUEST:
                tool = refused_tool(status, complaint.param, complaint.message, tools)
                if tool:
                    fix = f"Have {tool} corrected by whoever runs its server, or leave it out of the profile."
                    return ModelRejected(f"{self.name} does not accept the tool {tool}{said}", fix, tool=tool)
                cause, fix = f"{self.name} does not accept the request{said}", ""
        return kind(cause, fix)

    def interrupted(self, error: BaseException | None) -> ModelUnavailable:
        """The connection failed. `error` is httpx2's, where there was one."""
        match error:
            case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.ProxyError():
                reason = one_line(without_keys(_reason(error), self.key), 120)
                return ModelUnavailable(
                    f"{self.name} cannot be reached: {reason}.", "Check the network" + self._or_address
                )
            case _:
                return self.cut_off()

    def silent(self, seconds: float) -> ModelUnavailable:
        """The service sent nothing for so long."""
        return ModelUnavailable(f"{self.name} sent nothing for {seconds:g} seconds.", _LATER)

    def cut_off(self) -> ModelUnavailable:
        """The reply ended before it was finished."""
        return ModelUnavailable(f"The reply of {self._name_within} was cut off before its end.", _LATER)

    def overlong(self, limits: Limits) -> ModelUnavailable:
        """The reply took longer than it may."""
        cause = f"The reply of {self._name_within} was not finished within {limits.total_seconds:g} seconds."
        return ModelUnavailable(cause, "Ask for less at a time.")

    def garbled(self) -> ModelUnavailable:
        """The reply is not what the protocol says."""
        check = "." if self.own_address else f", and check the address in {self.prefix}_BASE_URL."
        return ModelUnavailable(f"{self.name} sent something that is not a reply.", f"Ask again{check}")

    @property
    def _name_within(self) -> str:
        return self.name[0].lower() + self.name[1:] if not self.own_address else self.name

    @property
    def _or_address(self) -> str:
        return "." if self.own_address else f", and the address in {self.prefix}_BASE_URL."


def _reason(error: BaseException) -> str:
    """What is at the bottom of a connection that could not be made: the libraries wrap it several times."""
    while error.__cause__ is not None:
        error = error.__cause__
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted ({error.verify_message})"
        case socket.gaierror():
            return "nobody knows a host of that name"
        case ConnectionRefusedError():
            return "nobody listens there"
        case TimeoutError() | httpx2.TimeoutException():
            return f"no connection within {_CONNECT_SECONDS:g} seconds"
        case _:
            return str(error).rstrip(".") or "the connection failed"


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
