"""How many tokens a request takes: estimated, since each model counts in its own way, and corrected by what its service
has counted.

Called by `prompt_builder`. One for all turns of a process.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bot.domain.completions import Capabilities, ModelLimits, ModelRequest
from bot.domain.messages import FilePart, ImagePart, Message, Part, StoredFile, TextPart, ToolCall, ToolResult
from bot.domain.tools import Tool

_LETTERS_A_TOKEN = 4
"""Of text in ASCII: English prose has somewhat more, code and JSON somewhat fewer."""
_OTHERS_A_TOKEN = 1.5
"""Of all other text: some languages take more than a token for each character, others less than half of one."""
_A_MESSAGE = 4
_AN_IMAGE = 1_500
_BYTES_OF_DOCUMENT_A_TOKEN = 25
"""A page takes some 2,000 tokens, as text and as an image, and has some 50 KB."""
_A_DOCUMENT = 40_000
"""At most: large documents are scans, with few pages for their size."""
_SPARE = 0.05
"""Of the window, for what the estimate leaves out."""
_LEAST, _MOST = 0.5, 4.0
"""Between these a count says something. A service that reports less has cut the request, or leaves out what it had in
its cache: taken for the truth, that would let requests grow until it cuts more.
"""
_WEIGHT = 0.3
_BELOW, _DARE, _SMALLEST = 0.9, 1.02, 2_000.0
_FEWEST = 200
"""Smaller requests say little about larger ones."""
_REMEMBERED = 100


@dataclass(frozen=True, slots=True)
class _Known:
    """What a model's service has shown: how its counts compare with the estimate, and the smallest request, as
    estimated, that was too long for it; 0 if none was.
    """

    ratio: float = 1.0
    too_long: float = 0.0


class Estimates:
    """What is known of the models, by their names."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def tokens(self, model: str, estimate: float) -> int:
        """What an estimate comes to in this model's own tokens."""
        return round(estimate * self._of(model).ratio)

    def estimate(self, model: str, tokens: float) -> float:
        """The estimate that comes to so many of this model's own tokens."""
        return tokens / self._of(model).ratio

    def room(self, model: str, capabilities: Capabilities, limits: ModelLimits) -> int:
        """How many of its tokens a request may take: what its window leaves beside the answer and a little to spare,
        and less than what was too long before.
        """
        window, known = capabilities.context_tokens, self._of(model)
        room = round(window * (1 - _SPARE)) - reply_limits(limits, capabilities).max_tokens
        return min(room, round(known.too_long * known.ratio * _BELOW)) if known.too_long else room

    def counted(self, model: str, estimate: float, tokens: int) -> None:
        """Its service has counted so many input tokens; 0 if it does not count."""
        if estimate < _FEWEST or tokens < estimate * _LEAST:
            return
        known = self._of(model)
        ratio = known.ratio + _WEIGHT * (min(_MOST, tokens / estimate) - known.ratio)
        # By and by more is dared again: what was refused may have been too long for another reason.
        self._keep(model, _Known(ratio, known.too_long * _DARE if known.too_long > estimate else 0.0))

    def refused(self, model: str, estimate: float) -> None:
        """Its service has refused a request of this estimate as too long."""
        known = self._of(model)
        self._keep(model, replace(known, too_long=max(_SMALLEST, min(known.too_long or estimate, estimate))))

    def _of(self, model: str) -> _Known:
        return self._known.get(model, _Known())

    def _keep(self, model: str, known: _Known) -> None:
        self._known[model] = known
        self._known.move_to_end(model)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)


def reply_limits(limits: ModelLimits, capabilities: Capabilities) -> ModelLimits:
    """The limits of a reply that leaves at least half of the window to the request. Services refuse a request that does
    not fit in together with the longest reply that it allows.
    """
    return replace(limits, max_tokens=min(limits.max_tokens, capabilities.context_tokens // 2))


def truncate_to_tokens(text: str, tokens: float) -> str:
    """As much of a text's beginning as takes so many tokens."""
    while (size := estimate_text(text)) > tokens:
        text = text[: int(len(text) * tokens / size)]
    return text


def is_text(request: ModelRequest) -> bool:
    """Whether a request is nothing but text: only then does a service's count say something about the estimate."""
    parts = (part for message in request.messages for part in message.parts)
    return not any(_has_files(part) for part in parts)


def estimate_messages(messages: Iterable[Message]) -> float:
    """Of messages, whatever they are made of."""
    return sum(_A_MESSAGE + sum(map(_of_part, message.parts)) for message in messages)


def estimate_tools(tools: Iterable[Tool]) -> float:
    """Of tools' definitions."""
    return sum(
        estimate_text(tool.description) + estimate_text(_json(tool.input_schema)) + 3 * _A_MESSAGE for tool in tools
    )


def estimate_text(text: str) -> float:
    """Of a text. The same for the same text, so that what is made of it is the same each time."""
    letters = len(text) if text.isascii() else len(text.encode("ascii", "ignore"))
    return letters / _LETTERS_A_TOKEN + (len(text) - letters) / _OTHERS_A_TOKEN


def _of_part(part: Part) -> float:
    match part:
        case TextPart(text):
            return estimate_text(text)
        case ImagePart():
            return _AN_IMAGE
        case FilePart(data=data):
            return min(_A_DOCUMENT, len(data) / _BYTES_OF_DOCUMENT_A_TOKEN)
        case ToolCall():
            return _A_MESSAGE + estimate_text(part.name) + estimate_text(part.unreadable or _json(part.arguments))
        case ToolResult(parts=parts):
            return _A_MESSAGE + (sum(map(_of_part, parts)) if parts else estimate_text(_json(part.structured)))
        case StoredFile():
            return _A_MESSAGE


def _has_files(part: Part) -> bool:
    if isinstance(part, ToolResult):
        return any(map(_has_files, part.parts))
    return isinstance(part, ImagePart | FilePart)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=dict)
