"""Files that tools returned, written into a folder: a terminal can show no image, but it can say where one is.

Used by the surface. Each file is written once; its reference is where it went.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

from bot.domain.views import MessageRefs, PostedMessage, TurnView
from bot.errors import NotFound
from bot.rendering.text_safety import single_line
from bot.rendering.tool_files import LEFT_OUT, ToolFile, returned_files

log = logging.getLogger(__name__)

LARGEST = 20 * 1024 * 1024
"""In bytes."""
_NAME_LENGTH = 120


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file has its place, or none (`problem`). `drawn` is to be remembered."""

    drawn: PostedMessage
    name: str
    problem: str = ""


async def save_files(folder: Path, view: TurnView, refs: MessageRefs) -> AsyncGenerator[SavedFile, None]:
    """Write what was not written yet, for the person's eyes alone."""
    for file in returned_files(view, LARGEST):
        if file.slot in refs:
            continue
        name = _safe(file.name)
        path = folder / f"{view.turn.id[:12]}-{file.slot}-{name}"
        try:
            await _written(path, file)
        except (NotFound, OSError) as error:
            log.warning("a file of turn %s could not be saved: %s", view.turn.id, error)
            yield SavedFile(PostedMessage(file.slot, LEFT_OUT), name, str(error))
        else:
            yield SavedFile(PostedMessage(file.slot, str(path)), name)


async def _written(path: Path, file: ToolFile) -> None:
    data = await file.read()
    await asyncio.to_thread(_write, path, data)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as target:
        target.write(data)


def _safe(name: str) -> str:
    """A name that leads nowhere else."""
    return single_line(name.replace("/", "_").replace("\\", "_"), _NAME_LENGTH).lstrip(".") or "file"
