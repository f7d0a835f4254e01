"""Forged forms, blank confirmations and redirected servers from hostile users and platforms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.domain.commands import Form, FormSubmission, Reply
from bot.domain.conversations import Member
from bot.domain.secrets import SecretReference, SecretSource
from bot.domain.servers import AUTH_SECRET, StdioTransport
from tests.admin.finished_turn import a_view
from tests.admin.servers import ADMIN, GUEST, OPERATOR, CommandHarness, command_harness, config_of, with_jira
from tests.fakes.parts import HALL

STDIO = "mcp add local --command python --arg -V --here"


async def submit_form(held: CommandHarness, form: str, fields: dict[str, str], **more: object) -> Reply | Form:
    """Submit a form that the bot has not shown, and return the last reply."""
    request = FormSubmission(form, fields, more.pop("member", ADMIN), HALL, **more)  # type: ignore[arg-type]
    return [answer async for answer in held.registry.handle(request)][-1]


async def with_local() -> CommandHarness:
    """Return a harness whose operator has added a local program for one workspace."""
    held = command_harness()
    reply = await held.run(*STDIO.split(), member=OPERATOR)
    assert not reply.failed
    held.store.audit.clear()
    return held


@pytest.mark.parametrize("blank", [" ", "\t", "\u3000"])
async def test_a_server_without_a_title_is_not_removed_by_a_blank_confirmation(
    jira: CommandHarness, blank: str
) -> None:
    assert not config_of(jira, "jira").title
    reply = await jira.run("mcp", "remove", "jira", "--confirm", blank)
    assert reply.failed
    assert [record.config.name for record in jira.store.entries.values()] == ["jira"]


@pytest.mark.parametrize("step", ["3", "7", "99"])
async def test_a_step_that_no_form_has_does_not_skip_the_confirmation_of_a_program(step: str) -> None:
    held = command_harness()
    fields = {"title": "Local", "transport": "stdio", "where": "python -V"}
    answer = await submit_form(held, f"mcp add:{step}", fields, member=OPERATOR)
    assert isinstance(answer, Form)
    assert held.store.entries == {}
    held = await with_local()
    record = held.record
    changed = {"where": "python -c evil"}
    answer = await submit_form(held, f"mcp edit:{record.id}:{record.version}:{step}", changed, member=OPERATOR)
    assert isinstance(answer, Form)
    assert config_of(held, "local").transport == StdioTransport("python", ("-V",))


@pytest.mark.parametrize(
    "form", ["mcp remove:jira", "mcp disable:jira", "mcp secret set", "mcp add:x:y", "mcp edit", "mcp", "mcp ", "", ":"]
)
async def test_a_forged_form_does_nothing_for_a_member(jira: CommandHarness, form: str) -> None:
    before = dict(jira.store.entries)
    answer = await submit_form(
        jira, form, {"title": "x", "where": "https://x.example/mcp", "confirm": "jira"}, member=GUEST
    )
    assert isinstance(answer, Reply)
    assert answer.failed
    assert jira.store.entries == before


async def test_an_admin_who_is_not_the_operator_gives_a_program_no_environment() -> None:
    held = await with_local()
    for line in (
        "mcp secret set local env:LD_PRELOAD file:/run/secrets/x",
        "mcp secret rotate local env:LD_PRELOAD env:MCP_SECRET_X",
        "mcp secret clear local env:LD_PRELOAD",
    ):
        reply = await held.refusal(line)
        assert "Only the operator" in reply.text
    record = held.record
    forged = await submit_form(
        held, f"mcp secret set:{record.id}:{record.version}", {"slot": "env:X", "hidden": "value"}, hidden_input=True
    )
    assert isinstance(forged, Reply)
    assert forged.failed
    assert held.record.secrets == {}
    assert not (await held.ask("mcp secret set local env:TOKEN env:MCP_SECRET_X", OPERATOR)).failed


async def with_a_stored_secret() -> CommandHarness:
    """Return a harness in which the operator has entered the secret of an admin's server."""
    held = await with_jira()
    (server_id,) = held.store.entries
    stored = {AUTH_SECRET: SecretReference(SecretSource.STORED)}
    held.store.values[server_id] = {AUTH_SECRET: "typed"}
    held.store.entries[server_id] = replace(held.store.entries[server_id], secrets=stored)
    return held


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/mcp",
        "https://jira.example:8443/mcp",
        "http://jira.example/mcp",
        "https://jira.example.evil.example/mcp",
    ],
)
@pytest.mark.parametrize("member", [ADMIN, OPERATOR])
async def test_a_stored_secret_is_cleared_by_an_edit_of_the_address_and_asked_for_again(
    url: str, member: Member
) -> None:
    held = await with_a_stored_secret()
    (server_id,) = held.store.entries
    reply = await held.ask(f"mcp edit jira --url {url}", member)
    assert "waits for the secret it signs in with" in reply.text
    assert "cleared: it was entered for https://jira.example:443" in dict(reply.details)["changed secret auth"]
    assert held.store.values[server_id] == {}
    assert held.store.entries[server_id].missing == {AUTH_SECRET}
    assert (await held.ask("mcp show jira")).details[0]
    typed = await held.form("mcp secret set jira auth", member, hidden_input=True)
    await held.submit(typed, {"hidden": "an0ther-s3cret-Zk29vT4x"}, member, hidden_input=True)
    assert held.store.values[server_id] == {AUTH_SECRET: "an0ther-s3cret-Zk29vT4x"}
    assert held.store.entries[server_id].missing == set()


