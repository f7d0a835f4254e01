"""The bot's own tool: reading on in a large result that is told by its beginning.

Called by `turn`. It reads what the conversation's turns have stored, sends nothing anywhere and needs no signature.
What it reads counts as a stranger's words all the same (`taint`).
"""

from __future__ import annotations

import re

from bot.domain.conversations import ConversationKey
from bot.domain.messages import TextPart, ToolCall, ToolResult
from bot.domain.tools import Annotations, Tool, ToolSet
from bot.domain.turns import Claim, StepStatus, ToolRef, ToolStep, TurnRecord
from bot.engine.outcomes import READ_RESULT, text_of
from bot.ports import TurnLog

PAGE = 8_000
"""Characters that are read at a time."""
SERVER = "countersign"
TOOL = Tool(
    name=READ_RESULT,
    server=SERVER,
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
_ID = re.compile(r"([0-9]{1,15})\.([0-9]{1,9})")
_REFERENCE = ToolRef(SERVER, TOOL.original_name, definition=TOOL.definition, read_only=True, destructive=False)


def with_reading(offered: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """The tools with this one behind them, so that the others stay where they were."""
    return offered if any(tool.name == READ_RESULT for tool in offered) else (*offered, TOOL)


def is_reading(call: ToolCall, offered: ToolSet) -> bool:
    """Whether a call is for this tool, and no server's is called the same."""
    return call.name == READ_RESULT and offered.find(READ_RESULT) is None


def admitted(n: int, call: ToolCall) -> ToolStep:
    """The step of such a call: it runs at once."""
    return ToolStep(n, call, _REFERENCE, StepStatus.READY, repeatable=True)


def is_admitted(step: ToolStep) -> bool:
    """Whether a step is one of these."""
    return step.tool == _REFERENCE


async def read_on(step: ToolStep, claim: Claim, log: TurnLog) -> TurnRecord:
    """Run it, and record what it read. Raises LostLease and Stopped."""
    text = await _read(step.call, claim.conversation, log)
    status = StepStatus.FAILED if text is None else StepStatus.DONE
    told = "There is no such result in this conversation. Use the id that stands where a result breaks off."
    result = ToolResult(step.call.id, (TextPart(told if text is None else text),), is_error=text is None)
    return await log.end(claim, step.n, status, result)


async def _read(call: ToolCall, conversation: ConversationKey, log: TurnLog) -> str | None:
    where = _ID.fullmatch(str(call.arguments.get("id", "")).strip())
    offset = call.arguments.get("offset", 0)
    if call.unreadable or where is None or isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        return None
    found = await log.result_of(conversation, int(where[1]), int(where[2]))
    if found is None:
        return None
    text = text_of(found)
    page, rest = text[offset : offset + PAGE], len(text) - offset - PAGE
    if not page:
        return f"The result ends before that: it has {len(text)} characters."
    return page + (
        f'\n[{rest} more characters: id "{where[0]}" and offset {offset + PAGE} reads on.]' if rest > 0 else ""
    )
