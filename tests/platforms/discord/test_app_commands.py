"""App commands registered at Discord, built from the verbs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import discord
import pytest

from bot.domain.commands import Parameter, ParameterKind, RequiredRole, Verb
from bot.domain.profiles import Profile
from bot.errors import DeliveryFailed
from bot.i18n import gettext_lazy
from bot.platforms.discord.app_commands import (
    ENTRIES,
    LONGEST,
    CommandTranslator,
    CommandTree,
    choices,
    command_tree,
    hint,
    levels,
    localized,
    options,
    register,
    suggestions,
    try_register,
    words,
)
from bot.platforms.discord.rest import Rest
from tests.admin.servers import CommandHarness, Servers, registry, two_servers
from tests.fakes.discord import Fails, FakeDiscord
from tests.fakes.discord.commands import counted_texts
from tests.fakes.parts import HALL

VERBS = registry(Servers()).verbs
COMMANDS = "PUT /applications/{application}/commands"
MOST_CHARACTERS = 7_000
"""Of 8,000, which Discord takes."""


NOBODY: Any = object()
"""Handler without a reply."""


def a_tree(
    verbs: Mapping[str, Sequence[Verb]] = VERBS, client: discord.Client | None = None, *, for_users: bool = False
) -> CommandTree:
    client = client or discord.Client(intents=discord.Intents.none())
    return command_tree(client, verbs, NOBODY, for_users=for_users)


def command_definitions(
    verbs: Mapping[str, Sequence[Verb]] = VERBS, *, for_users: bool = False
) -> dict[str, dict[str, Any]]:
    tree = a_tree(verbs, for_users=for_users)
    return {command.name: command.to_dict(tree) for command in tree.get_commands()}


def below(command: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the named objects of a command, the command first."""
    yield command
    for option in command.get("options") or ():
        yield from below(option)


