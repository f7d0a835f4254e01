"""`/mcp resource` and `/mcp prompt`: lists of the servers' resources and prompts, and the turns they start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.domain.commands import Form, Reply
from bot.domain.conversations import InboundMessage
from bot.domain.messages import ToolCall
from bot.domain.profiles import Profile
from bot.domain.servers import (
    CompletionTarget,
    Prompt,
    PromptArgument,
    Resource,
    ResourceTemplate,
    ServerCapabilities,
    ServerSnapshot,
    ServerStatus,
    SyncStatus,
)
from tests.admin.servers import GUEST, NOTES, WEB, CommandHarness, Servers, command_harness
from tests.admin.test_forms import errors
from tests.fakes.parts import HALL


class WithTemplates(Servers):
    """Servers of which one also has resource templates."""

    def capabilities(self, server: str) -> ServerCapabilities:
        templates = (ResourceTemplate("notes://by/{author}{?year}", "by author"),) if server == NOTES.id else ()
        return replace(super().capabilities(server), templates=templates)


@pytest.fixture
def held() -> CommandHarness:
    held = command_harness()
    before = held.servers
    held.servers = WithTemplates(before.states, before.offered, before.prompts, before.resources)
    return held


def limit_to_web(held: CommandHarness) -> None:
    """Bind a profile without the server that has resources."""
    held.profiles.entries["p-1"] = Profile("p-1", "Web", workspace="test:w", servers=frozenset({WEB.id}), version=1)
    held.profiles.bound["test:w"] = "p-1"


def message_of(reply: Reply | Form) -> InboundMessage:
    assert isinstance(reply, Reply), reply
    assert reply.message is not None
    return reply.message


def attached_call(reply: Reply | Form) -> ToolCall:
    (call,) = message_of(reply).attached
    return call


async def test_the_list_has_a_button_to_ask_about_each(held: CommandHarness) -> None:
    reply = await held.ask("mcp resource list", GUEST)
    assert reply.table is not None
    assert [row[1] for row in reply.table.rows] == ["notes://1", "notes://by/{author}{?year}"]
    assert [(action.label, action.words) for action in reply.actions] == [
        ("Ask about first", ("mcp", "resource", "ask", "notes", "notes://1")),
        ("Ask about by author", ("mcp", "resource", "ask", "notes", "notes://by/{author}{?year}")),
    ]


@pytest.mark.parametrize(("line", "uris"), [("first", 1), ("AUTHOR nothing", 1), ("notes first", 1), ("nothing", 0)])
async def test_the_list_is_searched_by_words(held: CommandHarness, line: str, uris: int) -> None:
    reply = await held.ask(f"mcp resource list {line}")
    assert len(reply.table.rows if reply.table else ()) == uris


async def test_thousands_are_listed_in_pages(held: CommandHarness) -> None:
    held.servers.resources[NOTES.id] = tuple(Resource(f"notes://{n}", f"note {n}") for n in range(10_000))
    reply = await held.ask("mcp resource list notes note")
    assert reply.page is not None
    assert (reply.page.of, reply.page.words) == (1_001, ("mcp", "resource", "list", "notes", "note"))
    assert len(reply.actions) == 10


async def test_a_question_on_the_line_is_asked_at_once(held: CommandHarness) -> None:
    reply = await held.ask("mcp resource ask notes notes://1 What is it?", GUEST)
    assert message_of(reply).text == "What is it?"
    assert (attached_call(reply).name, dict(attached_call(reply).arguments)) == (
        "notes__read_mcp_resource",
        {"uri": "notes://1"},
    )


async def test_without_a_question_a_form_asks_for_it(held: CommandHarness) -> None:
    form = await held.form("mcp resource ask notes notes://1", GUEST)
    assert [field.label for field in form.fields] == ["Question"]
    assert "not as instructions" in form.intro
    assert errors(await held.submit(form, {"question": " "}, GUEST)) == {"question": "Something is needed here."}
    reply = await held.submit(form, {"question": "What\nis it?"}, GUEST)
    assert message_of(reply).text == "What\nis it?"
    assert dict(attached_call(reply).arguments) == {"uri": "notes://1"}


async def test_a_template_is_filled_in_in_the_form(held: CommandHarness) -> None:
    form = await held.form("mcp resource ask notes notes://by/{author}{?year} Who?", GUEST)
    assert [(field.label, field.value) for field in form.fields] == [("author", ""), ("year", ""), ("Question", "Who?")]
    reply = await held.submit(form, {"value0": "ana", "value1": "2026"}, GUEST)
    assert dict(attached_call(reply).arguments) == {
        "uri": "notes://by/{author}{?year}",
        "values": {"author": "ana", "year": "2026"},
    }
    shown = await held.ask("mcp resource show notes notes://by/{author}{?year}")
    assert shown.failed
    assert "Fill in author, year" in shown.text


async def test_showing_one_is_a_call_by_hand(held: CommandHarness) -> None:
    message = message_of(await held.ask("mcp resource notes notes://1", GUEST))
    assert message.call is not None
    assert (message.call.name, message.text) == ("notes__read_mcp_resource", "Read notes://1 of notes")


async def test_an_address_like_a_token_is_taken_and_a_token_is_not(held: CommandHarness) -> None:
    odd = "notes://Zk29vT4xQp81LmNs7RtYw3Bc"
    assert attached_call(await held.ask(f"mcp resource ask notes {odd} Why?")).arguments["uri"] == odd
    form = await held.form(f"mcp resource ask notes {odd}")
    token = "ghp_" + "aB3dE5gH7jK9mN1pQ2sT4vW6xY8zA0cD2eF4"
    assert errors(await held.submit(form, {"question": token})).keys() == {"question"}


async def test_items_that_the_profile_does_not_enable_are_neither_listed_nor_requested(held: CommandHarness) -> None:
    limit_to_web(held)
    assert "No resources are offered here" in (await held.ask("mcp resource list")).text
    assert "No prompts are offered here" in (await held.ask("mcp prompt")).text
    for line in (
        "mcp resource list notes",
        "mcp resource show notes notes://1",
        "mcp resource ask notes notes://1 Why?",
        "mcp prompt notes summary topic=x",
        "mcp prompt show notes summary topic=x",
    ):
        reply = await held.ask(line)
        assert reply.failed
        assert "not enabled in the profile of this place" in reply.text
    assert held.registry.complete("mcp resource show notes n", HALL) == []


async def test_a_form_that_was_open_before_the_profile_changed_asks_nothing(held: CommandHarness) -> None:
    form = await held.form("mcp resource ask notes notes://1")
    limit_to_web(held)
    reply = await held.reply_to(form, {"question": "What is it?"})
    assert reply.failed


@pytest.mark.parametrize(
    ("status", "sync", "words"),
    [
        (ServerStatus.CONNECTED, SyncStatus.SYNCED, "`web-search` has no resources."),
        (ServerStatus.FAILED, SyncStatus.NEVER_SYNCED, "is not connected, and its resources are not known."),
    ],
)
async def test_a_server_without_resources_says_so_or_why_they_are_not_known(
    held: CommandHarness, status: ServerStatus, sync: SyncStatus, words: str
) -> None:
    held.servers.states[1] = ServerSnapshot(WEB, status, sync=sync)
    for line in ("mcp resource list web-search", "mcp resource ask web-search x://1 Why?"):
        reply = await held.ask(line)
        assert reply.failed
        assert words in reply.text


@pytest.mark.parametrize("status", [ServerStatus.DISABLED, ServerStatus.DISCONNECTED])
async def test_items_of_a_disabled_server_are_neither_listed_nor_requested(
    held: CommandHarness, status: ServerStatus
) -> None:
    held.servers.states[0] = ServerSnapshot(NOTES, status, sync=SyncStatus.SYNCED)
    assert "No resources are offered here" in (await held.ask("mcp resource list")).text
    for line in ("mcp resource ask notes notes://1 Why?", "mcp prompt notes summary topic=x"):
        reply = await held.ask(line)
        assert reply.failed
        assert f"`notes` is {status.value}" in reply.text


async def test_prompts_are_listed_with_their_arguments_and_a_button(held: CommandHarness) -> None:
    for line in ("mcp prompt", "mcp prompt notes", "mcp prompt list notes", "mcp prompts"):
        reply = await held.ask(line, GUEST)
        assert reply.table is not None
        assert reply.table.rows == (("notes", "summary", "topic", "Sum up"),)
        assert [action.words for action in reply.actions] == [("mcp", "prompt", "ask", "notes", "summary")]


async def test_a_prompt_asks_for_its_arguments_in_a_form(held: CommandHarness) -> None:
    form = await held.form("mcp prompt notes summary", GUEST)
    assert [(field.label, field.required) for field in form.fields] == [("topic", True)]
    assert errors(await held.submit(form, {}, GUEST)) == {"argument0": "Something is needed here."}
    reply = await held.submit(form, {"argument0": "trees"}, GUEST)
    assert message_of(reply).text == "Prompt summary of notes (topic: trees)"
    assert attached_call(reply).name == "notes__get_mcp_prompt"
    assert dict(attached_call(reply).arguments) == {"name": "summary", "arguments": {"topic": "trees"}}


async def test_many_arguments_are_asked_for_in_steps_and_optional_ones_may_stay_empty(
    held: CommandHarness,
) -> None:
    many = tuple(PromptArgument(f"part {n}", f"the part {n}", required=n < 6) for n in range(8))
    held.servers.prompts[NOTES.id] = (Prompt("report", arguments=many),)
    first = await held.form("mcp prompt notes report", GUEST)
    assert len(first.fields) == 5
    second = await held.next_form(first, {f"argument{n}": f"v{n}" for n in range(5)}, GUEST)
    assert [(field.label, field.hint) for field in second.fields] == [(f"part {n}", f"the part {n}") for n in (5, 6, 7)]
    reply = await held.submit(second, {"argument5": "v5"}, GUEST)
    assert attached_call(reply).arguments["arguments"] == {f"part {n}": f"v{n}" for n in range(6)}


async def test_fields_have_the_suggestions_of_the_server_which_gets_the_other_values(
    held: CommandHarness,
) -> None:
    two = (PromptArgument("city", "Where it is.", required=True), PromptArgument("sku"))
    held.servers.prompts[NOTES.id] = (Prompt("report", arguments=two),)
    held.servers.suggestions = {"city": ("Kyoto", "Osaka"), "sku": tuple(f"article {n}" for n in range(99))}
    form = await held.form("mcp prompt notes report")
    city, sku = form.fields
    assert city.hint == "Where it is: such as Kyoto, Osaka"
    assert sku.hint.startswith("such as article 0, article 1, ")
    assert len(sku.hint) <= 100
    await held.form("mcp prompt notes report sku=A-1")
    assert held.servers.asked_to_complete[-1] == (CompletionTarget("report", "city"), {"sku": "A-1"})


async def test_a_prompt_without_arguments_asks_at_once(held: CommandHarness) -> None:
    held.servers.prompts[NOTES.id] = (Prompt("hello"),)
    assert dict(attached_call(await held.ask("mcp prompt notes hello", GUEST)).arguments) == {"name": "hello"}


async def test_pairs_on_the_line_are_taken_and_a_missing_one_is_asked_for(held: CommandHarness) -> None:
    two = (PromptArgument("a", required=True), PromptArgument("b", required=True))
    held.servers.prompts[NOTES.id] = (Prompt("both", arguments=two),)
    assert attached_call(await held.ask("mcp prompt notes both a=1 b=2")).arguments["arguments"] == {"a": "1", "b": "2"}
    form = await held.form("mcp prompt notes both a=1")
    assert [field.value for field in form.fields] == ["1", ""]
    reply = await held.ask("mcp prompt notes both c=1")
    assert reply.failed
    assert "takes no such argument" in reply.text


async def test_a_prompt_that_is_not_there_is_named(held: CommandHarness) -> None:
    reply = await held.ask("mcp prompt notes sumary")
    assert reply.failed
    assert "Did you mean `summary`?" in reply.text
