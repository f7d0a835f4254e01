"""A scripted engine: it records the terminal's requests, and the test sets the views."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

from bot.domain.agents import AgentRef, Agents
from bot.domain.approvals import (
    AlreadyDecided,
    Approval,
    Decided,
    Decision,
    DecisionResult,
    DecisionType,
)
from bot.domain.arrivals import Arrivals
from bot.domain.commands import Form, FormSubmission, Invocation, Reply, Verb
from bot.domain.conversations import Author, ConversationKey, InboundMessage, Member
from bot.domain.messages import TextPart, ToolCall, ToolResult, assistant
from bot.domain.turns import (
    EditedQuestion,
    ModelStep,
    Receipt,
    Step,
    StepStatus,
    ToolRef,
    ToolStep,
    Turn,
    TurnInput,
    TurnStatus,
    TurnView,
)
from bot.errors import CountersignError, DeliveryFailed, InvalidOption
from bot.platforms.console.console import ConsoleSurface
from bot.platforms.console.turn_tracker import StartState
from tests.platforms.fake_engine import CallScript

ANA = Author("console", "ana", "ana")


def a_turn(turn_id: str = "t1", text: str = "hello", conversation: str = "c1", **changes: Any) -> Turn:
    key = ConversationKey("console", "local", "ana", conversation)
    turn = Turn(turn_id, key, 1, ANA, TurnInput(text), TurnStatus.RUNNING, 0.0)
    return dataclasses.replace(turn, **changes)


def a_call(n: int, status: StepStatus, result: str | None = None, **changes: Any) -> ToolStep:
    step = ToolStep(
        n=n,
        call=ToolCall(f"call-{n}", "notes__add_note", changes.pop("arguments", {"text": "Buy milk"})),
        tool=ToolRef("notes", "add_note", read_only=False, destructive=False),
        status=status,
        result=None if result is None else ToolResult(f"call-{n}", (TextPart(result),)),
    )
    return dataclasses.replace(step, **changes)


def an_approval(approval_id: str = "apr-12345678", **changes: Any) -> Approval:
    return dataclasses.replace(Approval(approval_id, 1, "f", ANA, expires_in=1800.0), **changes)


class ScriptedTurn:
    """One turn under the script's control. Each method shows a view."""

    def __init__(self, engine: ScriptedEngine, turn: Turn) -> None:
        self.engine = engine
        self.turn = turn
        self.steps: list[Step] = []
        self.settled: dict[str, asyncio.Future[Decision]] = {}
        self.revision = 0

    def view(self, **moment: Any) -> TurnView:
        return TurnView(self.turn, tuple(self.steps), self.revision, **moment)

    async def show(self, **moment: Any) -> None:
        self.revision += 1
        view = self.view(**moment)
        self.engine.on_disk[self.turn.id] = view
        with suppress(DeliveryFailed):  # a turn continues if its delivery fails
            async for _drawn in self.engine.surface.deliver(view, {}):
                pass

    async def stream(self, *texts: str) -> None:
        for text in texts:
            await self.show(streaming=text)

    async def say(self, text: str, *notes: str) -> None:
        self.steps.append(ModelStep(len(self.steps), assistant(text), notes=notes))
        await self.show()

    async def call(self, status: StepStatus, result: str | None = None, **changes: Any) -> int:
        n = len(self.steps)
        self.steps.append(a_call(n, status, result, **changes))
        await self.show()
        return n

    async def update(self, n: int, **changes: Any) -> None:
        if "result" in changes:
            changes["result"] = ToolResult(f"call-{n}", (TextPart(changes["result"]),))
        step = self.steps[n]
        assert isinstance(step, ToolStep)
        self.steps[n] = dataclasses.replace(step, **changes)
        await self.show()

    async def wait_for_decision(self, approval_id: str) -> Decision:
        return await self.settled.setdefault(approval_id, asyncio.get_running_loop().create_future())

    async def end(self, text: str = "", status: TurnStatus = TurnStatus.DONE, failure: str = "") -> None:
        if text:
            self.steps.append(ModelStep(len(self.steps), assistant(text)))
        self.turn = dataclasses.replace(self.turn, status=status, failure=failure)
        await self.show()

    async def ask(self, approval: Approval, **changes: Any) -> tuple[int, Decision]:
        """Request an approval, and apply the decision."""
        n = await self.call(StepStatus.AWAITING, approval=approval, **changes)
        return n, await self.apply(n, approval)

    async def apply(self, n: int, approval: Approval) -> Decision:
        decision = await self.wait_for_decision(approval.id)
        settled = dataclasses.replace(
            approval, decided_by="" if decision.is_automatic else decision.by.name, reason=decision.reason
        )
        denied = decision.type is DecisionType.DENY
        await self.update(n, status=StepStatus.DENIED if denied else StepStatus.STARTED, approval=settled)
        if not denied:
            await self.update(n, status=StepStatus.DONE, result="Added note 3")
        return decision


