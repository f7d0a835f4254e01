"""Events out of bytes, however the bytes are cut."""

from __future__ import annotations

import json

import pytest

from bot.llm import server_sent_events
from bot.llm.server_sent_events import EventReader

STREAM = (
    b": a comment\n\n"
    b'event: one\ndata: {"n": 1}\n\n'
    b'data:{"n": 2}\r\n\r\n'
    b'id: 7\nretry: 3\ndata: {"n":\ndata: 3}\n\n'
    b"data: [1]\n\n"
    b"data:\n\n" + 'data: {"n": "é\\ud83d\\ude00"}\n\n'.encode() + b"data: [DONE]\n\n" + b'data: {"n": "too late"}\n\n'
)
EVENTS = [{"n": 1}, {"n": 2}, {"n": 3}, {"n": "é😀"}]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_events_are_the_same_however_the_bytes_are_cut(size: int) -> None:
    reader = EventReader()
    found = [event for n in range(0, len(STREAM), size) for event in reader.feed(STREAM[n : n + size])]
    assert found == EVENTS
    assert reader.ended


def test_the_last_event_may_lack_its_empty_line() -> None:
    reader = EventReader()
    assert list(reader.feed(b'data: {"n": 1}')) == []
    assert list(reader.finish()) == [{"n": 1}]


def test_events_of_no_use_are_not_even_read() -> None:
    reader = EventReader(frozenset({b"echo"}))
    stream = b'event: echo\ndata: {no json\n\nevent: other\ndata: {"n": 1}\n\ndata: {"n": 2}\n\n'
    assert list(reader.feed(stream)) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("data", [b"{", b"\xff\xfe", b"NaN{"])
def test_what_is_no_json_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        list(EventReader().feed(b"data: " + data + b"\n\n"))


def test_an_event_has_a_size_at_which_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_sent_events, "LARGEST_EVENT", 100)
    reader = EventReader()
    assert list(reader.feed(b"data: " + json.dumps({"n": "x" * 50}).encode() + b"\n\n")) == [{"n": "x" * 50}]
    with pytest.raises(ValueError, match="larger than any reply"):
        list(reader.feed(b"x" * 101))
