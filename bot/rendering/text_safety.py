"""Text and links from models, tools and users, made safe for any platform.

The result of `strip_control` has letters, line ends and tabs, and nothing that moves a cursor, reorders a line or
hides. A link is shown as such only if its target is permitted and its label does not name another one.
"""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import urlsplit

from bot.domain.characters import ESCAPES, code_point, replace_hidden
from bot.i18n import _

LONGEST = 3000
LONGEST_LABEL = 300
"""A label beyond that is not looked through, and not trusted."""
LONGEST_DOMAIN = 34
"""Characters that a button shows in full on a phone."""
_SCHEMES = ("http", "https", "mailto")
_HOSTS = re.compile(r"(?:[^\W_](?:[\w-]*[^\W_])?\.)+[^\W\d_]{2,}")
_BARE = re.compile(r"https?://[^\s<>\"`|\\^{}]+", re.IGNORECASE)
_AFTERTHOUGHT = ".,;:!?'\"*_~"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
ELLIPSIS = "…"
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_MARKS = re.compile(
    "([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{4})"
    "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+"
)


def safe_url(url: str) -> str:
    """Return an address that may be clicked (`http`, `https`, `mailto`), otherwise an empty text."""
    if len(url) > LONGEST or not url.isprintable() or any(character.isspace() for character in url):
        return ""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    if parts.scheme.lower() not in _SCHEMES or not (parts.path if parts.scheme.lower() == "mailto" else parts.netloc):
        return ""
    return url


def is_deceptive(label: str, url: str) -> bool:
    """Return True if a label names another site than its link, or if the address itself is deceptive."""
    if len(label) > LONGEST_LABEL:
        return True
    label = unicodedata.normalize("NFKC", label).lower().strip()
    parts = urlsplit(url)
    if parts.scheme.lower() == "mailto":
        return ("@" in label or bool(_HOSTS.search(label))) and parts.path.lower() not in label
    if "@" in parts.netloc:
        return True
    host = _bare_host(parts.hostname or "")
    return any(_bare_host(candidate) != host for candidate in _HOSTS.findall(label))


def is_lookalike(url: str) -> bool:
    """Return True if a domain has lookalike letters (beyond ASCII, or Punycode), or cannot be parsed."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return True
    return not host.isascii() or any(part.startswith("xn--") for part in host.lower().split("."))


def open_label(url: str) -> str:
    """Return the label of a link's button: the domain, unless it is too long to be shown to its decisive end, or a
    lookalike.
    """
    host = "" if is_lookalike(url) else urlsplit(url).hostname or ""
    return _("Open {domain}", domain=host) if 0 < len(host) <= LONGEST_DOMAIN else _("Open the page")


def find_urls(text: str) -> list[tuple[int, int]]:
    """Return the positions of web addresses in plain text, without the punctuation that follows them."""
    spans = []
    for match in _BARE.finditer(text):
        address = match.group().rstrip(_AFTERTHOUGHT)
        while address.endswith((")", "]")) and address.count(address[-1]) > address.count("(["[address[-1] == "]"]):
            address = address[:-1].rstrip(_AFTERTHOUGHT)
        if safe_url(address):
            spans.append((match.start(), match.start() + len(address)))
    return spans


def _bare_host(host: str) -> str:
    return host.lower().removeprefix("www.").rstrip(".")


def strip_control(text: str) -> str:
    """Return the text with readable characters, line ends and tabs only.

    Escape sequences, controls and hidden characters are removed, lone surrogates become U+FFFD, and stacks of combining
    marks are cut to four. Emoji and ideographic variants stay whole. The result of a prefix is a prefix of the result,
    so that a growing text can be printed part by part.
    """
    text = str(text)
    if text.isascii() and text.isprintable():
        return text
    text = _LINE_ENDS.sub("\n", ESCAPES.sub("", text))
    return _MARKS.sub(r"\1", _SURROGATES.sub(REPLACEMENT, replace_hidden(text, lambda _character: "")))


def show_invisible(text: str) -> str:
    """Return the text with the code point in place of every character that `strip_control` would remove, for cards,
    where users approve exactly the visible text.
    """
    text = str(text)
    if text.isascii() and text.isprintable():
        return text
    text = _SURROGATES.sub(_escape_match, replace_hidden(text.replace("\r\n", "\n"), code_point))
    return _MARKS.sub(_spelled_pile, _LINE_ENDS.sub(_escape_match, text))


def single_line(text: str, limit: int) -> str:
    """Return the text on one line of at most `limit` characters, with an ellipsis if it was cut."""
    line = " ".join(strip_control(str(text)[: max(limit, 0) * 8 + 1000]).split())
    if len(line) <= limit:
        return line
    return line[: limit - 1].rstrip() + ELLIPSIS if limit > 0 else ""


def _escape_match(match: re.Match[str]) -> str:
    return code_point(match.group())


def _spelled_pile(match: re.Match[str]) -> str:
    return match[1] + "".join(map(code_point, match[0][len(match[1]) :]))
