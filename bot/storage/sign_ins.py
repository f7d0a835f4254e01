"""OAuth sign-ins of users to servers. See `bot.ports.SignInStore`.

Bodies are encrypted before and decrypted after the transaction, in a thread. Of a link's state only a hash is stored.
Changes take the lock of the configuration version, because all processes follow them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import Author, ConversationKey
from bot.domain.sign_ins import SIGN_IN_SECONDS, PendingSignIn, Registration, SignIn, SignInKey
from bot.storage import audit
from bot.storage.clock import now
from bot.storage.codec import Body
from bot.storage.config_version import bump, lock, read_version
from bot.storage.database import Database
from bot.storage.encryption import SecretBox
from bot.storage.tables import mcp_servers, sign_ins, sign_ins_under_way
from bot.storage.turn_reader import UNREADABLE

log = logging.getLogger(__name__)


# -------------------- codec

_VERSION = 1
_BYTES = 32
_select_sign_in = sign_ins.c
_begun = sign_ins_under_way.c
_of_user = (_select_sign_in.server_id == bindparam("i"), _select_sign_in.person == bindparam("whose"))
_find = sa.select(sign_ins).where(*_of_user)
_versions = sa.select(_select_sign_in.server_id, _select_sign_in.person, _select_sign_in.version)
_everything = (
    sa.select(sign_ins, mcp_servers.c.slug)
    .select_from(sign_ins.outerjoin(mcp_servers, mcp_servers.c.id == _select_sign_in.server_id))
    .order_by(_select_sign_in.server_id, _select_sign_in.person)
)
_add = sign_ins.insert().values(updated_at=now())
_change = sign_ins.update().where(*_of_user).values(updated_at=now())
_reseal = sign_ins.update().where(*_of_user, _select_sign_in.body == bindparam("was")).values(body=bindparam("to"))
_delete = sign_ins.delete().where(*_of_user)
_delete_of_server = sign_ins.delete().where(_select_sign_in.server_id == bindparam("i"))
_slug = sa.select(mcp_servers.c.slug).where(mcp_servers.c.id == bindparam("i"))
_begin = sign_ins_under_way.insert().values(created_at=now(), expires_at=now() + bindparam("seconds"))
_delete_old = sign_ins_under_way.delete().where(_begun.expires_at <= now())
_delete_same = sign_ins_under_way.delete().where(
    _begun.server_id == bindparam("i"), _begun.person == bindparam("whose")
)
_delete_begun = sign_ins_under_way.delete().where(_begun.server_id == bindparam("i"))

# One query for missing, used and expired states, so that a response does not tell them apart.
_take = (
    sign_ins_under_way.delete()
    .where(_begun.hash == bindparam("h"), _begun.expires_at > now())
    .returning(*sign_ins_under_way.c)
)


@dataclass(frozen=True, slots=True)
class EncryptedSignIn:
    """A stored sign-in, still encrypted. `slug` is the server's name in messages."""

    key: SignInKey
    body: str
    version: int
    slug: str = ""

    @property
    def place(self) -> str:
        """Encryption context of the body."""
        return sign_in_context(self.key)


def sign_in_context(key: SignInKey) -> str:
    """Return the encryption context of a sign-in's body."""
    return json.dumps(["sign-in", key.server_id, key.person])


def hash_of(state: str) -> str:
    """Return the hash of a link's state. A plain hash suffices, because 256 random bits cannot be guessed."""
    return hashlib.sha256(state.encode()).hexdigest()


def find(connection: sa.Connection, key: SignInKey) -> EncryptedSignIn | None:
    """Return the sign-in, `None` if it does not exist."""
    row = connection.execute(_find, _of(key)).first()
    return None if row is None else EncryptedSignIn(key, row.body, row.version)


def versions(connection: sa.Connection) -> Mapping[SignInKey, int]:
    """Return the versions of all sign-ins."""
    return {SignInKey(row.server_id, row.person): row.version for row in connection.execute(_versions)}


def replace(connection: sa.Connection, sealed: EncryptedSignIn) -> int | None:
    """Replace the body of this version (0: a new row). Return the next version, `None` after a conflict."""
    lock(connection)
    there = connection.execute(_find, _of(sealed.key)).first()
    if there is not None and there.body == sealed.body:
        # The same transaction, repeated after a lost COMMIT response: no two bodies are alike.
        return int(there.version)
    if (there.version if there else 0) != sealed.version:
        return None
    return _write(connection, sealed, audit.NOBODY)


