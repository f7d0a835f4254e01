"""Sign-ins by OAuth on a database: every method one transaction, see `bot.ports.SignInStore`.

Bodies are encrypted before their transaction begins and decrypted after theirs is over, in a thread, as secrets are.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import secrets
import time
from collections.abc import Callable, Mapping

from bot.domain.conversations import Author
from bot.domain.sign_ins import SIGN_IN_SECONDS, PendingSignIn, SignIn, SignInKey
from bot.storage import sign_in_rows
from bot.storage.database import Database
from bot.storage.secret_box import SecretBox
from bot.storage.sign_in_codec import decode_sign_in, encode_pending, encode_sign_in, read_under_way
from bot.storage.sign_in_rows import EncryptedSignIn, SealedLink, sign_in_context
from bot.storage.turn_reader import UNREADABLE

log = logging.getLogger(__name__)

_BYTES = 32


class SqlSignInStore:
    """Sign-ins by whose they are, links by their state. `clock` is in epoch seconds, and says when somebody signed in:
    nothing is decided by it.
    """

    def __init__(self, database: Database, box: SecretBox, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._box = box
        self._clock = clock

    async def find(self, key: SignInKey) -> SignIn | None:
        """What is kept."""
        sealed = await self._database.run(lambda connection: sign_in_rows.find(connection, key))
        if sealed is None:
            return None
        body = await asyncio.to_thread(self._box.open, sealed.body, sealed.place)
        try:
            return decode_sign_in(body, sealed.version)
        except UNREADABLE:
            log.warning("the sign-in to the server %s cannot be read and counts for nothing", key.server_id)
            return None

    async def versions(self) -> Mapping[SignInKey, int]:
        """Which version everything is."""
        return await self._database.run(sign_in_rows.versions)

    async def save(self, key: SignInKey, sign_in: SignIn) -> SignIn | None:
        """Keep it, in place of the version it comes from."""
        sealed = await self._sealed(key, sign_in)
        version = await self._database.run(lambda connection: sign_in_rows.replace(connection, sealed))
        return None if version is None else dataclasses.replace(sign_in, version=version)

    async def signed_in(self, key: SignInKey, sign_in: SignIn, by: Author) -> SignIn:
        """Keep it, in place of whatever is there."""
        sign_in = dataclasses.replace(sign_in, signed_in_by=by.principal, signed_in_at=self._clock())
        sealed = await self._sealed(key, sign_in)
        version = await self._database.run(lambda connection: sign_in_rows.signed_in(connection, sealed, by))
        return dataclasses.replace(sign_in, version=version)

    async def mark_revoked(self, key: SignInKey, sign_in: SignIn) -> SignIn | None:
        """Keep its registration alone."""
        rest = dataclasses.replace(sign_in, access_token="", refresh_token="", expires_at=None, renew_at=None)
        sealed = await self._sealed(key, rest)
        version = await self._database.run(lambda connection: sign_in_rows.ended(connection, sealed))
        return None if version is None else dataclasses.replace(rest, version=version)

    async def forget(self, key: SignInKey, by: Author) -> bool:
        """Keep nothing of it."""
        return await self._database.run(lambda connection: sign_in_rows.forget(connection, key, by))

    async def begin(self, under_way: PendingSignIn) -> str:
        """Keep what is needed when the person comes back; the state for their link."""
        state = secrets.token_urlsafe(_BYTES)
        link = SealedLink(under_way.key.server_id, under_way.by.principal)
        body = await asyncio.to_thread(self._box.seal, encode_pending(under_way), link.place)
        link = dataclasses.replace(link, body=body)
        await self._database.run(lambda connection: sign_in_rows.begin(connection, state, link, SIGN_IN_SECONDS))
        return state

    async def take(self, state: str) -> PendingSignIn | None:
        """Use a state up. After a COMMIT whose answer was lost it is used and nobody has it."""
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
