"""What the steps of `countersign setup slack` share: the token with its checks, and the forms that tokens have."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from bot.app.setup.options import SetupOptions
from bot.app.setup.steps import Step, form_error
from bot.app.setup.values import Progress, SetupValues
from bot.errors import CountersignError, SettingsError
from bot.platforms.slack.diagnostics import Scope, missing
from bot.platforms.slack.manifest import CREATE_URL
from bot.platforms.slack.setup import app_of
from bot.platforms.slack.web_api import Identity, SlackWebApiError, WebApi

DEFAULT_NAME = "Countersign"
SKIPPED = "skip"
SECRET = re.compile(r"[0-9a-f]{32}")
MEMBER_ID = "in Slack, your profile picture, Profile, the three dots, Copy member ID"


# -------------------- forms of tokens

_FIND_TOKEN = "copy the Bot User OAuth Token (xoxb-…) from the page OAuth & Permissions of the app"  # noqa: S105
_FIND_APP_TOKEN = "generate one under Basic Information, App-Level Tokens, with the scope connections:write"  # noqa: S105
_WHOLE = "[!-~]+"
"""A token without blanks, control characters and letters that no token has."""
_NO_BOT_TOKENS = (
    ("", "Nothing was entered.", _FIND_TOKEN),
    ("xapp-.*", "That is an app-level token. It is asked for in the next step.", _FIND_TOKEN),
    ("xoxp-.*", "That is the token of a person (User OAuth Token), not of the bot.", _FIND_TOKEN),
    (
        r"xoxe[.-].*",
        "That token expires: token rotation is on for the app.",
        "create the app anew from the manifest, without token rotation, which cannot be turned off",
    ),
    (SECRET.pattern, "That is a secret of the app (Signing Secret or Client Secret), not a token.", _FIND_TOKEN),
    ("(?!xoxb-).*", "That is not a bot token: those begin with xoxb-.", _FIND_TOKEN),
    (f"(?!{_WHOLE}$).*", "The token has characters that no token has.", "copy it again, whole"),
)
_NO_APP_TOKENS = (
    ("", "Nothing was entered.", _FIND_APP_TOKEN),
    ("xoxb-.*", "That is the bot token again. An app-level token begins with xapp-.", _FIND_APP_TOKEN),
    ("(?!xapp-).*", "That is not an app-level token: those begin with xapp-.", _FIND_APP_TOKEN),
    (f"(?!{_WHOLE}$).*", "The token has characters that no token has.", "copy it again, whole"),
)


def token_error(token: str) -> SettingsError | None:
    """Return what is wrong with a bot token by its looks, None if nothing is."""
    return form_error(token, _NO_BOT_TOKENS)


def app_token_error(token: str) -> SettingsError | None:
    """Return what is wrong with an app-level token by its looks, None if nothing is."""
    return form_error(token, _NO_APP_TOKENS)


@dataclass(frozen=True, slots=True)
class BotToken:
    """A token that Slack knows: whose it is, the app's id (empty if unknown), and the scopes that it lacks."""

    identity: Identity
    app: str = ""
    lacking: tuple[Scope, ...] = ()
    scopes_unsaid: bool = False

    @property
    def label(self) -> str:
        """The bot and its workspace, for people."""
        return f"@{self.identity.name} in {urlsplit(self.identity.url).hostname or self.identity.team}"


@dataclass
class SlackSetup:
    """What the steps share."""

    values: SetupValues
    progress: Progress
    options: SetupOptions
    checked: dict[str, BotToken] = field(default_factory=dict)

    @property
    def token(self) -> str:
        """The bot token; empty if there is none."""
        return self.values.get("SLACK_BOT_TOKEN")

    @property
    def address(self) -> str:
        """The public address for HTTP; empty for Socket Mode."""
        return self.options.http or self.progress.get("http")

    @property
    def without(self) -> frozenset[str]:
        """Features that the app is made without."""
        return self.options.without or self.values.settings().slack_without

    @property
    def name(self) -> str:
        """Name of the app."""
        return self.options.name or self.progress.get("name") or DEFAULT_NAME

    @asynccontextmanager
    async def api(self, token: str = "") -> AsyncIterator[WebApi]:
        """Open Slack with the bot token, or with another one."""
        async with WebApi(token or self.token, url=self.values.settings().slack_api_url) as api:
            yield api

    async def check(self, token: str) -> BotToken:
        """Check a bot token. Raises CountersignError with a cause and a fix."""
        if (error := token_error(token)) is not None:
            raise error
        async with self.api(token) as api:
            try:
                identity, app = await api.identity(), await app_of(api)
            except SlackWebApiError as refused:
                if refused.code != "invalid_auth":
                    raise
                raise SettingsError(
                    "Slack does not know the token.", "copy it again, whole; it begins with xoxb-"
                ) from refused
        if not identity.bot:
            raise SettingsError("The token is a person's, not a bot's.", "copy the Bot User OAuth Token (xoxb-…)")
        lacking = missing(identity.scopes, self.without) if identity.scopes else ()
        self.checked[token] = BotToken(identity, app, lacking, scopes_unsaid=not identity.scopes)
        return self.checked[token]

    def page(self, name: str) -> str:
        """Return the address of a page of the app, or of the list of apps while its id is unknown."""
        known = self.checked.get(self.token)
        return f"{CREATE_URL}/{known.app}/{name}" if known is not None and known.app else CREATE_URL

    async def require_token(self) -> BotToken:
        """Return the checked token. Raises SettingsError without one."""
        if not self.token:
            raise SettingsError("The bot token comes first.", "set SLACK_BOT_TOKEN")
        return self.checked.get(self.token) or await self.check(self.token)


class SlackStep(Step):
    """A step with what all share."""

    def __init__(self, setup: SlackSetup) -> None:
        self._setup = setup
        self._values = setup.values
        self._progress = setup.progress
        self._options = setup.options

    async def _has_token(self) -> bool:
        """Return True if the token works; the step of the token tells if not."""
        try:
            await self._setup.require_token()
        except CountersignError:
            return False
        return True
