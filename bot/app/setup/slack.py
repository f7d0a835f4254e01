"""The steps of `countersign setup slack`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from urllib.parse import urlsplit

from bot.app.setup.browser import can_open_browser, open_browser
from bot.app.setup.options import SetupOptions
from bot.app.setup.steps import OPEN, Step, StepState, StepStatus, done, form_error, wrong
from bot.app.setup.values import Progress, SetupValues, env_file
from bot.app.slack import serves_installations
from bot.domain.locales import Locale, use_locale
from bot.errors import CountersignError, DeliveryFailed, NotFound, SettingsError
from bot.platforms.console.prompts import SetupTerminal
from bot.platforms.slack.diagnostics import Scope, missing
from bot.platforms.slack.listener import socket_url
from bot.platforms.slack.manifest import CREATE_URL, FEATURES, build_manifest, creation_url, manifest_text
from bot.platforms.slack.setup import (
    Channel,
    User,
    app_of,
    find_channel,
    find_group,
    find_users,
    joined_channels,
    post_first_message,
    try_join,
)
from bot.platforms.slack.web_api import Identity, SlackWebApiError, WebApi

DEFAULT_NAME = "Countersign"
LOOK_SECONDS = 2.0
"""Seconds between two looks for a membership; Slack allows fifty a minute."""
_SECRET = re.compile(r"[0-9a-f]{32}")
_MEMBER_ID = "in Slack, your profile picture, Profile, the three dots, Copy member ID"


# -------------------- kinds of tokens


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
    (_SECRET.pattern, "That is a secret of the app (Signing Secret or Client Secret), not a token.", _FIND_TOKEN),
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


# -------------------- what the steps share


@dataclass(frozen=True, slots=True)
class BotToken:
    """A token that Slack knows: whose it is, and the scopes that it lacks."""

    identity: Identity
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
                identity = await api.identity()
            except SlackWebApiError as refused:
                if refused.code != "invalid_auth":
                    raise
                raise SettingsError(
                    "Slack does not know the token.", "copy it again, whole; it begins with xoxb-"
                ) from refused
        if not identity.bot:
            raise SettingsError("The token is a person's, not a bot's.", "copy the Bot User OAuth Token (xoxb-…)")
        lacking = missing(identity.scopes, self.without) if identity.scopes else ()
        self.checked[token] = BotToken(identity, lacking, scopes_unsaid=not identity.scopes)
        return self.checked[token]

    async def require_token(self) -> BotToken:
        """Return the checked token. Raises SettingsError without one."""
        if not self.token:
            raise SettingsError("The bot token comes first.", "set SLACK_BOT_TOKEN")
        return self.checked.get(self.token) or await self.check(self.token)

    def steps(self) -> Sequence[Step]:
        """Return the steps in their order."""
        return (
            AppStep(self),
            TokenStep(self),
            ConnectionStep(self),
            AdminsStep(self),
            ChannelStep(self),
            MessageStep(self),
        )


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


# -------------------- the app


class AppStep(SlackStep):
    """The app at Slack, from the manifest."""

    name, title = "app", "Create the app"

    async def look(self) -> StepState:
        """The app is there if it has a token, or if its page was opened before."""
        if self._setup.token:
            return done(f"SLACK_BOT_TOKEN is set in {self._values.origin('SLACK_BOT_TOKEN')}.")
        if self._progress.get("created"):
            return done(f"You created {self._setup.name}. To open the page again: --redo app")
        return OPEN

    async def guide(self) -> Sequence[str]:
        """Return the address with the manifest, or the manifest to paste."""
        manifest = build_manifest(self._setup.name, self._setup.without, self._setup.address)
        url = creation_url(manifest)
        how = ["Open this address, choose the workspace, then Create:", url]
        if not url:
            how = [
                f"Open {CREATE_URL}?new_app=1, choose From a manifest, the workspace, and paste this as JSON:",
                *manifest_text(manifest).splitlines(),
            ]
        left_out = ",".join(sorted(self._setup.without))
        return [
            *how,
            "Then Install App, Install to Workspace, Allow.",
            *([f"Write to {env_file()}: SLACK_WITHOUT={left_out}"] if left_out else []),
        ]

    async def apply(self) -> None:
        """Save the features that were chosen by an option."""
        if self._options.without:
            self._values.save({"SLACK_WITHOUT": ",".join(sorted(self._options.without))})

    async def ask(self, terminal: SetupTerminal) -> None:
        """Ask for name, features and transport, and open Slack's page."""
        name = self._options.name or await terminal.ask("Name of the app", self._setup.name)
        without = self._options.without or await self._ask_features(terminal)
        address = self._options.http or await self._ask_transport(terminal)
        manifest = build_manifest(name, without, address)
        if without != self._values.settings().slack_without:
            self._values.save({"SLACK_WITHOUT": ",".join(sorted(without))})
        self._progress.note(name=name, http=address)
        await self._open(terminal, creation_url(manifest), manifest_text(manifest))
        terminal.say(
            "On the page: choose the workspace, Next, Create. Then in the menu on the left Install App, Install to "
            "Workspace, and Allow.",
        )
        await terminal.wait_for_enter("Press Enter when the app is installed")
        self._progress.note(created="yes")
        terminal.done(f"{name} is created.")

    async def _ask_features(self, terminal: SetupTerminal) -> frozenset[str]:
        everything = await terminal.choose(
            "Which features shall it have?",
            [(True, "All of them (recommended)"), (False, "Let me choose")],
            default=not self._setup.without,
        )
        if everything:
            return frozenset()
        return frozenset(
            [
                feature.name
                for feature in FEATURES
                if not await terminal.confirm(
                    f"{feature.what[0].upper()}{feature.what[1:]}?", default=feature.name not in self._setup.without
                )
            ]
        )

    async def _ask_transport(self, terminal: SetupTerminal) -> str:
        by_http = await terminal.choose(
            "How shall Slack reach the bot?",
            [
                (False, "Socket Mode: the bot connects to Slack, no public address is needed (recommended)"),
                (True, "HTTP: Slack calls a public https address of yours"),
            ],
            default=bool(self._setup.address),
        )
        if not by_http:
            return ""
        while True:
            address = await terminal.ask("Public https address of the bot", self._setup.address)
            if urlsplit(address).scheme == "https" and urlsplit(address).hostname:
                return address.rstrip("/")
            terminal.wrong("Slack calls https addresses only.", "write one such as https://bot.example.com")

    async def _open(self, terminal: SetupTerminal, url: str, text: str) -> None:
        if not url:
            terminal.say(
                f"Open {CREATE_URL}?new_app=1 and choose From a manifest, the workspace, and the tab JSON. Paste this:"
            )
            terminal.print(f"\n{text}\n")
            return
        opened = False
        if self._options.browser and can_open_browser() and await terminal.confirm("Open Slack in your browser?"):
            opened = open_browser(url)
        if opened:
            terminal.say("Slack's page is open in your browser, with the manifest filled in.")
        else:
            terminal.say("Open this address, with the manifest filled in:")
            terminal.link(url)


