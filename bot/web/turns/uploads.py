"""Images that came inside a request, until the model has read them: in this process's memory and nowhere else.

Filled by the route that takes questions, read by the surface (`Surface.fetch`). Where several processes drive turns,
another one may come to drive the turn; the model is then told that the image could not be read.
"""

from __future__ import annotations

import secrets
from collections import Counter

from bot.domain.conversations import Attachment
from bot.errors import NotFound

MOST_BYTES = 64 * 2**20
"""Of all that wait to be read. The oldest of the token with the most bytes goes first."""


class Uploads:
    """Bytes by the id of their attachment. `most` is in bytes."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._kept: dict[str, tuple[str, bytes]] = {}
        """Owner and bytes, oldest first."""
        self._sizes: Counter[str] = Counter()

    @property
    def size(self) -> int:
        """How many bytes are kept."""
        return self._sizes.total()

    def keep(self, data: bytes, name: str, mime_type: str, owner: str = "") -> Attachment:
        """Take an image in. `owner` is the token that it came with."""
        attachment = Attachment(secrets.token_hex(16), name, mime_type, len(data))
        self._kept[attachment.id] = owner, data
        self._sizes[owner] += len(data)
        while self.size > self._most:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            self._forget(next(each for each, (whose, _) in self._kept.items() if whose == largest))
        return attachment

    def read(self, attachment: Attachment) -> bytes:
        """The bytes. Raises NotFound."""
        try:
            return self._kept[attachment.id][1]
        except KeyError:
            raise NotFound(
                "It is not in this process's memory any more.", "ask again, with the image in the request"
            ) from None

    def forget(self, attachment: Attachment) -> None:
        """The turn it belongs to has ended."""
        if attachment.id in self._kept:
            self._forget(attachment.id)

    def _forget(self, attachment_id: str) -> None:
        owner, data = self._kept.pop(attachment_id)
        self._sizes[owner] -= len(data)
        if not self._sizes[owner]:
            del self._sizes[owner]
