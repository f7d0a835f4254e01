"""Entries of the audit, an append-only table of requests, decisions, stops and executed calls: writing and queries.

Each row carries the hash of the previous row and a MAC over its own hash, so that changed, removed, inserted and
rewritten rows are detected. Rows hold ids and hashes, never message texts: they outlive a deleted conversation. A call
is named by its server and tool; its arguments only by the fingerprint that its approval is bound to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.approvals import fingerprint
from bot.domain.audit import NO_HASH, AuditEntry, AuditHead, AuditQuery, AuditScope
from bot.domain.conversations import Author, ConversationKey
from bot.domain.grants import GrantUse
from bot.domain.messages import ToolCall
from bot.domain.metrics import ApprovalAsked, CallEnded
from bot.domain.tools import digest
from bot.domain.turns import CallOrigin, StepStatus, ToolRef, ToolStep, Turn
from bot.ports import DirectCall
from bot.storage.audit_chain import CONNECTION_KEY, AuditKeys, row_hash
from bot.storage.codec import CONTENT_DELETED, UNREADABLE, converter
from bot.storage.database import (
    OWNER_RETRY_SECONDS,
    StorableText,
    Store,
    given,
    has_prefix,
    is_one_of,
    matching,
    now,
    prefix_bounds,
    record_metric,
    storable,
    transaction,
)
from bot.storage.tables import approval_of_step, approvals, audit, steps, this_approval, this_step, turns

Row = Mapping[str, Any]

_LOCK = 0x436F756E
"""Writers of the chain take turns: an advisory lock, held until the end of their transaction."""
NOBODY = "countersign"
"""Actor of events without a user: expiries, crash recovery, denials because no user could be asked."""
_NO_KEYS = AuditKeys()

_lock = sa.select(sa.func.pg_advisory_xact_lock(_LOCK))
_last = sa.select(audit.c.seq, audit.c.hash, now().label("at")).order_by(audit.c.seq.desc()).limit(1)
_now = sa.select(now())
_add = audit.insert()
_conversation_of_turn = sa.select(turns.c.conversation).where(turns.c.id == bindparam("turn_id"))
_equal = sa.select(audit.c.seq).where(matching(audit, actor="actor", body="body")).limit(1)
_same = _equal.where(matching(audit, turn_id="turn_id", kind="kind"))
_recent = _equal.where(audit.c.at > now() - OWNER_RETRY_SECONDS)
# Written as in the index's condition, because planners use the index only then.
_has_subject = audit.c.subject != sa.literal_column("''")
_is_of_subject = sa.and_(_has_subject, audit.c.subject == bindparam("subject", type_=StorableText))
_is_of_actor = audit.c.actor == bindparam("person", type_=StorableText)
_is_since = audit.c.at >= bindparam("since", type_=sa.Double)
_is_before = audit.c.at < bindparam("until", type_=sa.Double)
_is_of_turn = audit.c.turn_id == bindparam("turn_id", type_=StorableText)
_is_of_kinds = is_one_of(audit.c.kind, "kinds")
_is_in_scope = sa.or_(
    has_prefix(audit.c.conversation, "home"),
    sa.and_(audit.c.conversation == sa.literal_column("''"), _has_subject, is_one_of(audit.c.subject, "known")),
)
_first = sa.select(audit).order_by(audit.c.seq).limit(bindparam("limit"))
_head_row = sa.select(audit.c.seq, audit.c.hash).order_by(audit.c.seq.desc()).limit(1)
_is_after = audit.c.seq > bindparam("behind")


def record(
    connection: sa.Connection,
    kind: str,
    actor: str,
    *,
    turn_id: str = "",
    conversation: str = "",
    subject: str = "",
    **facts: Any,
) -> None:
    """Add a row. `kind` is the event, `actor` a principal, `facts` are JSON values. `subject` is the id of the affected
    server or profile.
    """
    subject = storable(subject)
    _lock_chain(connection)
    if turn_id and not conversation:
        conversation = connection.execute(_conversation_of_turn, {"turn_id": turn_id}).scalar() or ""
    last = connection.execute(_last).first()
    row = {
        "seq": last.seq + 1 if last else 1,
        "at": last.at if last else connection.execute(_now).scalar_one(),
        "kind": kind,
        "conversation": conversation,
        "turn_id": turn_id,
        "actor": storable(actor),
        "body": _body(subject, facts),
        "previous": last.hash if last else NO_HASH,
    }
    digest = row_hash(row)
    keys: AuditKeys = connection.info.get(CONNECTION_KEY, _NO_KEYS)
    connection.execute(_add, {**row, "subject": subject, "hash": digest, "mac": keys.sign_row(digest)})


def _record_once(
    connection: sa.Connection, kind: str, actor: str, *, turn_id: str, subject: str = "", **facts: Any
) -> bool:
    """Add a row unless the turn has an identical one, so that repeated attempts do not fill the disk. Return True if
    the row was added.
    """
    same = {"turn_id": turn_id, "kind": kind, "actor": storable(actor), "body": _body(storable(subject), facts)}
    if connection.execute(_same, same).first() is not None:
        return False
    _lock_chain(connection)
    # Re-read under the lock: another process may have added it.
    if connection.execute(_same, same).first() is not None:
        return False
    record(connection, kind, actor, turn_id=turn_id, subject=subject, **facts)
    return True


def _lock_chain(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(_lock)


def _body(subject: str, facts: dict[str, Any]) -> str:
    return json.dumps({**facts, "subject": subject} if subject else facts, sort_keys=True)


def read_page(
    connection: sa.Connection, query: AuditQuery, limit: int, offset: int
) -> tuple[Sequence[AuditEntry], int]:
    """Return a page of matching rows, newest first, and the number of all matching rows."""
    conditions, values = _conditions(query)
    page = (
        sa.select(audit)
        .where(*conditions)
        .order_by(audit.c.seq.desc())
        .limit(bindparam("limit"))
        .offset(bindparam("offset"))
    )
    rows = connection.execute(page, {**values, "limit": limit, "offset": offset}).mappings()
    entries = [entry_of(dict(row)) for row in rows]
    count = sa.select(sa.func.count()).select_from(audit).where(*conditions)
    return entries, int(connection.execute(count, values).scalar_one())


def read_after(connection: sa.Connection, query: AuditQuery, behind: int | None, limit: int) -> Sequence[Row]:
    """Return up to `limit` matching rows, oldest first, after the row number `behind`; from the first row if it is
    `None`.
    """
    conditions, values = _conditions(query)
    if behind is not None:
        conditions.append(_is_after)
        values["behind"] = behind
    return [dict(row) for row in connection.execute(_first.where(*conditions), {**values, "limit": limit}).mappings()]


def read_head(connection: sa.Connection) -> AuditHead:
    """Return the number and hash of the last row."""
    row = connection.execute(_head_row).first()
    return AuditHead() if row is None else AuditHead(row.seq, row.hash)


def entry_of(row: Row) -> AuditEntry:
    """Return a row as a value. Unreadable facts are returned as text."""
    columns = {name: value for name, value in row.items() if name != "body"}
    facts = parse_facts(row["body"])
    facts = {"unreadable": str(row["body"])} if facts is None else facts
    facts.pop("subject", None)
    return AuditEntry(**columns, facts=facts)


def parse_facts(body: Any) -> dict[str, Any] | None:
    """Return the facts of a row, `None` if they are unreadable."""
    try:
        return dict(json.loads(body))
    except (TypeError, ValueError):
        return None


def _conditions(query: AuditQuery) -> tuple[list[sa.ColumnElement[bool]], dict[str, Any]]:
    scope = query.scope or AuditScope("")
    facts = {"tool": query.tool, "status": query.outcome, "step": query.step}
    conditions, values = given(
        (bool(query.turn_id), _is_of_turn, {"turn_id": query.turn_id}),
        (bool(query.subject), _is_of_subject, {"subject": query.subject}),
        (bool(query.person), _is_of_actor, {"person": query.person}),
        (bool(query.kinds), _is_of_kinds, {"kinds": list(query.kinds)}),
        (query.since is not None, _is_since, {"since": query.since}),
        (query.until is not None, _is_before, {"until": query.until}),
        (
            query.scope is not None,
            _is_in_scope,
            {**prefix_bounds("home", f"{scope.home}:"), "known": sorted(scope.subjects)},
        ),
    )
    body = sa.cast(audit.c.body, sa.Text)
    # As `_body` writes it: a quote inside of another text is escaped there, so that no text passes for a fact.
    texts = (json.dumps({name: value})[1:-1] for name, value in facts.items() if value not in ("", None))
    return [*conditions, *(body.contains(text, autoescape=True) for text in texts)], values


# -------------------- calls

_ran = (
    sa.select(
        *turns.c["conversation", "author_id"],
        # As text, because an unreadable body must not block the end of its turn.
        sa.cast(steps.c.body, sa.Text).label("body"),
        sa.cast(approvals.c.revised_arguments, sa.Text).label("revised"),
        approvals.c.id.label("approval"),
        *steps.c["status", "started_at", "ended_at"],
    )
    .join(turns, turns.c.id == steps.c.turn_id)
    .outerjoin(approvals, approval_of_step)
    .where(this_step)
)
_asked_for = (
    sa.select(approvals.c.turn_id, approvals.c.n, approvals.c.fingerprint, sa.cast(steps.c.body, sa.Text).label("body"))
    .join(steps, approval_of_step)
    .where(this_approval)
)


def record_new(connection: sa.Connection, turn: Turn, new: Sequence[ToolStep]) -> None:
    """Record a turn's new calls that await approval or are denied, and previews. Others are recorded when they end."""
    agent = turn.question.agent
    for step in new:
        facts: dict[str, Any] = {"turn_id": turn.id, "step": step.n, **_tool_facts(step.tool)}
        if agent is not None:
            facts |= {"agent": agent.name, "agent_id": agent.id}
        if step.policy_result is not None and step.policy_result.rule:
            facts["rule"] = step.policy_result.rule
        if (approval := step.approval) is not None:
            facts |= {"approval": approval.id, "fingerprint": approval.fingerprint}
            record(connection, "asked", approval.requested_for.principal, **facts)
            record_metric(connection, ApprovalAsked(turn.conversation.platform))
        elif step.origin is CallOrigin.PREVIEW:
            record_sent(connection, turn, step, None)
        elif step.status is StepStatus.DENIED:
            facts["fingerprint"] = _fingerprint(step.tool, step.call.arguments)
            if _record_once(connection, "forbidden", turn.author.principal, **facts):
                record_metric(connection, _call_ended(step.tool, StepStatus.DENIED, None))


