"""Servers and secrets by form and by options: errors of fields, versions, and tokens in the wrong fields."""

from __future__ import annotations

import pytest

from bot.admin.servers.definition import fields_of
from bot.admin.servers.listing import sessions_text
from bot.domain.approvals import ApprovalPolicy
from bot.domain.commands import FIELDS_A_STEP, FieldKind, Form, Reply
from bot.domain.flows import Sends, ServerFlows, Words
from bot.domain.servers import (
    HttpKind,
    HttpTransport,
    Protocol,
    ServerConfig,
    ServerStatus,
    SessionScope,
    SessionSnapshot,
    StdioTransport,
)
from bot.examination import Check, CheckStatus
from tests.admin.servers import ADMIN, OPERATOR, CommandHarness, config_of, with_jira

TOKEN = "ghp_" + "a1B2" * 9
LONGEST_FORM_ID = 100
"""Characters of a form's id, which Discord stores with the form as its `custom_id`."""
GOOD = {
    "title": "GitHub Cloud",
    "transport": "streamable_http",
    "where": "https://api.example.com/mcp",
    "auth": "none",
    "policy": "deny",
}


def errors(answer: Reply | Form) -> dict[str, str]:
    assert isinstance(answer, Form), answer
    return {field.name: field.error for field in answer.fields if field.error}


def values(answer: Reply | Form) -> dict[str, str]:
    assert isinstance(answer, Form), answer
    return {field.name: field.value for field in answer.fields}


async def test_adding_alone_asks_for_everything_in_a_form(held: CommandHarness) -> None:
    form = await held.form("mcp add")
    assert [field.name for field in form.fields] == ["title", "transport", "where", "auth", "policy"]
    assert "/mcp add NAME URL" in form.instead
    reply = await held.reply_to(form, GOOD)
    assert not reply.failed
    config = config_of(held, "github-cloud")
    assert config.title == "GitHub Cloud"
    assert config.transport == HttpTransport("https://api.example.com/mcp")
    assert list(held.store.first_policies.values()) == [ApprovalPolicy.ALWAYS_DENY]


async def test_all_errors_are_shown_at_once_and_valid_values_stay(held: CommandHarness) -> None:
    form = await held.form("mcp add")
    wrong = {**GOOD, "title": "Notes", "where": "ftp://example.com", "auth": "magic"}
    again = await held.next_form(form, wrong)
    assert errors(again) == {
        "title": "This is taken by notes.",
        "where": "That is no http or https address. Write https://host/path.",
        "auth": "'magic' is not valid. One of: none, header, basic, api_key, oauth, client_credentials. "
        "Did you mean basic?",
    }
    assert values(again)["policy"] == "deny"
    assert values(again)["where"] == "ftp://example.com"
    await held.reply_to(again, GOOD)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://ana:hunter2@example.com/mcp", "token"),
        ("https://ana@example.com/mcp", "sign-in basic"),
        ("https://example.com/mcp?api_key=abc", "sign-in header"),
        (f"https://example.com/{TOKEN}/mcp", "token"),
        ("example.com/mcp", "https://host/path"),
        ("https:///mcp", "https://host/path"),
        ("https://exa mple.com", "https://host/path"),
        ("https://example.com/" + "a/" * 1100, "At most 2048 characters"),
        ("", "The address is missing"),
    ],
)
async def test_an_address_holds_no_secret_and_is_one(held: CommandHarness, url: str, said: str) -> None:
    answer = await held.submit(await held.form("mcp add"), {**GOOD, "where": url})
    assert said in errors(answer)["where"]
    assert not held.store.entries


async def test_a_server_that_signs_in_is_asked_for_its_secret_in_a_second_step(held: CommandHarness) -> None:
    second = await held.next_form(await held.form("mcp add"), {**GOOD, "auth": "basic"})
    assert [field.name for field in second.fields] == ["username", "secret"]
    assert second.carried["title"] == "GitHub Cloud"
    wrong = await held.next_form(second, {"secret": "hunter2"})
    assert set(errors(wrong)) == {"username", "secret"}
    await held.reply_to(wrong, {"username": "env:MCP_SECRET_USER", "secret": "file:/run/secrets/github"})
    record = held.record
    assert {slot: str(reference) for slot, reference in record.secrets.items()} == {
        "username": "env:MCP_SECRET_USER",
        "auth": "file:/run/secrets/github",
    }


