"""Structured output of the tools. Descriptions of fields are for the model."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, Field

from mcp_servers.knowledge.index import Listed, Passage
from mcp_servers.knowledge.library import Listing, Page
from mcp_servers.knowledge.sections import below_headings
from mcp_servers.knowledge.tokenizer import Question, is_unspaced, stems

# -------------------- snippets

LONGEST_SNIPPET = 600
"""Maximum length of a snippet in characters."""

_LEAD = 80
"""Characters of context before the first matching word."""

_MOST_PLACES = 300


def snippet(text: str, terms: Sequence[str], longest: int = LONGEST_SNIPPET) -> str:
    """Return a section's text if it is short, else the stretch with the most terms; `…` marks a cut. Blank lines
    and leading headings are left out.
    """
    body = re.sub(r"\s*\n\s*\n", "\n", below_headings(text)).strip() or text.strip()
    if len(body) <= longest:
        return body
    start = _start(body, terms, longest)
    end = len(body) if start + longest >= len(body) else _gap(body, start + longest // 2, start + longest)
    return f"{'…' if start else ''}{body[start:end].strip()}{'…' if end < len(body) else ''}"


def _start(text: str, terms: Sequence[str], longest: int) -> int:
    """Return the start of the stretch with the most different terms, including some context."""
    places = list(itertools.islice(_places(text, terms), _MOST_PLACES))
    best, most = 0, 0
    for n, (at, _) in enumerate(places):
        held = {term for place, term in places[n:] if place < at + longest - _LEAD}
        if len(held) > most:
            best, most = at, len(held)
    start = min(max(best - _LEAD, 0), len(text) - longest)
    spaces = [at for gap in " \n" if 0 <= (at := text.find(gap, start, best)) < best]
    return min(spaces, default=start - 1) + 1 if start else 0


def _gap(text: str, start: int, end: int) -> int:
    """Return the position of the last gap between words in a stretch, or its end if there is none."""
    gap = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
    return end if gap < 0 else gap


def _places(text: str, terms: Sequence[str]) -> Sequence[tuple[int, str]]:
    """Return the approximate positions of the terms: words are compared by their stems."""
    if not terms:
        return []
    wanted = [re.escape(stem) if is_unspaced(stem) else rf"(?<!\w){re.escape(stem)}" for stem in stems(terms)]
    folded: list[str] = []
    places: list[int] = []
    for at, character in enumerate(text):
        plain = unicodedata.normalize("NFKC", character).casefold()
        folded.append(plain)
        places.extend([at] * len(plain))
    return [(places[match.start()], match.group()) for match in re.finditer("|".join(wanted), "".join(folded))]


_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)

DocumentId = Annotated[str, Field(description="What `read` takes for the whole document; its path in the folder")]
Title = Annotated[str, Field(description="The document's title")]
Headings = Annotated[list[str], Field(description="The headings that lead to it, the outermost first")]
ModifiedAt = Annotated[datetime, Field(description="When the file was last changed")]
Complete = Annotated[bool, Field(description="False while files are still being read: asked again, there may be more")]


class Hit(BaseModel):
    """A section that was found."""

    id: str = Field(description="What `read` takes for the whole section")
    document: DocumentId
    title: Title
    headings: Headings
    text: str = Field(description="The section if it is short, else a piece of it; … marks where it was cut")
    modified_at: ModifiedAt


class SearchAnswer(BaseModel):
    """Sections that fit."""

    hits: list[Hit] = Field(description="The best first")
    complete: Complete


class ReadAnswer(BaseModel):
    """A page of a document or of a section."""

    id: str
    document: DocumentId
    title: Title
    headings: Headings
    text: str
    page: int = Field(description="Which page this is, from 1")
    pages: int = Field(description="How many there are")
    modified_at: ModifiedAt
    complete: Complete


class DocumentAnswer(BaseModel):
    """A document."""

    id: DocumentId
    title: Title
    sections: int = Field(description="How many sections it has")
    modified_at: ModifiedAt


class LeftOut(BaseModel):
    """A file that is no document here."""

    file: str
    reason: str


class ListAnswer(BaseModel):
    """Some of the documents, by their ids."""

    documents: list[DocumentAnswer]
    total: int = Field(description="How many there are in all, given here or not")
    more: bool = Field(description="Whether there are documents after these")
    left_out: list[LeftOut] = Field(
        description="Files that are no documents, a few of them and with the first page only"
    )
    left_out_total: int = Field(description="How many files are no documents")
    complete: Complete


def search_answer(passages: Sequence[Passage], wanted: Question | None, *, complete: bool) -> SearchAnswer:
    """Return search results as structured output."""
    terms = wanted.terms if wanted else ()
    hits = [
        Hit(
            id=passage.id,
            document=passage.document,
            title=passage.title,
            headings=list(passage.headings),
            text=snippet(passage.text, terms),
            modified_at=_moment(passage.modified),
        )
        for passage in passages
    ]
    return SearchAnswer(hits=hits, complete=complete)


def read_answer(page: Page, *, complete: bool) -> ReadAnswer:
    """Return a page as structured output."""
    return ReadAnswer(
        id=page.passage.id,
        document=page.passage.document,
        title=page.passage.title,
        headings=list(page.passage.headings),
        text=page.text,
        page=page.number,
        pages=page.pages,
        modified_at=_moment(page.passage.modified),
        complete=complete,
    )


def list_answer(listing: Listing, *, complete: bool) -> ListAnswer:
    """Return a list of documents as structured output."""
    return ListAnswer(
        documents=[_document(document) for document in listing.documents],
        total=listing.total,
        more=listing.more,
        left_out=[LeftOut(file=file, reason=reason) for file, reason in listing.left_out],
        left_out_total=listing.left_out_total,
        complete=complete,
    )


def _document(listed: Listed) -> DocumentAnswer:
    return DocumentAnswer(
        id=listed.id, title=listed.title, sections=listed.sections, modified_at=_moment(listed.modified)
    )


def _moment(seconds: float) -> datetime:
    """Return a file's time; the minimum datetime if it is out of range."""
    try:
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=0)
    except (ValueError, OverflowError, OSError):
        return _EARLIEST
