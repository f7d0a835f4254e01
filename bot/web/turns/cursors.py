"""Position of a client in the events of a turn, small enough for an event id.

`Last-Event-ID` is all that a stream needs to resume, in any process, without repeats. It is untrusted, and only affects
the events that this client gets.
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
    """A position in the events of a turn.

    `state` is the last code of the turn, `steps` has one code for each step in order (`bot.web.turns.events` defines
    them). `length` and `check` are the number of characters sent of the current reply and their checksum, because a
    restarted reply may differ.
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
        """Parse the text form. Raises ValueError."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError("not a cursor")
        turn_id, state, length, check, steps = found.groups()
        return cls(turn_id, state, tuple(re.findall(_CODE, steps)), int(length), int(check, 16))

    @property
    def is_over(self) -> bool:
        """True if all events were sent."""
        return self.state == OVER

    def continues(self, text: str) -> bool:
        """Return True if this text begins with the part that was sent."""
        return len(text) >= self.length and checksum(text[: self.length]) == self.check


def checksum(text: str) -> int:
    """Return a short checksum of a text."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))
