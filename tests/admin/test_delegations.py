"""`/approvals delegate`, `delegations` and `undelegate`."""

from __future__ import annotations

import pytest

from bot.domain.conversations import Author, Member
from tests.admin.servers import CommandHarness

DAY = 86400.0


async def test_a_right_is_handed_on_until_a_day_listed_and_ended() -> None:
    harness = CommandHarness()
    reply = await harness.ask("approvals delegate test:dan for 3 days")
    assert reply.text.startswith("test:dan may decide the calls that you may decide, until ")
    (grant,) = harness.grants.entries
    assert (grant.person, grant.place, grant.lasts) == ("test:dan", "test:w", 3 * DAY)
    await harness.ask("approvals delegate test:dan until tomorrow")
    listed = await harness.ask("approvals delegations")
    assert listed.table is not None
    assert [row[:2] for row in listed.table.rows] == [(grant.granted_by, "test:dan")]
    stranger = Member(Author("test", "zoe", "Zoe"))
    assert (await harness.ask("approvals delegations", member=stranger)).table is None
    assert (await harness.ask("approvals undelegate test:dan", member=stranger)).failed
    assert not (
        await harness.ask("approvals delegate end test:dan", member=Member(Author("test", "dan", "Dan")))
    ).failed
    assert harness.grants.entries == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("@dan for 3 days", "Mention the user"),
        ("slack:U1 for 3 days", "Mention the user"),
        ("test:dan until 2020-01-01", "The end must be ahead, by at most 90 days."),
        ("test:dan for 91 days", "The end must be ahead, by at most 90 days."),
        ("test:dan for ever", "Say the end as until Friday"),
        ("test:dan until 999999999999", "Say the end as until Friday"),
    ],
)
async def test_a_wrong_delegation_is_refused_with_the_reason(words: str, reason: str) -> None:
    harness = CommandHarness()
    reply = await harness.ask(f"approvals delegate {words}")
    assert (reply.failed, harness.grants.entries) == (True, [])
    assert reason in reply.text


async def test_nobody_delegates_to_themselves_and_guests_delegate_nothing() -> None:
    harness = CommandHarness()
    sam = Member(Author("test", "sam", "Sam"))
    assert (
        await harness.ask("approvals delegate test:sam for 1d", member=sam)
    ).text == "You decide for yourself already."
    assert (
        await harness.ask("approvals delegate test:sam for 1d", member=Member(Author("test", "gus", "Gus"), guest=True))
    ).failed
    assert harness.grants.entries == []
