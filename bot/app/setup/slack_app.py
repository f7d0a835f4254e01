"""The first steps of `countersign setup slack`: the app, its bot token, and the way by which Slack reaches the bot."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from bot.app.setup.browser import can_open_browser, open_browser
from bot.app.setup.slack_context import SECRET, BotToken, SlackStep, app_token_error
from bot.app.setup.steps import OPEN, StepState, done, wrong
from bot.app.setup.values import SetupValues, env_file
from bot.errors import CountersignError, SettingsError
from bot.platforms.console.prompts import SetupTerminal
from bot.platforms.slack.listener import socket_url
from bot.platforms.slack.manifest import CREATE_URL, FEATURES, build_manifest, creation_url, manifest_text

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
            if not SECRET.fullmatch(secret):
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
                f"Copy the Signing Secret: {self._setup.page('general')}, Basic Information, App Credentials.",
                f"Write to {env_file()}: SLACK_SIGNING_SECRET=… and PUBLIC_URL={self._setup.address}",
            ]
        return [
            f"Generate an app-level token: {self._setup.page('general')}, Basic Information, App-Level Tokens,",
            "with the scope connections:write.",
            f"Write to {env_file()}: SLACK_APP_TOKEN=xapp-…",
        ]

    async def apply(self) -> None:
        """Save what was passed."""
        token, secret = self._values.given.get("SLACK_APP_TOKEN"), self._values.given.get("SLACK_SIGNING_SECRET")
        if token:
            await self._check(token)
            self._values.save({"SLACK_APP_TOKEN": token})
        if secret and SECRET.fullmatch(secret):
            self._values.save({"SLACK_SIGNING_SECRET": secret})
        if self._options.http:
            self._progress.note(http=self._options.http)

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
        if await _may_replace(terminal, self._values, "SLACK_APP_TOKEN", entered):
            self._values.save({"SLACK_APP_TOKEN": entered})
        terminal.done(f"Slack offers a connection. SLACK_APP_TOKEN is in {env_file()}.")

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
        app = (await self._setup.require_token()).app if await self._has_token() else ""
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