def subcommands(command: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    for option in command["options"]:
        where = f"{path} {option['name']}".strip()
        if option["type"] == 1:
            yield where, option
        else:
            yield from subcommands(option, where)


def many(count: int, *others: Verb) -> tuple[Verb, ...]:
    return (*(Verb(f"verb-{number}", "does it") for number in range(count)), *others, Verb("help", "this list"))


# Registered commands


async def test_every_verb_is_a_subcommand_under_its_own_path_and_help_is_one_of_them() -> None:
    commands = command_definitions()
    for name, verbs in VERBS.items():
        if not verbs[0].path:
            assert [option["name"] for option in commands[name].get("options") or ()] == [
                parameter.name for parameter in verbs[0].parameters
            ]
            continue
        assert [path for path, _ in subcommands(commands[name])] != []
        assert {path.removeprefix("more ") for path, _ in subcommands(commands[name])} == {verb.path for verb in verbs}
        assert "help" in dict(subcommands(commands[name]))


async def test_everyday_commands_never_move_into_the_menu_of_the_rest() -> None:
    moved = {path for path, _ in subcommands(command_definitions()["mcp"]) if path.startswith("more ")}
    assert moved <= {"more health", "more import", "more stats", "more audit"}


async def test_registered_commands_keep_all_limits_of_discord() -> None:
    for command in command_definitions().values():
        everything = list(below(command))
        assert all(len(each.get("options") or ()) <= ENTRIES for each in everything)
        assert all(1 <= len(each["description"]) <= LONGEST for each in everything)
        assert all(1 <= len(each["name"]) <= 32 and each["name"] == each["name"].lower() for each in everything)
        assert all(len(each.get("choices") or ()) <= ENTRIES for each in everything)


async def test_a_command_leaves_room_for_more_options_in_every_language() -> None:
    tree, translator = a_tree(), CommandTranslator()
    for command in tree.get_commands():
        payload = await command.get_translated_payload(tree, translator)
        assert sum(map(len, counted_texts(payload))) <= MOST_CHARACTERS, command.name


async def test_options_have_descriptions_and_required_ones_come_first() -> None:
    found = dict(subcommands(command_definitions()["mcp"]))
    running = found["run"]["options"]
    assert [(each["name"], each["required"]) for each in running] == [
        ("server", True),
        ("tool", True),
        ("arguments", False),
    ]
    assert [bool(each.get("autocomplete")) for each in running] == [True, True, False]
    policy = {each["name"]: each for each in found["policy set"]["options"]}
    assert {"ask", "allow", "deny"} <= {each["value"] for each in policy["policy"]["choices"]}
    adding = {each["name"]: each for each in found["add"]["options"]}
    assert adding["no-verify"]["type"] == 5
    assert adding["header"]["description"].startswith("(several)")
    all_of_them = {parameter.name for parameter in next(verb for verb in VERBS["mcp"] if verb.path == "add").parameters}
    # Discord takes fewer options: those of the operator, and those of `edit`, are left out.
    flows = {"tool-limit", "preview", "words", "sends", "tool-words", "tool-sends", "tool-recipients"}
    later = {"sessions", "max-sessions", "session-idle-timeout", "protocol", "use-instructions", "tool-names"}
    later |= {"list-timeout", "tool-timeout-max", "connect-retries", "reconnect", "output-limit"}
    later |= {"fallback-group", "fallback-order"}
    operators = {"here", "allow", "from", "file", "only", "input", "yes", "digest"}
    assert all_of_them - set(adding) == {"auto-connect", "auto-context-tool", *operators, *flows, *later}
    backwards = Verb("x", "x", (Parameter("maybe", "maybe"), Parameter("must", "must", required=True)))
    assert [each["name"] for each in command_definitions({"y": (backwards,)})["y"]["options"][0]["options"]] == [
        "must",
        "maybe",
    ]


@pytest.mark.parametrize(("for_users", "contexts", "installs"), [(False, [0, 1], [0]), (True, [0, 1, 2], [0, 1])])
async def test_commands_work_in_direct_messages_and_for_users_who_installed_the_app(
    for_users: bool, contexts: list[int], installs: list[int]
) -> None:
    commands = command_definitions(for_users=for_users)
    assert all(command["contexts"] == contexts for command in commands.values())
    assert all(command["integration_types"] == installs for command in commands.values())


async def test_commands_are_hidden_only_where_they_are_for_admins_alone() -> None:
    only_admins = {"only": (Verb("clear", "clears"), Verb("help", "this list", who=RequiredRole.EVERYONE))}
    commands = command_definitions({**VERBS, **only_admins})
    hidden = {name: command["default_member_permissions"] for name, command in commands.items()}
    manage = discord.Permissions(manage_guild=True).value
    assert hidden == {**dict.fromkeys(VERBS), "only": manage}


# Above Discord's limits


async def test_verbs_beyond_those_that_fit_move_from_the_end_into_a_group() -> None:
    assert levels("x", many(24)).groups == ()
    level = levels("x", many(30, Verb("policy set", "sets")))
    assert len(level.verbs) + len(level.groups) == ENTRIES
    assert "help" in level.verbs
    more = next(group for group in level.groups if group.name == "more")
    assert list(more.verbs) == [f"verb-{number}" for number in range(22, 30)]
    found = dict(subcommands(command_definitions({"x": many(30, Verb("policy set", "sets"))})["x"]))
    assert "more verb-29" in found


async def test_a_group_beyond_its_room_goes_on_in_another() -> None:
    level = levels("x", [*(Verb(f"policy p{number}", "p") for number in range(27)), Verb("help", "this list")])
    assert [(group.name, len(group.verbs)) for group in level.groups] == [("policy", 25), ("policy-2", 2)]


async def test_options_in_no_possible_order_are_refused() -> None:
    with pytest.raises(ValueError, match="more verbs than Discord takes"):
        levels("x", many(60))


async def test_options_beyond_the_room_for_them_are_left_out_but_never_needed_ones() -> None:
    parameters = (
        *(Parameter(f"p{number}", "hint") for number in range(30)),
        Parameter("server", "which", required=True),
    )
    found = options(Verb("add", "adds", parameters))
    assert len(found) == ENTRIES
    assert found[0].name == "server"


def test_choices_that_are_too_many_are_completed_instead() -> None:
    few = Parameter("few", "hint", choices=("a", "b", "A"), metavar="a|b")
    lots = Parameter("lots", "hint", choices=tuple(f"c{number}" for number in range(26)))
    long = Parameter("long", "hint", choices=("x" * 101,))
    assert (choices(few), choices(lots), choices(long)) == (("a", "b"), (), ())
    text = localized(hint(Parameter("x", "h" * 300, ParameterKind.OPTION, repeated=True)), LONGEST)
    assert len(text.message) <= LONGEST


# Values of options


def test_a_json_object_is_one_word_and_pairs_are_several() -> None:
    run = next(verb for verb in VERBS["mcp"] if verb.path == "run")
    given = {"server": "notes", "tool": "add", "arguments": ' {"text": "a \'b\'"}'}
    assert words("mcp", run, given) == ("mcp", "run", "notes", "add", ' {"text": "a \'b\'"}')
    given["arguments"] = "text='two words' n=1"
    assert words("mcp", run, given) == ("mcp", "run", "notes", "add", "text=two words", "n=1")


def test_an_omitted_option_is_no_word() -> None:
    verb = next(verb for verb in VERBS["conversations"] if verb.path == "list")
    assert words("conversations", verb, {"all": False}) == ("conversations", "list")
    assert words("conversations", verb, {"all": True}) == ("conversations", "list", "--all")


def test_values_are_suggested_for_the_focused_option_alone() -> None:
    commands = registry(two_servers())
    verb = {f"{name} {each.path}": (name, each) for name, verbs in VERBS.items() for each in verbs}

    def offered_values(path: str, parameter: str, **given: str) -> list[str]:
        command, found = verb[path]
        asked = next(each for each in found.parameters if each.name == parameter)
        return suggestions(commands, HALL, (command, found), asked, given)

    assert offered_values("mcp show", "server") == ["notes", "web-search"]
    assert offered_values("mcp show", "server", server="ES") == ["notes"]
    assert offered_values("mcp policy set", "tool", server="notes") == ["list", "add", "delete"]
    assert offered_values("mcp policy set", "tool") == []
    assert offered_values("mcp resource show", "uri", server="notes") == ["notes://1"]
    assert offered_values("mcp prompt ask", "prompt", server="notes", prompt="x") == []
    assert offered_values("profile set", "server", server="notes w") == ["notes web-search"]


def test_names_of_agents_are_offered_in_any_script_and_a_question_is_one_text() -> None:
    held = CommandHarness()
    held.profiles.entries = {each.id: each for each in (Profile("p1", "Night shift"), Profile("p2", "データ"))}
    held.profiles.by_name = [("test:w:hall", "p1"), ("test:w:hall", "p2")]
    (ask,) = VERBS["ask"]
    agent = ask.parameters[0]
    assert suggestions(held.registry, HALL, ("ask", ask), agent, {}) == ["Night shift", "データ"]
    assert suggestions(held.registry, HALL, ("ask", ask), agent, {"agent": "デ"}) == ["データ"]
    assert suggestions(held.registry, HALL, ("ask", ask), agent, {"agent": "SHIFT"}) == ["Night shift"]
    given = {"agent": "Night shift", "question": 'what is "x" --y?'}
    assert words("ask", ask, given) == ("ask", "Night shift", 'what is "x" --y?')


# Registration


@asynccontextmanager
async def a_start(fake: FakeDiscord) -> AsyncIterator[CommandTree]:
    """The command tree of a connected process."""
    async with Rest(fake.token, url=fake.url) as rest:
        yield a_tree(client=await rest.client())


async def register_on_start(fake: FakeDiscord) -> bool:
    """Return True if the start of a process registers the commands."""
    async with a_start(fake) as tree:
        return await register(tree)


async def test_commands_are_registered_once_and_again_only_after_a_change() -> None:
    async with FakeDiscord() as fake:
        assert await register_on_start(fake)
        assert not await register_on_start(fake)
        assert len(fake.calls.of(COMMANDS)) == 1
        assert {each["name"] for each in fake.app.commands[""]} == set(VERBS)
        fake.app.commands[""][0]["options"][0]["description"] = "something of an earlier release"
        assert await register_on_start(fake)
        fake.app.commands[""][0]["default_member_permissions"] = "32"
        assert await register_on_start(fake)
        fake.app.commands[""] = fake.app.commands[""][1:]
        assert await register_on_start(fake)
        assert not await register_on_start(fake)


async def test_a_refused_registration_is_logged_and_receiving_goes_on() -> None:
    async with FakeDiscord() as fake, a_start(fake) as tree:
        fake.fail(COMMANDS, Fails(50013), times=2)
        with pytest.raises(DeliveryFailed):
            await register(tree)
        await try_register(tree)
        assert fake.app.commands.get("", []) == []


async def test_discord_has_the_descriptions_in_the_languages_of_its_clients_and_names_in_english_alone() -> None:
    reason = Parameter("reason", gettext_lazy("why, for the model"), ParameterKind.OPTION, repeated=True)
    verbs = {"approvals": (Verb("deny", gettext_lazy("deny one of them"), (reason,)), Verb("help", "this list"))}
    async with FakeDiscord() as fake, Rest(fake.token, url=fake.url) as rest:
        tree = a_tree(verbs, client=await rest.client())
        assert await register(tree)
        assert not await register(tree)
        (command,) = fake.app.commands[""]
        deny = dict(subcommands(command))["deny"]
        (option,) = deny["options"]
        assert deny["description"] == "deny one of them"
        assert deny["description_localizations"] == {"ja": "そのうち1件を却下"}
        assert option["description"] == "(several) why, for the model"
        assert option["description_localizations"] == {"ja": "（複数可）モデルに伝える理由"}
        assert not any(entry.get("name_localizations") for entry in below(command))
        deny["description_localizations"]["ja"] = "something of an earlier release"
        assert await register(tree)
