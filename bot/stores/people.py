"""What is kept for people: what waits for them, where they take part, what they think of answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.domain.conversations import Author, ConversationKey
from bot.domain.terms import NO_TERMS, Terms
from bot.domain.turns import Turn


@dataclass(frozen=True, slots=True)
class AwaitedCall:
    """A call that waits for a signature, as far as it takes to say whose: without what would be signed. `editors` are
    the principals of those who have changed that. `asked_at` is in epoch seconds.
    """

    approval_id: str
    conversation: ConversationKey
    asked_by: Author
    terms: Terms = NO_TERMS
    editors: frozenset[str] = frozenset()
    asked_at: float = 0.0


@dataclass(frozen=True, slots=True)
class AwaitedPosition:
    """A place in the list of calls that wait, newest first: behind the call asked at `at` with this approval id."""

    at: float
    approval_id: str

    def __str__(self) -> str:
        return f"{self.at!r}_{self.approval_id}"

    @classmethod
    def parse(cls, text: str) -> AwaitedPosition:
        """Return the position that `str` has written. Raises ValueError for any other text."""
        found = _POSITION.fullmatch(text)
        if found is None:
            raise ValueError("not a position")
        return cls(float(found[1]), found[2])


_POSITION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)_([A-Za-z0-9_-]{1,100})", re.ASCII)


@dataclass(frozen=True, slots=True)
class AwaitedPage:
    """Some of the calls that wait. `behind` is where the next page begins, None if there is none."""

    calls: Sequence[AwaitedCall]
    behind: AwaitedPosition | None = None


class Overview(Protocol):
    """What concerns one person now."""

    async def waiting(self, reaches: Sequence[str], limit: int, behind: AwaitedPosition | None = None) -> AwaitedPage:
        """Return up to `limit` calls that wait for a signature and have not expired, newest first, in conversations
        whose key begins with one of `reaches`. Calls that cannot be read are left out.
        """

    async def asked(self, person: str, reach: str, limit: int) -> Sequence[Turn]:
        """What this person, a principal, has asked there, the latest first. Turns that cannot be read are left out."""

    async def inquired(self, person: str, reach: str, limit: int) -> Sequence[str]:
        """What servers wait to hear from this person there, by the questions' ids, the latest first."""


class Engagements(Protocol):
    """Where people and the bot are talking to each other."""

    async def engaged(self, reach: str, seconds: float, limit: int) -> Sequence[ConversationKey]:
        """The conversations whose key begins with `reach` and in which somebody has asked something in the last
        `seconds`, the latest first, at most `limit`.
        """


@dataclass(frozen=True, slots=True)
class Opinion:
    """What somebody thinks of the answer of a turn. `person` is a principal, `at` epoch seconds."""

    turn_id: str
    good: bool
    person: str
    at: float


class OpinionStore(Protocol):
    """What people think of answers. Opinions go when their turn does, and leave nothing in the audit."""

    async def keep(self, turn_id: str, good: bool, by: Author) -> None:
        """Keep what a person thinks now, in the place of what they thought before. Raises NotFound if the turn is not
        there any more.
        """

    async def of(self, turn_id: str) -> Sequence[Opinion]:
        """What people think of a turn's answer, the first to say so first."""
