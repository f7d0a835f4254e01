"""The piece of a section that shows why it was found."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Sequence

from mcp_servers.knowledge.sections import below_headings
from mcp_servers.knowledge.tokenizer import is_unspaced, stems

LONGEST_SNIPPET = 600
"""Characters."""

_LEAD = 80
"""Characters of context before the first word that was searched for."""

_MOST_PLACES = 300


def snippet(text: str, terms: Sequence[str], longest: int = LONGEST_SNIPPET) -> str:
    """A section's text if it is short, else the stretch with the most of the terms; `…` marks where it was cut. Blank
    lines are left out, and so are the headings at the beginning, which are told beside the text.
    """
    body = re.sub(r"\s*\n\s*\n", "\n", below_headings(text)).strip() or text.strip()
    if len(body) <= longest:
        return body
    start = _start(body, terms, longest)
    end = len(body) if start + longest >= len(body) else _gap(body, start + longest // 2, start + longest)
    return f"{'…' if start else ''}{body[start:end].strip()}{'…' if end < len(body) else ''}"


def _start(text: str, terms: Sequence[str], longest: int) -> int:
    """Where the stretch with the most different terms begins, some context before them."""
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
    """The last gap between words in a stretch, or its end if there is none."""
    gap = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
    return end if gap < 0 else gap


def _places(text: str, terms: Sequence[str]) -> Sequence[tuple[int, str]]:
    """Where the terms stand in a text, approximately: words are compared by their beginnings."""
    if not terms:
        return []
    wanted = [re.escape(stem) if is_unspaced(stem) else rf"(?<!\w){re.escape(stem)}" for stem in stems(terms)]
    folded: list[str] = []
    places: list[int] = []
    for at, character in enumerate(text):
        plain = unicodedata.normalize("NFKC", character).casefold()
        folded.append(plain)
        places.extend([at] * len(plain))
    return [(places[found.start()], found.group()) for found in re.finditer("|".join(wanted), "".join(folded))]
