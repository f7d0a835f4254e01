"""Images and files that tools returned, to be shared below the turn that asked for them.

Each is one slot of its turn, by its step and place, so that it is shared once.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial

from bot.domain.messages import ImageAudience, StoredFile
from bot.domain.turns import StepStatus, ToolStep
from bot.domain.views import TurnView
from bot.rendering.tool_status import tool_name

PREFIX = "file-"
"""Prefix of the slots of files."""
MOST = 20
_RETURNED = (StepStatus.DONE, StepStatus.FAILED)
_ENDINGS = {"image/webp": ".webp", "audio/flac": ".flac", "audio/mpeg": ".mp3", "audio/wav": ".wav"}
"""File endings that Python's own table has on some systems only."""
LEFT_OUT = "left out"
"""The reference of a file that the platform will never take: the turn is drawn without it."""


@dataclass(frozen=True, slots=True)
class ToolFile:
    """One file. `read` gives its bytes; it raises NotFound if they are gone."""

    slot: str
    name: str
    read: Callable[[], Awaitable[bytes]]


def returned_files(view: TurnView, largest: int) -> tuple[ToolFile, ...]:
    """The files of a turn in their order, MOST at most, those left out that are larger than `largest` bytes or that are
    not for people.
    """
    return tuple(_files(view, largest))[:MOST]


def _files(view: TurnView, largest: int) -> Iterator[ToolFile]:
    for step in view.steps:
        if not isinstance(step, ToolStep) or step.result is None or step.status not in _RETURNED:
            continue
        for place, part in enumerate(step.result.parts):
            if view.read is not None and isinstance(part, StoredFile) and _is_shared(part, largest):
                yield ToolFile(f"{PREFIX}{step.n}-{place}", _name(step, part), partial(view.read, part.id))


def _is_shared(file: StoredFile, largest: int) -> bool:
    return bool(file.id) and 0 < file.size <= largest and file.readers is not ImageAudience.MODEL


def _name(step: ToolStep, file: StoredFile) -> str:
    ending = _ENDINGS.get(file.mime_type) or mimetypes.guess_extension(file.mime_type) or ""
    return file.name or f"{tool_name(step)}{ending}"
