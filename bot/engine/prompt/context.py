"""Messages of a model request, built from a turn's rows, and the system prompt.

Order: the system prompt with every server's `system_instruction`; the history; results of `auto_context_tool`s with
their servers' `response_instruction`; the question; the rounds, in which each further server's `response_instruction`
comes once. Stable parts come first, because services cache prefixes. For the same reason the system prompt is constant
for a day: it holds no time of day and no names. Text of servers, tools and other users is data: it is never part of a
system message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from types import MappingProxyType

from bot.domain.conversations import ConversationKey
from bot.domain.envelopes import enclose
from bot.domain.messages import Message, ToolResult, system, tool_results, user
from bot.domain.tools import ToolSet
from bot.domain.turns import CallOrigin, StepStatus, ToolStep, TurnRecord
from bot.engine.prompt.attached_calls import is_prompt, prompt_messages, resource_message
from bot.engine.prompt.history import calls_of
from bot.engine.prompt.text_format import RULE, ResultTruncator, format_result, is_large, label_message

WHOLE_CHARACTERS = 24_000
"""Characters of large results from older rounds that each round holds in full. Earlier results are truncated."""
LAST_ROUND = (
    "The limit of tool calls for this question is reached: no further tool can be used. "
    "Answer now with what you have and say what is missing."
)


@dataclass(frozen=True, slots=True)
class PlatformHint:
    """Platform hint: the supported formatting, as text for the model. `shared` is True if several users write."""

    formatting: str = ""
    shared: bool = False


def no_hint(_conversation: ConversationKey) -> PlatformHint:
    """Return an empty hint."""
    return PlatformHint()


def local_today() -> date:
    """Return the local date."""
    return datetime.now().astimezone().date()


@dataclass(frozen=True, slots=True)
class SystemPrompt:
    """Parts of the system prompt. `hint` returns that of a conversation. Without `today` no date is included."""

    prompt: str = ""
    hint: Callable[[ConversationKey], PlatformHint] = no_hint
    today: Callable[[], date] | None = None

    def text(self, conversation: ConversationKey, persona: str) -> str:
        """Return the system prompt of a conversation."""
        hint = self.hint(conversation)
        parts = [
            self.prompt,
            persona,
            f"Today is {self.today():%A, %Y-%m-%d}." if self.today else "",
            hint.formatting,
            RULE if hint.shared else "",
        ]
        return "\n\n".join(part.strip() for part in parts if part.strip())


NO_INSTRUCTIONS = SystemPrompt()


@dataclass(frozen=True, slots=True)
class PromptContext:
    """Parts of a prompt besides the turn's rows. `images` are by file id. `excerpt_lengths` are the steps whose results
    are truncated, with the length in characters. In a `shared` conversation the question names its author.
    """

    prompt: str = ""
    history: Sequence[Message] = ()
    attached: Sequence[Message] = ()
    images: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    excerpts: ResultTruncator = field(default_factory=ResultTruncator)
    excerpt_lengths: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    shared: bool = False


def turn_messages(record: TurnRecord, offered: ToolSet, context: PromptContext) -> tuple[Message, ...]:
    """Return the messages of the next model request."""
    return (
        *_prefix(offered, context),
        *_context_messages(record, offered, context),
        *context.attached,
        *_attached_resources(record, context),
        _question(record, context),
        *_attached_prompts(record, context),
        *_rounds(record, offered, context),
    )


def _prefix(offered: ToolSet, context: PromptContext) -> list[Message]:
    """Return the prefix that this turn's and the next turn's requests share."""
    guidance = [
        f"[{server.server}] {server.system_instruction}" for server in offered.guidance if server.system_instruction
    ]
    instructions = system("\n\n".join(part for part in (context.prompt.strip(), *guidance) if part))
    return [instructions, *context.history]


def older_results(record: TurnRecord, room: int = WHOLE_CHARACTERS) -> frozenset[int]:
    """Return the steps of older rounds with large results that exceed `room` characters, counted from the newest."""
    newest = max((reply.n for reply in record.replies), default=0)
    results = set()
    for step in reversed(record.calls):
        if step.n < newest and step.origin is CallOrigin.MODEL and step.result is not None and is_large(step):
            room -= step.result.length
            if room < 0:
                results.add(step.n)
    return frozenset(results)


def large_results(record: TurnRecord) -> frozenset[int]:
    """Return the steps with large results, the newest included."""
    return frozenset(step.n for step in record.calls if is_large(step))


def _question(record: TurnRecord, context: PromptContext) -> Message:
    turn = record.turn
    return label_message(turn.author, turn.question.text) if context.shared else user(turn.question.text)


def _attached_resources(record: TurnRecord, context: PromptContext) -> list[Message]:
    return [
        resource_message(step, _result(record, step, context))
        for step in _attached_calls(record)
        if not is_prompt(step)
    ]


def _attached_prompts(record: TurnRecord, context: PromptContext) -> list[Message]:
    prompts = [step for step in _attached_calls(record) if is_prompt(step) and step.status is StepStatus.DONE]
    return [message for step in prompts for message in prompt_messages(_result(record, step, context))]


def _attached_calls(record: TurnRecord) -> list[ToolStep]:
    return [step for step in record.calls if step.origin is CallOrigin.ATTACHED]


def _context_messages(record: TurnRecord, offered: ToolSet, context: PromptContext) -> list[Message]:
    earlier_messages = record.turn.question.context
    messages_before = (
        [_information("What others said here before", "this conversation", "\n".join(earlier_messages))]
        if earlier_messages
        else []
    )
    absent = (
        [_information("Tools that are not available now", "servers", "\n".join(offered.absent))]
        if offered.absent
        else []
    )
    calls = [step for step in record.calls if step.origin is CallOrigin.CONTEXT and step.status is StepStatus.DONE]
    results = [
        _information(
            f"Found by {step.call.name} for this question", step.call.name, _result(record, step, context).text
        )
        for step in calls
        if step.result
    ]
    instructions = _responses(calls, offered, [])
    return [*messages_before, *absent, *results, *([system("\n\n".join(instructions))] if instructions else [])]


def _information(what: str, source: str, text: str) -> Message:
    return user(f"{what}:\n{enclose(source, text)}")


def _rounds(record: TurnRecord, offered: ToolSet, context: PromptContext) -> list[Message]:
    used: list[str] = []
    _responses((step for step in record.calls if step.origin is CallOrigin.CONTEXT), offered, used)
    messages: list[Message] = []
    for reply in record.replies:
        messages.append(reply.message)
        calls = calls_of(reply, record)
        if calls:
            messages.append(tool_results(*(_result(record, step, context) for step in calls)))
            instructions = _responses(calls, offered, used)
            if instructions:
                messages.append(system("\n\n".join(instructions)))
    return messages


def _result(record: TurnRecord, step: ToolStep, context: PromptContext) -> ToolResult:
    if step.n in context.excerpt_lengths:
        return context.excerpts.truncate(record.turn.seq, step, context.images, context.excerpt_lengths[step.n])
    return format_result(step, context.images)


def _responses(steps: Iterable[ToolStep], offered: ToolSet, used: list[str]) -> list[str]:
    """Return the `response_instruction` of each server that ran, unless `used` names it."""
    results = []
    for step in steps:
        if step.tool is None or step.status is not StepStatus.DONE or step.tool.server in used:
            continue
        instruction = offered.guidance_for(step.tool.server).response_instruction
        if instruction:
            used.append(step.tool.server)
            results.append(f"[{step.tool.server}] {instruction}")
    return results