# -------------------- the tokens


class TokenStep(SlackStep):
    """The bot token."""

    name, title = "token", "Bot token"

    async def look(self) -> StepState:
        """Check the token that is set."""
        if not self._setup.token:
            return OPEN
        token = await self._setup.check(self._setup.token)
        before = self._progress.get("team")
        if before and before != token.identity.team:
            return wrong(
                f"The token is of {token.label}, not of the workspace that was set up ({before}).",
                "set the token of that workspace, or go on with this one: --redo token",
            )
        if token.lacking:
            return wrong(f"{token.label}: {_lacking_text(token)}", _reinstall_text(token))
        doubt = " Slack did not say its scopes." if token.scopes_unsaid else " It has all scopes."
        return done(f"{token.label} ({token.identity.team}).{doubt}")

    async def is_confirmed(self) -> bool:
        """A token that was not entered here may be of the wrong workspace."""
        return bool(self._progress.get("team"))

    async def guide(self) -> Sequence[str]:
        """Say where the token is."""
        return [
            f"Copy the Bot User OAuth Token: {CREATE_URL}, the app, OAuth & Permissions.",
            f"Write to {env_file()}: SLACK_BOT_TOKEN=xoxb-…",
        ]

    async def apply(self) -> None:
        """Save a token that was passed."""
        if not self._setup.token:
            return
        token = await self._setup.check(self._setup.token)
        if "SLACK_BOT_TOKEN" in self._values.given:
            self._values.save({"SLACK_BOT_TOKEN": self._setup.token})
        self._note(token)

    async def ask(self, terminal: SetupTerminal) -> None:
        """Offer the token that is set, or ask for one, until it is one of the right workspace with all scopes."""
        current = self._setup.token
        if current and (token := await self._offer(terminal, current)) is not None:
            self._note(token)
            return
        terminal.say(f"It is on the page OAuth & Permissions of the app ({CREATE_URL}): Bot User OAuth Token.")
        entered = await terminal.ask_secret("Bot User OAuth Token, xoxb-…")
        token = await self._check_scopes(terminal, entered)
        if not await terminal.confirm(f"{token.label}: is this the right workspace?"):
            raise SettingsError("The token is of another workspace.", "copy the token of the app in the right one")
        if current and current != entered:
            origin = self._values.origin("SLACK_BOT_TOKEN")
            if not await terminal.confirm(f"Replace the SLACK_BOT_TOKEN that {origin} has?"):
                raise SettingsError("The old token was kept.", "use it, or replace it")
        self._values.save({"SLACK_BOT_TOKEN": entered})
        self._note(token)
        terminal.done(f"SLACK_BOT_TOKEN is in {env_file()}, which only you can read.")

    async def _offer(self, terminal: SetupTerminal, current: str) -> BotToken | None:
        """Return the token that is set, if it works and the person wants it."""
        try:
            token = await self._setup.check(current)
        except CountersignError as error:
            terminal.wrong(f"SLACK_BOT_TOKEN does not work: {error.detailed_cause}", str(error.fix))
            return None
        origin = self._values.origin("SLACK_BOT_TOKEN")
        if not await terminal.confirm(f"The SLACK_BOT_TOKEN in {origin} is {token.label}. Use it?"):
            return None
        return await self._check_scopes(terminal, current)

    async def _check_scopes(self, terminal: SetupTerminal, entered: str) -> BotToken:
        """Return the token once it has all scopes, or once the person goes on without."""
        while True:
            token = await self._setup.check(entered)
            if token.scopes_unsaid:
                terminal.warn("Slack did not say what the token may do.")
            if not token.lacking:
                terminal.done(f"{token.label}. It has all scopes.")
                return token
            count = len(token.lacking)
            terminal.wrong(f"{token.label}: {'1 scope is' if count == 1 else f'{count} scopes are'} missing.")
            terminal.say(*(f"  {scope.name}: without it {scope.without}" for scope in token.lacking))
            terminal.say(f"Fix: {_reinstall_text(token)}")
            match await terminal.choose(
                "What now?",
                [
                    ("again", "I added them and installed the app again: check again"),
                    ("other", "Enter another token"),
                    ("go on", "Go on without them"),
                ],
                default="again",
            ):
                case "other":
                    entered = await terminal.ask_secret("Bot User OAuth Token, xoxb-…")
                case "go on":
                    return token

    def _note(self, token: BotToken) -> None:
        team = token.identity.team
        if self._progress.get("team") not in ("", team):
            self._progress.note(channel="", message="", admins="")
        self._progress.note(team=team)


