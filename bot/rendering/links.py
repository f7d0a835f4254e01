"""Which links may be drawn, and which say one thing and mean another.

Called by whatever draws text that a model or a tool wrote. Knows addresses only.
"""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import urlsplit

LONGEST = 3000
LONGEST_LABEL = 300
"""A label beyond that is not looked through, and not trusted."""
LONGEST_DOMAIN = 34
"""What a button shows whole on a telephone, too."""
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
    """Whether a label names another place than the one the link leads to, or the address itself is made to deceive."""
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
    """Whether the domain of an address is written in letters that can look like others: beyond ASCII, or Punycode.
    So is one that cannot be read.
    """
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return True
    return not host.isascii() or any(part.startswith("xn--") for part in host.lower().split("."))


def open_label(url: str) -> str:
    """What a button says that leads there: the domain, unless it is too long to be read to its end, which is what
    counts, or can be taken for another.
    """
    host = "" if is_lookalike(url) else urlsplit(url).hostname or ""
    return f"Open {host}" if 0 < len(host) <= LONGEST_DOMAIN else "Open the page"


def find_urls(text: str) -> list[tuple[int, int]]:
    """Where web addresses stand in plain text, without the punctuation that follows them."""
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
