"""Steps of `countersign setup discord`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bot.app.setup.steps import (
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
from bot.errors import NotFound, SettingsError
from bot.examination import CheckSkipped
from bot.platforms.console.prompts import SetupTerminal
from bot.platforms.discord.diagnostics import invite_link
from bot.platforms.discord.rest import DiscordApiError, Identity, Rest
from bot.platforms.discord.setup import (
    PORTAL,
    NamedId,
    fetch_owner,
    find_members,
    list_channels,
    list_servers,
    missing_permissions,
    post_first_message,
)

_MEMBER_ID = "in Discord, Settings, Advanced, Developer Mode; then your name, Copy User ID"


_FIND_TOKEN = "on the Bot page of the application press Reset Token, and copy what it shows"  # noqa: S105
_TOKEN_ERRORS = (
    ("", "Nothing was entered.", _FIND_TOKEN),
    ("[0-9]+", "That is an id, not a token.", _FIND_TOKEN),
    ("[0-9a-f]{64}", "That is the Public Key of the application, not the token of its bot.", _FIND_TOKEN),
    ("(?i:bot|bearer) .*", "The word before the token does not belong to it.", "copy the token alone"),
    (r"[A-Za-z0-9_-]{32}", "That is the Client Secret (OAuth2), not the token of the bot.", _FIND_TOKEN),
    (
        r"(?![A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$).*",
        "That is not a bot token: those have three parts with dots between them.",
        _FIND_TOKEN,
    ),
)


class DiscordSetup(PlatformSetup[Identity]):
    """Setup of Discord, shared by its steps."""

    subject = "discord"
    token_name = "DISCORD_TOKEN"  # noqa: S105

    @property
    def server(self) -> str:
        """The server of the setup; empty if there is none yet."""
        return self.options.server or self.progress.get("server")

    @asynccontextmanager
    async def rest(self, token: str = "") -> AsyncIterator[Rest]:
        """Open Discord with the bot token, or with another one, and with an empty cache."""
        async with Rest(token or self.token, url=self.values.settings().discord_api_url) as rest:
            yield rest

    async def check(self, token: str) -> Identity:
        """Check a bot token. Raises CountersignError with a cause and a fix."""
        check_form(token, _TOKEN_ERRORS)
        async with self.rest(token) as rest:
            try:
                self.checked[token] = await rest.identity()
            except DiscordApiError as refused:
                if refused.status != 401:
                    raise
                raise SettingsError(
                    "Discord does not know the token.", "press Reset Token on the Bot page, and copy what it shows"
                ) from refused
        return self.checked[token]


class DiscordStep(PlatformStep[DiscordSetup]):
    """A step of Discord's setup."""

    async def _open(self, terminal: SetupTerminal, url: str, page: str) -> None:
        """Open a page in the browser, or print its address."""
        if await self._open_in_browser(terminal, url, page):
            terminal.say("It is open in your browser.")
        else:
            terminal.say(f"Open {page}:")
            terminal.link(url)


class AppStep(DiscordStep, PlatformAppStep[DiscordSetup]):
    """The application in Discord's developer portal."""

    title = "Create the application"

    async def guide(self) -> Sequence[str]:
        """Return the steps in the portal."""
        return [f"Open {PORTAL}?new_application=true", "Name it, such as Countersign, and press Create."]

    async def ask(self, terminal: SetupTerminal) -> None:
        """Open the portal."""
        await self._open(terminal, f"{PORTAL}?new_application=true", "Discord's developer portal")
        terminal.say("Press New Application, name it, such as Countersign, and press Create.")
        next_step = "The next step asks for its token, which shows if it is there."
        await self._ask_if_created(terminal, "Press Enter when it is created", next_step)


class TokenStep(PlatformTokenStep[DiscordSetup]):
    """The bot token."""

    owner = "app"

    async def inspect(self) -> str:
        """Check the token that is set."""
        if not self._setup.token:
            raise CheckSkipped
        identity = await self._setup.check(self._setup.token)
        before = self._progress.get("app")
        if before and before != identity.app:
            raise SettingsError(
                f"The token is of application {identity.app}, not of the one that was set up ({before}).",
                "set the token of that application, or go on with this one: --redo token",
            )
        return f"{identity.name}, application {identity.app}."

    async def guide(self) -> Sequence[str]:
        """Return the steps to the token."""
        return [
            f"Copy the token: {PORTAL}, the application, Bot, Reset Token.",
            f"Write to {env_file()}: DISCORD_TOKEN=…",
        ]

    async def _enter(self, terminal: SetupTerminal) -> tuple[str, Identity]:
        terminal.say(f"It is on the page Bot of the application ({PORTAL}): Reset Token shows it once.")
        entered = await terminal.ask_secret("Bot token")
        identity = await self._setup.check(entered)
        if not await terminal.confirm(f"{identity.name}, application {identity.app}: is that the right one?"):
            raise SettingsError("The token is of another application.", "copy the token of the right one")
        return entered, identity

    def _label(self, checked: Identity) -> str:
        return f"{checked.name} ({checked.app})"

    def _note(self, checked: Identity) -> None:
        if self._progress.get("app") not in ("", checked.app):
            self._progress.save(server="", channel="", message="", admins="", intent="")
        self._progress.save(app=checked.app)


