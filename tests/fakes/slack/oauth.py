"""OAuth of the fake Slack: consent of a user in a browser, exchange of codes, expiry and renewal of tokens."""

from __future__ import annotations

import base64
import itertools
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.fakes.slack.apps import Installation
from tests.fakes.slack.messages import Json
from tests.fakes.slack.people import Team, User
from tests.fakes.slack.refusals import Refused
from tests.fakes.slack.state import SlackState

CODE_SECONDS = 600
TOKEN_SECONDS = 43_200


@dataclass(frozen=True)
class Grant:
    """Consent of a user. With `organization` the app gets all its workspaces."""

    team: Team
    user: User
    scopes: frozenset[str]
    redirect_uri: str
    at: float
    organization: str = ""


@dataclass
class OAuth:
    """The app's consent page and token endpoint. `redirect_uris` are those registered with the app."""

    world: SlackState
    redirect_uris: set[str] = field(default_factory=set)
    grants: dict[str, Grant] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def consent(self, url: str, user: User, *, allow: bool = True, organization: str = "") -> str:
        """Agree as a user on the consent page of their workspace. Return the address of the redirect.

        Raises:
            AssertionError: Slack's page would show an error instead.
        """
        parts = urlsplit(url)
        asked = {name: values[0] for name, values in parse_qs(parts.query, strict_parsing=False).items()}
        assert f"{parts.scheme}://{parts.netloc}" == self.world.base
        assert parts.path == "/oauth/v2/authorize"
        assert asked["client_id"] == self.world.app.client_id, "invalid_client_id"
        assert asked["redirect_uri"] in self.redirect_uris, "bad_redirect_uri"
        scopes = frozenset(asked["scope"].split(","))
        assert scopes <= set(self.world.app.manifest.scopes), "invalid_scope"
        if not allow:
            return f"{asked['redirect_uri']}?{urlencode({'error': 'access_denied', 'state': asked['state']})}"
        code = f"code.{next(self._numbers)}"
        self.grants[code] = Grant(user.team, user, scopes, asked["redirect_uri"], self.world.clock.now(), organization)
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def access(self, authorization: str, given: Json) -> Json:
        """`oauth.v2.access`.

        Raises:
            Refused: with Slack's code.
        """
        app = self.world.app
        kind, _, encoded = authorization.partition(" ")
        secret = base64.b64decode(encoded).decode() if kind.lower() == "basic" else ""
        client_id, _, client_secret = secret.partition(":")
        if client_id != app.client_id:
            raise Refused("invalid_client_id")
        if client_secret != app.client_secret:
            raise Refused("bad_client_secret")
        if given.get("grant_type") == "refresh_token":
            return self._renew_tokens(str(given.get("refresh_token", "")))
        grant = self.grants.pop(str(given.get("code", "")), None)
        if grant is None or self.world.clock.now() > grant.at + CODE_SECONDS:
            raise Refused("invalid_code")
        if given.get("redirect_uri") != grant.redirect_uri:
            raise Refused("bad_redirect_uri")
        return self._install_app(grant)

    def _install_app(self, grant: Grant) -> Json:
        app = self.world.app
        teams = [grant.team]
        if grant.organization:
            teams = [each.team for each in self.world.workspaces.values() if each.team.enterprise == grant.organization]
        installations = [app.installations[team.id] for team in teams]
        token = installations[0].token if not (app.rotation or installations[0].revoked) else ""
        tokens = self._issue_tokens(token)
        for installation in installations:
            installation.organization = grant.organization
            installation.scopes = set(grant.scopes)
            installation.revoked = installation.access_revoked = False
            self._let_in(installation, installations[0].bot)
            self._put(installation, tokens)
        enterprise = grant.organization or grant.team.enterprise
        return tokens | {
            "scope": ",".join(sorted(grant.scopes)),
            "token_type": "bot",
            "bot_user_id": installations[0].bot.id,
            "app_id": app.id,
            "team": None if grant.organization else {"id": grant.team.id, "name": grant.team.name},
            "enterprise": {"id": enterprise, "name": f"{enterprise} Inc."} if enterprise else None,
            "authed_user": {"id": grant.user.id},
            "is_enterprise_install": bool(grant.organization),
        }

    def _let_in(self, installation: Installation, bot: User) -> None:
        """Of an organization the app has one bot user, which is in all of its workspaces."""
        workspace, before = self.world.workspaces[installation.team.id], installation.bot
        installation.bot = workspace.users[bot.id] = bot
        for channel in workspace.channels.values():
            channel.members = [bot.id if member == before.id else member for member in channel.members]

    def _renew_tokens(self, refresh_token: str) -> Json:
        known = [each for each in self.world.app.installations.values() if each.refresh_token == refresh_token]
        if not refresh_token or not known:
            raise Refused("invalid_refresh_token")
        if known[0].revoked:
            raise Refused("token_revoked")
        tokens = self._issue_tokens("")
        for installation in known:
            installation.earlier[installation.token] = installation.expires_at
            self._put(installation, tokens)
        return tokens | {"token_type": "bot", "scope": ",".join(sorted(known[0].scopes)), "app_id": self.world.app.id}

    def _issue_tokens(self, token: str) -> Json:
        number = next(self._numbers)
        if not self.world.app.rotation:
            return {"access_token": token or f"xoxb-{number}-issued"}
        return {
            "access_token": f"xoxe.xoxb-1-{number}-issued",
            "refresh_token": f"xoxe-1-{number}-refresh",
            "expires_in": TOKEN_SECONDS,
        }

    def _put(self, installation: Installation, tokens: Json) -> None:
        installation.token = tokens["access_token"]
        installation.refresh_token = tokens.get("refresh_token", "")
        expires_in = tokens.get("expires_in")
        installation.expires_at = None if expires_in is None else self.world.clock.now() + expires_in
