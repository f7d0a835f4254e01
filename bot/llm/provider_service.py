"""A provider's service: its address and key, and the errors that it reports.

The error for people is one sentence with a cause and a fix, never with the key, and of the right class:
ModelUnavailable is tried again, ModelRejected is not. A service's error is an answer with an error status or an event
of the stream. To classify it, the vendors' codes come first, then their types, then the status. The message is searched
too, because compatible servers have statuses and codes of their own.
"""

from __future__ import annotations

import math
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import httpx2

from bot.domain.completions import ModelLimits
from bot.domain.lazy_pattern import lazy_pattern
from bot.errors import ContextTooLong, ModelBarred, ModelError, ModelRejected, ModelUnavailable, SettingsError
from bot.i18n import LazyText, gettext_lazy
from bot.llm.providers import is_at
from bot.llm.wire_format import single_line, without_keys
from bot.machine import Proxy, find_proxy

_CONNECT_SECONDS = 10.0
_QUOTE_LIMIT = 300
_LONGEST_WAIT = 86_400.0
_LATER = gettext_lazy("Ask again in a while.")
_NO_KEY = "none"  # the vendors' clients insist on a key; servers without keys ignore it, the vendors refuse it
_NUMBERED = lazy_pattern(r"\btools(?:\[(\d{1,4})\]|\.(\d{1,4})\b)")
_QUOTED = lazy_pattern(r"(?:function|tool)\s+(?:name\s+)?['\"`]?([a-zA-Z0-9_-]{1,64})\b", re.IGNORECASE)
_ADDRESS = lazy_pattern(
    r"\w+://[^\s'\"<>)\]]*[^\s'\"<>)\].,;:]|(?:\b(?:\d{1,3}\.){3}\d{1,3}|\[[\da-f:]{3,}\])(?::\d+)?"
)
_BAD_REQUEST = frozenset({400, 422})


@dataclass(frozen=True, slots=True)
class ProviderError:
    """An error as the service reports it: untrusted text. `status` is 200 for an event within a stream; `kind` is the
    vendors' `type`.
    """

    status: int
    message: str = ""
    code: str = ""
    kind: str = ""
    param: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def details(self) -> str:
        """All that the service writes about the reason."""
        return " ".join(filter(None, (self.message, self.param, self.code)))

    @classmethod
    def from_response(cls, status: int, body: object, headers: Mapping[str, str] | None = None) -> ProviderError:
        """Parse the error in a response body. Missing and invalid fields are empty."""
        headers = headers or {}
        if isinstance(body, list) and len(body) == 1:  # Gemini's, in OpenAI's language
            body = body[0]
        error = body.get("error") or body if isinstance(body, Mapping) else body
        if not isinstance(error, Mapping):
            return cls(status, _reason(error), headers=headers)
        # `detail` is FastAPI's, which many servers are made with.
        message = next(filter(None, map(_reason, map(error.get, _REASONS))), "")
        metadata = error.get("metadata")
        if isinstance(metadata, Mapping) and (
            raw := _text(metadata, "raw")
        ):  # OpenRouter: the error of the model's host
            message = f"{message}: {raw}"
        return cls(status, message, _text(error, "code"), _text(error, "type"), _text(error, "param"), headers)


_REASONS = ("message", "detail", "error", "errors", "msg", "reason", "error_description", "title")


def _reason(value: object, depth: int = 0) -> str:
    """Return the reason in a field of an error: a text, or the texts of an object or a list, as validators write."""
    match value:
        case str():
            return value[:_LONGEST]
        case list() if depth < _DEEPEST_REASON:
            return "; ".join(filter(None, (_reason(entry, depth + 1) for entry in value[:_MOST_REASONS])))[:_LONGEST]
        case Mapping() if depth < _DEEPEST_REASON:
            text = next(filter(None, (_reason(value.get(name), depth + 1) for name in _REASONS)), "")
            place = value.get("loc")
            place = ".".join(map(str, place[:_MOST_REASONS])) if isinstance(place, list) else ""
            return f"{place}: {text}"[:_LONGEST] if place and text else text
        case _:
            return ""