def _lacking_text(token: BotToken) -> str:
    lacking = "; ".join(f"{scope.name} (without it {scope.without})" for scope in token.lacking)
    return f"it lacks {lacking}."


def _reinstall_text(token: BotToken) -> str:
    names = ", ".join(scope.name for scope in token.lacking)
    return f"under OAuth & Permissions add {names} to the Bot Token Scopes, then Reinstall to Workspace"


class ConnectionStep(SlackStep):
    """The way in: an app-level token, or the signing secret."""

    name, title = "connection", "Connection"

    async def look(self) -> StepState:
        """Check the app-level token; a signing secret can only be checked by its form."""
        token, secret = self._values.get("SLACK_APP_TOKEN"), self._values.get("SLACK_SIGNING_SECRET")
        if token and not self._setup.address:
            await self._check(token)
            return done("Socket Mode: Slack offers a connection.")
        if secret:
            if not _SECRET.fullmatch(secret):
                return wrong("SLACK_SIGNING_SECRET is not a signing secret.", "copy the 32 characters of the secret")
            return done(f"HTTP: Slack calls {self._setup.address or 'the bot'}/slack/events.")
        if token:
            await self._check(token)
            return done("Socket Mode: Slack offers a connection.")
        return OPEN

    async def guide(self) -> Sequence[str]:
        """Say where the token or the secret is."""
        if self._setup.address:
            return [
                f"Copy the Signing Secret: {CREATE_URL}, the app, Basic Information, App Credentials.",
                f"Write to {env_file()}: SLACK_SIGNING_SECRET=… and PUBLIC_URL={self._setup.address}",
            ]
        return [
            f"Generate an app-level token: {CREATE_URL}, the app, Basic Information, App-Level Tokens,",
            "with the scope connections:write.",
            f"Write to {env_file()}: SLACK_APP_TOKEN=xapp-…",
        ]

    async def apply(self) -> None:
        """Save what was passed."""
        token, secret = self._values.given.get("SLACK_APP_TOKEN"), self._values.given.get("SLACK_SIGNING_SECRET")
        if token:
            await self._check(token)
            self._values.save({"SLACK_APP_TOKEN": token})
        if secret and _SECRET.fullmatch(secret):
            self._values.save({"SLACK_SIGNING_SECRET": secret})
        if self._options.http:
            self._progress.note(http=self._options.http)

    async def ask(self, terminal: SetupTerminal) -> None:
        """Ask for the token of Socket Mode, or for the signing secret of HTTP."""
        if self._setup.address:
            await self._ask_secret(terminal)
            return
        terminal.say(
            f"On the page Basic Information of the app ({CREATE_URL}): App-Level Tokens, Generate Token and Scopes, "
            "Add Scope connections:write, Generate.",
        )
        entered = await terminal.ask_secret("App-level token, xapp-…")
        await self._check(entered)
        if await _may_replace(terminal, self._values, "SLACK_APP_TOKEN", entered):
            self._values.save({"SLACK_APP_TOKEN": entered})
        terminal.done(f"Slack offers a connection. SLACK_APP_TOKEN is in {env_file()}.")

    async def _ask_secret(self, terminal: SetupTerminal) -> None:
        terminal.say(f"On the page Basic Information of the app ({CREATE_URL}): App Credentials, Signing Secret, Show.")
        entered = await terminal.ask_secret("Signing Secret")
        if not _SECRET.fullmatch(entered):
            raise SettingsError(
                "That is not a signing secret: it has 32 characters, 0 to 9 and a to f.",
                "copy Signing Secret, not Client Secret or Verification Token",
            )
        if await _may_replace(terminal, self._values, "SLACK_SIGNING_SECRET", entered):
            self._values.save({"SLACK_SIGNING_SECRET": entered})
        if not self._values.get("PUBLIC_URL"):
            self._values.save({"PUBLIC_URL": self._setup.address})
        terminal.done(f"SLACK_SIGNING_SECRET is in {env_file()}. Whether it is the app's shows with the first request.")
        terminal.say(f"A proxy has to hand {self._setup.address}/slack/events to the bot: docs/slack.md says how.")

    async def _check(self, token: str) -> None:
        """Raise CountersignError for a token that opens no connection, or that is another app's."""
        if (error := app_token_error(token)) is not None:
            raise error
        async with self._setup.api(self._setup.token or token) as api:
            await socket_url(api, token)
            app = await app_of(api) if await self._has_token() else ""
        other = token.split("-")[2] if token.count("-") >= 3 else ""
        if app and other.startswith("A") and other != app:
            raise SettingsError(
                f"The app-level token is of app {other}, the bot token of app {app}.",
                "generate it on the page of the app whose bot token you entered",
            )