async def test_the_user_name_and_the_password_of_basic_are_typed_at_one_hidden_prompt(held: CommandHarness) -> None:
    form = await held.form("mcp add jira --url https://jira.example/mcp --auth basic", hidden_input=True)
    [secret] = [field for field in form.fields if field.kind is FieldKind.SECRET]
    assert "USER:PASSWORD" in secret.hint
    wrong = await held.submit(form, {secret.name: "n0-user-name"}, hidden_input=True)
    assert "username" in errors(wrong)
    await held.reply_to(form, {secret.name: "robot:pa:Zk29vT4x-q7Lm"}, hidden_input=True)
    record = held.record
    assert held.store.values[record.id] == {"username": "robot", "auth": "pa:Zk29vT4x-q7Lm"}
    again = await held.form("mcp secret rotate jira auth", hidden_input=True)
    assert "USER:PASSWORD" in again.fields[0].label
    await held.submit(again, {secret.name: "robot2:Wb83nR5y-p2Kd"}, hidden_input=True)
    assert held.store.values[record.id] == {"username": "robot2", "auth": "Wb83nR5y-p2Kd"}
    assert "robot" not in repr(await held.ask("mcp show jira"))


async def test_a_secret_itself_is_asked_for_by_a_hidden_prompt_alone(held: CommandHarness) -> None:
    first = await held.form("mcp add", hidden_input=True)
    second = await held.next_form(first, {**GOOD, "auth": "header"}, hidden_input=True)
    [secret] = [field for field in second.fields if field.kind is FieldKind.SECRET]
    reply = await held.reply_to(second, {secret.name: TOKEN}, hidden_input=True)
    assert not reply.failed
    record = held.record
    assert held.store.values[record.id] == {"auth": TOKEN}
    assert str(record.secrets["auth"]) == "stored"
    assert TOKEN not in repr(reply) + repr(record) + repr(await held.ask(f"mcp show {record.config.name}"))
    shown = await held.submit(second, {secret.name: TOKEN})
    assert secret.name in {field.name for field in second.fields}
    assert TOKEN not in repr(shown)


@pytest.mark.parametrize("field", ["title", "where", "secret", "username"])
async def test_a_token_in_any_field_is_not_saved_and_not_shown_again(held: CommandHarness, field: str) -> None:
    first = await held.form("mcp add")
    answer = await held.submit(first, {**GOOD, "auth": "basic", "username": "env:U", "secret": "env:A", field: TOKEN})
    assert TOKEN not in repr(answer)
    assert not held.store.entries
    if field in {"title", "where"}:
        assert "That looks like a token. It was not saved." in errors(answer)[field]


@pytest.mark.parametrize(
    "line",
    [
        f"mcp add x --url https://example.com --header Authorization={TOKEN}",
        f"mcp add x --url https://example.com/?key={TOKEN}",
        f"mcp add {TOKEN}",
        f"mcp edit jira --description {TOKEN}",
        f"mcp secret set jira auth {TOKEN}",
        f"mcp run jira create_issue title={TOKEN}",
        f"mcp show {TOKEN}",
        f"profile set x --persona {TOKEN}",
        f"conversations show {TOKEN}",
    ],
)
async def test_a_token_in_any_word_is_refused_and_not_repeated(jira: CommandHarness, line: str) -> None:
    answers = await jira.answers(*line.split())
    assert isinstance(answers[-1], Reply)
    assert answers[-1].failed
    assert answers[-1].text.startswith("That looks like a token. It was not saved.")
    assert TOKEN not in repr(answers)
    assert not jira.store.audit