class IntentStep(DiscordStep):
    """The Message Content Intent, and the address for interactions."""

    name, title = "intents", "Message Content Intent"

    async def inspect(self) -> str:
        """Return the switches, as Discord has them now."""
        if not self._setup.token:
            raise CheckSkipped
        identity = await self._setup.check(self._setup.token)
        if identity.endpoint:
            raise SettingsError(
                f"Discord posts clicks and commands to {identity.endpoint} instead of handing them to the bot.",
                f"clear Interactions Endpoint URL: {PORTAL}/{identity.app}/information",
            )
        if identity.reads_all:
            return "It is on: conversations go on in threads without a mention."
        if self._progress.get("intent") == "off":
            return "It is off, as you chose: in threads the bot has to be mentioned each time."
        raise CheckSkipped("It is off: in threads the bot has to be mentioned each time.")

    async def guide(self) -> Sequence[str]:
        """Return the page with the switch."""
        if not await self._setup.has_token():
            return ["On the Bot page of the application switch on Message Content Intent, and press Save Changes."]
        app = (await self._setup.require_token()).app
        return [
            f"Open {PORTAL}/{app}/bot",
            "Below Privileged Gateway Intents switch on Message Content Intent, and press Save Changes.",
        ]

    async def ask(self, terminal: SetupTerminal) -> None:
        """Repeat the check until the intent is on or not wanted."""
        app = (await self._setup.require_token()).app
        await self._open(terminal, f"{PORTAL}/{app}/bot", "the Bot page of the application")
        while True:
            identity = await self._setup.check(self._setup.token)
            if identity.endpoint:
                terminal.report_error(
                    "Discord posts clicks and commands to an address instead of handing them to the bot.",
                    f"clear Interactions Endpoint URL: {PORTAL}/{app}/information",
                )
            elif identity.reads_all:
                self._progress.save(intent="")
                terminal.report_done("It is on: conversations go on in threads without a mention.")
                return
            else:
                terminal.say(
                    "Below Privileged Gateway Intents switch on Message Content Intent, and press Save Changes.",
                    "Without it, people have to mention the bot in threads each time.",
                )
            options = [("again", "It is done: look again"), ("off", "Go on without it")]
            if await terminal.choose("What now?", options[:1] if identity.endpoint else options) == "off":
                self._progress.save(intent="off")
                terminal.report_done("It stays off: in threads the bot has to be mentioned each time.")
                return


