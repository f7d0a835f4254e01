"""Content deletion by several processes at the same time on PostgreSQL, during new turns."""

from __future__ import annotations

import asyncio

from bot.domain.conversations import ConversationKey
from bot.domain.messages import assistant
from bot.domain.turns import ModelStep, TurnStatus
from bot.storage.reporting import SqlReporting
from bot.storage.turn_log.log import SqlTurnLog
from bot.storage.user_data import SqlPersonData
from tests.audit_check import audit_findings
from tests.fakes.parts import BEN, NEWEST, message
from tests.stored_content import columns_with
from tests.turn_log_harness import PostgresHarness

WORD = "Kirschkuchen"
CONVERSATIONS = [ConversationKey("test", "w", "hall", str(n)) for n in range(4)]


async def answer_everything(log: SqlTurnLog, number: int) -> None:
    """Ask and answer in every conversation, one turn after the other."""
    for n in range(12):
        for conversation in CONVERSATIONS:
            await log.enqueue(message(f"about {WORD}", f"{number} {n} {conversation}", conversation=conversation))
        for claim in await log.claim(8):
            record = await log.finish(claim, TurnStatus.DONE, [ModelStep(1, assistant(WORD))], "")
            await log.acquire_delivery(claim.turn_id, NEWEST)
            await log.mark_delivered(claim.turn_id, record.revision)


async def delete_until(log: SqlTurnLog, over: asyncio.Event) -> int:
    count = 0
    while not over.is_set():
        count += await log.delete_content(5, fetch_seconds=0.0, undelivered_seconds=1e9)
        await asyncio.sleep(0)
    return count


async def test_deleting_processes_and_writing_users_wait_for_each_other_and_none_fails(
    harness: PostgresHarness,
) -> None:
    others = [harness.another_process() for _ in range(3)]
    over = asyncio.Event()
    deleting = [asyncio.create_task(delete_until(each.log, over)) for each in (harness, others[0])]
    forgetting = asyncio.create_task(SqlPersonData(others[1].database).forget("test:ana", "console:op"))
    removing = [SqlReporting(others[2].database).delete(conversation, BEN) for conversation in CONVERSATIONS[2:]]
    async with asyncio.timeout(60):
        await asyncio.gather(*(answer_everything(log, n) for n, log in enumerate((others[1].log, others[2].log))))
        await asyncio.gather(*removing)
        await forgetting
        over.set()
        await asyncio.gather(*deleting)
    while claims := await harness.log.claim(50):
        for claim in claims:
            await harness.log.finish(claim, TurnStatus.DONE, [], "")
    harness.time += 2e9
    while await harness.log.delete_content(100, fetch_seconds=0.0, undelivered_seconds=1.0):
        pass
    left = await columns_with(harness.database, WORD)
    findings = await audit_findings(harness.database)
    for other in others:
        await other.close()
    assert left == []
    assert findings == []
