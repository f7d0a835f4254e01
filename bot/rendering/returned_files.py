"""Images and files that tools returned, to be shared below the turn that asked for them.

Called by platforms that draw turns as messages. Each is one slot of its turn, by its step and place, so that it is
shared once.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Iterator
from dataclasses import dataclass

from bot.domain.messages import FilePart, ImagePart
from bot.domain.turns import StepStatus, ToolStep
from bot.domain.views import TurnView
from bot.rendering.tool_lines import tool_name

PREFIX = "file-"
"""What the names of these slots begin with."""
MOST = 20
LEFT_OUT = "left out"
"""The reference of a file that the platform will never take: the turn is drawn without it."""


@dataclass(frozen=True, slots=True)
class ReturnedFile:
    """One file."""

    slot: str
    name: str
    data: bytes


def returned_files(view: TurnView, largest: int) -> tuple[ReturnedFile, ...]:
    """The files of a turn in their order, MOST at most, those left out that are larger than `largest` bytes."""
    return tuple(_files(view, largest))[:MOST]


def _files(view: TurnView, largest: int) -> Iterator[ReturnedFile]:
    for step in view.steps:
        if not isinstance(step, ToolStep) or step.result is None or step.status is not StepStatus.DONE:
            continue
        for place, part in enumerate(step.result.parts):
            if isinstance(part, ImagePart | FilePart) and 0 < len(part.data) <= largest:
                yield ReturnedFile(f"{PREFIX}{step.n}-{place}", _name(step, part), part.data)


def _name(step: ToolStep, part: ImagePart | FilePart) -> str:
    if isinstance(part, FilePart) and part.name:
        return part.name
    return f"{tool_name(step)}{mimetypes.guess_extension(part.mime_type) or ''}"
