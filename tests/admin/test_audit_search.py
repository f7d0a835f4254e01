"""`/mcp audit`: its filters, and the entries that each role sees."""

from __future__ import annotations

import csv
import io

import pytest

from bot.domain.audit import KINDS, AuditEntry, AuditQuery, AuditScope
from bot.domain.conversations import ConversationKey
from bot.domain.profiles import Profile
from bot.domain.servers import ServerRecord
from tests.admin.memory_stores import NOW
from tests.admin.servers import ADMIN, OPERATOR, CommandHarness, config_of, elsewhere, with_jira
from tests.fakes.parts import HALL

DIGEST = "0123456789abcdef" * 4
ASKED = AuditEntry(
    7, NOW - 60, "asked", "test:ana", {"server": "jira", "tool": "create_issue", "fingerprint": DIGEST}, str(HALL)
)


async def search_audit(line: str, *entries: AuditEntry) -> CommandHarness:
    held = await with_jira()
    held.archive.entries.extend(entries or (ASKED,))
    reply = await held.ask(line, OPERATOR)
    assert not reply.failed, reply.text
    return held


async def test_an_admin_sees_entries_of_the_workspace_and_of_its_servers_and_profiles() -> None:
    held = await with_jira()
    held.profiles.entries = {each: Profile(each, each, workspace=f"test:{each}") for each in ("w", "other")}
    held.store.entries["o"] = ServerRecord(elsewhere(config_of(held, "jira")))
    await held.ask("mcp audit", ADMIN)
    (query,) = held.archive.queries
    assert query.scope == AuditScope(
        "test:w", frozenset({config_of(held, "jira").id, "file:notes", "file:web-search", "w"})
    )
    assert query == AuditQuery(scope=query.scope)


async def test_the_operator_sees_everything() -> None:
    held = await search_audit("mcp audit")
    assert held.archive.queries == [AuditQuery()]


@pytest.mark.parametrize(
    ("words", "query"),
    [
        ("--person test:ben", AuditQuery(person="test:ben")),
        ("--person ben", AuditQuery(person="test:ben")),
        ("--person @ben", AuditQuery(person="test:ben")),
        ("--person <@U1>", AuditQuery(person="slack:U1")),
        ("--person <@!12>", AuditQuery(person="discord:12")),
        ("--person <@U1|ben>", AuditQuery(person="slack:U1")),
        ("--since 7d", AuditQuery(since=NOW - 7 * 86400)),
        ("--since 2027-01-15", AuditQuery(since=1_799_971_200.0)),
        ("--since 2027-01-15T09:00+09:00", AuditQuery(since=1_799_971_200.0)),
        ("--kind refusals", AuditQuery(kinds=KINDS["refusals"])),
    ],
)
async def test_rows_are_narrowed_by_person_time_and_kind(words: str, query: AuditQuery) -> None:
    assert (await search_audit(f"mcp audit {words}")).archive.queries == [query]


async def test_a_servers_rows_are_found_by_its_id() -> None:
    held = await search_audit("mcp audit jira")
    assert held.archive.queries == [AuditQuery(subject=config_of(held, "jira").id)]


@pytest.mark.parametrize(("words", "said"), [("--since soon", "point in time"), ("--kind gossip", "is one of")])
async def test_invalid_filters_are_refused_and_nothing_is_read(words: str, said: str) -> None:
    held = await with_jira()
    reply = await held.ask(f"mcp audit {words}")
    assert reply.failed
    assert said in reply.text
    assert held.archive.queries == []


async def test_pages_and_the_download_ask_for_the_same_rows_again() -> None:
    held = await with_jira()
    held.archive.entries = [ASKED] * 23
    reply = await held.ask("mcp audit jira --person ben --kind requests --page 2")
    words = ("mcp", "audit", "jira", "--person", "ben", "--kind", "requests")
    assert reply.page is not None
    assert (reply.page.number, reply.page.of, reply.page.words) == (2, 3, words)
    assert [action.words for action in reply.actions] == [(*words, "--download"), ("mcp", "audit", "--verify")]


async def test_a_row_shows_time_event_person_place_and_the_beginning_of_fingerprints() -> None:
    held = await with_jira()
    held.archive.entries = [ASKED]
    reply = await held.ask("mcp audit")
    assert reply.table is not None
    (row,) = reply.table.rows
    assert row == (
        "7", "2027-01-15 07:59:00", "asked", "test:ana", "hall:1",
        "server: jira, tool: create_issue, fingerprint: 0123456789ab…",
    )  # fmt: skip


async def test_the_download_is_a_table_with_everything_in_it() -> None:
    held = await with_jira()
    held.archive.entries = [ASKED, AuditEntry(6, NOW, "refused", "=1+1", {})]
    reply = await held.ask("mcp audit --download")
    assert reply.document is not None
    assert (reply.document.name, reply.document.mime_type) == ("audit.csv", "text/csv")
    first, second = csv.DictReader(io.StringIO(reply.document.text))
    assert (first["number"], first["actor"], first["conversation"]) == ("7", "test:ana", str(HALL))
    assert DIGEST in first["facts"]
    assert second["actor"] == "'=1+1"


async def test_a_shortened_download_names_the_missing_rows_and_a_way_to_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.admin.audit_search.LONGEST_DOCUMENT", 5)
    held = await with_jira()
    held.archive.entries = [ASKED] * 12
    reply = await held.ask("mcp audit --download")
    assert "the last 5 rows" in reply.text
    assert "The 7 rows before them: `countersign audit export`." in reply.text


async def test_a_mention_means_a_user_of_the_platform_where_it_is_typed() -> None:
    held = await with_jira()
    await held.ask("mcp audit --person ben", OPERATOR, ConversationKey("slack", "T1", "C1", "1"))
    assert held.archive.queries == [AuditQuery(person="slack:ben")]