def record_finished(connection: sa.Connection, turn_id: str, n: int, seconds: float | None = None) -> None:
    """Record how a call ended: with a result, with an unknown outcome, or unsent. `seconds` is its duration; `None`
    takes it from the row. The actor is the turn's author.
    """
    row = connection.execute(_ran, {"t": turn_id, "i": n}).one()
    asker = Author(ConversationKey.parse(row.conversation).author_platform, row.author_id, "").principal
    if seconds is None and row.started_at is not None and row.ended_at is not None:
        seconds = row.ended_at - row.started_at
    tool, facts = _read_call(row)
    kind = "not run" if seconds is None and row.started_at is None else "ran"
    facts |= {"turn_id": turn_id, "conversation": row.conversation, "step": n, "approval": row.approval}
    _record_ended(connection, kind, asker, tool, status=row.status, seconds=seconds, **facts)


def record_sent(connection: sa.Connection, turn: Turn, step: ToolStep, seconds: float | None) -> None:
    """Record the end of a call that needed no approval, from its new step. `seconds` is its duration."""
    facts = _argument_facts(step.tool, step.call.arguments, step.grant)
    facts |= {"turn_id": turn.id, "conversation": str(turn.conversation), "step": step.n, "approval": None}
    asker = turn.author.principal
    _record_ended(connection, "ran", asker, step.tool, status=step.status, seconds=seconds, **facts)


