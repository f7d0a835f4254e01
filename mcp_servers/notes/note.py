"""Notes and their limits."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

LONGEST_NOTE = 4000
"""Maximum length of a note in characters."""

MOST_NOTES = 10_000


class Refused(Exception):
    """The request cannot be answered. The message has the reason and a remedy."""


@dataclass(frozen=True, slots=True)
class Note:
    """One note. `id` counts up from 1. `created_at` has a time zone."""

    id: int
    text: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Notebook:
    """All notes, oldest first. `next_id` never decreases, so that the id of a deleted note is not used again."""

    notes: tuple[Note, ...] = ()
    next_id: int = 1

    def with_note(self, text: str, now: datetime) -> Notebook:
        """Return the notebook with one more note. Raises Refused for a text that is empty or too long."""
        note = Note(self.next_id, note_text(text), now)
        if len(self.notes) >= MOST_NOTES:
            raise Refused(f"There are {MOST_NOTES} notes, which is as many as there can be. Delete some first.")
        return Notebook((*self.notes, note), self.next_id + 1)

    def note(self, note_id: int) -> Note:
        """Return the note with this id. Raises Refused if it is missing."""
        note = next((candidate for candidate in self.notes if candidate.id == note_id), None)
        if note is None:
            raise Refused(f"There is no note #{note_id}. Use list or search to see the ids of the notes there are.")
        return note

    def without(self, note_id: int) -> Notebook:
        """Return the notebook without the note with this id. Raises Refused if it is missing."""
        deleted = self.note(note_id)
        return replace(self, notes=tuple(note for note in self.notes if note is not deleted))

    def search(self, words: str) -> Sequence[Note]:
        """Return the notes that contain every word, newest first. Case, width and accent composition are ignored."""
        wanted = _casefold(words).split()
        if not wanted:
            raise Refused("There is nothing to search for. Give at least one word, or use list to see the notes.")
        return [note for note in reversed(self.notes) if all(word in _casefold(note.text) for word in wanted)]


def note_text(text: str) -> str:
    """Return the text as it is stored: stripped and without control characters. Raises Refused."""
    cleaned = "".join(
        character for character in text if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cs")
    ).strip()
    if not cleaned:
        raise Refused("The note is empty, so nothing was saved. Give it a text.")
    if len(cleaned) > LONGEST_NOTE:
        raise Refused(
            f"The note has {len(cleaned)} characters and was not saved; {LONGEST_NOTE} is the most. "
            "Shorten it, or make several notes of it."
        )
    return cleaned


def _casefold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()
