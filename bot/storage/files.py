"""Files of a turn: the bytes of what its tools returned beside text, apart from the rows that are read all the time.

Called by `transcript`, which keeps a result, and by the turn log, which hands bytes out. They go with their turn.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.messages import FilePart, ImageAudience, ImagePart, ResultPart, StoredFile, ToolResult
from bot.errors import NotFound
from bot.storage.tables import files
from bot.storage.upsert import Upsert

MOST_BYTES = 32 * 2**20
"""Of all files of one turn. What is more is told by its name and size."""

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
    """The same result with its bytes put away. Doing it again does no harm: what is kept is known by its bytes."""
    if not any(isinstance(part, ImagePart | FilePart) for part in result.parts):
        return result
    kept = {row.id: row.size for row in connection.execute(_sizes, {"t": turn_id})}
    parts: list[ResultPart] = []
    for part in result.parts:
        described = _described(part)
        if isinstance(part, ImagePart | FilePart) and isinstance(described, StoredFile):
            described = replace(described, id=_put_away(connection, turn_id, kept, part.data))
        parts.append(described)
    return replace(result, parts=tuple(parts))


def strip_bytes(result: ToolResult) -> ToolResult:
    """The same result with names and sizes alone: for what nobody will ever draw."""
    return replace(result, parts=tuple(_described(part) for part in result.parts))


def read_file(connection: sa.Connection, turn_id: str, file_id: str) -> bytes:
    """The bytes of a file. Raises NotFound."""
    data = connection.execute(_read, {"t": turn_id, "i": file_id}).scalar()
    if data is None:
        raise NotFound("That file is gone.")
    return bytes(data)


def _described(part: ResultPart) -> ResultPart:
    match part:
        case ImagePart(data, mime_type, name, readers):
            return StoredFile("", mime_type, name, len(data), readers)
        case FilePart(data, mime_type, name):
            return StoredFile("", mime_type, name, len(data), ImageAudience.PEOPLE)
        case _:
            return part


def _put_away(connection: sa.Connection, turn_id: str, kept: dict[str, int], data: bytes) -> str:
    """The id of the bytes, empty if the turn has no room for them."""
    file_id = hashlib.sha256(data).hexdigest()
    if file_id not in kept:
        if sum(kept.values()) + len(data) > MOST_BYTES:
            return ""
        connection.execute(_add.on(connection), {"t": turn_id, "i": file_id, "bytes": data})
        kept[file_id] = len(data)
    return file_id
