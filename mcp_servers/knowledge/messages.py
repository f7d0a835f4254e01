"""The answers as text: short lines that read well to a model and in a terminal.

What is found in documents is set in, so that none of it looks like a line of this server's.
"""

from __future__ import annotations

from mcp_servers.knowledge.answers import DocumentAnswer, Hit, ListAnswer, ReadAnswer, SearchAnswer
from mcp_servers.knowledge.tokenizer import Question

_LONGEST_SAID = 100
"""Characters of what was searched for."""

STILL_READING = "(The folder is still being read: ask again in a moment, there may be more.)"


def search_text(answer: SearchAnswer, wanted: Question | None) -> str:
    """What was found, the id of each last in its first line."""
    lines = [line for n, hit in enumerate(answer.hits, 1) for line in _hit_lines(n, hit)]
    if lines:
        lines.append("To see all of a section or a document, read it by the id in brackets.")
    elif wanted is None:
        lines.append("There is no word to search for in this. Use list to see the documents.")
    else:
        said = " ".join(wanted.terms)
        said = said if len(said) <= _LONGEST_SAID else said[:_LONGEST_SAID] + "…"
        how = "these words side by side" if wanted.exactly and len(wanted.terms) > 1 else "any of these words"
        lines.append(f"No document has {how}: {said}. Try others, or use list to see the documents.")
    return "\n".join(lines if answer.complete else [*lines, STILL_READING])


def read_text(answer: ReadAnswer) -> str:
    """Whose text it is, the text, and how to go on."""
    lines = [f"{_path(answer.title, answer.headings)} [{answer.id}]", "", answer.text.strip("\n")]
    if answer.pages > 1:
        onward = f"; set page to {answer.page + 1} to go on" if answer.page < answer.pages else ""
        lines += ["", f"(Page {answer.page} of {answer.pages}{onward}.)"]
    return "\n".join(lines)


def list_text(answer: ListAnswer, after_id: str) -> str:
    """A line to each document, how to see those that follow, and what was left out."""
    lines = [_document_line(document) for document in answer.documents]
    if not answer.total:
        lines.append("There are no documents. Put Markdown (.md) or text (.txt) files into the folder.")
    elif not lines:
        lines.append(f"There are no documents after {after_id!r}, and {answer.total} in all.")
    if answer.more:
        lines.append(f"(There are {answer.total} in all: set after_id to {answer.documents[-1].id} to go on.)")
    lines += [f"Left out: {each.file}, because {each.reason}." for each in answer.left_out]
    if answer.left_out and answer.left_out_total > len(answer.left_out):
        lines.append(f"Left out: {answer.left_out_total - len(answer.left_out)} more files.")
    return "\n".join(lines if answer.complete else [*lines, STILL_READING])


def _hit_lines(n: int, hit: Hit) -> list[str]:
    first = f"{n}. {_path(hit.title, hit.headings)} [{hit.id}]"
    return [first, *(f"   {line}" for line in hit.text.split("\n"))]


def _document_line(document: DocumentAnswer) -> str:
    sections = "1 section" if document.sections == 1 else f"{document.sections} sections"
    return f"{document.title} [{document.id}] ({sections}, {document.modified_at:%Y-%m-%d})"


def _path(title: str, headings: list[str]) -> str:
    """The way to a section: the document's title first, once."""
    return " > ".join(headings if headings[:1] == [title] else [title, *headings])
