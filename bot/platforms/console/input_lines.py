"""Standard input, line by line, without a thread that nobody can stop.

Called by the piped chat.
"""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import AsyncIterator
from io import UnsupportedOperation
from typing import TextIO

CHUNK = 65_536


async def input_lines(stream: TextIO) -> AsyncIterator[str]:
    """The lines of a stream without their ends, as they arrive. Bytes that are not UTF-8 become U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pending = ""
    async for chunk in _chunks(stream):
        *lines, pending = (pending + decoder.decode(chunk)).split("\n")
        for line in lines:
            yield line
    if last := pending + decoder.decode(b"", final=True):
        yield last


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
    """Wait until a read does not block. A regular file never blocks, and the loop refuses to watch it."""
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
