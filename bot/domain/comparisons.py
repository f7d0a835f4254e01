"""Comparisons of an argument in a rule: exact, case-folded, or by the host of an address.

A rule names the comparison around the argument's path: `project`, `folded(project)`, `host(url)`.
"""

from __future__ import annotations

import re
import unicodedata
from enum import StrEnum


class Comparison(StrEnum):
    """Comparison of two texts."""

    EXACT = ""
    FOLDED = "folded"
    HOST = "host"


_CALLED = re.compile(r"([A-Za-z_]+)\((.*)\)", re.DOTALL)
_NO_HOST = re.compile(r"[\s/\\@#%]")


def parse_comparison(key: str) -> tuple[Comparison, str]:
    """Return the comparison and the path in the key of a rule's argument. Raises ValueError."""
    found = _CALLED.fullmatch(key)
    if found is None:
        return Comparison.EXACT, key
    known = [each.value for each in Comparison if each]
    if found[1] not in known:
        raise ValueError(f"compares by {found[1]!r:.40}, and can by {' or '.join(known)}")
    if not found[2]:
        raise ValueError("names no argument within the brackets")
    return Comparison(found[1]), found[2]


def host_problem(pattern: str) -> str:
    """Return the error of a text as the host of a rule, as the end of a sentence; empty if it is valid."""
    ipv6 = pattern.count(":") > 1 and not pattern.startswith("[")
    if _NO_HOST.search(pattern) or (":" in pattern and not ipv6) or not pattern.strip(".*"):
        return "must be a host alone, such as example.com, .example.com for it and all below it, or *.example.com"
    return ""


def fold_text(text: str) -> str:
    """Return the text in compatibility form (NFKC), case-folded and without invisible format characters."""
    once = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(each for each in once if unicodedata.category(each) != "Cf")
