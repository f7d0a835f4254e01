"""OAuth sign-ins of users to servers. See `bot.ports.SignInStore`.

Bodies are encrypted before and decrypted after the transaction, in a thread. Of a link's state only a hash is stored.
Changes take the lock of the configuration version, because all processes follow them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import Author
from bot.domain.sign_ins import SIGN_IN_SECONDS, PendingSignIn, SignIn, SignInKey
from bot.storage import audit
from bot.storage.codec import UNREADABLE, decode_text, encode_text
from bot.storage.coordination import bump_config_version, lock_config, read_version
from bot.storage.database import Database, Store, now, transaction
from bot.storage.encryption import SecretBox, hash_token
from bot.storage.tables import mcp_servers, pending_sign_ins, sign_ins

log = logging.getLogger(__name__)

_BYTES = 32
_columns = sign_ins.c
_pending = pending_sign_ins.c
_of_user = (_columns.server_id == bindparam("i"), _columns.principal == bindparam("whose"))
_find = sa.select(sign_ins).where(*_of_user)
_versions = sa.select(_columns.server_id, _columns.principal, _columns.version)
_all = (
    sa.select(sign_ins, mcp_servers.c.slug)
    .select_from(sign_ins.outerjoin(mcp_servers, mcp_servers.c.id == _columns.server_id))
    .order_by(_columns.server_id, _columns.principal)
)
_add = sign_ins.insert().values(updated_at=now())
_change = sign_ins.update().where(*_of_user).values(updated_at=now())
_reencrypt = sign_ins.update().where(*_of_user, _columns.body == bindparam("was")).values(body=bindparam("to"))
_delete = sign_ins.delete().where(*_of_user)
_delete_of_server = sign_ins.delete().where(_columns.server_id == bindparam("i"))
_slug = sa.select(mcp_servers.c.slug).where(mcp_servers.c.id == bindparam("i"))
_begin = pending_sign_ins.insert().values(created_at=now(), expires_at=now() + bindparam("seconds"))
_delete_old = pending_sign_ins.delete().where(_pending.expires_at <= now())
_delete_same = pending_sign_ins.delete().where(
    _pending.server_id == bindparam("i"), _pending.principal == bindparam("whose")
)
_delete_pending_of_server = pending_sign_ins.delete().where(_pending.server_id == bindparam("i"))

# One query for missing, used and expired states, so that a response does not tell them apart.
_take = (
    pending_sign_ins.delete()
    .where(_pending.hash == bindparam("h"), _pending.expires_at > now())
    .returning(*pending_sign_ins.c)
)


@dataclass(frozen=True, slots=True)
class EncryptedSignIn:
    """A stored sign-in, still encrypted. `slug` is the server's name in messages."""

    key: SignInKey
    ciphertext: str
    version: int
    slug: str = ""

    @property
    def context(self) -> str:
        """Encryption context of the ciphertext."""
        return _context(self.key)

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{self.slug} sign-in"

    def replace_ciphertext(self, connection: sa.Connection, ciphertext: str) -> int:
        """Replace the ciphertext unless it has changed meanwhile. Return 1 if it was replaced, else 0."""
        values = {**_params(self.key), "was": self.ciphertext, "to": ciphertext}
        return connection.execute(_reencrypt, values).rowcount


def _context(key: SignInKey) -> str:
    return json.dumps(["sign-in", key.server_id, key.person])


def _pending_context(server_id: str, principal: str) -> str:
    return json.dumps(["sign-in under way", server_id, principal])


