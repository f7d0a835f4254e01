"""Images of requests, in memory until the model has read them.

The route of responses fills it; the surface reads it (`Surface.fetch`). If another process runs the turn, the model is
told that the image could not be read.
"""

from __future__ import annotations

import secrets
from collections import Counter

from bot.domain.conversations import Attachment
from bot.errors import NotFound

MOST_BYTES = 64 * 2**20
"""Bytes of all stored images. The oldest image of the token with the most bytes is dropped first."""


class Uploads:
    """Images by attachment id. `most` is in bytes."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._kept: dict[str, tuple[str, bytes]] = {}
        self._sizes: Counter[str] = Counter()

    @property
    def size(self) -> int:
        """Bytes stored."""
        return self._sizes.total()

    def keep(self, data: bytes, name: str, mime_type: str, owner: str = "") -> Attachment:
        """Store an image. `owner` is the name of the token."""
        attachment = Attachment(secrets.token_hex(16), name, mime_type, len(data))
        self._kept[attachment.id] = owner, data
        self._sizes[owner] += len(data)
        while self.size > self._most:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            self._forget(next(each for each, (whose, _) in self._kept.items() if whose == largest))
        return attachment

    def read(self, attachment: Attachment) -> bytes:
        """Return the bytes. Raises NotFound."""
        try:
            return self._kept[attachment.id][1]
        except KeyError:
            raise NotFound(
                "It is not in this process's memory any more.", "ask again, with the image in the request"
            ) from None

    def forget(self, attachment: Attachment) -> None:
        """Drop the image of an ended turn."""
        if attachment.id in self._kept:
            self._forget(attachment.id)

    def _forget(self, attachment_id: str) -> None:
        owner, data = self._kept.pop(attachment_id)
        self._sizes[owner] -= len(data)
        if not self._sizes[owner]:
            del self._sizes[owner]
