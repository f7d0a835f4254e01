"""Turn log on a database; see `bot.ports.TurnLog`. Each base class implements one kind of use, with one transaction a
method.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable

import sqlalchemy as sa

from bot.domain.conversations import ConversationKey
from bot.domain.turns import NO_TURN_LIMITS, History, ToolStep, TurnLimits, Wakeup
from bot.domain.usage import NO_PRICES, PriceList
from bot.storage.approvals import SqlApprovalLog
from bot.storage.claims import SqlClaims
from bot.storage.database import Database, transaction
from bot.storage.deliveries import SqlDeliveryQueue
from bot.storage.elicitations import SqlElicitations
from bot.storage.execution import SqlTurnExecution
from bot.storage.files import read_file
from bot.storage.history import HistoryCache
from bot.storage.retention import SqlRetention
from bot.storage.turn_completion import LEASE_SECONDS
from bot.storage.turn_queue import SqlTurnQueue
from bot.storage.turn_records import RecordCache, read_call_at, read_history, read_latest

Listen = Callable[[Callable[[Wakeup], None]], Awaitable[None]]


async def _never_wake(_on_wakeup: Callable[[Wakeup], None]) -> None:
    await asyncio.Event().wait()


class SqlTurnLog(
    SqlTurnQueue, SqlClaims, SqlTurnExecution, SqlApprovalLog, SqlElicitations, SqlDeliveryQueue, SqlRetention
):
    """Turns on a database, claimed under the name `me`, which is new at every start, so that a dead process cannot
    claim its old leases. `prices` are the current prices of models; `limits` are those on the turns of one user.
    """

    def __init__(
        self,
        database: Database,
        listen: Listen = _never_wake,
        *,
        prices: PriceList = NO_PRICES,
        limits: TurnLimits = NO_TURN_LIMITS,
    ) -> None:
        self._database = database
        self._listen = listen
        self._records = RecordCache()
        self._arriving: set[str] = set()
        self._ended = HistoryCache()
        self._prices = prices
        self._limits = limits
        self.lease_seconds = LEASE_SECONDS if database.shared else None
        self.me = f"{os.uname().nodename}:{os.getpid()}:{uuid.uuid4().hex[:8]}"

    async def listen(self, on_wakeup: Callable[[Wakeup], None]) -> None:
        """Yield wakeups from other processes."""
        await self._listen(on_wakeup)

    async def history(self, conversation: ConversationKey, before: int, limit: int) -> History:
        """Return earlier turns of a conversation and the summary of the oldest."""
        return History() if before <= 1 else await self._read_history(conversation, before, limit)

    @transaction
    def _read_history(
        self, connection: sa.Connection, conversation: ConversationKey, before: int, limit: int
    ) -> History:
        return read_history(connection, conversation, before, limit, self._ended)

    @transaction
    def get_call(self, connection: sa.Connection, conversation: ConversationKey, seq: int, n: int) -> ToolStep | None:
        """Return a call by its conversation, turn and step."""
        return read_call_at(connection, conversation, seq, n)

    @transaction
    def latest_conversation(self, connection: sa.Connection, reach: str) -> ConversationKey | None:
        """Return the conversation with the latest message among those with the key prefix `reach`."""
        return read_latest(connection, reach)

    @transaction
    def get_file(self, connection: sa.Connection, turn_id: str, file_id: str) -> bytes:
        """Return the bytes of a file returned by a tool. Raises NotFound."""
        return read_file(connection, turn_id, file_id)