class ProviderRejected(Exception):
    """The stream holds an error in place of the rest of the reply. Never leaves the providers."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__(error.message)
        self.error = error


class ErrorKind(Enum):
    """Kind of an error, as far as the handling differs."""

    BUSY = auto()
    OUT_OF_ORDER = auto()
    KEY = auto()
    CREDIT = auto()
    MODEL = auto()
    TOO_LONG = auto()
    FILTERED = auto()
    MOVED = auto()
    NO_TOOLS = auto()
    ATTACHMENTS = auto()
    REASONING = auto()
    ROLES = auto()
    NO_SYSTEM = auto()
    TOKEN_LIMIT = auto()
    OUTPUT_LIMIT = auto()
    NO_IMAGES = auto()
    STREAM_OPTIONS = auto()
    CACHE_MARKS = auto()
    EFFORT = auto()
    NO_EFFORT = auto()
    """Neither form of EFFORT is accepted."""
    FAILED_CALL = auto()
    REQUEST = auto()


_Texts = tuple[type[ModelError], LazyText, LazyText | None]
_ATTACHED = (
    ModelRejected,
    gettext_lazy("{service} cannot read an attached image or document ({status})."),
    gettext_lazy("Leave it out, or attach it in another format."),
)
_ERRORS: dict[ErrorKind, _Texts] = {
    ErrorKind.BUSY: (ModelUnavailable, gettext_lazy("{service} is asked too much ({status})."), _LATER),
    ErrorKind.OUT_OF_ORDER: (ModelUnavailable, gettext_lazy("{service} has a problem ({status})."), _LATER),
    ErrorKind.FAILED_CALL: (
        ModelUnavailable,
        gettext_lazy("{service} cannot read the tool call of its model ({status})."),
        gettext_lazy("Ask again in other words."),
    ),
    ErrorKind.KEY: (
        ModelBarred,
        gettext_lazy("{service} does not accept the key ({status})."),
        gettext_lazy("The operator has to check {variable}: it needs a valid key that may use {model}."),
    ),
    ErrorKind.CREDIT: (
        ModelBarred,
        gettext_lazy("{service} wants to be paid first ({status})."),
        gettext_lazy("Check the account's credit and limits."),
    ),
    ErrorKind.MOVED: (
        ModelBarred,
        gettext_lazy("{service} points to another address ({status})."),
        gettext_lazy("Write the address that it has now into {variable}: nothing is sent to any other."),
    ),
    ErrorKind.MODEL: (
        ModelBarred,
        gettext_lazy("{service} does not know the model {model} ({status})."),
        gettext_lazy("Check the model name in BOT_MODEL."),
    ),
    ErrorKind.TOO_LONG: (
        ContextTooLong,
        gettext_lazy("{service} cannot read that much ({status})."),
        gettext_lazy("Start a new conversation, or send less."),
    ),
    ErrorKind.FILTERED: (
        ModelRejected,
        gettext_lazy("{service} does not take this content ({status})."),
        gettext_lazy("Put it in other words, or leave out what the service objects to."),
    ),
    ErrorKind.ATTACHMENTS: _ATTACHED,
    ErrorKind.NO_IMAGES: _ATTACHED,
}
"""Error, cause and fix of each kind; the other kinds are requests that are not accepted."""
_REQUEST: _Texts = (ModelRejected, gettext_lazy("{service} does not accept the request ({status})."), None)
_TOOL: _Texts = (
    ModelRejected,
    gettext_lazy("{service} does not accept the tool {tool} ({status})."),
    gettext_lazy("Have {tool} corrected by the operator of its server, or remove it from the profile."),
)
_NO_MODEL_THERE = gettext_lazy("Check the model name in BOT_MODEL, and the address in {variable}.")
_OVERLOADED = gettext_lazy("{service} is overloaded ({status}).")


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
    def _bare_name(self) -> str:
        """Display name without an address."""
        return self.vendor if self.own_address else gettext_lazy("The model service")

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
        proxy = find_proxy(self.address) if complaint.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED else None
        if proxy is not None:
            return self.proxy_error(proxy)
        quote = single_line(self._redact(complaint.message), _QUOTE_LIMIT)
        status = status_of(complaint)
        kind, tool = classify(complaint), ""
        kind = ErrorKind.TOO_LONG if kind is ErrorKind.OUTPUT_LIMIT and _within(complaint) else kind
        made, cause, fix = _ERRORS.get(kind, _REQUEST)
        if kind not in _ERRORS and (tool := rejected_tool(status, complaint.param, complaint.message, tools)):
            made, cause, fix = _TOOL
        elif kind is ErrorKind.MODEL and not self.own_address:
            fix = _NO_MODEL_THERE
        elif kind is ErrorKind.OUT_OF_ORDER and status == 529:
            cause = _OVERLOADED
        service = self._bare_name if made is ModelBarred else self.name
        variable = f"{self.prefix}_API_KEY" if kind is ErrorKind.KEY else self._address_variable
        values = {"service": service, "status": status, "tool": tool, "model": self.model, "variable": variable}
        error = made(*(gettext_lazy(text.message, **values) for text in (cause, fix) if text is not None))
        match error:
            case ModelUnavailable():
                error.retry_after = 0.0 if kind is ErrorKind.FAILED_CALL else retry_after(complaint.headers)
            case ModelRejected():
                error.tool = tool
        if isinstance(error, ModelBarred):  # a matter for the operator, read by everybody
            quote = _ADDRESS.sub("…", quote).replace(self._host_and_port, "…").replace(_host(self.address), "…")
        if quote and not quote.startswith("<") and isinstance(error.brief, LazyText):
            error.cause = gettext_lazy(
                "{cause}: {quote}",
                cause=error.brief.as_clause(),
                quote=quote if quote.endswith((".", "!", "?", "…")) else f"{quote}.",
            )
        return error

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

    def proxy_error(self, proxy: Proxy) -> ModelUnavailable:
        """Return the error of the environment's proxy. The HTTP library's text is left out, because the proxy's address
        may contain a password.
        """
        return ModelUnavailable(
            gettext_lazy("{service} cannot be reached through the proxy.", service=self.name),
            gettext_lazy("Check {variable}, and that the proxy lets the bot out.", variable=proxy.variable),
        )

    def closed_error(self) -> ModelUnavailable:
        """Return the error for a connection that was closed without a response."""
        return ModelUnavailable(gettext_lazy("{service} hung up before it answered.", service=self.name), _LATER)

    def silence_error(self, seconds: float, setting: str = "") -> ModelUnavailable:
        """Return the error for a service that sent nothing for `seconds`, the limit of a setting."""
        cause = gettext_lazy("{service} sent nothing for {seconds} seconds.", service=self.name, seconds=f"{seconds:g}")
        fix = gettext_lazy("Ask again in a while, or have the operator raise {setting}.", setting=setting)
        return ModelUnavailable(cause, fix if setting else _LATER)

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
        return ModelUnavailable(
            cause, gettext_lazy("Ask for less at a time, or have the operator raise MODEL_TOTAL_TIMEOUT.")
        )

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


# -------------------- kinds of errors

_LONGEST = 8_192
_DEEPEST_REASON, _MOST_REASONS = 4, 10
"""Characters of a text that are looked at: some services quote the whole request."""
_STATUS = lazy_pattern(r"[45][0-9]{2}")
_DENIED = frozenset({401, 403})
_PASSING = frozenset({408, 409, 425, 429})
_BY_STATUS = {
    **dict.fromkeys(_DENIED, ErrorKind.KEY),
    402: ErrorKind.CREDIT,
    **dict.fromkeys((404, 410), ErrorKind.MODEL),
    413: ErrorKind.TOO_LONG,
    429: ErrorKind.BUSY,
    **dict.fromkeys(_PASSING - {429}, ErrorKind.OUT_OF_ORDER),
}
_STATUS_OF_KIND = {
    "api_error": 500,
    "authentication_error": 401,
    "badrequesterror": 400,
    "billing_error": 402,
    "internalservererror": 500,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "request_too_large": 413,
    "server_error": 500,
    "timeout_error": 504,
}
"""HTTP status by type of an error event, whose own response has the status 200."""

_NAMES = {
    ErrorKind.TOO_LONG: "context_length_exceeded|string_above_max_length|request_too_large|exceed_context_size_error"
    "|contextwindowexceedederror",
    ErrorKind.CREDIT: "insufficient_quota|billing_not_active|billing_error|budget_exceeded|arrearage",  # first: 429
    ErrorKind.KEY: "invalid_api_key|authentication_error|permission_error",
    ErrorKind.MODEL: "model_not_found|not_found_error|model_decommissioned|invalid_model|deploymentnotfound",
    ErrorKind.FILTERED: "content_filter|content_policy_violation|invalid_prompt|bio_policy|cyber_policy"
    "|misalignment_policy_violation|image_content_policy_violation",
    ErrorKind.REASONING: "invalid_encrypted_content",
    ErrorKind.BUSY: "rate_limit_exceeded|rate_limit_error",
    ErrorKind.OUT_OF_ORDER: "server_is_overloaded|server_error",
    ErrorKind.FAILED_CALL: "tool_use_failed|tool_call_parse_error|output_parse_failed",
    ErrorKind.ATTACHMENTS: "image_parse_error|invalid_base64_image|invalid_image|invalid_image_format|invalid_image_url"
    "|unsupported_file",
}
_NAMED = {name: kind for kind, names in _NAMES.items() for name in names.split("|")}
"""Codes and types of OpenAI, Anthropic, Groq, llama.cpp and LiteLLM."""
_PRECISE = _NAMES.keys() - {ErrorKind.KEY, ErrorKind.BUSY, ErrorKind.OUT_OF_ORDER}
"""Kinds whose codes are unambiguous. Other codes stand for several problems, told apart by the message."""


_WORDS_ANYWHERE = {
    # Permanent errors, for which some services use the status 429.
    ErrorKind.CREDIT: lazy_pattern(r"(?i)insufficient[_ ](?:quota|balance)|balance is insuff|(?:hard|spending) limit"),
    # Also where a server breaks down over them.
    ErrorKind.ATTACHMENTS: lazy_pattern(
        r"(?i)could not process (?:image|pdf)|unable to process input image|image (?:exceeds|was specified using)"
        r"|image dimensions exceed|pdf (?:specified )?(?:was not valid|is password.protected|pages may be provided)"
        r"|many-image requests|(?:unsupported|invalid|corrupted) (?:image|file data|base64.{0,20}image)"
        r"|failed to (?:load|process|decode|fetch) (?:the )?image|(?:file|pdf) inputs? (?:is|are) not supported"
        r"|unknown variant `file`|does not support (?:files?|pdfs?)\b"
    ),
    # More tokens than the account may send in a minute, which no wait makes fewer: OpenAI says it with 413 or 429.
    ErrorKind.TOO_LONG: lazy_pattern(r"(?i)\brequest too large\b"),
}
"""Messages that are recognised with any status."""

_IMAGE = r"(?:image|vision|visual|multi-?modal|modalit|mmproj|picture)"
_NO = lazy_pattern(
    r"(?:\bnot?\b|n't|\bonly\b|un(?:supported|expected|known|recognized)|disabled|missing|without|must be|invalid"
    r"|cannot|lack|at most 0)"
).pattern
_NO_IMAGES = lazy_pattern(
    rf"(?is){_IMAGE}.{{0,80}}{_NO}|{_NO}.{{0,80}}{_IMAGE}|{_NO}.{{0,30}}content|content.{{0,60}}{_NO}.{{0,30}}(?:str|text)"
    r"|content.{0,40}should be|only (?:\w+ )?text|text.(?:input.)?only|expect(?:s|ed) .{0,20}(?:str|text)|valid string"
    r"|untagged enum|other than text|str type expected|concatenate str"
    r"|(?:require|need|use |select).{0,25}(?:vision|multi-?modal|vlm)"
)
"""A refusal of every image, in the answer to a request with images."""
_NO_VISION = lazy_pattern(
    rf"(?is)model\b.{{0,40}}{_NO}.{{0,12}}(?:image support|images(?:[.,;]|\Z)|.{{0,18}}(?:vision|multi-?modal|image i))"
)
"""The same, also if these images seem to be the reason."""
_ONE_IMAGE = lazy_pattern(
    r"(?i)exceed|dimension|too (?:large|many|small|big)|corrupt|decod|download|fetch|format|base64|media.?type|mime"
    r"|pixel|identify|https|\b(?:png|jpe?g)\b|(?:\b|\d)[KMG]B\b|\bbytes\b|(?:at most|maximum|limit|up to)\D{0,20}[1-9]"
    r"|(?:un|not )able to|could not|more than|malformed|failed to (?!deser)"
)
"""A refusal of these images: others may be accepted."""
_OF_IMAGES = frozenset({ErrorKind.REQUEST, ErrorKind.MODEL, ErrorKind.OUT_OF_ORDER, ErrorKind.CACHE_MARKS})
"""Kinds that a refusal of images may be taken for."""

_MAX_TOKENS = "max[_ ]?(?:(?:completion|output)[_ ]?)?tokens"
_WORDS: dict[ErrorKind, re.Pattern[str]] = {
    ErrorKind.OUTPUT_LIMIT: lazy_pattern(
        rf"(?i){_MAX_TOKENS}\S*(?: or \S+)? (?:is )?too (?:large|high)|range of {_MAX_TOKENS}"
        rf"|{_MAX_TOKENS}(?:: \d+ > \d+|\W.{{0,50}}(?:must be|[<=]=|less than|at most|range|between|above"
        r"|exceeds (?:the|limit)|not exceed|greater than|limited to))"
        r"|supports? (?:at most|up to|a maximum of) \d+ (?:completion|output) tokens"
        r"|\d in the completion|number of output tokens|maximum tokens you requested exceeds"
    ),
    ErrorKind.STREAM_OPTIONS: lazy_pattern(r"(?i)stream_?options|include_usage|include_obfuscation|prompt_cache_key"),
    ErrorKind.EFFORT: lazy_pattern(
        r"(?i)reasoning[_.]?effort|output_config|\beffort\b|thinking\.(?:type|budget|enabled|disabled)|budget_tokens"
        r"|thinking_?budget|only works in thinking|\badaptive\b|reasoning is mandatory|think value|enable_thinking"
        r"|(?:not|n't) support (?:thinking|reasoning)\b|\bthinking\b.{0,20}(?:not supported|extra inputs)"
    ),
    ErrorKind.TOO_LONG: lazy_pattern(
        r"(?i)prompt is too long|ContextWindowExceeded"
        r"|exceeds? (?:the |your )?(?:context limit|available context|model'?s? context)"
        r"|(?:context (?:window|length|size)|max(?:imum)? (?:model|context|prompt) length)"
        r"|maximum number of (?:input )?tokens|too many (?:input )?tokens"
        r"|reduce the length of the (?:messages|prompt|input)"
        r"|(?:input|prompt) is too long|prompt exceeds max(?:imum)? length|exceeded model token limit"  # hosts' own
        r"|range of input length|input token count.{0,40}exceeds|max_new_tokens`? must be <="
        r"|\binputs`? must have less|context the overflows|longer than the model's context"
    ),
    ErrorKind.CREDIT: lazy_pattern(r"(?i)credit balance|current quota|insufficient (?:credit|fund)|key limit|unpaid"),
    ErrorKind.KEY: lazy_pattern(
        r"(?i)api[ -]?key (?:is |was |has )?(?:not (?:valid|found)|invalid|expired|missing)"
        r"|(?:invalid|incorrect|expired|missing) api[ -]?key"
    ),
    ErrorKind.REASONING: lazy_pattern(
        r"(?i)encrypted[ _]content|invalid `?signature`? in `?thinking|(?:redacted_)?thinking`? blocks?"
        r"|item of type 'reasoning'|'reasoning' was provided"
        r"|reasoning(?:_content|_details)?\b.{0,80}(?:not (?:permitted|supported|allowed)|unsupported|unexpected)"
        r"|(?:unknown|unrecognized|unexpected|unsupported|extra)\b.{0,80}\breasoning(?:_content|_details)?\b"
    ),
    ErrorKind.NO_TOOLS: lazy_pattern(
        r"(?i)(?:not|n't) support (?:the use of )?(?:tools?|functions?)\b|requires --jinja|\btools: extra"
        r"|(?:tools?|function)(?: (?:use|calling|calls))?\S* (?:is|are|has) (?:not |un)(?:been )?(?:sup|enab|avail)"
        r"|(?:unrecognized|unknown|unsupported) (?:request )?(?:arg|para|field|name).{0,40}\btools\b(?![.\[])"
        r"|no endpoints found that support tool use"
        r"|\"?auto\"? tool choice requires"
    ),
    ErrorKind.ROLES: lazy_pattern(
        r"(?i)roles must alternate|system message must be (?:at the beginning|the first)|multiple system messages"
        r"|must start with a user message|unexpected role"
    ),
    ErrorKind.NO_SYSTEM: lazy_pattern(
        r"(?i)(?:system|developer) (?:role|messages?|prompts?|instructions?) (?:is |are )?not "
        r"(?:supported|enabled|allowed)"
    ),
    ErrorKind.TOKEN_LIMIT: lazy_pattern(
        r"(?i)max_tokens\b.{0,60}(?:not (?:supported|permitted|allowed)|unsupported|max_completion_tokens)"
        r"|(?:unknown|unrecognized|unexpected|not support)\b.{0,40}\bmax_tokens\b"
    ),
    ErrorKind.CACHE_MARKS: lazy_pattern(
        r"(?i)cache_?(?:control|point)|prompt.?caching|content.{0,60}(?:must|should) be (?:a |of type )?(?:valid )?str"
    ),
    ErrorKind.FAILED_CALL: lazy_pattern(
        r"(?i)failed to call a function|(?:failed|unable|error|could not).{0,20}pars\w+.{0,30}(?:tool|function) call"
        r"|(?:tool|function) call (?:validation|parsing) failed|failed_generation|error parsing tool call"
        r"|failed to parse (?:tool|input)"
    ),
    ErrorKind.MODEL: lazy_pattern(
        r"(?i)(?:invalid|unknown|not a valid) model\b(?! (?:output|response))|model ident\w+ is invalid|no models load"
        r"|\bmodel(?: \S{1,100})? (?:(?:was |is )?not found|(?:does )?not exist|has been de(?:commission|precat)ed)"
    ),
    ErrorKind.FILTERED: lazy_pattern(r"(?i)content (?:management|filter(?:ing)?|usage) policy|flagged as"),
}
_OF_TEMPLATES = (ErrorKind.NO_TOOLS, ErrorKind.ROLES, ErrorKind.NO_SYSTEM, ErrorKind.FAILED_CALL)
"""Kinds that Ollama and llama.cpp report with the status 500."""


def classify(error: ProviderError) -> ErrorKind:
    """Return the kind of an error."""
    named = _NAMED.get(error.code.lower()) or _NAMED.get(error.kind.lower())
    status = status_of(error)
    if 300 <= status < 400:
        return ErrorKind.MOVED
    if named in _PRECISE:
        return named
    kind = _in_words(error.details, status)
    denied = ErrorKind.KEY if status in _DENIED else None
    return (
        kind
        or denied
        or named
        or _BY_STATUS.get(status)
        or (ErrorKind.REQUEST if status < 500 else ErrorKind.OUT_OF_ORDER)
    )


def classify_for_images(error: ProviderError) -> ErrorKind:
    """Return the kind of an error of a request with images: NO_IMAGES if the model sees none, ATTACHMENTS if these
    images may be the reason.
    """
    kind = classify(error)
    if kind not in _OF_IMAGES:
        return kind
    text = error.details
    if _NO_VISION.search(text) or (_NO_IMAGES.search(text) and not _ONE_IMAGE.search(text)):
        return ErrorKind.NO_IMAGES
    return ErrorKind.ATTACHMENTS if kind is ErrorKind.REQUEST else kind


_NUMBERS = lazy_pattern(r"(?<![\w.])\d{2,7}(?![\w.]*\w)")


def accepted_tokens(error: ProviderError, asked: int) -> int:
    """Return the longest reply that an error leaves room for, in tokens, less than `asked`."""
    named = [int(number) // (2 if _within(error) else 1) for number in _NUMBERS.findall(error.message.replace(",", ""))]
    return max((number for number in named if asked // 64 < number < asked), default=asked // 2)


def _within(error: ProviderError) -> bool:
    return re.search(r"\b(?:context|prompt|inputs|messages)\b", error.message.lower()) is not None


def _in_words(message: str, status: int) -> ErrorKind | None:
    kinds = _OF_TEMPLATES if status == 500 else _WORDS if status < 500 and status not in _PASSING else ()
    telling = {kind: _WORDS[kind] for kind in kinds}
    for problem, words in (*_WORDS_ANYWHERE.items(), *telling.items()):
        if words.search(message):
            return problem
    return None


def status_of(error: ProviderError) -> int:
    """HTTP's status, of an event within a stream the one that an answer would have had."""
    if error.status >= 300:
        return error.status
    if _STATUS.fullmatch(error.code):  # vLLM puts it there
        return int(error.code)
    return (_STATUS_OF_KIND.get(error.kind.lower()) or _STATUS_OF_KIND.get(error.code.lower())) or 500


def _text(error: Mapping[str, Any], name: str) -> str:
    value = error.get(name)
    return str(value)[:_LONGEST] if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
