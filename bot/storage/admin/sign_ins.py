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

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import Author
from bot.domain.sign_ins import SIGN_IN_SECONDS, PendingSignIn, SignIn, SignInKey
from bot.storage import audit
from bot.storage.codec import UNREADABLE, decode_text, encode_text
from bot.storage.coordination import bump_config_version, lock_config, read_version, record_change
from bot.storage.database import Database, Store, matching, now, transaction
from bot.storage.encryption import Encrypted, SecretBox, hash_token
from bot.storage.tables import mcp_servers, pending_sign_ins, sign_ins

log = logging.getLogger(__name__)

_BYTES = 32
_columns = sign_ins.c
_pending = pending_sign_ins.c
_is_this = matching(sign_ins, server_id="i", principal="whose")
_find = sa.select(sign_ins).where(_is_this)
_versions = sa.select(_columns.server_id, _columns.principal, _columns.version)
_all = (
    sa.select(sign_ins, mcp_servers.c.slug)
    .select_from(sign_ins.outerjoin(mcp_servers, mcp_servers.c.id == _columns.server_id))
    .order_by(_columns.server_id, _columns.principal)
)
_add = sign_ins.insert().values(updated_at=now())
_change = sign_ins.update().where(_is_this).values(updated_at=now())
_delete = sign_ins.delete().where(_is_this)
_delete_of_server = sign_ins.delete().where(matching(sign_ins, server_id="i"))
_slug = sa.select(mcp_servers.c.slug).where(matching(mcp_servers, id="i"))
_begin = pending_sign_ins.insert().values(created_at=now(), expires_at=now() + bindparam("seconds"))
_delete_old = pending_sign_ins.delete().where(_pending.expires_at <= now())
_delete_same = pending_sign_ins.delete().where(matching(pending_sign_ins, server_id="i", principal="whose"))
_delete_pending_of_server = pending_sign_ins.delete().where(matching(pending_sign_ins, server_id="i"))

# One query for missing, used and expired states, so that a response does not tell them apart.
_take = (
    pending_sign_ins.delete()
    .where(matching(pending_sign_ins, hash="h"), _pending.expires_at > now())
    .returning(*pending_sign_ins.c)
)


def _context(server_id: str, person: str) -> str:
    """Return the encryption context of a sign-in."""
    return json.dumps(["sign-in", server_id, person])


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
        row = await self._database.run(lambda connection: connection.execute(_find, _params(key)).first())
        if row is None:
            return None
        body = await asyncio.to_thread(self._box.open, row.body, _context(key.server_id, key.person))
        try:
            return decode_text(SignIn, body, version=row.version)
        except UNREADABLE:
            log.warning("sign-in to server %s: unreadable, ignored", key.server_id)
            return None

    @transaction
    def versions(self, connection: sa.Connection) -> Mapping[SignInKey, int]:
        """Return the versions of all sign-ins."""
        return {SignInKey(row.server_id, row.principal): row.version for row in connection.execute(_versions)}

    async def save(self, key: SignInKey, sign_in: SignIn) -> SignIn | None:
        """Save a sign-in, replacing the version it was read at."""
        return await self._write(key, sign_in, expected=sign_in.version)

    async def mark_revoked(self, key: SignInKey, sign_in: SignIn) -> SignIn | None:
        """Delete the tokens of a sign-in and keep its client registration."""
        rest = dataclasses.replace(sign_in, access_token="", refresh_token="", expires_at=None, renew_at=None)
        return await self._write(key, rest, expected=sign_in.version, audit_kind="sign-in ended")

    async def signed_in(self, key: SignInKey, sign_in: SignIn, by: Author) -> SignIn:
        """Save a sign-in, regardless of the stored version."""
        sign_in = dataclasses.replace(sign_in, signed_in_by=by.principal, signed_in_at=self._clock())
        written = await self._write(key, sign_in, expected=None, audit_kind="signed in", by=by.principal)
        assert written is not None
        return written

    async def _write(
        self, key: SignInKey, sign_in: SignIn, *, expected: int | None, audit_kind: str = "", by: str = audit.NOBODY
    ) -> SignIn | None:
        """Save a sign-in in place of the version `expected` (0: a new row, None: any). Return it with its new version,
        `None` after a conflict.
        """
        context = _context(key.server_id, key.person)
        ciphertext = await asyncio.to_thread(self._box.seal, encode_text(sign_in), context)
        version = await self._replace(key, ciphertext, expected=expected, audit_kind=audit_kind, by=by)
        return None if version is None else dataclasses.replace(sign_in, version=version)

    @transaction
    def _replace(
        self,
        connection: sa.Connection,
        key: SignInKey,
        ciphertext: str,
        *,
        expected: int | None,
        audit_kind: str,
        by: str,
    ) -> int | None:
        """Replace a stored sign-in. The new version is that of the configuration, which is never used twice."""
        lock_config(connection)
        row = connection.execute(_find, _params(key)).first()
        if row is not None and row.body == ciphertext:
            # The same transaction, repeated after a lost COMMIT response: no two ciphertexts are alike.
            return int(row.version)
        if expected not in (None, row.version if row else 0):
            return None
        if audit_kind:
            audit.record(connection, audit_kind, by, **_facts(connection, key))
        bump_config_version(connection)
        version = read_version(connection)
        values = {"body": ciphertext, "version": version, "updated_by": by}
        if row is not None:
            connection.execute(_change.values(**values), _params(key))
        else:
            connection.execute(_add, {"server_id": key.server_id, "principal": key.person, **values})
        return version

    @transaction
    def forget(self, connection: sa.Connection, key: SignInKey, by: Author) -> bool:
        """Delete a sign-in. Return False if there was none."""
        lock_config(connection)
        if not connection.execute(_delete, _params(key)).rowcount:
            return False
        record_change(connection, "signed out", by.principal, **_facts(connection, key))
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
        state_hash = {"h": hash_token(state)}
        row = await self._database.run(lambda connection: connection.execute(_take, state_hash).first())
        if row is None:
            return None
        body = await asyncio.to_thread(self._box.open, row.body, _pending_context(row.server_id, row.principal))
        try:
            return decode_text(PendingSignIn, body, expires_at=row.expires_at)
        except UNREADABLE:
            return None


def delete_sign_ins(connection: sa.Connection, server_id: str) -> None:
    """Delete all sign-ins and links of a removed server. The caller bumps the configuration version."""
    connection.execute(_delete_of_server, {"i": server_id})
    connection.execute(_delete_pending_of_server, {"i": server_id})


def read_encrypted_sign_ins(connection: sa.Connection) -> Sequence[Encrypted]:
    """Return all stored sign-ins, still encrypted."""
    return [
        Encrypted(
            f"{row.slug or row.server_id} sign-in",
            _context(row.server_id, row.principal),
            row.body,
            _columns.body,
            (row.server_id, row.principal),
        )
        for row in connection.execute(_all)
    ]


def _facts(connection: sa.Connection, key: SignInKey) -> Mapping[str, str]:
    """Return what the audit has of a change of a sign-in."""
    slug = connection.execute(_slug, {"i": key.server_id}).scalar() or key.server_id
    return {"subject": key.server_id, "server": slug, **({"person": key.person} if key.person else {})}


def _params(key: SignInKey) -> dict[str, str]:
    return {"i": key.server_id, "whose": key.person}
