"""Audit rows of calls: requested approvals, forbidden calls, rejected decisions and ends.

A call is named by its server and tool; its arguments only by the fingerprint that its approval is bound to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import Author, ConversationKey
from bot.domain.grants import GrantUse
from bot.domain.messages import ToolCall
from bot.domain.metrics import ApprovalAsked, CallEnded
from bot.domain.tools import digest
from bot.domain.turns import StepStatus, ToolRef, ToolStep, Turn
from bot.storage import audit
from bot.storage.codec import CONTENT_DELETED, UNREADABLE, converter
from bot.storage.database import record
from bot.storage.tables import approvals, steps, turns

_this_approval = sa.and_(approvals.c.turn_id == steps.c.turn_id, approvals.c.n == steps.c.n)
_ran = (
    sa.select(
        turns.c.conversation,
        turns.c.author_id,
        # As text, because an unreadable body must not block the end of its turn.
        sa.cast(steps.c.body, sa.Text).label("body"),
        sa.cast(approvals.c.revised_arguments, sa.Text).label("revised"),
        approvals.c.id.label("approval"),
        steps.c.status,
        steps.c.started_at,
        steps.c.ended_at,
    )
    .join(turns, turns.c.id == steps.c.turn_id)
    .outerjoin(approvals, _this_approval)
    .where(steps.c.turn_id == bindparam("t"), steps.c.n == bindparam("i"))
)
_asked_for = (
    sa.select(approvals.c.turn_id, approvals.c.n, approvals.c.fingerprint, sa.cast(steps.c.body, sa.Text).label("body"))
    .join(steps, _this_approval)
    .where(approvals.c.id == bindparam("a"))
)


def record_new(connection: sa.Connection, turn: Turn, new: Sequence[ToolStep]) -> None:
    """Record a turn's new calls that await approval or are denied. Other calls are recorded when they end."""
    for step in new:
        if step.approval is not None:
            audit.record(
                connection,
                "asked",
                step.approval.requested_for.principal,
                turn_id=turn.id,
                subject=step.tool.server_id if step.tool else "",
                step=step.n,
                approval=step.approval.id,
                **_agent_facts(turn),
                **_tool_facts(step.tool),
                **_rule_facts(step),
                fingerprint=step.approval.fingerprint,
            )
            record(connection, ApprovalAsked(turn.conversation.platform))
        elif step.status is StepStatus.DENIED:
            added = audit.record_once(
                connection,
                "forbidden",
                turn.author.principal,
                turn_id=turn.id,
                subject=step.tool.server_id if step.tool else "",
                step=step.n,
                **_agent_facts(turn),
                **_tool_facts(step.tool),
                **_rule_facts(step),
                fingerprint=_fingerprint(step.tool, step.call.arguments),
            )
            if added:
                record(connection, _call_ended(step.tool, StepStatus.DENIED, None))


def _agent_facts(turn: Turn) -> Mapping[str, str]:
    """Return the agent that was asked by name, empty if none was."""
    agent = turn.question.agent
    return {} if agent is None else {"agent": agent.name, "agent_id": agent.id}


def record_finished(connection: sa.Connection, turn_id: str, n: int, seconds: float | None = None) -> None:
    """Record how a call ended: with a result, with an unknown outcome, or unsent. `seconds` is its duration; `None`
    takes it from the row. The actor is the turn's author.
    """
    row = connection.execute(_ran, {"t": turn_id, "i": n}).one()
    asker = Author(ConversationKey.parse(row.conversation).platform, row.author_id, "")
    if seconds is None and row.started_at is not None and row.ended_at is not None:
        seconds = row.ended_at - row.started_at
    tool, facts = _read_call(row)
    _record_ended(
        connection,
        _EndedCall(
            turn_id,
            row.conversation,
            asker.principal,
            n,
            row.status,
            tool,
            facts,
            seconds,
            approval=row.approval,
            sent=seconds is not None or row.started_at is not None,
        ),
    )


def record_sent(connection: sa.Connection, turn: Turn, step: ToolStep, seconds: float) -> None:
    """Record the end of a call that needed no approval, from its new step. `seconds` is its duration."""
    facts = _argument_facts(step.tool, step.call.arguments, step.grant)
    asker = turn.author.principal
    _record_ended(
        connection,
        _EndedCall(turn.id, str(turn.conversation), asker, step.n, step.status, step.tool, facts, seconds, sent=True),
    )


@dataclass(frozen=True, slots=True)
class _EndedCall:
    """An ended call. `approval` is the id of its approval, `None` if it needed none."""

    turn_id: str
    conversation: str
    asker: str
    n: int
    status: str
    tool: ToolRef | None
    facts: Mapping[str, Any]
    seconds: float | None
    _: KW_ONLY
    approval: str | None = None
    sent: bool


def _record_ended(connection: sa.Connection, call: _EndedCall) -> None:
    audit.record(
        connection,
        "ran" if call.sent else "not run",
        call.asker,
        turn_id=call.turn_id,
        conversation=call.conversation,
        subject=call.tool.server_id if call.tool else "",
        step=call.n,
        status=call.status,
        seconds=None if call.seconds is None else round(call.seconds, 3),
        approval=call.approval,
        **_tool_facts(call.tool),
        **call.facts,
    )
    record(connection, _call_ended(call.tool, call.status, call.seconds))


def record_refused(connection: sa.Connection, approval_id: str, by: Author, reason: str) -> None:
    """Record a decision by a user who may not decide, once for each user, approval and reason."""
    row = connection.execute(_asked_for, {"a": approval_id}).first()
    if row is None:
        return
    tool, _ = _read_call(row)
    audit.record_once(
        connection,
        "refused",
        by.principal,
        turn_id=row.turn_id,
        subject=tool.server_id if tool else "",
        step=row.n,
        approval=approval_id,
        **_tool_facts(tool),
        reason=reason,
        fingerprint=row.fingerprint,
    )


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
    return {"server": tool.server, "tool": tool.name} if tool else {}


def _rule_facts(step: ToolStep) -> dict[str, str]:
    return {"rule": step.policy_result.rule} if step.policy_result is not None and step.policy_result.rule else {}


def _fingerprint(tool: ToolRef | None, arguments: Any) -> str:
    """Return the same value as `bot.domain.approvals.fingerprint`, from a tool's reference."""
    if tool is None:
        return ""
    return digest([tool.server, tool.server_id, tool.place, tool.name, tool.definition, arguments])
