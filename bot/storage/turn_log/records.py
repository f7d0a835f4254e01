"""Turn records: decoding of turns, steps and approvals from rows, a cache of the turns that this process runs, and the
files of turns.

A cached record is valid while the revision of its row is unchanged. Files have their own table, because rows of steps
are read often.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.approvals import UNKNOWN_APPROVERS, Approval, ApprovalRequirements, PossibleApprovers, parse_scope
from bot.domain.conversations import Author, ConversationKey
from bot.domain.messages import FilePart, ImageAudience, ImagePart, ResultPart, StoredFile, ToolResult
from bot.domain.secrets import StoredSecret
from bot.domain.turns import (
    Claim,
    ModelStep,
    Step,
    StepStatus,
    StepTimes,
    ToolStep,
    Turn,
    TurnInput,
    TurnRecord,
    TurnStatus,
)
from bot.errors import NotFound
from bot.storage.codec import Body, converter, decode, encode, json_text
from bot.storage.database import Upsert, now, storable
from bot.storage.tables import approval_of_step, approvals, deliveries, files, grants, steps, turns
from bot.storage.turn_log import elicitation_rows

log = logging.getLogger(__name__)

_Secrets = tuple[StoredSecret, ...]
_DECIDED = ("decided_by", "decided_at", "reason", "revised_by")
_SAME = ("id", "revision", "fingerprint", "expires_in", "expires_at", "remind_in", *_DECIDED)
"""Columns that are fields of an approval as they are."""


step_columns = (
    *(column.label(f"step_{column.name}") for column in steps.c if column.name not in ("late_result", "fence")),
    *(column.label(f"approval_{column.name}") for column in approvals.c),
    sa.func.coalesce(now() - approvals.c.posted_at, 0.0).label("approval_waited"),
    *(
        sa.select(what).where(grants.c.approval_id == approvals.c.id).limit(1).scalar_subquery().label(name)
        for name, what in (
            ("granted_scope", grants.c.scope),
            ("granted_seconds", grants.c.expires_at - grants.c.created_at),
        )
    ),
)
# One statement for each record, because this is the most frequent read.
_record = (
    sa.select(turns, deliveries.c.revision.label("revision"), elicitation_rows.asked_back.label("asks"), *step_columns)
    .select_from(turns)
    .join(deliveries, deliveries.c.turn_id == turns.c.id)
    .outerjoin(steps, steps.c.turn_id == turns.c.id)
    .outerjoin(approvals, approval_of_step)
    .where(turns.c.id == bindparam("turn_id"))
    .order_by(steps.c.n)
)
_turn_of_approval = sa.select(approvals.c.turn_id, approvals.c.n).where(approvals.c.id == bindparam("approval_id"))


def read_record(connection: sa.Connection, turn_id: str) -> TurnRecord:
    """Return a turn with its steps. Raises NotFound."""
    rows = connection.execute(_record, {"turn_id": turn_id}).all()
    if not rows:
        raise NotFound(f"There is no turn {turn_id}.")
    turn = read_turn(rows[0])
    done = tuple(read_step(row, turn.author.platform) for row in rows if row.step_n is not None)
    if rows[0].asks:
        elicitations = elicitation_rows.read_rows(connection, turn_id)
        done = tuple(_with_elicitations(step, elicitations.get(step.n, ())) for step in done)
    return TurnRecord(turn, done, rows[0].revision)


def read_approval(connection: sa.Connection, approval_id: str) -> tuple[Turn, ToolStep] | None:
    """Return the turn and the step of an approval."""
    row = connection.execute(_turn_of_approval, {"approval_id": approval_id}).first()
    if row is None:
        return None
    record = read_record(connection, row.turn_id)
    return record.turn, next(step for step in record.calls if step.n == row.n)


def read_turn(row: Any) -> Turn:
    """Return the turn of a row of `turns`."""
    conversation = ConversationKey.parse(row.conversation)
    return Turn(
        id=row.id,
        conversation=conversation,
        seq=row.seq,
        author=Author(conversation.author_platform, row.author_id, row.author_name),
        question=decode(TurnInput, row.input),
        status=TurnStatus(row.status),
        created_at=row.created_at,
        failure=row.failure,
        begun=row.fence > 0,
        content_deleted=row.content_deleted_at is not None,
    )


def read_step(row: Any, platform: str) -> Step:
    """Return a step with its approval from a row of `step_columns`."""
    if row.step_kind == "model":
        return decode(ModelStep, row.step_body, n=row.step_n, created_at=row.step_created_at)
    columns = {name: getattr(row, f"step_{name}") for name in ("n", "status", "repeatable", "result")}
    times = StepTimes(row.step_created_at, row.step_started_at, row.step_ended_at)
    step = dataclasses.replace(decode(ToolStep, row.step_body, **columns), times=times)
    if row.approval_id is None:
        return step
    revised = row.approval_revised_arguments
    call = step.call if revised is None else dataclasses.replace(step.call, arguments=revised)
    return dataclasses.replace(step, call=call, approval=_read_approval(row, platform))


def _with_elicitations(step: Step, rows: Sequence[Any]) -> Step:
    if not rows or not isinstance(step, ToolStep):
        return step
    resume = None if step.status.ended or step.status is StepStatus.ASKING else elicitation_rows.replies_of(rows)
    return dataclasses.replace(step, elicitations=elicitation_rows.elicitations_of(rows), resume=resume)


def _read_approval(row: Any, platform: str) -> Approval:
    revised = row.approval_revised_arguments is not None
    proposed_secrets = converter.structure(row.approval_proposed_secrets, _Secrets)
    return Approval(
        **{name: getattr(row, f"approval_{name}") for name in _SAME},
        requested_for=Author(platform, row.approval_requested_for_id, row.approval_requested_for_name),
        proposed=row.approval_proposed_arguments if revised else None,
        editors=frozenset(row.approval_editors or ()),
        requirements=decode(ApprovalRequirements, row.approval_requirements),
        possible_approvers=(
            UNKNOWN_APPROVERS
            if row.approval_possible_approvers is None
            else decode(PossibleApprovers, row.approval_possible_approvers)
        ),
        approver_names=tuple(row.approval_approver_names or ()),
        waited=row.approval_waited or 0.0,
        granted=parse_scope(row.granted_scope or "", row.granted_seconds),
        secrets=converter.structure(row.approval_revised_secrets, _Secrets) if revised else proposed_secrets,
        proposed_secrets=proposed_secrets if revised else (),
    )


class RecordCache:
    """Last known record of each turn that this process runs."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, int], TurnRecord] = {}

    def pop(self, claim: Claim) -> TurnRecord | None:
        """Remove and return a turn's cached record, `None` without one."""
        return self._records.pop((claim.turn_id, claim.fencing_token), claim.initial_record)

    def put(self, claim: Claim, record: TurnRecord) -> TurnRecord:
        """Cache the record unless the turn has ended. Return it."""
        if not record.turn.status.ended:
            self._records[claim.turn_id, claim.fencing_token] = record
        return record


