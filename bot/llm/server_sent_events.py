"""A stream of server-sent events as JSON objects, out of the bytes that come in (WHATWG HTML, 9.2.6).

Called by `streaming`. The vendors' clients make a typed object of each event, which costs more than everything else in
a reply together; a reply needs two or three fields of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

LARGEST_EVENT = 16 * 2**20
"""Bytes. The last event of the Responses API holds the whole reply; nothing that is meant well is larger."""

Event = Mapping[str, Any]


class EventReader:
    """What has come in of a stream. `passed_over` are names of events whose data is not read. `ended` says whether the
    service has said `[DONE]`, as OpenAI's Chat Completions does.
    """

    def __init__(self, passed_over: frozenset[bytes] = frozenset()) -> None:
        self._passed_over = passed_over
        self._rest = b""
        self._data = b""
        self._wanted = True
        self._bytes = False
        self._events = False
        self.ended = False

    @property
    def nonsense(self) -> bool:
        """Whether this is no stream of events at all: a web page perhaps."""
        return self._bytes and not self._events

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The objects of the events that this chunk completes. Raises ValueError and RecursionError for what is no
        JSON; JSON that is no object is passed over.
        """
        self._bytes = self._bytes or bool(chunk.strip())
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) + len(self._data) > LARGEST_EVENT:
            raise ValueError("an event is larger than any reply")
        for line in lines:
            if line.startswith(b"data:"):
                self._data = self._data + b"\n" + line[5:] if self._data else line[5:]
            elif line.startswith(b"event:"):
                self._wanted = line[6:].strip() not in self._passed_over
            elif not line or line == b"\r":
                yield from self._event()

    def finish(self) -> Iterator[Event]:
        """The event that the stream's end completes: some services leave out the last empty line."""
        yield from self.feed(b"\n\n")

    def _event(self) -> Iterator[Event]:
        data, wanted = self._data.strip(), self._wanted
        self._data, self._wanted = b"", True
        self._events = self._events or bool(data)
        if not data or not wanted or self.ended:
            return
        if data == b"[DONE]":
            self.ended = True
            return
        event = json.loads(data.decode())
        if isinstance(event, dict):
            yield event
