"""How much of a turn somebody has been told, small enough to be the id of an event.

What a client sends back as `Last-Event-ID` is all that a stream needs to go on after it, in whichever process, without
telling anything twice. It is the client's own word and decides nothing but what that client is told.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

NOTHING = "-"
OVER = "x"
_CODE = r"[a-z][0-9]{0,6}(?:_[0-9]{1,6})?"
_FORM = re.compile(
    rf"([A-Za-z0-9_-]{{1,64}})\.([-a-z][0-9]{{0,6}})\.([0-9]{{1,9}})\.([0-9a-f]{{8}})\.((?:{_CODE}){{0,1000}})"
)


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in what a turn tells.

    `state` is the last word on the turn as a whole, `steps` one on each of its steps, in order (`bot.web.turns.events`
    has the words). `length` and `check` are of the reply that is being written: how many characters of it were told,
    and a checksum of these, because a reply that is begun anew says something else.
    """

    turn_id: str
    state: str = NOTHING
    steps: tuple[str, ...] = ()
    length: int = 0
    check: int = 0

    def __str__(self) -> str:
        return f"{self.turn_id}.{self.state}.{self.length}.{self.check:08x}.{''.join(self.steps)}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Read the text form back. Raises ValueError for anything else."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError("not a cursor")
        turn_id, state, length, check, steps = found.groups()
        return cls(turn_id, state, tuple(re.findall(_CODE, steps)), int(length), int(check, 16))

    @property
    def is_over(self) -> bool:
        """Everything was told."""
        return self.state == OVER

    def continues(self, text: str) -> bool:
        """Whether what was told of the reply is how this text begins."""
        return len(text) >= self.length and checksum(text[: self.length]) == self.check


def checksum(text: str) -> int:
    """A short sum of a text."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))
