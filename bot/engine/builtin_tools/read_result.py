"""Built-in tool `read_result`: reads on in a large, truncated result.

Reads stored results of the conversation only, so it needs no approval. The text keeps the source of the tool that
returned it, and its visibility (`policy.information_flow`).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from bot.domain.conversations import ConversationKey
from bot.domain.messages import ToolCall, ToolResult
from bot.domain.tools import OWN_SERVER
from bot.domain.turns import StepStatus, ToolRef
from bot.engine.builtin_tools import define_tool, text_result
from bot.engine.policy.information_flow import ResultVisibility
from bot.engine.prompt.messages import READ_RESULT, parse_address, result_id
from bot.ports import TurnHistory

PAGE = 8_000
"""Characters of a page."""
TOOL = define_tool(
    READ_RESULT,
    "Read on in a tool's result that you were shown only the beginning of. Works for results of this conversation, "
    f"with the id and offset that stand where the result breaks off. Gives up to {PAGE} characters at a time.",
    {
        "id": {"type": "string", "description": 'The id that stands where the result breaks off, such as "3.2".'},
        "offset": {"type": "integer", "minimum": 0, "description": "The character to begin at."},
    },
    ("id",),
)


class ReadResult:
    """The tool in one turn. `visibility` is asked with the rules of the moment."""

    name = READ_RESULT
    reference = ToolRef(OWN_SERVER, TOOL.original_name, definition=TOOL.definition, read_only=True, destructive=False)

    def __init__(
        self,
        conversation: ConversationKey,
        log: TurnHistory,
        visibility: Callable[[], Awaitable[ResultVisibility]],
    ) -> None:
        self._conversation = conversation
        self._log = log
        self._visibility = visibility

    async def call(self, call: ToolCall) -> ToolResult:
        """Return a page of a stored result."""
        try:
            return text_result(call, await self._read(call))
        except _Unreadable as error:
            return text_result(call, str(error), is_error=True)

    async def _read(self, call: ToolCall) -> str:
        visibility = await self._visibility()
        address, offset = parse_address(call), _offset(call.arguments.get("offset"))
        if address is None:
            raise _Unreadable('The id is a text such as "3.2": use the one that stands where a result breaks off.')
        seq, n = address
        step = await self._log.get_call(self._conversation, seq, n)
        if step is None or (step.result is None and step.status is not StepStatus.DONE):
            raise _Unreadable("There is no such result in this conversation.")
        if step.result is None:
            raise _Unreadable(
                "That result is deleted: it was kept for its answer only. Call the tool again if you need it."
            )
        if error := await visibility.rejection_reason(seq, step):
            raise _Unreadable(error)
        text = step.result.text_or_json
        page, remaining = text[offset : offset + PAGE], len(text) - offset - PAGE
        if not page:
            return f"The result ends before that: it has {len(text)} characters."
        more = f'\n[{remaining} more characters: id "{result_id(seq, n)}" and offset {offset + PAGE} reads on.]'
        return page + (more if remaining > 0 else "")


class _Unreadable(Exception):
    """An invalid id or offset, with a sentence for the model."""


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
