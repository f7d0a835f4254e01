"""Lookup of commands by name, and completion from cached data."""

from __future__ import annotations

from bot.admin.registry import CommandRegistry
from bot.domain.commands import FormSubmission, Reply, Verb
from tests.admin.servers import ADMIN, Servers, command_harness, registry, two_servers, with_jira
from tests.fakes.parts import HALL

ELSEWHERE = HALL.parse("test:other:hall:1")


async def test_a_misspelt_command_is_answered_with_the_one_that_was_meant() -> None:
    reply = await command_harness().ask("mpc list")
    assert reply.failed
    assert reply.text.startswith("There is no such command. Did you mean `/mcp`?")


async def test_a_command_unlike_any_other_is_answered_with_those_there_are() -> None:
    reply = await command_harness().ask("xyzzy")
    known = (
        "`/mcp`, `/profile`, `/ask`, `/agents`, `/conversations`, `/approvals`, `/usage`, `/preferences`, `/console`"
    )
    assert reply.text == f"There is no such command. What there is: {known}."


async def test_a_form_that_was_never_opened_is_a_reply_and_no_exception() -> None:
    for form in ("", "add", "mcp", "mcp list:1", "mcp add", "mcp edit:x:y:z", "profile set", "mcp secret set"):
        answers = [each async for each in registry(Servers()).handle(FormSubmission(form, {}, ADMIN, HALL))]
        assert len(answers) == 1
        assert not isinstance(answers[0], Reply) or answers[0].failed, form


def test_completion_offers_verbs_then_servers_then_their_tools() -> None:
    commands = registry(two_servers())
    assert commands.complete("m", HALL) == ["mcp"]
    assert commands.complete("mcp sh", HALL) == ["mcp show"]
    assert commands.complete("mcp show ", HALL) == ["mcp show notes", "mcp show web-search"]
    assert commands.complete("mcp tools w", HALL) == ["mcp tools web-search"]
    assert commands.complete("mcp policy s", HALL) == ["mcp policy set"]
    assert commands.complete("mcp policy set notes d", HALL) == [
        "mcp policy set notes delete",
        "mcp policy set notes deny",
    ]
    assert commands.complete("mcp policy set notes add al", HALL) == ["mcp policy set notes add allow"]
    assert commands.complete("mcp run notes a", HALL) == ["mcp run notes add"]
    assert commands.complete("mcp resource notes n", HALL) == ["mcp resource notes notes://1"]
    assert commands.complete("mcp prompt notes s", HALL) == ["mcp prompt notes summary"]
    assert commands.complete("mcp add x --au", HALL) == [
        "mcp add x --auth",
        "mcp add x --auth-header",
        "mcp add x --auto-connect",
        "mcp add x --auto-context-tool",
    ]
    assert commands.complete("mcp add x --auth b", HALL) == ["mcp add x --auth basic"]
    assert commands.complete("usage W", HALL) == ["usage workspace"]
    assert commands.complete("mcp x", HALL) == commands.complete("xyzzy ", HALL) == []


async def test_completion_knows_no_server_of_another_workspace_and_those_that_came_later() -> None:
    held = await with_jira()
    commands = held.registry
    assert commands.complete("mcp show j", HALL) == ["mcp show jira"]
    assert commands.complete("mcp show j", ELSEWHERE) == []
    assert commands.complete("mcp tools n", ELSEWHERE) == ["mcp tools notes"]


def test_verbs_fit_where_platforms_register_them() -> None:
    """Discord: 25 entries a level, of which one may be a group for those beyond; one level of groups, names of 32
    characters, descriptions of 100 ("Application Commands" of its documentation).
    """
    commands: CommandRegistry = registry(Servers())
    for verbs in commands.verbs.values():
        entries = {verb.path.partition(" ")[0] for verb in verbs}
        assert len(entries) <= 24 + 25
        assert "" not in entries or len(verbs) == 1
        groups: dict[str, list[Verb]] = {}
        for verb in verbs:
            assert len(verb.path.split()) <= 2
            assert len(verb.summary) <= 100
            assert all(
                len(parameter.name) <= 32 and parameter.hint and len(parameter.hint) <= 100
                for parameter in verb.parameters
            )
            groups.setdefault(verb.path.partition(" ")[0], []).append(verb)
        for group in groups.values():
            assert len(group) == 1 or all(" " in verb.path for verb in group)
            assert len(group) <= 25
