"""The record of a turn as whoever drives it knows it, brought up to date without being read again.

Whatever people should see raises the revision of a turn. Who finds it where they left it has read everything there is:
what they write then is all that is new. A turn in which people are asked something is read again all the same, since
what they are asked has clocks that run beside the revision.

`transcript` asks here before it reads; the turn log keeps an `RecordCache`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from bot.domain.turns import Claim, ModelStep, Step, StepStatus, ToolStep, TurnRecord, TurnStatus
from bot.storage.codec import (
    Body,
    decode_call,
    decode_reply,
    encode_call,
    encode_reply,
    read_grant,
    read_result,
    read_ruling,
    result_body,
)
from bot.storage.database import json_text
from bot.storage.tables import storable


class RecordCache:
    """What was read last of each turn that is driven here."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, int], TurnRecord] = {}

    def pop(self, held: Claim) -> TurnRecord | None:
        """What is known of a turn, if anything. It is known no longer until it is kept again."""
        return self._records.pop((held.turn_id, held.fence), held.initial_record)

    def put(self, held: Claim, record: TurnRecord) -> TurnRecord:
        """Know this of a turn, unless it is over."""
        if not record.turn.status.ended:
            self._records[held.turn_id, held.fence] = record
        return record


def unchanged(known: TurnRecord | None, revision: int) -> TurnRecord | None:
    """What is known, if nobody has changed anything since and people are asked nothing; else None."""
    if known is None or known.revision != revision or not all(map(_is_plain, known.steps)):
        return None
    return known


def with_steps(known: TurnRecord | None, new: Sequence[Step]) -> TurnRecord | None:
    """The record with steps that were added at its end by the next revision."""
    if known is None or not all(map(_is_plain, new)):
        return None
    steps = (*known.steps, *map(_as_kept, new))
    return dataclasses.replace(known, steps=steps, revision=known.revision + 1)


def with_call(known: TurnRecord | None, n: int, status: StepStatus, result: Body | None = None) -> TurnRecord | None:
    """The record with another state of one call, by the next revision. `result` is as it was written."""

    def changed(step: Step) -> Step:
        if step.n != n or not isinstance(step, ToolStep):
            return step
        return dataclasses.replace(step, status=status, result=read_result(_kept(result)))

    if known is None:
        return None
    return dataclasses.replace(known, steps=tuple(map(changed, known.steps)), revision=known.revision + 1)


def is_settled(record: TurnRecord) -> bool:
    """Whether no call is open."""
    return all(step.status.ended for step in record.calls)


def ended(record: TurnRecord, status: TurnStatus, failure: str) -> TurnRecord:
    """The record of a turn that has ended by the same revision."""
    turn = dataclasses.replace(record.turn, status=status, failure=storable(failure))
    return dataclasses.replace(record, turn=turn)


def _is_plain(step: Step) -> bool:
    return isinstance(step, ModelStep) or (step.approval is None and not step.elicitations and step.resume is None)


def _as_kept(step: Step) -> Step:
    """A step as reading it gives it: JSON knows no tuples, and databases no number that is none."""
    match step:
        case ModelStep():
            return decode_reply(step.n, _kept(encode_reply(step)))
        case ToolStep():
            body = _kept(encode_call(step))
            call, tool, origin = decode_call(body)
            return dataclasses.replace(
                step,
                call=call,
                tool=tool,
                origin=origin,
                result=read_result(_kept(None if step.result is None else result_body(step.result))),
                ruling=read_ruling(body),
                grant=read_grant(body),
            )


def _kept(body: Body | None) -> Any:
    return json.loads(json_text(body))
