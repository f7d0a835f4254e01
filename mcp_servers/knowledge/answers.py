"""What the tools give back as structured output; each field is described for the model that reads it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, Field

from mcp_servers.knowledge.index import Listed, Passage
from mcp_servers.knowledge.library import Listing, Page
from mcp_servers.knowledge.snippets import snippet
from mcp_servers.knowledge.tokenizer import Question

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
    """What was found as structured output."""
    terms = wanted.terms if wanted else ()
    hits = [
        Hit(
            id=each.id,
            document=each.document,
            title=each.title,
            headings=list(each.headings),
            text=snippet(each.text, terms),
            modified_at=_moment(each.modified),
        )
        for each in passages
    ]
    return SearchAnswer(hits=hits, complete=complete)


def read_answer(page: Page, *, complete: bool) -> ReadAnswer:
    """A page as structured output."""
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
    """Documents as structured output."""
    return ListAnswer(
        documents=[_document(each) for each in listing.documents],
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
    """A file's time; the earliest there is for one that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=0)
    except (ValueError, OverflowError, OSError):
        return _EARLIEST
