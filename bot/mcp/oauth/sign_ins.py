"""Sign-ins of users for the bot: the port `SignIns`, its authorization URL and the check of the returned issuer.

`begin` and `complete` may run in different processes, because a pending sign-in is stored. The result belongs to
the bot and is used by all calls.

RFC 6749 4.1 with PKCE (RFC 7636), resource indicators (RFC 8707) and the issuer in the response
(RFC 9207).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.auth.utils import validate_authorization_response_iss
from mcp.shared.auth import OAuthMetadata

from bot.domain.characters import visible
from bot.domain.conversations import Author, ConversationKey
from bot.domain.servers import AuthenticationKind, HttpTransport, ServerConfig
from bot.domain.sign_ins import PendingSignIn, SignIn, SignInKey
from bot.errors import NotFound, SecretUnavailable, ServerTrouble
from bot.i18n import gettext_lazy
from bot.mcp.config.checks import endpoint_fingerprint
from bot.mcp.oauth.client import (
    GRANTS,
    Challenge,
    ClientIdentity,
    check_party,
    check_proof,
    discover,
    register,
    request_tokens,
    revoke,
    wanted_scope,
)
from bot.mcp.oauth.http import AuthServerClient
from bot.mcp.oauth.tokens import TokenProvider, TokenProviders
from bot.mcp.redaction import Redaction, Secret
from bot.mcp.toolbox import McpToolbox
from bot.ports import AuthorizationResponse, SignedIn, SignInInfo

_VERIFIER_BYTES = 64
"""Random bytes of a PKCE verifier, which has 86 characters then (RFC 7636 4.1)."""
_LONGEST_LINK = 3000
_OURS = frozenset(
    (
        "response_type", "client_id", "redirect_uri", "state", "nonce", "code_challenge", "code_challenge_method",
        "resource", "scope", "request", "request_uri",
    )
)  # fmt: skip
"""Query parameters that an authorization endpoint must not contain."""


def authorization_url(sign_in: SignIn, state: str, verifier: str, redirect_uri: str) -> str:
    """Return the authorization URL for the user. Raises ServerTrouble."""
    query = {
        "response_type": "code",
        "client_id": sign_in.registration.client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": code_challenge(verifier),
        "code_challenge_method": "S256",
        "resource": sign_in.resource,
    }
    if sign_in.scope:
        query["scope"] = sign_in.scope
    if "offline_access" in sign_in.scope.split():
        # OpenID Connect Core 11: without it the server need not give a refresh token.
        query["prompt"] = "consent"
    return with_parameters(str(sign_in.endpoints["authorization_endpoint"]), query)


def code_challenge(verifier: str) -> str:
    """Return the PKCE challenge of a verifier (RFC 7636 4.2)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


def with_parameters(endpoint: str, query: Mapping[str, str]) -> str:
    """Return the address of an authorization endpoint with the parameters of a request. Raises ServerTrouble."""
    endpoint = endpoint.partition("#")[0]
    given = {name for name, _ in parse_qsl(urlsplit(endpoint).query, keep_blank_values=True)}
    if given & _OURS:
        # The server uses one of two equal parameters, perhaps not ours (RFC 6749 3.1).
        raise ServerTrouble(
            gettext_lazy(
                "The authorization endpoint says itself what the bot has to say: {parameter}.",
                parameter=min(given & _OURS),
            ),
            gettext_lazy("ask the operator of the authorization server"),
        )
    link = f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"
    if len(link) > _LONGEST_LINK:
        raise ServerTrouble(
            gettext_lazy(
                "The address to sign in at would have {length} characters, more than a link in a chat takes.",
                length=len(link),
            ),
            gettext_lazy("ask its operator to want fewer scopes"),
        )
    return link


def check_issuer(endpoints: Mapping[str, Any] | OAuthMetadata, issuer: str | None) -> None:
    """Check that the response comes from the expected issuer (RFC 9207 2.4). Raises ServerTrouble."""
    try:
        validate_authorization_response_iss(issuer, OAuthMetadata.model_validate(endpoints))
    except OAuthFlowError as error:
        raise ServerTrouble(
            gettext_lazy(
                "The answer does not come from the authorization server that you were sent to, so it was not used."
            ),
            gettext_lazy("sign in again; if this happens again, the connection may be under attack"),
        ) from error


log = logging.getLogger(__name__)

_REVOKING_SECONDS = 5.0
_LONGEST_QUOTE = 200
_DENIED = "access_denied"
_PING = {"jsonrpc": "2.0", "id": "sign-in", "method": "ping"}


