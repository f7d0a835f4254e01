"""Classification of the errors that services report.

An error is an answer with an error status or an event of the stream. The vendors' codes come first, then their types,
then the status. The message is searched too, because compatible servers have statuses and codes of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any


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

    @classmethod
    def from_response(cls, status: int, body: object, headers: Mapping[str, str] | None = None) -> ProviderError:
        """Parse the error in a response body. Missing and invalid fields are empty."""
        headers = headers or {}
        if isinstance(body, list) and len(body) == 1:  # Gemini's, in OpenAI's language
            body = body[0]
        error = body.get("error") or body if isinstance(body, Mapping) else body
        if not isinstance(error, Mapping):
            return cls(status, error[:_LONGEST] if isinstance(error, str) else "", headers=headers)
        # `detail` is FastAPI's, which many servers are made with.
        message = _text(error, "message") or _text(error, "detail")
        metadata = error.get("metadata")
        if isinstance(metadata, Mapping) and (
            raw := _text(metadata, "raw")
        ):  # OpenRouter: the error of the model's host
            message = f"{message}: {raw}"
        return cls(status, message, _text(error, "code"), _text(error, "type"), _text(error, "param"), headers)


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
    TOKEN_LIMIT = auto()
    REQUEST = auto()


def classify(error: ProviderError) -> ErrorKind:
    """Return the kind of an error."""
    named = _NAMED.get(error.code.lower()) or _NAMED.get(error.kind.lower())
    status = status_of(error)
    if 300 <= status < 400:
        return ErrorKind.MOVED
    if named in _PRECISE:
        return named
    kind = _in_words(error.message, status)
    return kind or named or _BY_STATUS.get(status) or (ErrorKind.REQUEST if status < 500 else ErrorKind.OUT_OF_ORDER)


def _in_words(message: str, status: int) -> ErrorKind | None:
    telling = _WORDS if status < 500 and status not in _PASSING else ()
    for problem, words in (*_WORDS_ANYWHERE, *telling):
        if words.search(message):
            return problem
    return None


def status_of(error: ProviderError) -> int:
    """HTTP's status, of an event within a stream the one that an answer would have had."""
    if error.status >= 300:
        return error.status
    if _STATUS.fullmatch(error.code):  # vLLM puts it there
        return int(error.code)
    return _of_kind(error) or 500


def _of_kind(error: ProviderError) -> int | None:
    return _STATUS_OF_KIND.get(error.kind.lower()) or _STATUS_OF_KIND.get(error.code.lower())


def _text(error: Mapping[str, Any], name: str) -> str:
    value = error.get(name)
    return str(value)[:_LONGEST] if isinstance(value, (str, int)) and not isinstance(value, bool) else ""


