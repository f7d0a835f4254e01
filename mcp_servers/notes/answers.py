"""What the tools give back: structured for programs, and as short lines of text for a model and a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydantic import BaseModel, Field

from mcp_servers.notes.note import Note


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
    """A note as structured output."""
    return NoteAnswer(id=note.id, text=note.text, created_at=note.created_at)


def notes_answer(notes: Sequence[Note], total: int) -> NotesAnswer:
    """Notes as structured output."""
    return NotesAnswer(notes=[note_answer(each) for each in notes], total=total)


def notes_text(notes: Sequence[Note], kind: str, *, left_out: int) -> str:
    """A line to each note, and how to see the older ones that were left out. `kind` is what the notes are called."""
    if not notes:
        return f"There are no {kind}."
    lines = [f"#{note.id} {note_line(note)} ({note.created_at:%Y-%m-%d})" for note in notes]
    if left_out:
        lines.append(f"There are {left_out} older {kind}: set before_id to {notes[-1].id} to see them.")
    return "\n".join(lines)


def note_line(note: Note) -> str:
    """The note's text, its further lines set in so that none of them looks like a note of its own."""
    return note.text.replace("\n", "\n    ")
