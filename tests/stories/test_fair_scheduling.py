"""A member with thousands of questions holds up no other member: counted in turns, not in seconds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.domain.turns import TurnLimits, TurnStatus
from bot.errors import QueueFull
from bot.storage.turn_log.log import SqlTurnLog
from tests.postgres import Server
from tests.turn_log_harness import Harness, PostgresHarness, sqlite_harness

QUESTIONS, PLACES = 2_000, 8
USUAL = TurnLimits(running=8, queued=100)
WIDE = TurnLimits(queued=QUESTIONS)


def question(platform: str, user: str, n: int) -> InboundMessage:
    """A question in a conversation of its own."""
    where = ConversationKey(platform, "T1", "C1", f"{user}{n}")
    return InboundMessage((f"{platform}:{user}:{n}",), where, Author(platform, user, user), "Why?")


async def open_harness(request: pytest.FixtureRequest, tmp_path: Path, database: str) -> Harness:
    if database == "sqlite":
        return await sqlite_harness(tmp_path)
    postgres: Server = await asyncio.to_thread(request.getfixturevalue, "postgres")
    return PostgresHarness(await asyncio.to_thread(postgres.fresh, virtual_clock=True))


@pytest.mark.parametrize("platform", ["slack", "discord", "api"])
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("limits", [USUAL, WIDE], ids=["usual", "without a small limit"])
async def test_a_member_with_one_question_does_not_wait_for_another_members_thousands(
    request: pytest.FixtureRequest, tmp_path: Path, database: str, platform: str, limits: TurnLimits
) -> None:
    harness = await open_harness(request, tmp_path, database)
    log = SqlTurnLog(harness.database, limits=limits)
    many = QUESTIONS if (platform, database) == ("slack", "sqlite") else 150
    flood = await asyncio.gather(
        *(log.enqueue(question(platform, "mallory", n)) for n in range(many)), return_exceptions=True
    )
    refused = sum(isinstance(each, QueueFull) for each in flood)
    assert refused == max(0, many - limits.queued)
    held = {claim.turn_id: claim for claim in await log.claim(PLACES)}
    asked = await log.enqueue(question(platform, "priya", 1))
    assert (await log.get_view(asked.turn_id)).ahead == 0
    ended = 0
    while asked.turn_id not in held:
        oldest = next(iter(held))
        await log.finish(held.pop(oldest), TurnStatus.DONE, [], "")
        ended += 1
        held |= {claim.turn_id: claim for claim in await log.claim(PLACES - len(held), held.keys())}
        assert ended <= 1
    assert ended == 1
    await harness.close()
