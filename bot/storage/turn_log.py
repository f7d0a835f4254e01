"""Turn log on a database; see `bot.ports.TurnLog`. Each base class implements one kind of use, with one transaction a
method.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable

import sqlalchemy as sa

from bot.domain.turns import NO_TURN_LIMITS, TurnLimits, Wakeup
from bot.domain.usage import NO_PRICES, PriceList
from bot.storage.approvals import SqlApprovalLog
from bot.storage.database import Database, transaction
from bot.storage.deliveries import SqlDeliveryQueue
from bot.storage.elicitations import SqlElicitations
from bot.storage.execution import SqlTurnExecution
from bot.storage.history import HistoryCache, SqlTurnHistory
from bot.storage.retention import SqlRetention
from bot.storage.turn_queue import SqlTurnQueue
from bot.storage.turn_records import RecordCache, read_file
from bot.storage.turn_states import LEASE_SECONDS, SqlClaims

Listen = Callable[[Callable[[Wakeup], None]], Awaitable[None]]


async def _never_wake(_on_wakeup: Callable[[Wakeup], None]) -> None:
    await asyncio.Event().wait()


class SqlTurnLog(
    SqlTurnQueue,
    SqlClaims,
    SqlTurnExecution,
    SqlTurnHistory,
    SqlApprovalLog,
    SqlElicitations,
    SqlDeliveryQueue,
    SqlRetention,
):
    """Turns on a database, claimed under the name `me`, which is new at every start, so that a dead process cannot
    claim its old leases; `name` is that of `FileUse`, if it has one. `prices` are the current prices of models;
    `limits` are those on the turns of one user.
    """

    def __init__(
        self,
        database: Database,
        listen: Listen = _never_wake,
        *,
        prices: PriceList = NO_PRICES,
        limits: TurnLimits = NO_TURN_LIMITS,
        name: str = "",
    ) -> None:
        self._database = database
        self._listen = listen
        self._records = RecordCache()
        self._arriving: set[str] = set()
        self._ended = HistoryCache()
        self._prices = prices
        self._limits = limits
        self.lease_seconds = LEASE_SECONDS
        self.shares_turns = database.shared
        self.me = name or f"{os.uname().nodename}:{os.getpid()}:{uuid.uuid4().hex[:8]}"

    def replace_prices(self, prices: PriceList) -> None:
        """Count further usage by these prices."""
        self._prices = prices

    async def listen(self, on_wakeup: Callable[[Wakeup], None]) -> None:
        """Yield wakeups from other processes."""
        await self._listen(on_wakeup)

    @transaction
    def get_file(self, connection: sa.Connection, turn_id: str, file_id: str) -> bytes:
        """Return the bytes of a file returned by a tool. Raises NotFound."""
        return read_file(connection, turn_id, file_id)