def current_record(record: TurnRecord | None, revision: int) -> TurnRecord | None:
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


def with_call(
    record: TurnRecord | None, n: int, status: StepStatus, times: StepTimes, result: Body | None = None
) -> TurnRecord | None:
    """Return the record with one call's new status, times and `result` body, at the next revision."""

    def change_step(step: Step) -> Step:
        if step.n != n or not isinstance(step, ToolStep):
            return step
        return dataclasses.replace(step, status=status, result=stored, times=times)

    if record is None:
        return None
    stored = None if result is None else decode(ToolResult, _json_copy(result))
    return dataclasses.replace(record, steps=tuple(map(change_step, record.steps)), revision=record.revision + 1)


def is_settled(record: TurnRecord) -> bool:
    """Return True if no call is open."""
    return all(step.status.ended for step in record.calls)


def ended_record(record: TurnRecord, status: TurnStatus, failure: str) -> TurnRecord:
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


MOST_BYTES = 32 * 2**20
"""Largest number of bytes of all files of one turn. Larger files are stored by name and size only."""

_sizes = sa.select(files.c.id, sa.func.length(files.c.data).label("size")).where(files.c.turn_id == bindparam("t"))
_add = Upsert(lambda insert: insert(files).on_conflict_do_nothing())
_read = sa.select(files.c.data).where(files.c.turn_id == bindparam("t"), files.c.id == bindparam("i"))


def save_files(connection: sa.Connection, turn_id: str, result: ToolResult) -> ToolResult:
    """Return the result with the bytes of its files stored. Safe to run twice, because files are identified by their
    hash.
    """
    if not any(isinstance(part, ImagePart | FilePart) for part in result.parts):
        return result
    sizes = {row.id: row.size for row in connection.execute(_sizes, {"t": turn_id})}
    parts: list[ResultPart] = []
    for part in result.parts:
        described = _without_bytes(part)
        if isinstance(part, ImagePart | FilePart) and isinstance(described, StoredFile):
            described = replace(described, id=_store(connection, turn_id, sizes, part.data))
        parts.append(described)
    return replace(result, parts=tuple(parts))


def strip_bytes(result: ToolResult) -> ToolResult:
    """Return the result with names and sizes only, for a result that is never delivered."""
    return replace(result, parts=tuple(_without_bytes(part) for part in result.parts))


def read_file(connection: sa.Connection, turn_id: str, file_id: str) -> bytes:
    """Return the bytes of a file. Raises NotFound."""
    data = connection.execute(_read, {"t": turn_id, "i": file_id}).scalar()
    if data is None:
        raise NotFound("That file was deleted.")
    return bytes(data)


def _without_bytes(part: ResultPart) -> ResultPart:
    match part:
        case ImagePart(data, mime_type, name, readers):
            return StoredFile("", mime_type, name, len(data), readers)
        case FilePart(data, mime_type, name):
            return StoredFile("", mime_type, name, len(data), ImageAudience.PEOPLE)
        case _:
            return part


def _store(connection: sa.Connection, turn_id: str, sizes: dict[str, int], data: bytes) -> str:
    """Return the id of the stored bytes; empty if they exceed the turn's limit."""
    file_id = hashlib.sha256(data).hexdigest()
    if file_id not in sizes:
        if sum(sizes.values()) + len(data) > MOST_BYTES:
            return ""
        connection.execute(_add.on(connection), {"turn_id": turn_id, "id": file_id, "data": data})
        sizes[file_id] = len(data)
    return file_id
