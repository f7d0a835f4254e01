"""A provider's service: its HTTP client, and the error texts for its failures.

An error is one sentence with a cause and a fix, never with the key, and of the right class: ModelUnavailable is tried
again, ModelRejected is not. The vendors' clients are generated alike; a provider module creates its own and names the
classes of its SDK. Their own retries have to be off, because the engine retries and shows it. Their typed event objects
are not used: the HTTP answer is read directly.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx2

from bot.domain.completions import ModelLimits
from bot.errors import ContextTooLong, ModelBarred, ModelError, ModelRejected, ModelUnavailable, SettingsError
from bot.i18n import LazyText, gettext_lazy
from bot.llm.error_classification import ErrorKind, ProviderError, ProviderRejected, classify, status_of
from bot.llm.providers import is_at
from bot.llm.wire_format import single_line, without_keys

LOOPBACK = ("all://127.0.0.1", "all://localhost", "all://[::1]")
"""Addresses on this machine, in the form of httpx2's mounts: a proxy from the environment cannot reach them."""
LARGEST_ERROR = 2**17
"""Bytes of an answer with a bad status that are read: some services quote the whole request."""
LARGEST_LIST = 8 * 2**20
"""Limit in bytes of other answers of a service. OpenRouter's list of models has one or two million."""
ERROR_SECONDS = 5.0
"""Time limit, in seconds, for the text of an error. Its status is known by then."""
_CONNECT_SECONDS = 10.0
_QUOTE_LIMIT = 300
_LONGEST_WAIT = 86_400.0
_LATER = gettext_lazy("Ask again in a while.")
_NO_KEY = "none"  # the vendors' clients insist on a key; servers without keys ignore it, the vendors refuse it
_NUMBERED = re.compile(r"\btools(?:\[(\d{1,4})\]|\.(\d{1,4})\b)")
_QUOTED = re.compile(r"(?:function|tool)\s+(?:name\s+)?['\"`]?([a-zA-Z0-9_-]{1,64})\b", re.IGNORECASE)
_BAD_REQUEST = frozenset({400, 422})


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
    def for_model(cls, home: str, base_url: str | None, *, vendor: str, prefix: str, model: str, key: str) -> Service:
        """Return the vendor at its `home`, or a compatible server at `base_url`. Raises SettingsError for an invalid
        address or key.
        """
        address, key = base_url or home, key.strip() or _NO_KEY
        # The HTTP library would quote the whole header, key included, in its complaint.
        if not (key.isascii() and key.isprintable()):
            raise SettingsError(
                gettext_lazy("The key in {variable} holds characters that no key has.", variable=f"{prefix}_API_KEY"),
                gettext_lazy("Copy the key into {variable} again.", variable=f"{prefix}_API_KEY"),
            )
        host, home_host = _host(address), _host(home)
        if not host:
            raise SettingsError(
                gettext_lazy("{variable} is not the address of a service.", variable=f"{prefix}_BASE_URL"),
                gettext_lazy("Write it whole, like http://localhost:8000/v1."),
            )
        own = is_at(address, home_host)
        return cls(vendor, prefix, model, address, own, key)

    @property
    def name(self) -> str:
        """Display name: the vendor, or the host and port of a compatible server."""
        if self.own_address:
            return self.vendor
        return gettext_lazy("The model service at {address}", address=self._host_and_port)

    @property
    def writer(self) -> str:
        """Name of the model and its service. Private metadata such as signed reasoning is sent only to its writer."""
        return f"{self.model} at {self._host_and_port}"

    @property
    def _host_and_port(self) -> str:
        where = urlsplit(self.address)
        return f"{where.hostname}:{where.port}" if where.port else f"{where.hostname}"

    def timeout(self) -> httpx2.Timeout:
        """Return the HTTP timeouts: only connecting is limited here, because `streaming` limits replies."""
        return httpx2.Timeout(None, connect=_CONNECT_SECONDS)

    def error_from(self, complaint: ProviderError, tools: Sequence[str] = ()) -> ModelError:
        """Return the error for an error response. `tools` are the names of the offered tools, in their order."""
        quote = single_line(self._redact(complaint.message), _QUOTE_LIMIT)
        error = self._error_of(complaint, status_of(complaint), tools)
        if quote and not quote.startswith("<") and isinstance(error.brief, LazyText):
            error.cause = gettext_lazy("{cause}: {quote}", cause=error.brief.as_clause(), quote=_sentence(quote))
        return error

    def _error_of(self, complaint: ProviderError, status: int, tools: Sequence[str]) -> ModelError:
        match classify(complaint):
            case ErrorKind.BUSY:
                cause = gettext_lazy("{service} is asked too much ({status}).", service=self.name, status=status)
                return ModelUnavailable(cause, _LATER, retry_after=retry_after(complaint.headers))
            case ErrorKind.OUT_OF_ORDER:
                cause = gettext_lazy("{service} has a problem ({status}).", service=self.name, status=status)
                if status == 529:
                    cause = gettext_lazy("{service} is overloaded ({status}).", service=self.name, status=status)
                return ModelUnavailable(cause, _LATER, retry_after=retry_after(complaint.headers))
            case ErrorKind.KEY | ErrorKind.CREDIT | ErrorKind.MODEL | ErrorKind.MOVED as problem:
                return self._barred_error(problem, status)
            case ErrorKind.TOO_LONG:
                cause = gettext_lazy("{service} cannot read that much ({status}).", service=self.name, status=status)
                return ContextTooLong(cause, gettext_lazy("Start a new conversation, or send less."))
            case problem:
                tool = rejected_tool(status, complaint.param, complaint.message, tools)
                return self._rejected_error(problem, status, tool)

    def _barred_error(self, problem: ErrorKind, status: int) -> ModelBarred:
        match problem:
            case ErrorKind.KEY:
                return ModelBarred(
                    gettext_lazy("{service} does not accept the key ({status}).", service=self.name, status=status),
                    gettext_lazy(
                        "Check that {variable} holds a valid key that may use {model}.",
                        variable=f"{self.prefix}_API_KEY",
                        model=self.model,
                    ),
                )
            case ErrorKind.CREDIT:
                return ModelBarred(
                    gettext_lazy("{service} wants to be paid first ({status}).", service=self.name, status=status),
                    gettext_lazy("Check the account's credit and limits."),
                )
            case ErrorKind.MOVED:
                return ModelBarred(
                    gettext_lazy("{service} points to another address ({status}).", service=self.name, status=status),
                    gettext_lazy(
                        "Write the address that it has now into {variable}: nothing is sent to any other.",
                        variable=self._address_variable,
                    ),
                )
            case _:
                fix = gettext_lazy("Check the model name in BOT_MODEL.")
                if not self.own_address:
                    fix = gettext_lazy(
                        "Check the model name in BOT_MODEL, and the address in {variable}.",
                        variable=self._address_variable,
                    )
                return ModelBarred(
                    gettext_lazy(
                        "{service} does not know the model {model} ({status}).",
                        service=self.name,
                        model=self.model,
                        status=status,
                    ),
                    fix,
                )

    def _rejected_error(self, problem: ErrorKind, status: int, tool: str) -> ModelRejected:
        match problem:
            case ErrorKind.FILTERED:
                return ModelRejected(
                    gettext_lazy("{service} does not take this content ({status}).", service=self.name, status=status),
                    gettext_lazy("Put it in other words, or leave out what the service objects to."),
                )
            case ErrorKind.ATTACHMENTS:
                return ModelRejected(
                    gettext_lazy(
                        "{service} cannot read an attached image or document ({status}).",
                        service=self.name,
                        status=status,
                    ),
                    gettext_lazy("Leave it out, or attach it in another format."),
                )
            case _ if tool:
                return ModelRejected(
                    gettext_lazy(
                        "{service} does not accept the tool {tool} ({status}).",
                        service=self.name,
                        tool=tool,
                        status=status,
                    ),
                    gettext_lazy(
                        "Have {tool} corrected by the operator of its server, or remove it from the profile.", tool=tool
                    ),
                    tool=tool,
                )
            case _:
                return ModelRejected(
                    gettext_lazy("{service} does not accept the request ({status}).", service=self.name, status=status)
                )

    def unreachable(self, error: BaseException) -> ModelUnavailable:
        """Return the error of a failed connection. `error` is its root cause."""
        match error:
            case ssl.SSLCertVerificationError():
                reason: str = gettext_lazy("its certificate is not trusted ({reason})", reason=error.verify_message)
            case socket.gaierror():
                reason = gettext_lazy("host name not found")
            case ConnectionRefusedError():
                reason = gettext_lazy("connection refused")
            case TimeoutError() | httpx2.TimeoutException():
                reason = gettext_lazy("no connection within {seconds} seconds", seconds=f"{_CONNECT_SECONDS:g}")
            case _:
                text = single_line(self._redact(str(error).rstrip(".")), 120)
                reason = text or gettext_lazy("the connection failed")
        fix = gettext_lazy("Check the network.")
        if not self.own_address:
            fix = gettext_lazy("Check the network, and the address in {variable}.", variable=self._address_variable)
        failure = ModelUnavailable(
            gettext_lazy("{service} cannot be reached: {reason}.", service=self.name, reason=reason), fix
        )
        failure.brief = gettext_lazy("{service} cannot be reached.", service=self.name)
        return failure

    def proxy_error(self) -> ModelUnavailable:
        """Return the error of the environment's proxy. The HTTP library's text is left out, because the proxy's address
        may contain a password.
        """
        return ModelUnavailable(
            gettext_lazy("{service} cannot be reached through the proxy.", service=self.name),
            gettext_lazy("Check HTTPS_PROXY, and that the proxy lets the bot out."),
        )

    def closed_error(self) -> ModelUnavailable:
        """Return the error for a connection that was closed without a response."""
        return ModelUnavailable(gettext_lazy("{service} hung up before it answered.", service=self.name), _LATER)

    def silence_error(self, seconds: float) -> ModelUnavailable:
        """Return the error for a service that sent nothing for `seconds`."""
        cause = gettext_lazy("{service} sent nothing for {seconds} seconds.", service=self.name, seconds=f"{seconds:g}")
        return ModelUnavailable(cause, _LATER)

    def incomplete_error(self) -> ModelUnavailable:
        """Return the error for an incomplete reply."""
        cause = gettext_lazy("The reply of {service} was cut off before its end.", service=self._name_within)
        return ModelUnavailable(cause, _LATER)

    def too_long_error(self, limits: ModelLimits) -> ModelUnavailable:
        """Return the error for a reply above its time limit."""
        cause = gettext_lazy(
            "The reply of {service} was not finished within {seconds} seconds.",
            service=self._name_within,
            seconds=f"{limits.total_seconds:g}",
        )
        return ModelUnavailable(cause, gettext_lazy("Ask for less at a time."))

    def unreadable_error(self) -> ModelUnavailable:
        """Return the error of a reply that does not follow the protocol."""
        fix = gettext_lazy("Ask again.")
        if not self.own_address:
            fix = gettext_lazy("Ask again, and check the address in {variable}.", variable=self._address_variable)
        return ModelUnavailable(gettext_lazy("{service} sent something that is not a reply.", service=self.name), fix)

    def _redact(self, text: str) -> str:
        return without_keys(text, "" if self.key == _NO_KEY else self.key)

    @property
    def _name_within(self) -> str:
        """Name within a sentence."""
        if self.own_address:
            return self.vendor
        return gettext_lazy("the model service at {address}", address=self._host_and_port)

    @property
    def _address_variable(self) -> str:
        return f"{self.prefix}_BASE_URL"