async def test_options_add_a_server_at_once_and_tell_how_the_look_at_it_went(held: CommandHarness) -> None:
    held.servers.checks = [Check("Reached", CheckStatus.WELL), Check("Protocol", CheckStatus.WELL)]
    headers = "--header X-Team=env:TEAM --header X-Region=eu"
    line = f"mcp add jira --url https://jira.example/mcp {headers} --trusted --policy ask"
    answers = await held.answers(*line.split())
    texts = [answer.text for answer in answers if isinstance(answer, Reply)]
    assert texts == [
        "Verifying `jira`… ✓ Reached",
        "Verifying `jira`… ✓ Reached ✓ Protocol",
        "`jira` is added. ✓ Reached ✓ Protocol ✓ 0 tools",
    ]
    record = held.record
    assert {slot: str(kept) for slot, kept in record.secrets.items()} == {"header:X-Team": "env:TEAM"}
    assert isinstance(record.config.transport, HttpTransport)
    assert record.config.transport.headers == {"X-Region": "eu"}
    assert "header X-Region" in str(await held.answers("mcp", "show", "jira"))
    assert fields_of(record)["headers"] == "X-Region=eu\nX-Team=env:TEAM"
    assert record.config.trusted


async def test_an_unreachable_server_is_stored_and_the_reply_has_the_fix(held: CommandHarness) -> None:
    held.servers.checks = [Check("Reached", CheckStatus.BROKEN, "**Nobody** listens.", "start it")]
    reply = await held.ask("mcp add jira --url https://jira.example/mcp")
    assert reply.text == "`jira` is added, but does not work yet. ✗ Reached"
    assert ("Reached", "**Nobody** listens.") in reply.details
    assert ("fix", "start it") in reply.details
    assert (await held.ask("mcp verify jira")).failed


async def test_all_wrong_options_are_said_at_once(held: CommandHarness) -> None:
    held.admits = {"github"}.__contains__
    reply = await held.refusal("mcp add notes --url nowhere --auth basic --secret hunter2 --connect-timeout 0")
    assert reply.text.startswith("Nothing was added.")
    assert {name for name, _ in reply.details} == {"--url", "--username", "--secret", "--connect-timeout", "name"}
    assert "hunter2" not in repr(reply)


@pytest.mark.parametrize(("name", "slug"), [("GitHub Cloud!", "github-cloud"), ("jira", "jira"), ("A" * 300, "")])
async def test_a_name_that_is_no_slug_becomes_the_title_and_a_slug_is_made_of_it(
    held: CommandHarness, name: str, slug: str
) -> None:
    reply = await held.run("mcp", "add", name, "--url", "https://x.example", "--no-verify")
    assert reply.failed == (not slug)
    assert [each.config.name for each in held.store.entries.values()] == ([slug] if slug else [])


async def test_an_address_that_is_not_allowed_here_says_why_under_its_field(held: CommandHarness) -> None:
    held.objections = "10.0.0.1 is a private address. Fix: ask the operator."
    reply = await held.ask("mcp add x --url https://10.0.0.1/mcp")
    assert ("--url", held.objections) in reply.details
    assert errors(await held.submit(await held.form("mcp add"), GOOD)) == {"where": held.objections}


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("sse", HttpKind.SSE),
        ("AUTO", HttpKind.AUTO),
        ("jsonrpc-http", HttpKind.JSONRPC),
        ("http", HttpKind.STREAMABLE),
    ],
)
async def test_every_way_over_http_can_be_added_and_stays_when_something_else_is_edited(
    held: CommandHarness, word: str, kind: HttpKind
) -> None:
    await held.ask(f"mcp add wiki --transport {word} --url https://wiki.example/mcp")
    assert config_of(held, "wiki").transport == HttpTransport("https://wiki.example/mcp", kind=kind)
    await held.ask("mcp edit wiki --url https://wiki.example/other")
    assert config_of(held, "wiki").transport == HttpTransport("https://wiki.example/other", kind=kind)


async def test_a_program_is_started_for_the_operator_alone(held: CommandHarness) -> None:
    words = ("mcp", "add", "files", "--transport", "stdio", "--command", "python", "--arg", "-m", "--arg", "my files")
    refused = await held.run(*words)
    assert ("--transport", "Only the operator may have programs started on this machine. Choose streamable_http.") in (
        refused.details
    )
    assert not held.store.entries
    reply = await held.run(*words, member=OPERATOR)
    assert ("command", "python -m 'my files'") in reply.details
    assert config_of(held, "files").transport == StdioTransport("python", ("-m", "my files"))
    assert config_of(held, "files").workspace == ""


