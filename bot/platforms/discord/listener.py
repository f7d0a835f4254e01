"""Discord listener: messages, interactions and commands from the gateway.

One process with the bot's token receives at a time (`ListenerLease`); its tasks end with the lease. Discord needs no
acknowledgement of messages and sends none twice: `messages` stores them, `backfill` reads those that were missed.
Interactions and commands are acknowledged at once.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from time import time
from typing import Any

import discord
from discord import app_commands

from bot.chat.backfill import Backfill
from bot.chat.background_tasks import BackgroundTasks, retry_until_available
from bot.chat.context import AudiencePolicy, with_card_forms
from bot.chat.listener_lease import LEASE_SECONDS, ListenerLease
from bot.chat.message_handler import MessageHandler
from bot.chat.rejection_messages import UNEXPECTED_ERROR
from bot.domain.commands import CompletionSource, Parameter, ParameterKind, Verb
from bot.domain.health import ListenerStatus
from bot.errors import DeliveryFailed
from bot.platforms.discord.app_commands import (
    ENTRIES,
    LONGEST,
    CommandGroup,
    choices,
    hint,
    levels,
    options,
    words,
)
from bot.platforms.discord.backfill import DiscordMissedMessages
from bot.platforms.discord.channels import PLATFORM, from_channel
from bot.platforms.discord.context import DiscordLookups, PlatformContext
from bot.platforms.discord.gateway import Gateway
from bot.platforms.discord.interactions import DiscordInteractions
from bot.platforms.discord.messages import DiscordMessage, DiscordMessagePlatform, parse_message
from bot.platforms.discord.rest import Rest, map_errors
from bot.platforms.discord.users import UserDirectory
from bot.ports import Commands, EngineApi, Leases
from bot.rendering.text_safety import single_line

log = logging.getLogger(__name__)

# -------------------- app commands
# Commands are global, so that they also exist in guilds that the bot joins later. They are not available in direct
# conversations, where no guild's rights apply; text commands are. `default_member_permissions` only hides commands:
# rights are checked when a command is answered.

Interaction = discord.Interaction[Any]
OnServers = app_commands.AppCommandContext(guild=True, dm_channel=False, private_channel=False)
ByServers = app_commands.AppInstallationType(guild=True, user=False)


REGISTER_SECONDS = 60.0
CHANGED = "This command has changed. Please type it once more; if it is still there as it was, reload Discord."


class CommandTree(app_commands.CommandTree[discord.Client]):
    """Commands of one client. The user is notified of errors."""

    def __init__(self, client: discord.Client, interactions: DiscordInteractions) -> None:
        super().__init__(client, allowed_contexts=OnServers, allowed_installs=ByServers)
        self._interactions = interactions

    async def on_error(self, interaction: Interaction, error: app_commands.AppCommandError, /) -> None:
        """Handle an error: a removed command that a client still shows, or a defect."""
        stale = isinstance(error, app_commands.CommandNotFound | app_commands.CommandSignatureMismatch)
        if not stale:
            log.error("command not answered", exc_info=getattr(error, "original", error))
        if interaction.type is not discord.InteractionType.autocomplete:
            await self._interactions.tell(interaction, CHANGED if stale else UNEXPECTED_ERROR)


def command_tree(
    client: discord.Client, verbs: Mapping[str, Sequence[Verb]], interactions: DiscordInteractions
) -> CommandTree:
    """Return the command tree of a client. Commands can be added before the registration. Raises ValueError if they
    exceed Discord's limits.
    """
    tree = CommandTree(client, interactions)
    for name, each in verbs.items():
        tree.add_command(_group(levels(name, each), interactions))
    return tree


async def register(tree: CommandTree) -> bool:
    """Register the commands if they changed. Return True if they did. Raises DeliveryFailed.

    Discord allows 200 new commands a day, and a process may start more often.
    """
    wanted = sorted(_comparable(command.to_dict(tree)) for command in tree.get_commands())
    client = tree.client
    with map_errors("register the commands"):
        async with asyncio.timeout(REGISTER_SECONDS):
            # Not `fetch_commands`: what discord.py 2.7 reads there forgets that a command is for servers.
            global_commands = await client.http.get_global_commands(int(client.application_id or 0))
            if wanted == sorted(map(_comparable, global_commands)):
                return False
            await tree.sync()
    return True


async def try_register(tree: CommandTree) -> None:
    """Register the commands; an error is logged, because it must not stop the listener."""
    try:
        if await register(tree):
            log.info("commands registered with Discord")
    except DeliveryFailed as error:
        log.warning("commands not registered with Discord: %s", error)


def _group(level: CommandGroup, interactions: DiscordInteractions) -> app_commands.Group:
    group = app_commands.Group(
        name=level.name,
        description=level.description,
        allowed_contexts=OnServers,
        allowed_installs=ByServers,
        default_permissions=discord.Permissions(manage_guild=True) if level.for_admins else None,
    )
    for word, verb in level.verbs.items():
        group.add_command(_subcommand(level.name, word, verb, interactions))
    for inner in level.groups:
        below = app_commands.Group(name=inner.name, description=inner.description, parent=group)
        for word, verb in inner.verbs.items():
            below.add_command(_subcommand(level.name, word, verb, interactions))
    return group


def _subcommand(
    command: str, word: str, verb: Verb, interactions: DiscordInteractions
) -> app_commands.Command[Any, ..., Any]:
    """Return a verb as a subcommand. discord.py reads options from a function's signature, so one is built."""
    asked = {f"option_{number}": each for number, each in enumerate(options(verb))}

    async def callback(interaction: Interaction, **given: str | bool) -> None:
        await interactions.on_slash_command(
            interaction, words(command, verb, {asked[name].name: each for name, each in given.items()})
        )

    callback.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("interaction", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=discord.Interaction),
            *(_signed(name, each) for name, each in asked.items()),
        ]
    )
    if asked:
        app_commands.describe(**{name: hint(each) for name, each in asked.items()})(callback)
        app_commands.rename(**{name: each.name for name, each in asked.items()})(callback)
    picked = {name: [app_commands.Choice(name=one, value=one) for one in choices(each)] for name, each in asked.items()}
    app_commands.choices(**{name: each for name, each in picked.items() if each})(callback)
    completed = {
        name: _completing(command, verb, each, interactions)
        for name, each in asked.items()
        if not picked[name] and (each.completes is not CompletionSource.NOTHING or each.choices)
    }
    app_commands.autocomplete(**completed)(callback)
    return app_commands.Command(name=word, description=single_line(verb.summary, LONGEST), callback=callback)


