"""Contract of API tokens (`bot.ports.TokenStore`), on each database."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from bot.domain.api_clients import ApiRole, ApiToken
from bot.domain.audit import AuditQuery
from bot.errors import Conflict
from bot.ports import TokenStore
from bot.storage.admin.api_tokens import SqlTokenStore
from bot.storage.database import Rank
from bot.storage.reporting import SqlReporting
from bot.storage.tables import metadata
from tests.fakes.parts import ANA, BEN
from tests.turn_log_harness import START, Harness

A_DAY = 86400.0


@pytest.fixture
def tokens(harness: Harness) -> TokenStore:
    return SqlTokenStore(harness.database)


async def test_a_token_is_found_by_itself_and_by_nothing_else(tokens: TokenStore) -> None:
    made, token = await tokens.create("ci", ApiRole.APPROVER, "slack:T1", A_DAY, ANA)
    other, another = await tokens.create("night", ApiRole.MEMBER, "", None, ANA)
    assert re.fullmatch(r"cs_[A-Za-z0-9_-]{43}", token)
    assert made == ApiToken(made.id, "ci", ApiRole.APPROVER, "slack:T1", "test:ana", START, START + A_DAY)
    assert await tokens.find_by_secret(token) == made
    assert await tokens.find_by_secret(another) == other
    for wrong in ("", "ci", token[:-1], token.upper(), f"{token} ", "cs_" + "a" * 43):
        assert await tokens.find_by_secret(wrong) is None


async def test_a_token_is_good_until_its_time_is_up_or_it_is_revoked(tokens: TokenStore, harness: Harness) -> None:
    _, short = await tokens.create("short", ApiRole.MEMBER, "", A_DAY, ANA)
    _, long = await tokens.create("long", ApiRole.MEMBER, "", None, ANA)
    harness.time += A_DAY - 1
    assert await tokens.find_by_secret(short) is not None
    harness.time += 1
    assert await tokens.find_by_secret(short) is None
    assert await tokens.find_by_secret(long) is not None
    assert await tokens.revoke("long", BEN)
    assert await tokens.find_by_secret(long) is None
    assert not await tokens.revoke("long", BEN)
    assert not await tokens.revoke("nobody", BEN)
    assert [(token.name, token.revoked_at) for token in await tokens.tokens()] == [
        ("long", harness.time),
        ("short", None),
    ]


async def test_a_name_is_free_again_once_its_token_is_good_for_nothing(tokens: TokenStore, harness: Harness) -> None:
    _, first = await tokens.create("ci", ApiRole.ADMIN, "", A_DAY, ANA)
    with pytest.raises(Conflict, match="A token named ci already exists"):
        await tokens.create("ci", ApiRole.MEMBER, "", None, ANA)
    assert await tokens.find_by_secret(first) is not None
    harness.time += A_DAY
    _, second = await tokens.create("ci", ApiRole.MEMBER, "", None, ANA)
    await tokens.revoke("ci", ANA)
    third, token = await tokens.create("ci", ApiRole.MEMBER, "", None, ANA)
    assert [await tokens.find_by_secret(each) for each in (first, second, token)] == [None, None, third]
    assert await tokens.tokens() == [third]


async def test_of_several_tokens_of_one_name_at_once_one_is_made(tokens: TokenStore) -> None:
    tries = (tokens.create("ci", ApiRole.MEMBER, "", None, ANA) for _ in range(5))
    answers = await asyncio.gather(*tries, return_exceptions=True)
    made = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert len(made) == 1
    assert [
        answer for answer in answers if isinstance(answer, BaseException) and not isinstance(answer, Conflict)
    ] == []
    assert await tokens.find_by_secret(made[0][1]) == made[0][0]


async def test_transactions_that_are_run_twice_make_and_revoke_once(tokens: TokenStore, harness: Harness) -> None:
    """The response to a COMMIT is lost, so the transaction runs again: its first outcome is unknown."""
    run_once = harness.database.run_once

    async def twice(transaction: Callable[[sa.Connection], object], rank: Rank = "ordinary") -> object:
        await run_once(transaction, rank)
        return await run_once(transaction, rank)

    harness.database.run_once = twice  # type: ignore[method-assign, assignment]
    made, token = await tokens.create("ci", ApiRole.MEMBER, "", None, ANA)
    assert await tokens.find_by_secret(token) == made
    assert await tokens.revoke("ci", ANA)
    entries, _ = await SqlReporting(harness.database).audit(AuditQuery(), 10, 0)
    assert [entry.kind for entry in entries] == ["revoked token", "made token"]


async def test_the_audit_has_creators_and_revokers_and_no_token(tokens: TokenStore, harness: Harness) -> None:
    made, token = await tokens.create("ci", ApiRole.ADMIN, "slack:T1", A_DAY, ANA)
    await tokens.revoke("ci", BEN)
    entries, _ = await SqlReporting(harness.database).audit(AuditQuery(), 10, 0)
    assert [(entry.kind, entry.actor, entry.subject) for entry in reversed(entries)] == [
        ("made token", "test:ana", made.id),
        ("revoked token", "test:ben", made.id),
    ]
    assert entries[1].facts == {
        "token": "ci",
        "role": "admin",
        "workspace": "slack:T1",
        "expires_at": START + A_DAY,
    }

    def everything(connection: sa.Connection) -> str:
        return str([connection.execute(sa.select(table)).all() for table in metadata.sorted_tables])

    kept = await harness.database.run(everything)
    assert "slack:T1" in kept
    assert token not in kept
    assert token.removeprefix("cs_") not in kept