async def test_a_program_from_a_form_is_shown_word_by_word_and_confirmed_by_its_name(held: CommandHarness) -> None:
    local = {**GOOD, "title": "Files", "transport": "stdio", "where": "python -m 'my files'"}
    refused = await held.next_form(await held.form("mcp add"), local)
    assert "Only the operator" in errors(refused)["transport"]
    second = await held.next_form(await held.form("mcp add", OPERATOR), local, OPERATOR)
    assert "python -m 'my files'" in second.intro
    assert errors(await held.submit(second, {"confirm": "notes"}, OPERATOR)).keys() == {"confirm"}
    assert not held.store.entries
    await held.reply_to(second, {"confirm": "Files", "env": "KEY=env:FILES_KEY"}, OPERATOR)
    record = held.record
    assert {slot: str(kept) for slot, kept in record.secrets.items()} == {"env:KEY": "env:FILES_KEY"}


async def test_editing_without_arguments_shows_all_values_in_steps_a_platform_can_draw(jira: CommandHarness) -> None:
    form: Reply | Form = await jira.form("mcp edit jira")
    steps = 0
    while isinstance(form, Form):
        assert len(form.fields) <= FIELDS_A_STEP
        assert len(form.id) <= LONGEST_FORM_ID
        if steps == 1:
            assert values(form)["secret"] == "env:JIRA_TOKEN"
        form = await jira.submit(form, {"description": "Tickets"} if steps == 0 else {})
        steps += 1
    assert steps == 7
    assert not form.failed
    assert config_of(jira, "jira").description == "Tickets"
    assert jira.store.changes == [{"description": "nothing → Tickets"}]


async def test_a_change_that_changes_nothing_is_none(jira: CommandHarness) -> None:
    reply = await jira.ask("mcp edit jira --url https://jira.example/mcp")
    assert "nothing is different" in reply.text
    assert jira.store.audit == []


async def test_a_slower_editor_reads_who_was_faster_and_the_present_values(jira: CommandHarness) -> None:
    form = await jira.form("mcp edit jira")
    await jira.ask("mcp edit jira --url https://other.example/mcp")
    answer = await jira.reply_to(form, {"description": "mine"})
    assert answer.failed
    assert answer.text == "`jira` has been changed since you opened it. Nothing was saved."
    assert ("changed", "just now by test:ana") in answer.details
    assert ("address", "https://other.example/mcp") in answer.details
    assert config_of(jira, "jira").description == ""


async def test_an_edit_connects_anew_and_shows_the_changes(jira: CommandHarness) -> None:
    reply = await jira.ask("mcp edit jira --url https://new.example/mcp --tool-timeout 60")
    assert ("changed url", "https://jira.example/mcp → https://new.example/mcp") in reply.details
    assert ("changed tool_timeout", "30 → 60") in reply.details
    assert reply.text.startswith("`jira` is changed. ✓ Reached")


async def test_the_protocol_of_a_server_is_set_and_its_values_are_named(jira: CommandHarness) -> None:
    reply = await jira.ask("mcp set jira --protocol 2025-06-18")
    assert ("changed protocol", "auto → 2025-06-18") in reply.details
    assert ("protocol, as set", "2025-06-18") in (await jira.ask("mcp show jira")).details
    refused = await jira.refusal("mcp set jira --protocol 2025")
    assert "auto, 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25, 2026-07-28" in str(refused)
    refused = await jira.refusal("mcp set jira --transport jsonrpc_http")
    assert "does not speak MCP: set it to auto" in str(refused)
    await jira.ask("mcp set jira --transport jsonrpc_http --protocol auto")
    assert config_of(jira, "jira").protocol is Protocol.AUTO