async def test_the_form_asks_for_a_cleared_secret_at_a_hidden_prompt() -> None:
    held = await with_a_stored_secret()
    answer = (await held.answers("mcp", "edit", "jira", "--url", "https://new.example/mcp", hidden_input=True))[-1]
    assert isinstance(answer, Form)
    assert "cleared: it was entered for https://jira.example:443" in answer.intro
    (server_id,) = held.store.entries
    await held.submit(answer, {"hidden": "an0ther-s3cret-Zk29vT4x"}, hidden_input=True)
    assert held.store.values[server_id] == {AUTH_SECRET: "an0ther-s3cret-Zk29vT4x"}


@pytest.mark.parametrize(
    ("line", "member"),
    [
        ("mcp edit jira --url https://jira.example/v2/mcp", ADMIN),
        ("mcp edit jira --url https://JIRA.example:443/mcp", ADMIN),
        ("mcp edit jira --url https://new.example/mcp --secret env:MCP_SECRET_NEW", ADMIN),
        ("mcp edit jira --url https://new.example/mcp --auth none", ADMIN),
    ],
)
async def test_an_address_may_change_where_no_typed_secret_goes_along_to_another_host(
    line: str, member: object
) -> None:
    held = await with_a_stored_secret()
    reply = await held.ask(line, member)  # type: ignore[arg-type]
    assert not reply.failed
    assert "cleared" not in repr(reply)


@pytest.mark.parametrize(
    "text",
    [
        '{"n": NaN}',
        '{"n": 1e999}',
        '{"n": "\\ud800"}',
        '{"n": ' + "[" * 64 + "]" * 64 + "}",
        '{"n": ' + "[" * 40_000 + "]" * 40_000 + "}",
        "{" + '"n": {' * 9_000 + "}" * 9_001,
        '{"n": 1, "n": 2}',
        '{"n": {"to": "a@example.com", "to": "b@example.com"}}',
        "n=1 n=2",
    ],
    ids=[
        "no number",
        "too large",
        "half a character",
        "list too deep",
        "deep list",
        "deep object",
        "a name twice",
        "a name twice within",
        "a pair twice",
    ],
)
async def test_arguments_that_cannot_be_stored_are_refused(jira: CommandHarness, text: str) -> None:
    words = (text,) if text.startswith("{") else text.split()
    reply = await jira.run("mcp", "run", "jira", "create_issue", *words)
    assert reply.failed
    assert reply.message is None


async def test_a_value_that_cannot_be_stored_is_its_text(jira: CommandHarness) -> None:
    reply = await jira.run("mcp", "run", "jira", "create_issue", "n=" + "[" * 40_000)
    assert reply.message is not None
    assert reply.message.call is not None
    assert reply.message.call.arguments == {"n": "[" * 40_000}


async def test_a_title_that_is_another_servers_slug_does_not_take_its_place_in_a_profile(jira: CommandHarness) -> None:
    (server_id,) = jira.store.entries
    # Meanwhile the operator has added a server of this name to the file.
    titled = replace(jira.store.entries[server_id].config, name="zeta", title="notes")
    jira.store.entries[server_id] = replace(jira.store.entries[server_id], config=titled)
    reply = await jira.ask("profile set closed --server notes --policy notes=deny")
    assert not reply.failed
    (profile,) = jira.profiles.entries.values()
    assert profile.servers == frozenset({"file:notes"})
    assert [rule.server_id for rule in profile.policies] == ["file:notes"]


async def test_a_conversation_without_a_thread_is_not_deleted_by_a_blank_confirmation(jira: CommandHarness) -> None:
    hall = replace(HALL, thread="")
    jira.views[str(hall)] = [a_view()]
    jira.archive.takers[str(hall)] = {"test:ana"}
    for line in (("delete", "hall:"), ("delete", "hall:", "--confirm", " ")):
        await jira.run("conversations", *line, where=hall)
        assert jira.archive.deleted == []
    asked = await jira.run("conversations", "delete", "hall:", where=hall)
    assert asked.actions[0].confirm == "hall:"
    await jira.answers("conversations", "delete", "hall:", "--confirm", "hall:", where=hall)
    assert jira.archive.deleted == [str(hall)]
