"""The folder and its index together: what is asked of them, one thing at a time and waiting for the disk.

`keeper` runs all of this in a thread of its own.
"""

from __future__ import annotations

import hashlib
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mcp_servers.knowledge.folder import MARKDOWN, File, Folder, NotRead, NotReadNow, Refused
from mcp_servers.knowledge.index import Index, Known, Listed, Passage
from mcp_servers.knowledge.sections import Document, markdown_document, parts, plain_document
from mcp_servers.knowledge.tokenizer import Question

LONGEST_PAGE = 8000
"""Characters."""

MOST_LEFT_OUT = 20
"""So many files are named that could not be read."""

_NAMED_SLUGS = 30
_SLICE = 0.05
"""Seconds that a refresh works before others may ask something."""

_NOTHING = Document("", ())


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a document or a section; `number` counts from 1."""

    passage: Passage
    text: str
    number: int
    pages: int


@dataclass(frozen=True, slots=True)
class Listing:
    """Some of the documents, how many there are in all, and whether there are some after these. `left_out` are a few of
    the files that are no documents, with the reason; they come with the first documents only.
    """

    documents: tuple[Listed, ...]
    total: int
    more: bool
    left_out: tuple[tuple[str, str], ...]
    left_out_total: int


class Library:
    """What is known of a folder. Use it from one thread at a time, and close it."""

    def __init__(self, folder: Path, database: Path | None, *, now: Callable[[], float] = time.time) -> None:
        """Open the index, which knows what it knew the last time. `now` is the files' clock. Raises Refused."""
        self._folder = Folder(folder, now=now)
        self._index = Index(database, folder)

    def refresh(self) -> Iterator[None]:
        """Bring the index to what the folder holds now, a file at each step. Raises Refused.

        It may be left after any step: the next refresh does what is missing.
        """
        before = dict(self._index.known())
        seen = set()
        for file in self._folder.files():
            if file.id not in seen:
                known = before.pop(file.id, None)
                if known is None or not _is_as_known(file, known):
                    self._take(file)
            seen.add(file.id)
            yield
        for gone in before:
            self._index.remove(gone)
            yield

    def advance(self, refresh: Iterator[None]) -> bool:
        """Go on with a refresh for a moment and keep what it did. False once it is done. Raises Refused."""
        ends = time.monotonic() + _SLICE
        try:
            while more := next(refresh, True) is None:
                if time.monotonic() >= ends:
                    break
        finally:
            self._index.commit()
        return more

    def search(self, wanted: Question, most: int) -> Sequence[Passage]:
        """The sections that fit best, best first. Raises Refused."""
        return self._index.search(wanted, most)

    def read(self, wanted: str, number: int) -> Page:
        """A page of a document or of a section. Raises Refused if there is none."""
        passage = self._passage(unicodedata.normalize("NFC", wanted.strip()).encode(errors="replace").decode())
        pages = parts(passage.text, LONGEST_PAGE)
        if number > len(pages):
            raise Refused(f"{passage.id} has no page {number}: it ends with page {len(pages)}.")
        return Page(passage, pages[number - 1], number, len(pages))

    def listing(self, after: str, most: int) -> Listing:
        """Documents by their ids, those after an id. Raises Refused."""
        total, left_out_total = self._index.counts()
        documents = self._index.listed(after.encode(errors="replace").decode(), most + 1)
        left_out = () if after else self._index.left_out(MOST_LEFT_OUT)
        return Listing(tuple(documents[:most]), total, len(documents) > most, tuple(left_out), left_out_total)

    def interrupt(self) -> None:
        """End what another thread is just asking; it sees Refused."""
        self._index.interrupt()

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _take(self, file: File) -> None:
        """Bring the index to what one file says, unless another server that shares it has done so meanwhile."""
        known = self._index.known_of(file.id)
        if known is not None and _is_as_known(file, known):
            return
        if file.problem:
            self._index.put(file, _NOTHING, b"")
            return
        try:
            text = self._folder.text(file)
        except NotReadNow as reason:
            self._take(replace(file, mark="", problem=str(reason)))
        except NotRead as reason:
            self._index.put(replace(file, problem=str(reason)), _NOTHING, b"")
        else:
            digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
            if known is None or known.digest != digest:
                self._index.put(file, _document(file, text), digest)
            elif known.mark != file.mark:
                self._index.renew(file)

    def _passage(self, wanted: str) -> Passage:
        if (whole := self._index.document(wanted)) is not None:
            return whole
        document, _, slug = wanted.rpartition("#")
        if (section := self._index.section(document, slug)) is not None:
            return section
        if slugs := self._index.slugs(document):
            more = f" and {len(slugs) - _NAMED_SLUGS} more" if len(slugs) > _NAMED_SLUGS else ""
            raise Refused(
                f"{document} has no section {slug[:200]!r}. Its sections are: {', '.join(slugs[:_NAMED_SLUGS])}{more}."
            )
        raise Refused(
            f"There is no document and no section {wanted[:200]!r}. "
            "Give an id exactly as search or list shows it: use one of them to see what there is."
        )


def _is_as_known(file: File, known: Known) -> bool:
    """Whether reading the file would tell nothing new."""
    if file.mark:
        return file.mark == known.mark
    return file.problem != "" and file.problem == known.problem


def _document(file: File, text: str) -> Document:
    path = Path(file.id)
    divide = markdown_document if path.suffix.lower() in MARKDOWN else plain_document
    return divide(text, path.stem)
