"""Which turns were asked from this terminal, and how far they have been shown.

The listener hands messages in and waits for the end; the surface asks whose turn it draws and reports what it has
drawn. This is all they share.
"""

from __future__ import annotations

import asyncio

from bot.domain.conversations import InboundMessage
from bot.domain.turns import Receipt, StepStatus, ToolStep
from bot.domain.views import TurnView
from bot.ports import FrontDoor


class Watch:
    """The turns of this terminal. `asked` receives every call of theirs that waits for a signature, once."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[ToolStep] = asyncio.Queue()
        self._handing_in = asyncio.Lock()
        self._ends: dict[str, asyncio.Future[TurnView]] = {}
        self._left_open: set[str] = set()
        self._shown: set[str] = set()
        self._seen: set[tuple[str, int]] = set()
        self.gone = asyncio.Event()
        """Nobody can see what is written any more."""

    async def hand_in(self, engine: FrontDoor, message: InboundMessage) -> Receipt:
        """Give a message to the engine. A view that is drawn meanwhile waits until it is known whose turn it is."""
        async with self._handing_in:
            receipt = await engine.receive(message)
            self.adopt(receipt.turn_id)
        return receipt

    def adopt(self, turn_id: str) -> None:
        """From now on this turn is ours."""
        if turn_id not in self._ends:
            self._ends[turn_id] = asyncio.get_running_loop().create_future()

    def attend(self, view: TurnView) -> None:
        """An earlier process left this turn open: what it needs decided is asked here, its end is told beside."""
        self._left_open.add(view.turn.id)
        self._ask_all(view)

    def knows(self, turn_id: str) -> bool:
        """Whether a turn that has been handed in completely was asked from here."""
        return turn_id in self._ends

    async def ours(self, turn_id: str) -> bool:
        """Whether a turn was asked from here."""
        if self.knows(turn_id):
            return True
        async with self._handing_in:
            return self.knows(turn_id)

    def shown(self, turn_id: str) -> bool:
        """Whether the turn's end has been shown in this process."""
        return turn_id in self._shown

    def drew(self, view: TurnView) -> None:
        """A view is out: whoever waits for its end, or has to decide something in it, may go on."""
        if view.turn.status.ended:
            self._shown.add(view.turn.id)
        end = self._ends.get(view.turn.id)
        if end is not None or view.turn.id in self._left_open:
            self._ask_all(view)
        if end is not None and view.turn.status.ended and not end.done():
            end.set_result(view)

    async def end(self, turn_id: str) -> TurnView:
        """The last view of one of our turns, once it has been drawn."""
        return await asyncio.shield(self._ends[turn_id])

    def _ask_all(self, view: TurnView) -> None:
        for step in view.steps:
            if isinstance(step, ToolStep) and step.approval is not None and step.status is StepStatus.AWAITING:
                key = (step.approval.id, step.approval.revision)
                if key not in self._seen:
                    self._seen.add(key)
                    self.asked.put_nowait(step)
