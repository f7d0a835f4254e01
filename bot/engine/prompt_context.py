"""What the model reads: the transcript of a turn, made from its rows.

Order: the operator's instructions, every server's `system_instruction` first; what is remembered of
earlier turns; what is known about this question; what an `auto_context_tool` found, with that server's
`response_instruction`; the question; the rounds, in which the `response_instruction` of each further server whose tools
ran comes once. What moves least stands first, so that services find beginnings that they know. What servers, tools and
other people say is data: it never stands in a system message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from bot.domain.envelopes import enclose
from bot.domain.messages import Message, ToolResult, system, tool_results, user
from bot.domain.tools import ToolSet
from bot.domain.turns import CallOrigin, StepStatus, ToolStep, TurnRecord
from bot.engine.author_labels import label_message
from bot.engine.history import calls_of
from bot.engine.result_format import ResultTruncator, format_result, is_large

WHOLE_CHARACTERS = 24_000
"""So much of the large results of older rounds is told again in each round; what is older is told by its beginning."""

LAST_ROUND = (
    "The limit of tool calls for this question is reached: no further tool can be used. "
    "Answer now with what you have and say what is missing."
)


@dataclass(frozen=True, slots=True)
class PromptContext:
    """What goes along with a turn's own rows: the system prompt, the messages about earlier turns, files that came with
    the question, images that tools returned (by their file's id), and the steps whose results are told by their
    beginning, with how many characters of it. In a place that is `shared`, the question says whose it is.
    """

    prompt: str = ""
    remembered: Sequence[Message] = ()
    attached: Sequence[Message] = ()
    images: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    excerpts: ResultTruncator = field(default_factory=ResultTruncator)
    by_beginning: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    shared: bool = False


def turn_messages(record: TurnRecord, offered: ToolSet, around: PromptContext) -> tuple[Message, ...]:
    """The messages for the next question to the model."""
    return (
        *_opening(offered, around),
        *_before_the_question(record, offered, around),
        *around.attached,
        _question(record, around),
        *_rounds(record, offered, around),
    )


def _opening(offered: ToolSet, around: PromptContext) -> list[Message]:
    """What the requests of this turn and of the next begin with."""
    guidance = [f"[{each.server}] {each.system_instruction}" for each in offered.guidance if each.system_instruction]
    instructions = system("\n\n".join(part for part in (around.prompt.strip(), *guidance) if part))
    return [instructions, *around.remembered]


def older_results(record: TurnRecord, room: int = WHOLE_CHARACTERS) -> frozenset[int]:
    """The steps of older rounds whose results are large and do not fit into `room` characters, the newest first."""
    newest = max((reply.n for reply in record.replies), default=0)
    found = set()
    for step in reversed(record.calls):
        if step.n < newest and step.origin is CallOrigin.MODEL and step.result is not None and is_large(step):
            room -= step.result.length
            if room < 0:
                found.add(step.n)
    return frozenset(found)


def large_results(record: TurnRecord) -> frozenset[int]:
    """The steps whose results are large, the newest included."""
    return frozenset(step.n for step in record.calls if is_large(step))


def _question(record: TurnRecord, around: PromptContext) -> Message:
    turn = record.turn
    return label_message(turn.author, turn.question.text) if around.shared else user(turn.question.text)


def _before_the_question(record: TurnRecord, offered: ToolSet, around: PromptContext) -> list[Message]:
    before = record.turn.question.context
    said = [_information("What others said here before", "this conversation", "\n".join(before))] if before else []
    absent = (
        [_information("Tools that are not available now", "servers", "\n".join(offered.absent))]
        if offered.absent
        else []
    )
    context = [step for step in record.calls if step.origin is CallOrigin.CONTEXT and step.status is StepStatus.DONE]
    found = [
        _information(f"Found by {step.call.name} for this question", step.call.name, _told(record, step, around).text)
        for step in context
        if step.result
    ]
    instructions = _responses(context, offered, [])
    return [*said, *absent, *found, *([system("\n\n".join(instructions))] if instructions else [])]


def _information(what: str, source: str, text: str) -> Message:
    return user(f"{what}:\n{enclose(source, text)}")


def _rounds(record: TurnRecord, offered: ToolSet, around: PromptContext) -> list[Message]:
    used: list[str] = []
    _responses((step for step in record.calls if step.origin is CallOrigin.CONTEXT), offered, used)
    messages: list[Message] = []
    for reply in record.replies:
        messages.append(reply.message)
        calls = calls_of(reply, record)
        if calls:
            messages.append(tool_results(*(_told(record, step, around) for step in calls)))
            instructions = _responses(calls, offered, used)
            if instructions:
                messages.append(system("\n\n".join(instructions)))
    return messages


def _told(record: TurnRecord, step: ToolStep, around: PromptContext) -> ToolResult:
    if step.n in around.by_beginning:
        return around.excerpts.of(record.turn.seq, step, around.images, around.by_beginning[step.n])
    return format_result(step, around.images)


def _responses(steps: Iterable[ToolStep], offered: ToolSet, used: list[str]) -> list[str]:
    """The `response_instruction` of each server that ran, unless `used` names it already."""
    found = []
    for step in steps:
        if step.tool is None or step.status is not StepStatus.DONE or step.tool.server in used:
            continue
        instruction = offered.guidance_for(step.tool.server).response_instruction
        if instruction:
            used.append(step.tool.server)
            found.append(f"[{step.tool.server}] {instruction}")
    return found
