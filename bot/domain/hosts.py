"""Hosts in a text, for comparison by rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts of one text. `names` are canonical: lower case, Punycode, no port, no trailing dot, IPv6 without brackets.
    If parsers disagree on the host, `names` has each result. `certain` is False if a part of the text cannot be parsed
    as an address, so that any host may be meant.
    """

    names: frozenset[str] = frozenset()
    certain: bool = True

    def __or__(self, other: Hosts) -> Hosts:
        return Hosts(self.names | other.names, self.certain and other.certain)


UNREADABLE = Hosts(certain=False)

ReadHosts = Callable[[str], Hosts]
"""Return the hosts in a text."""


def no_hosts_read(text: str) -> Hosts:  # noqa: ARG001 - a ReadHosts
    """Return UNREADABLE, so that each rule on a host may match each call."""
    return UNREADABLE
