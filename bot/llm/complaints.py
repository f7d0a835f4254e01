"""What a service says against a request, and what that means whoever says it.

Called by `service` and by the provider modules, which find the complaint in an answer with an error status or in an
event of the stream. The vendors' codes come first, then their types, then the status; what is only said in words is
recognised by the words, since servers that speak the vendors' languages have statuses and codes of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any


@dataclass(frozen=True, slots=True)
class Complaint:
    """What a service has said, in its words and untrusted. `status` is 200 for an event within a stream; `kind` is
    what the vendors call `type`.
    """

    status: int
    message: str = ""
    code: str = ""
    kind: str = ""
    param: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, status: int, body: object, headers: Mapping[str, str] | None = None) -> Complaint:
        """The complaint in a body, or in the error object of one. Nothing in there need be as the vendors have it."""
        headers = headers or {}
        if isinstance(body, list) and len(body) == 1:  # Gemini's, in OpenAI's language
            body = body[0]
        error = body.get("error") or body if isinstance(body, Mapping) else body
        if not isinstance(error, Mapping):
            return cls(status, error[:_LONGEST] if isinstance(error, str) else "", headers=headers)
        # `detail` is FastAPI's, which many servers are made with.
        message = _text(error, "message") or _text(error, "detail")
        metadata = error.get("metadata")
        if isinstance(metadata, Mapping) and (raw := _text(metadata, "raw")):  # OpenRouter: what the model's host said
            message = f"{message}: {raw}"
        return cls(status, message, _text(error, "code"), _text(error, "type"), _text(error, "param"), headers)


class ServiceComplained(Exception):
    """The stream holds an error in place of the rest of the reply. Never leaves the providers."""

    def __init__(self, complaint: Complaint) -> None:
        super().__init__(complaint.message)
        self.complaint = complaint


class Problem(Enum):
    """What is wrong, as far as it makes a difference."""

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


def problem_of(complaint: Complaint) -> Problem:
    """What a complaint is about."""
    named = _NAMED.get(complaint.code.lower()) or _NAMED.get(complaint.kind.lower())
    status = status_of(complaint)
    if 300 <= status < 400:
        return Problem.MOVED
    if named in _PRECISE:
        return named
    found = _in_words(complaint.message, status)
    return found or named or _BY_STATUS.get(status) or (Problem.REQUEST if status < 500 else Problem.OUT_OF_ORDER)


def _in_words(message: str, status: int) -> Problem | None:
    telling = _WORDS if status < 500 and status not in _PASSING else ()
    for problem, words in (*_WORDS_ANYWHERE, *telling):
        if words.search(message):
            return problem
    return None


def status_of(complaint: Complaint) -> int:
    """HTTP's status, of an event within a stream the one that an answer would have had."""
    if complaint.status >= 300:
        return complaint.status
    if _STATUS.fullmatch(complaint.code):  # vLLM puts it there
        return int(complaint.code)
    return _of_kind(complaint) or 500


def _of_kind(complaint: Complaint) -> int | None:
    return _STATUS_OF_KIND.get(complaint.kind.lower()) or _STATUS_OF_KIND.get(complaint.code.lower())


def _text(error: Mapping[str, Any], name: str) -> str:
    value = error.get(name)
    return str(value)[:_LONGEST] if isinstance(value, (str, int)) and not isinstance(value, bool) else ""


