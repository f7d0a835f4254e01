"""Secrets of servers: their rows, which hold a ciphertext or a reference, their values, and one-time links for entering
them.

`bound_to` is the endpoint that a secret was given for (`bot.domain.secret_binding`). Only a hash of a link's token is
stored, so that readers of the table cannot use it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import Author, ConversationKey
from bot.domain.secret_binding import FindGrants, binding_of
from bot.domain.secrets import LINK_SECONDS, SecretLink, SecretReference, SecretSource
from bot.domain.servers import ServerRecord
from bot.errors import SecretUnavailable
from bot.storage.codec import UNREADABLE
from bot.storage.database import Store, matching, now, transaction
from bot.storage.encryption import Encrypted, SecretBox, from_environment, from_file, hash_token
from bot.storage.tables import mcp_secrets, mcp_servers, one_time_links

_READING_SECONDS = 20.0
"""Limit of reading one server's secrets, because a file may be on an unavailable disk."""
_TOKEN_BYTES = 32

_of_server = sa.select(mcp_secrets).where(matching(mcp_secrets, server_id="i"))
_all = sa.select(mcp_secrets)
_add = mcp_secrets.insert().values(updated_at=now())
_delete = mcp_secrets.delete().where(matching(mcp_secrets, server_id="i", slot="s"))
_encrypted = (
    sa.select(mcp_servers.c.slug, mcp_secrets)
    .join(mcp_servers, mcp_servers.c.id == mcp_secrets.c.server_id)
    .where(mcp_secrets.c.ciphertext.is_not(None))
    .order_by(mcp_servers.c.slug, mcp_secrets.c.slot)
)


def _context(server_id: str, slot: str, bound_to: str) -> str:
    """Return the encryption context of a slot. It contains the endpoint that the secret was given for, so that a row
    whose endpoint was changed by hand cannot be decrypted.
    """
    return f"{server_id}:{slot}:{bound_to}"


