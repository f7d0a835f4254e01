"""Agents: profiles that users of a place address by name, and their names in messages.

A message addresses an agent with its beginning: `as NAME …`, `ask NAME …`, `NAMEとして…`. Names are compared without
case, width and repeated blanks, and may be in quotes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bot.domain.characters import name_key

PLACE_NAME = "default"
"""Name of the profile that holds in a place. No agent has it."""
_CLOSE = 0.72
"""Least similarity of a mistyped name, of 1."""
_LONGEST = 200
"""Characters of a message in which a name is looked for."""
_BEGIN = re.compile(r"\s*(?P<slash>/)?(?:as|ask)\s+", re.IGNORECASE)
_AS_JAPANESE = "として"
_PARTING = r"\s:,;、。\uff0c\uff1a\uff1b"
"""Characters that part a name from the text after it."""
_SEPARATOR = re.compile(f"[{_PARTING}]")
_SEPARATORS = re.compile(f"[{_PARTING}]*")
_QUOTES = "\"'“”„「」『』\u2018\u2019"
_QUOTED = re.compile(f"[{_QUOTES}](?P<name>[^{_QUOTES}]{{1,120}})[{_QUOTES}]")


@dataclass(frozen=True, slots=True)
class AgentRef:
    """Agent that a user has named: the id of its profile, and its name at that time."""

    id: str
    name: str


PLACE_AGENT = AgentRef("", "")
"""The profile that holds in the place at the time of the turn."""


@dataclass(frozen=True, slots=True)
class Addressed:
    """A message for an agent. `text` is what follows its name."""

    agent: AgentRef
    text: str


@dataclass(frozen=True, slots=True)
class UnknownName:
    """A message that names no agent of the place. `meant` is the agent that was probably meant, with the text after its
    name; None if no name is similar.
    """

    meant: Addressed | None = None


@dataclass(frozen=True, slots=True)
class Agents:
    """Agents of a place, by name. `elsewhere` are names of other profiles of the workspace, which cannot be asked
    here.
    """

    here: tuple[AgentRef, ...] = ()
    elsewhere: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the agents."""
        return tuple(agent.name for agent in self.here)

    def find(self, name: str) -> AgentRef | None:
        """Return the agent of a name; PLACE_AGENT for PLACE_NAME. None if there is none."""
        return self._by_key.get(name_key(name))

    def closest(self, name: str) -> AgentRef | None:
        """Return the agent with the most similar name, or None."""
        by_key = {name_key(agent.name): agent for agent in self.here}
        close = difflib.get_close_matches(name_key(name[:_LONGEST]), by_key, n=1, cutoff=_CLOSE)
        return by_key[close[0]] if close else None

    def read_address(self, text: str) -> Addressed | UnknownName | None:
        """Return the agent that a message addresses, and its text. Return None for a message without an address: one
        that begins with `as` or `ask` and a word that is like no name, unless a slash precedes.
        """
        begin = _BEGIN.match(text)
        if begin is None:
            return self._japanese_address(text)
        rest = text[begin.end() :]
        if (addressed := self.read_name(rest)) is not None:
            return addressed
        meant = self._closest_address(rest)
        elsewhere = {name_key(name) for name in self.elsewhere}
        is_elsewhere = any(name_key(rest[:end]) in elsewhere for end in _ends(rest))
        return UnknownName(meant) if meant is not None or is_elsewhere or begin["slash"] else None

    def read_name(self, text: str) -> Addressed | None:
        """Return the agent with the longest name that begins the text, and the rest of the text; None without one."""
        quoted = _QUOTED.match(text)
        if quoted is not None and (agent := self.find(quoted["name"])) is not None:
            return Addressed(agent, _after(text, quoted.end()))
        by_key = self._by_key
        for end in reversed(list(_ends(text))):
            if (agent := by_key.get(name_key(text[:end]))) is not None:
                return Addressed(agent, _after(text, end))
        return None

    def _japanese_address(self, text: str) -> Addressed | None:
        name, particle, rest = text[:_LONGEST].partition(_AS_JAPANESE)
        agent = self.find(name.strip("「」『』 \u3000")) if particle else None
        return None if agent is None else Addressed(agent, _after(text, len(text[:_LONGEST]) - len(rest)))

    def _closest_address(self, text: str) -> Addressed | None:
        """Return the address with the name most like the first words of a text: as many as the name has."""
        ends = list(_ends(text))
        for count in sorted({len(name.split()) for name in self.names}, reverse=True):
            end = ends[min(count, len(ends)) - 1] if ends else 0
            if (agent := self.closest(text[:end])) is not None:
                return Addressed(agent, _after(text, end))
        return None

    @property
    def _by_key(self) -> Mapping[str, AgentRef]:
        return {name_key(agent.name): agent for agent in self.here} | {PLACE_NAME: PLACE_AGENT}


def _ends(text: str) -> Iterator[int]:
    """Yield the places where a name at the beginning of the text may end."""
    beginning = text[:_LONGEST]
    yield from (match.start() for match in _SEPARATOR.finditer(beginning) if match.start())
    if len(text) <= _LONGEST and text:
        yield len(text)


def _after(text: str, end: int) -> str:
    separators = _SEPARATORS.match(text, end)
    return text[separators.end() if separators else end :]
