"""The notes server: add, list, search and delete over standard input and output."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

from mcp_servers.notes.note import LONGEST_NOTE, Note, Notebook, Refused
from mcp_servers.notes.notebook_file import NotebookFile

# -------------------- answers


class NoteAnswer(BaseModel):
    """One note."""

    id: int = Field(description="The number by which the note can be deleted; never used for another note")
    text: str
    created_at: datetime


class NotesAnswer(BaseModel):
    """Some notes, the newest first."""

    notes: list[NoteAnswer]
    total: int = Field(description="How many there are in all, given here or not")


def note_answer(note: Note) -> NoteAnswer:
    """Return a note as structured output."""
    return NoteAnswer(id=note.id, text=note.text, created_at=note.created_at)


def notes_answer(notes: Sequence[Note], total: int) -> NotesAnswer:
    """Return notes as structured output."""
    return NotesAnswer(notes=[note_answer(note) for note in notes], total=total)


def notes_text(notes: Sequence[Note], kind: str, *, left_out: int) -> str:
    """Return one line for each note, and the id for the older ones that are left out. `kind` is the noun for the
    notes.
    """
    if not notes:
        return f"There are no {kind}."
    lines = [f"#{note.id} {note_line(note)} ({note.created_at:%Y-%m-%d})" for note in notes]
    if left_out:
        lines.append(f"There are {left_out} older {kind}: set before_id to {notes[-1].id} to see them.")
    return "\n".join(lines)


def note_line(note: Note) -> str:
    """Return the note's text with its further lines indented, so that none looks like another note."""
    return note.text.replace("\n", "\n    ")


VERSION = "1.0.0"
DEFAULT_FILE = "data/notes.json"
MOST_LISTED = 50

INSTRUCTIONS = "Notes that stay between conversations, kept in one file and shared by everyone who uses this server."

Done = TypeVar("Done")
Limit = Annotated[int, Field(description="How many notes at most", ge=1, le=MOST_LISTED)]
BeforeId = Annotated[int | None, Field(description="Only notes older than the one with this id, to go on from a list")]


def create_server(path: Path) -> MCPServer[object]:
    """Create the server for the notes in one file."""
    file = NotebookFile(path)
    server: MCPServer[object] = MCPServer(
        "notes", title="Notes", instructions=INSTRUCTIONS, version=VERSION, log_level="WARNING"
    )

    @server.tool(
        name="add",
        title="Add a note",
        description="Save a note. Returns its id.",
        annotations=ToolAnnotations(
            title="Add a note",
            read_only_hint=False,
            destructive_hint=False,
            idempotent_hint=False,
            open_world_hint=False,
        ),
    )
    def add(
        text: Annotated[str, Field(description=f"The note, as it should be kept; {LONGEST_NOTE} characters at most")],
    ) -> Annotated[CallToolResult, NoteAnswer]:
        changed = _done(
            lambda: file.change(lambda book: book.with_note(text, datetime.now(UTC).replace(microsecond=0)))
        )
        note = changed.notes[-1]
        return _result(f"Saved as note #{note.id}: {note.text}", note_answer(note))

    @server.tool(
        name="list",
        title="List notes",
        description="The saved notes with their ids, the newest first.",
        annotations=_reading("List notes"),
    )
    def list_notes(
        limit: Limit = 20,
        before_id: BeforeId = None,
        id: Annotated[int | None, Field(description="Only this note")] = None,  # noqa: A002
    ) -> Annotated[CallToolResult, NotesAnswer]:
        notes = [note for note in _done(file.read).notes if id in (None, note.id)]
        return _page(tuple(reversed(notes)), limit, before_id, "notes")

    @server.tool(
        name="search",
        title="Search notes",
        description="The saved notes that contain every one of some words, the newest first.",
        annotations=_reading("Search notes"),
    )
    def search(
        words: Annotated[str, Field(description="Words or parts of words; upper and lower case are the same")],
        limit: Limit = 20,
        before_id: BeforeId = None,
    ) -> Annotated[CallToolResult, NotesAnswer]:
        return _page(_done(lambda: file.read().search(words)), limit, before_id, "matching notes")

    @server.tool(
        name="delete",
        title="Delete a note",
        description="Delete one note for good.",
        annotations=ToolAnnotations(
            title="Delete a note",
            read_only_hint=False,
            destructive_hint=True,
            idempotent_hint=True,
            open_world_hint=False,
        ),
    )
    def delete(
        id: Annotated[int, Field(description="The id of the note, as add, list and search give it")],  # noqa: A002
    ) -> Annotated[CallToolResult, NoteAnswer]:
        note = _done(lambda: _delete(file, id))
        return _result(f"Deleted note #{note.id}: {note.text}", note_answer(note))

    return server


def main() -> None:
    """Run until standard input ends."""
    path = Path(os.environ.get("NOTES_FILE", "").strip() or DEFAULT_FILE).expanduser()
    try:
        create_server(path).run()
    except* BrokenPipeError:
        # The client is gone: an orderly exit would try to flush output that cannot be written.
        os._exit(0)


def _delete(file: NotebookFile, note_id: int) -> Note:
    """Delete a note and return it; both under one lock."""
    gone: list[Note] = []

    def without(book: Notebook) -> Notebook:
        gone.append(book.note(note_id))
        return book.without(note_id)

    file.change(without)
    return gone[0]


def _reading(title: str) -> ToolAnnotations:
    return ToolAnnotations(
        title=title, read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )


def _page(notes: Sequence[Note], limit: int, before_id: int | None, kind: str) -> CallToolResult:
    older = [note for note in notes if before_id is None or note.id < before_id]
    page = older[:limit]
    text = notes_text(page, kind, left_out=len(older) - len(page))
    return _result(text, notes_answer(page, len(notes)))


def _done(action: Callable[[], Done]) -> Done:
    try:
        return action()
    except Refused as problem:
        raise ToolError(str(problem)) from problem


def _result(text: str, answer: BaseModel) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=text)], structured_content=answer.model_dump(mode="json")
    )
