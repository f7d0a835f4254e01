"""Parsing of server-sent events from bytes in pieces of any size."""

from __future__ import annotations

import json
from contextlib import suppress
from time import process_time

import pytest

from bot.llm import hosted_model
from bot.llm.hosted_model import EventReader

STREAM = (
    b": a comment\n\n"
    b'event: one\ndata: {"n": 1}\n\n'
    b'data:{"n": 2}\r\n\r\n'
    b'id: 7\nretry: 3\ndata: {"n":\ndata: 3}\n\n'
    b"data: [1]\n\n"
    b"data:\n\n" + 'data: {"n": "é\\ud83d\\ude00"}\n\n'.encode() + b"data: [DONE]\n\n" + b'data: {"n": "too late"}\n\n'
)
EVENTS = [{"type": "one", "n": 1}, {"n": 2}, {"n": 3}, {"n": "é😀"}]


@pytest.mark.parametrize("breaks", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "with a byte order mark"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_events_are_the_same_however_the_bytes_are_cut(size: int, mark: bytes, breaks: bytes) -> None:
    reader = EventReader()
    stream = mark + STREAM.replace(b"\r\n", b"\n").replace(b"\n", breaks)
    events = [event for n in range(0, len(stream), size) for event in reader.feed(stream[n : n + size])]
    assert events == EVENTS
    assert reader.ended
    assert not reader.nonsense


def test_a_byte_order_mark_costs_no_event() -> None:
    assert list(EventReader().feed(b'\xef\xbb\xbfdata: {"n": 1}\n\n')) == [{"n": 1}]


def test_an_event_that_says_its_type_is_not_renamed() -> None:
    assert list(EventReader().feed(b'event: one\ndata: {"type": "two"}\n\n')) == [{"type": "two"}]


@pytest.mark.parametrize("page", [b'{"n": 1}', b'{\n  "n":\n  1\n}\n', b'{"n": 1}\n\n'])
def test_one_object_in_place_of_a_stream_is_read_at_its_end(page: bytes) -> None:
    reader = EventReader()
    assert [*reader.feed(page[:3]), *reader.feed(page[3:])] == []
    assert list(reader.finish()) == [{"n": 1}]


@pytest.mark.parametrize("page", [b"<html>\ndata</html>", b"[" * 100_000, b"7", b'{"n": 1', b"\xff\xfe"])
def test_a_response_that_is_neither_stream_nor_object_is_malformed(page: bytes) -> None:
    reader = EventReader()
    assert [*reader.feed(page), *reader.finish()] == []
    assert reader.nonsense


@pytest.mark.parametrize("silence", [b"", b"\n\n \n", b": waiting\n\n: still waiting\n\n", b"id: 7\nretry: 3\n\n"])
def test_a_stream_that_says_nothing_is_no_nonsense(silence: bytes) -> None:
    reader = EventReader()
    assert [*reader.feed(silence), *reader.finish()] == []
    assert not reader.nonsense


def test_the_last_event_may_lack_its_empty_line() -> None:
    reader = EventReader()
    assert list(reader.feed(b'data: {"n": 1}')) == []
    assert list(reader.finish()) == [{"n": 1}]


def test_events_of_no_use_are_not_even_read() -> None:
    reader = EventReader(frozenset({b"echo"}))
    stream = b'event: echo\ndata: {no json\n\nevent: other\ndata: {"n": 1}\n\ndata: {"n": 2}\n\n'
    assert list(reader.feed(stream)) == [{"type": "other", "n": 1}, {"n": 2}]


@pytest.mark.parametrize("data", [b"{", b"\xff\xfe", b"NaN{"])
def test_data_that_is_no_json_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        list(EventReader().feed(b"data: " + data + b"\n\n"))


def test_an_event_has_a_size_at_which_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted_model, "LARGEST_EVENT", 100)
    reader = EventReader()
    assert list(reader.feed(b"data: " + json.dumps({"n": "x" * 50}).encode() + b"\n\n")) == [{"n": "x" * 50}]
    with pytest.raises(ValueError, match="larger than any reply"):
        list(reader.feed(b"x" * 101))


def test_so_has_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted_model, "LARGEST_REPLY", 100)
    reader = EventReader()
    event = b'data: {"n": 1}\n\n'
    for _ in range(100 // len(event)):
        assert list(reader.feed(event)) == [{"n": 1}]
    with pytest.raises(ValueError, match="larger than any reply"):
        list(reader.feed(event))


@pytest.mark.parametrize(
    "stream", [b'data: "' + b"x" * 8 * 2**20 + b'"\n\n', b"data:x\n" * 2**20], ids=["long line", "many lines"]
)
def test_a_large_event_does_not_block_the_loop(stream: bytes) -> None:
    """Each byte is read a few times, not once for each following chunk."""
    reader, began = EventReader(), process_time()
    with suppress(ValueError):
        for n in range(0, len(stream), 1024):
            list(reader.feed(stream[n : n + 1024]))
        list(reader.finish())
    assert process_time() - began < 5
