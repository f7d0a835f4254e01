"""Keys that sign receipts. See `bot.ports.ReceiptKeyStore`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import sqlalchemy as sa

from bot.domain.gateway import ReceiptKey
from bot.storage.database import Database, Store, insert_new, matching, now, transaction
from bot.storage.encryption import Encrypted, SecretBox
from bot.storage.tables import receipt_keys

_keys = receipt_keys.c
_add = insert_new(receipt_keys, created_at=now())
_all = sa.select(_keys.number, _keys.public, _keys.created_at).order_by(_keys.number)
_numbered = sa.select(_keys.number, _keys.public, _keys.created_at).where(matching(receipt_keys, number="n"))
_body = sa.select(_keys.body).where(matching(receipt_keys, number="n"))


class SqlReceiptKeyStore(Store):
    """Keys by their numbers, with encrypted private parts."""

    def __init__(self, database: Database, box: SecretBox) -> None:
        super().__init__(database)
        self._box = box

    @transaction(rank="arrival")
    def keys(self, connection: sa.Connection) -> Sequence[ReceiptKey]:
        """Return all keys, the one that signs last."""
        return [ReceiptKey(*row) for row in connection.execute(_all)]

    async def add(self, number: int, public: str, private: str) -> ReceiptKey:
        """Add a key unless there is one of this number. Return the stored one. Raises SecretUnavailable."""
        return await self._add(number, public, await asyncio.to_thread(self._box.seal, private, _context(number)))

    @transaction
    def _add(self, connection: sa.Connection, number: int, public: str, body: str) -> ReceiptKey:
        connection.execute(_add.on(connection), {"number": number, "public": public, "body": body})
        return ReceiptKey(*connection.execute(_numbered, {"n": number}).one())

    async def open_private(self, number: int) -> str:
        """Return the private part of a key. Raises SecretUnavailable."""
        return await asyncio.to_thread(self._box.open, await self._read_body(number), _context(number))

    @transaction(rank="arrival")
    def _read_body(self, connection: sa.Connection, number: int) -> str:
        return str(connection.execute(_body, {"n": number}).scalar_one())


def read_encrypted_receipt_keys(connection: sa.Connection) -> Sequence[Encrypted]:
    """Return all stored keys, still encrypted."""
    return [
        Encrypted(f"receipt key {row.number}", _context(row.number), row.body, _keys.body, (row.number,))
        for row in connection.execute(sa.select(receipt_keys))
    ]


def _context(number: int) -> str:
    return f"receipt key {number}"