class SecretValues:
    """Encryption and values of servers' secrets, in a thread. `environment` holds the variables of `env:NAME`,
    `open_file` opens the file of `file:PATH`. `grants` are the operator's: a reference set by another user for the
    server's endpoint needs one.
    """

    def __init__(
        self, box: SecretBox, environment: Mapping[str, str], open_file: Callable[[str], BinaryIO], grants: FindGrants
    ) -> None:
        self._box = box
        self._environment = environment
        self._open_file = open_file
        self._grants = grants

    async def encrypt(self, record: ServerRecord, values: Mapping[str, str]) -> Mapping[str, str]:
        """Return the ciphertexts of new values by slot. Raises ValueError for a slot that the record does not store."""
        for slot in values:
            if slot not in record.secrets or record.secrets[slot].source is not SecretSource.STORED:
                raise ValueError(f"a value for {slot!r}, which the record does not say is stored")

        def encrypt() -> Mapping[str, str]:
            return {
                slot: self._box.seal(value, _context(record.id, slot, binding_of(record, slot)))
                for slot, value in values.items()
            }

        return await asyncio.to_thread(encrypt) if values else {}

    async def decrypt_all(self, record: ServerRecord, rows: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the values of all secrets of a server, from its rows by slot. Raises SecretUnavailable."""
        try:
            async with asyncio.timeout(_READING_SECONDS):
                return await asyncio.to_thread(self._read, record, rows)
        except TimeoutError:
            raise SecretUnavailable(
                f"The secrets of {record.config.name} could not be read within {_READING_SECONDS:g} seconds.",
                "see that the disks of the files they are in answer",
            ) from None

    def _read(self, record: ServerRecord, rows: Mapping[str, Any]) -> Mapping[str, str]:
        values = {}
        for slot in record.secrets:
            try:
                values[slot] = self._value(record, slot, rows.get(slot))
            except SecretUnavailable as error:
                reason = error.cause[:1].lower() + error.cause[1:]
                cause = f"The secret {slot} of {record.config.name} is not available: {reason}"
                raise SecretUnavailable(cause, error.fix) from error
        return values

    def _value(self, record: ServerRecord, slot: str, row: Any) -> str:
        reference = record.secrets[slot]
        match reference.source:
            case SecretSource.ENVIRONMENT:
                self._check_reference(record, slot, row)
                return from_environment(reference.place, self._environment)
            case SecretSource.FILE:
                self._check_reference(record, slot, row)
                with self._open_file(reference.place) as file:
                    return from_file(reference.place, file)
            case SecretSource.STORED:
                return self._decrypt(record, slot, row)

    def _check_reference(self, record: ServerRecord, slot: str, row: Any) -> None:
        """Raise SecretUnavailable unless the operator set this reference for this endpoint, or granted it."""
        reference = record.secrets[slot]
        is_bound_here = row is not None and row.bound_to == binding_of(record, slot)
        if reference.vouched and is_bound_here and (row.source, row.location) == (reference.source, reference.place):
            return
        cause, fix = self._grants().objection(reference, record.config)
        if cause:
            raise SecretUnavailable(cause, fix)

    def _decrypt(self, record: ServerRecord, slot: str, row: Any) -> str:
        set_again = f"say /mcp secret set {record.config.name} {slot}"
        if row is None or row.ciphertext is None:
            raise SecretUnavailable("It is not set.", set_again)
        endpoint = binding_of(record, slot)
        if row.bound_to != endpoint:
            raise SecretUnavailable(f"It was entered for {row.bound_to}, and the server is {endpoint} now.", set_again)
        return self._box.open(row.ciphertext, _context(record.id, slot, endpoint))


def read_all_secrets(connection: sa.Connection) -> Mapping[str, Sequence[Any]]:
    """Return the rows of all secrets by server."""
    rows: dict[str, list[Any]] = {}
    for row in connection.execute(_all):
        rows.setdefault(row.server_id, []).append(row)
    return rows


def read_secrets(connection: sa.Connection, server_id: str) -> Mapping[str, Any]:
    """Return the rows of a server's secrets by slot."""
    return {row.slot: row for row in connection.execute(_of_server, {"i": server_id})}


def with_missing(record: ServerRecord, rows: Iterable[Any]) -> ServerRecord:
    """Return the record with the slots of stored secrets that have no value for the server's current endpoint."""
    missing = (
        row.slot
        for row in rows
        if row.source == SecretSource.STORED
        and (row.ciphertext is None or row.bound_to != binding_of(record, row.slot))
    )
    return replace(record, missing=frozenset(missing))


def references_of(rows: Iterable[Any]) -> Mapping[str, SecretReference]:
    """Return the sources of secrets by slot. Raises ValueError for a row of a later release."""
    return {row.slot: _reference(row) for row in rows}


def write_secrets(connection: sa.Connection, record: ServerRecord, ciphertexts: Mapping[str, str], by: str) -> None:
    """Make a server's secrets those of the record. A stored one that is not among `ciphertexts` stays, unless its
    endpoint has changed: then its value is deleted.
    """
    before = read_secrets(connection, record.id)
    unchanged = {
        slot
        for slot, reference in record.secrets.items()
        if slot in before
        and slot not in ciphertexts
        and _reference(before[slot]) == reference
        and before[slot].bound_to == binding_of(record, slot)
    }
    for slot in before.keys() - unchanged:
        connection.execute(_delete, {"i": record.id, "s": slot})
    for slot in record.secrets.keys() - unchanged:
        reference = record.secrets[slot]
        where = {"server_id": record.id, "slot": slot, "bound_to": binding_of(record, slot), "updated_by": by}
        source = {"source": reference.source.value, "location": reference.place, "vouched": reference.vouched}
        connection.execute(_add, {**where, **source, "ciphertext": ciphertexts.get(slot)})


def read_encrypted_secrets(connection: sa.Connection) -> Sequence[Encrypted]:
    """Return all stored secrets of all servers, still encrypted."""
    return [
        Encrypted(
            f"{row.slug} {row.slot}",
            _context(row.server_id, row.slot, row.bound_to),
            row.ciphertext,
            mcp_secrets.c.ciphertext,
            (row.server_id, row.slot),
        )
        for row in connection.execute(_encrypted)
    ]


def _reference(row: Any) -> SecretReference:
    return SecretReference(SecretSource(row.source), row.location, bool(row.vouched))


# -------------------- one-time links

_links = one_time_links.c
_delete_old = one_time_links.delete().where(_links.expires_at <= now())
_delete_same = one_time_links.delete().where(matching(one_time_links, server_id="i", slot="s", principal="who"))
_add_link = (
    one_time_links.insert()
    .values(created_at=now(), expires_at=now() + bindparam("seconds"))
    .returning(_links.expires_at)
)

# One query for missing, used and expired links, so that neither response nor timing tells them apart.
_is_valid = (matching(one_time_links, hash="h"), _links.used_at.is_(None), _links.expires_at > now())
_find = sa.select(one_time_links).where(*_is_valid)
_use_up = one_time_links.update().where(*_is_valid).values(used_at=now()).returning(*one_time_links.c)


class SqlLinkStore(Store):
    """One-time links by token. See `bot.ports.LinkStore`."""

    async def create_link(
        self, server_id: str, slot: str, by: Author, conversation: ConversationKey
    ) -> tuple[SecretLink, str]:
        """Add a link. Return it with its token."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        return await self._add(token, SecretLink(server_id, slot, by, conversation)), token

    @transaction
    def _add(self, connection: sa.Connection, token: str, link: SecretLink) -> SecretLink:
        """Add a link, replacing the user's other links for the same secret, and delete all expired links."""
        by = link.person
        connection.execute(_delete_old)
        connection.execute(_delete_same, {"i": link.server_id, "s": link.slot, "who": by.principal})
        person = {"principal": by.principal, "user_name": by.name, "conversation": str(link.conversation)}
        row = {"hash": hash_token(token), "server_id": link.server_id, "slot": link.slot, **person}
        expires_at = connection.execute(_add_link, {**row, "seconds": LINK_SECONDS}).scalar_one()
        return replace(link, expires_at=expires_at)

    @transaction
    def find(self, connection: sa.Connection, token: str) -> SecretLink | None:
        """Return the link, `None` if it is not valid."""
        return _link_of(connection.execute(_find, {"h": hash_token(token)}).first())

    @transaction
    def use_link(self, connection: sa.Connection, token: str) -> SecretLink | None:
        """Use up the link. After a lost COMMIT response the link is used and `None` is returned, because two users must
        never get it.
        """
        return _link_of(connection.execute(_use_up, {"h": hash_token(token)}).first())


def _link_of(row: Any) -> SecretLink | None:
    if row is None:
        return None
    try:
        platform, _, person = row.principal.partition(":")
        author = Author(platform, person, row.user_name)
        return SecretLink(row.server_id, row.slot, author, ConversationKey.parse(row.conversation), row.expires_at)
    except UNREADABLE:
        return None
