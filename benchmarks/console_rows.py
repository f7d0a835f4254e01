"""A database with many rows, for the first pages of the console: waiting calls, servers, and rows of the audit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import sqlalchemy as sa

from bot.domain.approvals import Approval
from bot.domain.conversations import Author, ConversationKey
from bot.domain.messages import ToolCall
from bot.domain.servers import EVERYWHERE, HttpTransport, ServerConfig, ServerRecord
from bot.domain.turns import StepStatus, ToolRef, ToolStep
from bot.storage.admin.servers import encode_server
from bot.storage.audit import record
from bot.storage.database import Database
from bot.storage.tables import approvals, conversations, deliveries, mcp_servers, steps, turns
from bot.storage.turn_log.log import SqlTurnLog
from tests.fakes.parts import message

_ASKER = Author("slack", "U1", "Priya")
_AT_ONCE = 1_000
"""Rows of the audit in one transaction."""
_TRANSPORT = HttpTransport("https://weather.example/mcp")


async def fill(database: Database, count: int, audit_rows: int) -> None:
    """Store this many waiting calls, each in its own conversation, servers, and rows of the audit."""
    where, log = ConversationKey("slack", "T1", "C1", "0"), SqlTurnLog(database)
    await log.enqueue(message("please", conversation=where, author=_ASKER))
    (claim,) = await log.claim(1)
    ref = ToolRef("tracker", "create_issue", server_id="tracker")
    call = ToolCall("c1", "tracker__create_issue", {"title": "The printer smokes", "labels": ["office"]})
    waiting = ToolStep(1, call, ref, StepStatus.AWAITING, approval=Approval("card-0", 1, "print", _ASKER, None))
    await log.append(claim, None, [waiting])
    await log.suspend(claim)
    await database.run(lambda connection: _repeat_call(connection, claim.turn_id, count))
    await database.run(lambda connection: _add_servers(connection, count))
    for first in range(0, audit_rows, _AT_ONCE):
        await database.run(partial(_add_audit, range(first, min(first + _AT_ONCE, audit_rows))))


def _repeat_call(connection: sa.Connection, turn_id: str, count: int) -> None:
    """Store the rows of a turn with a waiting call `count - 1` times more, in as many channels as threads."""
    for table, column in (
        (conversations, conversations.c.last_seq), (turns, turns.c.id), (steps, steps.c.turn_id),
        (approvals, approvals.c.turn_id), (deliveries, deliveries.c.turn_id),
    ):  # fmt: skip
        is_this = sa.true() if table is conversations else column == turn_id
        row = dict(connection.execute(sa.select(table).where(is_this)).mappings().one())
        connection.execute(table.insert(), [_copy(row, table.name, n) for n in range(1, count)])


def _copy(row: Mapping[str, Any], table: str, n: int) -> dict[str, Any]:
    key = f"slack:T1:C{n % 100}:{n}"
    ids = {
        "conversations": {"key": key},
        "turns": {"id": f"turn-{n}", "conversation": key},
        "approvals": {"id": f"card-{n}", "turn_id": f"turn-{n}"},
    }
    times = {"created_at": row["created_at"] + n / 1000} if "created_at" in row else {}
    return {**row, **times, **ids.get(table, {"turn_id": f"turn-{n}"})}


def _add_servers(connection: sa.Connection, count: int) -> None:
    """Store servers that connect when they are needed."""
    config = ServerConfig("", _TRANSPORT, workspace=EVERYWHERE, auto_connect=False)
    records = (
        ServerRecord(replace(config, id=f"id-{n}", name=f"server-{n}", title=f"The server {n}")) for n in range(count)
    )
    by = {"version": 1, "created_at": 0.0, "updated_at": 0.0, "created_by": "slack:U1", "updated_by": "slack:U1"}
    _insert(connection, mcp_servers, ({"id": each.config.id, **encode_server(each), **by} for each in records))


def _insert(connection: sa.Connection, table: sa.Table, rows: Iterable[dict[str, Any]]) -> None:
    connection.execute(table.insert(), [*rows])


def _add_audit(numbers: Iterable[int], connection: sa.Connection) -> None:
    """Add rows to the chain, one in a thousand of a rare tool and outcome."""
    for n in numbers:
        tool, status = ("delete_issue", "failed") if n % 1000 == 0 else ("create_issue", "done")
        facts: dict[str, Any] = {"server": "tracker", "tool": tool, "status": status, "step": 1}
        record(connection, "ran", f"slack:U{n % 89}", turn_id=f"turn-{n}", conversation=f"slack:T1:C1:{n}", **facts)
