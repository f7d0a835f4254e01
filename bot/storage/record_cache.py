"""Cache of the `TurnRecord` of each running turn, valid while the row's revision is unchanged.

Every visible change of a turn raises its revision. If the revision is unchanged, the owner's own writes are the only
changes, and the record is updated without a read. A turn with approvals or elicitations is always read again, because
these also change by the clock.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from bot.domain.messages import ToolResult
from bot.domain.turns import Claim, ModelStep, Step, StepStatus, ToolStep, TurnRecord, TurnStatus
from bot.storage.codec import Body, decode, encode
from bot.storage.database import json_text
from bot.storage.tables import storable


class RecordCache:
    """Last known record of each turn that this process runs."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, int], TurnRecord] = {}

    def pop(self, claim: Claim) -> TurnRecord | None:
        """Remove and return a turn's cached record, `None` without one."""
        return self._records.pop((claim.turn_id, claim.fence), claim.initial_record)

    def put(self, claim: Claim, record: TurnRecord) -> TurnRecord:
        """Cache the record unless the turn has ended. Return it."""
        if not record.turn.status.ended:
            self._records[claim.turn_id, claim.fence] = record
        return record


def unchanged(record: TurnRecord | None, revision: int) -> TurnRecord | None:
    """Return the record if its revision is current and the turn has no approvals or elicitations, else `None`."""
    if record is None or record.revision != revision or not all(map(_has_no_requests, record.steps)):
        return None
    return record


def with_steps(record: TurnRecord | None, new: Sequence[Step]) -> TurnRecord | None:
    """Return the record with steps that the next revision appended, `None` if it cannot be derived."""
    if record is None or not all(map(_has_no_requests, new)):
        return None
    steps = (*record.steps, *map(_as_stored, new))
    return dataclasses.replace(record, steps=steps, revision=record.revision + 1)


def with_call(record: TurnRecord | None, n: int, status: StepStatus, result: Body | None = None) -> TurnRecord | None:
    """Return the record with one call's new status and `result` body, at the next revision."""

    def changed(step: Step) -> Step:
        if step.n != n or not isinstance(step, ToolStep):
            return step
        return dataclasses.replace(step, status=status, result=stored)

    if record is None:
        return None
    stored = None if result is None else decode(ToolResult, _json_copy(result))
    return dataclasses.replace(record, steps=tuple(map(changed, record.steps)), revision=record.revision + 1)


def is_settled(record: TurnRecord) -> bool:
    """Return True if no call is open."""
    return all(step.status.ended for step in record.calls)


def ended(record: TurnRecord, status: TurnStatus, failure: str) -> TurnRecord:
    """Return the record of a turn that ended, at the same revision."""
    turn = dataclasses.replace(record.turn, status=status, failure=storable(failure))
    return dataclasses.replace(record, turn=turn)


def _has_no_requests(step: Step) -> bool:
    return isinstance(step, ModelStep) or (step.approval is None and not step.elicitations and step.resume is None)


def _as_stored(step: Step) -> Step:
    """Return a step as if read from the database: JSON has no tuples, NaN or infinities."""
    if isinstance(step, ModelStep):
        return decode(ModelStep, _json_copy(encode(step)), n=step.n)
    result = None if step.result is None else _json_copy(encode(step.result))
    columns = {"n": step.n, "status": step.status, "repeatable": step.repeatable, "result": result}
    return decode(ToolStep, _json_copy(encode(step)), **columns)


def _json_copy(body: Body) -> Any:
    return json.loads(json_text(body))
