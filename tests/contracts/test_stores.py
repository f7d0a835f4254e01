"""Contract of every store (`bot.ports`), on each database."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa

from bot.domain.approvals import Approval, ApprovalPolicy, ApprovalRequirements, Decision, DecisionType, OnTimeout
from bot.domain.audit import AuditQuery
from bot.domain.completions import StopReason
from bot.domain.conversations import Author, ConversationKey
from bot.domain.flows import Sends, ServerFlows, Words
from bot.domain.locales import Locale, UserLocale
from bot.domain.messages import TextPart, ToolCall, ToolResult, assistant
from bot.domain.policies import ANY, Rule, StoredPolicyResult
from bot.domain.profiles import Binding, Profile
from bot.domain.secret_binding import SecretGrants
from bot.domain.secrets import SecretReference, SecretSource
from bot.domain.servers import (
    AUTH_SECRET,
    EVERYWHERE,
    Authentication,
    AuthenticationKind,
    CachedCapabilities,
    Handshake,
    HttpKind,
    HttpTransport,
    Prompt,
    PromptArgument,
    Protocol,
    Resource,
    ResourceTemplate,
    ServerCapabilities,
    ServerConfig,
    ServerEnablement,
    ServerRecord,
    SessionScope,
    StdioTransport,
    SyncStatus,
    ToolNaming,
)
from bot.domain.tools import Annotations, Tool
from bot.domain.turns import ModelStep, StepStatus, ToolRef, ToolStep, TurnStatus
from bot.errors import Conflict, NotFound, SecretUnavailable
from bot.ports import (
    CallQuery,
    PendingApproval,
    PendingApprovalPosition,
    PolicyStore,
    ProfileStore,
    ReportingStore,
    ServerStore,
    UserActivity,
)
from bot.ports.reporting import LONGEST_ERROR, read_pending_approvals
from bot.storage import encryption
from bot.storage.admin.policies import SqlPolicyStore
from bot.storage.admin.profiles import SqlProfileStore
from bot.storage.admin.servers import SqlServerStore
from bot.storage.database import Database
from bot.storage.encryption import SecretBox, generate_key, make_box
from bot.storage.reporting import SqlReporting
from bot.storage.tables import metadata
from bot.storage.user_data import SqlFeedbackStore, SqlLocaleStore
from tests.audit_check import audit_findings
from tests.fakes.parts import ANA, BEN, HALL, NEWEST, message
from tests.rules import plain
from tests.turn_log_harness import START, Harness, SqliteHarness, running

T = TypeVar("T")

KEY = generate_key()
TOKEN = "xoxb-the-token-of-weather"
HOME = "test:w"
STORED = SecretReference(SecretSource.STORED)
WEIRD = "a\0b \ud83d c\u202e 💡"


def server_store(harness: Harness, box: SecretBox | None = None, **environment: str) -> SqlServerStore:
    """Return a server store that grants every secret reference to all servers."""
    return SqlServerStore(harness.database, make_box(KEY) if box is None else box, environment, grants=Everything)


class Everything(SecretGrants):
    """Secret grants that allow every reference."""

    def objection(self, reference: SecretReference, config: ServerConfig) -> tuple[str, str]:
        return "", ""


@pytest.fixture
def servers(harness: Harness) -> SqlServerStore:
    return server_store(harness)


def test_the_stores_implement_their_ports(harness: Harness) -> None:
    _servers: ServerStore = server_store(harness)
    _policies: PolicyStore = SqlPolicyStore(harness.database)
    _profiles: ProfileStore = SqlProfileStore(harness.database)
    _archive: ReportingStore = SqlReporting(harness.database)
    _overview: UserActivity = SqlReporting(harness.database)


def record(slug: str = "weather", workspace: str = HOME, **fields: Any) -> ServerRecord:
    of_config = {name: fields.pop(name) for name in list(fields) if name in ServerConfig.__dataclass_fields__}
    config = {
        "transport": HttpTransport("https://weather.example/mcp"),
        "id": f"id-of-{slug}-{workspace}",
        "title": f"The {slug}",
        **of_config,
    }
    return ServerRecord(ServerConfig(name=slug, workspace=workspace, **config), **fields)


def with_token(slug: str = "weather", **fields: Any) -> ServerRecord:
    return record(
        slug, authentication=Authentication(AuthenticationKind.API_KEY), secrets={AUTH_SECRET: STORED}, **fields
    )


def renamed_server(known: ServerRecord, title: str) -> ServerRecord:
    return dataclasses.replace(known, config=dataclasses.replace(known.config, title=title))


async def entries(harness: Harness, subject: str = "") -> Sequence[tuple[str, str]]:
    """Return the kinds and users of the audit entries, newest first."""
    page, _ = await SqlReporting(harness.database).audit(AuditQuery(subject), 100, 0)
    return [(entry.kind, entry.actor) for entry in page]


async def rows_of(harness: Harness, table: str) -> list[tuple[Any, ...]]:
    def read(connection: sa.Connection) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in connection.execute(sa.select(metadata.tables[table]))]

    return await harness.database.run(read)


async def dump(harness: Harness, folder: Path) -> bytes:
    """Return the content of the database as bytes: the files of SQLite with its log, the rows of PostgreSQL."""
    if isinstance(harness, SqliteHarness):
        return b"".join(file.read_bytes() for file in sorted(folder.glob("turns.db*")))  # noqa: ASYNC240
    tables = [await rows_of(harness, name) for name in metadata.tables]
    return repr(tables).encode()


async def the_chain_is_whole(harness: Harness) -> bool:
    return await audit_findings(harness.database) == []


async def execute(harness: Harness, statement: str, **values: Any) -> None:
    await harness.database.run(lambda connection: connection.execute(sa.text(statement), values))


# ---------------------------------------------------------------------- servers


FILLED_IN = ("sign_in",)
"""Fields that are set by the connection to the server."""


async def test_a_server_is_kept_with_every_field(harness: Harness, servers: SqlServerStore) -> None:
    everything = ServerRecord(
        ServerConfig(
            name="files",
            transport=StdioTransport("files", ("--root", "/data"), {"MODE": "ro"}, "/srv"),
            trusted=True,
            system_instruction="Say please.",
            response_instruction="Say thanks.",
            roots=("/srv/shared",),
            auto_context_tool="look",
            connect_timeout=5.5,
            list_timeout=4.5,
            tool_timeout=6.5,
            tool_timeout_max=60.5,
            tool_timeouts={"export": 20.5},
            id="id-1",
            workspace=HOME,
            title="Our files",
            description="What we wrote",
            auto_connect=False,
            protocol=Protocol.V2025_06_18,
            flows=ServerFlows(
                Words.SHARED,
                Sends.TEAM,
                {"read": Words.STRANGERS},
                {"send": Sends.WORLD},
                {"send": ("to", "cc")},
            ),
            reconnect=False,
            connect_retries=2,
            output_limit=9_000,
            fallback_group="web",
            fallback_order=2,
            tool_names=ToolNaming.PLAIN,
            sessions=SessionScope.PERSON,
            max_sessions=3,
            session_idle_timeout=60.5,
            use_instructions=True,
        ),
        Authentication(AuthenticationKind.BASIC, "X-Auth", "client-7", "read write", issuer="https://sso.example"),
        {"env:TOKEN": SecretReference(SecretSource.ENVIRONMENT, "TOKEN"), "auth": STORED},
        ServerEnablement.DISCONNECTED,
    )
    for each in (everything.config, everything.authentication):
        plain = {name: field.default for name, field in type(each).__dataclass_fields__.items()}
        untouched = [name for name in plain if getattr(each, name) == plain[name] and name not in FILLED_IN]
        assert untouched == [], "the test leaves no field out"
    harness.time = START + 5
    added = await servers.add(everything, {"auth": TOKEN}, ANA)
    assert added == dataclasses.replace(
        everything,
        version=1,
        created_at=START + 5,
        updated_at=START + 5,
        created_by=ANA.principal,
        updated_by=ANA.principal,
    )
    assert await servers.records() == [added]
    http = record(transport=HttpTransport("https://x.example/mcp", {"X-Team": "red"}), workspace=EVERYWHERE)
    assert (await servers.add(http, {}, ANA)).config == http.config
    oauth = Authentication(AuthenticationKind.OAUTH, client_id="bot", scope="read write")
    signed_in = dataclasses.replace(record("signed-in", workspace=EVERYWHERE), authentication=oauth, secrets={})
    await servers.add(signed_in, {}, ANA)
    assert oauth in [known.authentication for known in await servers.records()]


@pytest.mark.parametrize("kind", HttpKind)
async def test_every_way_over_http_is_read_as_it_was_written(servers: SqlServerStore, kind: HttpKind) -> None:
    added = await servers.add(record(transport=HttpTransport("https://x.example/mcp", kind=kind)), {}, ANA)
    assert added.config.transport == HttpTransport("https://x.example/mcp", kind=kind)
    assert await servers.records() == [added]


async def test_a_changed_server_has_its_last_editor_and_time(harness: Harness, servers: SqlServerStore) -> None:
    added = await servers.add(record(), {}, ANA)
    harness.time = START + 60
    changed = await servers.change(renamed_server(added, "Rain"), {}, BEN, changes={"title": "The weather → Rain"})
    assert changed.config.title == "Rain"
    assert (changed.version, changed.updated_by, changed.updated_at) == (2, BEN.principal, START + 60)
    assert (changed.created_by, changed.created_at) == (ANA.principal, START)


async def test_a_change_of_an_old_version_fails_with_the_faster_editor(
    harness: Harness, servers: SqlServerStore
) -> None:
    added = await servers.add(record(), {}, ANA)
    await servers.change(renamed_server(added, "Rain"), {}, BEN, changes={})
    with pytest.raises(
        Conflict, match=r"weather was changed meanwhile by test:ben \(1970-01-12 13:46:40 UTC\)"
    ) as late:
        await servers.change(renamed_server(added, "Sun"), {}, ANA, changes={})
    assert late.value.field == ""
    assert late.value.fix
    with pytest.raises(Conflict, match="changed meanwhile by test:ben"):
        await servers.remove(added.id, added.version, ANA)
    assert [each.config.title for each in await servers.records()] == ["Rain"]
    assert await entries(harness, added.id) == [("changed server", "test:ben"), ("added server", "test:ana")]


async def test_an_administrators_own_earlier_change_is_not_overwritten_either(servers: SqlServerStore) -> None:
    added = await servers.add(record(), {}, ANA)
    await servers.change(renamed_server(added, "Rain"), {}, ANA, changes={})
    with pytest.raises(Conflict, match="changed meanwhile by test:ana"):
        await servers.change(renamed_server(added, "Sun"), {}, ANA, changes={})
    assert [each.config.title for each in await servers.records()] == ["Rain"]


class Forgetful:
    """A database that loses the response to every COMMIT and runs each transaction twice."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self, transaction: Callable[[sa.Connection], T], **options: Any) -> T:
        await self._database.run(transaction, **options)
        return await self._database.run(transaction, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


async def test_a_change_whose_commit_gave_no_answer_is_made_once_and_gives_the_answer(harness: Harness) -> None:
    forgetful: Any = Forgetful(harness.database)
    servers = SqlServerStore(forgetful, make_box(KEY), {})
    policies, profiles, archive = SqlPolicyStore(forgetful), SqlProfileStore(forgetful), SqlReporting(forgetful)
    added = await servers.add(with_token(), {"auth": "first"}, ANA)
    changed = await servers.change(renamed_server(added, "Rain"), {"auth": TOKEN}, ANA, changes={})
    assert (changed.config.title, changed.version) == ("Rain", 2)
    assert await servers.read_secrets(changed) == {"auth": TOKEN}
    off = await servers.set_enablement(added.id, ServerEnablement.DISABLED, ANA)
    assert off.version == 3
    rule = await policies.set_rule(plain(added.id, "run", ApprovalPolicy.ALWAYS_DENY), ANA)
    assert await policies.clear_rule(rule.id, ANA)
    profile = await profiles.save(Profile("p1", "Clerk"), ANA)
    assert (await profiles.save(dataclasses.replace(profile, persona="Be brief."), ANA)).version == 2
    await profiles.bind(HOME, "p1", ANA)
    assert await profiles.unbind(HOME, ANA)
    assert await profiles.delete("p1", ANA)
    await servers.save_capabilities(added.id, OFFER)
    await servers.remove(added.id, 3, ANA)
    assert await servers.revision() == 12
    assert [kind for kind, _ in reversed(await entries(harness))] == [
        "added server",
        "changed server",
        "switched server off",
        "set policy",
        "cleared policy",
        "added profile",
        "changed profile",
        "bound profile",
        "unbound profile",
        "deleted profile",
        "removed server",
    ]
    await harness.log.finish(await running(harness), TurnStatus.DONE, [], "")
    assert await archive.delete(HALL, ANA)


async def test_a_name_that_is_taken_in_a_workspace_is_refused_under_its_field(servers: SqlServerStore) -> None:
    await servers.add(record(title="Wetter für Köln"), {}, ANA)
    with pytest.raises(Conflict) as slug:
        await servers.add(record(id="other", title="Other"), {}, ANA)
    with pytest.raises(Conflict) as title:
        await servers.add(record("rain", title="WETTER  FÜR KÖLN"), {}, ANA)
    assert (slug.value.field, title.value.field) == ("name", "title")
    elsewhere = await servers.add(record(workspace="test:v", title="Wetter für Köln"), {}, ANA)
    rain = await servers.add(record("rain"), {}, ANA)
    with pytest.raises(Conflict, match="has this title already"):
        await servers.change(renamed_server(rain, "wetter für köln"), {}, ANA, changes={})
    assert {each.id for each in await servers.records()} == {"id-of-weather-test:w", elsewhere.id, rain.id}


async def test_servers_without_titles_do_not_take_each_others_names(servers: SqlServerStore) -> None:
    await servers.add(record("one", title=""), {}, ANA)
    await servers.add(record("two", title=""), {}, ANA)
    assert [each.config.title for each in await servers.records()] == ["", ""]


@pytest.mark.parametrize(("first", "second"), [(EVERYWHERE, HOME), (HOME, EVERYWHERE)])
async def test_a_server_of_everybody_shares_its_slug_with_none_of_a_workspace(
    servers: SqlServerStore, first: str, second: str
) -> None:
    await servers.add(record(workspace=first), {}, ANA)
    with pytest.raises(Conflict) as caught:
        await servers.add(record(workspace=second, title="Other"), {}, ANA)
    assert caught.value.field == "name"


async def test_a_server_is_switched_at_any_version_and_a_change_of_it_leaves_that_alone(
    harness: Harness, servers: SqlServerStore
) -> None:
    added = await servers.add(record(), {}, ANA)
    off = await servers.set_enablement(added.id, ServerEnablement.DISABLED, BEN)
    assert (off.enablement, off.version) == (ServerEnablement.DISABLED, 2)
    assert await servers.set_enablement(added.id, ServerEnablement.DISABLED, BEN) == off
    stale = dataclasses.replace(renamed_server(off, "Rain"), enablement=ServerEnablement.ON)
    assert (await servers.change(stale, {}, BEN, changes={})).enablement is ServerEnablement.DISABLED
    await servers.set_enablement(added.id, ServerEnablement.ON, ANA)
    await servers.set_enablement(added.id, ServerEnablement.DISCONNECTED, ANA)
    assert [kind for kind, _ in await entries(harness, added.id)] == [
        "disconnected server",
        "switched server on",
        "changed server",
        "switched server off",
        "added server",
    ]


async def test_a_removed_server_takes_its_secrets_policies_and_tools_along_and_no_others(
    harness: Harness, servers: SqlServerStore
) -> None:
    policies = SqlPolicyStore(harness.database)
    kept, gone = [await servers.add(with_token(slug), {"auth": TOKEN}, ANA) for slug in ("kept", "gone")]
    for each in (kept, gone):
        await policies.set_rule(plain(each.id, "run", ApprovalPolicy.ALWAYS_DENY), ANA)
        await servers.save_capabilities(each.id, OFFER)
    gone = await servers.set_enablement(gone.id, ServerEnablement.DISABLED, ANA)
    await servers.remove(gone.id, gone.version, BEN)
    assert [each.id for each in await servers.records()] == [kept.id]
    assert [rule.server_id for rule in await policies.rules()] == [kept.id]
    assert list(await servers.cached_capabilities()) == [kept.id]
    assert [row[0] for row in await rows_of(harness, "mcp_secrets")] == [kept.id]
    assert (await entries(harness, gone.id))[0] == ("removed server", BEN.principal)
    assert await the_chain_is_whole(harness)


async def test_a_change_of_a_removed_server_is_refused(harness: Harness, servers: SqlServerStore) -> None:
    added = await servers.add(record(), {}, ANA)
    await servers.remove(added.id, added.version, ANA)
    with pytest.raises(NotFound):
        await servers.remove(added.id, added.version, ANA)
    with pytest.raises(NotFound):
        await servers.change(renamed_server(added, "Rain"), {}, ANA, changes={})
    with pytest.raises(NotFound):
        await servers.set_enablement(added.id, ServerEnablement.DISABLED, ANA)
    with pytest.raises(NotFound):
        await SqlPolicyStore(harness.database).set_rule(plain(added.id, "x", ApprovalPolicy.ASK_USER), ANA)
    # A sync that was running when its server was removed.
    await servers.save_capabilities(added.id, OFFER)
    await servers.save_sync_failure(added.id, "gone")
    assert await servers.cached_capabilities() == {}


async def test_names_no_database_can_store_do_no_harm(harness: Harness, servers: SqlServerStore) -> None:
    strange = Author("test", WEIRD, WEIRD)
    added = await servers.add(record(title=WEIRD, description=WEIRD, system_instruction=WEIRD), {}, strange)
    assert added.config.title == added.config.description == "a\ufffdb ? c\u202e 💡"
    assert added.config.system_instruction == WEIRD
    changed = await servers.change(
        renamed_server(added, f"{WEIRD}!"), {}, strange, changes={"title": f"{WEIRD} → {WEIRD}!"}
    )
    profiles = SqlProfileStore(harness.database)
    profile = await profiles.save(Profile("p1", WEIRD, HOME, persona=WEIRD), strange)
    await profiles.bind(f"test:w:{WEIRD}", profile.id, strange)
    await SqlPolicyStore(harness.database).set_rule(plain(added.id, WEIRD, ApprovalPolicy.ASK_USER), strange)
    await servers.save_sync_failure(added.id, WEIRD)
    assert await servers.records() == [changed]
    assert profile.persona == WEIRD
    assert await the_chain_is_whole(harness)
    assert len(await entries(harness)) == 5


async def test_one_row_that_cannot_be_read_keeps_no_other_from_being_read(
    harness: Harness, servers: SqlServerStore, caplog: pytest.LogCaptureFixture
) -> None:
    for slug in ("bad", "good", "worse"):
        await servers.add(with_token(slug), {"auth": TOKEN}, ANA)
    await execute(harness, "update mcp_servers set definition = '{\"v\": 9}' where slug = 'bad'")
    await execute(harness, "update mcp_secrets set source = 'vault' where server_id like '%worse%'")
    for _ in range(3):
        assert [each.config.name for each in await servers.records()] == ["good"]
    assert sum("cannot be read" in each for each in caplog.messages) == 2


# ---------------------------------------------------------------------- capabilities

TOOL = Tool(
    name="weather__run",
    server="weather",
    original_name="run",
    title="Run",
    description=WEIRD,
    input_schema={"type": "object", "properties": {"b": {"type": "string"}, "a": {"enum": [1, 2.5, None]}}},
    output_schema={"type": "object"},
    annotations=Annotations(read_only=True, destructive=False, open_world=True),
    trusted=True,
    server_id="id-of-weather-test:w",
)
OFFER = ServerCapabilities(
    tools=(TOOL, dataclasses.replace(TOOL, original_name="look", output_schema=None, annotations=Annotations())),
    resources=(Resource("file:///a", "a", "A", "the a", "text/plain", 12), Resource("file:///b", "b")),
    templates=(ResourceTemplate("file:///{name}", "any", "Any", "all of them", "text/plain"),),
    prompts=(Prompt("greet", "Greet", "says hello", (PromptArgument("who", "whom", required=True),)), Prompt("bye")),
    server_version="1.2",
    protocol="2025-11-25",
    handshake=Handshake("sse", "a digest of where", START - 0.5),
    left_out=("2 without a name",),
)


async def test_the_offers_of_a_server_are_read_back_exactly(harness: Harness, servers: SqlServerStore) -> None:
    await servers.save_capabilities("file:weather", OFFER)
    known = await servers.cached_capabilities()
    assert known == {"file:weather": CachedCapabilities(SyncStatus.SYNCED, OFFER, START)}
    read = known["file:weather"].capabilities
    assert [tool.definition for tool in read.tools] == [tool.definition for tool in OFFER.tools]
    assert list(read.tools[0].input_schema["properties"]) == ["b", "a"]


async def test_a_failed_sync_keeps_the_known_tools_and_a_good_one_clears_the_failure(
    harness: Harness, servers: SqlServerStore
) -> None:
    await servers.save_sync_failure("file:weather", "It did not answer.")
    assert await servers.cached_capabilities() == {
        "file:weather": CachedCapabilities(SyncStatus.SYNC_FAILED, problem="It did not answer.")
    }
    await servers.save_capabilities("file:weather", OFFER)
    harness.time = START + 300
    await servers.save_sync_failure("file:weather", "Gone.")
    assert await servers.cached_capabilities() == {
        "file:weather": CachedCapabilities(SyncStatus.SYNC_FAILED, OFFER, START, "Gone.")
    }
    await servers.save_capabilities("file:weather", OFFER)
    assert await servers.cached_capabilities() == {
        "file:weather": CachedCapabilities(SyncStatus.SYNCED, OFFER, START + 300)
    }


async def test_a_sync_is_no_change_unless_something_else_is_offered(servers: SqlServerStore) -> None:
    await servers.save_capabilities("file:weather", OFFER)
    before = await servers.revision()
    turned = dataclasses.replace(OFFER, tools=tuple(reversed(OFFER.tools)), server_version="1.3")
    await servers.save_capabilities("file:weather", OFFER)
    await servers.save_sync_failure("file:weather", "busy")
    await servers.save_capabilities("file:weather", turned)
    assert await servers.revision() == before
    for kind in ("tools", "resources", "templates", "prompts"):
        await servers.save_capabilities(
            "file:weather", dataclasses.replace(OFFER, **{kind: getattr(OFFER, kind)[:1] * 3})
        )
        after = await servers.revision()
        assert after > before
        before = after


async def test_the_first_sync_of_a_server_that_offers_nothing_is_no_change(servers: SqlServerStore) -> None:
    before = await servers.revision()
    await servers.save_capabilities("file:weather", ServerCapabilities())
    assert await servers.revision() == before
    assert (await servers.cached_capabilities())["file:weather"].status is SyncStatus.SYNCED


@pytest.mark.parametrize("text", ["{", "[]", '{"tools": [1]}', "null", ""])
async def test_unreadable_offers_are_left_out_logged_once_and_replaced_by_the_next_sync(
    harness: Harness, servers: SqlServerStore, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    await servers.save_capabilities("file:weather", OFFER)
    await servers.save_capabilities("file:news", OFFER)
    await execute(harness, "update mcp_capabilities set capabilities = :t where server_id = 'file:weather'", t=text)
    for _ in range(3):
        assert list(await servers.cached_capabilities()) == ["file:news"]
    assert [each for each in caplog.messages if "file:weather" in each] == [
        "What is known of the server file:weather cannot be read and is left out"
    ]
    await servers.save_capabilities("file:weather", OFFER)
    assert (await servers.cached_capabilities())["file:weather"].capabilities == OFFER


# ---------------------------------------------------------------------- the revision


async def test_the_revision_grows_with_every_change_of_servers_policies_and_profiles(
    harness: Harness, servers: SqlServerStore
) -> None:
    policies, profiles = SqlPolicyStore(harness.database), SqlProfileStore(harness.database)
    added = await servers.add(record(), {}, ANA)
    profile = await profiles.save(Profile("p1", "Clerk"), ANA)
    rule = plain(added.id, "run", ApprovalPolicy.ALWAYS_DENY)
    before = await servers.revision()
    for change in (
        lambda: servers.set_enablement(added.id, ServerEnablement.DISABLED, ANA),
        lambda: servers.change(dataclasses.replace(renamed_server(added, "R"), version=2), {}, ANA, changes={}),
        lambda: policies.set_rule(rule, ANA),
        lambda: clear_all(policies),
        lambda: profiles.save(dataclasses.replace(profile, persona="Be brief."), ANA),
        lambda: profiles.bind(HOME, "p1", ANA),
        lambda: profiles.unbind(HOME, ANA),
        lambda: profiles.bind_by_name(HOME, "p1", ANA),
        lambda: profiles.unbind_by_name(HOME, "p1", ANA),
        lambda: profiles.delete("p1", ANA),
        lambda: servers.save_capabilities(added.id, OFFER),
        lambda: servers.remove(added.id, 3, ANA),
    ):
        await change()
        after = await servers.revision()
        assert after > before
        before = after


async def test_an_edit_without_a_change_leaves_the_revision_and_the_audit_alone(
    harness: Harness, servers: SqlServerStore
) -> None:
    policies, profiles = SqlPolicyStore(harness.database), SqlProfileStore(harness.database)
    added = await servers.add(record(), {}, ANA)
    rule = plain(added.id, "run", ApprovalPolicy.ALWAYS_DENY)
    await policies.set_rule(rule, ANA)
    await profiles.save(Profile("p1", "Clerk"), ANA)
    await profiles.bind(HOME, "p1", ANA)
    before = await servers.revision(), await entries(harness)
    await servers.set_enablement(added.id, ServerEnablement.ON, BEN)
    await policies.set_rule(rule, BEN)
    await profiles.bind(HOME, "p1", BEN)
    assert not await policies.clear_rule("rule_unheard_of", BEN)
    assert not await profiles.unbind("test:v", BEN)
    assert not await profiles.delete("p2", BEN)
    with pytest.raises(Conflict):
        await servers.remove(added.id, 7, BEN)
    assert (await servers.revision(), await entries(harness)) == before


# ---------------------------------------------------------------------- secrets


async def test_secrets_are_revealed_from_every_source(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b" from a file\r\n\r\n")
    servers = server_store(harness, PASSWORD="from the environment")
    kept = record(
        secrets={
            "auth": STORED,
            "env:A": SecretReference(SecretSource.ENVIRONMENT, "PASSWORD"),
            "header:X-B": SecretReference(SecretSource.FILE, str(tmp_path / "token")),
        }
    )
    added = await servers.add(kept, {"auth": TOKEN}, ANA)
    assert await servers.read_secrets(added) == {
        "auth": TOKEN,
        "env:A": "from the environment",
        "header:X-B": " from a file\r\n",
    }
    assert await servers.read_secrets(record("bare")) == {}


async def test_a_stored_secret_stays_until_it_is_set_anew_or_comes_from_elsewhere(
    harness: Harness, servers: SqlServerStore
) -> None:
    added = await servers.add(with_token(), {"auth": "first"}, ANA)
    kept = await servers.change(renamed_server(added, "Rain"), {}, ANA, changes={})
    assert await servers.read_secrets(kept) == {"auth": "first"}
    again = await servers.change(kept, {"auth": "second"}, ANA, changes={})
    assert await servers.read_secrets(again) == {"auth": "second"}
    elsewhere = {"auth": SecretReference(SecretSource.ENVIRONMENT, "NOWHERE")}
    moved = await servers.change(dataclasses.replace(again, secrets=elsewhere), {}, ANA, changes={})
    assert moved.secrets == elsewhere
    back = await servers.change(dataclasses.replace(moved, secrets={"auth": STORED}), {}, ANA, changes={})
    with pytest.raises(SecretUnavailable, match="The secret auth of weather is not available: it is not set"):
        await servers.read_secrets(back)
    await servers.change(dataclasses.replace(back, secrets={}), {}, ANA, changes={})
    assert await rows_of(harness, "mcp_secrets") == []


async def test_a_value_for_a_secret_that_is_not_stored_is_a_mistake_of_the_caller(servers: SqlServerStore) -> None:
    for each in (record(), record(secrets={"auth": SecretReference(SecretSource.ENVIRONMENT, "X")})):
        with pytest.raises(ValueError, match="'auth'") as caught:
            await servers.add(each, {"auth": TOKEN}, ANA)
        assert TOKEN not in str(caught.value)


async def test_unreadable_secrets_have_place_cause_and_fix(harness: Harness, tmp_path: Path) -> None:
    files = {"empty": b"\n", "large": b"x" * 65_537, "bytes": b"\xff\xfe", "whole": b"x" * 65_536}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    os.mkfifo(tmp_path / "pipe")
    servers = server_store(harness, EMPTY="")
    found = {
        "env:A": (SecretReference(SecretSource.ENVIRONMENT, "GONE"), "variable GONE is not set"),
        "env:B": (SecretReference(SecretSource.ENVIRONMENT, "EMPTY"), "variable EMPTY is not set"),
        "header:A": (SecretReference(SecretSource.FILE, str(tmp_path / "gone")), "cannot be read: No such file"),
        "header:B": (SecretReference(SecretSource.FILE, str(tmp_path / "empty")), "empty is empty"),
        "header:C": (SecretReference(SecretSource.FILE, str(tmp_path / "large")), "larger than 64 KiB"),
        "header:D": (SecretReference(SecretSource.FILE, str(tmp_path / "bytes")), "is not text"),
        "header:E": (SecretReference(SecretSource.FILE, str(tmp_path)), "is not a regular file"),
        "header:F": (SecretReference(SecretSource.FILE, str(tmp_path / "pipe")), "is not a regular file"),
        "header:G": (SecretReference(SecretSource.FILE, "/dev/zero"), "is not a regular file"),
    }
    for slot, (reference, reason) in found.items():
        with pytest.raises(SecretUnavailable, match=f"The secret {slot} of weather is not available: .*{reason}") as no:
            await servers.read_secrets(record(secrets={slot: reference}))
        assert no.value.fix
    whole = record(secrets={"auth": SecretReference(SecretSource.FILE, str(tmp_path / "whole"))})
    assert await servers.read_secrets(whole) == {"auth": "x" * 65_536}


async def test_with_the_wrong_key_one_server_says_why_and_everything_else_goes_on(harness: Harness) -> None:
    added = await server_store(harness).add(with_token(), {"auth": TOKEN}, ANA)
    wrong = server_store(harness, make_box(generate_key()))
    with pytest.raises(SecretUnavailable) as caught:
        await wrong.read_secrets(added)
    assert caught.value.cause.startswith(
        "The secret auth of weather is not available: it was encrypted with another key"
    )
    assert "MCP_ENCRYPTION_KEY" in caught.value.fix
    assert TOKEN not in str(caught.value)
    assert await wrong.records() == [added]
    none = server_store(harness, SecretBox())
    with pytest.raises(SecretUnavailable, match="which is not set"):
        await none.read_secrets(added)
    with pytest.raises(SecretUnavailable, match="no key to encrypt secrets with"):
        await none.add(with_token("rain"), {"auth": TOKEN}, ANA)
    assert await none.records() == [added]


async def test_a_ciphertext_opens_only_where_it_was_put(harness: Harness, servers: SqlServerStore) -> None:
    mine, theirs = [await servers.add(with_token(slug), {"auth": slug}, ANA) for slug in ("mine", "theirs")]
    move = """update mcp_secrets set ciphertext =
        (select ciphertext from mcp_secrets where server_id = :theirs) where server_id = :mine"""
    await execute(harness, move, mine=mine.id, theirs=theirs.id)
    with pytest.raises(SecretUnavailable, match="tampered"):
        await servers.read_secrets(mine)


async def test_after_a_rotation_the_new_key_alone_opens_everything(harness: Harness) -> None:
    old, new = generate_key(), generate_key()
    before = server_store(harness, make_box(old))
    added = [await before.add(with_token(slug), {"auth": slug}, ANA) for slug in ("one", "two")]
    lost = await server_store(harness).add(with_token("lost"), {"auth": "lost"}, ANA)
    revision = await before.revision()
    assert await server_store(harness, make_box(f"{new},{old}")).reseal(BEN) == (2, ["lost auth"])
    after = server_store(harness, make_box(new))
    assert [await after.read_secrets(each) for each in added] == [{"auth": "one"}, {"auth": "two"}]
    assert await server_store(harness).read_secrets(lost) == {"auth": "lost"}
    for each in added:
        with pytest.raises(SecretUnavailable):
            await before.read_secrets(each)
    assert await after.revision() == revision
    assert await the_chain_is_whole(harness)


async def test_a_password_opens_its_secrets_after_a_key_has_replaced_it(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encryption, "_ROUNDS", 2)
    added = await server_store(harness, make_box("", "open sesame")).add(with_token(), {"auth": TOKEN}, ANA)
    both = server_store(harness, make_box(KEY, "open sesame"))
    assert await both.read_secrets(added) == {"auth": TOKEN}
    assert await both.reseal(ANA) == (1, [])
    assert await server_store(harness).read_secrets(added) == {"auth": TOKEN}


async def test_nothing_of_a_secret_is_in_the_database(
    harness: Harness, servers: SqlServerStore, tmp_path: Path
) -> None:
    secret = {"auth": TOKEN, "header:X-Key": "another-long-secret"}
    sealed = record(secrets=dict.fromkeys(secret, STORED))
    added = await servers.add(sealed, secret, ANA)
    told = {"auth": f"was {TOKEN}", "title": "Old → New"}
    changed = await servers.change(renamed_server(added, "New"), {"auth": TOKEN}, ANA, changes=told)
    await servers.reseal(ANA)
    held = await dump(harness, tmp_path)
    assert b"weather.example" in held, "it looks where the rows are"
    for value in (*secret.values(), KEY):
        for spelled in (value.encode(), base64.b64encode(value.encode()), value.encode().hex().encode()):
            assert spelled not in held
    await servers.remove(changed.id, changed.version, ANA)
    assert TOKEN.encode() not in await dump(harness, tmp_path)


async def test_the_audit_has_the_changes_without_secrets_and_their_addresses(
    harness: Harness, servers: SqlServerStore
) -> None:
    url = HttpTransport("https://ana:hunter2@weather.example:8443/mcp?key=hunter2", {"X-Key": "hunter2"})
    added = await servers.add(with_token(transport=url, description="d"), {"auth": "hunter2"}, ANA)
    command = StdioTransport("files", ("--token", "hunter2"), {"TOKEN": "hunter2"})
    await servers.add(record("files", transport=command), {}, ANA)
    changes = {"title": "The weather → Rain"}
    await servers.change(renamed_server(added, "Rain"), {"auth": "hunter2"}, BEN, changes=changes)
    page, count = await SqlReporting(harness.database).audit(AuditQuery(), 10, 0)
    assert count == 3
    assert page[0].facts == {"server": "weather", "changes": changes, "secrets_set": ["auth"]}
    assert page[1].facts["command"] == "files"
    assert page[2].facts == {
        "server": "weather",
        "workspace": HOME,
        "transport": "streamable_http",
        "host": "weather.example:8443",
        "authentication": "api_key",
        "secrets": {"auth": "stored"},
        "trusted": False,
        "auto_connect": True,
        "standing": "on",
    }
    assert "hunter2" not in repr(page)


# ---------------------------------------------------------------------- policies


async def clear_all(policies: SqlPolicyStore) -> None:
    for rule in await policies.rules():
        await policies.clear_rule(rule.id, ANA)


async def test_rules_are_set_replaced_and_cleared(harness: Harness, servers: SqlServerStore) -> None:
    policies = SqlPolicyStore(harness.database)
    added = await servers.add(record(), {}, ANA)
    first = await policies.set_rule(plain(added.id, "", ApprovalPolicy.ALWAYS_ALLOW), ANA)
    news = await policies.set_rule(plain("file:news", "read", ApprovalPolicy.ASK_USER), ANA)
    harness.time = START + 9
    again = await policies.set_rule(plain(added.id, "", ApprovalPolicy.ALWAYS_DENY), BEN)
    assert again.id == first.id != news.id
    assert await policies.rules() == sorted(
        [
            plain("file:news", "read", ApprovalPolicy.ASK_USER, id=news.id, by=ANA.principal, at=START),
            plain(added.id, "", ApprovalPolicy.ALWAYS_DENY, id=first.id, by=BEN.principal, at=START + 9),
        ],
        key=lambda rule: rule.server_id,
    )
    assert await policies.clear_rule(news.id, BEN)
    assert not await policies.clear_rule(news.id, BEN)
    assert [rule.server_id for rule in await policies.rules()] == [added.id]
    page, _ = await SqlReporting(harness.database).audit(AuditQuery("file:news"), 10, 0)
    who = {"rule": news.id, "workspace": EVERYWHERE, "server": "news", "tool": "read"}
    assert [(entry.kind, dict(entry.facts)) for entry in page] == [
        ("cleared policy", {**who, "changes": {"policy": "ASK_USER → none"}}),
        ("set policy", {**who, "changes": {"policy": "none → ASK_USER"}}),
    ]
    assert await the_chain_is_whole(harness)


async def test_rules_about_other_calls_or_of_other_workspaces_stand_side_by_side(harness: Harness) -> None:
    policies = SqlPolicyStore(harness.database)
    rules = [
        plain("file:news", "read", ApprovalPolicy.ASK_USER),
        plain("file:news", "read", ApprovalPolicy.ASK_USER, workspace=HOME),
        plain("file:news", "read*", ApprovalPolicy.ALWAYS_DENY),
        plain("file:news", "read", ApprovalPolicy.ALWAYS_DENY, arguments={"section": "draft*"}),
        plain("file:news", "read", ApprovalPolicy.ALWAYS_DENY, arguments={"section": "draft*", "n": "1"}),
        plain("file:news", "read", ApprovalPolicy.ALWAYS_ALLOW, annotations={"read_only": True}),
        plain("file:news", "read", ApprovalPolicy.AUTO, places=frozenset({"test:w:hall"})),
        plain("file:news", "read", ApprovalPolicy.ALWAYS_DENY, askers=frozenset({"guests", "test:ben"})),
        plain("file:news", "read", ApprovalPolicy.ALWAYS_DENY, profile="p1"),
        Rule(ApprovalPolicy.ALWAYS_DENY, tool="delete_*"),
        plain(
            "file:news",
            "send",
            ApprovalPolicy.ASK_USER,
            excluded_tools=frozenset({"resend"}),
            requirements=ApprovalRequirements(
                (frozenset({"members"}),),
                four_eyes=True,
                quorum=2,
                expires=60.0,
                on_timeout=OnTimeout.KEEP,
                remind=True,
                deliver=frozenset({"test:w:hall"}),
            ),
        ),
    ]
    kept = [await policies.set_rule(rule, ANA) for rule in rules]
    assert [dataclasses.replace(rule, id="", by="", at=0.0) for rule in kept] == rules
    found = {rule.id: rule for rule in await policies.rules()}
    assert found == {rule.id: rule for rule in kept}
    assert len(found) == len(rules)


@pytest.mark.parametrize(
    "body",
    [
        '{"v": 2, "policy": "ALWAYS_ALLOW"}',
        '{"v": 1, "policy": "PERHAPS"}',
        '{"v": 1}',
        "[]",
        "not json",
        '{"v": 1, "policy": "ALWAYS_ALLOW", "moon": "full"}',
    ],
)
async def test_a_rule_that_cannot_be_read_denies(harness: Harness, body: str, caplog: pytest.LogCaptureFixture) -> None:
    policies = SqlPolicyStore(harness.database)
    rule = await policies.set_rule(plain("file:news", "read", ApprovalPolicy.ALWAYS_ALLOW), ANA)
    await execute(harness, "update policy_rules set body = :b", b=body)
    for _ in range(2):
        assert await policies.rules() == [
            plain("file:news", "", ApprovalPolicy.ALWAYS_DENY, id=rule.id, by=ANA.principal, at=START)
        ]
    assert len([each for each in caplog.messages if rule.id in each]) == 1
    assert await policies.clear_rule(rule.id, ANA)


async def test_a_call_is_found_by_its_approval_or_its_number_with_its_policy_result(harness: Harness) -> None:
    policies = SqlPolicyStore(harness.database)
    policy_result = StoredPolicyResult(
        ApprovalPolicy.ASK_USER, "policy.toml:3", "ASK_USER: mail.send", "It is the only rule."
    )
    claim = await running(harness)
    calls = [
        ToolStep(
            n,
            ToolCall(f"c{n}", "mail__send", {"to": "ben"}),
            ToolRef("mail", "send"),
            StepStatus.AWAITING,
            approval=Approval(f"approval-{n}-of-many", 1, "print", ANA, 60.0),
            policy_result=policy_result,
        )
        for n in (1, 2)
    ]
    await harness.log.append(claim, None, calls)
    reach = f"{HALL.workspace_key}:"
    for named, numbers in (
        ("approval-1-of-many", [1]),
        ("approval-", [1, 2]),
        (claim.turn_id, [1, 2]),
        (f"{claim.turn_id}:2", [2]),
        (f"{claim.turn_id}:x", []),
        ("approval-1-of-many-others", []),
        ("app", []),
        ("", []),
    ):
        found = await policies.stored_results(named, reach)
        assert [(step.n, step.policy_result) for _, step in found] == [(n, policy_result) for n in numbers], named
        assert all(conversation == HALL for conversation, _ in found)
    assert await policies.stored_results(claim.turn_id, "test:elsewhere:") == []


# ---------------------------------------------------------------------- profiles

CLERK = Profile(
    id="p1",
    name="Clerk",
    workspace=HOME,
    persona="Be brief.",
    model="demo:loud",
    servers=frozenset({"file:news", "id-1"}),
    tools={"id-1": frozenset({"read", "list"})},
    policies=(
        plain("id-1", "read", ApprovalPolicy.ALWAYS_DENY, id="Clerk:1", by="test:ana", at=3.0),
        Rule(
            ApprovalPolicy.ASK_USER,
            server_id="id-2",
            arguments={"project": "OPS"},
            requirements=ApprovalRequirements(
                (frozenset({"test:ben", "members"}),), four_eyes=True, quorum=2, expires=3600.0
            ),
            id="Clerk:2",
            by="test:ana",
            at=3.0,
        ),
    ),
    approvers=frozenset({"test:ben"}),
    prompts=("Why is CI red?", "What was deployed today, and by whom?"),
    language="ja",
    time_zone="Asia/Tokyo",
)


async def test_a_profile_is_kept_with_every_field_and_replaced_by_version(harness: Harness) -> None:
    profiles = SqlProfileStore(harness.database)
    saved = await profiles.save(CLERK, ANA)
    assert saved == dataclasses.replace(CLERK, version=1, updated_at=START, updated_by=ANA.principal)
    assert await profiles.save(CLERK, ANA) == saved
    changed = await profiles.save(dataclasses.replace(saved, persona="Be long.", servers=None), BEN)
    assert (changed.persona, changed.servers, changed.version, changed.updated_by) == ("Be long.", None, 2, "test:ben")
    assert await profiles.profiles() == [changed]
    with pytest.raises(Conflict, match="changed meanwhile by test:ben"):
        await profiles.save(dataclasses.replace(saved, persona="Be silent."), ANA)
    with pytest.raises(Conflict, match="changed meanwhile by test:ben"):
        await profiles.save(dataclasses.replace(CLERK, persona="Be silent."), ANA)
    with pytest.raises(NotFound):
        await profiles.save(Profile("p2", "Ghost", version=1), ANA)
    page, _ = await SqlReporting(harness.database).audit(AuditQuery("p1"), 10, 0)
    assert [entry.kind for entry in page] == ["changed profile", "added profile"]
    assert page[0].facts["changes"] == {
        "persona": "Be brief. → Be long.",
        "servers": '["file:news", "id-1"] → null',
    }


async def test_a_profiles_name_is_taken_once_wherever_it_can_be_seen(harness: Harness) -> None:
    profiles = SqlProfileStore(harness.database)
    await profiles.save(CLERK, ANA)
    await profiles.save(Profile("p2", "clerk", "test:v"), ANA)
    for workspace in (HOME, EVERYWHERE):
        with pytest.raises(Conflict) as caught:
            await profiles.save(Profile("p3", " CLERK", workspace), ANA)
        assert caught.value.field == "name"


async def test_profiles_hold_where_they_are_bound_until_they_are_deleted(harness: Harness) -> None:
    profiles = SqlProfileStore(harness.database)
    for each in (CLERK, Profile("p2", "Guard")):
        await profiles.save(each, ANA)
    await profiles.bind(HOME, "p1", ANA)
    await profiles.bind("test:w:hall", "p1", ANA)
    await profiles.bind("test:w:hall", "p2", BEN)
    assert await profiles.bindings() == [Binding(HOME, "p1"), Binding("test:w:hall", "p2")]
    assert await profiles.unbind("test:w:hall", BEN)
    assert await profiles.delete("p1", BEN)
    assert not await profiles.delete("p1", BEN)
    assert await profiles.bindings() == []
    assert [profile.name for profile in await profiles.profiles()] == ["Guard"]
    with pytest.raises(NotFound):
        await profiles.bind(HOME, "p1", ANA)
    assert await entries(harness, "p2") == [
        ("unbound profile", BEN.principal),
        ("bound profile", BEN.principal),
        ("added profile", ANA.principal),
    ]
    assert await the_chain_is_whole(harness)


async def test_a_profile_that_could_be_taken_for_another_is_not_stored_nor_bound_by_name(harness: Harness) -> None:
    profiles = SqlProfileStore(harness.database)
    clerk = await profiles.save(CLERK, ANA)
    for other in (Profile("p2", "Cl\u0435rk"), Profile("p2", "cl\u200berk", "test:w"), Profile("p2", "defau1t")):
        with pytest.raises(Conflict) as conflict:
            await profiles.save(other, ANA)
        assert conflict.value.field == "name"
    await profiles.save(Profile("p2", "default"), ANA)
    with pytest.raises(Conflict, match="means the profile that answers without a name"):
        await profiles.bind_by_name(HOME, "p2", ANA)
    assert await profiles.bind_by_name(HOME, "p1", ANA)
    await profiles.delete("p2", ANA)
    with pytest.raises(Conflict, match="means the profile that answers without a name"):
        await profiles.save(dataclasses.replace(clerk, name="Default"), ANA)
    assert [profile.name for profile in await profiles.profiles()] == [CLERK.name]


async def test_several_profiles_answer_to_their_names_in_a_place(harness: Harness) -> None:
    profiles = SqlProfileStore(harness.database)
    for each in (CLERK, Profile("p2", "Guard")):
        await profiles.save(each, ANA)
    await profiles.bind(HOME, "p1", ANA)
    harness.time += 1
    assert await profiles.bind_by_name(HOME, "p2", ANA)
    harness.time += 1
    assert await profiles.bind_by_name(HOME, "p1", ANA)
    before = await entries(harness)
    assert not await profiles.bind_by_name(HOME, "p1", BEN)
    assert await entries(harness) == before
    by_name = [Binding(HOME, "p2", by_name=True), Binding(HOME, "p1", by_name=True)]
    assert await profiles.bindings() == [Binding(HOME, "p1"), *by_name]
    assert await profiles.unbind_by_name(HOME, "p1", BEN)
    assert not await profiles.unbind_by_name(HOME, "p1", BEN)
    assert await profiles.delete("p2", BEN)
    assert await profiles.bindings() == [Binding(HOME, "p1")]
    with pytest.raises(NotFound):
        await profiles.bind_by_name(HOME, "p2", ANA)
    assert (await entries(harness, "p1"))[:2] == [("unbound agent", BEN.principal), ("bound agent", ANA.principal)]
    assert await the_chain_is_whole(harness)


async def test_a_profile_that_cannot_be_read_enables_nothing_and_can_be_replaced(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    profiles = SqlProfileStore(harness.database)
    await profiles.save(CLERK, ANA)
    await execute(harness, "update profiles set body = '{'")
    for _ in range(2):
        (closed,) = await profiles.profiles()
        assert not closed.enables(TOOL)
    assert len(caplog.messages) == 1
    again = await profiles.save(dataclasses.replace(CLERK, version=closed.version), ANA)
    assert await profiles.profiles() == [again]


# ---------------------------------------------------------------------- the archive


def at(channel: str, thread: str = "1", workspace: str = "w") -> ConversationKey:
    return ConversationKey("test", workspace, channel, thread)


async def enqueue_message(harness: Harness, conversation: ConversationKey, text: str, author: Author = ANA) -> None:
    harness.time += 1
    await harness.log.enqueue(message(text, f"{conversation}{text}", conversation=conversation, author=author))


async def test_conversations_are_listed_the_latest_first_by_reach_and_person(harness: Harness) -> None:
    archive = SqlReporting(harness.database)
    await enqueue_message(harness, at("hall"), "first question")
    await enqueue_message(harness, at("hall", "2"), "second", BEN)
    await enqueue_message(harness, at("hall_", "3"), "other channel")
    await enqueue_message(harness, at("hall", "1", "W"), "other workspace")
    await enqueue_message(harness, at("hall"), "and more", BEN)
    page, count = await archive.conversations("test:w:", "", 10, 0)
    assert [(each.key, each.title, each.started_by, each.turns) for each in page] == [
        (at("hall"), "first question", "Ana", 2),
        (at("hall_", "3"), "other channel", "Ana", 1),
        (at("hall", "2"), "second", "Ben", 1),
    ]
    assert (count, page[0].state, page[0].created_at, page[0].updated_at) == (3, "CREATED", START + 1, START + 5)
    assert [each.key for each in (await archive.conversations("test:w:hall:", "", 10, 0))[0]] == [
        at("hall"),
        at("hall", "2"),
    ]
    bens, number = await archive.conversations("test:w:", "test:ben", 10, 0)
    assert ([each.key for each in bens], number) == ([at("hall"), at("hall", "2")], 2)
    assert await archive.conversations("test:w:", "slack:ben", 10, 0) == ([], 0)
    assert (await archive.conversations("", "", 10, 0))[1] == 4
    assert [each.key for each in (await archive.conversations("test:w:", "", 1, 1))[0]] == [at("hall_", "3")]
    assert (await archive.conversations("test:w:", "", 1, 9)) == ([], 3)


async def test_an_empty_conversation_is_kept_once_and_takes_questions_like_any_other(harness: Harness) -> None:
    archive = SqlReporting(harness.database)
    assert await archive.summary(HALL) is None
    assert await archive.create(HALL, " The  plans " + "x" * 300)
    assert not await archive.create(HALL, "Others")
    empty = await archive.summary(HALL)
    assert empty is not None
    assert (empty.state, empty.turns, empty.started_by) == ("CREATED", 0, "")
    assert empty.title == ("The plans " + "x" * 300)[:255]
    await enqueue_message(harness, HALL, "hi")
    first = await archive.summary(HALL)
    assert first is not None
    assert (first.title, first.turns, first.started_by) == (empty.title, 1, "Ana")
    assert await archive.summary(at("hall", "12")) is None
    assert await archive.create(at("hall", "2"), "")
    assert await archive.delete(at("hall", "2"), BEN)
    assert await archive.summary(at("hall", "2")) is None


async def test_a_conversation_keeps_the_title_that_a_user_gives_it(harness: Harness) -> None:
    archive = SqlReporting(harness.database)
    await enqueue_message(harness, HALL, "hi")
    await harness.log.rename(HALL, " The  pool ")
    await enqueue_message(harness, HALL, "and now?")
    renamed = await archive.summary(HALL)
    assert renamed is not None
    assert renamed.title == "The pool"
    await harness.log.rename(at("hall", "12"), "nothing was asked there")
    assert await archive.summary(at("hall", "12")) is None


async def test_recent_places_of_a_user_are_listed_latest_first(harness: Harness) -> None:
    archive = SqlReporting(harness.database)
    for key in (at("hall"), at("yard"), at("hall", "2"), at("hall", "1", "W"), at("yard")):
        await enqueue_message(harness, key, f"question {harness.time}")
    assert await archive.active_conversations("test:w:", 60, 10) == [at("yard"), at("hall", "2"), at("hall")]
    assert await archive.active_conversations("test:w:", 60, 1) == [at("yard")]
    assert await archive.active_conversations("test:w:", 2.5, 10) == [at("yard"), at("hall", "2")]
    harness.time += 3600
    assert await archive.active_conversations("", 60, 10) == []


async def test_a_conversations_state_is_one_of_the_words_people_know(harness: Harness) -> None:
    claim = await running(harness)
    archive = SqlReporting(harness.database)
    assert (await archive.conversations("", "", 1, 0))[0][0].state == "STREAMING"
    await harness.log.finish(claim, TurnStatus.DONE, [], "")
    assert (await archive.conversations("", "", 1, 0))[0][0].state == "COMPLETED"


@pytest.mark.parametrize("strange", ["%", "_", "a:b", "ä", "\U0001f4a1", "\\", "'", '"'])
async def test_a_reach_is_taken_letter_by_letter(harness: Harness, strange: str) -> None:
    archive = SqlReporting(harness.database)
    for channel in ("plain", strange, f"{strange}x"):
        await enqueue_message(harness, at(channel), "hi")
    beginning = str(at(strange)).rpartition(":")[0] + ":"
    page, count = await archive.conversations(beginning, "", 10, 0)
    assert ([each.key.channel for each in page], count) == ([strange], 1)


async def test_an_asker_took_part_on_their_own_platform_alone(harness: Harness) -> None:
    archive = SqlReporting(harness.database)
    await enqueue_message(harness, HALL, "hi", ANA)
    assert await archive.has_participant(HALL, ANA.principal)
    assert not await archive.has_participant(HALL, BEN.principal)
    assert not await archive.has_participant(HALL, "slack:ana")
    assert not await archive.has_participant(at("hall", "9"), ANA.principal)


async def test_a_conversation_at_rest_is_deleted_and_one_that_goes_on_is_not(harness: Harness) -> None:
    archive = SqlReporting(harness.database)
    claim = await running(harness)
    assert not await archive.delete(HALL, BEN)
    await harness.log.finish(claim, TurnStatus.DONE, [], "")
    assert await archive.delete(HALL, BEN)
    assert not await archive.delete(HALL, BEN)
    assert await archive.conversations("", "", 10, 0) == ([], 0)


def make_call(n: int, server: str, status: StepStatus = StepStatus.READY, card: str = "") -> ToolStep:
    approval = Approval(card, 1, "print", ANA, 60.0) if card else None
    call = ToolCall(f"c{n}", f"{server}__run", {"text": WEIRD})
    return ToolStep(n, call, ToolRef(server, "run"), status, approval=approval)


async def test_calls_are_listed_with_asker_decider_outcome_and_duration(
    harness: Harness,
) -> None:
    archive = SqlReporting(harness.database)
    claim = await running(harness)
    reply = ModelStep(1, assistant("", make_call(2, "news").call), StopReason.TOOLS)
    awaiting = make_call(2, "news", StepStatus.AWAITING, "card-1")
    made_up = dataclasses.replace(make_call(4, "weather", StepStatus.FAILED), tool=None)
    await harness.log.append(claim, reply, [awaiting, make_call(3, "weather"), made_up])
    assert (await archive.count_pending("news"), await archive.count_pending("weather")) == (1, 0)
    await harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, BEN))
    harness.time += 5
    for n in (2, 3):
        await harness.log.start_call(claim, n)
    harness.time += 1.5
    await harness.log.finish_call(claim, 2, StepStatus.DONE, ToolResult("c2", (TextPart("ok"),)))
    page, count = await archive.calls(CallQuery(HALL.workspace_key, "news"), 10, 0)
    (call,) = page
    assert (call.name, call.status, call.asked_by, call.decided_by, call.seconds, call.at, call.turn_id) == (
        "news.run", "done", "Ana", "Ben", 1.5, START, claim.turn_id,
    )  # fmt: skip
    assert count == 1
    everything, number = await archive.calls(CallQuery(HALL.workspace_key), 10, 0)
    assert [(each.name, each.status, each.seconds) for each in everything] == [
        ("weather__run", "failed", None),
        ("weather.run", "started", None),
        ("news.run", "done", 1.5),
    ]
    assert number == 3
    assert [each.status for each in (await archive.calls(CallQuery(), 1, 1))[0]] == ["started"]
    assert await archive.calls(CallQuery("test:v", "news"), 10, 0) == ([], 0)
    assert await archive.calls(CallQuery(HALL.workspace_key, "nobody"), 10, 0) == ([], 0)
    assert await archive.count_pending("news") == 0


async def test_calls_are_filtered_by_tool_status_asker_and_time_and_failed_ones_have_their_error(
    harness: Harness,
) -> None:
    archive = SqlReporting(harness.database)
    claim = await running(harness)
    made_up = dataclasses.replace(
        make_call(1, "weather", StepStatus.FAILED),
        tool=None,
        result=ToolResult("c1", (TextPart("There is no tool called 'weather__run'."),), is_error=True),
    )
    await harness.log.append(claim, None, [made_up, make_call(2, "news"), make_call(3, "weather")])
    harness.time += 5
    await harness.log.finish_call(
        claim, 2, StepStatus.FAILED, ToolResult("c2", (TextPart("Quota\x1f\u2028" * 999),), True)
    )
    await harness.log.finish_call(claim, 3, StepStatus.DONE, ToolResult("c3", (TextPart("sunny"),)))

    async def numbers(**conditions: Any) -> list[int]:
        page, count = await archive.calls(CallQuery(**conditions), 10, 0)
        assert count == len(page)
        return sorted(call.n for call in page)

    assert await numbers() == [1, 2, 3]
    assert await numbers(statuses=(StepStatus.FAILED,)) == [1, 2]
    assert await numbers(tool="run") == [2, 3]
    assert await numbers(tool="run", server="news") == [2]
    assert await numbers(tool="walk") == []
    assert await numbers(asked_by=ANA.principal) == [1, 2, 3]
    assert await numbers(asked_by=f"other:{ANA.id}") == await numbers(asked_by=BEN.principal) == []
    assert await numbers(since=START) == await numbers(until=START + 1) == [1, 2, 3]
    assert await numbers(since=START + 1) == await numbers(until=START) == []
    errors = {call.n: call.error for call in (await archive.calls(CallQuery(), 10, 0))[0]}
    assert (errors[1], errors[3]) == ("There is no tool called 'weather__run'.", "")
    assert errors[2].startswith("Quota")
    assert len(errors[2]) == LONGEST_ERROR
    assert {call.conversation for call in (await archive.calls(CallQuery(), 10, 0))[0]} == {HALL}


async def test_calls_of_a_server_are_found_by_its_id_and_only_in_its_workspace(
    harness: Harness, servers: SqlServerStore
) -> None:
    archive = SqlReporting(harness.database)
    here = await servers.add(record("news"), {}, ANA)
    there = await servers.add(record("news", "test:v"), {}, ANA)
    claim = await running(harness)
    await harness.log.append(claim, None, [make_call(1, "news", StepStatus.AWAITING, "card-1")])
    assert [await archive.count_pending(each) for each in (here.id, there.id, "news", "file:news")] == [1, 0, 1, 1]
    assert (await archive.calls(CallQuery(HALL.workspace_key, here.id), 10, 0))[1] == 1


async def test_a_call_that_cannot_be_read_is_listed_without_its_name(harness: Harness) -> None:
    archive = SqlReporting(harness.database)
    claim = await running(harness)
    await harness.log.append(claim, None, [make_call(1, "news"), make_call(2, "news")])
    await execute(harness, "update steps set body = '{\"v\": 9}' where n = 1")
    assert {each.name for each in (await archive.calls(CallQuery(), 10, 0))[0]} == {"news.run", "(unreadable)"}
    assert (await archive.calls(CallQuery(server="news"), 10, 0))[1] == 1


async def test_the_audit_is_read_page_by_page_the_latest_first(harness: Harness, servers: SqlServerStore) -> None:
    claim = await running(harness)
    await harness.log.append(claim, None, [make_call(1, "news", StepStatus.AWAITING, "card-1")])
    added = await servers.add(record(), {}, ANA)
    await servers.set_enablement(added.id, ServerEnablement.DISABLED, BEN)
    other = await servers.add(record("other"), {}, ANA)
    archive = SqlReporting(harness.database)
    page, count = await archive.audit(AuditQuery(), 2, 0)
    assert ([entry.kind for entry in page], count) == (["added server", "switched server off"], 4)
    assert [entry.kind for entry in (await archive.audit(AuditQuery(), 2, 2))[0]] == ["added server", "asked"]
    assert [entry.facts["server"] for entry in (await archive.audit(AuditQuery(other.id), 9, 0))[0]] == ["other"]
    assert page[1].facts == {"server": "weather", "changes": {"standing": "on → disabled"}}
    assert (page[1].actor, page[1].at) == (BEN.principal, START)
    assert page[0].seq > page[1].seq
    assert await archive.audit(AuditQuery("nobody"), 9, 0) == ([], 0)


async def test_a_changed_subject_of_an_audit_row_is_found(harness: Harness, servers: SqlServerStore) -> None:
    await servers.add(record(), {}, ANA)
    assert await the_chain_is_whole(harness)

    def force(connection: sa.Connection) -> None:
        on = "" if connection.dialect.name == "sqlite" else " on audit"
        trigger = "audit_is_append_only" if on else "audit_is_never_changed"
        connection.exec_driver_sql(f"drop trigger {trigger}{on}")
        connection.exec_driver_sql("update audit set subject = '' where seq = 1")

    await harness.database.run(force)
    assert "Row 1 was changed." in await audit_findings(harness.database)


async def test_many_admins_at_once_lose_nothing(harness: Harness, servers: SqlServerStore) -> None:
    policies = SqlPolicyStore(harness.database)
    added = await servers.add(record(), {}, ANA)
    before = await servers.revision()
    rules = [plain(added.id, f"tool-{n}", ApprovalPolicy.ASK_USER) for n in range(12)]
    await asyncio.gather(*(policies.set_rule(rule, ANA) for rule in rules))
    assert len(await policies.rules()) == 12
    assert await servers.revision() == before + 12
    assert await the_chain_is_whole(harness)


async def test_a_new_server_is_never_there_without_the_policy_it_was_added_with(harness: Harness) -> None:
    policies = SqlPolicyStore(harness.database)
    added = await server_store(harness).add(record("jira"), {}, ANA, policy=ApprovalPolicy.ALWAYS_DENY)
    (rule,) = await policies.rules()
    assert (rule.server_id, rule.workspace, rule.tool, rule.policy, rule.by) == (
        added.id,
        added.config.workspace,
        ANY,
        ApprovalPolicy.ALWAYS_DENY,
        ANA.principal,
    )
    (entry,) = (await SqlReporting(harness.database).audit(AuditQuery(added.id), 10, 0))[0]
    assert entry.facts["policy"] == "ALWAYS_DENY"


# ------------------------------------------------------- data of one user


async def test_the_last_feedback_of_a_person_on_an_answer_is_stored(harness: Harness) -> None:
    opinions = SqlFeedbackStore(harness.database)
    claim = await running(harness)
    await opinions.save(claim.turn_id, True, ANA)
    harness.time += 1
    await opinions.save(claim.turn_id, True, BEN)
    harness.time += 1
    await opinions.save(claim.turn_id, False, ANA)
    await opinions.save(claim.turn_id, False, ANA)
    assert sorted(await rows_of(harness, "feedback")) == [
        (claim.turn_id, ANA.principal, False, START + 2),
        (claim.turn_id, BEN.principal, True, START + 1),
    ]


async def test_opinions_go_with_their_turn_and_none_is_kept_of_one_that_is_gone(harness: Harness) -> None:
    opinions = SqlFeedbackStore(harness.database)
    claim = await running(harness)
    await opinions.save(claim.turn_id, True, ANA)
    await harness.log.finish(claim, TurnStatus.DONE, [], "")
    before = len(await rows_of(harness, "audit"))
    assert await SqlReporting(harness.database).delete(HALL, BEN)
    with pytest.raises(NotFound, match="was deleted"):
        await opinions.save(claim.turn_id, False, ANA)
    assert await rows_of(harness, "feedback") == []
    assert len(await rows_of(harness, "audit")) == before + 1, "the deletion alone"


async def test_opinions_of_people_with_strange_names_are_theirs(harness: Harness) -> None:
    opinions = SqlFeedbackStore(harness.database)
    claim = await running(harness)
    strange = Author("test", WEIRD, WEIRD)
    await opinions.save(claim.turn_id, True, strange)
    await opinions.save(claim.turn_id, False, strange)
    assert [good for _, _, good, _ in await rows_of(harness, "feedback")] == [False]


async def awaiting(harness: Harness, conversation: ConversationKey, *cards: str) -> str:
    """Store a turn with a call that awaits approval for each card. Return its id."""
    harness.time += 1
    claim = await running(harness, f"{conversation}", conversation)
    calls = [make_call(n, "news", StepStatus.AWAITING, card) for n, card in enumerate(cards, 1)]
    await harness.log.append(claim, None, calls)
    assert await harness.log.suspend(claim) is None
    return claim.turn_id


async def test_waiting_approvals_are_found_by_reach_latest_first(harness: Harness) -> None:
    archive = SqlReporting(harness.database)
    await awaiting(harness, at("hall"), "card-1", "card-2")
    await awaiting(harness, at("hall", "2"), "card-3")
    await awaiting(harness, at("hall", "1", "W"), "card-4")
    calls = (await archive.pending_approvals(["test:w:"], 10)).calls
    assert [each.approval_id for each in calls] == ["card-3", "card-1", "card-2"]
    assert calls[0] == PendingApproval("card-3", at("hall", "2"), ANA, asked_at=harness.time - 1)
    assert [call.approval_id for call in (await archive.pending_approvals(["test:w:"], 1)).calls] == ["card-3"]
    assert len((await archive.pending_approvals([""], 10)).calls) == 4
    assert (await archive.pending_approvals(["slack:"], 10)).calls == []


async def test_waiting_calls_are_read_page_by_page_without_gaps_or_repeats(harness: Harness) -> None:
    archive = SqlReporting(harness.database)
    await awaiting(harness, at("hall"), *(f"card-a{n}" for n in range(7)))
    await awaiting(harness, at("hall", "1", "W"), "card-b")
    await awaiting(harness, at("hall", "2"), *(f"card-c{n}" for n in range(4)))
    await awaiting(harness, at("hall", "1", "other"), "card-d")
    whole = await archive.pending_approvals(["test:w:", "test:W:"], 20)
    assert whole.behind is None
    for size in (1, 3, 5, 12):
        found: list[PendingApproval] = []
        behind: PendingApprovalPosition | None = None
        for _ in range(20):
            page = await archive.pending_approvals(["test:w:", "test:W:"], size, behind)
            assert len(page.calls) <= size
            found += page.calls
            if page.behind is None:
                break
            behind = PendingApprovalPosition.parse(str(page.behind))
        assert found == whole.calls
    assert [call.approval_id for call in whole.calls] == [
        *(f"card-c{n}" for n in range(4)), "card-b", *(f"card-a{n}" for n in range(7)),
    ]  # fmt: skip


async def test_waiting_calls_are_read_oldest_first_as_far_as_a_page_needs(harness: Harness) -> None:
    archive, reading = SqlReporting(harness.database), list[int]()
    for n in range(3):
        await awaiting(harness, at(f"place-{n}"), *(f"card-{n}-{m:03}" for m in range(200)))

    async def is_odd(call: PendingApproval) -> bool:
        reading.append(1)
        return int(call.approval_id[-1]) % 2 == 1

    found, behind = list[str](), None
    for size in (4, 250, 100):
        page = await read_pending_approvals(
            archive, ["test:w:"], is_odd, limit=size, most_read=5_000, behind=behind, oldest_first=True
        )
        found += [call.approval_id for call in page.calls]
        behind = page.behind
        assert len(reading) <= 500 if size == 4 else True
    assert (found, behind) == ([f"card-{n}-{m:03}" for n in range(3) for m in range(1, 200, 2)], None)


async def test_one_older_call_is_reached_past_a_hundred_and_ten_newer_ones(harness: Harness) -> None:
    archive = SqlReporting(harness.database)
    await awaiting(harness, at("mine"), "card-old")
    for place in range(2):
        await awaiting(harness, at(f"theirs-{place}"), *(f"card-{place}-{n}" for n in range(55)))

    async def is_mine(call: PendingApproval) -> bool:
        return call.conversation == at("mine")

    async def is_any(_call: PendingApproval) -> bool:
        return True

    mine = await read_pending_approvals(archive, ["test:w:"], is_mine, limit=50, most_read=5_000)
    assert ([each.approval_id for each in mine.calls], mine.behind) == (["card-old"], None)
    sizes, behind = [], None
    for _ in range(3):
        page = await read_pending_approvals(archive, ["test:w:"], is_any, limit=50, most_read=5_000, behind=behind)
        sizes.append(len(page.calls))
        behind = page.behind
    assert (sizes, page.calls[-1].approval_id, behind) == ([50, 50, 11], "card-old", None)


async def test_decided_expired_and_stopped_calls_do_not_wait(harness: Harness) -> None:
    archive = SqlReporting(harness.database)
    decided = await awaiting(harness, at("a"), "card-1")
    expiring = await awaiting(harness, at("b"), "card-2")
    stopped = await awaiting(harness, at("c"), "card-3")
    await harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, BEN))
    await harness.log.acquire_delivery(expiring, NEWEST)
    await harness.log.mark_delivered(expiring, NEWEST)
    await harness.log.stop(stopped, ANA)
    assert decided
    assert [call.approval_id for call in (await archive.pending_approvals([""], 10)).calls] == ["card-2"]
    harness.time += 61
    assert (await archive.pending_approvals([""], 10)).calls == []


