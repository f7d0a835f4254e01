"""Contract of sessions in browsers (`bot.ports.BrowserSessionStore`), on each database."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from bot.domain.approvals import Approval
from bot.domain.browser_sessions import IDLE_SECONDS, SESSION_SECONDS
from bot.domain.completions import StopReason
from bot.domain.conversations import Author, ConversationKey
from bot.domain.messages import ToolCall, assistant
from bot.domain.turns import ModelStep, StepStatus, ToolRef, ToolStep
from bot.ports import BrowserSessionStore
from bot.storage.admin.browser_sessions import SqlBrowserSessionStore
from bot.storage.reporting import SqlReporting
from bot.storage.tables import browser_sessions
from tests.fakes.parts import ANA, BEN, HALL, message
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


async def test_who_asks_in_the_console_is_the_user_of_the_chat_for_approvals_too(harness: Harness) -> None:
    key = ConversationKey("api", "test:w", BEN.principal, "1")
    receipt = await harness.log.enqueue(message("write", conversation=key, author=BEN))
    (claim,) = await harness.log.claim(1, ())
    step = ToolStep(
        2,
        ToolCall("c2", "s__write", {}),
        ToolRef("s", "write"),
        StepStatus.AWAITING,
        approval=Approval("card-1", 1, "print", BEN, 60.0),
    )
    wants = ModelStep(1, assistant("", ToolCall("c2", "s__write", {})), StopReason.TOOLS)
    await harness.log.append(claim, wants, [step])
    found = await harness.log.get_approval("card-1")
    assert found is not None
    turn, stored = found
    assert stored.approval is not None
    assert (turn.id, turn.author, stored.approval.requested_for) == (receipt.turn_id, BEN, BEN)
    reporting = SqlReporting(harness.database)
    [pending] = (await reporting.pending_approvals(["api:test%3Aw:"], 10)).calls
    assert pending.asked_by == BEN
    assert await reporting.has_participant(key, BEN.principal)
    # The API client of that name is somebody else.
    assert not await reporting.has_participant(key, f"api:{BEN.id}")
    assert (await reporting.conversations("api:", BEN.principal, 10, 0))[1] == 1
    assert (await reporting.conversations("api:", f"api:{BEN.id}", 10, 0))[1] == 0
