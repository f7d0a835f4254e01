"""Which links may be drawn, and which say one thing and mean another.

Knows addresses only.
"""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import urlsplit

LONGEST = 3000
LONGEST_LABEL = 300
"""A label beyond that is not looked through, and not trusted."""
LONGEST_DOMAIN = 34
"""Characters that a button shows in full on a phone."""
_SCHEMES = ("http", "https", "mailto")
_HOSTS = re.compile(r"(?:[^\W_](?:[\w-]*[^\W_])?\.)+[^\W\d_]{2,}")
_BARE = re.compile(r"https?://[^\s<>\"`|\\^{}]+", re.IGNORECASE)
_AFTERTHOUGHT = ".,;:!?'\"*_~"


def safe_url(url: str) -> str:
    """The address if a person may be sent there with a click: `http`, `https` and `mailto`; otherwise empty."""
    if len(url) > LONGEST or not url.isprintable() or any(each.isspace() for each in url):
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
    host = _bare(parts.hostname or "")
    return any(_bare(each) != host for each in _HOSTS.findall(label))


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
    return f"Open {host}" if 0 < len(host) <= LONGEST_DOMAIN else "Open the page"


def find_urls(text: str) -> list[tuple[int, int]]:
    """Return the positions of web addresses in plain text, without the punctuation that follows them."""
    found = []
    for match in _BARE.finditer(text):
        address = match.group().rstrip(_AFTERTHOUGHT)
        while address.endswith((")", "]")) and address.count(address[-1]) > address.count("(["[address[-1] == "]"]):
            address = address[:-1].rstrip(_AFTERTHOUGHT)
        if safe_url(address):
            found.append((match.start(), match.start() + len(address)))
    return found


def _bare(host: str) -> str:
    return host.lower().removeprefix("www.").rstrip(".")
