"""The workspaces that the app serves, each with a client of the Web API and its users, and the renewal and
revocation of their tokens.

One of them is that of SLACK_BOT_TOKEN, the others are those of installations. Everything that calls Slack looks up the
workspace of its conversation or event here. An installation in an organization (Enterprise Grid) has one token for all
of its workspaces; each of them is a workspace of its own here.

Rows of installations are polled: another process may have installed the app, removed it, or renewed a token.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from time import monotonic, time
from typing import Any, TypeVar
from uuid import uuid4

from bot.chat.background_tasks import retry_until_available
from bot.domain.conversations import ConversationKey
from bot.domain.installations import Installation
from bot.errors import CountersignError, DatabaseError, DatabaseUnavailable, DeliveryFailed
from bot.i18n import gettext_lazy
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import LOCKED_OUT, NO_TEAM_ACCESS, PLATFORM, SlackWebApiError, WebApi, map_errors
from bot.ports import InstallationStore, Leases

log = logging.getLogger(__name__)

T = TypeVar("T")

POLL_SECONDS = 2.0
RENEW_AGAIN_SECONDS = 60.0
"""Seconds until a token is renewed again for which that failed."""
LIST_AGAIN_SECONDS = 60.0
"""Seconds until the workspaces of an organization are listed again for one that was not among them."""
NOT_INSTALLED = gettext_lazy("The app is not installed in that Slack workspace.")
NOT_USABLE = gettext_lazy("The app cannot be used in that Slack workspace now.")
SEE_DOCTOR = gettext_lazy("run `countersign doctor`, which says why")
UNAVAILABLE_SECONDS = 60.0
RENEWAL_MINUTES = 120
"""A token is renewed this long before it expires."""
LEASE_SECONDS = 30.0
INSTALL_AGAIN = gettext_lazy("install the app again at /slack/install")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SlackWorkspace:
    """One workspace. `installation` is the id of its installation, empty for that of SLACK_BOT_TOKEN."""

    api: WebApi
    people: UserDirectory
    installation: str = ""


OpenWorkspace = Callable[[Installation, str, Callable[[str], Awaitable[str]] | None], SlackWorkspace]
"""Returns a workspace of an installation by its id. The last argument returns another token in place of a rejected
one, or the same; None for no other one.
"""


@dataclass(slots=True)
class _Installed:
    """An installation in use, and its workspaces by id."""

    installation: Installation
    workspaces: dict[str, SlackWorkspace] = field(default_factory=dict)
    listed_at: float = float("-inf")
    removed: set[str] = field(default_factory=set)
    """Ids of the workspaces from which an organization has taken the app."""


class InstalledWorkspaces:
    """Workspaces of installations. Only those in `allowed` are served, by the id of the workspace or of its
    organization. `open_workspace` builds one without a request.
    """

    def __init__(self, open_workspace: OpenWorkspace, allowed: frozenset[str]) -> None:
        self.allowed = allowed
        self._open_workspace = open_workspace
        self._attached = asyncio.Event()
        self._store: InstallationStore | None = None
        self._renewal: TokenRenewal | None = None
        self._installed: dict[str, _Installed] = {}
        self._versions: Mapping[str, int] = {}
        self._removed: set[str] = set()
        self._problems: dict[str, str] = {}
        self._renew_after: dict[str, float] = {}
        self._refreshing = asyncio.Lock()
        self.changed = asyncio.Event()
        """Set after a change of the workspaces; its reader clears it."""

    def attach(self, store: InstallationStore, renewal: TokenRenewal) -> None:
        """Read installations from now on. Lookups wait for this."""
        self._store, self._renewal = store, renewal
        self._attached.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the rows while the block runs."""
        following = asyncio.create_task(self._follow(), name="slack: installations")
        try:
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    def failing(self) -> Sequence[str]:
        """Return the ids of installations with tokens that cannot be read or renewed."""
        return sorted(self._problems)

    def known(self) -> Sequence[SlackWorkspace]:
        """Return the workspaces in use."""
        return [workspace for installed in self._installed.values() for workspace in installed.workspaces.values()]

    async def find(self, team: str, organization: str = "") -> SlackWorkspace | None:
        """Return a workspace by its id; `organization` is that of an event that Slack sent for an organization-wide
        installation. Raises DatabaseError.
        """
        await self._attached.wait()
        if (workspace := self.find_known(team, organization)) is None:
            await self.refresh()
            for installed in list(self._installed.values()):
                is_old = monotonic() - installed.listed_at > LIST_AGAIN_SECONDS
                if installed.installation.is_organization and is_old:
                    await self._list_workspaces(installed)
            workspace = self.find_known(team, organization)
        return workspace

    def is_removed(self, team: str) -> bool:
        """Return True if the app is certainly not installed in a workspace: its row says so, or there is none, and no
        organization may have it.
        """
        organizations = [installed for installed in self._installed.values() if installed.installation.is_organization]
        if any(team not in installed.removed for installed in organizations):
            return False
        return team not in self._versions or team in self._removed

    async def refresh(self) -> None:
        """Apply changed rows now. Raises DatabaseError."""
        assert self._store is not None
        async with self._refreshing:
            versions = await self._store.versions(PLATFORM)
            for workspace, version in versions.items():
                installed = self._installed.get(workspace)
                is_new = installed is None and self._versions.get(workspace) != version
                is_changed = installed is not None and installed.installation.version != version
                if is_new or is_changed:
                    await self._read(workspace)
            self._versions = versions

    async def remove(self, installation_id: str) -> None:
        """Delete the tokens of an installation after the removal of the app. Raises DatabaseError."""
        assert self._store is not None
        installed = self._installed.get(installation_id)
        if installed is not None and await self._store.remove(installed.installation):
            log.warning("the app was removed from Slack workspace %s", _label(installed.installation))
        await self.refresh()

    def remove_from_organization(self, workspace: SlackWorkspace) -> None:
        """Stop serving one workspace of an organization, which has taken the app from it."""
        installed = self._installed.get(workspace.installation)
        teams = installed.workspaces.items() if installed is not None else ()
        team = next((team for team, other in teams if other is workspace), None)
        if installed is None or team is None:
            return
        del installed.workspaces[team]
        installed.removed.add(team)
        log.warning("the app was removed from Slack workspace %s of %s", team, _label(installed.installation))
        self.changed.set()

    def find_known(self, team: str, organization: str = "") -> SlackWorkspace | None:
        """Return a workspace by its id without reading rows: that of its own installation, or of its organization's."""
        if (own := self._installed.get(team)) is not None and team in own.workspaces:
            return own.workspaces[team]
        if (whole := self._installed.get(organization)) is not None:
            return self._workspace_of(whole, team)
        others = (installed.workspaces for installed in self._installed.values())
        return next((workspaces[team] for workspaces in others if team in workspaces), None)

    def _workspace_of(self, installed: _Installed, team: str) -> SlackWorkspace:
        if team not in installed.workspaces:
            workspace_id = installed.installation.workspace

            async def another_token(rejected: str) -> str:
                return await self._another_token(workspace_id, rejected)

            installed.workspaces[team] = self._open_workspace(installed.installation, team, another_token)
            installed.removed.discard(team)
            self.changed.set()
        return installed.workspaces[team]

    async def _read(self, workspace: str) -> None:
        """Apply the row of a workspace. A row that cannot be decrypted is logged once, and leaves it as it is."""
        assert self._store is not None
        try:
            installation = await self._store.find(PLATFORM, workspace)
        except DatabaseError:
            raise
        except CountersignError as error:
            self._note_problem(workspace, str(error))
            return
        if installation is None or installation.removed_at is not None:
            self._removed.add(workspace)
            self._problems.pop(workspace, None)
            if self._installed.pop(workspace, None) is not None:
                self.changed.set()
            return
        self._removed.discard(workspace)
        if not installation.is_in(self.allowed):
            self._problems.pop(workspace, None)
            log.error("Slack workspace %s cannot be served: it is not in SLACK_WORKSPACES", workspace)
            return
        self._problems.pop(workspace, None)
        await self._apply(await self._renewed(installation))

    async def _apply(self, installation: Installation) -> None:
        installed = self._installed.get(installation.workspace)
        if installed is None:
            installed = self._installed[installation.workspace] = _Installed(installation)
            log.info("serving Slack workspace %s", _label(installation))
            if not installation.is_organization:
                self._workspace_of(installed, installation.workspace)
        installed.installation = installation
        for workspace in installed.workspaces.values():
            workspace.api.replace_token(installation.token)
        if installation.is_organization:
            await self._list_workspaces(installed)

    async def _list_workspaces(self, installed: _Installed) -> None:
        """Add the workspaces of an organization that Slack lists. Without an answer they are added by their events."""
        installed.listed_at = monotonic()
        api = self._open_workspace(installed.installation, "", None).api
        try:
            teams = await api.teams()
        except DeliveryFailed as error:
            log.warning("workspaces of %s not listed: %s", _label(installed.installation), error)
            return
        for team in teams:
            self._workspace_of(installed, team)

    async def _renewed(self, installation: Installation) -> Installation:
        """Return the installation, with a renewed token if it expires soon."""
        is_early = monotonic() < self._renew_after.get(installation.workspace, 0.0)
        if not needs_renewal(installation) or is_early:
            return installation
        assert self._renewal is not None
        try:
            renewed = await self._renewal.renew(installation)
        except CountersignError as error:
            self._renew_after[installation.workspace] = monotonic() + RENEW_AGAIN_SECONDS
            self._note_problem(installation.workspace, f"its token was not renewed: {error}")
            return installation
        self._problems.pop(installation.workspace, None)
        return renewed

    async def _another_token(self, installation_id: str, rejected: str) -> str:
        """Return another token in place of one that Slack rejects, or the same."""
        try:
            await self.refresh()
        except DatabaseError as error:
            log.debug("installations of the Slack app not read: %s", error)
        installed = self._installed.get(installation_id)
        if installed is None:
            return rejected
        if installed.installation.token == rejected:
            await self._renew(installed)
        return installed.installation.token

    async def _renew(self, installed: _Installed) -> None:
        renewed = await self._renewed(installed.installation)
        if renewed != installed.installation:
            await self._apply(renewed)

    async def _follow(self) -> None:
        await self._attached.wait()
        while True:
            try:
                await self.refresh()
                for installed in list(self._installed.values()):
                    await self._renew(installed)
            except CountersignError as error:
                log.debug("installations of the Slack app not read: %s", error)
            except Exception:
                log.exception("installations of the Slack app not read")
            await asyncio.sleep(POLL_SECONDS)

    def _note_problem(self, workspace: str, problem: str) -> None:
        if self._problems.get(workspace) != problem:
            self._problems[workspace] = problem
            log.error("Slack workspace %s cannot be served: %s", workspace, problem)


