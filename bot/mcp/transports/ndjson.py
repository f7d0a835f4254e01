"""Splitter of a byte stream into lines of bounded length, in linear time.

Only the two ends of a line that is too long are kept, because they often hold the id of the request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

LARGEST_ANSWER = 8 * 1024 * 1024
"""Maximum size in bytes of a response or of one event, on every transport, because it is held in memory."""
TOO_LARGE = f"its answer has more than {LARGEST_ANSWER // 1024**2} MB"
"""Reason for a rejected response, as a part of a sentence."""

_END_LENGTH = 512
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_ID = rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{1,200}")'
_BODY = rb'"(?:result|error)"\s*:'
_ID_FIRST = re.compile(
    rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _ID + rb"\s*,\s*(?:" + _VERSION + rb"\s*,\s*)?" + _BODY
)
_BODY_FIRST = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _BODY)
# A quote inside a string is escaped, so an unescaped one belongs to the message itself.
_ID_LAST = re.compile(_ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*\Z")


@dataclass(frozen=True, slots=True)
class LineTooLong:
    """Both ends of a line above the limit."""

    head: bytes
    tail: bytes

    @property
    def answers(self) -> int | str | None:
        """Id of the request that this line answers; None if it is unknown or the line is not a response."""
        match = _ID_FIRST.match(self.head)
        if match is None and _BODY_FIRST.match(self.head):
            match = _ID_LAST.search(self.tail)
        if match is None:
            return None
        known: int | str = json.loads(match[1])
        return known


class LineReader:
    """Line splitter. `most` is the limit of a line in bytes. Lines have no line ends."""

    def __init__(self, most: int = LARGEST_ANSWER) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self._length = 0
        self._head = self._tail = b""

    def feed(self, chunk: bytes) -> Iterator[bytes | LineTooLong]:
        """Yield the lines that end in this chunk."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._take(chunk[start:end])
            yield self._finished()
            start = end + 1
        self._take(chunk[start:])

    def _take(self, piece: bytes) -> None:
        fitted = self._length <= self._most
        self._length += len(piece)
        if self._length <= self._most:
            self._parts.append(piece)
            return
        if fitted:
            begun = b"".join(self._parts)
            self._parts.clear()
            self._head, self._tail = begun[:_END_LENGTH], begun[-_END_LENGTH:]
        self._head += piece[: _END_LENGTH - len(self._head)]
        self._tail = (self._tail + piece[-_END_LENGTH:])[-_END_LENGTH:]

    def _finished(self) -> bytes | LineTooLong:
        line = b"".join(self._parts) if self._length <= self._most else LineTooLong(self._head, self._tail)
        self._parts, self._length, self._head, self._tail = [], 0, b"", b""
        return line