class ServerStep(DiscordStep):
    """The server that the bot is invited to."""

    name, title = "server", "Invite the bot to your server"

    async def inspect(self) -> str:
        """Return the server. The step is done while the bot is in it with all permissions."""
        if not await self._setup.has_token():
            raise CheckSkipped
        async with self._setup.rest() as rest:
            servers = await list_servers(rest)
            if not servers:
                raise CheckSkipped("The bot is in no server yet.")
            server = next((server for server in servers if server.id == self._setup.server), None)
            if server is None:
                names = ", ".join(f"{server.name} ({server.id})" for server in servers)
                raise CheckSkipped(f"The bot is in {names}; which one is meant was not said.")
            lacking = await missing_permissions(rest, server.id)
        if lacking:
            raise SettingsError(
                f"In {server.name} the bot lacks {', '.join(lacking)}.",
                f"invite it again: {invite_link((await self._setup.require_token()).app)}",
            )
        return f"The bot is in {server.name} ({server.id}), with all permissions."

    async def guide(self) -> Sequence[str]:
        """Return the invite link."""
        if not await self._setup.has_token():
            return ["The invite link needs the application's id, which comes with the token."]
        app = (await self._setup.require_token()).app
        return [
            "Open this address, choose the server, Continue, Authorize:",
            invite_link(app),
            "Then say which server it is: --server ID.",
            f"Write to {env_file()}: DISCORD_SERVERS=ID, so that the bot answers nowhere else.",
        ]

    async def apply(self) -> None:
        """Save the server of --server, or the only one."""
        if not await self._setup.has_token():
            return
        async with self._setup.rest() as rest:
            servers = await list_servers(rest)
        server = next((server for server in servers if server.id == self._options.server), None)
        if server is None and not self._options.server and len(servers) == 1:
            server = servers[0]
        if server is not None:
            self._note(server)
            if not self._values.get("DISCORD_SERVERS"):
                self._values.save({"DISCORD_SERVERS": server.id})

    async def ask(self, terminal: SetupTerminal) -> None:
        """Open the invite link, and wait until the bot is in a server."""
        identity = await self._setup.require_token()
        link = invite_link(identity.app)
        async with self._setup.rest() as rest:
            servers = await list_servers(rest)
            if not servers or self._options.redo == self.name:
                await self._open(terminal, link, "the invite link")
                terminal.say("Choose your server, Continue, and Authorize.")
                servers = await self._wait(terminal, rest, {server.id for server in servers})
            server = next((server for server in servers if server.id == self._setup.server), servers[0])
            if len(servers) > 1:
                choices = [(server, server.name) for server in servers[:25]]
                server = await terminal.choose("Which server?", choices, default=server)
            while lacking := await missing_permissions(rest, server.id):
                terminal.report_error(f"In {server.name} the bot lacks {', '.join(lacking)}.", "invite it again:")
                terminal.link(link)
                if await terminal.choose("What now?", [("again", "Look again"), ("go on", "Go on")]) == "go on":
                    break
        self._note(server)
        served = self._values.get("DISCORD_SERVERS")
        if not served and await terminal.confirm(f"Answer in {server.name} only, even if it is invited elsewhere?"):
            self._values.save({"DISCORD_SERVERS": server.id})
        elif served and server.id not in served:
            self._values.save({"DISCORD_SERVERS": self._values.with_names("DISCORD_SERVERS", [server.id])})
        terminal.report_done(f"The bot is in {server.name}.")

    async def _wait(self, terminal: SetupTerminal, rest: Rest, before: set[str]) -> Sequence[NamedId]:
        """Wait until the bot is in one more server. If it was in one `before`, give up after `options.wait` seconds."""

        async def find_added() -> Sequence[NamedId] | None:
            return [server for server in await list_servers(rest) if server.id not in before] or None

        while True:
            if (added := await self._wait_for(terminal, find_added)) is not None:
                return added
            if before:
                return await list_servers(rest)
            terminal.report_error("The bot was not invited to a server yet.", "open the address above, and Authorize")
            await terminal.wait_for_enter("Press Enter to look again")

    def _note(self, server: NamedId) -> None:
        if server.id != self._progress.get("server"):
            self._progress.save(server=server.id, server_name=server.name, channel="", message="")


class AdminsStep(PlatformAdminsStep[DiscordSetup]):
    """Administrators."""

    label = "Discord"
    default_admins = "Members with Administrator or Manage Server administer and approve."

    async def guide(self) -> Sequence[str]:
        """Return the variables that name them."""
        return [
            f"Write to {env_file()}: ADMINS=discord:ID (your user id: {_MEMBER_ID}),",
            "and who else may approve: APPROVERS=discord:ID,discord-role:ID",
            "Without ADMINS, members with Administrator or Manage Server administer and approve.",
            "Or let the setup look them up: --admin NAME, ID or workspace, --approver NAME or ID",
        ]

    async def apply(self) -> None:
        """Save the users of --admin and --approver, once there is a server to find them in."""
        if self._setup.server:
            await super().apply()

    async def _find_principals(self, admins: Sequence[str], approvers: Sequence[str]) -> tuple[list[str], list[str]]:
        async with self._setup.rest() as rest:
            return await self._principals(rest, admins), await self._principals(rest, approvers)

    async def _principals(self, rest: Rest, names: Sequence[str]) -> list[str]:
        return [f"discord:{(await _find_member(rest, self._setup.server, name)).id}" for name in names]

    async def ask(self, terminal: SetupTerminal) -> None:
        """Ask for an administrator, by default the owner of the application, and for further approvers."""
        async with self._setup.rest() as rest:
            owner, others = await fetch_owner(rest), self._values.settings().admins
            terminal.say("Administrators add servers and approve calls.")
            choices: list[tuple[NamedId | str, str]] = [
                ("name", "Somebody else, by name or id"),
                ("server", "Those of ADMINS alone" if others else "Members with Administrator or Manage Server"),
            ]
            if owner is not None:
                choices.insert(0, (owner, f"{owner.name} ({owner.id}), who owns the application"))
            chosen = await terminal.choose("Who administers?", choices, default=owner or "name")
            if chosen == "server":
                self._progress.save(admins=WORKSPACE)
                terminal.report_done(self._default_text(others))
                return
            if not isinstance(chosen, NamedId):
                chosen = await _find_member(rest, self._setup.server, await terminal.ask("Name or id of the member"))
            typed = await terminal.ask(
                "Who else may approve calls? Names or ids, with commas", shown_default="nobody else"
            )
            approvers = await self._principals(rest, split_names(typed))
        self._save([f"discord:{chosen.id}"], approvers)
        terminal.report_done(f"{chosen.name} ({chosen.id}) administers. It is in {env_file()}.")


