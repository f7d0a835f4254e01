"""Which turns were asked from this terminal, and how far they have been shown.

The listener hands messages in and waits for the end; the surface asks whose turn it draws and reports what it has
drawn. This is all they share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from bot.domain.elicitations import Elicitation
from bot.domain.turns import Receipt, StepStatus, ToolStep
from bot.domain.views import TurnView
from bot.errors import DatabaseUnavailable
from bot.ports import EngineApi

LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that waits for a signature. `ours` says that its turn was asked from this terminal."""

    step: ToolStep
    ours: bool


@dataclass(frozen=True, slots=True)
class PendingElicitation:
    """What the server of a call waits to hear. `over` is set when it waits no longer."""

    step: ToolStep
    elicitation: Elicitation
    ours: bool
    over: asyncio.Event


class TurnTracker:
    """The turns of this terminal. `asked` receives every call of theirs that waits for a signature, once, `asked_back`
    everything that their servers wait to hear.

    `shared` says that other processes work on the same database: one of them may drive a turn of ours, and then nobody
    draws it here unless we look.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self.shared = shared
        self.conversation = ""
        """The conversation that is open in this terminal."""
        self.draw: Callable[[TurnView], None] = lambda _view: None
        """Draws a turn of ours as it stands on disk; the surface sets it."""
        self.asked: asyncio.Queue[PendingCall] = asyncio.Queue()
        self.asked_back: asyncio.Queue[PendingElicitation] = asyncio.Queue()
        self._handing_in = asyncio.Lock()
        self._ours: set[str] = set()
        self._ends: dict[str, asyncio.Future[TurnView]] = {}
        self._newest: dict[str, TurnView] = {}
        self._left_open: set[str] = set()
        self._shown: set[str] = set()
        self._seen: set[tuple[str, int]] = set()
        self._questions: dict[str, asyncio.Event] = {}
        self.gone = asyncio.Event()
        """Nobody can see what is written any more."""

    async def submit(self, handing: Awaitable[Receipt]) -> Receipt:
        """Wait until the engine has taken something in, and know it as ours. A view that is drawn meanwhile waits until
        it is known whose turn it is.
        """
        async with self._handing_in:
            receipt = await handing
            self.track(receipt.turn_id)
        return receipt

    def track(self, turn_id: str) -> None:
        """From now on this turn is ours."""
        if turn_id not in self._ours:
            self._ours.add(turn_id)
            self._ends[turn_id] = asyncio.get_running_loop().create_future()

    def attend(self, view: TurnView) -> None:
        """An earlier process left this turn open: what it needs decided is asked here, its end is told beside."""
        self._left_open.add(view.turn.id)
        self._ask_all(view)

    def knows(self, turn_id: str) -> bool:
        """Whether a turn that has been handed in completely was asked from here."""
        return turn_id in self._ours

    async def ours(self, turn_id: str) -> bool:
        """Whether a turn was asked from here."""
        if self.knows(turn_id):
            return True
        async with self._handing_in:
            return self.knows(turn_id)

    def from_another_window(self, view: TurnView) -> bool:
        """Whether somebody asks this elsewhere at this moment, in the conversation that is open here."""
        here = view.turn.conversation.thread == self.conversation
        return self.shared and here and view.turn.id not in self._left_open

    def shown(self, turn_id: str) -> bool:
        """Whether the turn's end has been shown in this process."""
        return turn_id in self._shown

    def newest(self, turn_id: str) -> TurnView | None:
        """What has been drawn last of a turn that has not ended."""
        return self._newest.get(turn_id)

    def overtaken(self, view: TurnView) -> bool:
        """Whether a later state of the turn has been drawn already."""
        newest = self._newest.get(view.turn.id)
        return newest is not None and newest.revision > view.revision

    def drew(self, view: TurnView) -> None:
        """A view is out: whoever waits for its end, or has to decide something in it, may go on."""
        if view.turn.status.ended:
            self._shown.add(view.turn.id)
            self._newest.pop(view.turn.id, None)
        elif not self.overtaken(view):
            self._newest[view.turn.id] = view
        end = self._ends.get(view.turn.id)
        if self.knows(view.turn.id) or view.turn.id in self._left_open:
            self._ask_all(view)
        if end is not None and view.turn.status.ended and not end.done():
            end.set_result(view)

    async def end(self, turn_id: str, engine: EngineApi) -> TurnView:
        """The last view of one of our turns, once it has been drawn. Where another process may drive the turn, look at
        it every `LOOK_SECONDS`. To be asked for once. Raises NotFound if it was deleted.
        """
        end = self._ends[turn_id]
        while self.shared and not end.done():
            await asyncio.wait({end}, timeout=LOOK_SECONDS)
            with suppress(DatabaseUnavailable):
                await self._look(turn_id, engine)
        view = await asyncio.shield(end)
        self._ends.pop(turn_id, None)  # long talks need not remember every answer
        return view

    async def _look(self, turn_id: str, engine: EngineApi) -> None:
        if self._ends[turn_id].done():
            return
        view = await engine.view(turn_id)
        newest = self._newest.get(turn_id)
        if not self.shown(turn_id) and (newest is None or view.revision > newest.revision):
            self.draw(view)

    def _ask_all(self, view: TurnView) -> None:
        for step in view.steps:
            if isinstance(step, ToolStep):
                self._ask_back(step, view)
            if isinstance(step, ToolStep) and step.approval is not None and step.status is StepStatus.AWAITING:
                key = (step.approval.id, step.approval.revision)
                if key not in self._seen:
                    self._seen.add(key)
                    self.asked.put_nowait(PendingCall(step, self.knows(view.turn.id)))

    def _ask_back(self, step: ToolStep, view: TurnView) -> None:
        for each in step.elicitations:
            waits = each.open and not view.turn.status.ended
            if waits and each.id not in self._questions:
                over = self._questions[each.id] = asyncio.Event()
                self.asked_back.put_nowait(PendingElicitation(step, each, self.knows(view.turn.id), over))
            elif not waits and each.id in self._questions:
                self._questions[each.id].set()