class OAuthSignIns:
    """Sign-in with OAuth authorization codes. `identity_of` returns the bot's identity for a server id."""

    def __init__(
        self, servers: McpToolbox, bearers: TokenProviders, identity_of: Callable[[str], ClientIdentity]
    ) -> None:
        self._servers = servers
        self._token_providers = bearers
        self._dependencies = bearers.dependencies
        self._identity_of = identity_of

    async def is_available(self, server: str) -> bool:
        """Return True if users can sign the bot in at this server."""
        config = self._servers.definition(server)
        token_provider = self._token_providers.provider_for(config)
        if token_provider is None or token_provider.terms.kind is not AuthenticationKind.OAUTH:
            return False
        if token_provider.defined or token_provider.cache.sign_in is not None:
            return True
        if token_provider.challenge is None:
            return False
        if token_provider.challenge.metadata or token_provider.challenge.wider:
            return True
        try:
            async with self._dependencies.client_for(config) as auth_server:
                await discover(_url(config), token_provider.challenge, auth_server, token_provider.terms.issuer)
        except ServerTrouble:
            return False
        return True

    def redirect_uri(self, server: str) -> str:
        """Return the redirect URI of a server."""
        return self._identity_of(server).redirect_uri

    async def begin(self, server: str, by: Author, conversation: ConversationKey, *, on_page: bool = False) -> str:
        """Start a sign-in. Return the authorization URL for this user."""
        config = self._servers.definition(server)
        token_provider = self._token_provider(config)
        key = SignInKey(server)
        before = await self._find_sign_in(key)
        async with self._dependencies.client_for(config) as auth_server:
            sign_in = await self._prepare(config, token_provider, before, auth_server)
        await self._save_pending(key, before, sign_in)
        verifier = secrets.token_urlsafe(_VERIFIER_BYTES)
        pending = PendingSignIn(key, by, conversation, sign_in, verifier, self.redirect_uri(server), on_page)
        try:
            state = await self._dependencies.store.begin(pending)
        except SecretUnavailable as error:
            raise ServerTrouble(error.cause, error.fix) from error
        return authorization_url(sign_in, state, verifier, pending.redirect_uri)

    async def complete(
        self, response: AuthorizationResponse, allowed: Callable[[SignedIn], Awaitable[None]]
    ) -> SignedIn:
        """Complete a sign-in with the authorization response."""
        pending = await self._dependencies.store.take(response.state)
        if pending is None:
            raise NotFound(
                gettext_lazy("This sign-in is not under way: it was finished, or was begun more than ten minutes ago."),
                gettext_lazy("ask for another link"),
            )
        sign_in, server = pending.sign_in, pending.key.server_id
        if response.callback != pending.redirect_uri.rpartition("/")[2]:
            raise ServerTrouble(
                gettext_lazy(
                    "The answer came to the address of another server than the one that you signed in to, so it was "
                    "not used."
                ),
                gettext_lazy(
                    "sign in again; if this happens again, one of the two servers may be after the account at the other"
                ),
            )
        signed_in_user = SignedIn(server, pending.by, pending.conversation, pending.on_page)
        await allowed(signed_in_user)
        config = self._servers.definition(server)
        if endpoint_fingerprint(config) != sign_in.place:
            raise ServerTrouble(
                gettext_lazy("Server {server} is somewhere else by now.", server=config.name),
                gettext_lazy("ask for another link"),
            )
        check_issuer(sign_in.endpoints, response.issuer)
        if response.error or not response.code:
            raise _denial(config, response.error)
        proof = {"redirect_uri": pending.redirect_uri, "code_verifier": pending.verifier}
        form = {"grant_type": "authorization_code", "code": response.code, **proof}
        async with self._dependencies.client_for(config) as auth_server:
            try:
                signed_in = await request_tokens(sign_in, form, auth_server, self._dependencies.clock())
            except ServerTrouble as trouble:
                # The text of a rejection may repeat secrets of the request.
                known = (response.code, pending.verifier, sign_in.registration.client_secret)
                redact = Redaction(map(Secret, known))
                raise ServerTrouble(redact(trouble.cause), trouble.fix) from trouble
        stored = await self._dependencies.store.signed_in(pending.key, signed_in, pending.by)
        token_provider = self._token_provider(config)
        token_provider.record_sign_in(stored.version)
        await self._servers.connect(server)
        return signed_in_user

    async def get(self, server: str) -> SignInInfo | None:
        """Return the stored sign-in, or None."""
        stored = await self._find_sign_in(SignInKey(server))
        with suppress(NotFound):
            place = endpoint_fingerprint(self._servers.definition(server))
            if stored is not None and stored.access_token and stored.place == place:
                return SignInInfo(stored.signed_in_by, stored.signed_in_at, stored.registration.issuer)
        return None

    async def sign_out(self, server: str, by: Author) -> bool:
        """Sign out."""
        key = SignInKey(server)
        stored = await self._find_sign_in(key)
        if not await self._dependencies.store.forget(key, by):
            return False
        with suppress(NotFound):
            config = self._servers.definition(server)
            if stored is not None:
                await self._revoke(config, stored)
            if (token_provider := self._token_providers.provider_for(config)) is not None:
                token_provider.cache.mark_outdated()
        return stored is not None and bool(stored.access_token)

    async def _save_pending(self, key: SignInKey, before: SignIn | None, sign_in: SignIn) -> None:
        """Store a started sign-in, so that the next attempt need not register again. Valid tokens are kept."""
        if before is not None and before.place == sign_in.place:
            if before.access_token or before.registration == sign_in.registration:
                return
            sign_in = replace(before, registration=sign_in.registration)
        elif before is not None:
            sign_in = replace(sign_in, version=before.version)
        with suppress(SecretUnavailable):
            await self._dependencies.store.save(key, sign_in)

    async def _prepare(
        self, config: ServerConfig, token_provider: TokenProvider, before: SignIn | None, auth_server: AuthServerClient
    ) -> SignIn:
        """Return the sign-in up to the user's part. `before` is the stored one."""
        challenge = token_provider.challenge
        if challenge is None:
            # The server's answer without a token.
            accepted = {"accept": "application/json, text/event-stream"}
            answer = await auth_server.send(httpx2.Request("POST", _url(config), json=_PING, headers=accepted))
            challenge = Challenge.from_response(answer) if answer.status_code in (401, 403) else Challenge()
        discovered = await discover(_url(config), challenge, auth_server, token_provider.terms.issuer)
        check_proof(discovered.metadata)
        check_party(discovered.metadata, registered_by_hand=bool(token_provider.terms.client_id))
        granted = before.scope if before is not None and before.access_token else ""
        scope = wanted_scope(discovered, challenge, token_provider.terms, granted, GRANTS)
        # A client id of an admin stays valid at a new address; a dynamic registration does not.
        same = before is not None and (
            bool(token_provider.terms.client_id) or before.place == endpoint_fingerprint(config)
        )
        known = before.registration if before is not None and same else None
        registration = await register(
            discovered.metadata,
            auth_server,
            identity=self._identity_of(config.id),
            terms=token_provider.terms,
            known=known,
            scope=scope,
            now=self._dependencies.clock(),
        )
        return SignIn(endpoint_fingerprint(config), discovered.resource, registration, discovered.endpoints, scope)

    def _token_provider(self, config: ServerConfig) -> TokenProvider:
        token_provider = self._token_providers.provider_for(config)
        if token_provider is None or token_provider.terms.kind is not AuthenticationKind.OAUTH:
            raise ServerTrouble(
                gettext_lazy("No user signs in to server {server} in a browser.", server=config.name),
                gettext_lazy("look at how it is authenticated"),
            )
        return token_provider

    async def _find_sign_in(self, key: SignInKey) -> SignIn | None:
        try:
            return await self._dependencies.store.find(key)
        except SecretUnavailable as error:
            log.info("stored sign-in to MCP server %s cannot be read: %s", key.server_id, error)
            return None

    async def _revoke(self, config: ServerConfig, sign_in: SignIn) -> None:
        try:
            async with asyncio.timeout(_REVOKING_SECONDS), self._dependencies.client_for(config) as auth_server:
                await revoke(sign_in, auth_server)
        except (ServerTrouble, TimeoutError) as error:
            log.info("tokens for MCP server %s were not revoked: %s", config.name, error)


def _url(config: ServerConfig) -> str:
    assert isinstance(config.transport, HttpTransport)
    return config.transport.url


def _denial(config: ServerConfig, error: str) -> ServerTrouble:
    if error == _DENIED:
        return ServerTrouble(
            gettext_lazy("The bot was not let in to {server}: it was denied.", server=config.name),
            gettext_lazy("ask for another link"),
        )
    reason = visible(error)[:_LONGEST_QUOTE] or gettext_lazy("no code came back")
    return ServerTrouble(
        gettext_lazy("The bot was not let in to {server}: {reason}.", server=config.name, reason=reason),
        gettext_lazy("ask for another link"),
    )
