"""Installation of the app in a browser (OAuth 2.0 at Slack, "Installing with OAuth").

    /slack/install          sends the browser to Slack, with a state and a secret in a cookie
    /slack/oauth_redirect   Slack sends it back with the state and a code, which becomes the bot's token

The state is signed with a key that is derived from the client secret, and with the browser's secret: no row is written
for it. It is valid for INSTALL_SECONDS. That it was used is a row, so that it is used once by all processes.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from time import time
from typing import Any
from urllib.parse import quote, urljoin

from slack_sdk.oauth import AuthorizeUrlGenerator

from bot.domain.conversations import Author
from bot.domain.installations import (
    INSTALL_SECONDS,
    Installation,
    InstallCancelled,
    InstallCompleted,
    InstallExpired,
    InstallFailed,
    InstallRejected,
    InstallResult,
    InstallStarted,
)
from bot.errors import CountersignError, DatabaseError, DeliveryFailed
from bot.i18n import _
from bot.platforms.slack.web_api import PLATFORM, SlackWebApiError, WebApi, text_in
from bot.platforms.slack.workspaces import AppCredentials, SlackWorkspaces, read_token, request_token
from bot.ports import InstallationStore

log = logging.getLogger(__name__)

INSTALL_PATH = "/slack/install"
REDIRECT_PATH = "/slack/oauth_redirect"
_KEY_PURPOSE = b"countersign: state of an installation"
_APP_ERRORS = frozenset({"bad_client_secret", "invalid_client_id", "bad_redirect_uri", "client_id_mismatch"})
"""Codes for an app that is set up differently at Slack."""


class InstallStates:
    """Signed states. `key` signs them; `clock` is in epoch seconds."""

    def __init__(self, client_secret: str, clock: Callable[[], float] = time) -> None:
        self._key = hmac.digest(client_secret.encode(), _KEY_PURPOSE, "sha256")
        self._clock = clock

    def issue(self, browser_secret: str) -> str:
        """Return a new state for the browser with this secret."""
        content = f"{secrets.token_urlsafe(18)}.{int(self._clock() + INSTALL_SECONDS)}"
        return f"{content}.{self._signature(content, browser_secret)}"

    def is_valid(self, state: str, browser_secret: str) -> bool:
        """Return True for a state of this browser that has not expired."""
        content, _dot, signature = state.rpartition(".")
        expires_at = content.rpartition(".")[2]
        if not (browser_secret and state.isascii() and expires_at.isdigit() and len(expires_at) < 13):
            return False
        is_signed = hmac.compare_digest(signature, self._signature(content, browser_secret))
        return is_signed and self._clock() < int(expires_at)

    def _signature(self, content: str, browser_secret: str) -> str:
        return hmac.new(self._key, f"{content}.{browser_secret}".encode(), hashlib.sha256).hexdigest()


class SlackInstaller:
    """Installs the app in the workspaces and organizations in `allowed`. `address` is the public address of the bot,
    `scopes` are those that the bot needs. `app_api` calls Slack without a token.
    """

    platform = "Slack"
    install_path = INSTALL_PATH
    redirect_path = REDIRECT_PATH

    def __init__(
        self,
        credentials: AppCredentials,
        store: InstallationStore,
        workspaces: SlackWorkspaces,
        app_api: WebApi,
        *,
        address: str,
        allowed: frozenset[str],
        scopes: Sequence[str],
        clock: Callable[[], float] = time,
    ) -> None:
        self._credentials = credentials
        self._store = store
        self._workspaces = workspaces
        self._app_api = app_api
        self._allowed = allowed
        self._clock = clock
        self._redirect_uri = f"{address}{REDIRECT_PATH}"
        self._states = InstallStates(credentials.client_secret, clock)
        self._addresses = AuthorizeUrlGenerator(
            client_id=quote(credentials.client_id, safe=""),
            redirect_uri=quote(self._redirect_uri, safe=""),
            scopes=scopes,
            authorization_url=urljoin(app_api.url, "/oauth/v2/authorize"),
        )

    def start(self, workspace: str) -> InstallStarted | InstallRejected:
        """Begin an installation; `workspace` preselects one by its id, and may be empty."""
        if not self._allowed:
            return InstallRejected(
                _("This bot serves no further workspaces."),
                _("Ask whoever operates it to name your workspace in SLACK_WORKSPACES."),
            )
        if workspace and workspace not in self._allowed:
            return _not_allowed("", workspace)
        if not workspace and len(self._allowed) == 1:
            (workspace,) = self._allowed
        browser_secret = secrets.token_urlsafe(32)
        # Slack preselects workspaces, not organizations.
        team = workspace if workspace.startswith("T") else None
        return InstallStarted(self._addresses.generate(self._states.issue(browser_secret), team), browser_secret)

    async def finish(self, parameters: Mapping[str, str], browser_secret: str) -> InstallResult:
        """Finish the installation with which Slack sent the browser back. Never raises."""
        state, code = parameters.get("state", ""), parameters.get("code", "")
        if not self._states.is_valid(state, browser_secret):
            return InstallExpired()
        if parameters.get("error") == "access_denied":
            return InstallCancelled()
        try:
            is_new = bool(code) and await self._store.use_state(state, INSTALL_SECONDS)
            if not is_new:
                return InstallExpired()
            grant = {"code": code, "redirect_uri": self._redirect_uri}
            return await self._install(await request_token(self._app_api, self._credentials, grant))
        except CountersignError as error:
            log.warning("installation in Slack failed: %s", error)
            return _failure(error)

    async def _install(self, answer: Mapping[str, Any]) -> InstallResult:
        installation = _read_installation(answer, self._clock())
        if installation is None:
            return InstallFailed(_("Slack gave no token for the bot."), _("Install the app again."))
        if await self._workspaces.is_own(installation.workspace):  # whose token may be the very same
            return InstallRejected(
                _("{workspace} is served already, with SLACK_BOT_TOKEN.", workspace=installation.name),
                _("Nothing is to be done there."),
            )
        if not installation.is_in(self._allowed):
            await self._revoke(installation)
            return _not_allowed(installation.name, installation.workspace)
        by = Author(PLATFORM, installation.installed_by.rpartition(":")[2], "")
        saved = await self._store.save(installation, by)
        log.info("the app was installed in %s by %s", saved.workspace_key, by.principal)
        if self._workspaces.installed is not None:
            await self._workspaces.installed.refresh()
        app, team = text_in(answer, "app_id"), text_in(answer, "team", "id")
        url = f"https://slack.com/app_redirect?app={quote(app)}&team={quote(team)}" if app and team else ""
        return InstallCompleted(saved, url)

    async def _revoke(self, installation: Installation) -> None:
        """Give a token back that the bot does not want."""
        api = WebApi(installation.token, url=self._app_api.url, shared=self._app_api)
        try:
            await api.edit("auth.revoke")
        except DeliveryFailed as error:
            log.warning("token of %s not revoked: %s", installation.workspace_key, error)
        log.warning("installation in %s refused: it is not in SLACK_WORKSPACES", installation.workspace_key)


def _read_installation(answer: Mapping[str, Any], now: float) -> Installation | None:
    """Return the installation of an answer of `oauth.v2.access`; None without a bot's token."""
    place = "enterprise" if answer.get("is_enterprise_install") else "team"
    token, workspace = read_token(answer, now), text_in(answer, place, "id")
    if token is None or not workspace:
        return None
    return Installation(
        PLATFORM,
        workspace,
        name=text_in(answer, place, "name") or workspace,
        organization=text_in(answer, "enterprise", "id"),
        token=token.token,
        refresh_token=token.refresh_token,
        expires_at=token.expires_at,
        bot_user=text_in(answer, "bot_user_id"),
        installed_by=f"{PLATFORM}:{text_in(answer, 'authed_user', 'id')}",
        installed_at=now,
    )


def _not_allowed(name: str, workspace: str) -> InstallRejected:
    where = f"{name} ({workspace})" if name else workspace
    return InstallRejected(
        _("This bot does not serve {workspace}.", workspace=where),
        _("Ask whoever operates it to add {id} to SLACK_WORKSPACES.", id=workspace),
    )


def _failure(error: CountersignError) -> InstallFailed:
    again = _("Install the app again in a moment.")
    match error:
        case DatabaseError():
            return InstallFailed(_("The bot cannot reach its own database, so nothing was stored."), again)
        case SlackWebApiError(code=code) if code in _APP_ERRORS:
            return InstallFailed(
                _("Slack does not accept this bot as the app."),
                _("Whoever operates it checks SLACK_CLIENT_ID, SLACK_CLIENT_SECRET and the app's redirect address."),
            )
        case SlackWebApiError():
            return InstallFailed(_("Slack rejected the installation."), again)
        case _:
            return InstallFailed(error.cause, again)