Script = Callable[[ScriptedTurn], Awaitable[None]]


async def echo(turn: ScriptedTurn) -> None:
    """Default script: answer with the input."""
    await turn.end(f"You said: {turn.turn.question.text}")


async def forever(turn: ScriptedTurn) -> None:
    """Think until the turn is stopped."""
    await turn.show(activity="Thinking…")
    await asyncio.Event().wait()


def ending(text: str = "", status: TurnStatus = TurnStatus.DONE, failure: str = "") -> Script:
    """Answer, or fail."""

    async def script(turn: ScriptedTurn) -> None:
        await turn.end(text, status, failure)

    return script


def asking(text: str = "ok", **changes: Any) -> Script:
    """Request an approval, and answer after the decision."""

    async def script(turn: ScriptedTurn) -> None:
        await turn.ask(an_approval(), **changes)
        await turn.end(text)

    return script


def calling(text: str, status: StepStatus, result: str | None = None, **changes: Any) -> Script:
    """Make a call that has this outcome, and answer."""

    async def script(turn: ScriptedTurn) -> None:
        await turn.call(status, result, **changes)
        await turn.end(text)

    return script


class ScriptedEngine(CallScript):
    """An engine with a script for each input text."""

    surface: ConsoleSurface

    def __init__(self, scripts: dict[str, Script] | None = None) -> None:
        super().__init__()
        self.scripts = scripts or {}
        self.received: list[InboundMessage] = []
        self.decisions: list[Decision] = []
        self.stops: list[str] = []
        self.repeated: list[tuple[str, str, int]] = []
        self.answers: list[DecisionResult] = []
        """Results of `decide`, in order. Later decisions are accepted."""
        self.refusals: list[CountersignError] = []
        """Errors of `stop`, in order. Later calls stop the turn."""
        self.turns: dict[str, ScriptedTurn] = {}
        self.on_disk: dict[str, TurnView] = {}
        """The last view of each turn, and views that a test adds."""
        self.stopping = asyncio.Event()
        self.stopping.set()
        self.deciding = asyncio.Event()
        self.deciding.set()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def receive(self, message: InboundMessage) -> Receipt:
        self.received.append(message)
        turn_id = f"t{len(self.received)}"
        turn = a_turn(turn_id, message.text, message.conversation.thread)
        self.play(turn, self.scripts.get(message.text, echo))
        return Receipt(turn_id)

    def play(self, turn: Turn, script: Script) -> ScriptedTurn:
        playing = self.turns[turn.id] = ScriptedTurn(self, turn)
        self.on_disk[turn.id] = playing.view()
        self._tasks[turn.id] = asyncio.create_task(self._play(playing, script))
        return playing

    def stored_views(self) -> Iterable[TurnView]:
        return self.on_disk.values()

    async def decide(self, decision: Decision, member: Member) -> DecisionResult:
        self.decisions.append(decision)
        await self.deciding.wait()
        settlement = self.answers.pop(0) if self.answers else Decided(decision.type)
        if isinstance(settlement, Decided):
            for turn in self.turns.values():
                future = turn.settled.setdefault(decision.approval_id, asyncio.get_running_loop().create_future())
                if future.done():
                    return AlreadyDecided("Already decided.")
                future.set_result(decision)
        return settlement

    async def stop(self, turn_id: str, by: Author) -> bool:
        if self.refusals:
            raise self.refusals.pop(0)
        self.stops.append(turn_id)
        await self.stopping.wait()
        if turn_id not in self._tasks:
            return True
        self._tasks[turn_id].cancel()
        await asyncio.wait((self._tasks[turn_id],))
        await self.turns[turn_id].end(status=TurnStatus.CANCELLED)
        return True

    async def run_again(self, turn_id: str, n: int, by: Author) -> Receipt:
        return await self._repeat("again", turn_id, n, by, "Run it again")

    async def check_outcome(self, turn_id: str, n: int, by: Author) -> Receipt:
        return await self._repeat("check", turn_id, n, by, "Check it")

    async def continue_turn(self, turn_id: str, by: Author) -> Receipt:
        return await self._repeat("continue", turn_id, 0, by, "Go on")

    async def view(self, turn_id: str) -> TurnView:
        return self.on_disk[turn_id]

    @property
    def arrivals(self) -> Arrivals:
        return Arrivals(monotonic)

    async def latest_turn(self, conversation: ConversationKey) -> Turn | None:
        raise NotImplementedError

    async def recent_turns(self, conversation: ConversationKey, limit: int) -> Sequence[TurnView]:
        return [view for view in self.on_disk.values() if view.turn.conversation == conversation]

    async def is_stored(self, keys: Sequence[str]) -> bool:
        raise NotImplementedError

    def agents(self, conversation: ConversationKey) -> Agents:
        return Agents()

    async def edit_question(
        self, keys: Sequence[str], text: str, by: Author, agent: AgentRef | None = None
    ) -> EditedQuestion | None:
        raise NotImplementedError

    async def delete_question(self, keys: Sequence[str]) -> bool:
        raise NotImplementedError

    async def ask_again(self, turn_id: str, by: Author) -> Receipt:
        raise NotImplementedError

    async def is_followed(self, conversation: ConversationKey, at: float, by: str = "") -> bool:
        raise NotImplementedError

    async def save_addressee(self, conversation: ConversationKey, *, is_bot: bool, at: float) -> None:
        raise NotImplementedError

    async def rename(self, conversation: ConversationKey, title: str) -> None:
        raise NotImplementedError

    async def _repeat(self, kind: str, turn_id: str, n: int, by: Author, text: str) -> Receipt:
        before = (kind, turn_id, n) in self.repeated
        self.repeated.append((kind, turn_id, n))
        if before:
            return Receipt(turn_id, redelivery=True)
        conversation = self.on_disk[turn_id].turn.conversation
        return await self.receive(InboundMessage((f"{kind}:{turn_id}:{n}",), conversation, by, text))

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        results = await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _play(self, turn: ScriptedTurn, script: Script) -> None:
        await script(turn)


class Saved:
    """Conversations with a title and one turn each."""

    def __init__(self, **titles: str) -> None:
        self._titles = titles

    async def titles(self) -> Mapping[str, str]:
        return self._titles

    async def read(self, name: str) -> StartState:
        if name not in self._titles:
            raise InvalidOption(f"You have no conversation {name}.", "/conversations list shows the ids")
        turn = a_turn(f"of-{name}", self._titles[name], name, status=TurnStatus.DONE)
        view = TurnView(turn, (ModelStep(0, assistant(f"About {name}.")),), 1)
        return StartState(name, [view], turns=1, saved=self)


class ScriptedCommands:
    """Commands that answer with given replies."""

    def __init__(self, *replies: Reply | Form, lines: Sequence[str] = ()) -> None:
        self.replies = replies
        self.lines = lines
        self.requests: list[Invocation | FormSubmission] = []

    async def handle(self, request: Invocation | FormSubmission) -> AsyncIterator[Reply | Form]:
        self.requests.append(request)
        for reply in self.replies:
            yield reply

    @property
    def verbs(self) -> Mapping[str, Sequence[Verb]]:
        return {}

    def complete(self, text: str, conversation: ConversationKey) -> Sequence[str]:
        return [line for line in self.lines if line.startswith(text)]
