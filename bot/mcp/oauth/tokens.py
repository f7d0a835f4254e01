"""Token for the requests to one server: cached, refreshed, and added to requests; the error text without one.

Requests with a valid token do not wait. The transport sits below the MCP library's client, so that requests run
concurrently.
"""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import httpx2

from bot.domain.characters import visible
from bot.domain.servers import AuthenticationKind, HttpTransport, OAuthTerms, ServerConfig, StdioTransport
from bot.domain.sign_ins import SignIn, SignInKey
from bot.errors import CountersignError, DatabaseError, ServerTrouble
from bot.i18n import gettext_lazy, join_lazy
from bot.mcp.config.checks import endpoint_fingerprint
from bot.mcp.errors import cause_and_fix, current_request
from bot.mcp.oauth.http import AuthServerClient, OAuthDependencies, TokenRequestRejected

if TYPE_CHECKING:
    from bot.mcp.oauth.client import Challenge

log = logging.getLogger(__name__)

_UNREAD = -1
_LEASE_SECONDS = 60.0
"""Longer than all requests of a refresh together."""
_WAIT_SECONDS = 10.0
"""Maximum seconds to wait for a refresh in another process."""
_POLL_SECONDS = 0.1
_RETRY_SECONDS = 5.0
"""Seconds before the next attempt after a failed refresh, while the token is still valid."""
_LONGEST_SCOPE = 200


class SignInCache:
    """Cache of one server's stored sign-in. `KnownSecrets` gets its secrets.

    `sign_in` is the cached sign-in, None if there is none. `stored` is the one that the next write replaces, also one
    for another endpoint or client.
    """

    def __init__(self, config: ServerConfig, dependencies: OAuthDependencies) -> None:
        self.key = SignInKey(config.id)
        self.terms = config.sign_in or OAuthTerms()
        self._name = config.name
        self._place = endpoint_fingerprint(config)
        self._dependencies = dependencies
        self.sign_in: SignIn | None = None
        self.stored: SignIn | None = None
        # Set before the write, so that a concurrent read does not replace it with the older row.
        self._unsaved: SignIn | None = None
        self._version = _UNREAD
        self._announced = _UNREAD
        # Doubts since the start, and how many of them the last complete read has settled.
        self._doubts, self._settled = 1, 0
        self._failed_reads = 0
        self._lock = asyncio.Lock()

    @property
    def access_token(self) -> str:
        """Cached access token, valid or not; empty if there is none."""
        return "" if self.sign_in is None else self.sign_in.access_token

    def record_version(self, version: int) -> bool:
        """Record the stored version, 0 for none. Return True if it differs from the last one."""
        before, self._announced = self._announced, version
        if version != self._version:
            self.mark_outdated()
        return before != _UNREAD and {before, self._version} != {version}

    def mark_outdated(self) -> None:
        """Mark the cache as outdated."""
        self._doubts += 1

    async def read_if_outdated(self) -> SignIn | None:
        """Return the sign-in, read again if it is outdated. The cached one is used while the database is down.
        Raises CountersignError.
        """
        if self._doubts == self._settled:
            return self.sign_in
        failed_before = self._failed_reads
        async with self._lock:
            # Requests that waited for a read which failed do not try one after the other.
            has_failed = self._failed_reads != failed_before and self.sign_in is not None
            if self._doubts != self._settled and not has_failed:
                try:
                    await self._read()
                except DatabaseError:
                    self._failed_reads += 1
                    if self.sign_in is None:
                        raise
        return self.sign_in

    async def read_sign_in(self) -> SignIn | None:
        """Read the stored sign-in. Raises CountersignError."""
        async with self._lock:
            await self._read()
        return self.sign_in

    async def _read(self) -> None:
        doubts = self._doubts
        if self._unsaved is not None:
            await self._dependencies.store.save(self.key, self._unsaved)
            self._unsaved = None
        stored = await self._dependencies.store.find(self.key)
        self._settled = doubts
        self.stored, self._version = stored, stored.version if stored else 0
        if self._announced == _UNREAD:
            self._announced = self._version
        if stored is not None:
            is_users = bool(stored.signed_in_by) and self.terms.kind is AuthenticationKind.CLIENT_CREDENTIALS
            is_client = self.terms.client_id in ("", stored.registration.client_id)
            if stored.place != self._place or is_users or not is_client:
                stored = None
            elif self.terms.client_id:
                registration = replace(stored.registration, client_secret=self.terms.client_secret)
                stored = replace(stored, registration=registration)
        self._hold(stored)

    async def save(self, renewed: SignIn) -> None:
        """Use and store refreshed tokens. They are used even if the write fails, and written again later, because
        the previous ones are invalid.
        """
        async with self._lock:
            self._hold(renewed)
            try:
                await self._adopt(await self._dependencies.store.save(self.key, renewed))
            except CountersignError as error:
                self._unsaved = renewed
                self.mark_outdated()
                log.warning("refreshed sign-in to MCP server %s was not stored: %s", self._name, error.cause)

    async def delete(self, sign_in: SignIn) -> None:
        """Delete the sign-in, because the authorization server has ended it. Raises CountersignError."""
        async with self._lock:
            await self._adopt(await self._dependencies.store.mark_revoked(self.key, sign_in))

    def drop_token(self) -> None:
        """Drop the token in this process only."""
        if self.sign_in is not None:
            self._hold(replace(self.sign_in, access_token="", expires_at=None))

    async def _adopt(self, sign_in: SignIn | None) -> None:
        if sign_in is None:
            # Another process has signed in or out.
            await self._read()
        else:
            self.stored, self._version = sign_in, sign_in.version
            self._announced = sign_in.version
            self._hold(sign_in)

    def _hold(self, sign_in: SignIn | None) -> None:
        self.sign_in = sign_in
        tokens = self._dependencies.secrets.tokens(self.key.server_id)
        if sign_in is None:
            tokens.clear()
        else:
            tokens.add_generation((sign_in.access_token, sign_in.refresh_token, sign_in.registration.client_secret))


