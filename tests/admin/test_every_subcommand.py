"""All verbs: the effect, the required role and the audit entry of each."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

import pytest
import pytest_asyncio

from bot.admin.dependencies import ConfigDiff
from bot.domain.approvals import ApprovalPolicy
from bot.domain.audit import AuditEntry
from bot.domain.commands import Invocation, Reply, RequiredRole
from bot.domain.completions import Usage
from bot.domain.conversations import Member
from bot.domain.installations import Installation
from bot.domain.profiles import Profile, binding_scopes
from bot.domain.servers import ServerEnablement, ServerStatus
from bot.domain.usage import UsageTotal
from bot.ports import CallSummary, ConversationSummary
from tests.admin.finished_turn import a_view
from tests.admin.grants import a_grant
from tests.admin.http_commands import http_commands
from tests.admin.memory_stores import NOW
from tests.admin.servers import ADMIN, GUEST, OPERATOR, AtOnce, CommandHarness, Servers, Way, config_of, with_jira
from tests.fakes.parts import ANA, BEN, HALL

SUPPORT = Profile("p-1", "Support", workspace="test:w", persona="Kind.", version=1)


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(params=["said", "over HTTP"], scope="module", loop_scope="module")
async def way(request: pytest.FixtureRequest) -> AsyncIterator[Way]:
    """Yield each way to send commands: directly to the registry, and to the real application over a real socket."""
    if request.param == "said":
        yield AtOnce()
        return
    async with http_commands() as over_http:
        yield over_http


@pytest_asyncio.fixture(loop_scope="module")
async def held(way: Way) -> CommandHarness:
    return await build_harness(way)


async def build_harness(way: Way | None = None) -> CommandHarness:
    """Return a harness with at least one object of each kind."""
    held = await with_jira(way=way)
    hall, ana = held.way.place(HALL), held.way.author(ANA).principal
    held.profiles.entries["p-1"] = SUPPORT
    held.views[str(hall)] = [a_view(conversation=hall, author=held.way.author(ANA))]
    held.archive.takers[str(hall)] = {ana}
    held.archive.summaries.append(ConversationSummary(hall, "hello", "COMPLETED", 1, ana, NOW, NOW - 120))
    held.grants.entries.append(a_grant(place="test:w", by="test:ana"))
    held.archive.past += [
        CallSummary(NOW - 60, "jira.create_issue", "done", "test:ben", "test:ana", 1.3, "turn-1", 1, hall),
        CallSummary(NOW - 30, "jira.search", "failed", "test:ben", "", 0.2, "turn-2", 1, hall, "Quota\nis used up."),
    ]
    held.archive.entries.append(AuditEntry(7, NOW, "server_added", "test:ana", {"name": "jira"}))
    held.usage.spent["anthropic:best"] = UsageTotal(1, Usage(1_000, 200), questions=1)
    held.installations.entries["T1"] = Installation("slack", "T1", "Ana", installed_by="slack:U1", version=1)
    held.news = ConfigDiff(added=("sentry",))
    return held


@dataclass(frozen=True)
class Case:
    """A command line, its expected reply or effect, and the kind of its audit entry."""

    line: str
    sees: str = ""
    does: Callable[[CommandHarness], bool] = lambda _held: True
    audit: str = ""
    who: RequiredRole = RequiredRole.ADMINS
    by: Member = ADMIN


def _jira(held: CommandHarness) -> str:
    return config_of(held, "jira").id


def _record(held: CommandHarness, name: str) -> ServerEnablement:
    return held.store.entries[_jira(held)].enablement if name else ServerEnablement.ON


CASES = [
    Case("mcp list", "jira", who=RequiredRole.EVERYONE),
    Case("mcp show jira", "MCP server `jira`", who=RequiredRole.EVERYONE),
    Case("mcp tools jira create_issue", "create_issue", who=RequiredRole.EVERYONE),
    Case("mcp tools jira", "jira__create_issue", who=RequiredRole.EVERYONE),
    Case("mcp help", "what there is", who=RequiredRole.EVERYONE),
    Case(
        "mcp add linear --url https://linear.example/mcp",
        "`linear` is added. ✓ Reached ✓ 0 tools",
        lambda held: config_of(held, "linear").workspace == "test:w" and held.refreshed == 1,
        "server_added",
    ),
    Case(
        "mcp edit jira --description Tickets",
        "changed description",
        lambda held: config_of(held, "jira").description == "Tickets" and held.refreshed == 1,
        "server_changed",
    ),
    Case(
        "mcp remove jira --confirm jira",
        "`jira` is removed",
        lambda held: not held.store.entries and held.refreshed == 1,
        "server_removed",
    ),
    Case("mcp enable jira", "is on already"),
    Case(
        "mcp disable jira",
        "`jira` is off",
        lambda held: _record(held, "jira") is ServerEnablement.DISABLED and held.refreshed == 1,
        "server_disabled",
    ),
    Case("mcp connect jira", "`jira` is connected", lambda held: ("connect", _jira(held)) in held.servers.done),
    Case(
        "mcp disconnect jira",
        "`jira` is disconnected",
        lambda held: _record(held, "jira") is ServerEnablement.DISCONNECTED,
        "server_disconnected",
    ),
    Case(
        "mcp verify jira", "`jira` is verified. ✓ Reached", lambda held: ("examine", _jira(held)) in held.servers.done
    ),
    Case("mcp sync jira", "`jira` is synced: 1 tool", lambda held: ("sync", _jira(held)) in held.servers.done),
    Case("mcp resource list", "notes://1", who=RequiredRole.EVERYONE),
    Case("mcp resource show notes notes://1", "Reading from `notes`", who=RequiredRole.EVERYONE),
    Case("mcp resource ask notes notes://1 What is it?", "Asking about a resource", who=RequiredRole.EVERYONE),
    Case("mcp prompt list", "summary", who=RequiredRole.EVERYONE),
    Case("mcp prompt show notes summary topic=trees", "Having a prompt of `notes`", who=RequiredRole.EVERYONE),
    Case("mcp prompt ask notes summary topic=trees", "Asking with a prompt of `notes`", who=RequiredRole.EVERYONE),
    Case("mcp run jira create_issue title=x", "Running `jira__create_issue`"),
    Case("mcp policy list jira", "create_issue"),
    Case(
        "mcp policy set jira create_issue deny",
        "`jira`, `create_issue`: deny",
        lambda held: [rule.policy for rule in held.policies.entries.values()] == [ApprovalPolicy.ALWAYS_DENY],
        "policy_set",
    ),
    Case("mcp policy clear jira", "Nothing was changed"),
    Case("mcp policy explain jira create_issue", "No rule matches this call; the default applies."),
    Case(
        "mcp secret set jira auth file:/run/secrets/jira",
        "The secret of `jira` is set",
        lambda held: str(held.store.entries[_jira(held)].secrets["auth"]) == "file:/run/secrets/jira",
        "server_changed",
    ),
    Case(
        "mcp secret rotate jira auth env:JIRA_NEW",
        "The secret of `jira` is set",
        lambda held: str(held.store.entries[_jira(held)].secrets["auth"]) == "env:JIRA_NEW",
        "server_changed",
    ),
    Case(
        "mcp secret clear jira auth",
        "The secret of `jira` is cleared",
        lambda held: not held.store.entries[_jira(held)].secrets,
        "server_changed",
    ),
    Case("mcp doctor jira", "Nothing is wrong with `jira`"),
    Case("mcp review show jira", "No tool waits"),
    Case("mcp review approve jira create_issue", "No tool waits"),
    Case("mcp review refuse jira create_issue", "No tool waits"),
    Case("mcp log jira", "jira.create_issue"),
    Case("mcp log jira --failed", "failed: Quota is used up."),
    Case("mcp stats jira", "Nothing has happened of `jira` since"),
    Case("mcp import --digest 123", "What was pasted is not kept any more"),
    Case("mcp catalog n8n", "This server comes with this program"),
    Case("mcp health", "database answers"),
    Case("mcp audit jira", "server_added"),
    Case("mcp grants list", "0123456789ab", who=RequiredRole.EVERYONE),
    Case(
        "mcp grants revoke 0123456789ab",
        "ask for an approval again",
        lambda held: not held.grants.entries,
        "grant_revoked",
        who=RequiredRole.EVERYONE,
    ),
    Case("mcp reload", "runs by", lambda held: held.reloaded == 1),
    # A token for one workspace is rejected, because the file applies to all workspaces.
    Case("mcp reload --apply", "runs by", lambda held: held.reloaded == 1, by=OPERATOR),
    Case("profile list", "Support", who=RequiredRole.EVERYONE),
    Case("profile show Support", "Kind."),
    Case(
        "profile set Ops --model demo --server jira --policy jira=deny --approver slack:U1",
        "Profile saved",
        lambda held: (
            next(each for each in held.profiles.entries.values() if each.name == "Ops").servers
            == frozenset({_jira(held)})
        ),
        "profile_saved",
    ),
    Case(
        "profile delete Support --confirm Support",
        "The profile is deleted",
        lambda held: not held.profiles.entries,
        "profile_deleted",
    ),
    Case(
        "profile bind Support",
        "The profile holds in this channel",
        lambda held: held.profiles.bound == {binding_scopes(held.way.place(HALL))[0]: "p-1"},
        "profile_bound",
    ),
    Case(
        "profile bind Support workspace --agent",
        "can be asked by name in this workspace",
        lambda held: held.profiles.by_name == [(HALL.workspace_key, "p-1")],
        "agent_bound",
    ),
    Case("profile enable jira", "No profile holds here, so every server is enabled."),
    Case(
        "profile disable jira --profile Support",
        "is off from the next answer on",
        lambda held: held.profiles.entries["p-1"].servers is not None,
        "profile_saved",
    ),
    Case("profile unbind workspace", "Nothing was changed"),
    Case("agents", "Nobody can be asked by name here", who=RequiredRole.EVERYONE),
    Case("ask Support how?", "Nobody can be asked by name here", who=RequiredRole.EVERYONE),
    Case("profile help", "/profile list", who=RequiredRole.EVERYONE),
    Case("conversations list", "hall:1", who=RequiredRole.EVERYONE),
    Case("conversations show", "hello", who=RequiredRole.EVERYONE),
    Case("conversations export", "as Markdown", who=RequiredRole.EVERYONE),
    Case(
        "conversations delete hall:1 --confirm 1",
        "is deleted",
        lambda held: held.archive.deleted == [str(held.way.place(HALL))],
        who=RequiredRole.EVERYONE,
    ),
    Case("conversations help", "/conversations list", who=RequiredRole.EVERYONE),
    Case("usage me", "Your usage · 1 question · 1,200 tokens", who=RequiredRole.EVERYONE),
    Case("usage channel", "This channel · 1 question · 1,200 tokens"),
    Case("usage workspace --by model", "This workspace · 1 question · 1,200 tokens"),
    Case("usage all", "Only the operator sees every workspace"),
    Case("usage help", "/usage me", who=RequiredRole.EVERYONE),
    Case("approvals delegate test:dan for 3 days", who=RequiredRole.EVERYONE),
    Case("approvals delegations", "delegat", who=RequiredRole.EVERYONE),
    Case("approvals undelegate test:dan", who=RequiredRole.EVERYONE),
    Case("approvals help", "/approvals delegate", who=RequiredRole.EVERYONE),
    Case("console open", "There is no console here", who=RequiredRole.EVERYONE),
    Case("console sessions", "No session is open", who=RequiredRole.EVERYONE),
    Case("console end 1", "No open session has this id", who=RequiredRole.EVERYONE),
    Case("console tokens", "There are no tokens"),
    Case("console token create ci member", "Only the operator makes tokens"),
    Case("console token revoke ci", "Only those who administer every workspace"),
    Case("console installations", "Installations · 1", by=OPERATOR),
    Case(
        "console uninstall T1",
        "its tokens are deleted",
        lambda held: not held.installations.entries["T1"].removed_at,
        by=OPERATOR,
    ),
    Case(
        "console uninstall T1 --confirm T1",
        "The tokens of `T1` are deleted",
        lambda held: bool(held.installations.entries["T1"].removed_at),
        by=OPERATOR,
    ),
    Case("console help", "/console sessions", who=RequiredRole.EVERYONE),
    Case("preferences show", "Your language and time zone", who=RequiredRole.EVERYONE),
    Case("preferences set --timezone Asia/Tokyo", "It counts from now on", who=RequiredRole.EVERYONE),
    Case("preferences clear", "What you had chosen is deleted", who=RequiredRole.EVERYONE),
    Case("preferences help", "/preferences show", who=RequiredRole.EVERYONE),
]


def here(held: CommandHarness, text: str) -> str:
    """Replace the hall's key in a text with its key on the platform of the harness."""
    hall = held.way.place(HALL)
    return text.replace("hall:1", f"{hall.channel}:{hall.thread}")