def signed_in(connection: sa.Connection, sealed: EncryptedSignIn, by: Author) -> int:
    """Save a body, regardless of the stored version."""
    lock(connection)
    there = connection.execute(_find, _of(sealed.key)).first()
    if there is not None and there.body == sealed.body:
        return int(there.version)
    version = there.version if there else 0
    _record(connection, "signed in", by.principal, sealed.key)
    return _write(connection, EncryptedSignIn(sealed.key, sealed.body, version), by.principal)


def ended(connection: sa.Connection, sealed: EncryptedSignIn) -> int | None:
    """Save a body without tokens, replacing the one of this version."""
    version = replace(connection, sealed)
    if version is not None:
        _record(connection, "sign-in ended", audit.NOBODY, sealed.key)
    return version


def forget(connection: sa.Connection, key: SignInKey, by: Author) -> bool:
    """Delete a sign-in."""
    lock(connection)
    if not connection.execute(_delete, _of(key)).rowcount:
        return False
    _record(connection, "signed out", by.principal, key)
    bump(connection)
    return True


def end_of_server(connection: sa.Connection, server_id: str) -> None:
    """Delete all sign-ins and links of a removed server. The caller bumps the version."""
    connection.execute(_delete_of_server, {"i": server_id})
    connection.execute(_delete_begun, {"i": server_id})


@dataclass(frozen=True, slots=True)
class SealedLink:
    """The encrypted state of a started sign-in, bound to its server and user (a principal)."""

    server_id: str
    person: str
    body: str = ""

    @property
    def place(self) -> str:
        """Encryption context of the body."""
        return json.dumps(["sign-in under way", self.server_id, self.person])


def begin(connection: sa.Connection, state: str, link: SealedLink, seconds: float) -> None:
    """Save a started sign-in for `seconds`, replace the user's other one for the same server, and delete all expired
    ones.
    """
    connection.execute(_delete_old)
    connection.execute(_delete_same, {"i": link.server_id, "whose": link.person})
    row = {"server_id": link.server_id, "person": link.person, "body": link.body}
    connection.execute(_begin, {"hash": hash_of(state), **row, "seconds": seconds})


def take(connection: sa.Connection, state: str) -> Any:
    """Delete and return the row of a started sign-in, `None` without one. Only one of two concurrent calls gets it."""
    return connection.execute(_take, {"h": hash_of(state)}).first()


def read_all_sealed(connection: sa.Connection) -> Sequence[EncryptedSignIn]:
    """Return all stored sign-ins."""
    return [
        EncryptedSignIn(SignInKey(row.server_id, row.person), row.body, row.version, row.slug or row.server_id)
        for row in connection.execute(_everything)
    ]


def replace_sealed(connection: sa.Connection, pairs: Iterable[tuple[EncryptedSignIn, str]]) -> int:
    """Replace ciphertexts unless they have changed meanwhile. Return the number of replaced ones."""
    return sum(connection.execute(_reseal, {**_of(old.key), "was": old.body, "to": new}).rowcount for old, new in pairs)


def _write(connection: sa.Connection, sealed: EncryptedSignIn, by: str) -> int:
    """Write the body over the version that the caller has checked, and return the new version: the configuration
    version, which is never used twice.
    """
    bump(connection)
    version = read_version(connection)
    values = {"body": sealed.body, "version": version, "updated_by": by}
    if sealed.version:
        connection.execute(_change.values(**values), _of(sealed.key))
    else:
        connection.execute(_add, {"server_id": sealed.key.server_id, "person": sealed.key.person, **values})
    return version


def _record(connection: sa.Connection, kind: str, actor: str, key: SignInKey) -> None:
    slug = connection.execute(_slug, {"i": key.server_id}).scalar() or key.server_id
    whose = {"person": key.person} if key.person else {}
    audit.record(connection, kind, actor, subject=key.server_id, server=slug, **whose)


def _of(key: SignInKey) -> dict[str, str]:
    return {"i": key.server_id, "whose": key.person}


def encode_sign_in(sign_in: SignIn) -> str:
    """Encode a sign-in without its version."""
    return json.dumps({"v": _VERSION, **_fields(sign_in)})


def decode_sign_in(body: str, version: int) -> SignIn:
    """Decode a sign-in. Raises `turn_reader.UNREADABLE`."""
    return _sign_in(_read(body), version)


def encode_pending(under_way: PendingSignIn) -> str:
    """Encode the state of a started sign-in."""
    by = under_way.by
    return json.dumps(
        {
            "v": _VERSION,
            "key": [under_way.key.server_id, under_way.key.person],
            "by": [by.platform, by.id, by.name],
            "conversation": str(under_way.conversation),
            "sign_in": _fields(under_way.sign_in) | {"version": under_way.sign_in.version},
            "verifier": under_way.verifier,
            "redirect_uri": under_way.redirect_uri,
        }
    )


