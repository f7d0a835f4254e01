"""Servers from launch templates: the admin's input, and the preview before a process is started."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import pytest

from bot.admin.dependencies import CommandDependencies, LinkService
from bot.admin.registry import CommandRegistry
from bot.domain.commands import FIELDS_A_STEP, Form, FormSubmission, Invocation, Reply
from bot.domain.launch_templates import ChoiceRule, LaunchTemplate, PathRule, SecretRule, TemplateSlot, TextRule
from bot.domain.servers import ServerRecord, StdioTransport, TemplateLaunch
from tests.admin.servers import ADMIN, GUEST, OPERATOR, CommandHarness, command_harness
from tests.fakes.parts import HALL

GIT = LaunchTemplate(
    "git",
    "uvx",
    ("mcp-server-git@1.2.3", "--repository", "{repo}"),
    (TemplateSlot("repo", PathRule("/srv/repos"), "Repository", "which repository"),),
    "Git",
    "One repository.",
)
TICKETS = LaunchTemplate(
    "tickets",
    "npx",
    ("-y", "tickets@1.0.0", "--mode={mode}", "--team", "{team}"),
    (
        TemplateSlot("mode", ChoiceRule(("read", "write")), default="read"),
        TemplateSlot("team", TextRule(re.compile("[a-z]+")), help="whose tickets"),
        TemplateSlot("token", SecretRule("TICKETS_TOKEN"), "Token"),
    ),
)
STARTS = "uvx mcp-server-git@1.2.3 --repository /srv/repos/docs"


def harness(*templates: LaunchTemplate) -> CommandHarness:
    held = command_harness()
    held.templates = {each.name: each for each in templates or (GIT, TICKETS)}
    return held


def launch(record: ServerRecord) -> TemplateLaunch:
    assert isinstance(record.config.transport, StdioTransport)
    assert record.config.transport.launch is not None
    return record.config.transport.launch


def wrong(answer: Reply | Form) -> dict[str, str]:
    if isinstance(answer, Reply):
        assert answer.failed
        return dict(answer.details)
    return {field.name: field.error for field in answer.fields if field.error}


async def test_an_admin_adds_a_server_by_a_template_on_one_line_and_agrees_to_the_exact_command() -> None:
    held = harness()
    form = await held.form("mcp add docs template=git repo=docs")
    assert not held.store.entries
    assert form.intro.endswith(f"\n{STARTS}")
    assert [field.name for field in form.fields] == ["confirm"]
    reply = await held.reply_to(form, {"confirm": "docs"})
    assert ("command", STARTS) in reply.details
    assert ("launch template", "git") in reply.details
    assert launch(held.record) == TemplateLaunch("git", {"repo": "docs"})
    assert ("examine", held.record.id) in held.servers.done


async def test_nothing_is_started_before_the_name_was_typed() -> None:
    held = harness()
    form = await held.form("mcp add docs template=git repo=docs")
    again = await held.next_form(form, {"confirm": "yes"})
    assert "Type docs" in wrong(again)["confirm"]
    assert again.intro.endswith(STARTS)
    assert not held.store.entries


async def test_the_operator_is_not_asked_on_one_line() -> None:
    held = harness()
    reply = await held.ask("mcp add docs template=git repo=docs", OPERATOR)
    assert ("command", STARTS) in reply.details
    assert launch(held.record).values == {"repo": "docs"}


async def test_a_template_that_the_operator_changes_meanwhile_is_shown_once_more() -> None:
    held = harness()
    form = await held.form("mcp add docs template=git repo=docs")
    held.templates["git"] = replace(GIT, args=("mcp-server-git@6.6.6", "{repo}"))
    again = await held.next_form(form, {"confirm": "docs"})
    assert not held.store.entries
    assert "not what you were shown" in wrong(again)["confirm"]
    assert "mcp-server-git@6.6.6" in again.intro
    await held.reply_to(again, {"confirm": "docs"})
    assert held.store.entries


async def test_the_form_asks_for_a_template_then_for_its_slots_then_for_consent() -> None:
    held = harness()
    first = await held.form("mcp add")
    transport = next(field for field in first.fields if field.name == "transport")
    assert transport.choices[-1] == "template"
    second = await held.next_form(first, {"title": "The tickets", "transport": "template"})
    assert [(field.name, field.choices) for field in second.fields] == [("template", ("git", "tickets"))]
    assert "git: Git. One repository." in second.intro
    third = await held.next_form(second, {"template": "tickets"})
    assert [field.name for field in third.fields] == ["slot_mode", "slot_team", "slot_token"]
    assert [field.value for field in third.fields] == ["read", "", ""]
    bad = await held.next_form(third, {"slot_team": "A B", "slot_token": "hunter2"})
    assert set(wrong(bad)) == {"slot_team", "slot_token"}
    fourth = await held.next_form(bad, {"slot_team": "blue", "slot_token": "env:MCP_SECRET_TICKETS"})
    assert fourth.intro.endswith("npx -y tickets@1.0.0 --mode=read --team blue")
    assert "variable: TICKETS_TOKEN=env:MCP_SECRET_TICKETS\n" in fourth.intro
    await held.reply_to(fourth, {"confirm": "the-tickets"})
    record = held.record
    assert (record.config.name, launch(record).template) == ("the-tickets", "tickets")
    assert {slot: str(where) for slot, where in record.secrets.items()} == {
        "env:TICKETS_TOKEN": "env:MCP_SECRET_TICKETS"
    }


async def test_a_form_has_no_more_fields_in_a_step_than_every_platform_takes() -> None:
    slots = tuple(TemplateSlot(f"s{n}", TextRule(re.compile(".*"))) for n in range(12))
    held = harness(LaunchTemplate("wide", "run", tuple(f"{{s{n}}}" for n in range(12)), slots))
    answer: Reply | Form = await held.form("mcp add")
    steps = 0
    while isinstance(answer, Form):
        assert len(answer.fields) <= FIELDS_A_STEP
        asked = {field.name: "x" for field in answer.fields if field.name.startswith("slot_")}
        answer = await held.submit(
            answer, {"title": "wide", "transport": "template", "template": "wide", "confirm": "wide", **asked}
        )
        steps += 1
    assert not answer.failed
    assert launch(held.record).values == {f"s{n}": "x" for n in range(12)}


async def test_without_templates_the_form_is_as_it_was() -> None:
    first = await command_harness().form("mcp add")
    assert "template" not in next(field for field in first.fields if field.name == "transport").choices


@pytest.mark.parametrize(
    ("line", "field", "said"),
    [
        ("template=nope", "template=", "There are: git, tickets."),
        ("template=", "template=", "Which launch template?"),
        ("template=git", "repo=", "It is missing."),
        ("template=git repo=../etc", "repo=", "A path below /srv/repos"),
        ("template=git repo=/etc", "repo=", "A path below /srv/repos"),
        ("template=git repo=docs branch=main", "branch=", "no such slot"),
        ("--command sh template=git repo=docs", "--command", "leave this empty"),
        ("--url https://a.example template=git repo=docs", "--url", "leave this empty"),
        ("--env LD_PRELOAD=env:A template=git repo=docs", "--env", "has no place"),
        ("template=tickets team=blue mode=all token=env:A", "mode=", "One of: read, write."),
        ("template=tickets team=--help token=env:A", "team=", "the form that the operator wants"),
        ("template=tickets team=blue", "token=", "It is missing. Write env:NAME"),
        ("template=tickets team=blue token=hunter2", "token=", "Write env:NAME"),
        ("repo=docs", "repo=", "Say which launch template"),
    ],
)
async def test_an_invalid_slot_value_has_its_error_under_the_slot(line: str, field: str, said: str) -> None:
    held = harness()
    reply = await held.ask(f"mcp add docs {line}")
    assert said in wrong(reply)[field]
    assert not held.store.entries


@pytest.mark.parametrize(
    ("word", "said"),
    [("repo", "template=git repo=docs"), ("=docs", "template=git repo=docs"), ("--polcy=allow", "`--policy`")],
)
async def test_a_word_behind_the_name_that_is_no_slot_is_explained(word: str, said: str) -> None:
    reply = await harness().refusal(f"mcp add docs template=git {word}")
    assert said in reply.text


async def test_options_stand_before_or_after_the_slots() -> None:
    held = harness()
    before = await held.ask("mcp add docs --title Docs --no-verify template=git repo=docs", OPERATOR)
    after = await held.ask("mcp add docs template=git repo=docs --title=D --no-verify", OPERATOR)
    assert "is added" in before.text
    assert wrong(after)["name"] == "This is taken by docs."


async def test_no_admin_allows_a_program() -> None:
    held = harness()
    for line in ("add x --allow -- npx -y pkg", "add x https://x.example/mcp --allow"):
        refused = await held.ask(f"mcp {line}")
        assert "Only the operator may allow a program, at a terminal" in refused.text
    await held.refusal("mcp add x --allow -- npx -y pkg", OPERATOR)
    assert not held.store.entries
    assert not held.programs


async def test_admins_still_type_no_program_and_everyone_else_nothing() -> None:
    held = harness()
    typed = await held.ask("mcp add docs --command sh")
    assert "Only the operator" in wrong(typed)["--transport"]
    assert "a launch template" in wrong(typed)["--transport"]
    assert (await held.ask("mcp add docs template=git repo=docs", GUEST)).failed
    assert not held.store.entries


async def test_a_missing_path_has_its_error_under_the_path() -> None:
    held = harness()
    held.objections = "There is no /srv/repos/docs, which repo is. Fix: create it."
    reply = await held.ask("mcp add docs template=git repo=docs")
    assert wrong(reply)["repo="] == held.objections


async def add_server(held: CommandHarness, line: str = "mcp add docs template=git repo=docs") -> ServerRecord:
    reply = await held.reply_to(await held.form(line), {"confirm": "docs"})
    assert not reply.failed
    return held.record


async def test_a_slot_is_changed_by_a_user_who_agrees_to_the_new_command() -> None:
    held = harness()
    await add_server(held)
    form = await held.form("mcp edit docs repo=other")
    assert form.intro.endswith("--repository /srv/repos/other")
    assert launch(held.record).values == {"repo": "docs"}
    reply = await held.reply_to(form, {"confirm": "docs"})
    assert ("changed slot_repo", "docs → other") in reply.details
    assert launch(held.record).values == {"repo": "other"}


async def test_the_form_of_editing_asks_for_slots_and_for_consent_if_something_else_is_started() -> None:
    held = harness()
    await add_server(held)
    first = await held.form("mcp edit docs")
    second = await held.next_form(first, {"description": "The documents"})
    assert [(field.name, field.value) for field in second.fields] == [("slot_repo", "docs")]
    third = await held.next_form(second, {"slot_repo": "other"})
    fourth = await held.next_form(third, {})
    fifth = await held.next_form(fourth, {})
    assert fifth.intro.endswith("--repository /srv/repos/other")
    await held.reply_to(fifth, {"confirm": "docs"})
    assert (held.record.config.description, launch(held.record).values) == ("The documents", {"repo": "other"})


async def test_an_unchanged_command_needs_no_consent() -> None:
    held = harness()
    await add_server(held)
    reply = await held.ask("mcp edit docs --description Documents")
    assert not reply.failed
    assert held.record.config.description == "Documents"


@pytest.mark.parametrize("line", ["--command sh", "--url https://a.example", "template=tickets", "--env A=env:B"])
async def test_a_server_stays_with_its_template(line: str) -> None:
    held = harness()
    before = await add_server(held)
    assert (await held.ask(f"mcp edit docs {line}")).failed
    assert held.record == before


async def test_a_typed_secret_is_not_carried_over_to_something_else_by_an_admin() -> None:
    held = harness()
    await add_server(held, "mcp add docs template=tickets team=blue token=env:A")
    words = ("mcp", "secret", "set", "docs", "env:TICKETS_TOKEN")
    stored = await held.answers(*words, member=OPERATOR, hidden_input=True)
    assert isinstance(stored[-1], Form)
    await held.submit(stored[-1], {stored[-1].fields[0].name: "the-key-itself-Zk29vT4x"}, OPERATOR, hidden_input=True)
    assert str(held.record.secrets["env:TICKETS_TOKEN"]) == "stored"
    form = await held.form("mcp edit docs team=red")
    changed = await held.reply_to(form, {"confirm": "docs"})
    assert "waits for 1 secret" in changed.text
    assert held.store.values[held.record.id] == {}
    form = await held.form("mcp edit docs team=blue token=env:B")
    await held.reply_to(form, {"confirm": "docs"})
    assert str(held.record.secrets["env:TICKETS_TOKEN"]) == "env:B"


async def test_a_variable_that_the_template_does_not_have_takes_no_secret() -> None:
    held = harness()
    await add_server(held)
    assert (await held.ask("mcp secret set docs env:LD_PRELOAD env:A")).failed
    assert not held.record.secrets


async def test_users_see_the_command_and_its_template() -> None:
    held = harness()
    await add_server(held)
    shown = dict((await held.ask("mcp show docs")).details)
    assert (shown["launch template"], shown["command"]) == ("git", STARTS)
    held.templates.clear()
    gone = dict((await held.ask("mcp show docs")).details)
    assert gone["command"] == shlex.join(["template=git", "repo=docs"])


async def test_a_secret_without_a_reference_is_entered_behind_a_link() -> None:
    held = harness()
    links = _Links()

    def parts() -> CommandDependencies:
        return replace(held.parts, links=LinkService(links, "https://bot.example.com"))  # type: ignore[arg-type]

    async def last(request: Invocation | FormSubmission) -> Reply | Form:
        return [answer async for answer in CommandRegistry(parts()).handle(request)][-1]

    words = ("add", "docs", "template=tickets", "team=blue")
    form = await last(Invocation("mcp", words, ADMIN, HALL))
    assert isinstance(form, Form)
    reply = await last(FormSubmission(form.id, {**form.carried, "confirm": "docs"}, ADMIN, HALL))
    assert isinstance(reply, Reply)
    assert "waits for 1 secret" in reply.text
    assert links.made == [(held.record.id, "env:TICKETS_TOKEN")]
    assert str(held.record.secrets["env:TICKETS_TOKEN"]) == "stored"


class _Links:
    def __init__(self) -> None:
        self.made: list[tuple[str, str]] = []

    async def create_link(self, server_id: str, slot: str, *_: object) -> tuple[None, str]:
        self.made.append((server_id, slot))
        return None, "a-token"
