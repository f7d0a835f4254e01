"""Slash commands: verbs as subcommands, their options with completion, and the registration with Discord.

Verbs are Discord's subcommands and subcommand groups. If a level exceeds Discord's limit, the last verbs of the help
that stand alone move into an extra group (`/mcp more audit`), so that every verb stays available.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import shlex
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import discord
from discord import app_commands
from discord.http import Route

from bot.chat.actions import UNEXPECTED_ERROR
from bot.chat.message_handler import split_args
from bot.domain.commands import CompletionSource, Parameter, ParameterKind, RequiredRole, Verb
from bot.domain.conversations import ConversationKey
from bot.errors import DeliveryFailed
from bot.i18n import DEFAULT_LANGUAGE, LazyText, gettext_lazy, resolve_language, use_language
from bot.platforms.discord.interactions import DiscordInteractions
from bot.platforms.discord.markdown import utf16_length
from bot.platforms.discord.rest import map_errors
from bot.ports import Commands
from bot.rendering.text_safety import single_line

log = logging.getLogger(__name__)

ENTRIES = 25
"""Of a level, options of a subcommand, choices of an option (Discord, "Application Commands")."""
LONGEST = 100
"""Characters of a description, and of a choice."""
LONGEST_SUMMARY, LONGEST_HINT, LISTED = 60, 40, 4
"""Characters of a subcommand's and of an option's description, and choices of an option (others are completed). So a
command stays below Discord's 8,000 characters in every language.
"""
LONGEST_ENTRY = 32
"""Characters of the entry of a context menu."""
ASK_ABOUT_THIS = gettext_lazy("Ask about this")
MORE = "more"
HELP = "help"
REGISTER_SECONDS = 60.0
CHANGED = gettext_lazy(
    "This command has changed. Please type it once more; if it is still there as it was, reload Discord."
)
COMPLETION_SECONDS = 2.0
"""Discord waits three for completions."""
_TEXT, _LIMIT = "text", "limit"

Interaction = discord.Interaction[Any]


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """A command or a group: its own verbs by the word they are picked by, and the groups below it."""

    name: str
    verbs: dict[str, Verb]
    groups: tuple[CommandGroup, ...] = ()

    @property
    def description(self) -> str:
        """Names of the verbs, at most 100 characters."""
        return single_line(", ".join([*self.verbs, *(group.name for group in self.groups)]), LONGEST)

    @property
    def for_admins(self) -> bool:
        """True if only admins can use a verb other than `help`."""
        verbs = [verb for level in (self, *self.groups) for verb in level.verbs.values()]
        return all(verb.who is not RequiredRole.EVERYONE or verb.path == HELP for verb in verbs)


def levels(name: str, verbs: Sequence[Verb]) -> CommandGroup:
    """Return a command's verbs by group. Raises ValueError if they exceed Discord's limits."""
    ungrouped = {verb.path: verb for verb in verbs if " " not in verb.path}
    groups: dict[str, dict[str, Verb]] = {}
    for verb in verbs:
        group, _space, word = verb.path.partition(" ")
        if word:
            _group_with_room(groups, group)[word] = verb
    if len(ungrouped) + len(groups) > ENTRIES and MORE not in {*ungrouped, *groups}:
        moving = [path for path in ungrouped if path != HELP][ENTRIES - len(groups) - 1 - (HELP in ungrouped) :]
        groups[MORE] = {path: ungrouped.pop(path) for path in moving}
    if len(ungrouped) + len(groups) > ENTRIES or any(len(group) > ENTRIES for group in groups.values()):
        raise ValueError(f"/{name} has more verbs than Discord takes")
    return CommandGroup(name, ungrouped, tuple(CommandGroup(group, members) for group, members in groups.items()))


def options(verb: Verb) -> tuple[Parameter, ...]:
    """Return the options of a verb, required ones first, within Discord's limit. Omitted ones can be used in a text
    command.
    """
    return tuple(sorted(verb.parameters, key=lambda parameter: not parameter.required)[:ENTRIES])


def hint(parameter: Parameter) -> str:
    """Return the description of an option."""
    if parameter.repeated and parameter.shape is ParameterKind.OPTION:
        return gettext_lazy("(several) {hint}", hint=parameter.hint)
    return parameter.hint


def choices(parameter: Parameter) -> tuple[str, ...]:
    """Return the choices of an option, from its usage line; empty if there are none or too many."""
    shown = tuple(choice for choice in parameter.metavar.split("|") if choice in parameter.choices)
    listed = shown or parameter.choices
    return listed if len(listed) <= LISTED and all(0 < len(choice) <= LONGEST for choice in listed) else ()


def words(command: str, verb: Verb, given: Mapping[str, str | bool]) -> tuple[str, ...]:
    """Return the words of a command with these options, its name first; missing options are empty or False.

    Options precede positional arguments, because the parser reads no option after the first `KEY=VALUE`.
    """
    line = [command, *verb.path.split()]
    for parameter in verb.parameters:
        value = given.get(parameter.name)
        if not value or parameter.shape is ParameterKind.PLACE:
            continue
        if parameter.shape is ParameterKind.FLAG:
            line.append(f"--{parameter.name}")
        else:
            line += [f"--{parameter.name}={part}" for part in _values(parameter, str(value))]
    for positional in verb.places:
        if value := given.get(positional.name):
            line += _values(positional, str(value))
    return tuple(line)


def _values(parameter: Parameter, value: str) -> tuple[str, ...]:
    return split_args(value) if parameter.repeated and not value.lstrip().startswith("{") else (value,)


def _group_with_room(groups: dict[str, dict[str, Verb]], name: str) -> dict[str, Verb]:
    """Return the group of that name, or the first numbered one with room."""
    number = 1
    while len(group := groups.setdefault(name if number == 1 else f"{name}-{number}", {})) >= ENTRIES:
        number += 1
    return group


# -------------------- autocomplete


def suggestions(
    commands: Commands,
    conversation: ConversationKey,
    words: tuple[str, Verb],
    parameter: Parameter,
    given: Mapping[str, str],
) -> list[str]:
    """Return up to 25 completions of a parameter, prefix matches first. `words` are the command and the verb; `given`
    are the options so far, with the typed text of this one.
    """
    command, verb = words
    typed = given.get(parameter.name, "")
    before, _space, last = typed.rpartition(" ") if parameter.repeated else ("", "", typed)
    line = _line(command, verb, parameter, given)
    if line is None:
        return []
    other_choices = {choice for other in verb.parameters for choice in other.choices} - set(parameter.choices)
    values = (_value(completion.removeprefix(line)) for completion in commands.complete(line, conversation))
    return _matching((value for value in values if value not in other_choices), before, last)


def _line(command: str, verb: Verb, parameter: Parameter, given: Mapping[str, str]) -> str | None:
    """Return the command line before the value, or None if a required option is missing."""
    line = [command, *verb.path.split()]
    for positional in verb.places:
        if positional is parameter:
            break
        if value := given.get(positional.name):
            line.append(value)
        elif positional.required and parameter.shape is ParameterKind.PLACE:
            return None
    if parameter.shape is ParameterKind.OPTION:
        line.append(f"--{parameter.name}")
    return " ".join(line) + " "


def _value(completion: str) -> str:
    """Return a completion without quotes; empty for the name of an option."""
    try:
        return "" if completion.startswith("--") else " ".join(shlex.split(completion))
    except ValueError:
        return ""


def _matching(values: Iterable[str], before: str, typed: str) -> list[str]:
    typed = typed.casefold()
    matching = [value for value in dict.fromkeys(values) if value and typed in value.casefold()]
    matching.sort(key=lambda value: not value.casefold().startswith(typed))
    whole = (f"{before} {value}" if before else value for value in matching)
    return [value for value in whole if utf16_length(value) <= LONGEST][:ENTRIES]


# -------------------- translations
# Discord shows the texts of commands in the language of the client. Names are typed, so they are the same in all of
# them.


def localized(text: str, limit: int) -> app_commands.locale_str:
    """Return a text of at most `limit` characters for a registration, with its translations if it has any."""
    with use_language(DEFAULT_LANGUAGE):
        english = single_line(text, limit)
    return app_commands.locale_str(english, **{_TEXT: text, _LIMIT: limit})


class CommandTranslator(app_commands.Translator):
    """Translates the texts of `localized` into all installed languages."""

    def __init__(self) -> None:
        # discord.py asks for each of its thirty locales, text by text.
        resolved = {locale: resolve_language(locale.value) for locale in discord.Locale}
        self._languages = {locale: tag for locale, tag in resolved.items() if tag and tag != DEFAULT_LANGUAGE}

    async def translate(
        self,
        string: app_commands.locale_str,
        locale: discord.Locale,
        context: app_commands.TranslationContextTypes,  # noqa: ARG002 - a text has one translation everywhere
    ) -> str | None:
        """Return a text in the language of a locale, None for English and for a language that is not installed."""
        language = self._languages.get(locale)
        if language is None:
            return None
        extras = dict[str, Any](string.extras)
        text = extras.get(_TEXT)
        if not isinstance(text, LazyText):
            return None
        with use_language(language):
            return single_line(text, extras[_LIMIT])


# -------------------- registration
# Commands are global, so that they also exist in guilds that the bot joins later, and in direct conversations, where
# the rights in the user's guild apply. Users may install the app for themselves if its owner has switched that on:
# Discord rejects commands for an installation that the application does not have. `default_member_permissions` only
# hides commands in guilds: rights are checked when a command is answered.


class CommandTree(app_commands.CommandTree[discord.Client]):
    """Commands of one client. The user is notified of errors."""

    def __init__(self, client: discord.Client, interactions: DiscordInteractions, *, for_users: bool) -> None:
        contexts = app_commands.AppCommandContext(guild=True, dm_channel=True, private_channel=for_users)
        installs = app_commands.AppInstallationType(guild=True, user=for_users)
        super().__init__(client, allowed_contexts=contexts, allowed_installs=installs)
        self._interactions = interactions

    async def on_error(self, interaction: Interaction, error: app_commands.AppCommandError, /) -> None:
        """Handle an error: a removed command that a client still shows, or a defect."""
        stale = isinstance(error, app_commands.CommandNotFound | app_commands.CommandSignatureMismatch)
        if not stale:
            log.error("command not answered", exc_info=getattr(error, "original", error))
        if interaction.type is not discord.InteractionType.autocomplete:
            await self._interactions.tell(interaction, CHANGED if stale else UNEXPECTED_ERROR)


def command_tree(
    client: discord.Client, verbs: Mapping[str, Sequence[Verb]], interactions: DiscordInteractions, *, for_users: bool
) -> CommandTree:
    """Return the command tree of a client, with the slash commands. With `for_users`, users can install the app for
    themselves. Raises ValueError if the commands exceed Discord's limits.
    """
    tree = CommandTree(client, interactions, for_users=for_users)
    for name, verbs_of_command in verbs.items():
        single = next((verb for verb in verbs_of_command if not verb.path), None)
        if single is not None:
            tree.add_command(_subcommand(name, name, single, interactions))
        else:
            tree.add_command(_group(levels(name, verbs_of_command), interactions))
    return tree


def question_entry(interactions: DiscordInteractions) -> app_commands.ContextMenu:
    """Return the entry of the context menu that asks about a message."""
    name = localized(ASK_ABOUT_THIS, LONGEST_ENTRY)
    return app_commands.ContextMenu(name=name, callback=interactions.on_shortcut, type=discord.AppCommandType.message)


async def register(tree: CommandTree) -> bool:
    """Register the commands if they changed. Return True if they did. Raises DeliveryFailed.

    Discord allows 200 new commands a day, and a process may start more often.
    """
    translator, client = CommandTranslator(), tree.client
    payloads = [await command.get_translated_payload(tree, translator) for command in tree.get_commands()]
    wanted = sorted(map(_comparable, payloads))
    with map_errors(gettext_lazy("register the commands")):
        async with asyncio.timeout(REGISTER_SECONDS):
            # Not `fetch_commands`: discord.py 2.7 loses there that a command is for servers, and its translations.
            app = int(client.application_id or 0)
            route = Route("GET", "/applications/{application_id}/commands", application_id=app)
            global_commands = await client.http.request(route, params={"with_localizations": "true"})
            if wanted == sorted(map(_comparable, global_commands)):
                return False
            # Not `sync`, which would translate all texts again.
            await client.http.bulk_upsert_global_commands(app, payloads)
    return True


async def try_register(tree: CommandTree) -> None:
    """Register the commands; an error is logged, because it must not stop the listener."""
    try:
        if await register(tree):
            log.info("commands registered with Discord")
    except DeliveryFailed as error:
        log.warning("commands not registered with Discord: %s", error)


def _group(level: CommandGroup, interactions: DiscordInteractions) -> app_commands.Group:
    permissions = discord.Permissions(manage_guild=True) if level.for_admins else None
    group = app_commands.Group(name=level.name, description=level.description, default_permissions=permissions)
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
    parameters = {f"option_{number}": parameter for number, parameter in enumerate(options(verb))}

    async def callback(interaction: Interaction, **values: str | bool) -> None:
        given = {parameters[name].name: value for name, value in values.items()}
        await interactions.on_slash_command(interaction, words(command, verb, given))

    callback.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("interaction", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=discord.Interaction),
            *(_signature_parameter(name, parameter) for name, parameter in parameters.items()),
        ]
    )
    if parameters:
        app_commands.describe(
            **{name: localized(hint(parameter), LONGEST_HINT) for name, parameter in parameters.items()}
        )(callback)
        app_commands.rename(**{name: parameter.name for name, parameter in parameters.items()})(callback)
    choices_by_name = {
        name: [app_commands.Choice(name=choice, value=choice) for choice in choices(parameter)]
        for name, parameter in parameters.items()
    }
    app_commands.choices(**{name: listed for name, listed in choices_by_name.items() if listed})(callback)
    completed = {
        name: _completing(command, verb, parameter, interactions)
        for name, parameter in parameters.items()
        if not choices_by_name[name] and (parameter.completes is not CompletionSource.NOTHING or parameter.choices)
    }
    app_commands.autocomplete(**completed)(callback)
    return app_commands.Command(name=word, description=localized(verb.summary, LONGEST_SUMMARY), callback=callback)


def _signature_parameter(name: str, parameter: Parameter) -> inspect.Parameter:
    """Return an option as discord.py reads it. An empty text means a missing option, because Discord sends no empty
    text.
    """
    is_flag = parameter.shape is ParameterKind.FLAG
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=bool if is_flag else str,
        default=inspect.Parameter.empty if parameter.required else False if is_flag else "",
    )


def _completing(
    command: str, verb: Verb, parameter: Parameter, interactions: DiscordInteractions
) -> Callable[[Interaction, str], Coroutine[Any, Any, list[app_commands.Choice[str]]]]:
    async def complete(interaction: Interaction) -> Sequence[str]:
        async with asyncio.timeout(COMPLETION_SECONDS):
            conversation = await interactions.conversation_for_completion(interaction)
        if conversation is None:
            return ()
        given = {name: str(value) for name, value in interaction.namespace}
        return suggestions(interactions.commands, conversation, (command, verb), parameter, given)

    async def try_complete(interaction: Interaction, _current: str) -> list[app_commands.Choice[str]]:
        try:
            values = await complete(interaction)
        except (DeliveryFailed, TimeoutError) as error:
            log.info("completions of an option not shown: %s", error)
            values = ()
        except Exception:
            log.exception("completions of an option failed")
            values = ()
        return [app_commands.Choice(name=single_line(value, LONGEST) or "…", value=value) for value in values]

    return try_complete


def _comparable(command: Mapping[str, Any]) -> str:
    """Return a canonical text of a command, without Discord's defaults."""
    permissions = command.get("default_member_permissions")
    return repr(
        (
            command["type"],
            command["name"],
            command.get("description") or "",
            *_translations(command),
            None if permissions is None else int(permissions),
            sorted(command.get("contexts") or ()),
            sorted(command.get("integration_types") or ()),
            bool(command.get("nsfw")),
            [_option(option) for option in command.get("options") or ()],
        )
    )


def _translations(entry: Mapping[str, Any]) -> Iterator[list[tuple[str, str]]]:
    for name in ("name_localizations", "description_localizations"):
        yield sorted((entry.get(name) or {}).items())


def _option(option: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        option["type"],
        option["name"],
        option["description"],
        *_translations(option),
        bool(option.get("required")),
        bool(option.get("autocomplete")),
        [(choice["name"], choice["value"]) for choice in option.get("choices") or ()],
        [_option(nested) for nested in option.get("options") or ()],
    )
