"""A process's output as lines of bounded length."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.mcp.transports.stdio import LineReader, LineTooLong

BODY = {"content": [{"type": "text", "text": 'she said \\"id\\":7} and "id":8}' + "x" * 3000}]}


def fed(lines: LineReader, data: bytes, size: int) -> list[bytes | LineTooLong]:
    return [line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])]


@given(st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line)), st.integers(1, 60))
def test_lines_are_the_same_however_they_are_cut_into_chunks(lines: list[bytes], size: int) -> None:
    assert fed(LineReader(40), b"".join(line + b"\n" for line in lines), size) == lines


@given(st.integers(1, 100), st.binary(min_size=41, max_size=2000).filter(lambda line: b"\n" not in line))
def test_a_line_that_is_too_long_keeps_its_ends_and_the_next_is_whole(size: int, long: bytes) -> None:
    found = fed(LineReader(40), b"before\n" + long + b"\nafter\n", size)
    assert found == [b"before", LineTooLong(long[:512], long[-512:]), b"after"]


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 7, "result": BODY},
        {"id": 7, "result": BODY, "jsonrpc": "2.0"},
        {"id": 7, "jsonrpc": "2.0", "result": BODY},
        {"result": BODY, "jsonrpc": "2.0", "id": 7},
        {"jsonrpc": "2.0", "error": {"code": 1, "message": "x" * 3000}, "id": 7},
        {"result": BODY, "id": 7, "jsonrpc": "2.0"},
    ],
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_whose_answer_a_long_line_is_can_be_told_from_its_ends(message: object, separators: tuple[str, str]) -> None:
    assert too_long(json.dumps(message, separators=separators)).answers == 7


def test_an_id_may_be_a_text() -> None:
    assert too_long(json.dumps({"jsonrpc": "2.0", "id": "a-7", "result": BODY})).answers == "a-7"


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage", "params": BODY},
        {"jsonrpc": "2.0", "method": "roots/list", "params": BODY, "id": 7},
        {"jsonrpc": "2.0", "method": "notifications/message", "params": BODY},
        {"result": BODY, "jsonrpc": "2.0"},
        {"result": {"text": "x" * 3000 + '{"id":7}'}, "jsonrpc": "2.0"},
        {"result": {"text": "x" * 3000, "id": 7}},
        [7, "x" * 3000],
    ],
)
def test_what_answers_nobody_we_can_name_is_nobodys(message: object) -> None:
    assert too_long(json.dumps(message)).answers is None


def too_long(line: str) -> LineTooLong:
    (found,) = fed(LineReader(1000), line.encode() + b"\n", 64)
    assert isinstance(found, LineTooLong)
    return found