async def test_questions_of_a_person_are_found_latest_first_at_any_status(harness: Harness) -> None:
    archive = SqlReporting(harness.database)
    await enqueue_message(harness, at("hall"), "first")
    await enqueue_message(harness, at("hall"), "not hers", BEN)
    await enqueue_message(harness, at("hall", "1", "W"), "elsewhere")
    (claim,) = await harness.log.claim(1)
    await harness.log.finish(claim, TurnStatus.DONE, [], "")
    await enqueue_message(harness, at("hall", "2"), "second")
    found = await archive.recent_turns(ANA.principal, "test:w:", 10)
    assert [(turn.question.text, turn.status) for turn in found] == [
        ("second", TurnStatus.QUEUED),
        ("first", TurnStatus.DONE),
    ]
    assert (found[1].id, found[1].conversation, found[1].author) == (claim.turn_id, at("hall"), ANA)
    assert [turn.question.text for turn in await archive.recent_turns(ANA.principal, "", 1)] == ["second"]
    assert await archive.recent_turns("slack:ana", "", 10) == []


async def test_an_unreadable_turn_is_left_out_of_the_questions(harness: Harness) -> None:
    await enqueue_message(harness, at("hall"), "first")
    await enqueue_message(harness, at("hall", "2"), "second")
    await execute(harness, "update turns set input = '{\"v\": 9}' where conversation = :c", c=str(at("hall")))
    found = await SqlReporting(harness.database).recent_turns(ANA.principal, "", 10)
    assert [turn.question.text for turn in found] == ["second"]


