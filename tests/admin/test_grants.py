"""`/mcp grants`: the grants that a user sees and may revoke."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.domain.conversations import Author, Member
from tests.admin.grants import a_grant
from tests.admin.memory_stores import NOW
from tests.admin.servers import ADMIN, GUEST, CommandHarness
from tests.fakes.parts import HALL

SAM = Member(Author("test", "sam", "Sam"))


def harness_with_grants(*grants: object) -> CommandHarness:
    harness = CommandHarness()
    harness.grants.entries.extend(grants or (a_grant(),))  # type: ignore[arg-type]
    return harness


async def test_a_list_has_call_place_users_granter_and_expiry() -> None:
    harness = harness_with_grants(
        a_grant(),
        a_grant("b" * 12, scope="arguments"),
        a_grant("c" * 12, place="test:w", scope="hours", idle=False, expires_at=NOW + 7200),
        a_grant("d" * 12, place="test:w", scope="always", person="", idle=False, expires_at=None, destructive=True),
    )
    reply = await harness.ask("mcp grants")
    assert reply.table is not None
    tool, by = "jira.create_issue", "ana, 5 min ago"
    assert reply.table.rows == (
        ("0123456789ab", tool, "all calls in the thread", "hall:1", "test:ben", by, "in 55 min, unless it is used"),
        ("b" * 12, tool, "this very call in the thread", "hall:1", "test:ben", by, "in 55 min, unless it is used"),
        ("c" * 12, tool, "all calls, for some hours", "this workspace", "test:ben", by, "in 2 h"),
        (
            "d" * 12,
            tool,
            "all calls, destructive ones too",
            "this workspace",
            "everyone",
            by,
            "when it is revoked",
        ),
    )
    assert [action.words for action in reply.actions][:1] == [("mcp", "grants", "revoke", "0123456789ab")]


async def test_a_grant_of_a_terminal_holds_in_a_conversation() -> None:
    place = "console:w:hall:1"
    harness = harness_with_grants(a_grant(place=place), a_grant("b" * 12, place=place, scope="arguments"))
    reply = await harness.ask("mcp grants", where=replace(HALL, platform="console"))
    assert reply.table is not None
    assert [row[2] for row in reply.table.rows] == [
        "all calls in the conversation",
        "this very call in the conversation",
    ]


@pytest.mark.parametrize(
    ("member", "seen"),
    [
        (ADMIN, {"a" * 12, "b" * 12}),
        (GUEST, {"a" * 12}),
        (SAM, {"b" * 12}),
        (Member(Author("elsewhere", "ben", "Ben")), set()),
    ],
)
async def test_users_see_grants_by_and_for_them_and_admins_see_all(member: Member, seen: set[str]) -> None:
    harness = harness_with_grants(
        a_grant("a" * 12, person="test:ben", by="test:ana"), a_grant("b" * 12, person="", by="test:sam")
    )
    reply = await harness.ask("mcp grants list", member)
    assert {row[0] for row in (reply.table.rows if reply.table else ())} == seen
    assert not reply.failed


async def test_a_grant_that_a_user_cannot_see_cannot_be_revoked() -> None:
    harness = harness_with_grants(a_grant("a" * 12, person="test:ben", by="test:ana"))
    reply = await harness.ask(f"mcp grants revoke {'a' * 12}", SAM)
    assert reply.failed
    assert reply.text == "There is no such grant that still holds. `/mcp grants list` lists them."
    assert harness.grants.entries
    assert not (await harness.ask(f"mcp grants revoke {'A' * 12}", GUEST)).failed
    assert not harness.grants.entries


async def test_grants_of_another_workspace_do_not_exist_here() -> None:
    harness = harness_with_grants(a_grant(place="test:elsewhere"))
    assert (await harness.ask("mcp grants")).table is None
    assert (await harness.ask("mcp grants revoke 0123456789ab")).failed


async def test_long_lists_come_in_pages() -> None:
    harness = harness_with_grants(*(a_grant(f"{n:012x}") for n in range(23)))
    reply = await harness.ask("mcp grants list --page 3")
    assert reply.table is not None
    assert len(reply.table.rows) == 3
    assert reply.page is not None
    assert (reply.page.number, reply.page.of) == (3, 3)