def rejected_tool(status: int, param: str, message: str, names: Sequence[str]) -> str:
    """Return the one of `names` that is refused; empty if the error is not about a single tool.

    Vendors count the tools of the request from 0: OpenAI in `param` (`tools[3].function.parameters`), Anthropic at the
    beginning of its message (`tools.3.custom.input_schema: ...`). Compatible servers often give only the name.
    """
    if status not in _BAD_REQUEST:
        return ""
    for text in (param, message):
        if match := _NUMBERED.search(text):
            n = int(match[1] or match[2])
            return names[n] if n < len(names) else ""
    meant = {name for name in _QUOTED.findall(message) if name in names}
    return meant.pop() if len(meant) == 1 else ""


def _sentence(quote: str) -> str:
    """Return a service's text with a final period."""
    return quote if quote.endswith((".", "!", "?", "…")) else f"{quote}."


def _host(address: str) -> str:
    """Return the host of an HTTP address, empty if it has none."""
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and parts.port != 0
    except ValueError:
        return ""
    return (parts.hostname or "") if usable else ""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait, at most a day, from `retry-after-ms` or Retry-After in seconds or as a date (RFC
    9110, 10.2.3); None if they are missing or invalid.
    """
    for header, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(header, "")) * unit
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return min(seconds, _LONGEST_WAIT)
    try:
        at = parsedate_to_datetime(headers.get("retry-after", ""))
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        seconds = (at - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, seconds), _LONGEST_WAIT)


@dataclass(frozen=True, slots=True)
class Sdk:
    """The classes of one SDK: its stream; its errors: an answer with a bad status, no connection, any at all."""

    stream: Any
    status_error: type[Exception]
    connection_error: type[Exception]
    error: type[Exception]


def http_settings() -> dict[str, Any]:
    """Return the settings of the vendors' HTTP clients.

    Redirects are not followed: the key and the conversation are for the configured service alone. Answers are not
    compressed, because compression delays streaming.
    """
    return {
        "mounts": dict.fromkeys(LOOPBACK),
        "follow_redirects": False,
        "headers": {"accept-encoding": "identity"},
        "event_hooks": {"response": [_limit_error_body]},
    }


async def _limit_error_body(response: httpx2.Response) -> None:
    """Take the beginning of an answer with a bad status for the whole: the vendors' clients read to its end, however
    far that is.
    """
    if response.status_code < 300:
        return
    stream, beginning = response.stream, bytearray()
    assert isinstance(stream, httpx2.AsyncByteStream)
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(ERROR_SECONDS):
            async for chunk in stream:
                beginning += chunk
                if len(beginning) >= LARGEST_ERROR:
                    break
    await stream.aclose()
    response.stream = httpx2.ByteStream(bytes(beginning[:LARGEST_ERROR]))
    response.encoding = "utf-8"  # some that a service may name are none


class VendorClient:
    """One vendor's client for one protocol, which is at `path`."""

    def __init__(self, service: Service, client: Any, path: str, sdk: Sdk) -> None:
        self._service = service
        self._client = client
        self._path = path
        self._sdk = sdk

    async def post(self, body: bytes) -> httpx2.Response:
        """Send a request; return when the answer begins. Raises the vendor's errors."""
        response: httpx2.Response = await self._client.post(
            self._path, cast_to=httpx2.Response, content=body, stream=True, stream_cls=self._sdk.stream
        )
        return response

    async def get(self, path: str) -> Any:
        """Return the JSON at another path of the service. Raises the vendor's errors, and ValueError if the answer is
        not JSON or too large.
        """
        response: httpx2.Response = await self._client.get(
            path, cast_to=httpx2.Response, stream=True, stream_cls=self._sdk.stream
        )
        body = bytearray()
        try:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > LARGEST_LIST:
                    raise ValueError("too large")
        finally:
            await response.aclose()
        # Aside: a long list takes its time, and it is asked for while people are answered.
        return await asyncio.to_thread(_as_json, bytes(body))

    def read_error(self, error: Exception) -> ProviderError | None:
        """Return the service's error if the answer contains one."""
        return _read(error) if isinstance(error, self._sdk.status_error) else None

    @contextmanager
    def map_errors(self, tools: Sequence[str]) -> Iterator[None]:
        """Map the vendor's errors to those of `bot.errors`."""
        try:
            yield
        except self._sdk.status_error as error:
            raise self._service.error_from(_read(error), tools) from error
        except ProviderRejected as error:
            raise self._service.error_from(error.error, tools) from error
        except self._sdk.connection_error as error:
            raise self._interruption_error(error) from error
        except (httpx2.HTTPError, OSError) as error:
            raise self._service.incomplete_error() from error
        except (self._sdk.error, aiohttp.ClientError, ValueError, RecursionError) as error:
            raise self._service.unreadable_error() from error

    def _interruption_error(self, error: Exception) -> ModelUnavailable:
        """Return the error of an interrupted connection. The clients report most causes as one error that wraps the
        cause.
        """
        causes = list(_causes(error))
        if any(
            isinstance(cause, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError) for cause in causes
        ):
            return self._service.proxy_error()
        if any(isinstance(cause, aiohttp.ClientConnectorError | TimeoutError) for cause in causes):
            return self._service.unreachable(causes[-1])
        if any(isinstance(cause, aiohttp.ClientConnectionError) for cause in causes):
            return self._service.closed_error()
        return self._service.incomplete_error()

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.close()


def _as_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except RecursionError as error:
        raise ValueError("too deep") from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _read(error: Any) -> ProviderError:
    return ProviderError.from_response(error.status_code, error.body, error.response.headers)
