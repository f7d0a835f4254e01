"""Policies that admins set, on a database: every method one transaction, see `bot.stores.PolicyStore`."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import Author
from bot.domain.profiles import PolicyRule
from bot.domain.servers import FILE
from bot.errors import NotFound
from bot.storage import audit
from bot.storage.clock import now
from bot.storage.database import Database
from bot.storage.inserting import Insert
from bot.storage.revisions import bump, take_turns
from bot.storage.tables import mcp_servers, policies

log = logging.getLogger(__name__)

_all = sa.select(policies).order_by(policies.c.server_id, policies.c.tool)
_one = sa.select(policies.c.policy).where(policies.c.server_id == bindparam("i"), policies.c.tool == bindparam("t"))
_slug = sa.select(mcp_servers.c.slug).where(mcp_servers.c.id == bindparam("i"))
_set = Insert(
    lambda insert: (
        insert(policies)
        .values(
            server_id=bindparam("i"),
            tool=bindparam("t"),
            policy=bindparam("p"),
            set_by=bindparam("who"),
            set_at=now(),
        )
        .on_conflict_do_update(
            index_elements=["server_id", "tool"],
            set_={"policy": bindparam("p"), "set_by": bindparam("who"), "set_at": now()},
        )
    )
)
_clear = policies.delete().where(policies.c.server_id == bindparam("i"), policies.c.tool == bindparam("t"))


class SqlPolicyStore:
    """Rules per server and tool."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def rules(self) -> Sequence[PolicyRule]:
        """All of them. One whose word is of a later release denies."""
        return await self._database.run(_read)

    async def set_rule(self, rule: PolicyRule, by: Author) -> None:
        """Set or replace a rule."""
        await self._database.run(lambda connection: _set_rule(connection, rule, by))

    async def clear_rule(self, server: str, tool: str, by: Author) -> bool:
        """Take a rule away."""
        cleared = False

        def transaction(connection: sa.Connection) -> bool:
            nonlocal cleared
            # After a COMMIT whose answer was lost there is none any more, and it was this that took it away.
            cleared = _clear_rule(connection, server, tool, by) or cleared
            return cleared

        return await self._database.run(transaction)


def _read(connection: sa.Connection) -> Sequence[PolicyRule]:
    return [
        PolicyRule(row.server_id, row.tool, _policy(row.policy), row.set_by, row.set_at)
        for row in connection.execute(_all)
    ]


def _set_rule(connection: sa.Connection, rule: PolicyRule, by: Author) -> None:
    take_turns(connection)
    # A server that was removed meanwhile keeps no rules.
    if not rule.server.startswith(FILE) and connection.execute(_slug, {"i": rule.server}).first() is None:
        raise NotFound("That server is not there any more.", "list the servers")
    here = {"i": rule.server, "t": rule.tool}
    before = connection.execute(_one, here).scalar()
    if before == rule.policy:
        return
    connection.execute(_set.on(connection), {**here, "p": rule.policy.value, "who": by.principal})
    changed = {"policy": f"{before or 'none'} → {rule.policy.value}"}
    audit.record(
        connection,
        "set policy",
        by.principal,
        subject=rule.server,
        server=_called(connection, rule.server),
        tool=rule.tool,
        changes=changed,
    )
    bump(connection)


def _clear_rule(connection: sa.Connection, server: str, tool: str, by: Author) -> bool:
    take_turns(connection)
    here = {"i": server, "t": tool}
    before = connection.execute(_one, here).scalar()
    if before is None:
        return False
    connection.execute(_clear, here)
    changed = {"policy": f"{before} → none"}
    audit.record(
        connection,
        "cleared policy",
        by.principal,
        subject=server,
        server=_called(connection, server),
        tool=tool,
        changes=changed,
    )
    bump(connection)
    return True


def _called(connection: sa.Connection, server: str) -> str:
    return connection.execute(_slug, {"i": server}).scalar() or server.removeprefix(FILE)


def _policy(word: str) -> ApprovalPolicy:
    try:
        return ApprovalPolicy(word)
    except ValueError:
        log.warning("a policy says %r, which this release does not know: it denies", word)
        return ApprovalPolicy.ALWAYS_DENY
