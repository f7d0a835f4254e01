"""Steps of `countersign setup slack`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from bot.app.setup.steps import (
    SKIPPED,
    PlatformAdminsStep,
    PlatformAppStep,
    PlatformMessageStep,
    PlatformSetup,
    PlatformStep,
    PlatformTokenStep,
    Step,
    check_form,
)
from bot.app.setup.values import WORKSPACE, Progress, SetupOptions, SetupValues, env_file, split_names
from bot.app.slack import serves_installations
from bot.errors import CountersignError, NotFound, SettingsError
from bot.examination import CheckSkipped
from bot.platforms.console.prompts import SetupTerminal
from bot.platforms.slack.diagnostics import Scope, missing
from bot.platforms.slack.listener import socket_url
from bot.platforms.slack.manifest import CREATE_URL, FEATURES, build_manifest, creation_url, manifest_text
from bot.platforms.slack.setup import (
    Channel,
    User,
    find_app_id,
    find_channel,
    find_group,
    find_users,
    list_joined_channels,
    post_first_message,
    try_join,
)
from bot.platforms.slack.web_api import Identity, SlackWebApiError, WebApi

DEFAULT_NAME = "Countersign"
SECRET = re.compile(r"[0-9a-f]{32}")
MEMBER_ID = "in Slack, your profile picture, Profile, the three dots, Copy member ID"
_FIND_TOKEN = "copy the Bot User OAuth Token (xoxb-…) from the page OAuth & Permissions of the app"  # noqa: S105
_FIND_APP_TOKEN = "generate one under Basic Information, App-Level Tokens, with the scope connections:write"  # noqa: S105
_WHOLE = "[!-~]+"
"""Characters of a token, by which a damaged copy is recognized."""
_BOT_TOKEN_ERRORS = (
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
    ("(?!xoxb-[0-9]+-.).*", "That is not a whole bot token: after xoxb- come digits, a dash and more.", _FIND_TOKEN),
)
_APP_TOKEN_ERRORS = (
    ("", "Nothing was entered.", _FIND_APP_TOKEN),
    ("xoxb-.*", "That is the bot token again. An app-level token begins with xapp-.", _FIND_APP_TOKEN),
    ("(?!xapp-).*", "That is not an app-level token: those begin with xapp-.", _FIND_APP_TOKEN),
    (f"(?!{_WHOLE}$).*", "The token has characters that no token has.", "copy it again, whole"),
)


@dataclass(frozen=True, slots=True)
class BotToken:
    """A token that Slack accepts, with its owner and the scopes that it lacks. `app` is empty if unknown."""

    identity: Identity
    app: str = ""
    missing_scopes: tuple[Scope, ...] = ()
    scopes_unknown: bool = False

    @property
    def label(self) -> str:
        """The bot and its workspace, for people."""
        return f"@{self.identity.name} in {urlsplit(self.identity.url).hostname or self.identity.team}"


class SlackSetup(PlatformSetup[BotToken]):
    """Setup of Slack, shared by its steps."""

    subject = "slack"
    token_name = "SLACK_BOT_TOKEN"  # noqa: S105

    @property
    def address(self) -> str:
        """The public address for HTTP; empty for Socket Mode."""
        return self.options.http or self.progress.get("http")

    @property
    def without(self) -> frozenset[str]:
        """Features that the app is made without."""
        return self.options.without or self.values.settings().slack_without

    @property
    def app_name(self) -> str:
        """The app, for people."""
        return self.options.name or self.progress.get("name") or DEFAULT_NAME

    @asynccontextmanager
    async def api(self, token: str = "") -> AsyncIterator[WebApi]:
        """Open Slack with the bot token, or with another one."""
        async with WebApi(token or self.token, url=self.values.settings().slack_api_url) as api:
            yield api

    async def check(self, token: str) -> BotToken:
        """Check a bot token. Raises CountersignError with a cause and a fix."""
        check_form(token, _BOT_TOKEN_ERRORS)
        async with self.api(token) as api:
            try:
                identity, app = await api.identity(), await find_app_id(api)
            except SlackWebApiError as refused:
                if refused.code != "invalid_auth":
                    raise
                raise SettingsError(
                    "Slack does not know the token.", "copy it again, whole; it begins with xoxb-"
                ) from refused
        if not identity.bot:
            raise SettingsError("The token is a person's, not a bot's.", "copy the Bot User OAuth Token (xoxb-…)")
        missing_scopes = missing(identity.scopes, self.without) if identity.scopes else ()
        self.checked[token] = BotToken(identity, app, missing_scopes, scopes_unknown=not identity.scopes)
        return self.checked[token]

    def page(self, name: str) -> str:
        """Return the address of a page of the app; that of the list of apps while its id is unknown."""
        known = self.checked.get(self.token)
        return f"{CREATE_URL}/{known.app}/{name}" if known is not None and known.app else CREATE_URL


# -------------------- the app


class AppStep(PlatformAppStep[SlackSetup]):
    """The app at Slack, from the manifest."""

    title = "Create the app"

    async def guide(self) -> Sequence[str]:
        """Return the address with the manifest, or the manifest to paste."""
        manifest = build_manifest(self._setup.app_name, self._setup.without, self._setup.address)
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
        """Save the features of --without."""
        if self._options.without:
            self._values.save({"SLACK_WITHOUT": ",".join(sorted(self._options.without))})

    async def ask(self, terminal: SetupTerminal) -> None:
        """Ask for name, features and transport, and open Slack's page."""
        name = self._options.name or await terminal.ask("Name of the app", self._setup.app_name)
        without = self._options.without or await self._ask_features(terminal)
        address = self._options.http or await self._ask_transport(terminal)
        manifest = build_manifest(name, without, address)
        if without != self._values.settings().slack_without:
            self._values.save({"SLACK_WITHOUT": ",".join(sorted(without))})
        self._progress.save(name=name, http=address)
        await self._open(terminal, creation_url(manifest), manifest_text(manifest))
        terminal.say(
            "On the page: choose the workspace, Next, Create. Then in the menu on the left Install App, Install to "
            "Workspace, and Allow.",
        )
        next_step = "The next step asks for the app's token, which shows if it is installed."
        await self._ask_if_created(terminal, "Press Enter when the app is installed", next_step)

    async def _ask_features(self, terminal: SetupTerminal) -> frozenset[str]:
        everything = await terminal.choose(
            "Which features do you want?",
            [(True, "All of them (recommended)"), (False, "Let me choose")],
            default=not self._setup.without,
        )
        if everything:
            return frozenset()
        left_out = []
        for feature in FEATURES:
            question = f"{feature.description[0].upper()}{feature.description[1:]}?"
            if not await terminal.confirm(question, default=feature.name not in self._setup.without):
                left_out.append(feature.name)
        return frozenset(left_out)

    async def _ask_transport(self, terminal: SetupTerminal) -> str:
        by_http = await terminal.choose(
            "How does Slack reach the bot?",
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
            terminal.report_error("Slack calls https addresses only.", "write one such as https://bot.example.com")

    async def _open(self, terminal: SetupTerminal, url: str, text: str) -> None:
        if not url:
            terminal.say(
                f"Open {CREATE_URL}?new_app=1 and choose From a manifest, the workspace, and the tab JSON. Paste this:"
            )
            terminal.print(f"\n{text}\n")
            return
        if await self._open_in_browser(terminal, url, "Slack"):
            terminal.say("Slack's page is open in your browser, with the manifest filled in.")
        else:
            terminal.say("Open this address, with the manifest filled in:")
            if terminal.link_behind("Create the app at Slack", url):
                terminal.say("If it does not open: `countersign setup slack --print` prints the whole address.")
            else:
                terminal.link(url)


# -------------------- the tokens


class TokenStep(PlatformTokenStep[SlackSetup]):
    """The bot token."""

    owner = "team"

    async def inspect(self) -> str:
        """Check the token that is set."""
        if not self._setup.token:
            raise CheckSkipped
        token = await self._setup.check(self._setup.token)
        before = self._progress.get("team")
        if before and before != token.identity.team:
            raise SettingsError(
                f"The token is of {token.label}, not of the workspace that was set up ({before}).",
                "set the token of that workspace, or go on with this one: --redo token",
            )
        if token.missing_scopes:
            scopes = "; ".join(f"{scope.name} (without it {scope.without})" for scope in token.missing_scopes)
            raise SettingsError(f"{token.label}: it lacks {scopes}.", _reinstall_text(token))
        doubt = " Slack did not say its scopes." if token.scopes_unknown else " It has all scopes."
        return f"{token.label} ({token.identity.team}).{doubt}"

    async def guide(self) -> Sequence[str]:
        """Return the steps to the token."""
        return [
            f"Copy the Bot User OAuth Token: {CREATE_URL}, the app, OAuth & Permissions.",
            f"Write to {env_file()}: SLACK_BOT_TOKEN=xoxb-…",
        ]

    async def _offer(self, terminal: SetupTerminal, token: str) -> tuple[str, BotToken] | None:
        offered = await super()._offer(terminal, token)
        return None if offered is None else await self._check_scopes(terminal, token)

    async def _enter(self, terminal: SetupTerminal) -> tuple[str, BotToken]:
        terminal.say(f"It is on the page OAuth & Permissions of the app ({CREATE_URL}): Bot User OAuth Token.")
        entered = await terminal.ask_secret("Bot User OAuth Token, xoxb-…")
        entered, token = await self._check_scopes(terminal, entered)
        if not await terminal.confirm(f"{token.label}: is this the right workspace?"):
            raise SettingsError("The token is of another workspace.", "copy the token of the app in the right one")
        return entered, token

    def _label(self, checked: BotToken) -> str:
        return checked.label

    async def _check_scopes(self, terminal: SetupTerminal, entered: str) -> tuple[str, BotToken]:
        """Return the token, or another one, once it has all scopes or the missing ones are accepted."""
        while True:
            token = await self._setup.check(entered)
            if token.scopes_unknown:
                terminal.warn("Slack did not say what the token may do.")
            if not token.missing_scopes:
                terminal.report_done(f"{token.label}. It has all scopes.")
                return entered, token
            count = len(token.missing_scopes)
            terminal.report_error(f"{token.label}: {'1 scope is' if count == 1 else f'{count} scopes are'} missing.")
            terminal.say(*(f"  {scope.name}: without it {scope.without}" for scope in token.missing_scopes))
            where = f"{CREATE_URL}/{token.app}/oauth" if token.app else CREATE_URL
            terminal.say(f"Fix: {_reinstall_text(token)} ({where})")
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
                    return entered, token

    def _note(self, checked: BotToken) -> None:
        team = checked.identity.team
        if self._progress.get("team") not in ("", team):
            self._progress.save(channel="", message="", admins="")
        self._progress.save(team=team)


def _reinstall_text(token: BotToken) -> str:
    names = ", ".join(scope.name for scope in token.missing_scopes)
    return f"under OAuth & Permissions add {names} to the Bot Token Scopes, then Reinstall to Workspace"


class ConnectionStep(PlatformStep[SlackSetup]):
    """Connection of Slack to the bot: an app-level token, or the signing secret."""

    name, title = "connection", "Connection"

    async def inspect(self) -> str:
        """Check the app-level token; a signing secret can only be checked by its form."""
        token, secret = self._values.get("SLACK_APP_TOKEN"), self._values.get("SLACK_SIGNING_SECRET")
        if token and not (secret and self._setup.address):
            await self._check(token)
            return "Socket Mode: Slack offers a connection."
        if secret:
            if not SECRET.fullmatch(secret):
                raise SettingsError(
                    "SLACK_SIGNING_SECRET is not a signing secret.", "copy the 32 characters of the secret"
                )
            return f"HTTP: Slack calls {self._setup.address or 'the bot'}/slack/events."
        raise CheckSkipped

    async def guide(self) -> Sequence[str]:
        """Return the steps to the token or the secret."""
        if self._setup.address:
            return [
                f"Copy the Signing Secret: {self._setup.page('general')}, Basic Information, App Credentials.",
                f"Write to {env_file()}: SLACK_SIGNING_SECRET=… and PUBLIC_URL={self._setup.address}",
            ]
        return [
            f"Generate an app-level token: {self._setup.page('general')}, Basic Information, App-Level Tokens,",
            "with the scope connections:write.",
            f"Write to {env_file()}: SLACK_APP_TOKEN=xapp-…",
        ]

    async def apply(self) -> None:
        """Save the token and the secret of standard input, and the address of --http."""
        token, secret = self._values.given.get("SLACK_APP_TOKEN"), self._values.given.get("SLACK_SIGNING_SECRET")
        if token:
            await self._check(token)
            self._values.save({"SLACK_APP_TOKEN": token})
        if secret and SECRET.fullmatch(secret):
            self._values.save({"SLACK_SIGNING_SECRET": secret})
        if self._options.http:
            self._progress.save(http=self._options.http)

    async def ask(self, terminal: SetupTerminal) -> None:
        """Ask for the token of Socket Mode, or for the signing secret of HTTP."""
        if self._setup.address:
            await self._ask_secret(terminal)
            return
        terminal.say(
            f"On the page Basic Information of the app ({self._setup.page('general')}): App-Level Tokens, Generate "
            "Token and Scopes, Add Scope connections:write, Generate.",
        )
        entered = await terminal.ask_secret("App-level token, xapp-…")
        await self._check(entered)
        if await self._may_replace(terminal, "SLACK_APP_TOKEN", entered):
            self._values.save({"SLACK_APP_TOKEN": entered})
        terminal.report_done(f"Slack offers a connection. SLACK_APP_TOKEN is in {env_file()}.")

    async def _ask_secret(self, terminal: SetupTerminal) -> None:
        terminal.say(
            f"On the page Basic Information of the app ({self._setup.page('general')}): App Credentials, Signing "
            "Secret, Show."
        )
        entered = await terminal.ask_secret("Signing Secret")
        if not SECRET.fullmatch(entered):
            raise SettingsError(
                "That is not a signing secret: it has 32 characters, 0 to 9 and a to f.",
                "copy Signing Secret, not Client Secret or Verification Token",
            )
        if await self._may_replace(terminal, "SLACK_SIGNING_SECRET", entered):
            self._values.save({"SLACK_SIGNING_SECRET": entered})
        if not self._values.get("PUBLIC_URL"):
            self._values.save({"PUBLIC_URL": self._setup.address})
        terminal.report_done(
            f"SLACK_SIGNING_SECRET is in {env_file()}. Slack's first request shows if it is the right one."
        )
        terminal.say(f"A proxy has to hand {self._setup.address}/slack/events to the bot: docs/slack.md says how.")

    async def _check(self, token: str) -> None:
        """Raise CountersignError for a token that opens no connection or belongs to another app."""
        check_form(token, _APP_TOKEN_ERRORS)
        async with self._setup.api(self._setup.token or token) as api:
            await socket_url(api, token)
        app = (await self._setup.require_token()).app if await self._setup.has_token() else ""
        other = token.split("-")[2] if token.count("-") >= 3 else ""
        if app and other.startswith("A") and other != app:
            raise SettingsError(
                f"The app-level token is of app {other}, the bot token of app {app}.",
                "generate it on the page of the app whose bot token you entered",
            )


# -------------------- people


class AdminsStep(PlatformAdminsStep[SlackSetup]):
    """Administrators and approvers."""

    label = "Slack"
    default_admins = "The admins and owners of the workspace administer and approve."

    async def guide(self) -> Sequence[str]:
        """Return the variables that name them."""
        return [
            f"Write to {env_file()}: ADMINS=slack:U… (your member id: {MEMBER_ID}),",
            "and who else may approve: APPROVERS=slack:U…,slack-group:S…",
            "Without ADMINS, the admins and owners of the workspace administer and approve.",
            "Or let the setup look them up: --admin E-MAIL, NAME, ID or workspace,",
            "--approver E-MAIL, NAME, ID or @GROUP.",
        ]

    async def _find_principals(self, admins: Sequence[str], approvers: Sequence[str]) -> tuple[list[str], list[str]]:
        token = await self._setup.require_token()
        async with self._setup.api() as api:
            return (
                [self._principal(await _find_person(api, name), token) for name in admins],
                [await self._approver(api, name, token) for name in approvers],
            )

    async def ask(self, terminal: SetupTerminal) -> None:
        """Ask for an administrator and for further approvers."""
        token = await self._setup.require_token()
        async with self._setup.api() as api:
            terminal.say(
                "Administrators add servers and approve calls. Who are you in Slack? Your member id is safest: "
                f"{MEMBER_ID}. An e-mail address or a name works as well.",
            )
            others = self._values.settings().admins
            left = "leave it to those of ADMINS" if others else "leave it to the workspace's admins and owners"
            typed = await terminal.ask("You in Slack", shown_default=left)
            if not typed:
                self._progress.save(admins=WORKSPACE)
                terminal.report_done(self._default_text(others))
                return
            person = await _choose_person(terminal, await _find_people(api, typed), typed)
            approvers = await self._ask_approvers(terminal, api, token)
        self._save([self._principal(person, token)], approvers)
        terminal.report_done(
            f"{person.name} ({person.id}), {person.role} of the workspace, administers. It is in {env_file()}."
        )

    async def _ask_approvers(self, terminal: SetupTerminal, api: WebApi, token: BotToken) -> list[str]:
        while True:
            typed = await terminal.ask(
                "Who else may approve calls? People or @groups, with commas", shown_default="nobody else"
            )
            try:
                return [await self._approver(api, name, token) for name in split_names(typed)]
            except CountersignError as error:
                terminal.report_error(str(error.detailed_cause), str(error.fix))

    async def _approver(self, api: WebApi, word: str, token: BotToken) -> str:
        if word.startswith("@") or re.fullmatch(r"S[A-Z0-9]{7,}", word):
            if group := await find_group(api, word):
                return self._name("slack-group", token, group)
            if re.fullmatch(r"S[A-Z0-9]{7,}", word):
                raise NotFound(f"There is no user group {word[:40]!r}.", "write its handle, such as @ops")
        return self._principal(await _find_person(api, word), token)

    def _principal(self, person: User, token: BotToken) -> str:
        return self._name("slack", token, person.id)

    def _name(self, kind: str, token: BotToken, own_id: str) -> str:
        several = serves_installations(self._values.settings())
        return f"{kind}:{token.identity.team}:{own_id}" if several else f"{kind}:{own_id}"


async def _find_people(api: WebApi, typed: str) -> Sequence[User]:
    try:
        people = await find_users(api, typed)
    except SlackWebApiError as error:
        match error.code:
            case "missing_scope":
                cause = "The app may not look up people that way: it lacks a scope, such as users:read.email."
                raise SettingsError(cause, f"write the member id: {MEMBER_ID}") from error
            case "users_not_found" | "user_not_found" | "user_not_visible":
                people = []
            case _:
                raise
    if not people:
        raise NotFound(f"Slack knows nobody called {typed[:60]!r} in this workspace.", f"write the id: {MEMBER_ID}")
    return people


async def _find_person(api: WebApi, typed: str) -> User:
    people = await _find_people(api, typed)
    if len(people) > 1:
        ids = ", ".join(person.id for person in people[:5])
        raise SettingsError(f"{len(people)} people are called {typed[:60]!r}: {ids}.", "write the id of one of them")
    return people[0]


async def _choose_person(terminal: SetupTerminal, people: Sequence[User], typed: str) -> User:
    if len(people) > 1:
        options = [(person, f"{person.name} ({person.id}), {person.role}") for person in people[:9]]
        return await terminal.choose(f"Which {typed[:60]}?", options)
    if not await terminal.confirm(f"{people[0].name} ({people[0].id}), {people[0].role}: is that you?"):
        raise NotFound("That is another person.", f"write your member id: {MEMBER_ID}")
    return people[0]


# -------------------- the channel


class ChannelStep(PlatformStep[SlackSetup]):
    """A channel that the bot is in."""

    name, title = "channel", "Invite the bot into a channel"

    async def inspect(self) -> str:
        """Return the channel of --channel or of the setup. The step is done while the bot is in it."""
        wanted = self._options.channel or self._progress.get("channel")
        if wanted == SKIPPED:
            return "You left it for later: type /invite and the bot's name in a channel."
        if not await self._setup.has_token() or not wanted:
            raise CheckSkipped
        async with self._setup.api() as api:
            channel = await find_channel(api, wanted)
        if channel is None or not channel.member:
            raise CheckSkipped(f"The bot is not in {wanted} yet.")
        return f"The bot is in #{channel.name}."

    async def guide(self) -> Sequence[str]:
        """Return the command that invites the bot."""
        name = self._setup.checked[self._setup.token].identity.name if self._setup.token in self._setup.checked else ""
        return [
            f"In a channel of Slack type: /invite @{name or self._setup.app_name.lower()}",
            "Then say which it is: --channel #NAME or ID. With the scope channels:join, --write lets the bot join it.",
        ]

    async def apply(self) -> None:
        """Join the channel of --channel, if the app may."""
        wanted = self._options.channel
        if wanted == SKIPPED:
            self._progress.save(channel=SKIPPED, message=SKIPPED)
        if wanted in ("", SKIPPED) or not await self._setup.has_token():
            return
        async with self._setup.api() as api:
            channel = await find_channel(api, wanted)
            if channel is not None and (channel.member or await try_join(api, channel)):
                self._save_channel(channel.id, channel.name)

    async def ask(self, terminal: SetupTerminal) -> None:
        """Ask for a channel and join it, or wait until the bot was invited."""
        token = await self._setup.require_token()
        async with self._setup.api() as api:
            before_id = self._progress.get("channel").replace(SKIPPED, "")
            wanted = self._options.channel or await terminal.ask(
                "Channel, #name or id, or skip", before_id, shown_default="wherever you invite it"
            )
            if wanted == SKIPPED:
                self._progress.save(channel=SKIPPED, message=SKIPPED)
                terminal.report_done(f"Later: in a channel, type /invite @{token.identity.name}")
                return
            before = {channel.id for channel in await list_joined_channels(api)}
            channel = await find_channel(api, wanted) if wanted else None
            if channel is not None and not channel.member and await try_join(api, channel):
                terminal.say("The bot joined it by itself.")
                channel = Channel(channel.id, channel.name, channel.private, member=True)
            if channel is None or not channel.member:
                where = f"#{channel.name}" if channel is not None else wanted or "any channel"
                terminal.say(f"In Slack, in {where}, type:")
                terminal.print(f"\n    /invite @{token.identity.name}\n")
                channel = await self._wait(terminal, api, channel.id if channel is not None else wanted, before)
        self._save_channel(channel.id, channel.name)
        terminal.report_done(f"The bot is in #{channel.name}.")

    async def _wait(self, terminal: SetupTerminal, api: WebApi, wanted: str, before: set[str]) -> Channel:
        """Wait until the bot is in the wanted channel, or in one more than before. Raises SettingsError after
        `options.wait` seconds.
        """
        name = wanted.lstrip("#").casefold()

        async def find_joined() -> Channel | None:
            for channel in await list_joined_channels(api):
                if name in (channel.id.casefold(), channel.name.casefold()) if name else channel.id not in before:
                    return channel
            return None

        if (channel := await self._wait_for(terminal, find_joined)) is not None:
            return channel
        raise SettingsError(
            f"The bot was not invited into {wanted or 'a channel'} yet.", "type the line above in Slack"
        )


class MessageStep(PlatformMessageStep[SlackSetup]):
    """The first message."""

    async def _post_in(self, channel: str) -> str:
        async with self._setup.api() as api:
            return await post_first_message(api, channel, commands="commands" not in self._setup.without)


def steps(values: SetupValues, progress: Progress, options: SetupOptions) -> Sequence[Step]:
    """Return the steps in their order."""
    setup = SlackSetup(values, progress, options)
    kinds = (AppStep, TokenStep, ConnectionStep, AdminsStep, ChannelStep, MessageStep)
    return [kind(setup) for kind in kinds]
