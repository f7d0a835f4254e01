"""A stream of bytes as lines of bounded length, at a cost that grows with the bytes and no faster.

Used for what a server's process writes. A line that is too long is never kept whole: only its two ends, from which it
can often be told which request it would have answered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

LARGEST_ANSWER = 8 * 1024 * 1024
"""Bytes of an answer, or of one event in a stream of them, on every transport: it is kept in memory whole."""
TOO_LARGE = f"its answer has more than {LARGEST_ANSWER // 1024**2} MB"
"""Why such an answer is not there, as a part of a sentence."""

_END_LENGTH = 512
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_ID = rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{1,200}")'
_BODY = rb'"(?:result|error)"\s*:'
_ID_FIRST = re.compile(
    rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _ID + rb"\s*,\s*(?:" + _VERSION + rb"\s*,\s*)?" + _BODY
)
_BODY_FIRST = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _BODY)
# A quotation mark inside a string stands behind a backslash, so that what closes the line is the message's own.
_ID_LAST = re.compile(_ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*\Z")


@dataclass(frozen=True, slots=True)
class LineTooLong:
    """The two ends of a line of more bytes than are read."""

    head: bytes
    tail: bytes

    @property
    def answers(self) -> int | str | None:
        """The id of the request that this line is the answer to; None if it cannot be told, or if it is none."""
        found = _ID_FIRST.match(self.head)
        if found is None and _BODY_FIRST.match(self.head):
            found = _ID_LAST.search(self.tail)
        if found is None:
            return None
        known: int | str = json.loads(found[1])
        return known


class LineReader:
    """What was fed, line by line, without the line ends. `most` is in bytes."""

    def __init__(self, most: int = LARGEST_ANSWER) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self._length = 0
        self._head = self._tail = b""

    def feed(self, chunk: bytes) -> Iterator[bytes | LineTooLong]:
        """The lines that end in this chunk."""
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