# ---------------------------------------------------------------------- languages and time zones of users


async def test_preferences_are_stored_beside_the_locale_of_the_client(harness: Harness) -> None:
    locales = SqlLocaleStore(harness.database)
    assert await locales.find(ANA.principal) == UserLocale()
    await locales.remember(ANA.principal, "ja")
    await locales.choose(ANA.principal, Locale("en", "Asia/Tokyo"))
    await locales.remember(BEN.principal, "en-US")
    assert await locales.find(ANA.principal) == UserLocale(Locale("en", "Asia/Tokyo"), "ja")
    assert await locales.find(BEN.principal) == UserLocale(told_language="en-US")
    await locales.choose(ANA.principal, Locale())
    assert await locales.find(ANA.principal) == UserLocale(told_language="ja")
    strange = f"discord:{WEIRD}"
    await locales.choose(strange, Locale("ja"))
    assert (await locales.find(strange)).chosen == Locale("ja")


async def test_only_old_locales_of_clients_are_deleted(harness: Harness) -> None:
    locales = SqlLocaleStore(harness.database)
    await locales.remember(ANA.principal, "ja")
    await locales.choose(BEN.principal, Locale("ja"))
    assert await locales.delete_old(60, 10) == 0
    harness.time += 61
    assert await locales.delete_old(60, 10) == 1
    assert await locales.find(ANA.principal) == UserLocale()
    assert (await locales.find(BEN.principal)).chosen == Locale("ja")
