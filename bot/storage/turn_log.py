"""The turn log on a database: every method one transaction, see `bot.ports.TurnLog` for what each promises."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from bot.domain.approvals import Decision, Settlement
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.domain.messages import ToolResult
from bot.domain.turns import Claim, ModelStep, Receipt, Step, StepStatus, ToolStep, Turn, TurnRecord, TurnStatus
from bot.domain.views import Drawn, Refs, TurnView
from bot.errors import LostLease
from bot.storage import claims, drawings, front_door, records, transcript
from bot.storage.database import Database

P = ParamSpec("P")
T = TypeVar("T")


class SqlTurnLog:
    """Turns on a database, claimed under the name `me`, which is new at every start: a dead process never comes
    back as itself.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.me = f"{os.uname().nodename}:{os.getpid()}:{uuid.uuid4().hex[:8]}"

    async def adopt_orphans(self) -> None:
        """Take over what a dead process was driving. Only for the process that holds the lock file."""
        await self._run(claims.adopt_orphans)

    async def enqueue(self, message: InboundMessage) -> Receipt:
        """Make a turn of a message, unless it was seen before."""
        return await self._run(front_door.enqueue, message, uuid.uuid4().hex)

    async def decide(self, decision: Decision) -> Settlement:
        """Compare-and-set on the approval's id and revision."""
        return await self._run(front_door.decide, decision)

    async def approval(self, approval_id: str) -> tuple[Turn, ToolStep] | None:
        """The turn and the step an approval belongs to."""
        return await self._run(records.read_approval, approval_id)

    async def stop(self, turn_id: str, by: Author) -> bool:
        """End a turn that nobody drives, or ask its owner to."""
        return await self._run(front_door.stop, turn_id, by)

    async def claim(self, limit: int) -> Sequence[Claim]:
        """Take turns that can go on now."""
        return await self._run(claims.claim, self.me, limit)

    async def renew(self, held: Sequence[Claim]) -> frozenset[str]:
        """Renew leases; the turns that are still ours and not to be stopped."""
        return await self._run(claims.renew, held)

    async def release(self, held: Sequence[Claim]) -> None:
        """Give turns back."""
        await self._run(claims.release, held)

    async def resume(self, held: Claim) -> TurnRecord:
        """Settle what was left behind and read the turn."""
        return await self._run(transcript.resume, held)

    async def append(self, held: Claim, reply: ModelStep | None, calls: Sequence[ToolStep]) -> TurnRecord:
        """Record a reply and its calls."""
        return await self._run(transcript.append, held, reply, calls)

    async def begin(self, held: Claim, n: int) -> TurnRecord:
        """Record the intent to send a call."""
        return await self._run(transcript.begin, held, n)

    async def end(self, held: Claim, n: int, status: StepStatus, result: ToolResult) -> TurnRecord:
        """Record how a call ended."""
        try:
            return await self._run(transcript.end, held, n, status, result)
        except LostLease:
            await self._run(transcript.keep_late_result, held, n, result)
            raise

    async def park(self, held: Claim) -> TurnRecord | None:
        """Give the turn back while people think."""
        return await self._run(transcript.park, held)

    async def finish(self, held: Claim, status: TurnStatus, last: Sequence[Step], failure: str) -> TurnRecord:
        """End the turn."""
        return await self._run(transcript.finish, held, status, last, failure)

    async def history(self, conversation: ConversationKey, before: int, limit: int) -> Sequence[TurnRecord]:
        """Earlier turns of a conversation."""
        return await self._run(records.read_history, conversation, before, limit)

    async def recent(self, conversation: ConversationKey, limit: int) -> Sequence[TurnView]:
        """The last turns of a conversation."""
        return await self._run(drawings.read_recent, conversation, limit)

    async def latest(self, reach: str) -> ConversationKey | None:
        """The conversation in which something was said last."""
        return await self._run(records.read_latest, reach)

    async def view(self, turn_id: str) -> TurnView:
        """The turn as it should be drawn."""
        return await self._run(drawings.read_view, turn_id)

    async def undrawn(self, reach: str, limit: int) -> Sequence[str]:
        """Turns whose drawing is behind and that nobody drives."""
        return await self._run(drawings.undrawn, reach, limit)

    async def refs(self, turn_id: str) -> Refs:
        """Where the turn has been drawn."""
        return await self._run(drawings.read_refs, turn_id)

    async def keep(self, turn_id: str, drawn: Drawn) -> None:
        """Remember where a slot was drawn."""
        await self._run(drawings.keep, turn_id, drawn)

    async def drawn(self, turn_id: str, revision: int) -> None:
        """Everything up to `revision` is out."""
        await self._run(drawings.mark_drawn, turn_id, revision)

    async def postpone(self, turn_id: str, seconds: float) -> None:
        """Try the drawing again later."""
        await self._run(drawings.postpone, turn_id, seconds)

    async def abandon(self, turn_id: str, revision: int, reason: str) -> None:
        """Give up drawing what is wanted so far."""
        await self._run(drawings.abandon, turn_id, revision, reason)

    async def _run(
        self, transaction: Callable[Concatenate[sa.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._database.run(lambda connection: transaction(connection, *args, **kwargs))
