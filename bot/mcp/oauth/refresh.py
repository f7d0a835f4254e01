"""Getting another token in place of one that is old or refused: once, however many want it, in however many processes.

Within a process everybody waits for one task; between processes a lease says who asks, and the version of what is kept
says who was faster. Called by `token_provider`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from contextlib import suppress
from dataclasses import replace

from bot.domain.servers import AuthenticationKind, HttpTransport, ServerConfig
from bot.domain.sign_ins import SignIn
from bot.errors import CountersignError, DatabaseError, ServerTrouble
from bot.mcp.endpoint_fingerprint import endpoint_fingerprint
from bot.mcp.oauth.authorization import wanted_scope
from bot.mcp.oauth.challenges import Challenge
from bot.mcp.oauth.dependencies import OAuthDependencies
from bot.mcp.oauth.discovery import discover
from bot.mcp.oauth.http import AuthServerClient
from bot.mcp.oauth.registration import manual_registration
from bot.mcp.oauth.sign_in_cache import SignInCache
from bot.mcp.oauth.token_endpoint import TokenRequestRejected, client_credentials_grant, exchange_refresh_token

log = logging.getLogger(__name__)

_LEASE_SECONDS = 60.0
"""Longer than all requests of a renewal together."""
_WAIT_SECONDS = 10.0
"""How long one waits for another process that renews."""
_LOOK_SECONDS = 0.1
_REST_SECONDS = 5.0
"""How long a token that is good still is left alone after it could not be renewed."""


class TokenRefresh:
    """Renews one server's sign-in. `refusal` is why it got no token when it was last refused one, None once it got
    one; `challenge` is what the server has said last, if it has refused a token.
    """

    def __init__(
        self, config: ServerConfig, endpoint: HttpTransport, holding: SignInCache, desk: OAuthDependencies
    ) -> None:
        self.refusal: TokenRequestRejected | None = None
        self.challenge: Challenge | None = None
        self._config = config
        self._url = endpoint.url
        self._holding = holding
        self._desk = desk
        self._itself = holding.terms.kind is AuthenticationKind.CLIENT_CREDENTIALS
        self._rests_until = -math.inf
        self._task: asyncio.Task[None] | None = None
        self._holder = uuid.uuid4().hex

    def possible(self, held: SignIn | None) -> bool:
        """Another token can be had without anybody's help."""
        return self._itself or (held is not None and bool(held.refresh_token))

    def begin(self, old: str) -> None:
        """Get another token than `old`, which is good for a while: nobody waits, and nobody tries again at once."""
        if self._desk.elapsed() >= self._rests_until:
            self._start(old)

    async def done(self, old: str) -> None:
        """Get another token than `old`, and wait for it. Raises CountersignError if it cannot be had now; if it never
        can be, there is none afterwards.
        """
        if self._holding.access_token not in ("", old):
            return
        task = self._start(old)
        await asyncio.wait({task})
        if task.cancelled():
            raise ServerTrouble("The program is ending.", "try again")
        task.result()

    def _start(self, old: str) -> asyncio.Task[None]:
        """The task outlives whoever wanted it: an answer that nobody waits for any more must still be kept, since the
        refresh token in it is the only one that is good.
        """
        if self._task is None or self._task.done():
            self._task = self._desk.start(self._renew(old), f"sign-in:{self._config.name}")
        return self._task

    async def _renew(self, old: str) -> None:
        try:
            await self._renew_in_turn(old)
        except CountersignError as error:
            self._rests_until = self._desk.elapsed() + _REST_SECONDS
            log.info("the sign-in to MCP server %s was not renewed: %s", self._config.name, error.cause)
            raise

    async def _renew_in_turn(self, old: str) -> None:
        key = self._holding.key
        lease = f"sign-in:{key.server_id}:{key.person}"
        began = self._desk.elapsed()
        while not await self._desk.leases.acquire_or_renew(lease, self._holder, _LEASE_SECONDS):
            # Another process renews it.
            if self._is_done(await self._holding.read(), old):
                return
            if self._desk.elapsed() - began > _WAIT_SECONDS:
                cause = f"The sign-in to {self._config.name} is being renewed elsewhere, and that takes too long."
                raise ServerTrouble(cause, "try again")
            await self._desk.pause(_LOOK_SECONDS)
        try:
            found = await self._holding.read()
            if not self._is_done(found, old):
                await self._renew_alone(found)
        finally:
            with suppress(DatabaseError):
                await self._desk.leases.release(lease, self._holder)

    def _is_done(self, found: SignIn | None, old: str) -> bool:
        """Somebody else has done it, or nobody can."""
        if found is None:
            return not self._itself
        fresh = found.renew_at is None or self._desk.clock() < found.renew_at
        return (found.access_token not in ("", old) and fresh) or not self.possible(found)

    async def _renew_alone(self, found: SignIn | None) -> None:
        try:
            async with self._desk.errand(self._config) as ask:
                renewed = await self._asked(found, ask)
        except TokenRequestRejected as refusal:
            self.refusal = refusal
            log.warning("MCP server %s: %s", self._config.name, self._desk.secrets(refusal.cause))
            if self._itself:
                self._holding.drop_token()
            elif found is not None:
                await self._holding.end(_without_registration(found) if self._forgotten(refusal) else found)
        else:
            self.refusal = None
            await self._holding.keep(renewed)

    async def _asked(self, found: SignIn | None, ask: AuthServerClient) -> SignIn:
        """The sign-in with other tokens. Raises ServerTrouble."""
        now = self._desk.clock()
        if found is not None and not self._itself:
            return await exchange_refresh_token(found, ask, now)
        known = found if found is not None and self.challenge is None else await self._applied(found, ask)
        return await client_credentials_grant(known, ask, now)

    async def _applied(self, found: SignIn | None, ask: AuthServerClient) -> SignIn:
        """Where the bot gets a token of its own, and for what."""
        challenge, terms = self.challenge or Challenge(), self._holding.terms
        where = await discover(self._url, challenge, ask)
        scope = wanted_scope(where, challenge, terms, found.scope if found else "", ())
        before = self._holding.kept
        registration = manual_registration(where.metadata, terms, before.registration if before else None)
        version = before.version if before else 0
        return SignIn(
            endpoint_fingerprint(self._config), where.resource, registration, where.endpoints, scope, version=version
        )

    def _forgotten(self, refusal: TokenRequestRejected) -> bool:
        """The authorization server does not know the bot any more, which had registered itself there."""
        return refusal.of_the_bot and not self._holding.terms.client_id


def _without_registration(sign_in: SignIn) -> SignIn:
    """Nobody can come back to a bot that is registered nowhere: the next sign-in begins with registering."""
    return replace(sign_in, registration=replace(sign_in.registration, client_secret="", redirect_uri=""))