class SqlSignInStore(Store):
    """Sign-ins by server and user, and pending ones by state. `clock` returns epoch seconds for the displayed sign-in
    time.
    """

    def __init__(self, database: Database, box: SecretBox, clock: Callable[[], float] = time.time) -> None:
        super().__init__(database)
        self._box = box
        self._clock = clock

    async def find(self, key: SignInKey) -> SignIn | None:
        """Return the sign-in, `None` if it does not exist."""
        encrypted = await self._find(key)
        if encrypted is None:
            return None
        body = await asyncio.to_thread(self._box.open, encrypted.ciphertext, encrypted.context)
        try:
            return decode_text(SignIn, body, version=encrypted.version)
        except UNREADABLE:
            log.warning("sign-in to server %s: unreadable, ignored", key.server_id)
            return None

    @transaction
    def _find(self, connection: sa.Connection, key: SignInKey) -> EncryptedSignIn | None:
        row = _row(connection, key)
        return None if row is None else EncryptedSignIn(key, row.body, row.version)

    @transaction
    def versions(self, connection: sa.Connection) -> Mapping[SignInKey, int]:
        """Return the versions of all sign-ins."""
        return {SignInKey(row.server_id, row.principal): row.version for row in connection.execute(_versions)}

    async def save(self, key: SignInKey, sign_in: SignIn) -> SignIn | None:
        """Save a sign-in, replacing the version it was read at."""
        version = await self._replace(await self._encrypt(key, sign_in), audit_kind="")
        return None if version is None else dataclasses.replace(sign_in, version=version)

    async def mark_revoked(self, key: SignInKey, sign_in: SignIn) -> SignIn | None:
        """Delete the tokens of a sign-in and keep its client registration."""
        rest = dataclasses.replace(sign_in, access_token="", refresh_token="", expires_at=None, renew_at=None)
        version = await self._replace(await self._encrypt(key, rest), audit_kind="sign-in ended")
        return None if version is None else dataclasses.replace(rest, version=version)

    @transaction
    def _replace(self, connection: sa.Connection, sign_in: EncryptedSignIn, audit_kind: str) -> int | None:
        """Replace the sign-in of this version (0: a new row). Return the next version, `None` after a conflict."""
        lock_config(connection)
        row = _row(connection, sign_in.key)
        if row is not None and row.body == sign_in.ciphertext:
            # The same transaction, repeated after a lost COMMIT response: no two ciphertexts are alike.
            return int(row.version)
        if (row.version if row else 0) != sign_in.version:
            return None
        if audit_kind:
            _record(connection, audit_kind, audit.NOBODY, sign_in.key)
        return _write(connection, sign_in, audit.NOBODY)

    async def signed_in(self, key: SignInKey, sign_in: SignIn, by: Author) -> SignIn:
        """Save a sign-in, regardless of the stored version."""
        sign_in = dataclasses.replace(sign_in, signed_in_by=by.principal, signed_in_at=self._clock())
        version = await self._signed_in(await self._encrypt(key, sign_in), by)
        return dataclasses.replace(sign_in, version=version)

    @transaction
    def _signed_in(self, connection: sa.Connection, sign_in: EncryptedSignIn, by: Author) -> int:
        lock_config(connection)
        row = _row(connection, sign_in.key)
        if row is not None and row.body == sign_in.ciphertext:
            return int(row.version)
        _record(connection, "signed in", by.principal, sign_in.key)
        version = row.version if row else 0
        return _write(connection, dataclasses.replace(sign_in, version=version), by.principal)

    @transaction
    def forget(self, connection: sa.Connection, key: SignInKey, by: Author) -> bool:
        """Delete a sign-in. Return False if there was none."""
        lock_config(connection)
        if not connection.execute(_delete, _params(key)).rowcount:
            return False
        _record(connection, "signed out", by.principal, key)
        bump_config_version(connection)
        return True

    async def begin(self, pending: PendingSignIn) -> str:
        """Save a pending sign-in. Return the state parameter for its link."""
        state = secrets.token_urlsafe(_BYTES)
        server_id, person = pending.key.server_id, pending.by.principal
        context = _pending_context(server_id, person)
        ciphertext = await asyncio.to_thread(self._box.seal, encode_text(pending), context)
        await self._add_pending(state, server_id, person, ciphertext)
        return state

    @transaction
    def _add_pending(self, connection: sa.Connection, state: str, server_id: str, person: str, ciphertext: str) -> None:
        """Save a pending sign-in, replace the user's other one for the same server, and delete all expired ones."""
        connection.execute(_delete_old)
        connection.execute(_delete_same, {"i": server_id, "whose": person})
        row = {"hash": hash_token(state), "server_id": server_id, "principal": person, "body": ciphertext}
        connection.execute(_begin, {**row, "seconds": SIGN_IN_SECONDS})

    async def take(self, state: str) -> PendingSignIn | None:
        """Use up a state. After a lost COMMIT response it is used and `None` is returned."""
        row = await self._take(state)
        if row is None:
            return None
        body = await asyncio.to_thread(self._box.open, row.body, _pending_context(row.server_id, row.principal))
        try:
            return decode_text(PendingSignIn, body, expires_at=row.expires_at)
        except UNREADABLE:
            return None

    @transaction
    def _take(self, connection: sa.Connection, state: str) -> Any:
        return connection.execute(_take, {"h": hash_token(state)}).first()

    async def _encrypt(self, key: SignInKey, sign_in: SignIn) -> EncryptedSignIn:
        ciphertext = await asyncio.to_thread(self._box.seal, encode_text(sign_in), _context(key))
        return EncryptedSignIn(key, ciphertext, sign_in.version)


def delete_sign_ins(connection: sa.Connection, server_id: str) -> None:
    """Delete all sign-ins and links of a removed server. The caller bumps the configuration version."""
    connection.execute(_delete_of_server, {"i": server_id})
    connection.execute(_delete_pending_of_server, {"i": server_id})


def read_encrypted_sign_ins(connection: sa.Connection) -> Sequence[EncryptedSignIn]:
    """Return all stored sign-ins."""
    return [
        EncryptedSignIn(SignInKey(row.server_id, row.principal), row.body, row.version, row.slug or row.server_id)
        for row in connection.execute(_all)
    ]


def _row(connection: sa.Connection, key: SignInKey) -> Any:
    return connection.execute(_find, _params(key)).first()


def _write(connection: sa.Connection, sign_in: EncryptedSignIn, by: str) -> int:
    """Write over the version that the caller has checked, and return the new version: the configuration version, which
    is never used twice.
    """
    bump_config_version(connection)
    version = read_version(connection)
    values = {"body": sign_in.ciphertext, "version": version, "updated_by": by}
    if sign_in.version:
        connection.execute(_change.values(**values), _params(sign_in.key))
    else:
        connection.execute(_add, {"server_id": sign_in.key.server_id, "principal": sign_in.key.person, **values})
    return version


def _record(connection: sa.Connection, kind: str, actor: str, key: SignInKey) -> None:
    slug = connection.execute(_slug, {"i": key.server_id}).scalar() or key.server_id
    facts = {"person": key.person} if key.person else {}
    audit.record(connection, kind, actor, subject=key.server_id, server=slug, **facts)


def _params(key: SignInKey) -> dict[str, str]:
    return {"i": key.server_id, "whose": key.person}