async def _find_member(rest: Rest, server: str, typed: str) -> NamedId:
    try:
        members = await find_members(rest, server, typed) if typed.strip() else []
    except DiscordApiError as error:
        if error.status != 404:
            raise
        members = []
    if not members:
        raise NotFound(f"Nobody called {typed[:60]!r} is in the server.", f"write the id: {_MEMBER_ID}")
    if len(members) > 1:
        ids = ", ".join(f"{member.name} {member.id}" for member in members[:5])
        raise SettingsError(f"{len(members)} members have this name: {ids}.", "write the id of one of them")
    return members[0]


class ChannelStep(DiscordStep):
    """A channel in which the bot may post."""

    name, title = "channel", "Channel"

    async def inspect(self) -> str:
        """Return the channel of --channel or of the setup. The step is done while the bot may post in it."""
        wanted = self._options.channel or self._progress.get("channel")
        if not wanted or not self._setup.server or not await self._setup.has_token():
            raise CheckSkipped
        channel = _find_channel(await self._channels(), wanted)
        if channel is None:
            raise SettingsError(
                f"The bot may not post in {wanted}.", "let its role see the channel and send messages there"
            )
        return f"The bot may post in #{channel.name}."

    async def guide(self) -> Sequence[str]:
        """Return the channels to choose from."""
        if not self._setup.server or not await self._setup.has_token():
            return ["Say which it is: --channel #NAME or ID"]
        names = ", ".join(f"#{channel.name}" for channel in (await self._channels())[:10])
        return [f"Say which it is: --channel #NAME or ID. The bot may post in {names or 'none'}."]

    async def apply(self) -> None:
        """Note the channel of --channel."""
        if not self._options.channel or not self._setup.server or not await self._setup.has_token():
            return
        if (channel := _find_channel(await self._channels(), self._options.channel)) is not None:
            self._save_channel(channel.id, channel.name)

    async def ask(self, terminal: SetupTerminal) -> None:
        """Offer the channels in which the bot may post."""
        if not self._setup.server:
            raise SettingsError("There is no server yet.", "countersign setup discord --redo server")
        channels = await self._channels()
        if not channels:
            await terminal.wait_for_enter("Give the bot's role a channel to see and to write in, then press Enter")
            raise SettingsError("The bot may post in no channel.", "let its role see one and send messages there")
        default = _find_channel(channels, self._options.channel or self._progress.get("channel")) or channels[0]
        shown = [(channel, f"#{channel.name}") for channel in channels[:25]]
        channel = await terminal.choose("In which channel should it introduce itself?", shown, default)
        self._save_channel(channel.id, channel.name)
        terminal.report_done(f"The bot may post in #{channel.name}.")

    async def _channels(self) -> Sequence[NamedId]:
        async with self._setup.rest() as rest:
            return await list_channels(rest, self._setup.server)


def _find_channel(channels: Sequence[NamedId], wanted: str) -> NamedId | None:
    word = wanted.lstrip("#").casefold()
    return next((channel for channel in channels if word and word in (channel.id, channel.name.casefold())), None)


class MessageStep(PlatformMessageStep[DiscordSetup]):
    """The first message."""

    async def _post_in(self, channel: str) -> str:
        async with self._setup.rest() as rest:
            return await post_first_message(rest, self._setup.server, channel)


def steps(values: SetupValues, progress: Progress, options: SetupOptions) -> Sequence[Step]:
    """Return the steps in their order."""
    setup = DiscordSetup(values, progress, options)
    kinds = (AppStep, TokenStep, IntentStep, ServerStep, AdminsStep, ChannelStep, MessageStep)
    return [kind(setup) for kind in kinds]