async def _may_replace(terminal: SetupTerminal, values: SetupValues, name: str, entered: str) -> bool:
    """Return True if a value may be written: it is new, or the person lets it replace the old one."""
    current = values.get(name)
    return current in ("", entered) or await terminal.confirm(f"Replace the {name} that {values.origin(name)} has?")


# -------------------- people


class AdminsStep(SlackStep):
    """Administrators and approvers."""

    name, title = "admins", "Administrators and approvers"

    async def look(self) -> StepState:
        """They are chosen if ADMINS names somebody of Slack, or if that was left to the workspace."""
        settings = self._values.settings()
        admins = sorted(name for name in settings.admins if name.startswith("slack"))
        if admins:
            approvers = sorted(name for name in settings.approvers if name.startswith("slack"))
            more = f" Approvers: {', '.join(approvers)}." if approvers else ""
            return done(f"Administrators: {', '.join(admins)}.{more}")
        if self._progress.get("admins") == "workspace":
            return done(_nobody_named(settings.admins))
        return OPEN

    async def guide(self) -> Sequence[str]:
        """Say which variables name them."""
        return [
            f"Write to {env_file()}: ADMINS=slack:U… (your member id: {_MEMBER_ID}),",
            "and who else may approve: APPROVERS=slack:U…,slack-group:S…",
            "Without ADMINS, the admins and owners of the workspace administer and approve.",
            "Or let the setup look them up: --admin E-MAIL, NAME or ID, --approver E-MAIL, NAME, ID or @GROUP",
        ]

    async def apply(self) -> None:
        """Save who was named by an option."""
        if not self._options.admin and not self._options.approvers:
            return
        token = await self._setup.require_token()
        async with self._setup.api() as api:
            admins = [self._principal(await _only(api, self._options.admin), token)] if self._options.admin else []
            approvers = [await self._approver(api, name, token) for name in self._options.approvers]
        self._save(admins, approvers)

    async def ask(self, terminal: SetupTerminal) -> None:
        """Ask who administers, and who else approves."""
        token = await self._setup.require_token()
        async with self._setup.api() as api:
            terminal.say(
                "Administrators add servers and approve calls. Who are you in Slack? Your member id is safest: "
                f"{_MEMBER_ID}. An e-mail address or a name works as well.",
            )
            others = self._values.settings().admins
            left = "leave it to those of ADMINS" if others else "leave it to the workspace's admins and owners"
            typed = await terminal.ask("You in Slack", shown_default=left)
            if not typed:
                self._progress.note(admins="workspace")
                terminal.done(_nobody_named(others))
                return
            person = await _choose(terminal, await _found(api, typed), typed)
            approvers = await self._ask_approvers(terminal, api, token)
        self._save([self._principal(person, token)], approvers)
        terminal.done(
            f"{person.name} ({person.id}), {person.role} of the workspace, administers. It is in {env_file()}."
        )

    async def _ask_approvers(self, terminal: SetupTerminal, api: WebApi, token: BotToken) -> list[str]:
        while True:
            typed = await terminal.ask(
                "Who else may approve calls? People or @groups, with commas", shown_default="nobody else"
            )
            try:
                words = [word for word in (part.strip() for part in typed.split(",")) if word]
                return [await self._approver(api, word, token) for word in words]
            except CountersignError as error:
                terminal.wrong(str(error.detailed_cause), str(error.fix))

    async def _approver(self, api: WebApi, word: str, token: BotToken) -> str:
        if word.startswith("@") or re.fullmatch(r"S[A-Z0-9]{7,}", word):
            if group := await find_group(api, word):
                return self._name("slack-group", token, group)
            if re.fullmatch(r"S[A-Z0-9]{7,}", word):
                raise NotFound(f"There is no user group {word[:40]!r}.", "write its handle, such as @ops")
        return self._principal(await _only(api, word), token)

    def _principal(self, person: User, token: BotToken) -> str:
        return self._name("slack", token, person.id)

    def _name(self, kind: str, token: BotToken, own_id: str) -> str:
        several = serves_installations(self._values.settings())
        return f"{kind}:{token.identity.team}:{own_id}" if several else f"{kind}:{own_id}"

    def _save(self, admins: Sequence[str], approvers: Sequence[str]) -> None:
        added = {"ADMINS": admins, "APPROVERS": approvers}
        self._values.save({name: self._values.with_names(name, more) for name, more in added.items() if more})