_LONGEST = 8_192
"""Characters of a text that are looked at: some services quote the whole request."""
_STATUS = re.compile(r"[45][0-9]{2}")
_PASSING = frozenset({408, 409, 425, 429})
_BY_STATUS = {
    401: Problem.KEY,
    402: Problem.CREDIT,
    403: Problem.KEY,
    404: Problem.MODEL,
    413: Problem.TOO_LONG,
    429: Problem.BUSY,
    **dict.fromkeys(_PASSING - {429}, Problem.OUT_OF_ORDER),
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
"""What the type of an error event means: its own response says 200."""

_NAMED = {
    # OpenAI, and those who speak its language
    "context_length_exceeded": Problem.TOO_LONG,
    "string_above_max_length": Problem.TOO_LONG,
    "exceed_context_size_error": Problem.TOO_LONG,  # llama.cpp
    "contextwindowexceedederror": Problem.TOO_LONG,  # LiteLLM
    "insufficient_quota": Problem.CREDIT,  # comes as 429, but waiting does not help
    "billing_not_active": Problem.CREDIT,
    "invalid_api_key": Problem.KEY,
    "model_not_found": Problem.MODEL,
    "content_filter": Problem.FILTERED,
    "content_policy_violation": Problem.FILTERED,
    "invalid_prompt": Problem.FILTERED,
    "bio_policy": Problem.FILTERED,
    "misalignment_policy_violation": Problem.FILTERED,
    "image_content_policy_violation": Problem.FILTERED,
    "cyber_policy": Problem.FILTERED,
    "invalid_encrypted_content": Problem.REASONING,
    "rate_limit_exceeded": Problem.BUSY,
    "server_is_overloaded": Problem.OUT_OF_ORDER,
    "server_error": Problem.OUT_OF_ORDER,
    "image_parse_error": Problem.ATTACHMENTS,
    "invalid_base64_image": Problem.ATTACHMENTS,
    "invalid_image": Problem.ATTACHMENTS,
    "invalid_image_format": Problem.ATTACHMENTS,
    "invalid_image_url": Problem.ATTACHMENTS,
    "unsupported_file": Problem.ATTACHMENTS,
    # Anthropic
    "authentication_error": Problem.KEY,
    "permission_error": Problem.KEY,
    "billing_error": Problem.CREDIT,
    "not_found_error": Problem.MODEL,
    "request_too_large": Problem.TOO_LONG,
    "rate_limit_error": Problem.BUSY,
}
_PRECISE = frozenset(
    {Problem.TOO_LONG, Problem.CREDIT, Problem.FILTERED, Problem.REASONING, Problem.MODEL, Problem.ATTACHMENTS}
)
"""What a name says for sure. Other names are given to several problems, which the words tell apart."""

_WORDS_ANYWHERE: tuple[tuple[Problem, re.Pattern[str]], ...] = (
    # What no wait helps against, though some make 429 of it.
    (
        Problem.CREDIT,
        re.compile(r"\binsufficient_quota\b|insufficient balance", re.IGNORECASE),
    ),
    # Also where a server breaks down over them.
    (
        Problem.ATTACHMENTS,
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
    (Problem.TOO_LONG, re.compile(r"\brequest too large\b", re.IGNORECASE)),
)
"""What is recognised whatever the status."""

_WORDS: tuple[tuple[Problem, re.Pattern[str]], ...] = (
    (
        Problem.TOO_LONG,
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
        Problem.CREDIT,
        re.compile(r"credit balance|exceeded your current quota|insufficient (?:credit|fund)", re.IGNORECASE),
    ),
    (
        Problem.REASONING,
        re.compile(
            r"encrypted[ _]content|invalid `?signature`? in `?thinking|(?:redacted_)?thinking`? blocks?"
            r"|item of type 'reasoning'|'reasoning' was provided"
            r"|reasoning(?:_content|_details)?\b.{0,80}(?:not (?:permitted|supported|allowed)|unsupported|unexpected)"
            r"|(?:unknown|unrecognized|unexpected|unsupported|extra)\b.{0,80}\breasoning(?:_content|_details)?\b",
            re.IGNORECASE,
        ),
    ),
    (
        Problem.NO_TOOLS,
        re.compile(
            r"(?:does not|doesn't|do not|not) support (?:the use of )?(?:tools?|functions?)\b"
            r"|(?:tool|function) (?:use|calling|calls)\S* (?:is|are) not (?:supported|enabled|available)"
            r"|no endpoints found that support tool use"
            r"|\"?auto\"? tool choice requires",
            re.IGNORECASE,
        ),
    ),
    (
        Problem.ROLES,
        re.compile(
            r"roles must alternate|system message must be (?:at the beginning|the first)|multiple system messages"
            r"|must start with a user message",
            re.IGNORECASE,
        ),
    ),
    (
        Problem.TOKEN_LIMIT,
        re.compile(r"max_tokens\b.{0,60}(?:not supported|unsupported|max_completion_tokens)", re.IGNORECASE),
    ),
    (Problem.FILTERED, re.compile(r"content (?:management|filter(?:ing)?|usage) policy|flagged as", re.IGNORECASE)),
)
