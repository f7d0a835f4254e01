"""Renewal of tokens that expire: one process at a time uses the refresh token of an installation.

Slack gives such tokens to an app with token rotation; they live for twelve hours.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from time import time
from uuid import uuid4

from slack_sdk.errors import SlackApiError, SlackTokenRotationError
from slack_sdk.oauth.installation_store import Bot
from slack_sdk.oauth.token_rotation.async_rotator import AsyncTokenRotator

from bot.chat.background_tasks import retry_until_available
from bot.domain.installations import Installation
from bot.errors import DatabaseUnavailable, DeliveryFailed
from bot.platforms.slack.web_api import WebApi, map_errors
from bot.ports import InstallationStore, Leases

log = logging.getLogger(__name__)

RENEWAL_MINUTES = 120
"""A token is renewed this long before it expires."""
LEASE_SECONDS = 30.0
INSTALL_AGAIN = "install the app again at /slack/install"


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
        """Return the installation with a token that Slack gives for its refresh token."""
        rotator = AsyncTokenRotator(
            client_id=self._credentials.client_id,
            client_secret=self._credentials.client_secret,
            client=self._api.client(patient=False),
        )
        bot = Bot(
            bot_token=installation.token,
            bot_id="",
            bot_user_id=installation.bot_user,
            bot_refresh_token=installation.refresh_token,
            bot_token_expires_at=int(installation.expires_at or 0),
            installed_at=installation.installed_at,
        )
        with map_errors("oauth.v2.access"):
            try:
                renewed = await rotator.perform_bot_token_rotation(bot=bot, minutes_before_expiration=RENEWAL_MINUTES)
            except SlackTokenRotationError as error:
                rejection = error.api_error
                if isinstance(rejection, SlackApiError) and rejection.response.status_code == 200:
                    raise DeliveryFailed(
                        "Slack does not renew the token.",
                        INSTALL_AGAIN,
                        permanent=True,
                        details=f"oauth.v2.access: {str(rejection.response.get('error'))[:80]}",
                    ) from error
                raise rejection from error
        if renewed is None:
            return installation
        log.info("token of %s renewed", installation.workspace_key)
        return replace(
            installation,
            token=renewed.bot_token,
            refresh_token=renewed.bot_refresh_token or "",
            expires_at=float(renewed.bot_token_expires_at or 0) or None,
        )