async def test_connections_sessions_and_groups_are_set_in_the_chat_and_shown(jira: CommandHarness) -> None:
    reply = await jira.ask(
        "mcp set jira --reconnect no --connect-retries 2 --output-limit 9000 --list-timeout 20 --tool-timeout-max 60"
        " --fallback-group tickets --fallback-order 2 --tool-names plain --sessions conversation --max-sessions 3"
        " --session-idle-timeout 120"
    )
    assert ("changed sessions", "shared → conversation") in reply.details
    config = config_of(jira, "jira")
    assert (config.reconnect, config.connect_retries, config.output_limit, config.list_timeout) == (False, 2, 9_000, 20)
    assert (config.fallback_group, config.fallback_order, config.tool_timeout_max) == ("tickets", 2, 60)
    assert (config.max_sessions, config.session_idle_timeout) == (3, 120)
    shown = dict((await jira.ask("mcp show jira")).details)
    assert shown["sessions"] == "one per conversation, 0 of 3 open in this process"
    assert (shown["reconnects"], shown["fallback group"], shown["tool names"]) == ("no", "tickets, place 2", "plain")
    await jira.ask("mcp set jira --reconnect default --fallback-group none --session-idle-timeout default")
    config = config_of(jira, "jira")
    assert (config.reconnect, config.fallback_group, config.session_idle_timeout) == (None, "", None)


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("--max-sessions 0", "A whole number from 1 to 100."),
        ("--fallback-group My_Group", "Or: none."),
        ("--list-timeout 4000", "at most 3600"),
    ],
)
async def test_a_value_out_of_bounds_is_named_with_the_bounds(jira: CommandHarness, option: str, named: str) -> None:
    refused = await jira.refusal(f"mcp set jira {option}")
    assert named in str(refused.details)
    assert jira.store.changes == []


def test_sessions_are_counted_without_their_users() -> None:
    config = ServerConfig("s", StdioTransport("x"), sessions=SessionScope.PERSON, max_sessions=9)
    open_now = [SessionSnapshot(0.0, None), SessionSnapshot(0.0, 400.0), SessionSnapshot(0.0, 995.0)]
    assert sessions_text(config, open_now, 1_000.0) == (
        "one per person, 3 of 9 open in this process, 1 running a call, idle ones last used 10 min ago, just now"
    )
    many = [SessionSnapshot(0.0, 995.0)] * 7
    assert sessions_text(config, many, 1_000.0).endswith("just now and 2 later")


async def test_single_tools_are_given_times_of_their_own_and_lose_them(jira: CommandHarness) -> None:
    await jira.ask("mcp edit jira --tool-limit export=120 --tool-limit read=90")
    assert config_of(jira, "jira").tool_timeouts == {"export": 120, "read": 90}
    shown = await jira.ask("mcp show jira")
    assert "30 s a call, 120 s for export, 90 s for read, 300 s with progress" in dict(shown.details)["time limits"]
    await jira.refusal("mcp edit jira --tool-limit export=long")
    await jira.ask("mcp edit jira --tool-limit none")
    assert config_of(jira, "jira").tool_timeouts == {}


async def test_the_flow_of_a_server_is_made_stricter_by_admins_and_looser_by_the_operator_alone(
    jira: CommandHarness,
) -> None:
    stricter = await jira.ask("mcp edit jira --words strangers --sends world --tool-sends read=world")
    assert ("changed words", "hints → strangers") in stricter.details
    assert config_of(jira, "jira").flows == ServerFlows(Words.STRANGERS, Sends.WORLD, tool_sends={"read": Sends.WORLD})
    for looser in ("--words own", "--words hints", "--sends team", "--tool-sends none --sends hints"):
        refused = await jira.refusal(f"mcp edit jira {looser}")
        assert "Only the operator may make this less strict" in str(refused)
    refused = await jira.refusal("mcp edit jira --tool-sends read=world,send=world --tool-recipients send=to,cc")
    assert "--tool-recipients" in dict(refused.details)
    await jira.ask(
        "mcp edit jira --words shared --tool-words read=own --tool-words find=own --tool-recipients send=to,cc",
        OPERATOR,
    )
    flows = config_of(jira, "jira").flows
    assert (flows.words, flows.tool_words) == (Words.SHARED, {"read": Words.OWN, "find": Words.OWN})
    assert flows.tool_recipients == {"send": ("to", "cc")}
    wrong = await jira.refusal("mcp edit jira --tool-words read=mine")
    assert "One of: own, shared, strangers." in str(wrong)


