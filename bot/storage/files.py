"""Files of a turn: bytes returned by its tools, in their own table because rows of steps are read often.

Files are deleted with their turn.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.messages import FilePart, ImageAudience, ImagePart, ResultPart, StoredFile, ToolResult
from bot.errors import NotFound
from bot.storage.dialect import Upsert
from bot.storage.tables import files

MOST_BYTES = 32 * 2**20
"""Largest number of bytes of all files of one turn. Larger files are stored by name and size only."""

_sizes = sa.select(files.c.id, sa.func.length(files.c.data).label("size")).where(files.c.turn_id == bindparam("t"))
_add = Upsert(
    lambda insert: (
        insert(files)
        .values(turn_id=bindparam("t"), id=bindparam("i"), data=bindparam("bytes"))
        .on_conflict_do_nothing()
    )
)
_read = sa.select(files.c.data).where(files.c.turn_id == bindparam("t"), files.c.id == bindparam("i"))


def save_files(connection: sa.Connection, turn_id: str, result: ToolResult) -> ToolResult:
    """Return the result with the bytes of its files stored. Safe to run twice, because files are identified by their
    hash.
    """
    if not any(isinstance(part, ImagePart | FilePart) for part in result.parts):
        return result
    sizes = {row.id: row.size for row in connection.execute(_sizes, {"t": turn_id})}
    parts: list[ResultPart] = []
    for part in result.parts:
        described = _without_bytes(part)
        if isinstance(part, ImagePart | FilePart) and isinstance(described, StoredFile):
            described = replace(described, id=_store(connection, turn_id, sizes, part.data))
        parts.append(described)
    return replace(result, parts=tuple(parts))


def strip_bytes(result: ToolResult) -> ToolResult:
    """Return the result with names and sizes only, for a result that is never delivered."""
    return replace(result, parts=tuple(_without_bytes(part) for part in result.parts))


def read_file(connection: sa.Connection, turn_id: str, file_id: str) -> bytes:
    """Return the bytes of a file. Raises NotFound."""
    data = connection.execute(_read, {"t": turn_id, "i": file_id}).scalar()
    if data is None:
        raise NotFound("That file was deleted.")
    return bytes(data)


def _without_bytes(part: ResultPart) -> ResultPart:
    match part:
        case ImagePart(data, mime_type, name, readers):
            return StoredFile("", mime_type, name, len(data), readers)
        case FilePart(data, mime_type, name):
            return StoredFile("", mime_type, name, len(data), ImageAudience.PEOPLE)
        case _:
            return part


def _store(connection: sa.Connection, turn_id: str, sizes: dict[str, int], data: bytes) -> str:
    """Return the id of the stored bytes; empty if they exceed the turn's limit."""
    file_id = hashlib.sha256(data).hexdigest()
    if file_id not in sizes:
        if sum(sizes.values()) + len(data) > MOST_BYTES:
            return ""
        connection.execute(_add.on(connection), {"t": turn_id, "i": file_id, "bytes": data})
        sizes[file_id] = len(data)
    return file_id
