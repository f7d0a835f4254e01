"""Folder and index together. All methods block on the disk: `BackgroundIndexer` runs them in a thread."""

from __future__ import annotations

import hashlib
import time
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mcp_servers.knowledge.folder import MARKDOWN, File, Folder, NotRead, NotReadNow, Refused
from mcp_servers.knowledge.index import Index, Known, Listed, Passage
from mcp_servers.knowledge.sections import Document, markdown_document, parts, plain_document
from mcp_servers.knowledge.tokenizer import Question

LONGEST_PAGE = 8000
"""Maximum length of a page in characters."""

MOST_LEFT_OUT = 20
"""Maximum number of unreadable files that are listed."""

_NAMED_SLUGS = 30
_SLICE = 0.05
"""Seconds of a refresh before other requests get their turn."""

_NOTHING = Document("", ())


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a document or a section; `number` counts from 1."""

    passage: Passage
    text: str
    number: int
    pages: int


@dataclass(frozen=True, slots=True)
class Listing:
    """Some of the documents, their total number, and True if more follow. `left_out` are some files that are not
    documents, with the reason; they come with the first page only.
    """

    documents: tuple[Listed, ...]
    total: int
    more: bool
    left_out: tuple[tuple[str, str], ...]
    left_out_total: int


class Library:
    """Documents of a folder. Use it from one thread at a time, and close it."""

    def __init__(
        self,
        folder: Path,
        database: Path | None,
        *,
        excluded: Collection[str] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        """Open the index, which may hold documents from an earlier run. Subfolders of the `excluded` names are skipped.
        `now` is the files' clock. Raises Refused.
        """
        self._folder = Folder(folder, excluded=excluded, now=now)
        self._index = Index(database, folder)

    def refresh(self) -> Iterator[None]:
        """Update the index from the folder, one file at each step. Raises Refused.

        It may be stopped after any step: the next refresh continues.
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
        """Run a refresh for `_SLICE` seconds and commit. Return False when it is done. Raises Refused."""
        ends = time.monotonic() + _SLICE
        try:
            while more := next(refresh, True) is None:
                if time.monotonic() >= ends:
                    break
        finally:
            self._index.commit()
        return more

    def search(self, wanted: Question, most: int) -> Sequence[Passage]:
        """Return the best matching sections, best first. Raises Refused."""
        return self._index.search(wanted, most)

    def read(self, wanted: str, number: int) -> Page:
        """Return a page of a document or of a section. Raises Refused if it does not exist."""
        passage = self._passage(unicodedata.normalize("NFC", wanted.strip()).encode(errors="replace").decode())
        pages = parts(passage.text, LONGEST_PAGE)
        if number > len(pages):
            raise Refused(f"{passage.id} has no page {number}: it ends with page {len(pages)}.")
        return Page(passage, pages[number - 1], number, len(pages))

    def listing(self, after: str, most: int) -> Listing:
        """Return documents sorted by id, those after an id. Raises Refused."""
        total, left_out_total = self._index.counts()
        documents = self._index.listed(after.encode(errors="replace").decode(), most + 1)
        left_out = () if after else self._index.left_out(MOST_LEFT_OUT)
        return Listing(tuple(documents[:most]), total, len(documents) > most, tuple(left_out), left_out_total)

    def interrupt(self) -> None:
        """Interrupt a query of another thread, which raises Refused there."""
        self._index.interrupt()

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _take(self, file: File) -> None:
        """Index one file, unless another server that shares the index has done so."""
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
    """Return True if the file is unchanged since it was indexed."""
    if file.mark:
        return file.mark == known.mark
    return file.problem != "" and file.problem == known.problem


def _document(file: File, text: str) -> Document:
    path = Path(file.id)
    divide = markdown_document if path.suffix.lower() in MARKDOWN else plain_document
    return divide(text, path.stem)