async def test_a_disabled_server_is_not_looked_at_when_it_is_edited(jira: CommandHarness) -> None:
    await jira.ask("mcp disable jira")
    reply = await jira.ask("mcp edit jira --description x")
    assert reply.text == "`jira` is changed."
    assert (await jira.ask("mcp verify jira")).failed
    assert (await jira.ask("mcp connect jira")).actions[0].words == ("mcp", "enable", "jira")
    assert (await jira.ask("mcp sync jira")).failed
    assert jira.servers.done == []
    assert ("state", ServerStatus.DISABLED.value) in (await jira.ask("mcp show jira")).details


async def test_a_secret_is_typed_only_in_private(jira: CommandHarness) -> None:
    refused = await jira.refusal("mcp secret set jira auth")
    assert "`env:NAME`" in refused.text
    form = await jira.form("mcp secret set jira auth", hidden_input=True)
    assert [field.kind for field in form.fields] == [FieldKind.SECRET]
    assert len(form.id) <= LONGEST_FORM_ID
    seen = await jira.next_form(form, {"hidden": TOKEN})
    assert "That looks like a token" in errors(seen)["hidden"]
    assert TOKEN not in repr(seen)
    assert jira.store.audit == []
    kept = await jira.reply_to(form, {"hidden": TOKEN}, hidden_input=True)
    assert not kept.failed
    assert jira.store.values[config_of(jira, "jira").id] == {"auth": TOKEN}
    assert TOKEN not in repr(kept) + repr(jira.store.changes) + repr(jira.store.audit)


@pytest.mark.parametrize("slot", ["env:KEY", "header:", "header:a b", "password", "auth:x"])
async def test_a_slot_a_server_cannot_have_is_refused(jira: CommandHarness, slot: str) -> None:
    reply = await jira.run("mcp", "secret", "set", "jira", slot, "env:X")
    assert reply.failed
    assert jira.store.audit == []


@pytest.mark.parametrize("text", ["hunter2", "env:", "env:a b", "file:relative", "vault:x"])
async def test_an_invalid_reference_is_not_saved_and_not_repeated(jira: CommandHarness, text: str) -> None:
    reply = await jira.run("mcp", "secret", "set", "jira", "auth", text)
    assert reply.failed
    assert "hunter2" not in repr(reply)
    assert jira.store.audit == []


async def test_a_profile_from_a_form_has_all_its_errors_at_once_and_keeps_valid_values(jira: CommandHarness) -> None:
    first = await jira.form("profile set Support")
    wrong = {"servers": "jira\nnowhere", "model": "not a model", "persona": "Kind."}
    again = await jira.next_form(first, wrong)
    assert errors(again).keys() == {"servers", "model"}
    assert values(again)["persona"] == "Kind."
    second = await jira.next_form(again, {"servers": "jira", "model": "openai:gpt", "tools": "jira.create_issue"})
    terms = {"policies": "jira.create_issue=deny", "approvers": "slack:U1, slack-group:S1"}
    many = await jira.next_form(second, {**terms, "prompts": "\n".join("12345")})
    assert errors(many).keys() == {"prompts"}
    third = await jira.next_form(many, {**terms, "prompts": "Why is CI red?\n\n What, and by whom? "})
    await jira.reply_to(third, {"about": "Answers questions about orders"})
    [profile] = jira.profiles.entries.values()
    server_id = config_of(jira, "jira").id
    assert profile.servers == frozenset({server_id})
    assert profile.tools == {server_id: frozenset({"create_issue"})}
    assert profile.approvers == frozenset({"slack:U1", "slack-group:S1"})
    assert profile.prompts == ("Why is CI red?", "What, and by whom?")
    assert profile.about == "Answers questions about orders"
    assert [(rule.server_id, rule.tool, rule.policy) for rule in profile.policies] == [
        (server_id, "create_issue", ApprovalPolicy.ALWAYS_DENY)
    ]


