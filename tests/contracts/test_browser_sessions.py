"""Contract of sessions in browsers (`bot.ports.BrowserSessionStore`), on each database."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from bot.domain.browser_sessions import IDLE_SECONDS, SESSION_SECONDS
from bot.domain.conversations import Author
from bot.ports import BrowserSessionStore
from bot.storage.admin.browser_sessions import SqlBrowserSessionStore
from bot.storage.tables import browser_sessions
from tests.fakes.parts import ANA, BEN, HALL
from tests.turn_log_harness import START, Harness

WEIRD = Author("discord", "7:8", "Ana\0 \u202e 💡")


@pytest.fixture
def store(harness: Harness) -> BrowserSessionStore:
    return SqlBrowserSessionStore(harness.database)


async def test_a_session_is_found_by_its_secret_alone_which_is_not_stored(
    harness: Harness, store: BrowserSessionStore
) -> None:
    session, secret = await store.create(ANA, HALL, "rights")
    assert (session.author, session.conversation, session.rights) == (ANA, HALL, "rights")
    assert (session.created_at, session.used_at, session.expires_at) == (START, START, START + SESSION_SECONDS)
    assert await store.find(secret) == session
    for wrong in ("", "x", session.id, "\0", "💡", secret[:-1]):
        assert await store.find(wrong) is None
    rows = await harness.database.run(lambda connection: connection.execute(sa.select(browser_sessions)).all())
    assert secret not in repr(rows)


async def test_a_session_ends_without_use_and_at_its_end(harness: Harness, store: BrowserSessionStore) -> None:
    _session, secret = await store.create(ANA, HALL, "")
    harness.time = START + IDLE_SECONDS - 1
    assert await store.find(secret) is not None
    harness.time += IDLE_SECONDS - 1
    assert await store.find(secret) is not None
    harness.time += IDLE_SECONDS
    assert await store.find(secret) is None
    assert await store.sessions() == []
    _session, secret = await store.create(ANA, HALL, "")
    begun = harness.time
    while harness.time < begun + SESSION_SECONDS:
        assert await store.find(secret) is not None
        harness.time += IDLE_SECONDS / 2
    assert await store.find(secret) is None


async def test_sessions_are_listed_by_user_and_ended_once(store: BrowserSessionStore) -> None:
    first, _ = await store.create(ANA, HALL, "")
    second, secret = await store.create(BEN, HALL, "")
    third, _ = await store.create(WEIRD, HALL, "")
    assert [each.id for each in await store.sessions(ANA.principal)] == [first.id]
    assert [each.author.principal for each in await store.sessions("discord:7:8")] == ["discord:7:8"]
    assert {each.id for each in await store.sessions()} == {first.id, second.id, third.id}
    assert await store.end(second.id, ANA)
    assert not await store.end(second.id, ANA)
    assert await store.find(secret) is None