def _nobody_named(admins: Collection[str]) -> str:
    """Return who administers if ADMINS names nobody of Slack."""
    if admins:
        return f"ADMINS names nobody of Slack: only {', '.join(sorted(admins))} may administer."
    return "The admins and owners of the workspace administer and approve."


async def _found(api: WebApi, typed: str) -> Sequence[User]:
    try:
        people = await find_users(api, typed)
    except SlackWebApiError as error:
        match error.code:
            case "missing_scope":
                what = "The app may not look up people that way: it lacks a scope, such as users:read.email."
                raise SettingsError(what, f"write the member id: {_MEMBER_ID}") from error
            case "users_not_found" | "user_not_found" | "user_not_visible":
                people = []
            case _:
                raise
    if not people:
        raise NotFound(f"Slack knows nobody called {typed[:60]!r} in this workspace.", f"write the id: {_MEMBER_ID}")
    return people


async def _only(api: WebApi, typed: str) -> User:
    people = await _found(api, typed)
    if len(people) > 1:
        ids = ", ".join(person.id for person in people[:5])
        raise SettingsError(f"{len(people)} people are called {typed[:60]!r}: {ids}.", "write the id of one of them")
    return people[0]


async def _choose(terminal: SetupTerminal, people: Sequence[User], typed: str) -> User:
    if len(people) > 1:
        options = [(person, f"{person.name} ({person.id}), {person.role}") for person in people[:9]]
        return await terminal.choose(f"Which {typed[:60]}?", options)
    if not await terminal.confirm(f"{people[0].name} ({people[0].id}), {people[0].role}: is that you?"):
        raise NotFound("That is somebody else.", f"write your member id: {_MEMBER_ID}")
    return people[0]


