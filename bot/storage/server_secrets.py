"""Secrets of servers: their rows, which hold a ciphertext or a reference, and the values that references lead to.

`bound_to` is the endpoint that a secret was given for (`bot.domain.secret_binding`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.secret_binding import binding_of
from bot.domain.secrets import SecretReference, SecretSource
from bot.domain.servers import ServerRecord
from bot.errors import SecretUnavailable
from bot.storage.clock import now
from bot.storage.tables import mcp_secrets, mcp_servers

LARGEST_BYTES = 64 * 1024
_of = sa.select(mcp_secrets).where(mcp_secrets.c.server_id == bindparam("i"))
_all = sa.select(mcp_secrets)
_add = mcp_secrets.insert().values(updated_at=now())
_delete = mcp_secrets.delete().where(mcp_secrets.c.server_id == bindparam("i"), mcp_secrets.c.slot == bindparam("s"))
_ciphertexts = (
    sa.select(
        mcp_servers.c.slug,
        mcp_secrets.c.server_id,
        mcp_secrets.c.slot,
        mcp_secrets.c.ciphertext,
        mcp_secrets.c.bound_to,
    )
    .join(mcp_servers, mcp_servers.c.id == mcp_secrets.c.server_id)
    .where(mcp_secrets.c.ciphertext.is_not(None))
    .order_by(mcp_servers.c.slug, mcp_secrets.c.slot)
)
_replace = (
    mcp_secrets.update()
    .where(
        mcp_secrets.c.server_id == bindparam("i"),
        mcp_secrets.c.slot == bindparam("s"),
        mcp_secrets.c.ciphertext == bindparam("was"),
    )
    .values(ciphertext=bindparam("to"))
)


@dataclass(frozen=True, slots=True)
class EncryptedSecret:
    """A stored secret, still encrypted, with its position."""

    slug: str
    server_id: str
    slot: str
    ciphertext: str
    bound_to: str

    @property
    def place(self) -> str:
        """Encryption context of its ciphertext."""
        return secret_context(self.server_id, self.slot, self.bound_to)


def secret_context(server_id: str, slot: str, bound_to: str) -> str:
    """Return the encryption context of a slot. It contains the endpoint that the secret was given for, so that a row
    whose endpoint was changed by hand cannot be decrypted.
    """
    return f"{server_id}:{slot}:{bound_to}"


def read_all(connection: sa.Connection) -> Mapping[str, Sequence[Any]]:
    """Return the rows of all secrets by server."""
    rows: dict[str, list[Any]] = {}
    for row in connection.execute(_all):
        rows.setdefault(row.server_id, []).append(row)
    return rows


def read_of(connection: sa.Connection, server_id: str) -> Sequence[Any]:
    """Return the rows of a server's secrets."""
    return connection.execute(_of, {"i": server_id}).all()


def with_missing(record: ServerRecord, rows: Sequence[Any]) -> ServerRecord:
    """Return the record with the slots of stored secrets that have no value for the server's current endpoint."""
    missing = (
        row.slot
        for row in rows
        if row.source == SecretSource.STORED
        and (row.ciphertext is None or row.bound_to != binding_of(record, row.slot))
    )
    return replace(record, missing=frozenset(missing))


def references_of(rows: Sequence[Any]) -> Mapping[str, SecretReference]:
    """Return the sources of secrets by slot. Raises ValueError for a row of a later release."""
    return {row.slot: _reference(row) for row in rows}


def read_references(connection: sa.Connection, server_id: str) -> Mapping[str, SecretReference]:
    """Return the sources of a server's secrets by slot."""
    return references_of(connection.execute(_of, {"i": server_id}).all())


def read_bound(connection: sa.Connection, server_id: str) -> Mapping[str, Any]:
    """Return the rows of a server's secrets by slot."""
    return {row.slot: row for row in read_of(connection, server_id)}


def read_ciphertexts(connection: sa.Connection, server_id: str) -> Mapping[str, str]:
    """Return a server's stored secrets by slot, still encrypted."""
    rows = connection.execute(_of, {"i": server_id})
    return {row.slot: row.ciphertext for row in rows if row.ciphertext is not None}


def write_secrets(connection: sa.Connection, record: ServerRecord, sealed: Mapping[str, str], by: str) -> None:
    """Make a server's secrets those of the record. A stored one that is not among `sealed` stays, unless its endpoint
    has changed: then its value is deleted.
    """
    before = {row.slot: row for row in connection.execute(_of, {"i": record.id})}
    stored = {
        slot
        for slot, reference in record.secrets.items()
        if slot in before
        and slot not in sealed
        and _reference(before[slot]) == reference
        and before[slot].bound_to == binding_of(record, slot)
    }
    for slot in before.keys() - stored:
        connection.execute(_delete, {"i": record.id, "s": slot})
    for slot in record.secrets.keys() - stored:
        reference = record.secrets[slot]
        row = {
            "server_id": record.id,
            "slot": slot,
            "source": reference.source.value,
            "place": reference.place,
            "bound_to": binding_of(record, slot),
            "vouched": reference.vouched,
        }
        connection.execute(_add, {**row, "ciphertext": sealed.get(slot), "updated_by": by})


def read_all_sealed(connection: sa.Connection) -> Sequence[EncryptedSecret]:
    """Return all stored secrets of all servers."""
    rows = connection.execute(_ciphertexts)
    return [EncryptedSecret(row.slug, row.server_id, row.slot, row.ciphertext, row.bound_to) for row in rows]


def replace_sealed(connection: sa.Connection, pairs: Iterable[tuple[EncryptedSecret, str]]) -> int:
    """Replace ciphertexts unless they have changed meanwhile. Return the number of replaced ones."""
    return sum(
        connection.execute(_replace, {"i": old.server_id, "s": old.slot, "was": old.ciphertext, "to": new}).rowcount
        for old, new in pairs
    )


def _reference(row: Any) -> SecretReference:
    return SecretReference(SecretSource(row.source), row.place, bool(row.vouched))


def from_environment(name: str, environment: Mapping[str, str]) -> str:
    """Return the value of a variable. Raises SecretUnavailable if it is missing or empty."""
    value = environment.get(name, "")
    if not value:
        raise SecretUnavailable(
            f"The variable {name} is not set, or is none that servers may refer to.",
            f"set {name} where the bot is started, under a name that MCP_SECRET_VARIABLES lets servers use",
        )
    return value


def from_file(path: str, file: BinaryIO) -> str:
    """Return the text of a file without trailing line ends. `path` is the file's name in errors. Raises
    SecretUnavailable.
    """
    try:
        data = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    if len(data) > LARGEST_BYTES:
        raise SecretUnavailable(f"The file {path} is larger than 64 KiB.", "name a file that holds the secret alone")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise SecretUnavailable(f"The file {path} is not text.", "name a file that holds the secret alone") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise SecretUnavailable(f"The file {path} is empty.", "write the secret into it")
    return text


def open_regular_file(path: str) -> BinaryIO:
    """Open a regular file. Raises SecretUnavailable for others, because pipes and devices may never end."""
    try:
        # Opening a pipe without a writer must not block.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise SecretUnavailable(f"The file {path} is not a regular file.", "name a file that holds the secret alone")
    return os.fdopen(handle, "rb")


def _unreadable(path: str, error: Exception) -> SecretUnavailable:
    reason = getattr(error, "strerror", None) or "its name cannot be used"
    return SecretUnavailable(
        f"The file {path} cannot be read: {reason}.", "see that it is there and that the bot may read it"
    )
