"""History that is read during changes, on PostgreSQL."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from bot.domain.turns import StepStatus, TurnStatus
from bot.storage.tables import deliveries, steps
from tests.contracts.test_histories import ANSWER, CALL, RESULT, WANTS
from tests.fakes.parts import HALL
from tests.storage.test_concurrent_turns import overlapping
from tests.turn_log_harness import PostgresHarness, running


def change(connection: sa.Connection) -> None:
    connection.execute(steps.update().values(result=None))
    connection.execute(deliveries.update().values(revision=deliveries.c.revision + 1))


@pytest.mark.parametrize("which", [1, 2, 3, 4])
async def test_a_turn_that_changes_while_it_is_read_is_not_remembered_as_it_was(
    harness: PostgresHarness, which: int
) -> None:
    claim = await running(harness)
    await harness.log.append(claim, WANTS, [CALL])
    await harness.log.finish_call(claim, 2, StepStatus.DONE, RESULT)
    await harness.log.finish(claim, TurnStatus.DONE, [ANSWER], "")
    process = harness.another()
    await overlapping(harness, process.history(HALL, 9, 9), "select", harness.database.run(change), which)
    (record,) = (await process.history(HALL, 9, 9)).turns
    assert [step.result for step in record.calls] == [None]