async def test_a_profile_has_a_language_and_a_time_zone(jira: CommandHarness) -> None:
    refused = await jira.ask("profile set Support --language 日本語 --timezone Tokio")
    assert (refused.failed, jira.profiles.entries) == (True, {})
    assert dict(refused.details) == {
        "--language": "There are no texts in that language, but in en (English) and ja (日本語).",
        "--timezone": "There is no such time zone. Did you mean Asia/Tokyo?",
    }
    assert not (await jira.ask("profile set Support --language ja_JP --timezone asia/tokyo")).failed
    [profile] = jira.profiles.entries.values()
    assert (profile.language, profile.time_zone) == ("ja", "Asia/Tokyo")
    shown = dict((await jira.ask("profile show Support")).details)
    assert (shown["language"], shown["time zone"]) == ("ja", "Asia/Tokyo")
    second = await jira.next_form(await jira.form("profile set Support"), {"servers": "*"})
    third = await jira.next_form(second, {})
    assert (values(third)["language"], values(third)["time_zone"]) == ("ja", "Asia/Tokyo")
    await jira.submit(third, {"language": "", "time_zone": "utc"})
    [profile] = jira.profiles.entries.values()
    assert (profile.language, profile.time_zone) == ("", "UTC")


async def test_a_profile_has_a_number_of_tool_rounds(jira: CommandHarness) -> None:
    for wrong in ("0", "-1", "201", "many", "3.5", "９"):
        refused = await jira.ask(f"profile set Support --max-tool-rounds {wrong}")
        assert dict(refused.details) == {"--max-tool-rounds": "Write a number from 1 to 200, or nothing."}
    assert not (await jira.ask("profile set Support --max-tool-rounds 30")).failed
    assert [profile.max_tool_rounds for profile in jira.profiles.entries.values()] == [30]
    assert dict((await jira.ask("profile show Support")).details)["rounds of tools"] == "30"


async def test_a_profile_that_another_admin_has_changed_is_not_overwritten(jira: CommandHarness) -> None:
    await jira.ask("profile set Support --persona Kind.")
    form = await jira.form("profile set Support")
    await jira.ask("profile set Support --persona Strict.")
    answer = await jira.reply_to(form, {"persona": "x"})
    assert "has been changed since you opened it" in answer.text
    assert [each.persona for each in jira.profiles.entries.values()] == ["Strict."]


async def test_a_profile_of_every_workspace_is_for_the_operator_to_change(jira: CommandHarness) -> None:
    await jira.ask("profile set Support --persona Kind.", OPERATOR)
    assert (await jira.ask("profile set Support --persona Rude.", ADMIN)).failed
    assert (await jira.ask("profile delete Support --confirm Support", ADMIN)).failed
    assert (await jira.ask("profile bind Support everywhere", ADMIN)).failed
    assert not (await jira.ask("profile bind Support", ADMIN)).failed
    assert not (await jira.ask("profile bind Support everywhere", OPERATOR)).failed
    assert jira.profiles.bound.keys() == {"test:w:hall", ""}


async def test_a_field_of_a_later_step_has_no_error_yet(held: CommandHarness) -> None:
    first = await held.form("mcp add", OPERATOR, hidden_input=True)
    second = await held.next_form(first, {**GOOD, "auth": "api_key"}, OPERATOR, hidden_input=True)
    assert errors(second) == {}
    again = await held.submit(second, {"auth_header": "X-Key", "secret": "", "hidden": ""}, OPERATOR, hidden_input=True)
    assert errors(again).keys() == {"hidden"}
    assert "is missing" in errors(again)["hidden"]


async def test_a_secret_that_was_not_typed_ends_the_matter() -> None:
    held = await with_jira(OPERATOR)
    form = await held.form("mcp secret set jira auth", OPERATOR, hidden_input=True)
    reply = await held.reply_to(form, {"hidden": ""}, OPERATOR, hidden_input=True)
    assert (reply.failed, reply.text) == (True, "No secret was typed, so none is set.")


async def test_a_server_without_a_sign_in_asks_for_no_secret(held: CommandHarness) -> None:
    await held.ask("mcp add linear --url https://linear.example/mcp --no-verify", OPERATOR)
    reply = await held.run("mcp", "secret", "set", "linear", "auth", member=OPERATOR, hidden_input=True)
    assert "`linear` does not sign in" in reply.text