# -------------------- the channel


class ChannelStep(SlackStep):
    """A channel that the bot is in."""

    name, title = "channel", "Invite the bot into a channel"

    async def look(self) -> StepState:
        """It is done while the bot is in the channel of the setup, or in the one of --channel."""
        wanted = self._options.channel or self._progress.get("channel")
        if not await self._has_token() or not wanted:
            return OPEN
        async with self._setup.api() as api:
            channel = await find_channel(api, wanted)
        if channel is None or not channel.member:
            return StepState(StepStatus.OPEN, f"The bot is not in {wanted} yet.")
        return done(f"The bot is in #{channel.name}.")

    async def guide(self) -> Sequence[str]:
        """Say what to type."""
        name = self._setup.checked[self._setup.token].identity.name if self._setup.token in self._setup.checked else ""
        return [
            f"In a channel of Slack type: /invite @{name or self._setup.name.lower()}",
            "Then say which it is: --channel #NAME or ID. With the scope channels:join, --write lets the bot join it.",
        ]

    async def apply(self) -> None:
        """Join the channel of --channel, if the app may."""
        wanted = self._options.channel
        if not wanted or not await self._has_token():
            return
        async with self._setup.api() as api:
            channel = await find_channel(api, wanted)
            if channel is not None and (channel.member or await try_join(api, channel)):
                self._note(channel)

    async def ask(self, terminal: SetupTerminal) -> None:
        """Ask for a channel, join it or say what to type, and wait until the bot is in it."""
        token = await self._setup.require_token()
        async with self._setup.api() as api:
            wanted = self._options.channel or await terminal.ask(
                "Channel, #name or id", self._progress.get("channel"), shown_default="wherever you invite it"
            )
            before = {channel.id for channel in await joined_channels(api)}
            channel = await find_channel(api, wanted) if wanted else None
            if channel is not None and not channel.member and await try_join(api, channel):
                terminal.say("The bot joined it by itself.")
                channel = Channel(channel.id, channel.name, channel.private, member=True)
            if channel is None or not channel.member:
                where = f"#{channel.name}" if channel is not None else wanted or "any channel"
                terminal.say(f"In Slack, in {where}, type:")
                terminal.print(f"\n    /invite @{token.identity.name}\n")
                channel = await self._wait(terminal, api, channel.id if channel is not None else wanted, before)
        self._note(channel)
        terminal.done(f"The bot is in #{channel.name}.")

    async def _wait(self, terminal: SetupTerminal, api: WebApi, wanted: str, before: set[str]) -> Channel:
        """Wait until the bot is in the wanted channel, or in a further one. Raises SettingsError after a while."""
        terminal.say(f"Waiting for it, {self._options.wait:.0f} seconds at most. Ctrl-C stops.")
        name, until = wanted.lstrip("#").casefold(), monotonic() + self._options.wait
        while monotonic() < until:
            joined = await joined_channels(api)
            for channel in joined:
                if (name and name in (channel.id.casefold(), channel.name.casefold())) or (
                    not name and channel.id not in before
                ):
                    return channel
            await asyncio.sleep(LOOK_SECONDS)
        where = wanted or "a channel"
        raise SettingsError(f"The bot was not invited into {where} so far.", "type the line above in Slack")

    def _note(self, channel: Channel) -> None:
        changed = channel.id != self._progress.get("channel")
        self._progress.note(channel=channel.id, channel_name=channel.name, **({"message": ""} if changed else {}))


