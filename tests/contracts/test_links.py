"""Contract of one-time links (`bot.ports.LinkStore`), on each database."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa

from bot.domain.conversations import Author
from bot.domain.secrets import LINK_SECONDS, LINK_TOKEN, SecretLink
from bot.ports import LinkStore
from bot.storage.admin.server_secrets import SqlLinkStore
from bot.storage.tables import one_time_links
from tests.fakes.parts import ANA, BEN, HALL
from tests.turn_log_harness import START, Harness, PostgresHarness

SERVER, SLOT = "id-of-jira", "auth"
WEIRD = Author("discord", "7:8", "Ana\0 \u202e 💡")


@pytest.fixture
def links(harness: Harness) -> LinkStore:
    return SqlLinkStore(harness.database)


async def link_count(harness: Harness) -> int:
    return await harness.database.run(
        lambda connection: connection.execute(sa.select(sa.func.count()).select_from(one_time_links)).scalar_one()
    )


async def test_a_link_can_be_looked_up_often_and_taken_once(links: LinkStore) -> None:
    made, token = await links.create_link(SERVER, SLOT, ANA, HALL)
    assert made == SecretLink(SERVER, SLOT, ANA, HALL, START + LINK_SECONDS)
    assert LINK_TOKEN.fullmatch(token)
    assert [await links.find(token) for _ in range(3)] == [made] * 3
    assert await links.use_link(token) == made
    assert await links.use_link(token) is None
    assert await links.find(token) is None


async def test_of_many_takers_at_once_one_gets_the_link(harness: Harness, links: LinkStore) -> None:
    stores = [links, SqlLinkStore(harness.database)]
    other = harness.another_process() if isinstance(harness, PostgresHarness) else None
    if other is not None:
        stores.append(SqlLinkStore(other.database))
    made, token = await links.create_link(SERVER, SLOT, ANA, HALL)
    results = await asyncio.gather(*(store.use_link(token) for store in stores * 5))
    if other is not None:
        await other.close()
    assert [each for each in results if each is not None] == [made]


async def test_a_link_is_good_for_ten_minutes_by_the_clock_of_the_database(harness: Harness, links: LinkStore) -> None:
    made, token = await links.create_link(SERVER, SLOT, ANA, HALL)
    harness.time = START + 599.9
    assert await links.find(token) == made
    harness.time = START + 600
    assert await links.find(token) is None
    assert await links.use_link(token) is None


async def test_an_unknown_token_is_no_link(links: LinkStore) -> None:
    await links.create_link(SERVER, SLOT, ANA, HALL)
    for token in ("", "x", "a" * 43, "\0", "💡"):
        assert await links.find(token) is None
        assert await links.use_link(token) is None


async def test_a_persons_next_link_for_the_same_makes_the_one_before_useless_and_no_other(links: LinkStore) -> None:
    _, first = await links.create_link(SERVER, SLOT, ANA, HALL)
    others = [
        await links.create_link(SERVER, SLOT, BEN, HALL),
        await links.create_link(SERVER, "header:X-Key", ANA, HALL),
        await links.create_link("id-of-wiki", SLOT, ANA, HALL),
    ]
    second, token = await links.create_link(SERVER, SLOT, ANA, HALL)
    assert await links.find(first) is None
    assert await links.find(token) == second
    assert [await links.find(each) for _, each in others] == [made for made, _ in others]


async def test_links_whose_time_is_over_are_forgotten_when_the_next_one_is_made(
    harness: Harness, links: LinkStore
) -> None:
    for number in range(3):
        await links.create_link(SERVER, f"env:KEY_{number}", ANA, HALL)
    harness.time = START + 601
    _, token = await links.create_link(SERVER, SLOT, ANA, HALL)
    assert await link_count(harness) == 1
    assert await links.use_link(token) is not None


async def test_no_part_of_a_link_is_on_disk(harness: Harness, links: LinkStore, tmp_path: Path) -> None:
    _, token = await links.create_link(SERVER, SLOT, ANA, HALL)
    rows = await harness.database.run(lambda connection: repr(connection.execute(sa.select(one_time_links)).all()))
    files = b"".join(file.read_bytes() for file in tmp_path.glob("turns.db*"))  # noqa: ASYNC240
    assert token not in rows
    assert token.encode() not in files
    assert ANA.principal in rows


async def test_a_user_of_any_name_gets_a_link(links: LinkStore) -> None:
    _, token = await links.create_link(SERVER, SLOT, WEIRD, HALL)
    found = await links.find(token)
    assert found is not None
    assert (found.person.platform, found.person.id) == ("discord", "7:8")


async def test_a_row_of_a_later_release_is_no_link(harness: Harness, links: LinkStore) -> None:
    _, token = await links.create_link(SERVER, SLOT, ANA, HALL)
    await harness.database.run(
        lambda connection: connection.execute(one_time_links.update().values(conversation="v2:{}"))
    )
    assert await links.find(token) is None