def _signed(name: str, parameter: Parameter) -> inspect.Parameter:
    """Return an option as discord.py reads it. An empty text means a missing option, because Discord sends no empty
    text.
    """
    flag = parameter.shape is ParameterKind.FLAG
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=bool if flag else str,
        default=inspect.Parameter.empty if parameter.required else False if flag else "",
    )


def _completing(
    command: str, verb: Verb, parameter: Parameter, interactions: DiscordInteractions
) -> Callable[[Interaction, str], Coroutine[Any, Any, list[app_commands.Choice[str]]]]:
    async def complete(interaction: Interaction, _current: str) -> list[app_commands.Choice[str]]:
        found = interactions.completions(interaction, verb, command, parameter)
        return [app_commands.Choice(name=single_line(each, LONGEST) or "…", value=each) for each in found[:ENTRIES]]

    return complete


def _comparable(command: Mapping[str, Any]) -> str:
    """Return a canonical text of a command, without Discord's defaults."""
    permissions = command.get("default_member_permissions")
    return repr(
        (
            command["type"],
            command["name"],
            command.get("description") or "",
            None if permissions is None else int(permissions),
            sorted(command.get("contexts") or ()),
            sorted(command.get("integration_types") or ()),
            bool(command.get("nsfw")),
            [_option(each) for each in command.get("options") or ()],
        )
    )


def _option(option: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        option["type"],
        option["name"],
        option["description"],
        bool(option.get("required")),
        bool(option.get("autocomplete")),
        [(each["name"], each["value"]) for each in option.get("choices") or ()],
        [_option(each) for each in option.get("options") or ()],
    )