def _record_ended(
    connection: sa.Connection,
    kind: str,
    asker: str,
    tool: ToolRef | None,
    *,
    status: str,
    seconds: float | None,
    **facts: Any,
) -> None:
    """Record an ended call. The facts have the id of its approval, `None` if it needed none."""
    facts |= {"status": status, "seconds": None if seconds is None else round(seconds, 3), **_tool_facts(tool)}
    record(connection, kind, asker, **facts)
    record_metric(connection, _call_ended(tool, status, seconds))


def record_refused(connection: sa.Connection, approval_id: str, by: Author, reason: str) -> None:
    """Record a decision by a user who may not decide, once for each user, approval and reason."""
    row = connection.execute(_asked_for, {"a": approval_id}).first()
    if row is None:
        return
    tool, _ = _read_call(row)
    facts = {"step": row.n, "approval": approval_id, "reason": reason, "fingerprint": row.fingerprint}
    _record_once(connection, "refused", by.principal, turn_id=row.turn_id, **_tool_facts(tool), **facts)


def server_id_of(connection: sa.Connection, approval_id: str) -> str:
    """Return the server id of an approval's call; empty if the approval is missing or unreadable."""
    row = connection.execute(_asked_for, {"a": approval_id}).first()
    tool = None if row is None else _read_call(row)[0]
    return tool.server_id if tool else ""


