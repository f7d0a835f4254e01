"""Built-in tool `read_result`: reads on in a large, truncated result.

Reads stored results of the conversation only, so it needs no approval. The text keeps the source of the tool that
returned it, and its visibility (`policy.information_flow`).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from bot.domain.conversations import ConversationKey
from bot.domain.messages import TextPart, ToolCall, ToolResult
from bot.domain.tools import OWN_SERVER, Annotations, Tool
from bot.domain.turns import StepStatus, ToolRef, ToolStep
from bot.engine.prompt.messages import READ_RESULT, parse_address, result_id
from bot.ports import TurnHistory

PAGE = 8_000
"""Characters of a page."""
TOOL = Tool(
    name=READ_RESULT,
    server=OWN_SERVER,
    original_name="read_result",
    description=(
        "Read on in a tool's result that you were shown only the beginning of. Works for results of this conversation, "
        f"with the id and offset that stand where the result breaks off. Gives up to {PAGE} characters at a time."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": 'The id that stands where the result breaks off, such as "3.2".'},
            "offset": {"type": "integer", "minimum": 0, "description": "The character to begin at."},
        },
        "required": ["id"],
    },
    annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
    trusted=True,
)
RejectionReason = Callable[[int, ToolStep], Awaitable[str]]
"""Return the reason why the result of a call in that turn is not visible; empty if it is."""


class ReadResult:
    """The tool in one turn. `rejection_reason` is asked with the rules of the moment."""

    name = READ_RESULT
    reference = ToolRef(OWN_SERVER, TOOL.original_name, definition=TOOL.definition, read_only=True, destructive=False)

    def __init__(
        self,
        conversation: ConversationKey,
        log: TurnHistory,
        rejection_reason: Callable[[], Awaitable[RejectionReason]],
    ) -> None:
        self._conversation = conversation
        self._log = log
        self._rejection_reason = rejection_reason

    async def call(self, call: ToolCall) -> ToolResult:
        """Return a page of a stored result."""
        try:
            text = await _read(call, self._conversation, self._log, await self._rejection_reason())
        except _Unreadable as error:
            return ToolResult(call.id, (TextPart(str(error)),), is_error=True)
        return ToolResult(call.id, (TextPart(text),))


class _Unreadable(Exception):
    """An invalid id or offset, with a sentence for the model."""


async def _read(
    call: ToolCall, conversation: ConversationKey, log: TurnHistory, rejection_reason: RejectionReason
) -> str:
    address, offset = parse_address(call), _offset(call.arguments.get("offset"))
    if address is None:
        raise _Unreadable('The id is a text such as "3.2": use the one that stands where a result breaks off.')
    seq, n = address
    step = await log.get_call(conversation, seq, n)
    if step is None or (step.result is None and step.status is not StepStatus.DONE):
        raise _Unreadable("There is no such result in this conversation.")
    if step.result is None:
        raise _Unreadable(
            "That result is deleted: it was kept for its answer only. Call the tool again if you need it."
        )
    if error := await rejection_reason(seq, step):
        raise _Unreadable(error)
    text = step.result.text_or_json
    page, remaining = text[offset : offset + PAGE], len(text) - offset - PAGE
    if not page:
        return f"The result ends before that: it has {len(text)} characters."
    return page + (
        f'\n[{remaining} more characters: id "{result_id(seq, n)}" and offset {offset + PAGE} reads on.]'
        if remaining > 0
        else ""
    )


def _offset(value: object) -> int:
    match value:
        case bool():
            pass
        case None:
            return 0
        case int() if value >= 0:
            return value
        case float() if value >= 0 and value.is_integer():
            return int(value)
        case str() if re.fullmatch(r"\s*[0-9]{1,15}\s*", value):
            return int(value)
    raise _Unreadable("The offset is the number of a character, from 0.")