def everything_said(reply: Reply) -> str:
    rows = reply.table.rows if reply.table is not None else ()
    return "\n".join((reply.text, *(cell for row in rows for cell in row), *(f"{a} {b}" for a, b in reply.details)))


def audit_of(held: CommandHarness) -> list[str]:
    return [line[0] for store in (held.store, held.policies, held.profiles, held.grants) for line in store.audit]


@pytest.mark.parametrize("case", CASES, ids=[case.line for case in CASES])
async def test_every_verb_has_its_effect_and_an_entry_in_the_audit(held: CommandHarness, case: Case) -> None:
    reply = await held.ask(here(held, case.line), case.by)
    assert here(held, case.sees) in everything_said(reply)
    assert case.does(held)
    assert audit_of(held) == ([case.audit] if case.audit else [])


@pytest.mark.parametrize("case", CASES, ids=[case.line for case in CASES])
async def test_a_user_without_the_right_reads_who_has_it_and_nothing_happens(held: CommandHarness, case: Case) -> None:
    reply = await held.ask(here(held, case.line), GUEST)
    if case.who is RequiredRole.EVERYONE:
        assert "Only" not in reply.text
        return
    assert reply.failed
    assert reply.text.startswith("Only test:ana can do this. You can use `/")
    assert audit_of(held) == []
    assert held.servers.done == []
    assert held.refreshed == held.reloaded == 0


