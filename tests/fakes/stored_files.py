"""Results with their bytes put away, as the turn log gives them."""

from __future__ import annotations

import dataclasses

from bot.domain.messages import FilePart, ImageAudience, ImagePart, ResultPart, StoredFile
from bot.domain.turns import Step, ToolStep, TurnView
from bot.errors import NotFound


def with_kept_files(view: TurnView) -> TurnView:
    """Return the view with the bytes of its results put away where `read` finds them."""
    kept: dict[str, bytes] = {}

    def keep(part: ResultPart) -> ResultPart:
        if not isinstance(part, ImagePart | FilePart):
            return part
        file_id = f"f{len(kept)}"
        kept[file_id] = part.data
        readers = part.readers if isinstance(part, ImagePart) else ImageAudience.PEOPLE
        return StoredFile(file_id, part.mime_type, part.name, len(part.data), readers)

    def change_step(step: Step) -> Step:
        if not isinstance(step, ToolStep) or step.result is None:
            return step
        return dataclasses.replace(
            step, result=dataclasses.replace(step.result, parts=tuple(map(keep, step.result.parts)))
        )

    async def read(file_id: str) -> bytes:
        if file_id not in kept:
            raise NotFound("That file was deleted.")
        return kept[file_id]

    return dataclasses.replace(view, steps=tuple(map(change_step, view.steps)), read=read)
