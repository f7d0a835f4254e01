"""The bot's own tool: reading on in a large result that is told by its beginning.

Called by `turn_runner`. It reads what the conversation's turns have stored, sends nothing anywhere and needs no
signature. What it reads counts as the words of the tool that returned it (`sources`), and nothing is read to somebody
whom a rule denies the tool that has said it (`result_visibility`).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from bot.domain.conversations import ConversationKey
from bot.domain.messages import TextPart, ToolCall, ToolResult
from bot.domain.tools import OWN_SERVER, Annotations, Tool
from bot.domain.turns import Claim, StepStatus, ToolRef, ToolStep, TurnRecord
from bot.engine.monotonic_clock import monotonic
from bot.engine.result_format import READ_RESULT, Address, result_id
from bot.ports import TurnLog

PAGE = 8_000
"""Characters that are read at a time."""
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
_ID = re.compile(r"([0-9]{1,15})\.([0-9]{1,9})")
Objection = Callable[[int, ToolStep], Awaitable[str]]
"""Why the result of a call in the conversation's turn of that number is not for whoever asks; empty if it is."""
_REFERENCE = ToolRef(OWN_SERVER, TOOL.original_name, definition=TOOL.definition, read_only=True, destructive=False)


def is_read_result_call(call: ToolCall) -> bool:
    """Whether a call is for this tool."""
    return call.name == READ_RESULT


def ready_step(n: int, call: ToolCall) -> ToolStep:
    """The step of such a call: it runs at once."""
    return ToolStep(n, call, _REFERENCE, StepStatus.READY, repeatable=True)


def is_read_result_step(step: ToolStep) -> bool:
    """Whether a step is one of these."""
    return step.tool == _REFERENCE


def addressed(call: ToolCall) -> Address | None:
    """Where the result stands that a call of this tool is for; None if it does not say."""
    # As a number 3.20 would be 3.2, which is another result.
    written = call.arguments.get("id")
    where = _ID.fullmatch(written.strip()) if isinstance(written, str) else None
    return None if where is None else (int(where[1]), int(where[2]))


async def read_result(step: ToolStep, claim: Claim, log: TurnLog, objection: Objection) -> TurnRecord:
    """Run it, and record what it read. Raises LostLease and Stopped."""
    began = monotonic()
    try:
        status, told = StepStatus.DONE, await _read(step.call, claim.conversation, log, objection)
    except _Unreadable as problem:
        status, told = StepStatus.FAILED, str(problem)
    result = ToolResult(step.call.id, (TextPart(told),), is_error=status is StepStatus.FAILED)
    return await log.finish_call(claim, step.n, status, result, monotonic() - began)


class _Unreadable(Exception):
    """There is nothing to read, or it is not said what: a sentence for the model."""


async def _read(call: ToolCall, conversation: ConversationKey, log: TurnLog, objection: Objection) -> str:
    where, offset = addressed(call), _offset(call.arguments.get("offset"))
    if where is None:
        raise _Unreadable('The id is a text such as "3.2": use the one that stands where a result breaks off.')
    seq, n = where
    found = await log.get_call(conversation, seq, n)
    if found is None or found.result is None:
        raise _Unreadable("There is no such result in this conversation.")
    if problem := await objection(seq, found):
        raise _Unreadable(problem)
    text = found.result.said
    page, rest = text[offset : offset + PAGE], len(text) - offset - PAGE
    if not page:
        return f"The result ends before that: it has {len(text)} characters."
    return page + (
        f'\n[{rest} more characters: id "{result_id(seq, n)}" and offset {offset + PAGE} reads on.]' if rest > 0 else ""
    )


def _offset(written: object) -> int:
    match written:
        case bool():
            pass
        case None:
            return 0
        case int() if written >= 0:
            return written
        case float() if written >= 0 and written.is_integer():
            return int(written)
        case str() if re.fullmatch(r"\s*[0-9]{1,15}\s*", written):
            return int(written)
    raise _Unreadable("The offset is the number of a character, from 0.")
