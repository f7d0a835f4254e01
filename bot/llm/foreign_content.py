"""Foreign text in a request, made safe for a model: invisible characters removed, results of tools marked as data.

Called by the provider modules. Independent of vendors. The model's own earlier text stays byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from bot.domain.characters import visible
from bot.domain.completions import ModelRequest
from bot.domain.envelopes import closing_line, compute_mark, opening_line
from bot.domain.messages import (
    FilePart,
    ImagePart,
    Message,
    MessageRole,
    OwnWords,
    Part,
    ResultPart,
    TextPart,
    ToolResult,
)

_EMPTY = "(empty)"
_UNNAMED = "a tool"


def fit_to_read(request: ModelRequest) -> ModelRequest:
    """Return the request with all foreign text visible, and with each result of a tool in an envelope of its own."""
    names: dict[str, str] = {}
    messages: list[Message] = []
    for message in request.messages:
        names |= {call.id: call.name for call in message.tool_calls}
        messages.append(_fit(message, names))
    return replace(request, messages=tuple(messages))


def _fit(message: Message, names: Mapping[str, str]) -> Message:
    match message.role:
        case MessageRole.USER:
            return replace(message, parts=tuple(map(_seen, message.parts)))
        case MessageRole.TOOL:
            return replace(message, parts=tuple(_result(part, names) for part in message.parts))
        case _:
            return message


def _seen(part: Part) -> Part:
    match part:
        case TextPart(text):
            return replace(part, text=visible(text))
        case ImagePart(name=name) | FilePart(name=name):
            return replace(part, name=visible(name))
        case _:
            return part


def _result(part: Part, names: Mapping[str, str]) -> Part:
    """A result whose foreign parts stand in envelopes, and the bot's own words beside them."""
    if not isinstance(part, ToolResult):
        return part
    source = names.get(part.call_id, "") or _UNNAMED
    parts = tuple(_given(part))
    made = [
        each
        for own, group in groupby(parts, lambda each: isinstance(each, OwnWords))
        for each in (group if own else _enclosed(part.call_id, source, list(group)))
    ]
    return replace(part, parts=tuple(_joined(made)), structured=None)


def _given(result: ToolResult) -> Iterator[ResultPart]:
    """The parts of a result as a model reads them; its structured content where no text says anything."""
    parts = [seen for seen in map(_seen, result.parts) if isinstance(seen, ResultPart)]
    if not any(isinstance(part, TextPart) and part.text for part in parts) and result.structured is not None:
        parts.append(TextPart(visible(json.dumps(result.structured, ensure_ascii=False, default=dict))))
    yield from parts or [TextPart(_EMPTY)]


def _enclosed(call_id: str, source: str, parts: Sequence[ResultPart]) -> Iterator[ResultPart]:
    mark = compute_mark(call_id, *(part.text for part in parts if isinstance(part, TextPart)))
    yield TextPart(opening_line(source, mark))
    yield from parts
    yield TextPart(closing_line(mark))


def _joined(parts: Sequence[ResultPart]) -> Iterator[ResultPart]:
    """The parts with neighbouring texts as one."""
    for is_text, group in groupby(parts, lambda each: isinstance(each, TextPart)):
        if is_text:
            yield TextPart("\n".join(each.text for each in group if isinstance(each, TextPart)))
        else:
            yield from group