class SlackWorkspaces:
    """All workspaces of the app. `own` is that of SLACK_BOT_TOKEN; without `installed` it is the only one."""

    def __init__(self, own: SlackWorkspace | None, installed: InstalledWorkspaces | None = None) -> None:
        self.own = own
        self.installed = installed

    def known(self) -> Sequence[SlackWorkspace]:
        """Return the workspaces in use."""
        own = [] if self.own is None else [self.own]
        return [*own, *(self.installed.known() if self.installed is not None else ())]

    async def find(self, team: str, organization: str = "") -> SlackWorkspace | None:
        """Return a workspace by its id, None if the app does not serve it. Raises DeliveryFailed and DatabaseError."""
        if self.installed is None:
            return self.own
        if (workspace := self.installed.find_known(team, organization)) is not None:
            return workspace
        if await self.is_own(team):
            return self.own
        return await self.installed.find(team, organization)

    async def of(self, conversation: ConversationKey) -> SlackWorkspace:
        """Return the workspace of a conversation; that of SLACK_BOT_TOKEN if it names none. Raises DeliveryFailed,
        permanent if the app is not installed there.
        """
        if not conversation.workspace and self.own is not None:
            return self.own
        try:
            workspace = await self.find(conversation.workspace)
        except DatabaseError as error:
            raise DeliveryFailed(NOT_USABLE, error.fix, retry_after=UNAVAILABLE_SECONDS) from error
        if workspace is None:
            if self.installed is None or self.installed.is_removed(conversation.workspace):
                raise DeliveryFailed(NOT_INSTALLED, gettext_lazy("install it at /slack/install"), permanent=True)
            raise DeliveryFailed(NOT_USABLE, SEE_DOCTOR, retry_after=UNAVAILABLE_SECONDS)
        return workspace

    async def is_own(self, team: str) -> bool:
        """Return True for the workspace of SLACK_BOT_TOKEN. Raises DeliveryFailed if that is unclear for now."""
        try:
            return self.own is not None and (await self.own.api.identity()).team == team
        except DeliveryFailed as error:
            # A revoked token does not stand in the way of the other workspaces.
            if error.permanent:
                return False
            raise


