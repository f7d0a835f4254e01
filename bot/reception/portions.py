"""How much of what goes on at once may be one person's, so that nobody keeps everybody else waiting.

Called by whoever begins something for people. What is begun has to be ended, however it went.
"""

from __future__ import annotations


class Portions:
    """Counts what is in hand for each person; `most` of it at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._in_hand: dict[str, int] = {}

    def begin(self, person: str) -> bool:
        """Count one more; False, with nothing counted, if this person has enough in hand."""
        count = self._in_hand.get(person, 0)
        if count >= self._most:
            return False
        self._in_hand[person] = count + 1
        return True

    def end(self, person: str) -> None:
        """One that was counted is over."""
        count = self._in_hand[person] - 1
        if count:
            self._in_hand[person] = count
        else:
            del self._in_hand[person]