class TokenProvider:
    """Token of one server.

    `cache` has its stored sign-in. `challenge` is the server's last one, `problem` the reason for a missing token.
    `rejected_bot`: the server has rejected the bot since the last connection. `is_signed_out`: the server rejected the
    token although a sign-in exists.
    """

    def __init__(self, config: ServerConfig, endpoint: HttpTransport, dependencies: OAuthDependencies) -> None:
        self.cache = SignInCache(config, dependencies)
        self.terms = self.cache.terms
        self.defined = config.sign_in is not None
        self.challenge: Challenge | None = None
        self.problem = ""
        self.rejected_bot = False
        self.is_signed_out = False
        self.config = config
        self._dependencies = dependencies
        self._url = endpoint.url
        self._refusal: TokenRequestRejected | None = None
        """Last rejection of a renewal, None after a success."""
        self._renewal_challenge: Challenge | None = None
        """Last challenge of the server that a renewal has to answer."""
        self._retry_at = -math.inf
        self._task: asyncio.Task[None] | None = None
        self._holder = uuid.uuid4().hex
        self._is_client_credentials = self.terms.kind is AuthenticationKind.CLIENT_CREDENTIALS

    async def token(self) -> str:
        """Return a token that is valid as far as this process knows; empty if there is none. Raises
        CountersignError if there may be one later.
        """
        sign_in, now = await self.cache.read_if_outdated(), self._dependencies.clock()
        if sign_in is None:
            return ""
        over = not sign_in.access_token or (sign_in.expires_at is not None and now >= sign_in.expires_at)
        if over and not self._can_renew(sign_in):
            return ""
        if over:
            await self._renew_token(sign_in.access_token)
        is_due = sign_in.renew_at is not None and now >= sign_in.renew_at and self._can_renew(sign_in)
        # In the background, because the token is still valid; not right after an attempt that has failed.
        if not over and is_due and self._dependencies.elapsed() >= self._retry_at:
            self._start(sign_in.access_token)
        return self.cache.access_token

    async def replace_token(self, refused: str, challenge: Challenge) -> str:
        """Return a token in place of a rejected or missing one; empty if there is none. Raises as `token`."""
        self.challenge = self._renewal_challenge = challenge
        self.cache.mark_outdated()
        sign_in = await self.cache.read_if_outdated()
        if self.cache.access_token in ("", refused) and self._can_renew(sign_in):
            await self._renew_token(refused)
        return "" if self.cache.access_token == refused else self.cache.access_token

    async def widen_token(self, refused: str, challenge: Challenge) -> str:
        """Return a token with more scope in place of `refused`. Only client credentials can request it without a
        user.
        """
        sign_in = self.cache.sign_in
        known = set((sign_in.scope if sign_in else "").split())
        if not self._is_client_credentials or set((challenge.scope or "").split()) <= known:
            self.challenge = challenge
            return ""
        return await self.replace_token(refused, challenge)

    def reset_rejection(self) -> None:
        """Reset the rejection at the start of a connection."""
        self.rejected_bot = self.is_signed_out = False

    def record_acceptance(self) -> None:
        """Record that the server accepts the bot."""
        self.rejected_bot = self.is_signed_out = False
        self.problem = ""

    def record_rejection(self, challenge: Challenge) -> str:
        """Record a final rejection. Return its reason for users; empty for a server without sign-in that asks for
        none.
        """
        self.challenge = challenge
        sign_in, name, refusal = self.cache.sign_in, self.config.name, self._refusal
        had = sign_in is not None and bool(sign_in.access_token or sign_in.signed_in_by)
        self.rejected_bot = True
        self.is_signed_out = self.defined or had
        if self._is_client_credentials and refusal is None:
            self.problem = self._not_taken
        elif self._is_client_credentials and refusal is not None:
            cause = gettext_lazy("Server {server}: {problem}", server=name, problem=refusal.cause)
            fix = gettext_lazy("check its client_id and scope, and set its secret again")
            self.problem = cause_and_fix(cause, fix)
        elif had:
            cause = gettext_lazy("The sign-in to {server} has ended.", server=name)
            fix = gettext_lazy("an admin signs in again with `/mcp connect {server}`", server=name)
            self.problem = cause_and_fix(cause, fix)
        elif self.defined or challenge.bearer:
            cause = gettext_lazy("Server {server} needs a sign-in.", server=name)
            fix = gettext_lazy("an admin signs in with `/mcp connect {server}`", server=name)
            self.problem = cause_and_fix(cause, fix)
        return self.problem

    def record_sign_in(self, version: int) -> None:
        """Record a new sign-in, and drop the server's earlier challenge."""
        self.cache.record_version(version)
        self.challenge = self._renewal_challenge = None

    def needs_wider_scope(self, challenge: Challenge) -> str:
        """Return the error text for a token that lacks scope."""
        name = self.config.name
        scope = visible(challenge.scope)[:_LONGEST_SCOPE] if challenge.scope else ""
        if self._is_client_credentials:
            cause = (
                gettext_lazy(
                    "Server {server} wants more rights ({scope}) than the bot is given.", server=name, scope=scope
                )
                if scope
                else gettext_lazy("Server {server} wants more rights than the bot is given.", server=name)
            )
            return cause_and_fix(cause, gettext_lazy("check what its client may do"))
        cause = (
            gettext_lazy(
                "Server {server} wants more rights ({scope}) for this than it was given.", server=name, scope=scope
            )
            if scope
            else gettext_lazy("Server {server} wants more rights for this than it was given.", server=name)
        )
        return cause_and_fix(cause, gettext_lazy("an admin signs in again with `/mcp connect {server}`", server=name))

    def unusable_text(self, error: CountersignError) -> str:
        """Return the error text for a token that cannot be had now."""
        lead = gettext_lazy("Server {server} needs a sign-in, which does not work now.", server=self.config.name)
        cause = join_lazy(lead, error.cause)
        return cause_and_fix(cause, error.fix).as_clause() if error.fix else cause

    @property
    def own_problem(self) -> str:
        """`problem` without text of a server."""
        return self._not_taken if self._is_client_credentials and self.problem else self.problem

    @property
    def _not_taken(self) -> str:
        cause = gettext_lazy(
            "Server {server} does not take the token that its authorization server gave the bot.",
            server=self.config.name,
        )
        return cause_and_fix(cause, gettext_lazy("check its scope, and what its client may do"))

    def _can_renew(self, sign_in: SignIn | None) -> bool:
        """Return True if another token can be had without a user."""
        return self._is_client_credentials or (sign_in is not None and bool(sign_in.refresh_token))

    async def _renew_token(self, old: str) -> None:
        """Replace the token `old` and wait for it. After a final rejection there is no token. Raises
        CountersignError if the refresh may succeed later.
        """
        if self.cache.access_token not in ("", old):
            return
        task = self._start(old)
        await asyncio.wait({task})
        if task.cancelled():
            raise ServerTrouble(gettext_lazy("The program is ending."), gettext_lazy("try again"))
        task.result()

    def _start(self, old: str) -> asyncio.Task[None]:
        """Start the refresh in a task of its own, because its result must be stored even if the caller is
        cancelled: the old refresh token is invalid then.
        """
        if self._task is None or self._task.done():
            self._task = self._dependencies.start(self._renew(old), f"sign-in:{self.config.name}")
        return self._task

    async def _renew(self, old: str) -> None:
        try:
            await self._renew_in_turn(old)
        except CountersignError as error:
            self._retry_at = self._dependencies.elapsed() + _RETRY_SECONDS
            log.info("sign-in to MCP server %s was not refreshed: %s", self.config.name, error.cause)
            raise

    async def _renew_in_turn(self, old: str) -> None:
        key = self.cache.key
        lease = f"sign-in:{key.server_id}:{key.person}"
        began = self._dependencies.elapsed()
        while not await self._dependencies.leases.acquire_or_renew(lease, self._holder, _LEASE_SECONDS):
            # Another process refreshes it.
            if self._is_done(await self.cache.read_sign_in(), old):
                return
            if self._dependencies.elapsed() - began > _WAIT_SECONDS:
                cause = gettext_lazy(
                    "The sign-in to {server} is being renewed elsewhere, and that takes too long.",
                    server=self.config.name,
                )
                raise ServerTrouble(cause, gettext_lazy("try again"))
            await self._dependencies.pause(_POLL_SECONDS)
        try:
            stored = await self.cache.read_sign_in()
            if not self._is_done(stored, old):
                await self._renew_alone(stored)
        finally:
            with suppress(DatabaseError):
                await self._dependencies.leases.release(lease, self._holder)

    def _is_done(self, sign_in: SignIn | None, old: str) -> bool:
        """Return True if the token was replaced already or cannot be replaced."""
        if sign_in is None:
            return not self._is_client_credentials
        fresh = sign_in.renew_at is None or self._dependencies.clock() < sign_in.renew_at
        return (sign_in.access_token not in ("", old) and fresh) or not self._can_renew(sign_in)

    async def _renew_alone(self, sign_in: SignIn | None) -> None:
        try:
            async with self._dependencies.client_for(self.config) as auth_server:
                renewed = await self._request_tokens(sign_in, auth_server)
        except TokenRequestRejected as refusal:
            self._refusal = refusal
            log.warning("MCP server %s: %s", self.config.name, self._dependencies.secrets(refusal.cause))
            if self._is_client_credentials:
                self.cache.drop_token()
            elif sign_in is not None:
                if refusal.is_unknown_client and not self.cache.terms.client_id:
                    # The next sign-in registers again.
                    registration = replace(sign_in.registration, client_secret="", redirect_uri="")
                    sign_in = replace(sign_in, registration=registration)
                await self.cache.delete(sign_in)
        else:
            self._refusal = None
            await self.cache.save(renewed)

    async def _request_tokens(self, sign_in: SignIn | None, auth_server: AuthServerClient) -> SignIn:
        """Return the sign-in with other tokens. Client credentials are requested at the discovered authorization
        server. Raises ServerTrouble.
        """
        from bot.mcp.oauth.client import (  # noqa: PLC0415 - it loads the MCP library
            Challenge,
            discover,
            manual_registration,
            request_tokens,
            wanted_scope,
        )

        now = self._dependencies.clock()
        if sign_in is not None and not self._is_client_credentials:
            form = {"grant_type": "refresh_token", "refresh_token": sign_in.refresh_token}
            return await request_tokens(sign_in, form, auth_server, now)
        if sign_in is None or self._renewal_challenge is not None:
            challenge, terms, before = self._renewal_challenge or Challenge(), self.cache.terms, self.cache.stored
            where = await discover(self._url, challenge, auth_server, terms.issuer)
            scope = wanted_scope(where, challenge, terms, sign_in.scope if sign_in else "", ())
            registration = manual_registration(where.metadata, terms, before.registration if before else None)
            place, version = endpoint_fingerprint(self.config), before.version if before else 0
            sign_in = SignIn(place, where.resource, registration, where.endpoints, scope, version=version)
        form = {"grant_type": "client_credentials", **({"scope": sign_in.scope} if sign_in.scope else {})}
        return await request_tokens(sign_in, form, auth_server, now)


