"""Grants: lookup, creation, use and revocation. See `bot.ports.GrantStore`.

Expiry uses the database's clock; coverage is decided by `bot.domain.grants`. The order of locks is: turn, steps,
grants, audit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import Author, ConversationKey
from bot.domain.grants import DELEGATION, CallToCover, Grant, GrantUse, covers
from bot.domain.turns import StepStatus, ToolStep, TurnInput
from bot.storage import audit
from bot.storage.codec import decode
from bot.storage.database import (
    Store,
    change_once,
    has_prefix,
    insert_new,
    is_one_of,
    matching,
    now,
    prefix_bounds,
    row_values,
    transaction,
)
from bot.storage.tables import grants, steps, turns

_is_active = sa.and_(grants.c.revoked_at.is_(None), sa.or_(grants.c.expires_at.is_(None), grants.c.expires_at > now()))
_this = matching(grants, id="i")
# Locked, so that no grant is revoked between lookup and use. Ordered, to avoid deadlocks.
_of_tool = (
    sa.select(grants)
    .where(matching(grants, server="server", tool="tool"), _is_active)
    .order_by(grants.c.created_at, grants.c.id)
    .with_for_update()
)
_of_workspace = (
    sa.select(grants)
    .where(
        sa.or_(grants.c.conversation == bindparam("workspace"), has_prefix(grants.c.conversation, "key_prefix")),
        _is_active,
    )
    .order_by(grants.c.created_at.desc(), grants.c.id)
)
_add = insert_new(grants, created_at=now(), expires_at=now() + bindparam("lasts", type_=sa.Double))
_use = (
    grants.update()
    .where(_this)
    .values(used_at=now(), expires_at=sa.func.coalesce(now() + grants.c.idle_seconds, grants.c.expires_at))
    .returning(grants.c.expires_at)
)
_revoke = (
    grants.update()
    .where(_this, _is_active)
    .values(revoked_at=now(), revoked_by=bindparam("who"))
    .returning(
        grants.c.conversation,
        grants.c.server.label("subject"),
        grants.c.server_name.label("server"),
        grants.c.tool,
        grants.c.principal.label("person"),
    )
)
_revoke_of_server = (
    grants.update()
    .where(matching(grants, server="s"), grants.c.revoked_at.is_(None))
    .values(revoked_at=now(), revoked_by=bindparam("who"))
)
_delete = grants.delete().where(matching(grants, conversation="k"))
_delete_ended = grants.delete().where(
    sa.or_(grants.c.revoked_at < now() - bindparam("seconds"), grants.c.expires_at < now() - bindparam("seconds"))
)
_turn = sa.select(turns.c.conversation, turns.c.input).where(matching(turns, id="t"))
_existing = sa.select(steps.c.n).where(matching(steps, turn_id="t"), is_one_of(steps.c.n, "ns"))


class SqlGrantStore(Store):
    """Grants by workspace."""

    @transaction
    def active_grants(self, connection: sa.Connection, workspace: str) -> Sequence[Grant]:
        """Return the active grants in a workspace and its conversations, newest first."""
        return [grant for grant in _read_active(connection, workspace) if grant.scope != DELEGATION]

    @transaction
    def delegations(self, connection: sa.Connection, workspace: str) -> Sequence[Grant]:
        """Return the active delegations of a workspace, newest first."""
        return read_delegations(connection, workspace)

    @change_once
    def delegate(self, connection: sa.Connection, grant: Grant) -> bool:
        """Add a delegation. Return False if it exists."""
        added = add_grant(connection, grant)
        if added:
            facts: dict[str, Any] = {
                "grant": grant.id,
                "scope": grant.scope,
                "person": grant.person,
                "seconds": grant.lasts,
            }
            audit.record(connection, "granted", grant.granted_by, conversation=grant.place, **facts)
        return added

    @change_once
    def revoke(self, connection: sa.Connection, grant_id: str, by: Author) -> bool:
        """Revoke an active grant. Return False if it is not active."""
        row = connection.execute(_revoke, {"i": grant_id, "who": by.principal}).first()
        if row is None:
            return False
        audit.record(connection, "revoked grant", by.principal, grant=grant_id, **row._asdict())
        return True


def _read_active(connection: sa.Connection, workspace: str) -> Sequence[Grant]:
    values = {"workspace": workspace, **prefix_bounds("key_prefix", f"{workspace}:")}
    return [_grant(row) for row in connection.execute(_of_workspace, values)]


def read_delegations(connection: sa.Connection, workspace: str) -> Sequence[Grant]:
    """Return the active delegations of a workspace, newest first."""
    return [grant for grant in _read_active(connection, workspace) if grant.scope == DELEGATION]


def call_to_cover(step: ToolStep, conversation: ConversationKey) -> CallToCover | None:
    """Return the grant request of a call, `None` if the call awaits no approval."""
    tool, approval = step.tool, step.approval
    if step.status is not StepStatus.AWAITING or tool is None or approval is None:
        return None
    return CallToCover(
        server=tool.server_id,
        tool=tool.name,
        definition=tool.definition,
        fingerprint=approval.fingerprint,
        conversation=conversation,
        asker=approval.requested_for.principal,
        destructive=tool.destructive,
        rule=step.policy_result.asked_by if step.policy_result is not None else "",
        requirements=approval.requirements,
    )


def use_grants(connection: sa.Connection, turn_id: str, calls: Sequence[ToolStep]) -> Sequence[ToolStep]:
    """Return the calls to store: those covered by a grant are ready and name it.

    A repeated call with an unknown outcome needs a new approval, regardless of grants.
    """
    if not any(step.status is StepStatus.AWAITING for step in calls):
        return calls
    turn = connection.execute(_turn, {"t": turn_id}).one()
    if decode(TurnInput, turn.input).again:
        return calls
    existing = set(connection.execute(_existing, {"t": turn_id, "ns": [step.n for step in calls]}).scalars())
    conversation = ConversationKey.parse(turn.conversation)
    # Existing steps were added by this same transaction after a lost COMMIT response: no grant is used twice, and
    # a call on a grant revoked since needs no approval.
    return [
        dataclasses.replace(step, approval=None)
        if step.n in existing
        else _cover_by_grant(connection, step, conversation)
        for step in calls
    ]


def add_grant(connection: sa.Connection, grant: Grant) -> bool:
    """Add a grant. Return False if it exists."""
    row = row_values(
        grants,
        grant,
        conversation=grant.place,
        principal=grant.person,
        granted_by_name=grant.granted_name,
        idle_seconds=grant.lasts if grant.idle else None,
        lasts=grant.lasts,
    )
    return connection.execute(_add.on(connection), row).first() is not None


def revoke_grants_of_server(connection: sa.Connection, server_id: str, by: Author) -> None:
    """End all grants of a removed server."""
    connection.execute(_revoke_of_server, {"s": server_id, "who": by.principal})


def delete_grants_of_conversation(connection: sa.Connection, key: str) -> None:
    """Delete the grants of a deleted conversation."""
    connection.execute(_delete, {"k": key})


def delete_ended_grants(connection: sa.Connection, seconds: float) -> None:
    """Delete grants that ended longer ago than that: the audit remembers them."""
    connection.execute(_delete_ended, {"seconds": seconds})


def _cover_by_grant(connection: sa.Connection, step: ToolStep, conversation: ConversationKey) -> ToolStep:
    request = call_to_cover(step, conversation)
    if request is None:
        return step
    rows = connection.execute(_of_tool, {"server": request.server, "tool": request.tool}).all()
    grant = next((grant for grant in map(_grant, rows) if covers(grant, request)), None)
    if grant is None:
        return step
    used = GrantUse(
        grant.id,
        grant.granted_by,
        grant.granted_name,
        request.fingerprint,
        grant.rule,
        grant.requirements_digest,
        connection.execute(_use, {"i": grant.id}).scalar_one(),
    )
    return dataclasses.replace(step, status=StepStatus.READY, approval=None, grant=used)


def _grant(row: Any) -> Grant:
    return decode(
        Grant,
        row._asdict(),
        place=row.conversation,
        person=row.principal,
        granted_name=row.granted_by_name,
        lasts=row.idle_seconds,
        idle=row.idle_seconds is not None,
    )
