"""Splitting of a document into sections, the unit of search and `read`.

Markdown is split at headings, long sections at paragraphs. The texts of all sections joined are the document's
text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

LONGEST_SECTION = 4000
"""Maximum length of a section in characters."""

_LONGEST_HEADING = 200
_LONGEST_SLUG = 80
_LONGEST_FRONT_MATTER = 200
"""Maximum length of front matter in lines."""

_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_NO_PARAGRAPH = re.compile(r" {4}|[ \t]*(?:[-*+>|]|\d{1,9}[.)])")
_NEVER_UNDERLINED = 2
"""Minimum lines of a paragraph that an underline does not turn into a heading."""

_LINK = re.compile(r"!?\[([^\]\[]*)\]\([^()\s]*\)")
_MARKS = re.compile(r"\*\*|[*`~]|(?<!\w)_|_(?!\w)")


@dataclass(frozen=True, slots=True)
class Section:
    """Section of a document. `slug` is unique in the document. `headings` are its parent headings, the outermost
    first.
    """

    slug: str
    headings: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Document:
    """Text with its title, split into at least one section."""

    title: str
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class _Heading:
    """Heading in the lines from `line` up to `below`."""

    level: int
    words: str
    line: int
    below: int


def markdown_document(text: str, name: str) -> Document:
    """Split Markdown at its headings. `name` is the title of a text that has none."""
    lines = _lines(text)
    title, after = _front_matter(lines)
    headings = list(_headings(lines, after))
    tops = [heading.words for heading in headings if heading.level == 1] or [heading.words for heading in headings]
    return Document(title or next(iter(tops), "") or name, tuple(_sections(lines, headings)))


def plain_document(text: str, name: str) -> Document:
    """Split a text without headings at its paragraphs. `name` is its title."""
    return Document(name, tuple(_split_long("", (), text, _Slugs())))


def parts(text: str, longest: int) -> list[str]:
    """Split a text into parts of at most `longest` characters, at paragraphs if possible, else at lines, else at
    words. The joined parts equal the text.
    """
    pieces = []
    start = 0
    while len(text) - start > longest:
        end = start + longest
        for gap in ("\n\n", "\n", " "):
            at = text.rfind(gap, start + longest // 2, end)
            if at >= 0:
                end = at + len(gap)
                break
        pieces.append(text[start:end])
        start = end
    return [*pieces, text[start:]]


def below_headings(text: str) -> str:
    """Return a section's text without its leading headings."""
    lines = _lines(text)
    headed = itertools.takewhile(lambda line: not line.strip() or _parse_heading(line.rstrip("\n")) is not None, lines)
    return "".join(lines[len(list(headed)) :])


class _Slugs:
    """Unique slugs for sections: `who-may-approve`, then `who-may-approve-1`."""

    def __init__(self) -> None:
        self._given: dict[str, int] = {}

    def of(self, words: str) -> str:
        plain = re.sub(r"[^\w\- ]", "", words.lower()).strip().replace(" ", "-")[:_LONGEST_SLUG] or "start"
        slug = plain
        while slug in self._given:
            slug = f"{plain}-{self._given[plain]}"
            self._given[plain] += 1
        self._given[slug] = 1
        return slug


def _sections(lines: Sequence[str], headings: Sequence[_Heading]) -> Iterator[Section]:
    """Yield the text before the first heading, then one section for each heading. A heading without text is joined
    with the next section, because alone it would match a search and have no content.
    """
    slugs = _Slugs()
    path: list[_Heading] = []
    start = 0
    words: tuple[str, ...] = ()
    bounds = [*headings, _Heading(0, "", len(lines), len(lines))]
    below = 0
    for following in bounds:
        last = following.level == 0
        if last or any(line.strip() for line in lines[below : following.line]):
            yield from _split_long(words[-1] if words else "", words, "".join(lines[start : following.line]), slugs)
            start = following.line
        path = [*(heading for heading in path if heading.level < following.level), following]
        words = tuple(heading.words for heading in path if heading.words)
        below = following.below


def _split_long(name: str, headings: tuple[str, ...], text: str, slugs: _Slugs) -> Iterator[Section]:
    for n, part in enumerate(parts(text, LONGEST_SECTION), 1):
        yield Section(slugs.of(name if n == 1 else f"{name or 'start'} part {n}"), headings, part)


def _headings(lines: Sequence[str], after: int) -> Iterator[_Heading]:
    """Yield the headings below line `after`, outside of fenced blocks."""
    fence = ""
    paragraph = 0
    for at in range(after, len(lines)):
        line = lines[at].rstrip("\n")
        mark = _FENCE.match(line)
        before, paragraph = paragraph, 0
        if fence:
            closes = mark is not None and mark[1].startswith(fence) and not line[mark.end() :].strip()
            fence = "" if closes else fence
        elif mark is not None:
            fence = mark[1]
        elif heading := _parse_heading(line):
            yield _Heading(heading[0], _words(heading[1]), at, at + 1)
        elif before == 1 and (underline := _UNDERLINE.match(line)):
            yield _Heading(1 if "=" in underline[1] else 2, _words(lines[at - 1]), at - 1, at + 1)
        elif line.strip():
            paragraph = before + 1 if before or not _NO_PARAGRAPH.match(line) else _NEVER_UNDERLINED


def _parse_heading(line: str) -> tuple[int, str] | None:
    """Return level and text of `## A heading ##`."""
    begun = line.lstrip(" ")
    rest = begun.lstrip("#")
    level = len(begun) - len(rest)
    if not 1 <= level <= 6 or len(line) - len(begun) > 3 or rest[:1] not in ("", " ", "\t"):
        return None
    words = rest.strip()
    closed = words.rstrip("#")
    return level, closed.rstrip() if not closed or closed[-1] in " \t" else words


def _words(marked_up: str) -> str:
    plain = _MARKS.sub("", _LINK.sub(r"\1", marked_up[: 5 * _LONGEST_HEADING]))
    return " ".join(plain.split())[:_LONGEST_HEADING].rstrip()


def _front_matter(lines: Sequence[str]) -> tuple[str, int]:
    """Return the title in a front matter block and the line after it; empty and 0 without one."""
    if not lines or lines[0].rstrip() != "---":
        return "", 0
    for at, line in enumerate(lines[1:_LONGEST_FRONT_MATTER], 1):
        if line.rstrip() in ("---", "..."):
            titles = (
                entry.partition(":")[2].strip().strip("\"'") for entry in lines[1:at] if entry.startswith("title:")
            )
            return _words(next(titles, "")), at + 1
    return "", 0


def _lines(text: str) -> list[str]:
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])
