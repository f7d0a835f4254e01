"""The engine: what platforms may ask of it, and the loops that do the work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from bot.domain.approvals import Decision, NoSuchApproval, NotAllowed, Settlement
from bot.domain.conversations import Author, InboundMessage, Member
from bot.domain.turns import Claim, Receipt, TurnRecord
from bot.engine.admission import Admission
from bot.engine.drawing import Drawings
from bot.engine.policy import Signatories
from bot.engine.turn import TurnInProgress, TurnParts
from bot.engine.worker import Worker
from bot.ports import LanguageModel, Surface, Toolbox, TurnLog


class Engine:
    """Receives messages, drives their turns, settles approvals, draws what people should see.

    The row is the truth and a signal only a doorbell: whoever receives, decides or stops writes first and rings then.
    """

    def __init__(
        self,
        turn_log: TurnLog,
        model: LanguageModel,
        toolbox: Toolbox,
        surfaces: Sequence[Surface],
        *,
        admission: Admission,
        signatories: Signatories,
        system_prompt: str = "",
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._log = turn_log
        self._signatories = signatories
        self._drawings = Drawings(turn_log, surfaces, pause=pause)
        self._parts = TurnParts(turn_log, model, toolbox, admission, self._drawings.show, pause, system_prompt)
        self._worker = Worker(turn_log, self._begin, self._drawings.forget, self._drawings.kick, pause=pause)

    async def receive(self, message: InboundMessage) -> Receipt:
        """Put a message on disk; its turn begins as soon as those before it have ended."""
        receipt = await self._log.enqueue(message)
        self._worker.kick()
        if receipt.ahead:
            self._drawings.kick()
        return receipt

    async def decide(self, decision: Decision, member: Member) -> Settlement:
        """Settle an approval, if this member may and nobody was faster. Rights are checked here, whatever the
        platform has shown to whom.
        """
        asked = await self._log.approval(decision.approval_id)
        if asked is None:
            return NoSuchApproval()
        turn, step = asked
        asker = step.approval.requested_for if step.approval else turn.author
        objection = self._signatories.objection(member, asker, decision.verdict)
        if objection:
            return NotAllowed(objection)
        settlement = await self._log.decide(decision)
        self._worker.ring(turn.id)
        self._drawings.kick()
        return settlement

    async def stop(self, turn_id: str, by: Author) -> bool:
        """Stop a turn at whatever it is doing. False if it had ended."""
        stopped = await self._log.stop(turn_id, by)
        if stopped:
            self._worker.interrupt(turn_id)
            self._drawings.kick()
        return stopped

    async def run(self) -> None:
        """Drive turns and draw them until cancelled. Turns in hand are given back, drawings in hand get out."""
        drawing = asyncio.create_task(self._drawings.run(), name="drawings")
        try:
            await self._worker.run()
        finally:
            drawing.cancel()
            await asyncio.gather(drawing, return_exceptions=True)

    def _begin(self, claim: Claim, record: TurnRecord) -> TurnInProgress:
        return TurnInProgress(claim, record, self._parts)
