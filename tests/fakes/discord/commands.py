"""Application commands: validation at registration, and lookup by a user."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.fakes.discord.apps import USER_INSTALL, App
from tests.fakes.discord.checks import choice, number, objects, only, text, unlike
from tests.fakes.discord.refusals import Json, Refused, invalid

CHAT, USER, MESSAGE = 1, 2, 3
IN_GUILD, IN_DM, IN_PRIVATE = 0, 1, 2
"""Contexts: in a guild, in the direct conversation with the bot, in conversations of users among themselves."""
SUBCOMMAND, GROUP = 1, 2
NAME = re.compile(r"^[-_'\w\u0900-\u097F\u0E00-\u0E7F]{1,32}$")
MOST = {CHAT: 100, USER: 15, MESSAGE: 15}
MOST_CHARACTERS = 8000
NAMES = ("name", "name_localizations", "description", "description_localizations", "options", "type", "nsfw", "id")
WHERE = (
    "default_member_permissions",
    "dm_permission",
    "default_permission",
    "integration_types",
    "contexts",
    "handler",
)
OPTION = ("type", "name", "name_localizations", "description", "description_localizations", "required", "choices")
BOUNDS = ("options", "channel_types", "min_value", "max_value", "min_length", "max_length", "autocomplete")
LOCALES = (
    "id", "da", "de", "en-GB", "en-US", "es-ES", "es-419", "fr", "hr", "it", "lt", "hu", "nl", "no", "pl", "pt-BR",
    "ro", "fi", "sv-SE", "vi", "tr", "cs", "el", "bg", "ru", "uk", "hi", "th", "zh-CN", "ja", "zh-TW", "ko",
)  # fmt: skip
"""Languages of clients (Discord, "Locales")."""
VALUES: dict[int, type | tuple[type, ...]] = {3: str, 4: int, 5: bool, 10: (int, float)}


def checked_commands(given: Any, app: App) -> list[Json]:
    """Return a whole set of commands.

    Raises:
        Refused: 50035, or 30032 for too many.
    """
    if not isinstance(given, list):
        raise invalid("", "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType")
    for n, command in enumerate(given):
        _check(str(n), command)
        _check_places(str(n), command, app)
    for kind, most in MOST.items():
        same = [command["name"] for command in given if command.get("type", CHAT) == kind]
        if len(same) > most:
            raise Refused(30032, message=f"Maximum number of application commands reached ({most}).")
        unlike("", same, "APPLICATION_COMMANDS_DUPLICATE_NAME", "Application command names must be unique")
    return given


def _check(where: str, command: Json) -> None:
    only(where, command, *NAMES, *WHERE)
    kind = command.get("type", CHAT)
    choice(f"{where}.type", kind, MOST)
    if kind == CHAT:
        _name(where, command)
        text(where, command, "description", 100, least=1, needed=True)
        _translations(where, command, {"name": 32, "description": 100})
        _options(where, command.get("options") or [], depth=0)
    else:
        text(where, command, "name", 32, least=1, needed=True)
        _translations(where, command, {"name": 32})
        for name in ("description", "options"):
            if command.get(name):
                what = "Context menu commands cannot have one."
                raise invalid(f"{where}.{name}", "APPLICATION_COMMAND_CONTEXT_MENU", what)
    if (size := sum(len(piece) for piece in counted_texts(command))) > MOST_CHARACTERS:
        message = f"Command exceeds maximum size ({size} > {MOST_CHARACTERS})"
        raise invalid(where, "APPLICATION_COMMAND_TOO_LARGE", message)


def _check_places(where: str, command: Json, app: App) -> None:
    """Check the places of a command: installations that the portal allows, and chats between users only with
    installation by users.
    """
    for name, values in (("integration_types", app.installations), ("contexts", (IN_GUILD, IN_DM, IN_PRIVATE))):
        given = command.get(name)
        if given is None:
            continue
        place = f"{where}.{name}"
        if not isinstance(given, list) or not given:
            raise invalid(place, "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 3 in length.")
        for n, value in enumerate(given):
            choice(f"{place}.{n}", value, values)
        unlike(place, given, "SET_TYPE_ALREADY_CONTAINS_VALUE", "The set already contains this value")
    if IN_PRIVATE in (command.get("contexts") or ()) and USER_INSTALL not in (command.get("integration_types") or ()):
        what = "Only commands that users install are there in their conversations."
        raise invalid(f"{where}.contexts", "APPLICATION_COMMAND_CONTEXT_INVALID", what)


def _name(where: str, given: Json) -> None:
    name = text(where, given, "name", 32, least=1, needed=True)
    if not NAME.match(name) or name != name.lower():
        raise invalid(f"{where}.name", "APPLICATION_COMMAND_INVALID_NAME", "Command name is invalid")


def _options(where: str, given: Any, depth: int) -> None:
    options = objects(f"{where}.options", given, 25)
    kinds = {option.get("type") in {SUBCOMMAND, GROUP} for option in options}
    if len(kinds) > 1:
        what = "Sub-command and sub-command group option types are mutually exclusive to all other types"
        raise invalid(f"{where}.options", "APPLICATION_COMMAND_OPTIONS_TYPE_INVALID", what)
    optional = False
    for n, option in enumerate(options):
        place = f"{where}.options.{n}"
        _option(place, option, depth)
        if option.get("required") and optional:
            what = "Required options must be placed before non-required options"
            raise invalid(place, "APPLICATION_COMMAND_OPTIONS_REQUIRED_INVALID", what)
        optional = optional or not option.get("required")
    names = [option["name"] for option in options]
    unlike(f"{where}.options", names, "APPLICATION_COMMAND_OPTIONS_NAME_INVALID", "Option names must be unique")


def _option(where: str, option: Json, depth: int) -> None:
    only(where, option, *OPTION, *BOUNDS)
    kind = option.get("type")
    allowed = {0: range(1, 12), 1: range(1, 12), 2: range(3, 12)}[depth]
    choice(f"{where}.type", kind, allowed)
    _name(where, option)
    text(where, option, "description", 100, least=1, needed=True)
    _translations(where, option, {"name": 32, "description": 100})
    if kind == GROUP and depth > 0:
        what = "A group stands at the top alone."
        raise invalid(f"{where}.type", "APPLICATION_COMMAND_OPTIONS_TYPE_INVALID", what)
    if kind in {SUBCOMMAND, GROUP}:
        children = option.get("options") or []
        if kind == GROUP and any(child.get("type") != SUBCOMMAND for child in children):
            what = "A group holds subcommands."
            raise invalid(where, "APPLICATION_COMMAND_OPTIONS_TYPE_INVALID", what)
        return _options(where, children, 2 if kind == SUBCOMMAND else 1)
    number(where, option, "min_length", 0, 6000)
    number(where, option, "max_length", 1, 6000)
    _choices(where, option)
    return None


def _choices(where: str, option: Json) -> None:
    choices = objects(f"{where}.choices", option.get("choices") or [], 25)
    if choices and option.get("autocomplete"):
        what = "An option with choices cannot have autocomplete"
        raise invalid(f"{where}.autocomplete", "APPLICATION_COMMAND_AUTOCOMPLETE_CHOICES", what)
    if option.get("autocomplete"):
        choice(f"{where}.type", option["type"], (3, 4, 10))
    check_choices(where, choices, option["type"])


def check_choices(where: str, choices: list[Json], kind: int) -> None:
    """Check the choices of an option, registered or given by autocomplete.

    Raises:
        Refused: 50035.
    """
    objects(f"{where}.choices", choices, 25)
    for n, each in enumerate(choices):
        place = f"{where}.choices.{n}"
        only(place, each, "name", "name_localizations", "value")
        text(place, each, "name", 100, least=1, needed=True)
        if kind == 3:
            text(place, each, "value", 100, needed=True)
        elif not isinstance(each.get("value"), VALUES[kind]) or isinstance(each["value"], bool):
            raise invalid(f"{place}.value", "NUMBER_TYPE_COERCE", f"Value {each.get('value')!r} is not a number.")


def untranslated_commands(entries: Iterable[Json]) -> list[Json]:
    """Return commands or options as Discord describes them without translations."""
    return [
        {name: value for name, value in entry.items() if not name.endswith("_localizations")}
        | ({"options": untranslated_commands(entry["options"])} if entry.get("options") else {})
        for entry in entries
    ]


def _translations(where: str, given: Json, lengths: Mapping[str, int]) -> None:
    """Check the translations of names and descriptions, each by the most characters of one."""
    for name, most in lengths.items():
        translated = given.get(f"{name}_localizations") or {}
        for locale in translated:
            place = f"{where}.{name}_localizations"
            choice(f"{place}.{locale}", locale, LOCALES)
            text(place, translated, locale, most, least=1)


def counted_texts(given: Json) -> Iterator[str]:
    """Yield the texts that count against 8,000 characters: names, descriptions and values, the longest translation."""
    for name in ("name", "description"):
        translated: Iterable[str] = (given.get(f"{name}_localizations") or {}).values()
        yield max([given.get(name) or "", *translated], key=len)
    yield from (each["value"] for each in given.get("choices") or [] if isinstance(each["value"], str))
    for each in [*(given.get("options") or []), *(given.get("choices") or [])]:
        yield from counted_texts(each)


def registered_command(command: Json, command_id: str, application: str, version: str) -> Json:
    """A command as Discord describes it once it is registered."""
    described: Json = {
        "default_member_permissions": None,
        "nsfw": False,
        "type": CHAT,
        "description": "",
        "integration_types": [0],
        "contexts": None,
        "options": [],
        "dm_permission": True,
    }
    described |= {name: value for name, value in command.items() if value is not None}
    return described | {"id": command_id, "application_id": application, "version": version}
