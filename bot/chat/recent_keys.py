"""Recently seen keys, because Slack delivers some events twice and not every event has a database row."""

from __future__ import annotations

from collections import OrderedDict

REMEMBERED = 5000


class RecentKeys:
    """Remembers keys, the latest ones."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, None] = OrderedDict()

    def add(self, key: str) -> bool:
        """Return True if the key is new."""
        if key in self._seen:
            return False
        self.remember(key)
        return True

    def __contains__(self, key: str) -> bool:
        return key in self._seen

    def remember(self, key: str) -> None:
        """This key was there."""
        self._seen[key] = None
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)

    def discard(self, key: str) -> None:
        """Remove a key, so that its next delivery is new."""
        self._seen.pop(key, None)
