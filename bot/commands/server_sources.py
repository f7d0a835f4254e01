"""Arguments of `/mcp add` besides options: an address or a command line, and a name, which follows from either."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from bot.commands.argument_parser import CommandRejected
from bot.commands.server_fields import slug_of
from bot.domain.packages import server_name
from bot.i18n import _

_GENERIC = frozenset(("www", "mcp", "api", "app", "server"))
_SECOND_LEVEL = frozenset(("co", "com", "org", "net", "gov", "ac"))


@dataclass(frozen=True, slots=True)
class PlacedWords:
    """Words of `/mcp add` without options: a name and an address, both may be empty, and the others."""

    name: str
    url: str
    others: tuple[str, ...]


def place_words(name: str, words: Sequence[str]) -> PlacedWords:
    """Tell an address from a name: `add NAME URL`, or `add URL`. Raises CommandRejected."""
    if _is_url(name):
        return PlacedWords("", name, tuple(words))
    if words and _is_url(words[0]):
        if len(words) > 1:
            raise CommandRejected(_("One address at a time, and options with `--`, such as `--title TEXT`."))
        return PlacedWords(name, words[0], ())
    return PlacedWords(name, "", tuple(words))


def derived_name(url: str, argv: Sequence[str]) -> str:
    """Return a slug for a server without a name; empty if nothing suggests one."""
    return slug_of(server_name(argv[0], argv[1:]) if argv else _host_name(url))


def _is_url(word: str) -> bool:
    return word.lower().startswith(("http://", "https://"))


def _host_name(url: str) -> str:
    """Return the telling part of a host: `linear` for `mcp.linear.app`."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return ""
    labels = host.split(".")[:-1]
    if not labels or all(label.isdigit() for label in labels):
        return ""
    if len(labels) > 1 and labels[-1] in _SECOND_LEVEL:
        labels.pop()
    return next((label for label in reversed(labels) if label not in _GENERIC), labels[-1])
