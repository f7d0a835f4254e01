"""Per-user concurrency limit. Call `release` for everything that was acquired, however it ended."""

from __future__ import annotations


class PerUserLimit:
    """Counts what is under way for each user; at most `most` at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._under_way: dict[str, int] = {}

    def acquire(self, user: str) -> bool:
        """Count one more. Return False, with nothing counted, if the user has `most` under way."""
        count = self._under_way.get(user, 0)
        if count >= self._most:
            return False
        self._under_way[user] = count + 1
        return True

    def release(self, user: str) -> None:
        """Count one less."""
        count = self._under_way[user] - 1
        if count:
            self._under_way[user] = count
        else:
            del self._under_way[user]
