"""The token that requests to one server carry, and what is said where there is none.

Calls with a good token wait for nobody. Called by `auth_transport` for every request, and by whoever hears that
something has changed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from contextlib import suppress
from dataclasses import replace

from bot.domain.characters import visible
from bot.domain.servers import AuthenticationKind, HttpTransport, OAuthTerms, ServerConfig
from bot.domain.sign_ins import SignIn, SignInKey
from bot.errors import CountersignError, DatabaseError, ServerTrouble
from bot.mcp.endpoint_fingerprint import endpoint_fingerprint
from bot.mcp.oauth.authorization import wanted_scope
from bot.mcp.oauth.challenges import Challenge
from bot.mcp.oauth.dependencies import OAuthDependencies
from bot.mcp.oauth.discovery import discover
from bot.mcp.oauth.http import AuthServerClient
from bot.mcp.oauth.registration import manual_registration
from bot.mcp.oauth.token_endpoint import TokenRequestRejected, client_credentials_grant, exchange_refresh_token

# -------------------- sign in cache
# What a process knows of the sign-in that is kept for one server, and changes of it. Called by `token_provider`,
# `refresh`.

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


# -------------------- refresh
# Getting another token in place of one that is old or refused: once, however many want it, in however many processes.
#
# Within a process everybody waits for one task; between processes a lease says who asks, and the version of what is
# kept says who was faster. Called by `token_provider`.

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


_LONGEST_SCOPE = 200


class TokenProvider:
    """One server's token. `challenge` is the last one of the server, and `problem` says why there is no good token.
    `rejected_page`: the server has not let the bot in since it was last connected to; `out`: and it should have.
    """

    def __init__(self, config: ServerConfig, endpoint: HttpTransport, desk: OAuthDependencies) -> None:
        self._holding = SignInCache(config, desk)
        self._renewal = TokenRefresh(config, endpoint, self._holding, desk)
        self.terms = self._holding.terms
        self.defined = config.sign_in is not None
        self.challenge: Challenge | None = None
        self.problem = ""
        self.turned_away = False
        self.out = False
        self._config = config
        self._desk = desk

    def fits(self, config: ServerConfig) -> bool:
        """It is for this server, as it is defined."""
        return self._config == config

    def learn(self, version: int) -> bool:
        """Which version of the sign-in is kept now, 0 for none; whether that is news."""
        return self._holding.learn(version)

    def doubt(self) -> None:
        """There may be another sign-in than the one that is known, or none. `learn` is news all the same."""
        self._holding.doubt()

    @property
    def known(self) -> SignIn | None:
        """What this process knows of what is kept."""
        return self._holding.sign_in

    @property
    def has_token(self) -> bool:
        """Requests carry one, good or not."""
        return bool(self._holding.access_token)

    async def token(self) -> str:
        """One that is good, as far as anybody here can know; empty if there is none. Raises CountersignError if one
        cannot be had now and may be later.
        """
        held, now = await self._holding.current(), self._desk.clock()
        if held is None:
            return ""
        over = not held.access_token or (held.expires_at is not None and now >= held.expires_at)
        if over and not self._renewal.possible(held):
            return ""
        if over:
            await self._renewal.done(held.access_token)
        elif held.renew_at is not None and now >= held.renew_at and self._renewal.possible(held):
            self._renewal.begin(held.access_token)
        return self._holding.access_token

    async def another(self, refused: str, challenge: Challenge) -> str:
        """A token in place of one that the server has refused, or of none; empty if there is no other. Raises as
        `token`.
        """
        self.challenge = self._renewal.challenge = challenge
        self._holding.doubt()
        held = await self._holding.current()
        if self._holding.access_token in ("", refused) and self._renewal.possible(held):
            await self._renewal.done(refused)
        return "" if self._holding.access_token == refused else self._holding.access_token

    async def wider(self, refused: str, challenge: Challenge) -> str:
        """The same, for a token that is good and not for this. Only who signs in by itself can ask for more."""
        known = set((self.known.scope if self.known else "").split())
        if not self._itself or set((challenge.scope or "").split()) <= known:
            self.challenge = challenge
            return ""
        return await self.another(refused, challenge)

    def begins(self) -> None:
        """The server is being connected to: whether it lets the bot in is to be seen."""
        self.turned_away = self.out = False

    def works(self) -> None:
        """The server has let the bot in."""
        self.turned_away = self.out = False
        self.problem = ""

    def refused(self, challenge: Challenge) -> str:
        """The server does not let the bot in, whatever was tried: why, for people. Empty if nobody expected it to and
        it does not say that it wants a token.
        """
        self.challenge = challenge
        had = self.known is not None and bool(self.known.access_token or self.known.signed_in_by)
        self.turned_away = True
        self.out = self.defined or had
        if self._itself:
            self.problem = self._not_enough
        elif had:
            self.problem = self._over
        elif self.defined or challenge.bearer:
            self.problem = self._wanted
        return self.problem

    def signed_in(self, version: int) -> None:
        """Somebody has just signed the bot in: what the server has said before does not count any more."""
        self._holding.learn(version)
        self.challenge = self._renewal.challenge = None

    def needs_wider_scope(self, challenge: Challenge) -> str:
        """The token is good and not for this: a sentence for people."""
        name = self._config.name
        scope = f" ({visible(challenge.scope)[:_LONGEST_SCOPE]})" if challenge.scope else ""
        if self._itself:
            return f"Server {name} wants more rights{scope} than the bot is given. Fix: check what its client may do."
        return (
            f"Server {name} wants more rights{scope} for this than it was given. "
            f"Fix: an admin signs in again with `/mcp connect {name}`."
        )

    def unusable(self, error: CountersignError) -> str:
        """There is no token now, and there may be one later: a sentence for people."""
        return f"Server {self._config.name} has to be signed in to, and that does not work now. {error}"

    @property
    def _itself(self) -> bool:
        return self.terms.kind is AuthenticationKind.CLIENT_CREDENTIALS

    @property
    def _wanted(self) -> str:
        name = self._config.name
        return f"Server {name} wants the bot to be signed in. Fix: an admin signs in with `/mcp connect {name}`."

    @property
    def _over(self) -> str:
        name = self._config.name
        return f"The sign-in to {name} has ended. Fix: an admin signs in again with `/mcp connect {name}`."

    @property
    def own_problem(self) -> str:
        """`problem` without text of a server."""
        return self._not_taken if self._itself and self.problem else self.problem

    @property
    def _not_enough(self) -> str:
        name, refusal = self._config.name, self._renewal.refusal
        if refusal is not None:
            return f"Server {name}: {refusal.cause} Fix: check its client_id and scope, and set its secret again."
        return self._not_taken

    @property
    def _not_taken(self) -> str:
        name = self._config.name
        return (
            f"Server {name} does not take the token that its authorization server gave the bot. "
            f"Fix: check its scope, and what its client may do."
        )
