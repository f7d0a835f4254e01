"""Images that came inside a request, until the model has read them: in this process's memory and nowhere else.

Filled by the route that takes questions, read by the surface (`Surface.fetch`). Where several processes drive turns,
another one may come to drive the turn; the model is then told that the image could not be read.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict

from bot.domain.conversations import Attachment
from bot.errors import NotFound

MOST_BYTES = 64 * 2**20
"""Of all that wait to be read; the oldest go first."""


class Uploads:
    """Bytes by the id of their attachment. `most` is in bytes."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    @property
    def size(self) -> int:
        """How many bytes are kept."""
        return self._size

    def keep(self, data: bytes, name: str, mime_type: str) -> Attachment:
        """Take an image in."""
        attachment = Attachment(secrets.token_hex(16), name, mime_type, len(data))
        self._kept[attachment.id] = data
        self._size += len(data)
        while self._size > self._most and self._kept:
            _, gone = self._kept.popitem(last=False)
            self._size -= len(gone)
        return attachment

    def read(self, attachment: Attachment) -> bytes:
        """The bytes. Raises NotFound."""
        try:
            return self._kept[attachment.id]
        except KeyError:
            raise NotFound(
                "It is not in this process's memory any more.", "ask again, with the image in the request"
            ) from None

    def forget(self, attachment: Attachment) -> None:
        """The turn it belongs to has ended."""
        self._size -= len(self._kept.pop(attachment.id, b""))