async def test_the_table_of_this_suite_has_every_verb_there_is() -> None:
    tried = {" ".join(case.line.split()) for case in CASES}
    for command, verbs in CommandHarness().registry.verbs.items():
        for verb in verbs:
            assert any(line.startswith(f"{command} {verb.path}".strip()) for line in tried), (command, verb.path)


@pytest.mark.parametrize("case", [case for case in CASES if case.line.startswith("mcp") and "help" not in case.line])
async def test_with_mcp_switched_off_every_verb_says_so(held: CommandHarness, case: Case) -> None:
    held.servers.enabled = False
    reply = await held.ask(here(held, case.line))
    assert reply.failed
    assert "`MCP_ENABLED=false`" in reply.text
    assert not (await held.ask("mcp help")).failed


@pytest.mark.parametrize("case", [case for case in CASES if case.line.split()[0] == "mcp" and "help" not in case.line])
async def test_a_database_that_is_away_is_one_clear_reply(held: CommandHarness, case: Case) -> None:
    held.store.away = held.grants.away = True
    reply = await held.ask(here(held, case.line), case.by)
    if case.line.startswith(("mcp reload", "mcp catalog")):
        assert not reply.failed
        return
    assert reply.failed
    if reply.details:
        assert ("cause", "The database is away.") in reply.details or "taken" in str(reply.details)


