"""OAuth sign-ins on a database: every method is one transaction, see `bot.ports.SignInStore`.

Bodies are encrypted before and decrypted after the transaction, in a thread.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping

from bot.domain.conversations import Author, ConversationKey
from bot.domain.sign_ins import SIGN_IN_SECONDS, PendingSignIn, Registration, SignIn, SignInKey
from bot.storage import sign_in_rows
from bot.storage.codec import Body
from bot.storage.database import Database
from bot.storage.secret_box import SecretBox
from bot.storage.sign_in_rows import EncryptedSignIn, SealedLink, sign_in_context
from bot.storage.turn_reader import UNREADABLE

# -------------------- codec

_VERSION = 1


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


log = logging.getLogger(__name__)

_BYTES = 32


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
        sealed = await self._database.run(lambda connection: sign_in_rows.find(connection, key))
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
        return await self._database.run(sign_in_rows.versions)

    async def save(self, key: SignInKey, sign_in: SignIn) -> SignIn | None:
        """Save a sign-in, replacing the version it was read at."""
        sealed = await self._sealed(key, sign_in)
        version = await self._database.run(lambda connection: sign_in_rows.replace(connection, sealed))
        return None if version is None else dataclasses.replace(sign_in, version=version)

    async def signed_in(self, key: SignInKey, sign_in: SignIn, by: Author) -> SignIn:
        """Save a sign-in, regardless of the stored version."""
        sign_in = dataclasses.replace(sign_in, signed_in_by=by.principal, signed_in_at=self._clock())
        sealed = await self._sealed(key, sign_in)
        version = await self._database.run(lambda connection: sign_in_rows.signed_in(connection, sealed, by))
        return dataclasses.replace(sign_in, version=version)

    async def mark_revoked(self, key: SignInKey, sign_in: SignIn) -> SignIn | None:
        """Delete the tokens of a sign-in and keep its client registration."""
        rest = dataclasses.replace(sign_in, access_token="", refresh_token="", expires_at=None, renew_at=None)
        sealed = await self._sealed(key, rest)
        version = await self._database.run(lambda connection: sign_in_rows.ended(connection, sealed))
        return None if version is None else dataclasses.replace(rest, version=version)

    async def forget(self, key: SignInKey, by: Author) -> bool:
        """Delete a sign-in."""
        return await self._database.run(lambda connection: sign_in_rows.forget(connection, key, by))

    async def begin(self, under_way: PendingSignIn) -> str:
        """Save the state of a started sign-in. Return the state parameter for its link."""
        state = secrets.token_urlsafe(_BYTES)
        link = SealedLink(under_way.key.server_id, under_way.by.principal)
        body = await asyncio.to_thread(self._box.seal, encode_pending(under_way), link.place)
        link = dataclasses.replace(link, body=body)
        await self._database.run(lambda connection: sign_in_rows.begin(connection, state, link, SIGN_IN_SECONDS))
        return state

    async def take(self, state: str) -> PendingSignIn | None:
        """Use up a state. After a lost COMMIT response it is used and `None` is returned."""
        row = await self._database.run(lambda connection: sign_in_rows.take(connection, state))
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
