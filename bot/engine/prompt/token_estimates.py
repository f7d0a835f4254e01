"""Token estimates of model requests, corrected by the services' counts. Use one for all turns of a process."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bot.domain.completions import Capabilities, ModelLimits, ModelRequest
from bot.domain.messages import FilePart, ImagePart, Message, Part, StoredFile, TextPart, ToolCall, ToolResult
from bot.domain.tools import Tool

_ASCII_PER_TOKEN = 4
"""ASCII characters a token: English prose has somewhat more, code and JSON fewer."""
_OTHERS_PER_TOKEN = 1.5
"""Other characters a token: some languages need more than a token for each, others less than half."""
_MESSAGE_TOKENS = 4
_IMAGE_TOKENS = 1_500
_DOCUMENT_BYTES_PER_TOKEN = 25
"""A PDF page has about 2,000 tokens, as text and image, and about 50 KB."""
_MAX_DOCUMENT_TOKENS = 40_000
"""Highest estimate of a document: large ones are scans, with few pages for their size."""
_RESERVE = 0.05
"""Share of the window that is kept free for estimation errors."""
_MIN_RATIO, _MAX_RATIO = 0.5, 4.0
"""Accepted range of counted by estimated tokens. A service that reports less has truncated the request or omits cached
tokens: accepting that would let requests grow further.
"""
_WEIGHT = 0.3
_SAFETY_FACTOR, _RECOVERY_FACTOR, _SMALLEST = 0.9, 1.02, 2_000.0
_MIN_ESTIMATE = 200
"""Smaller requests say little about larger ones."""
_MAX_MODELS = 100


@dataclass(frozen=True, slots=True)
class _Observations:
    """Observations of a model: the ratio of counts to estimates, and the smallest estimate that was rejected as too
    long; 0 if there is none.
    """

    ratio: float = 1.0
    too_long: float = 0.0


class Estimates:
    """Observations of the models, by name."""

    def __init__(self) -> None:
        self._observations: OrderedDict[str, _Observations] = OrderedDict()

    def tokens(self, model: str, estimate: float) -> int:
        """Return an estimate in this model's tokens."""
        return round(estimate * self._find(model).ratio)

    def estimate(self, model: str, tokens: float) -> float:
        """Return this model's tokens as an estimate."""
        return tokens / self._find(model).ratio

    def room(self, model: str, capabilities: Capabilities, limits: ModelLimits) -> int:
        """Return the most tokens of a request: the window less the reply and a reserve, and below the last rejected
        size.
        """
        window, observed = capabilities.context_tokens, self._find(model)
        room = round(window * (1 - _RESERVE)) - reply_limits(limits, capabilities).max_tokens
        return min(room, round(observed.too_long * observed.ratio * _SAFETY_FACTOR)) if observed.too_long else room

    def record_count(self, model: str, estimate: float, tokens: int) -> None:
        """Learn from the service's count of input tokens; 0 if it does not count."""
        if estimate < _MIN_ESTIMATE or tokens < estimate * _MIN_RATIO:
            return
        observed = self._find(model)
        ratio = observed.ratio + _WEIGHT * (min(_MAX_RATIO, tokens / estimate) - observed.ratio)
        # The limit rises slowly: the request may have been rejected for another reason.
        self._remember(
            model, _Observations(ratio, observed.too_long * _RECOVERY_FACTOR if observed.too_long > estimate else 0.0)
        )

    def record_rejection(self, model: str, estimate: float) -> None:
        """Learn that the service rejected a request of this size as too long."""
        observed = self._find(model)
        self._remember(model, replace(observed, too_long=max(_SMALLEST, min(observed.too_long or estimate, estimate))))

    def _find(self, model: str) -> _Observations:
        return self._observations.get(model, _Observations())

    def _remember(self, model: str, observed: _Observations) -> None:
        self._observations[model] = observed
        self._observations.move_to_end(model)
        while len(self._observations) > _MAX_MODELS:
            self._observations.popitem(last=False)


def reply_limits(limits: ModelLimits, capabilities: Capabilities) -> ModelLimits:
    """Return the limits of a reply that leaves half of the window to the request. Services reject requests that do not
    fit together with the longest reply.
    """
    return replace(limits, max_tokens=min(limits.max_tokens, capabilities.context_tokens // 2))


def truncate_to_tokens(text: str, tokens: float) -> str:
    """Return the beginning of a text, within `tokens` estimated tokens."""
    while (size := estimate_text(text)) > tokens:
        text = text[: int(len(text) * tokens / size)]
    return text


def is_text(request: ModelRequest) -> bool:
    """Return True if the request holds text only: other requests give no ratio of count to estimate."""
    parts = (part for message in request.messages for part in message.parts)
    return not any(_has_files(part) for part in parts)


def estimate_messages(messages: Iterable[Message]) -> float:
    """Return the estimated tokens of messages."""
    return sum(_MESSAGE_TOKENS + sum(map(_of_part, message.parts)) for message in messages)


def estimate_tools(tools: Iterable[Tool]) -> float:
    """Return the estimated tokens of tool definitions."""
    return sum(
        estimate_text(tool.description) + estimate_text(_json(tool.input_schema)) + 3 * _MESSAGE_TOKENS
        for tool in tools
    )


def estimate_text(text: str) -> float:
    """Return the estimated tokens of a text. Deterministic, so that excerpts are stable."""
    letters = len(text) if text.isascii() else len(text.encode("ascii", "ignore"))
    return letters / _ASCII_PER_TOKEN + (len(text) - letters) / _OTHERS_PER_TOKEN


def _of_part(part: Part) -> float:
    match part:
        case TextPart(text):
            return estimate_text(text)
        case ImagePart():
            return _IMAGE_TOKENS
        case FilePart(data=data):
            return min(_MAX_DOCUMENT_TOKENS, len(data) / _DOCUMENT_BYTES_PER_TOKEN)
        case ToolCall():
            return _MESSAGE_TOKENS + estimate_text(part.name) + estimate_text(part.unreadable or _json(part.arguments))
        case ToolResult(parts=parts):
            return _MESSAGE_TOKENS + (sum(map(_of_part, parts)) if parts else estimate_text(_json(part.structured)))
        case StoredFile():
            return _MESSAGE_TOKENS


def _has_files(part: Part) -> bool:
    if isinstance(part, ToolResult):
        return any(map(_has_files, part.parts))
    return isinstance(part, ImagePart | FilePart)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=dict)