async def test_a_server_that_refuses_a_request_is_one_clear_reply(held: CommandHarness) -> None:
    held.servers.trouble = "It **did** not answer."
    reply = await held.ask("mcp sync jira")
    assert reply.failed
    assert ("cause", "It **did** not answer.") in reply.details


async def test_a_command_in_any_case_and_by_another_name_is_the_same(held: CommandHarness) -> None:
    assert await held.ask("mcp LIST") == await held.ask("mcp ls") == await held.ask("MCP list")
    assert await held.ask("mcp policy jira") == await held.ask("mcp policy list jira")
    assert await held.ask("conversations") == await held.ask("conversations list")


async def test_everybody_else_sees_no_address_no_reference_and_no_buttons(held: CommandHarness) -> None:
    for line in ("mcp show jira", "mcp list"):
        reply = await held.ask(line, GUEST)
        assert "jira.example" not in repr(reply)
        assert "JIRA_TOKEN" not in repr(reply)
        assert reply.actions == ()
    assert ("address", "https://jira.example/mcp") in (await held.ask("mcp show jira")).details
    assert ("secret auth", "env:JIRA_TOKEN") in (await held.ask("mcp show jira")).details


async def test_an_id_with_an_underscore_is_named_as_it_was_written(held: CommandHarness) -> None:
    for line in ("mcp show server_123", "mcp tools server_123", "mcp sync server_123"):
        reply = await held.ask(line)
        assert (reply.failed, reply.text.startswith("MCP server `server_123` not found.")) == (True, True), line


async def test_a_server_of_another_workspace_does_not_exist(held: CommandHarness) -> None:
    reply = await held.ask("mcp show jira", where=HALL.parse("test:other:hall:1"))
    assert reply.failed
    assert reply.text.startswith("MCP server `jira` not found.")
    listed = await held.ask("mcp list", where=HALL.parse("test:other:hall:1"))
    assert "jira" not in everything_said(listed)


