"""Renewal of tokens that expire: one process at a time uses the refresh token of an installation.

Slack gives such tokens to an app with token rotation; they live for twelve hours.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import time
from typing import Any
from uuid import uuid4

from bot.chat.background_tasks import retry_until_available
from bot.domain.installations import Installation
from bot.errors import DatabaseUnavailable, DeliveryFailed
from bot.i18n import gettext_lazy
from bot.platforms.slack.web_api import SlackWebApiError, WebApi, map_errors
from bot.ports import InstallationStore, Leases

log = logging.getLogger(__name__)

RENEWAL_MINUTES = 120
"""A token is renewed this long before it expires."""
LEASE_SECONDS = 30.0
INSTALL_AGAIN = gettext_lazy("install the app again at /slack/install")


@dataclass(frozen=True, slots=True)
class AppCredentials:
    """The app's client id and secret at Slack."""

    client_id: str
    client_secret: str = field(repr=False)


def needs_renewal(installation: Installation) -> bool:
    """Return True if the token expires soon and can be renewed."""
    expires_at = installation.expires_at
    return bool(installation.refresh_token) and expires_at is not None and expires_at < time() + RENEWAL_MINUTES * 60


class TokenRenewal:
    """Renews tokens at Slack and saves them. `api` needs no token."""

    def __init__(self, api: WebApi, credentials: AppCredentials, store: InstallationStore, leases: Leases) -> None:
        self._api = api
        self._credentials = credentials
        self._store = store
        self._leases = leases
        self._holder = f"slack tokens {uuid4().hex}"

    async def renew(self, installation: Installation) -> Installation:
        """Return the installation with a renewed token; unchanged while another process renews it. Raises
        DeliveryFailed, permanent if Slack rejects the refresh token, and DatabaseError.
        """
        lease = f"slack-token:{installation.workspace}"
        if not await self._leases.acquire_or_renew(lease, self._holder, LEASE_SECONDS):
            return installation
        try:
            stored = await self._store.find(installation.platform, installation.workspace)
            if stored is None or stored.version != installation.version:
                return stored or installation
            renewed = await self._request(stored)
            # The earlier refresh token is used up: what Slack gave must not be lost with the database.
            saved = await retry_until_available(lambda: self._save(renewed), "the database")
            return saved or renewed
        finally:
            await self._leases.release(lease, self._holder)

    async def _save(self, renewed: Installation) -> Installation | None:
        try:
            return await self._store.renew(renewed)
        except DatabaseUnavailable as error:
            raise DeliveryFailed(error.cause, error.fix) from error

    async def _request(self, installation: Installation) -> Installation:
        """Return the installation with a token that Slack gives for its refresh token. Raises DeliveryFailed."""
        grant = {"grant_type": "refresh_token", "refresh_token": installation.refresh_token}
        try:
            answer = await request_token(self._api, self._credentials, grant)
        except SlackWebApiError as error:
            if error.code == "ratelimited":
                raise
            raise DeliveryFailed(
                gettext_lazy("Slack does not renew the token."), INSTALL_AGAIN, permanent=True, details=error.details
            ) from error
        token = read_token(answer, time())
        if token is None:
            raise DeliveryFailed(gettext_lazy("Slack gave no token for the bot."), INSTALL_AGAIN)
        log.info("token of %s renewed", installation.workspace_key)
        return replace(installation, token=token.token, refresh_token=token.refresh_token, expires_at=token.expires_at)


@dataclass(frozen=True, slots=True)
class BotToken:
    """A token of the bot, and what renews it. `expires_at` is in epoch seconds, None for never."""

    token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    expires_at: float | None


async def request_token(api: WebApi, credentials: AppCredentials, grant: Mapping[str, str]) -> Mapping[str, Any]:
    """Return Slack's answer to `oauth.v2.access`. slack_sdk's method for it, which its TokenRotator uses too, needs a
    class that aiohttp is about to drop. Raises DeliveryFailed.
    """
    await api.pacing.take("oauth.v2.access")
    client = base64.b64encode(f"{credentials.client_id}:{credentials.client_secret}".encode()).decode("ascii")
    with map_errors("oauth.v2.access"):
        answer = await api.client(patient=False).api_call(
            "oauth.v2.access", data=dict(grant), headers={"Authorization": f"Basic {client}"}
        )
    return answer.data if isinstance(answer.data, dict) else {}


def read_token(answer: Mapping[str, Any], now: float) -> BotToken | None:
    """Return the token in an answer of `oauth.v2.access`; None if it has none of a bot."""
    token, expires_in = str(answer.get("access_token") or ""), answer.get("expires_in")
    if not token or answer.get("token_type") != "bot":
        return None
    expires_at = now + expires_in if isinstance(expires_in, int) else None
    return BotToken(token, str(answer.get("refresh_token") or ""), expires_at)