_LONGEST = 8_192
"""Characters of a text that are looked at: some services quote the whole request."""
_STATUS = re.compile(r"[45][0-9]{2}")
_PASSING = frozenset({408, 409, 425, 429})
_BY_STATUS = {
    401: ErrorKind.KEY,
    402: ErrorKind.CREDIT,
    403: ErrorKind.KEY,
    404: ErrorKind.MODEL,
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

_NAMED = {
    # OpenAI and compatible services
    "context_length_exceeded": ErrorKind.TOO_LONG,
    "string_above_max_length": ErrorKind.TOO_LONG,
    "exceed_context_size_error": ErrorKind.TOO_LONG,  # llama.cpp
    "contextwindowexceedederror": ErrorKind.TOO_LONG,  # LiteLLM
    "insufficient_quota": ErrorKind.CREDIT,  # comes as 429, but waiting does not help
    "billing_not_active": ErrorKind.CREDIT,
    "invalid_api_key": ErrorKind.KEY,
    "model_not_found": ErrorKind.MODEL,
    "content_filter": ErrorKind.FILTERED,
    "content_policy_violation": ErrorKind.FILTERED,
    "invalid_prompt": ErrorKind.FILTERED,
    "bio_policy": ErrorKind.FILTERED,
    "misalignment_policy_violation": ErrorKind.FILTERED,
    "image_content_policy_violation": ErrorKind.FILTERED,
    "cyber_policy": ErrorKind.FILTERED,
    "invalid_encrypted_content": ErrorKind.REASONING,
    "rate_limit_exceeded": ErrorKind.BUSY,
    "server_is_overloaded": ErrorKind.OUT_OF_ORDER,
    "server_error": ErrorKind.OUT_OF_ORDER,
    "image_parse_error": ErrorKind.ATTACHMENTS,
    "invalid_base64_image": ErrorKind.ATTACHMENTS,
    "invalid_image": ErrorKind.ATTACHMENTS,
    "invalid_image_format": ErrorKind.ATTACHMENTS,
    "invalid_image_url": ErrorKind.ATTACHMENTS,
    "unsupported_file": ErrorKind.ATTACHMENTS,
    # Anthropic
    "authentication_error": ErrorKind.KEY,
    "permission_error": ErrorKind.KEY,
    "billing_error": ErrorKind.CREDIT,
    "not_found_error": ErrorKind.MODEL,
    "request_too_large": ErrorKind.TOO_LONG,
    "rate_limit_error": ErrorKind.BUSY,
}
_PRECISE = frozenset(
    {
        ErrorKind.TOO_LONG,
        ErrorKind.CREDIT,
        ErrorKind.FILTERED,
        ErrorKind.REASONING,
        ErrorKind.MODEL,
        ErrorKind.ATTACHMENTS,
    }
)
"""Kinds whose codes are unambiguous. Other codes stand for several problems, told apart by the message."""

_WORDS_ANYWHERE: tuple[tuple[ErrorKind, re.Pattern[str]], ...] = (
    # Permanent errors, for which some services use the status 429.
    (
        ErrorKind.CREDIT,
        re.compile(r"\binsufficient_quota\b|insufficient balance", re.IGNORECASE),
    ),
    # Also where a server breaks down over them.
    (
        ErrorKind.ATTACHMENTS,
        re.compile(
            # Anthropic, then OpenAI
            r"could not process (?:image|pdf)|image (?:exceeds|was specified using)|image dimensions exceed"
            r"|pdf (?:specified )?(?:was not valid|is password.protected|pages may be provided)|many-image requests"
            r"|(?:unsupported|invalid|corrupted) (?:image|file data|base64.{0,20}image)"
            # vLLM, Ollama, llama.cpp, OpenRouter, DeepSeek
            r"|at most 0 image|is not a multimodal model|missing data required for image"
            r"|failed to (?:load|process) image|image input is not supported"
            r"|(?:image|file|vision) inputs? (?:is|are) not supported|support image inputs?"
            r"|unknown variant `(?:image_url|file)`|does not support (?:images?|vision|files?|pdfs?)\b",
            re.IGNORECASE,
        ),
    ),
    # More tokens than the account may send in a minute, which no wait makes fewer: OpenAI says it with 413 or 429.
    (ErrorKind.TOO_LONG, re.compile(r"\brequest too large\b", re.IGNORECASE)),
)
"""Messages that are recognised with any status."""

_WORDS: tuple[tuple[ErrorKind, re.Pattern[str]], ...] = (
    (
        ErrorKind.TOO_LONG,
        re.compile(
            r"prompt is too long|ContextWindowExceeded"
            r"|exceeds? (?:the |your )?(?:context limit|available context|model'?s? context)"
            r"|(?:context (?:window|length|size)|max(?:imum)? (?:model|context|prompt) length)"
            r"|maximum number of (?:input )?tokens|too many (?:input )?tokens"
            r"|reduce the length of the (?:messages|prompt|input)"
            r"|(?:input|prompt) is too long|prompt exceeds max(?:imum)? length|exceeded model token limit"  # hosts' own
            r"|range of input length|input token count.{0,40}exceeds|max_new_tokens`? must be <="
            r"|\binputs`? must have less|context the overflows|longer than the model's context",
            re.IGNORECASE,
        ),
    ),
    (
        ErrorKind.CREDIT,
        re.compile(r"credit balance|exceeded your current quota|insufficient (?:credit|fund)", re.IGNORECASE),
    ),
    (
        ErrorKind.REASONING,
        re.compile(
            r"encrypted[ _]content|invalid `?signature`? in `?thinking|(?:redacted_)?thinking`? blocks?"
            r"|item of type 'reasoning'|'reasoning' was provided"
            r"|reasoning(?:_content|_details)?\b.{0,80}(?:not (?:permitted|supported|allowed)|unsupported|unexpected)"
            r"|(?:unknown|unrecognized|unexpected|unsupported|extra)\b.{0,80}\breasoning(?:_content|_details)?\b",
            re.IGNORECASE,
        ),
    ),
    (
        ErrorKind.NO_TOOLS,
        re.compile(
            r"(?:does not|doesn't|do not|not) support (?:the use of )?(?:tools?|functions?)\b"
            r"|(?:tool|function) (?:use|calling|calls)\S* (?:is|are) not (?:supported|enabled|available)"
            r"|no endpoints found that support tool use"
            r"|\"?auto\"? tool choice requires",
            re.IGNORECASE,
        ),
    ),
    (
        ErrorKind.ROLES,
        re.compile(
            r"roles must alternate|system message must be (?:at the beginning|the first)|multiple system messages"
            r"|must start with a user message",
            re.IGNORECASE,
        ),
    ),
    (
        ErrorKind.TOKEN_LIMIT,
        re.compile(r"max_tokens\b.{0,60}(?:not supported|unsupported|max_completion_tokens)", re.IGNORECASE),
    ),
    (ErrorKind.FILTERED, re.compile(r"content (?:management|filter(?:ing)?|usage) policy|flagged as", re.IGNORECASE)),
)