@pytest.mark.parametrize(
    "line",
    ["mcp edit notes --description x", "mcp remove notes", "mcp disable notes", "mcp secret set notes env:X env:Y"],
)
async def test_a_server_of_the_operators_file_is_read_only_and_says_which_file(held: CommandHarness, line: str) -> None:
    for member in (ADMIN, OPERATOR):
        reply = await held.ask(line, member)
        assert reply.failed
        assert "`config/mcp_servers.json`" in reply.text
        assert "read-only" in reply.text
    assert audit_of(held) == []


async def test_a_server_of_every_workspace_is_for_the_operator_to_change(way: Way) -> None:
    held = await with_jira(OPERATOR, way)
    assert config_of(held, "jira").workspace == ""
    reply = await held.ask("mcp disable jira")
    assert reply.failed
    assert "Only the operator" in reply.text
    assert not (await held.ask("mcp disable jira", OPERATOR)).failed


async def test_a_server_that_another_process_has_just_added_is_listed(
    held: CommandHarness,
) -> None:
    held.servers.states = [state for state in held.servers.states if state.config.from_file]
    reply = await held.ask("mcp list")
    assert reply.table is not None
    assert any("jira" in row[0] for row in reply.table.rows)
    assert held.refreshed == 1
    assert not (await held.ask("mcp show jira")).failed
    assert held.refreshed == 1


async def test_disabling_offers_to_undo_it(held: CommandHarness) -> None:
    held.archive.waiting = 1
    reply = await held.ask("mcp disable jira")
    assert "1 approval is waiting; it will not run." in reply.text
    [undo] = reply.actions
    assert (undo.label, undo.words, undo.confirm) == ("Undo", ("mcp", "enable", "jira"), "")
    await held.answers(*undo.words)
    assert _record(held, "jira") is ServerEnablement.ON


async def test_removing_lists_the_lost_items_and_asks_for_the_name(held: CommandHarness) -> None:
    held.archive.waiting = 1
    await held.ask("mcp policy set jira deny")
    reply = await held.ask("mcp remove jira")
    assert not reply.failed
    for told in ("1 person used it this week, in 2 calls", "1 rule goes", "1 secret goes", "1 approval is waiting"):
        assert told in reply.text
    [action] = reply.actions
    assert action.confirm == "jira"
    assert held.store.entries
    wrong = await held.answers(*action.words, "--confirm", "notes")
    assert isinstance(wrong[-1], Reply)
    assert "Nothing was removed" in wrong[-1].text
    assert held.store.entries
    await held.answers(*action.words, "--confirm", action.confirm)
    assert not held.store.entries


async def test_the_list_of_conversations_says_their_state_in_words_for_people(held: CommandHarness) -> None:
    reply = await held.ask("conversations list")
    assert reply.table is not None
    assert "done" in reply.table.rows[0]
    assert "COMPLETED" not in str(reply)


async def test_removing_counts_no_secret_that_was_never_set(held: CommandHarness) -> None:
    (key, record) = next((key, record) for key, record in held.store.entries.items() if record.config.name == "jira")
    held.store.entries[key] = replace(record, missing=frozenset(record.secrets))
    assert "secret" not in (await held.ask("mcp remove jira")).text


async def test_removing_a_server_changed_meanwhile_asks_anew(held: CommandHarness) -> None:
    [action] = (await held.ask("mcp remove jira")).actions
    await held.ask("mcp edit jira --description other")
    reply = await held.run(*action.words, "--confirm", "jira")
    assert reply.failed
    assert "It was changed" in reply.text
    assert ("changed", f"just now by {held.way.author(ANA).principal}") in reply.details
    assert held.store.entries
    await held.answers(*reply.actions[0].words, "--confirm", "jira")
    assert not held.store.entries


async def test_an_undone_policy_is_the_one_before(held: CommandHarness) -> None:
    first = await held.ask("mcp policy set jira allow")
    second = await held.ask("mcp policy set jira deny")
    await held.answers(*second.actions[0].words)
    assert [rule.policy for rule in held.policies.entries.values()] == [ApprovalPolicy.ALWAYS_ALLOW]
    await held.answers(*first.actions[0].words)
    assert not held.policies.entries


async def test_a_policy_that_something_stricter_overrules_says_so(held: CommandHarness) -> None:
    held.named["notes", "delete"] = ApprovalPolicy.ALWAYS_DENY
    await held.ask("mcp policy set notes add ask")
    reply = await held.ask("mcp policy set notes allow")
    assert "For 2 of 6 tools another rule counts more: `/mcp policy explain` says which." in reply.text


