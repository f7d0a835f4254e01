"""`/mcp`, `/profile` and the other commands as Discord's application commands, made of the verbs that describe them.

Called by whoever opens the gateway: `command_tree` makes them for one client, `register` tells Discord, once, and only
if Discord knows others. They are global: one list holds on every server the bot is on or ever will be, also for those
that join later, and clients that show an older one correct themselves when it is used. None of them exists in direct
conversations, where no server's rights hold; there the same words are said to the bot. What Discord lets people see
by `default_member_permissions` is a convenience: whether they may is asked when the command is answered.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import discord
from discord import app_commands

from bot.chat.rejection_messages import TROUBLE
from bot.domain.commands import CompletionSource, Parameter, ParameterKind, Verb
from bot.errors import DeliveryFailed
from bot.platforms.discord.command_groups import ENTRIES, LONGEST, CommandGroup, choices, hint, levels, options, words
from bot.platforms.discord.errors import map_errors
from bot.rendering.text_safety import single_line

log = logging.getLogger(__name__)

Interaction = discord.Interaction[Any]
OnServers = app_commands.AppCommandContext(guild=True, dm_channel=False, private_channel=False)
ByServers = app_commands.AppInstallationType(guild=True, user=False)


REGISTER_SECONDS = 60.0
CHANGED = "This command has changed. Please type it once more; if it is still there as it was, reload Discord."


class Answering(Protocol):
    """Whoever answers what is typed."""

    async def typed(self, interaction: Interaction, words: tuple[str, ...]) -> None:
        """Answer a command: its words with its name first. Raises nothing but cancellation."""

    async def failed(self, interaction: Interaction, why: str) -> None:
        """Say to whoever typed something that nothing came of it. Raises nothing but cancellation."""

    def completions(self, interaction: Interaction, verb: Verb, command: str, parameter: Parameter) -> Sequence[str]:
        """What may be filled in, given what is filled in already: at once, and never an error."""


class CommandTree(app_commands.CommandTree[discord.Client]):
    """The commands of one client. What goes wrong in any of them is told to whoever used it."""

    def __init__(self, client: discord.Client, answering: Answering) -> None:
        super().__init__(client, allowed_contexts=OnServers, allowed_installs=ByServers)
        self._answering = answering

    async def on_error(self, interaction: Interaction, error: app_commands.AppCommandError, /) -> None:
        """A command out of a list that somebody's client still shows, or a fault of ours."""
        stale = isinstance(error, app_commands.CommandNotFound | app_commands.CommandSignatureMismatch)
        if not stale:
            log.error("a command could not be answered", exc_info=getattr(error, "original", error))
        if interaction.type is not discord.InteractionType.autocomplete:
            await self._answering.failed(interaction, CHANGED if stale else TROUBLE)


def command_tree(client: discord.Client, verbs: Mapping[str, Sequence[Verb]], answering: Answering) -> CommandTree:
    """All commands for a client. More can be added before they are registered. Raises ValueError if Discord could not
    take them.
    """
    tree = CommandTree(client, answering)
    for name, each in verbs.items():
        tree.add_command(_group(levels(name, each), answering))
    return tree


async def register(tree: CommandTree) -> bool:
    """Tell Discord what commands there are, unless it knows; whether it had to be told. Raises DeliveryFailed.

    Discord counts 200 new commands a day, and a process may start more often than that.
    """
    wanted = sorted(_told(command.to_dict(tree)) for command in tree.get_commands())
    client = tree.client
    with map_errors("register the commands"):
        async with asyncio.timeout(REGISTER_SECONDS):
            # Not `fetch_commands`: what discord.py 2.7 reads there forgets that a command is for servers.
            known = await client.http.get_global_commands(int(client.application_id or 0))
            if wanted == sorted(map(_told, known)):
                return False
            await tree.sync()
    return True


async def try_register(tree: CommandTree) -> None:
    """The same where it must not keep anybody from receiving: what goes wrong is logged."""
    try:
        if await register(tree):
            log.info("Discord has been told of the commands")
    except DeliveryFailed as error:
        log.warning("Discord does not know the commands as they are now: %s", error)


def _group(level: CommandGroup, answering: Answering) -> app_commands.Group:
    group = app_commands.Group(
        name=level.name,
        description=level.description,
        allowed_contexts=OnServers,
        allowed_installs=ByServers,
        default_permissions=discord.Permissions(manage_guild=True) if level.for_admins else None,
    )
    for word, verb in level.verbs.items():
        group.add_command(_subcommand(level.name, word, verb, answering))
    for inner in level.groups:
        below = app_commands.Group(name=inner.name, description=inner.description, parent=group)
        for word, verb in inner.verbs.items():
            below.add_command(_subcommand(level.name, word, verb, answering))
    return group


def _subcommand(command: str, word: str, verb: Verb, answering: Answering) -> app_commands.Command[Any, ..., Any]:
    """A verb as a subcommand. discord.py reads options off a function's signature, so one is written for it."""
    asked = {f"option_{number}": each for number, each in enumerate(options(verb))}

    async def callback(interaction: Interaction, **given: str | bool) -> None:
        await answering.typed(
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
        name: _completing(command, verb, each, answering)
        for name, each in asked.items()
        if not picked[name] and (each.completes is not CompletionSource.NOTHING or each.choices)
    }
    app_commands.autocomplete(**completed)(callback)
    return app_commands.Command(name=word, description=single_line(verb.summary, LONGEST), callback=callback)


def _signed(name: str, parameter: Parameter) -> inspect.Parameter:
    """An option as discord.py reads it. Discord sends no empty text: it stands for one that was left out."""
    flag = parameter.shape is ParameterKind.FLAG
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=bool if flag else str,
        default=inspect.Parameter.empty if parameter.required else False if flag else "",
    )


def _completing(
    command: str, verb: Verb, parameter: Parameter, answering: Answering
) -> Callable[[Interaction, str], Coroutine[Any, Any, list[app_commands.Choice[str]]]]:
    async def complete(interaction: Interaction, _current: str) -> list[app_commands.Choice[str]]:
        found = answering.completions(interaction, verb, command, parameter)
        return [app_commands.Choice(name=single_line(each, LONGEST) or "…", value=each) for each in found[:ENTRIES]]

    return complete


def _told(command: Mapping[str, Any]) -> str:
    """A command as text in which all that counts is written down, and what Discord adds or leaves out is not."""
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
