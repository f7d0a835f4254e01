"""Policy rules set by admins. See `bot.ports.PolicyStore`."""

from __future__ import annotations

import dataclasses
import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import Author, ConversationKey
from bot.domain.policies import ANY, VERSION, Rule, describe_rule, parse_rule, rule_to_table
from bot.domain.servers import FILE
from bot.domain.turns import ToolStep
from bot.errors import NotFound
from bot.i18n import DEFAULT_LANGUAGE, use_language
from bot.storage import audit
from bot.storage.codec import UNREADABLE, json_text
from bot.storage.coordination import lock_config, record_change
from bot.storage.database import Database, Store, change_once, matching, now, transaction
from bot.storage.tables import approval_of_step, approvals, mcp_servers, policy_rules, steps, turns
from bot.storage.turn_log.records import read_record

log = logging.getLogger(__name__)

OPERATOR = "operator"
"""Actor of changes in the operator's files, whose authors only the machine knows."""

_MOST_CALLS = 20
_SHORTEST_ID = 8
"""Cards show that many characters of an approval's id."""

_all = sa.select(policy_rules)
_is_this = matching(policy_rules, id="i")
_by_id = sa.select(policy_rules).where(_is_this)
_of_server = sa.select(policy_rules).where(matching(policy_rules, workspace="w", server_id="s"))
_slug = sa.select(mcp_servers.c.slug).where(matching(mcp_servers, id="i"))
_add = policy_rules.insert().values(set_at=now())
_change = policy_rules.update().where(_is_this).values(body=bindparam("b"), set_by=bindparam("who"), set_at=now())
_delete = policy_rules.delete().where(_is_this)
_number = bindparam("n", type_=sa.Integer)
_past_calls = (
    sa.select(steps.c.turn_id, steps.c.n)
    .join(turns, turns.c.id == steps.c.turn_id)
    .outerjoin(approvals, approval_of_step)
    .where(
        steps.c.kind == "tool",
        sa.func.substr(turns.c.conversation, 1, bindparam("length")) == bindparam("key_prefix"),
        sa.or_(
            sa.func.substr(approvals.c.id, 1, bindparam("long")) == bindparam("approval"),
            sa.and_(matching(steps, turn_id="turn"), sa.or_(_number == 0, steps.c.n == _number)),
        ),
    )
    .order_by(steps.c.turn_id, steps.c.n)
    .limit(_MOST_CALLS)
)


