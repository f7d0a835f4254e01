"""A stream of server-sent events as JSON objects, out of the bytes that come in (WHATWG HTML, 9.2.6).

Called by `streaming`. The vendors' clients make a typed object of each event, which costs more than everything else in
a reply together; a reply needs two or three fields of it.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

LARGEST_EVENT = 16 * 2**20
"""Bytes. The last event of the Responses API holds the whole reply; nothing that is meant well is larger."""
LARGEST_REPLY = 64 * 2**20
"""Bytes of all events together: a model that has written 100,000 tokens has sent half as much."""
_LARGEST_PAGE = 2**20

Event = Mapping[str, Any]


class EventReader:
    """Incremental reader of a stream. `passed_over` are the names of events whose data is not read.

    `ended` is True after `[DONE]`, which OpenAI's Chat Completions sends last.
    """

    def __init__(self, passed_over: frozenset[bytes] = frozenset()) -> None:
        self._passed_over = passed_over
        self._line: list[bytes] = []
        self._within_break = False
        self._name = b""
        self._data: list[bytes] = []
        self._page: list[bytes] = []
        self._read = 0
        self._read_before = 0
        self._events = False
        self.ended = False

    @property
    def nonsense(self) -> bool:
        """True if the body holds other text and no events so far, such as a web page."""
        return bool(self._page) and not self._events

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The objects of the events that this chunk completes; the name of an event is its `type` if it has none
        itself. Raises ValueError and RecursionError for what is no JSON; JSON that is no object is passed over.
        """
        self._read += len(chunk)
        for line in self._lines(chunk):
            if line.startswith(b"data:"):
                self._data.append(line[5:])
            elif not line:
                yield from self._event()
            elif line.startswith(b"event:"):
                self._name = line[6:].strip()
            elif not self._events and not line.startswith((b":", b"id:", b"retry:")) and not line.isspace():
                self._keep(line)
        if self._read - self._read_before > LARGEST_EVENT or self._read > LARGEST_REPLY:
            raise ValueError("what came in is larger than any reply")

    def finish(self) -> Iterator[Event]:
        """Yield the objects that the stream's end completes.

        They are the last event without its empty line, and a single object sent in place of a stream.
        """
        yield from self.feed(b"\n\n")
        if self.nonsense:
            with suppress(ValueError, RecursionError):
                page = json.loads(b"\n".join(self._page))
                yield from [page] if isinstance(page, dict) else []

    def _lines(self, chunk: bytes) -> list[bytes]:
        """The lines that the chunk completes. They end with CR, LF or both, which may come in apart; what stands in the
        middle of a long one is looked at once.
        """
        if self._within_break and chunk:
            chunk, self._within_break = chunk.removeprefix(b"\n"), False
        if b"\r" in chunk:
            self._within_break = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = chunk.split(b"\n")
        if not lines:
            self._line.append(rest)
            return lines
        if self._line:
            lines[0] = b"".join((*self._line, lines[0]))
        if not self._events:
            lines[0] = lines[0].removeprefix(BOM_UTF8)
        self._line = [rest] if rest else []
        return lines

    def _keep(self, line: bytes) -> None:
        if self._read <= _LARGEST_PAGE:
            self._page.append(line)

    def _event(self) -> Iterator[Event]:
        data, name = b"\n".join(self._data).strip(), self._name
        self._data, self._name, self._read_before = [], b"", self._read
        self._events = self._events or bool(data)
        if not data or self.ended or name in self._passed_over:
            return
        if data == b"[DONE]":
            self.ended = True
            return
        event = json.loads(data.decode())
        if isinstance(event, dict):
            yield event if not name or "type" in event else {"type": name.decode(errors="replace"), **event}