class MessageStep(SlackStep):
    """The first message."""

    name, title = "message", "First message"

    async def look(self) -> StepState:
        """It is posted once in the channel of the setup."""
        if self._progress.get("message") == "none":
            return done("Nothing was posted, as you chose.")
        if self._progress.get("message"):
            return done(f"It is in #{self._progress.get('channel_name')}.")
        return OPEN

    async def guide(self) -> Sequence[str]:
        """Say what it is for."""
        return ["The bot introduces itself in the channel, with what to try. --write posts it."]

    async def apply(self) -> None:
        """Post it in the channel that the bot is in."""
        if self._progress.get("channel") and not self._progress.get("message") and await self._has_token():
            await self._post()

    async def ask(self, terminal: SetupTerminal) -> None:
        """Post it, unless the person does not want that."""
        channel = self._progress.get("channel_name")
        if not self._progress.get("channel"):
            raise DeliveryFailed("There is no channel yet.", "countersign setup slack --redo channel")
        if not await terminal.confirm(f"Let the bot introduce itself in #{channel}?"):
            self._progress.note(message="none")
            terminal.done("Nothing was posted.")
            return
        await self._post()
        terminal.done(f"It is in #{channel}: it says what to try.")

    async def _post(self) -> None:
        settings = self._values.settings()
        with use_locale(Locale(settings.language, settings.time_zone)):
            await self._post_in_language()

    async def _post_in_language(self) -> None:
        async with self._setup.api() as api:
            ref = await post_first_message(
                api, self._progress.get("channel"), commands="commands" not in self._setup.without
            )
        self._progress.note(message=ref)