class DiscordListener:
    """Receives from Discord. `holder` names this process among those with the same database; a process that dies
    without a word is followed by another after `lease_seconds`.
    """

    def __init__(
        self,
        rest: Rest,
        people: UserDirectory,
        leases: Leases,
        holder: str,
        *,
        audience: AudiencePolicy | None = None,
        records: DiscordLookups | None = None,
        lease_seconds: float = LEASE_SECONDS,
        clock: Callable[[], float] = time,
    ) -> None:
        self._rest = rest
        self._people = people
        self._leases = leases
        self._holder = holder
        self._audience = audience or AudiencePolicy()
        self._records = records or DiscordLookups()
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._lease: ListenerLease | None = None
        self._gateway: Gateway | None = None

    async def run(self, engine: EngineApi, commands: Commands) -> None:
        """Receive until cancelled, while no other process does; tasks in progress get a short time to finish. Raises
        DeliveryFailed if Discord rejects the token.
        """
        identity = await retry_until_available(self._rest.identity, "Discord")

        async def receive() -> None:
            platform = PlatformContext(
                engine=engine,
                commands=with_card_forms(engine, commands),
                audience=self._audience,
                background_tasks=BackgroundTasks(),
                records=self._records,
                rest=self._rest,
                people=self._people,
            )
            events = _GatewayEvents(platform)
            try:
                log.info("receiving from Discord as %s", identity.name)
                self._gateway = Gateway(self._rest, events, events.prepare, clock=self._clock)
                await self._gateway.run()
            finally:
                self._gateway = None
                await asyncio.gather(events.close(), platform.background_tasks.close())

        self._lease = ListenerLease(
            self._leases, f"discord-gateway:{identity.app}", self._holder, "Discord", seconds=self._lease_seconds
        )
        await self._lease.run_while_held(receive)

    async def listening(self) -> ListenerStatus:
        """Status of the listener, in this process or the one with the lease."""
        if self._gateway is not None and self._gateway.receiving:
            return ListenerStatus.CONNECTED
        is_standby = self._lease is not None and self._lease.is_standby
        return ListenerStatus.STANDBY if is_standby else ListenerStatus.CONNECTING


class _GatewayEvents:
    """Dispatches gateway events to their handlers."""

    def __init__(self, platform: PlatformContext) -> None:
        self._platform = platform
        self._interactions = DiscordInteractions(platform)
        self._message_platform = DiscordMessagePlatform(platform, self._interactions.on_text_command)
        self._messages = MessageHandler[DiscordMessage](
            self._message_platform,
            platform,
            on_unreadable=self._message_platform.explain_missing_intent,
        )

    async def prepare(self, client: discord.Client) -> None:
        """Add the commands to a client before it connects."""
        tree = command_tree(client, self._platform.commands.verbs, self._interactions)
        self._interactions.add_to(tree)
        self._platform.background_tasks.start(try_register(tree), "discord: commands")

    def on_connecting(self, _client: discord.Client, *, reads_all: bool) -> None:
        """Prepare for a client that is about to connect."""
        self._message_platform.reads_all = reads_all

    def on_session_start(self, client: discord.Client, at: float) -> None:
        """Handle a new session."""
        platform = self._platform
        missed = DiscordMissedMessages(platform, client)
        backfill = Backfill(PLATFORM, missed, self._messages, platform.engine, platform.records.engaged)
        platform.background_tasks.start(backfill.run(at), "discord: backfill")

    async def close(self) -> None:
        """Store the received messages after the last event."""
        await self._messages.close()

    async def on_message(self, message: discord.Message) -> None:
        """Handle a message."""
        if message.guild is not None and not self._platform.people.serves(str(message.guild.id)):
            return
        me = (await self._platform.rest.identity()).user
        parsed = parse_message(message, me, from_channel(message.channel), message.guild)
        if parsed is not None:
            await self._messages.handle(parsed)

    async def on_action(self, interaction: discord.Interaction[Any], custom_id: str) -> None:
        """Handle a click on a button."""
        self._interactions.on_action(interaction, custom_id)

    async def on_modal(self, interaction: discord.Interaction[Any]) -> None:
        """Handle the submission of a modal."""
        self._interactions.on_modal(interaction)