def read_under_way(body: str, expires_at: float) -> PendingSignIn:
    """Decode the state of a started sign-in. Raises `turn_reader.UNREADABLE`."""
    read = _read(body)
    return PendingSignIn(
        SignInKey(*read["key"]),
        Author(*read["by"]),
        ConversationKey.parse(read["conversation"]),
        _sign_in(read["sign_in"], read["sign_in"]["version"]),
        read["verifier"],
        read["redirect_uri"],
        expires_at,
    )


def _fields(sign_in: SignIn) -> Body:
    fields = dataclasses.asdict(dataclasses.replace(sign_in, endpoints=dict(sign_in.endpoints)))
    del fields["version"]
    return fields


def _read(body: str) -> Body:
    read: Body = json.loads(body)
    if read["v"] != _VERSION:
        raise ValueError(f"a body of version {read['v']}")
    return read


def _sign_in(read: Body, version: int) -> SignIn:
    known = {field.name for field in dataclasses.fields(SignIn)}
    values = {name: value for name, value in read.items() if name in known}
    return SignIn(**{**values, "registration": Registration(**read["registration"]), "version": version})


class SqlSignInStore:
    """Sign-ins by server and user, and started ones by state. `clock` returns epoch seconds for the displayed sign-in
    time.
    """

    def __init__(self, database: Database, box: SecretBox, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._box = box
        self._clock = clock

    async def find(self, key: SignInKey) -> SignIn | None:
        """Return the sign-in, `None` if it does not exist."""
        sealed = await self._database.run(lambda connection: find(connection, key))
        if sealed is None:
            return None
        body = await asyncio.to_thread(self._box.open, sealed.body, sealed.place)
        try:
            return decode_sign_in(body, sealed.version)
        except UNREADABLE:
            log.warning("sign-in to server %s: unreadable, ignored", key.server_id)
            return None

    async def versions(self) -> Mapping[SignInKey, int]:
        """Return the versions of all sign-ins."""
        return await self._database.run(versions)

    async def save(self, key: SignInKey, sign_in: SignIn) -> SignIn | None:
        """Save a sign-in, replacing the version it was read at."""
        sealed = await self._sealed(key, sign_in)
        version = await self._database.run(lambda connection: replace(connection, sealed))
        return None if version is None else dataclasses.replace(sign_in, version=version)

    async def signed_in(self, key: SignInKey, sign_in: SignIn, by: Author) -> SignIn:
        """Save a sign-in, regardless of the stored version."""
        sign_in = dataclasses.replace(sign_in, signed_in_by=by.principal, signed_in_at=self._clock())
        sealed = await self._sealed(key, sign_in)
        version = await self._database.run(lambda connection: signed_in(connection, sealed, by))
        return dataclasses.replace(sign_in, version=version)

    async def mark_revoked(self, key: SignInKey, sign_in: SignIn) -> SignIn | None:
        """Delete the tokens of a sign-in and keep its client registration."""
        rest = dataclasses.replace(sign_in, access_token="", refresh_token="", expires_at=None, renew_at=None)
        sealed = await self._sealed(key, rest)
        version = await self._database.run(lambda connection: ended(connection, sealed))
        return None if version is None else dataclasses.replace(rest, version=version)

    async def forget(self, key: SignInKey, by: Author) -> bool:
        """Delete a sign-in."""
        return await self._database.run(lambda connection: forget(connection, key, by))

    async def begin(self, under_way: PendingSignIn) -> str:
        """Save the state of a started sign-in. Return the state parameter for its link."""
        state = secrets.token_urlsafe(_BYTES)
        link = SealedLink(under_way.key.server_id, under_way.by.principal)
        body = await asyncio.to_thread(self._box.seal, encode_pending(under_way), link.place)
        link = dataclasses.replace(link, body=body)
        await self._database.run(lambda connection: begin(connection, state, link, SIGN_IN_SECONDS))
        return state

    async def take(self, state: str) -> PendingSignIn | None:
        """Use up a state. After a lost COMMIT response it is used and `None` is returned."""
        row = await self._database.run(lambda connection: take(connection, state))
        if row is None:
            return None
        body = await asyncio.to_thread(self._box.open, row.body, SealedLink(row.server_id, row.person).place)
        try:
            return read_under_way(body, row.expires_at)
        except UNREADABLE:
            return None

    async def _sealed(self, key: SignInKey, sign_in: SignIn) -> EncryptedSignIn:
        body = await asyncio.to_thread(self._box.seal, encode_sign_in(sign_in), sign_in_context(key))
        return EncryptedSignIn(key, body, sign_in.version)