class SqlPolicyStore(Store):
    """Rules, each of one workspace."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._logged: set[str] = set()

    @transaction
    def rules(self, connection: sa.Connection) -> Sequence[Rule]:
        """Return all rules by server. An unreadable rule denies its server's tools, or all tools in its scope."""
        rules = [self._read(row) for row in connection.execute(_all)]
        return sorted(rules, key=lambda rule: (rule.server_id, rule.tool, rule.at, rule.id))

    async def set_rule(self, rule: Rule, by: Author) -> Rule:
        """Save a rule, replacing the rule of its workspace with the same conditions. Raises NotFound."""
        return await self._set_rule(rule, f"rule_{secrets.token_hex(4)}", by)

    @transaction
    def _set_rule(self, connection: sa.Connection, rule: Rule, new_id: str, by: Author) -> Rule:
        lock_config(connection)
        # A server that was removed meanwhile gets no rules.
        is_admins = bool(rule.server_id) and not rule.server_id.startswith(FILE)
        if is_admins and connection.execute(_slug, {"i": rule.server_id}).first() is None:
            raise NotFound("That server does not exist.", "list the servers")
        rows = connection.execute(_of_server, {"w": rule.workspace, "s": rule.server_id}).all()
        before = next((stored for stored in map(self._read, rows) if stored.conditions == rule.conditions), None)
        if before is not None and rule_to_table(before) == rule_to_table(rule):
            return before
        rule = dataclasses.replace(rule, id=before.id if before else new_id)
        columns = rule_row(rule)
        if before is not None:
            connection.execute(_change, {"i": rule.id, "b": columns["body"], "who": by.principal})
        else:
            connection.execute(_add, {"id": rule.id, **columns, "set_by": by.principal})
        _record(connection, "set policy", by, before=before, after=rule)
        return read_rule_row(connection.execute(_by_id, {"i": rule.id}).one())

    @change_once
    def clear_rule(self, connection: sa.Connection, rule_id: str, by: Author) -> bool:
        """Delete a rule. Return False if it does not exist."""
        lock_config(connection)
        row = connection.execute(_by_id, {"i": rule_id}).first()
        if row is None:
            return False
        connection.execute(_delete, {"i": rule_id})
        _record(connection, "cleared policy", by, before=self._read(row), after=None)
        return True

    @transaction
    def record_files(self, connection: sa.Connection, facts: Mapping[str, Any]) -> None:
        """Record in the audit that a process applies changed files of the operator."""
        audit.record(connection, "changed files", OPERATOR, **facts)

    @transaction
    def stored_results(
        self, connection: sa.Connection, call: str, key_prefix: str
    ) -> Sequence[tuple[ConversationKey, ToolStep]]:
        """Return past calls with their policy results."""
        turn, _, n = call.partition(":")
        # A shorter prefix is no approval id, and an empty one would match all of them.
        prefix = call if len(call) >= _SHORTEST_ID else ""
        values = {
            "approval": prefix or "-",
            "long": len(prefix) or 1,
            "turn": turn,
            "n": int(n) if n.isascii() and n.isdigit() and len(n) < 7 else 0 if not n else -1,
            "key_prefix": key_prefix,
            "length": len(key_prefix),
        }
        calls = []
        for row in connection.execute(_past_calls, values).all():
            record = read_record(connection, row.turn_id)
            calls += [(record.turn.conversation, step) for step in record.calls if step.n == row.n]
        return calls

    def _read(self, row: Any) -> Rule:
        try:
            return read_rule_row(row)
        except UNREADABLE:
            if row.id not in self._logged:
                self._logged.add(row.id)
                log.warning(
                    "rule %s: unreadable, denies its calls. Fix: clear it, or run the release that set it", row.id
                )
            return Rule(
                ApprovalPolicy.ALWAYS_DENY,
                server_id=row.server_id,
                id=row.id,
                workspace=row.workspace,
                by=row.set_by,
                at=row.set_at,
            )


def rule_row(rule: Rule) -> dict[str, Any]:
    """Return a rule's columns without its id, author and time."""
    return {
        "workspace": rule.workspace,
        "server_id": rule.server_id,
        "body": json_text({"v": VERSION, **rule_to_table(rule)}),
    }


def read_rule_row(row: Any) -> Rule:
    """Return the rule of a row. Raises `codec.UNREADABLE`, also for a rule of a later release."""
    table = json.loads(row.body)
    version = table.pop("v")
    if version > VERSION:
        raise ValueError(f"a rule of version {version}")
    rule = parse_rule(table)
    return dataclasses.replace(rule, id=row.id, workspace=row.workspace, by=row.set_by, at=row.set_at)


def _record(connection: sa.Connection, kind: str, by: Author, *, before: Rule | None, after: Rule | None) -> None:
    about = after or before
    assert about is not None
    slug = connection.execute(_slug, {"i": about.server_id}).scalar() or about.server_id.removeprefix(FILE)
    record_change(
        connection,
        kind,
        by.principal,
        subject=about.server_id or about.id,
        rule=about.id,
        workspace=about.workspace,
        server=slug or about.server,
        tool="" if about.tool == ANY else about.tool,
        changes={"policy": f"{_describe(before, slug)} → {_describe(after, slug)}"},
    )


def _describe(rule: Rule | None, slug: str) -> str:
    """Return a rule as written to the audit, in English: its effect alone if it has no other fields."""
    if rule is None:
        return "none"
    bare = Rule(rule.policy, server_id=rule.server_id, tool=rule.tool)
    if rule_to_table(rule) == rule_to_table(bare):
        return rule.policy.value
    with use_language(DEFAULT_LANGUAGE):
        return describe_rule(rule, slug)
