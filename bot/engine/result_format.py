"""What the model is told of a call that has ended.

Called by `prompt_context` and `history`. A large result is told whole while it is new; after that by its beginning and
an address, under which the model may read on (`read_result`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from bot.domain.argument_edits import argument_changes
from bot.domain.history import BEGINNING
from bot.domain.messages import ImageAudience, ImagePart, OwnWords, ResultPart, StoredFile, TextPart, ToolResult
from bot.domain.turns import StepStatus, ToolStep
from bot.engine.author_labels import clean_name, single_line

LARGE = BEGINNING
"""Characters. What is shorter is told whole for ever: an address would save little."""
HEAD = 1_500
"""So many characters of a large result are told beside its address."""
SHORT_HEAD = 200
"""And so many where nothing else would fit."""
LONGEST_REASON = 1_000
READ_RESULT = "countersign__read_result"
Address = tuple[int, int]
"""Where a result is: a turn by its number in the conversation, and a step of it."""

ANSWERED = frozenset({StepStatus.DONE, StepStatus.FAILED, StepStatus.UNKNOWN})
"""Calls in whose results the words of a server may stand, be it that nobody knows what has happened."""
_NO_IMAGES: Mapping[str, bytes] = MappingProxyType({})


class ResultTruncator:
    """Results told by their beginning. `readable` says that the model has the tool to read on with; `given` becomes
    true when it was told an address.
    """

    def __init__(self, *, readable: bool = True) -> None:
        self._readable = readable
        self.given = False

    def of(
        self, seq: int, step: ToolStep, images: Mapping[str, bytes] = _NO_IMAGES, characters: int = HEAD
    ) -> ToolResult:
        """The outcome of a call in the conversation's turn `seq`; if it is large, its beginning of so many letters."""
        told = format_result(step, images)
        if step.result is None or step.result.length <= LARGE:
            return told
        note = _edited(step)
        head = TextPart(step.result.said[:characters])
        rest = OwnWords(self._rest(seq, step, characters, step.result.length))
        seen = (part for part in told.parts if isinstance(part, ImagePart))
        parts = (*((OwnWords(note),) if note else ()), head, *seen, rest)
        return replace(told, parts=parts, structured=None, left_out=0)

    def address(self, seq: int, step: ToolStep) -> str:
        """Where the rest of a large result is; empty for any other."""
        if not self._readable or not is_large(step):
            return ""
        self.given = True
        return result_id(seq, step.n)

    def _rest(self, seq: int, step: ToolStep, told: int, length: int) -> str:
        at = self.address(seq, step)
        if not at:
            return f"[{length - told} more characters are left out.]"
        return f'[{length - told} more characters: {READ_RESULT} with id "{at}" and offset {told} reads on.]'


def result_id(seq: int, n: int) -> str:
    """How the model names the result of step `n` in a conversation's turn `seq`."""
    return f"{seq}.{n}"


def is_large(step: ToolStep) -> bool:
    """Whether a result is worth an address."""
    return step.result is not None and step.result.length > LARGE


def format_result(step: ToolStep, images: Mapping[str, bytes] = _NO_IMAGES) -> ToolResult:
    """What the model is told of a call that has ended, with those of its images that it is to see."""
    told = step.result or ToolResult(step.call.id, (OwnWords(_words(step)),), is_error=True)
    note = _edited(step)
    parts = tuple(read for part in told.parts for read in _readable(part, images))
    return replace(told, parts=(OwnWords(note), *parts) if note else parts)


def _readable(part: ResultPart, images: Mapping[str, bytes]) -> Iterator[ResultPart]:
    """A part of a result as the model reads it: a text stands already for each file that is for people."""
    match part:
        case StoredFile(readers=ImageAudience.PEOPLE):
            return
        case StoredFile(file_id, mime_type, name) if file_id in images:
            yield ImagePart(images[file_id], mime_type, name)
        case StoredFile(_, mime_type):
            yield TextPart(f"[Image: {mime_type}]")
        case _:
            yield part


def _edited(step: ToolStep) -> str:
    """What people have changed in a call that was run then; empty if nobody has."""
    changed = argument_changes(step)
    if not changed or step.approval is None or step.status not in ANSWERED:
        return ""
    told = "; ".join(f"{each.name}: {_value(each.before)} -> {_value(each.after)}" for each in changed)
    by = clean_name(step.approval.revised_by) or "Somebody"
    return f"{by} changed this call before it was signed. It was run with {told}."


def _value(text: str | None) -> str:
    return "nothing" if text is None else text


def _words(step: ToolStep) -> str:
    approval = step.approval
    match step.status:
        case StepStatus.DENIED:
            by = clean_name(approval.decided_by) if approval else ""
            reason = single_line(approval.reason, LONGEST_REASON) if approval else ""
            told = f"{by or 'An approver'} turned this call down. It was not run."
            return f"{told} Reason: {reason}" if reason else told
        case StepStatus.EXPIRED:
            return "Nobody signed this call in time. It was not run. It may be asked for again."
        case StepStatus.UNKNOWN:
            return (
                "The call was sent but no answer came: it may or may not have happened. "
                "Check before trying again, and tell the person."
            )
        case StepStatus.CANCELLED:
            return "This call was cancelled. It was not run."
        case _:
            return "This call has not ended yet."
