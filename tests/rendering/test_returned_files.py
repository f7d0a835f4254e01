"""Shared files of a turn, and their names."""

from __future__ import annotations

import dataclasses

import pytest

from bot.domain.messages import ImageAudience, ResultPart, StoredFile, TextPart, ToolResult
from bot.domain.turns import StepStatus, TurnView
from bot.errors import NotFound
from bot.rendering.timeline import MOST_FILES, returned_files
from tests.rendering.turns import a_step, a_view


def view_of(*parts: ResultPart, status: StepStatus = StepStatus.DONE) -> TurnView:
    step = a_step(status, 1)
    view = a_view(dataclasses.replace(step, result=ToolResult(step.call.id, parts)))
    return dataclasses.replace(view, read=read)


async def read(file_id: str) -> bytes:
    if file_id != "f1":
        raise NotFound("gone")
    return b"kept"


def stored_file(size: int = 4, readers: ImageAudience = ImageAudience.PEOPLE, **fields: str) -> StoredFile:
    given = {"id": "f1", "mime_type": "text/csv", "name": "a.csv", **fields}
    return StoredFile(**given, size=size, readers=readers)


def names(view: TurnView, largest: int = 100) -> list[str]:
    return [file.name for file in returned_files(view, largest)]


async def test_a_stored_file_is_read_when_it_is_shared() -> None:
    first, second = returned_files(view_of(TextPart("two"), stored_file(), stored_file(id="f2")), 100)
    assert (first.slot, first.name, await first.read()) == ("file-1-1", "a.csv", b"kept")
    with pytest.raises(NotFound):
        await second.read()


def test_a_file_missing_too_large_or_for_the_model_alone_is_not_shared() -> None:
    none = (stored_file(id=""), stored_file(size=101), stored_file(size=0), stored_file(readers=ImageAudience.MODEL))
    assert names(view_of(*none)) == []
    assert names(dataclasses.replace(view_of(stored_file()), read=None)) == []
    assert names(view_of(stored_file(), status=StepStatus.UNKNOWN)) == []
    assert names(view_of(stored_file(readers=ImageAudience.ALL), status=StepStatus.FAILED)) == ["a.csv"]
    assert len(names(view_of(*[stored_file()] * (MOST_FILES + 1)))) == MOST_FILES


@pytest.mark.parametrize(
    ("mime_type", "ending"),
    [
        ("text/plain", ".txt"),
        ("image/webp", ".webp"),
        ("audio/wav", ".wav"),
        ("application/octet-stream", ".bin"),
        ("x/y", ""),
    ],
)
def test_a_file_without_a_name_is_called_after_its_tool(mime_type: str, ending: str) -> None:
    assert names(view_of(stored_file(name="", mime_type=mime_type))) == [f"notes.add_note{ending}"]
