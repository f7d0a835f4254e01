"""Comparison of the audit with the existing turns, approvals, decisions, calls and grants.

Turns are compared in pages, each in one transaction. A mismatch is compared again under the turn's lock, because
another process may have written between two statements.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.approvals import DecisionType
from bot.domain.audit import AuditFinding, Fault
from bot.domain.turns import StepStatus
from bot.storage.audit_calls import call_facts
from bot.storage.tables import approvals, audit, decisions, grants, steps, turns
from bot.storage.turn_completion import lock_turn

_FROM_AN_APPROVAL = (StepStatus.READY, StepStatus.STARTED, StepStatus.ASKING)
_SENT = (StepStatus.DONE, StepStatus.FAILED, StepStatus.UNKNOWN)
_ENDS = ("ran", "not run")
_NOT_APPROVED = ("decided", "not shown", "expired", *_ENDS)
_ABOUT_A_CALL = ("asked", "decided", "signed", "revised", "expired", "not shown", *_ENDS)
_DELETED = "somebody deleted rows of the audit, or wrote to the turn by hand"
_FORGED = "somebody wrote to the turn by hand"

_in_turns: sa.BindParameter[str] = bindparam("ids", expanding=True)
_page = sa.select(turns.c.id).where(turns.c.id > bindparam("behind")).order_by(turns.c.id).limit(bindparam("limit"))
_latest = sa.select(turns.c.id).order_by(turns.c.created_at.desc()).limit(bindparam("limit"))
_calls = (
    sa.select(
        steps.c.turn_id,
        steps.c.n,
        steps.c.status,
        steps.c.started_at,
        # As text, because an unreadable body must not end the verification.
        sa.cast(steps.c.body, sa.Text).label("body"),
        sa.cast(approvals.c.revised, sa.Text).label("revised"),
        approvals.c.id.label("approval"),
        approvals.c.fingerprint,
    )
    .outerjoin(approvals, sa.and_(approvals.c.turn_id == steps.c.turn_id, approvals.c.n == steps.c.n))
    .where(steps.c.turn_id.in_(_in_turns), steps.c.kind == "tool")
)
_numbers = sa.select(steps.c.turn_id, steps.c.n).where(steps.c.turn_id.in_(_in_turns))
_decisions = (
    sa.select(approvals.c.turn_id, approvals.c.n, decisions)
    .join(approvals, approvals.c.id == decisions.c.approval_id)
    .where(approvals.c.turn_id.in_(_in_turns))
)
_rows = (
    sa.select(audit.c.seq, audit.c.turn_id, audit.c.kind, audit.c.actor, audit.c.body)
    .where(audit.c.turn_id.in_(_in_turns))
    .order_by(audit.c.seq)
)
_grants = sa.select(grants.c.id, grants.c.tool, grants.c.server_name, grants.c.granted_by)
_earlier = audit.alias("earlier")
# The first audit rows of deleted turns, among rows first..last.
_gone = sa.select(audit.c.seq, audit.c.conversation).where(
    audit.c.seq.between(bindparam("first"), bindparam("last")),
    audit.c.turn_id != "",
    ~sa.exists().where(turns.c.id == audit.c.turn_id),
    ~sa.exists().where(_earlier.c.turn_id == audit.c.turn_id, _earlier.c.seq < audit.c.seq),
)


def page_of_turns(connection: sa.Connection, behind: str, limit: int) -> Sequence[str]:
    """Return the ids of turns behind one, in the order of ids."""
    return connection.execute(_page, {"behind": behind, "limit": limit}).scalars().all()


def latest_turns(connection: sa.Connection, limit: int) -> Sequence[str]:
    """Return the ids of the turns that began last."""
    return connection.execute(_latest, {"limit": limit}).scalars().all()


def compare_turns(connection: sa.Connection, ids: Sequence[str]) -> Sequence[AuditFinding]:
    """Compare these turns with the rows about them."""
    if not ids or not (suspects := _compare(connection, ids)):
        return ()
    findings: list[AuditFinding] = []
    for turn_id in suspects:
        if lock_turn(connection, turn_id) is not None:
            findings += _compare(connection, [turn_id]).get(turn_id, ())
    return findings


def all_grants(connection: sa.Connection) -> Mapping[str, str]:
    """Return a description of each stored grant, by id."""
    return {
        row.id: f"{row.server_name}.{row.tool}, as granted by {row.granted_by}" for row in connection.execute(_grants)
    }


def rows_of_gone_turns(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> Mapping[int, str]:
    """Return the conversations of those rows that are the first ones of turns which are gone, by their numbers."""
    numbers = [row["seq"] for row in rows if isinstance(row["seq"], int)]
    if not numbers:
        return {}
    gone = connection.execute(_gone, {"first": numbers[0], "last": numbers[-1]})
    return {row.seq: row.conversation for row in gone}


class DeletedTurns:
    """Comparison of deleted turns with the deletions in the audit, batch by batch. Retention is recorded as a count:
    the deletions on record must be at least as many as the missing turns.
    """

    def __init__(self) -> None:
        self._gone: defaultdict[str, int] = defaultdict(int)
        self._recorded = 0
        self._first = 0

    def add(self, rows: Sequence[Mapping[str, Any]], gone: Mapping[int, str]) -> None:
        """Add the next rows, with their result of `rows_of_gone_turns`."""
        for row in rows:
            if row["seq"] in gone:
                self._gone[gone[row["seq"]]] += 1
                self._first = self._first or row["seq"]
            if row["kind"] == "deleted conversation":
                self._gone.pop(row["conversation"], None)
            elif row["kind"] == "deleted old turns":
                self._recorded += _count_of(row["body"])

    def finding(self) -> AuditFinding | None:
        """Return a finding if more turns are missing than were deleted, else `None`."""
        unexplained = sum(self._gone.values()) - self._recorded
        if unexplained <= 0:
            return None
        many = "1 turn is" if unexplained == 1 else f"{unexplained} turns are"
        return AuditFinding(
            Fault.DELETED_TURNS,
            f"{many} gone that the audit has rows of, and no row says that they were deleted.",
            "somebody deleted turns by hand, or restored them from an older backup than the audit",
            self._first,
            self._first,
        )


def _count_of(body: Any) -> int:
    try:
        return int(json.loads(body)["count"])
    except (TypeError, ValueError, KeyError):
        return 0


def _compare(connection: sa.Connection, ids: Sequence[str]) -> dict[str, list[AuditFinding]]:
    calls = connection.execute(_calls, {"ids": ids}).all()
    numbers = {(row.turn_id, row.n) for row in connection.execute(_numbers, {"ids": ids})}
    decided = connection.execute(_decisions, {"ids": ids}).all()
    rows = [_Row(row) for row in connection.execute(_rows, {"ids": ids})]
    by_call: defaultdict[tuple[str, object], list[_Row]] = defaultdict(list)
    for row in rows:
        by_call[row.turn_id, row.facts.get("step")].append(row)
    findings: dict[str, list[AuditFinding]] = {}

    def add(turn_id: str, what: str, means: str, row: _Row | None = None) -> None:
        seq = row.seq if row else 0
        findings.setdefault(turn_id, []).append(AuditFinding(Fault.TURN, what, means, seq, seq))

    for call in calls:
        for what, means, about in _of_call(call, by_call[call.turn_id, call.n]):
            add(call.turn_id, what, means, about)
    for decision in decided:
        if not any(row.is_decision(decision) for row in by_call[decision.turn_id, decision.n]):
            where = f"step {decision.n} of turn {decision.turn_id}"
            add(
                decision.turn_id,
                f"{decision.person} said {decision.verdict} to {where}, and no row says so.",
                "somebody deleted rows of the audit, or wrote a decision into the database by hand",
            )
    for row in rows:
        step = row.facts.get("step")
        if row.kind in _ABOUT_A_CALL and (row.turn_id, step) not in numbers:
            what = f"Row {row.seq} ({row.kind}) is about step {step} of turn {row.turn_id}, which has no such step."
            add(row.turn_id, what, "somebody deleted steps of the turn by hand", row)
    return findings


class _Row:
    """A row of the audit about a call."""

    def __init__(self, row: Any) -> None:
        self.seq: int = row.seq
        self.turn_id: str = row.turn_id
        self.kind: str = row.kind
        self.actor: str = row.actor
        try:
            self.facts: dict[str, Any] = dict(json.loads(row.body))
        except (TypeError, ValueError):
            self.facts = {}

    def is_decision(self, decision: Any) -> bool:
        facts = (decision.approval_id, decision.revision, decision.verdict)
        return (
            self.kind in ("decided", "signed")
            and self.actor == decision.person
            and (self.facts.get("approval"), self.facts.get("revision"), self.facts.get("verdict")) == facts
        )


_Mismatch = tuple[str, str, _Row | None]


def _of_call(call: Any, rows: Sequence[_Row]) -> Iterable[_Mismatch]:
    where = f"step {call.n} of turn {call.turn_id}"
    if call.approval is not None:
        yield from _of_approval(call, where, rows)
    if call.started_at is None or call.status not in _SENT:
        return
    ends = [row for row in rows if row.kind in _ENDS]
    if not ends:
        yield f"A call was sent ({where}), and no row says how it ended.", _DELETED, None
    elif not any(row.facts.get("status") == call.status for row in ends):
        mismatch = f"Row {ends[-1].seq} says that the call ended as {ends[-1].facts.get('status')}"
        yield f"{mismatch}; the turn says {call.status} ({where}).", _FORGED, ends[-1]
    else:
        sent = call_facts(call).get("fingerprint", "")
        if sent and not any(row.facts.get("fingerprint", sent) == sent for row in ends):
            what = f"Row {ends[-1].seq} is about other arguments than {where} has."
            yield what, "somebody changed the call in the turn by hand", ends[-1]


def _of_approval(call: Any, where: str, rows: Sequence[_Row]) -> Iterable[_Mismatch]:
    own_rows = [row for row in rows if row.facts.get("approval") == call.approval]
    if not any(row.kind == "asked" for row in own_rows):
        yield f"An approval was asked for ({where}), and no row says so.", _DELETED, None
    decided = [row for row in own_rows if row.kind == "decided"]
    approved = [row for row in decided if row.facts.get("verdict") == DecisionType.APPROVE]
    if call.status in _FROM_AN_APPROVAL or (call.started_at is not None and call.status in _SENT):
        if not approved:
            means = "somebody deleted rows of the audit, or approved the call in the database by hand"
            yield f"A call went on that needs an approval ({where}), and no row says that it was approved.", means, None
        elif not any(row.facts.get("fingerprint") == call.fingerprint for row in approved):
            what = f"Row {approved[-1].seq} approves other arguments than those of {where}."
            yield what, "somebody changed the approval by hand", approved[-1]
    elif call.status in (StepStatus.DENIED, StepStatus.EXPIRED):
        if not any(row.kind in _NOT_APPROVED for row in rows):
            yield f"A call was turned down or expired ({where}), and no row says so.", _DELETED, None
    elif call.status == StepStatus.AWAITING and decided:
        what = f"Row {decided[-1].seq} says that it was decided; the turn says that it waits ({where})."
        yield what, "somebody wrote to the turn by hand, or restored it from an older backup", decided[-1]