class TokenProviders:
    """Token providers by server, one for all connections of a server."""

    def __init__(self, dependencies: OAuthDependencies) -> None:
        self.dependencies = dependencies
        # Weak, so that definitions that were only checked leave no entry.
        self._known: WeakValueDictionary[str, TokenProvider] = WeakValueDictionary()

    def provider_for(self, config: ServerConfig) -> TokenProvider | None:
        """Return the provider of a server; None for another type of authentication."""
        match config.transport:
            case StdioTransport():
                return None
            case HttpTransport(headers=headers) as endpoint:
                if any(name.lower() == "authorization" for name in headers):
                    return None
                known = self._known.get(config.id)
                if known is None or known.config != config:
                    known = TokenProvider(config, endpoint, self.dependencies)
                    self._known[config.id] = known
                return known

    async def close(self, limit: float) -> None:
        """Wait for running refreshes, at most `limit` seconds."""
        await self.dependencies.close(limit)


class AuthTransport(httpx2.AsyncBaseTransport):
    """Transport that adds the token to requests to `url`'s origin only."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, token_provider: TokenProvider, url: str) -> None:
        self._inner = inner
        self._token_provider = token_provider
        self._origin = _origin(httpx2.URL(url))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; send it again with another token if it was rejected, because then it had no effect.
        Raises ConnectError if the sign-in cannot be used now.
        """
        from bot.mcp.oauth.client import Challenge  # noqa: PLC0415 - it loads the MCP library

        if _origin(request.url) != self._origin:
            return await self._inner.handle_async_request(request)
        token_provider = self._token_provider
        try:
            token = await token_provider.token()
            response = await self._send(request, token)
            challenge = Challenge.from_response(response)
            other = ""
            if response.status_code == 401:
                other = await token_provider.replace_token(token, challenge)
            elif challenge.wider:
                other = await token_provider.widen_token(token, challenge)
            if other:
                await response.aclose()
                response = await self._send(request, other)
                challenge = Challenge.from_response(response)
        except CountersignError as error:
            current_request().refusal = token_provider.unusable_text(error)
            raise httpx2.ConnectError(gettext_lazy("there is no token for it now"), request=request) from error
        if response.status_code == 401:
            current_request().refusal = token_provider.record_rejection(challenge)
        elif challenge.wider:
            current_request().refusal = token_provider.needs_wider_scope(challenge)
        elif response.status_code < 300:
            token_provider.record_acceptance()
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()

    async def _send(self, request: httpx2.Request, token: str) -> httpx2.Response:
        if token:
            request.headers["authorization"] = f"Bearer {token}"
        return await self._inner.handle_async_request(request)


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    ports = {"http": 80, "https": 443}
    return url.scheme, url.host, url.port or ports.get(url.scheme)
