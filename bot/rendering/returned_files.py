"""Images and files that tools returned, to be shared below the turn that asked for them.

Called by platforms that draw turns as messages, and by the terminal's. Each is one slot of its turn, by its step and
place, so that it is shared once.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial

from bot.domain.messages import FilePart, ImagePart, KeptFile, Readers, ResultPart, TextPart
from bot.domain.turns import StepStatus, ToolStep
from bot.domain.views import TurnView
from bot.rendering.tool_lines import tool_name

PREFIX = "file-"
"""What the names of these slots begin with."""
MOST = 20
_RETURNED = (StepStatus.DONE, StepStatus.FAILED)
_ENDINGS = {"image/webp": ".webp", "audio/flac": ".flac", "audio/mpeg": ".mp3", "audio/wav": ".wav"}
"""What Python's own table knows on some systems only."""
LEFT_OUT = "left out"
"""The reference of a file that the platform will never take: the turn is drawn without it."""


@dataclass(frozen=True, slots=True)
class ReturnedFile:
    """One file. `read` gives its bytes; it raises NotFound if they are gone."""

    slot: str
    name: str
    read: Callable[[], Awaitable[bytes]]


def returned_files(view: TurnView, largest: int) -> tuple[ReturnedFile, ...]:
    """The files of a turn in their order, MOST at most, those left out that are larger than `largest` bytes or that are
    not for people.
    """
    return tuple(_files(view, largest))[:MOST]


def _files(view: TurnView, largest: int) -> Iterator[ReturnedFile]:
    for step in view.steps:
        if not isinstance(step, ToolStep) or step.result is None or step.status not in _RETURNED:
            continue
        for place, part in enumerate(step.result.parts):
            read = _reader(part, view, largest)
            if read is not None:
                yield ReturnedFile(f"{PREFIX}{step.n}-{place}", _name(step, part), read)


def _reader(part: ResultPart, view: TurnView, largest: int) -> Callable[[], Awaitable[bytes]] | None:
    match part:
        case KeptFile(file_id, size=size, readers=readers):
            wanted = file_id and 0 < size <= largest and readers is not Readers.MODEL
            return partial(view.read, file_id) if wanted and view.read is not None else None
        case ImagePart(data=data) | FilePart(data=data):
            # A release before there were kept files has kept them in the result.
            return partial(_at_hand, data) if 0 < len(data) <= largest else None
        case _:
            return None


async def _at_hand(data: bytes) -> bytes:
    return data


def _name(step: ToolStep, part: ResultPart) -> str:
    if isinstance(part, ImagePart | FilePart | KeptFile) and part.name:
        return part.name
    mime_type = "" if isinstance(part, TextPart) else part.mime_type
    return f"{tool_name(step)}{_ENDINGS.get(mime_type) or mimetypes.guess_extension(mime_type) or ''}"