def call_facts(row: Any) -> Mapping[str, Any]:
    """Return the audit facts of a stored call (`body` and `revised` as text): its fingerprint and its grant. Empty if
    it is unreadable.
    """
    return _read_call(row)[1]


def _read_call(row: Any) -> tuple[ToolRef | None, dict[str, Any]]:
    """Return the tool and the audit facts of a stored step; `None` and empty if it is unreadable."""
    try:
        body = json.loads(row.body)
        if body.get(CONTENT_DELETED):
            return converter.structure(body["tool"], ToolRef) if body["tool"] else None, {}
        call = converter.structure(body["call"], ToolCall)
        tool = converter.structure(body["tool"], ToolRef) if body["tool"] else None
        grant = converter.structure(body["grant"], GrantUse) if body["grant"] else None
        revised = json.loads(row.revised) if getattr(row, "revised", None) else None
        return tool, _argument_facts(tool, call.arguments if revised is None else revised, grant)
    except UNREADABLE:
        return None, {}


def _argument_facts(tool: ToolRef | None, arguments: Any, grant: GrantUse | None) -> dict[str, Any]:
    used = {} if grant is None else {"grant": grant.id, "granted_by": grant.by}
    return {"fingerprint": _fingerprint(tool, arguments), **used}


def _call_ended(tool: ToolRef | None, status: str, seconds: float | None) -> CallEnded:
    return CallEnded(tool.server if tool else "", tool.name if tool else "", status, seconds)


def _tool_facts(tool: ToolRef | None) -> dict[str, str]:
    return {"subject": tool.server_id, "server": tool.server, "tool": tool.name} if tool else {}


def _fingerprint(tool: ToolRef | None, arguments: Any) -> str:
    """Return the same value as `bot.domain.approvals.fingerprint`, from a tool's reference."""
    if tool is None:
        return ""
    return digest([tool.server, tool.server_id, tool.place, tool.name, tool.definition, arguments])


class SqlCallAudit(Store):
    """Audit of calls without a turn. See `bot.ports.CallAudit`."""

    @transaction
    def record_call(
        self, connection: sa.Connection, call: DirectCall, status: StepStatus, seconds: float | None
    ) -> None:
        """Record how a call ended. `seconds` is its duration, None if it was not sent."""
        duration = None if seconds is None else round(seconds, 3)
        kind = "not run" if seconds is None else "ran"
        if _record_direct(connection, kind, call, status=status, seconds=duration):
            record_metric(connection, CallEnded(call.tool.server, call.tool.original_name, status, seconds))

    @transaction
    def record_forbidden(self, connection: sa.Connection, call: DirectCall, rule: str) -> None:
        """Record a call that a rule forbids."""
        if _record_direct(connection, "forbidden", call, **({"rule": rule} if rule else {})):
            record_metric(connection, CallEnded(call.tool.server, call.tool.original_name, StepStatus.DENIED, None))


def _record_direct(connection: sa.Connection, kind: str, call: DirectCall, **facts: Any) -> bool:
    """Add a row unless an earlier attempt of this transaction has added it. Return True if the row was added."""
    facts |= {
        "call": call.id,
        "server": call.tool.server,
        "tool": call.tool.original_name,
        "fingerprint": fingerprint(call.tool, call.arguments),
    }
    by, subject = call.by.principal, call.tool.server_id
    recent = {"actor": storable(by), "body": _body(storable(subject), facts)}
    if connection.execute(_recent, recent).first() is not None:
        return False
    record(connection, kind, by, conversation=str(call.conversation), subject=subject, **facts)
    return True