async def test_a_call_by_hand_is_a_message_with_that_call_for_the_engine(held: CommandHarness) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "title": {"type": "string"}}}
    held.servers.offered[-1] = dataclasses.replace(held.servers.offered[-1], input_schema=schema)
    reply = await held.ask("mcp run jira create_issue n=3 title=007")
    assert reply.message is not None
    assert reply.message.author == held.way.author(ANA)
    assert reply.message.conversation == held.way.place(HALL)
    assert reply.message.call is not None
    assert reply.message.call.name == "jira__create_issue"
    assert reply.message.call.arguments == {"n": 3, "title": "007"}
    again = await held.run("mcp", "run", "jira", "create_issue", '{"n": 4}')
    assert again.message is not None
    assert again.message.keys != reply.message.keys
    assert again.message.call is not None
    assert again.message.call.arguments == {"n": 4}


async def test_long_lists_come_in_pages_of_ten(held: CommandHarness) -> None:
    for n in range(12):
        await held.ask(f"mcp add server-{n:02} --url https://s{n}.example/mcp --no-verify")
    first = await held.ask("mcp list")
    assert first.table is not None
    assert first.page is not None
    assert (len(first.table.rows), first.page.number, first.page.of) == (10, 1, 2)
    second = await held.run(*first.page.words, "--page", "2")
    assert second.table is not None
    assert len(second.table.rows) == 5
    assert not {row[0] for row in first.table.rows} & {row[0] for row in second.table.rows}


async def test_servers_that_are_just_connecting_are_shown_again_once_they_have_been_tried() -> None:
    held = await build_harness()
    before = held.servers.states[0]
    connecting = before.__class__(before.config, ServerStatus.CONNECTING)
    held.servers.states[0] = connecting
    held.servers.after_a_while = [before]
    replies = [each async for each in held.registry.handle(Invocation("mcp", ("show", "notes"), ADMIN, HALL))]
    states = [dict(reply.details)["state"] for reply in replies if isinstance(reply, Reply)]
    assert states == ["connecting", "connected"]


async def test_without_servers_the_list_says_how_to_add_one(way: Way) -> None:
    held = CommandHarness(Servers(), way=way)
    assert "Try `/mcp add`" in (await held.ask("mcp list")).text
    assert "Ask test:ana for one." in (await held.ask("mcp list", GUEST)).text


@pytest.mark.parametrize("typed", ["**bold**", "`x`", "\x1b[2J", "<@U1>", "[a](b)"])
async def test_typed_text_is_not_repeated_in_markdown(held: CommandHarness, typed: str) -> None:
    lines = ("mcp show", "mcp tools", "mcp", "mcp policy set jira", "profile show", "mcp run jira", "mcp remove", "")
    for line in lines:
        reply = await held.run(*line.split(), typed)
        assert reply.failed
        assert typed not in reply.text


async def test_a_misspelt_verb_server_tool_or_option_brings_the_nearest(held: CommandHarness) -> None:
    for line, meant in (
        ("mcp lsit", "`/mcp list`"),
        ("mcp show jria", "`jira`"),
        ("mcp policy set jira create_isue ask", "`create_issue`"),
        ("mcp add x --ulr https://x.example", "`--url`"),
        ("mpc list", "`/mcp`"),
        ("profile show Suport", "`Support`"),
    ):
        reply = await held.ask(line)
        assert reply.failed
        assert f"Did you mean {meant}?" in reply.text, line


async def test_another_persons_conversation_does_not_exist_for_a_member_and_does_for_an_admin(
    held: CommandHarness,
) -> None:
    for verb in ("show", "export", "delete"):
        reply = await held.ask(here(held, f"conversations {verb} hall:1"), GUEST)
        assert reply.failed
        assert reply.text.startswith("There is no such conversation.")
        assert not (await held.ask(here(held, f"conversations {verb} hall:1"))).failed
    assert (await held.ask("conversations list", GUEST)).text == "No conversations yet."
    assert (await held.ask("conversations list --all", GUEST)).failed
    held.archive.takers[str(held.way.place(HALL))] = {held.way.author(BEN).principal}
    assert not (await held.ask(here(held, "conversations show hall:1"), GUEST)).failed


async def test_a_conversation_in_which_something_runs_is_not_deleted(held: CommandHarness) -> None:
    held.archive.busy = True
    reply = await held.ask(here(held, "conversations delete hall:1 --confirm 1"))
    assert reply.failed
    assert "not at rest" in reply.text
