"""Tool calls as lines of a turn, and the files that they returned.

A line has the name, status and outcome of a call; the platform chooses the symbols. Each returned file is one slot of
its turn, named by its step and its position, so that it is posted once.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import assert_never

from bot.domain.messages import FilePart, ImageAudience, ImagePart, StoredFile, ToolResult
from bot.domain.tools import UNSURE
from bot.domain.turns import StepStatus, ToolStep
from bot.domain.views import TurnView
from bot.rendering.text_safety import single_line

SUMMARY_LIMIT = 72
NAME_LIMIT = 60
FILE_PREFIX = "file-"
"""Prefix of the slots of files."""
MOST_FILES = 20
_RETURNED = (StepStatus.DONE, StepStatus.FAILED)
_ENDINGS = {"image/webp": ".webp", "audio/flac": ".flac", "audio/mpeg": ".mp3", "audio/wav": ".wav"}
"""File endings that Python's own table has on some systems only."""
LEFT_OUT = "left out"
"""The reference of a file that the platform will never take: the turn is drawn without it."""


class StatusIcon(StrEnum):
    """The kinds of marks that may stand before a tool line."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    DENIED = "denied"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class ToolStatus:
    """A tool call on one line. All text is plain; `state` may be empty where the mark says enough, `more` says how
    much there is beyond the `summary`: `+4 lines`.
    """

    mark: StatusIcon
    name: str
    state: str = ""
    summary: str = ""
    more: str = ""


_UNSENT = {
    StepStatus.AWAITING: (StatusIcon.WAITING, "waits for approval"),
    StepStatus.ASKING: (StatusIcon.WAITING, "waits for an answer"),
    StepStatus.EXPIRED: (StatusIcon.SKIPPED, "timed out, not run"),
    StepStatus.CANCELLED: (StatusIcon.SKIPPED, "cancelled, not run"),
}
_SENT = {
    StepStatus.DONE: (StatusIcon.DONE, ""),
    StepStatus.FAILED: (StatusIcon.FAILED, "failed"),
    StepStatus.UNKNOWN: (StatusIcon.UNKNOWN, "may or may not have happened"),
}


def tool_status(step: ToolStep, view: TurnView) -> ToolStatus:
    """Return the status of a call: present tense while it runs, past tense after its end."""
    name = tool_name(step)
    match step.status:
        case StepStatus.AWAITING | StepStatus.ASKING | StepStatus.EXPIRED | StepStatus.CANCELLED:
            mark, state = _UNSENT[step.status]
            return ToolStatus(mark, name, state)
        case StepStatus.READY | StepStatus.STARTED if step.pending_elicitations:
            return ToolStatus(StatusIcon.WAITING, name, _UNSENT[StepStatus.ASKING][1])
        case StepStatus.READY | StepStatus.STARTED:
            moving = step.status is StepStatus.STARTED or step.n in view.running
            progress = single_line(view.progress.get(step.n, ""), SUMMARY_LIMIT)
            return ToolStatus(StatusIcon.RUNNING, name, "running" if moving else "about to run", progress)
        case StepStatus.DENIED:
            return ToolStatus(StatusIcon.DENIED, name, "denied", *_denial(step))
        case StepStatus.DONE | StepStatus.FAILED:
            mark, state = _SENT[step.status]
            return ToolStatus(mark, name, ", ".join(filter(None, (state, _granted(step)))), *_outcome_of(step.result))
        case StepStatus.UNKNOWN:
            mark, state = _SENT[step.status]
            return ToolStatus(mark, name, state, _reason(step.result))
        case _:
            assert_never(step.status)


def tool_name(step: ToolStep) -> str:
    """`server.tool`, or the name the model made up."""
    if step.tool is None:
        return single_line(step.call.name, NAME_LIMIT)
    return single_line(f"{step.tool.server}.{step.tool.name}", NAME_LIMIT)


def _outcome_of(result: ToolResult | None) -> tuple[str, str]:
    """Return a result on one short line, and the size of the rest."""
    if result is None:
        return "", ""
    lines = [line for line in result.text.splitlines() if line.strip()]
    first = single_line(lines[0], SUMMARY_LIMIT) if lines else ""
    if first in ("{", "[", "```", "---"):
        return _counted(len(lines), "line"), ""
    return first or _attachments(result), f"+{_counted(len(lines) - 1, 'line')}" if len(lines) > 1 else ""


def _reason(result: ToolResult | None) -> str:
    """Return the reason for an unknown outcome, without the part for the model."""
    return single_line(result.text.partition(UNSURE)[0], SUMMARY_LIMIT) if result else ""


def _attachments(result: ToolResult) -> str:
    kept = [part for part in result.parts if isinstance(part, StoredFile)]
    images = sum(isinstance(part, ImagePart) for part in result.parts) + sum(each.is_image for each in kept)
    files = sum(isinstance(part, FilePart) for part in result.parts) + sum(not each.is_image for each in kept)
    return ", ".join(_counted(count, word) for count, word in ((images, "image"), (files, "file")) if count)


def _denial(step: ToolStep) -> tuple[str, str]:
    decider = single_line(step.approval.decided_by, 40) if step.approval else ""
    reason = single_line(step.approval.reason, SUMMARY_LIMIT) if step.approval else ""
    if not decider:
        return _outcome_of(step.result)
    return f"by {decider}: {reason}" if reason else f"by {decider}", ""


def _granted(step: ToolStep) -> str:
    """Return the author of the grant that replaced an approval."""
    return f"granted by {single_line(step.grant.name, 40) or single_line(step.grant.by, 40)}" if step.grant else ""


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


@dataclass(frozen=True, slots=True)
class ToolFile:
    """One file. `read` gives its bytes; it raises NotFound if they are gone."""

    slot: str
    name: str
    read: Callable[[], Awaitable[bytes]]


def returned_files(view: TurnView, largest: int) -> tuple[ToolFile, ...]:
    """Return the files of a turn in order, at most MOST_FILES, without those larger than `largest` bytes and those that
    are for the model alone.
    """
    return tuple(_files(view, largest))[:MOST_FILES]


def _files(view: TurnView, largest: int) -> Iterator[ToolFile]:
    for step in view.steps:
        if not isinstance(step, ToolStep) or step.result is None or step.status not in _RETURNED:
            continue
        for place, part in enumerate(step.result.parts):
            if view.read is not None and isinstance(part, StoredFile) and _is_shared(part, largest):
                yield ToolFile(f"{FILE_PREFIX}{step.n}-{place}", _file_name(step, part), partial(view.read, part.id))


def _is_shared(file: StoredFile, largest: int) -> bool:
    return bool(file.id) and 0 < file.size <= largest and file.readers is not ImageAudience.MODEL


def _file_name(step: ToolStep, file: StoredFile) -> str:
    ending = _ENDINGS.get(file.mime_type) or mimetypes.guess_extension(file.mime_type) or ""
    return file.name or f"{tool_name(step)}{ending}"
