"""Standard input without a terminal: questions line by line, or what goes with the question of `-m`."""

from __future__ import annotations

import asyncio
import codecs
import os
import stat
from collections.abc import AsyncIterator, Callable
from io import UnsupportedOperation
from typing import TextIO, TypeGuard

from bot.domain.conversations import Attachment
from bot.errors import InvalidOption
from bot.i18n import _

CHUNK = 65_536
"""Bytes that are read of standard input at once."""
MOST_LINES = 20
"""Number of lines that may arrive at once: each is a question, and a pasted log is none."""
BURST_SECONDS = 0.1
FIRST_SECONDS, REST_SECONDS = 5.0, 60.0
"""Longest wait for the first byte that goes with a question, and for each later one."""
LARGEST_TEXT, LARGEST_FILE = 200 * 1024, 5 * 1024 * 1024
_TYPES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"%PDF-": "application/pdf"}


async def input_lines(stream: TextIO) -> AsyncIterator[str]:
    """Yield the lines of a stream without line ends, as they arrive. Raises InvalidOption for what is no text, and for
    more than MOST_LINES lines before the first is asked.
    """
    decoder, pending = codecs.getincrementaldecoder("utf-8")(), ""
    async for chunk in _gathered(_chunks(stream)):
        lines = _split(decoder, pending, chunk)
        pending = lines.pop() if chunk else ""
        for line in lines:
            yield line


def _split(decoder: codecs.IncrementalDecoder, pending: str, chunk: bytes) -> list[str]:
    """Return the lines with this chunk, the last of which may be incomplete; at the end, without an empty last one."""
    try:
        text = pending + decoder.decode(chunk, final=not chunk)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InvalidOption(
            _("Standard input is not text in UTF-8, and each of its lines would be a question."),
            _('a file goes with one question: countersign chat -m "What is this?" < FILE'),
        )
    lines = text.split("\n")
    return lines if chunk or lines[-1] else lines[:-1]


async def _gathered(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield what arrives at once together, then each chunk, and an empty one at the end. Raises InvalidOption if too
    many lines arrive at once.
    """
    first: bytes | None = b""
    reading = asyncio.ensure_future(_next(chunks))
    try:
        while chunk := await asyncio.shield(reading):
            reading = asyncio.ensure_future(_next(chunks))
            if first is not None:
                first += chunk
                if sum(map(bool, map(bytes.strip, first.split(b"\n")))) > MOST_LINES and b"\0" not in first:
                    raise InvalidOption(
                        _("More than {n} lines came at once, and each would be a question.", n=MOST_LINES),
                        _('send them with one question: countersign chat -m "What is this?" < FILE'),
                    )
                if (await asyncio.wait({reading}, timeout=BURST_SECONDS))[0]:
                    continue
                chunk, first = first, None
            yield chunk
        if first:
            yield first
        yield b""
    finally:
        reading.cancel()


async def read_input(stream: TextIO | None, tell: Callable[[str], None]) -> tuple[Attachment, bytes] | None:
    """Return what a pipe or a file at standard input holds, as a file of the question. None for a terminal, a device,
    an empty input, and a pipe on which nothing comes: programs inherit pipes to which nobody writes. Raises
    InvalidOption if a question cannot have it, or if it does not end.
    """
    if not _holds_data(stream):
        return None
    data, chunks = b"", _chunks(stream)
    try:
        while True:
            async with asyncio.timeout(REST_SECONDS if data else FIRST_SECONDS):
                chunk = await _next(chunks)
            if not chunk:
                break
            data += chunk
            limit = LARGEST_FILE if _type_of(data) else LARGEST_TEXT
            if len(data) > limit:
                raise InvalidOption(_("Standard input is larger than {size} KB.", size=limit // 1024), _("send a part"))
    except TimeoutError:
        if data:
            raise InvalidOption(_("Standard input does not end."), _("close it, or read a file: < FILE")) from None
        tell(_("Nothing came on standard input, so the question goes without it."))
    if not data:
        return None
    mime_type = _type_of(data) or "text/plain"
    if mime_type == "text/plain" and not _is_text(data):
        raise InvalidOption(_("Standard input is neither text in UTF-8 nor an image or a PDF."), _("convert it before"))
    name = f"stdin.{'txt' if mime_type == 'text/plain' else mime_type.rpartition('/')[2]}"
    return Attachment("stdin", name, mime_type, len(data)), data


def _holds_data(stream: TextIO | None) -> TypeGuard[TextIO]:
    try:
        mode = os.fstat(stream.fileno()).st_mode if stream is not None else 0
    except (OSError, ValueError):  # closed, or not a stream of the system
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _type_of(data: bytes) -> str:
    return next((mime_type for magic, mime_type in _TYPES.items() if data.startswith(magic)), "")


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


async def _next(chunks: AsyncIterator[bytes]) -> bytes:
    return await anext(chunks, b"")


async def _chunks(stream: TextIO) -> AsyncIterator[bytes]:
    try:
        descriptor = stream.fileno()
    except (UnsupportedOperation, AttributeError):
        yield stream.read().encode()
        return
    while True:
        await _readable(descriptor)
        chunk = os.read(descriptor, CHUNK)
        if not chunk:
            return
        yield chunk


async def _readable(descriptor: int) -> None:
    """Wait until a read does not block. A regular file never blocks, and event loops cannot watch it."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:
        return
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