def _label(installation: Installation) -> str:
    return f"{installation.name} ({installation.workspace})" if installation.name else installation.workspace


# -------------------- token renewal
# Slack gives tokens that expire after twelve hours to an app with token rotation. One process at a time uses the
# refresh token of an installation.


async def retry_until_stored(call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a call to the database, repeated while that is unavailable."""

    async def attempt() -> T:
        try:
            return await call()
        except DatabaseUnavailable as error:
            raise DeliveryFailed(error.cause, error.fix) from error

    return await retry_until_available(attempt, "the database")


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
            # The earlier refresh token is used up, so the new one must reach the database.
            return await retry_until_stored(lambda: self._store.renew(renewed)) or renewed
        finally:
            await self._leases.release(lease, self._holder)

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
    """A token of the bot, and its refresh token. `expires_at` is in epoch seconds, None for never."""

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


# -------------------- token revocation
# An event only triggers a check of the token, because the app may have been installed again at the same moment.


REVOCATION_EVENTS = frozenset({"app_uninstalled", "tokens_revoked"})


class RevocationWatcher:
    """Watches for a revoked token or a removed app in one workspace. `fix` says what to do then, instead of Slack's
    general advice.
    """

    def __init__(self, api: WebApi, fix: str = "") -> None:
        self._api = api
        self._fix = fix
        self._suspected = asyncio.Event()

    def note_error(self, error: Exception) -> None:
        """Check the token after an error, because Slack may not have reported its revocation."""
        if isinstance(error, SlackWebApiError) and error.code in (*LOCKED_OUT, NO_TEAM_ACCESS):
            self.suspect()

    def suspect(self) -> None:
        """Check the token."""
        self._suspected.set()

    async def wait_revoked(self) -> None:
        """Wait until the token is revoked. Never returns; raises DeliveryFailed then."""
        while True:
            await self._suspected.wait()
            self._suspected.clear()
            try:
                await retry_until_available(self._api.check_access, "Slack")
            except DeliveryFailed as failure:
                raise DeliveryFailed(
                    gettext_lazy(
                        "The app was removed from Slack, or its token was revoked. {cause}", cause=failure.cause
                    ),
                    self._fix or failure.fix,
                    permanent=True,
                ) from failure
            log.warning("Slack says that tokens of the app were revoked; the bot's own is still good")
