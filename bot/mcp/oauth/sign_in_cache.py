"""What a process knows of the sign-in that is kept for one server, and changes of it. Called by `token_provider`,
`refresh`.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from bot.domain.servers import AuthenticationKind, OAuthTerms, ServerConfig
from bot.domain.sign_ins import SignIn, SignInKey
from bot.errors import CountersignError, DatabaseError
from bot.mcp.endpoint_fingerprint import endpoint_fingerprint
from bot.mcp.oauth.dependencies import OAuthDependencies

log = logging.getLogger(__name__)

_UNREAD = -1


class SignInCache:
    """The sign-in of one server as it was read last. `KnownSecrets` has the secrets in it."""

    def __init__(self, config: ServerConfig, desk: OAuthDependencies) -> None:
        self.key = SignInKey(config.id)
        self.terms = config.sign_in or OAuthTerms()
        self._name = config.name
        self._place = endpoint_fingerprint(config)
        self._desk = desk
        self._sign_in: SignIn | None = None
        self._kept: SignIn | None = None
        self._unkept: SignIn | None = None
        self._version = _UNREAD
        self._told = _UNREAD
        self._stale = True
        # Whoever reads what was kept before must not find it newer than what is being kept.
        self._turn = asyncio.Lock()

    @property
    def sign_in(self) -> SignIn | None:
        """It, as far as it is known; None if there is none."""
        return self._sign_in

    @property
    def kept(self) -> SignIn | None:
        """What the next one takes the place of: also one that is for another place or another client."""
        return self._kept

    @property
    def access_token(self) -> str:
        """Its token, good or not; empty if there is none."""
        return "" if self._sign_in is None else self._sign_in.access_token

    def learn(self, version: int) -> bool:
        """Which version is kept now, 0 for none; whether that is news: another one than was told or read before."""
        before, self._told = self._told, version
        self._stale |= version != self._version
        return before != _UNREAD and {before, self._version} != {version}

    def doubt(self) -> None:
        """There may be another one."""
        self._stale = True

    async def current(self) -> SignIn | None:
        """What is kept, read if there may be something new. What is known already is good enough while the database is
        away. Raises CountersignError.
        """
        if self._stale:
            async with self._turn:
                if self._stale:
                    try:
                        await self._read()
                    except DatabaseError:
                        if self._sign_in is None:
                            raise
        return self._sign_in

    async def read(self) -> SignIn | None:
        """What is kept now. Raises CountersignError."""
        async with self._turn:
            await self._read()
        return self._sign_in

    async def _read(self) -> None:
        self._stale = False
        try:
            if self._unkept is not None:
                await self._desk.store.save(self.key, self._unkept)
                self._unkept = None
            found = await self._desk.store.find(self.key)
        except CountersignError:
            self._stale = True
            raise
        self._kept, self._version = found, found.version if found else 0
        if self._told == _UNREAD:
            self._told = self._version
        self._hold(None if found is None or not self._ours(found) else self._with_terms(found))

    async def keep(self, renewed: SignIn) -> None:
        """Other tokens have come. They are used whatever becomes of the database, and kept as soon as it is back: those
        before are good for nothing.
        """
        async with self._turn:
            self._hold(renewed)
            try:
                await self._adopt(await self._desk.store.save(self.key, renewed))
            except CountersignError as error:
                self._unkept, self._stale = renewed, True
                log.warning("the renewed sign-in to MCP server %s could not be kept: %s", self._name, error.cause)

    async def end(self, sign_in: SignIn) -> None:
        """The other side has ended it. Raises CountersignError."""
        async with self._turn:
            await self._adopt(await self._desk.store.mark_revoked(self.key, sign_in))

    def drop_token(self) -> None:
        """There is no good token, and nobody else has to know."""
        if self._sign_in is not None:
            self._hold(replace(self._sign_in, access_token="", expires_at=None))

    async def _adopt(self, kept: SignIn | None) -> None:
        if kept is None:
            # Somebody was faster: signed in anew, or out.
            await self._read()
        else:
            self._kept, self._version = kept, kept.version
            self._told = kept.version
            self._hold(kept)

    def _ours(self, found: SignIn) -> bool:
        """It is for this server where it is now, for the client that an admin has set, and no person's where the bot
        is to sign itself in.
        """
        theirs = bool(found.signed_in_by) and self.terms.kind is AuthenticationKind.CLIENT_CREDENTIALS
        client = self.terms.client_id in ("", found.registration.client_id)
        return found.place == self._place and client and not theirs

    def _with_terms(self, found: SignIn) -> SignIn:
        if not self.terms.client_id:
            return found
        return replace(found, registration=replace(found.registration, client_secret=self.terms.client_secret))

    def _hold(self, sign_in: SignIn | None) -> None:
        self._sign_in = sign_in
        tokens = self._desk.secrets.tokens(self.key.server_id)
        if sign_in is None:
            tokens.clear()
        else:
            tokens.learn((sign_in.access_token, sign_in.refresh_token, sign_in.registration.client_secret))
