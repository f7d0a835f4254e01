"""Scripted engine and commands: they record the platform's requests and return the test's answers."""

from __future__ import annotations

import asyncio
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, Self

from bot.domain.agents import AgentRef, Agents
from bot.domain.approvals import (
    WHOLE,
    ApprovalNotFound,
    Decided,
    Decision,
    DecisionResult,
    NotAllowed,
    Portion,
    StaleRevision,
)
from bot.domain.arrivals import Arrivals
from bot.domain.commands import Form, FormSubmission, Invocation, Reply, Verb
from bot.domain.conversations import Author, ConversationKey, InboundMessage, Member
from bot.domain.elicitations import ElicitationResult
from bot.domain.grants import GrantRequest
from bot.domain.turns import EditedQuestion, EditEffect, Receipt, ToolStep, Turn, TurnInput, TurnStatus, TurnView
from bot.errors import CountersignError, NotFound
from bot.ports.platform import (
    AnswerRejected,
    AnswerResult,
    EditableCall,
    EditResult,
    ElicitationAnswered,
    InvalidValues,
    NotEditable,
    OpenElicitation,
    RevisionAccepted,
)


class CallScript(ABC):
    """Engine methods that are equal on all platforms: opened calls, edited arguments, elicitations.

    Requests are recorded. The test sets the answers.
    """

    def __init__(self) -> None:
        self.granted: list[GrantRequest] = []
        self.forbidden: NotAllowed | None = None
        """Rejection of every decision, before it is asked for more."""
        self.known_agents = Agents()
        self.schema: Mapping[str, Any] = {}
        """Schema of the arguments of every call."""
        self.not_now: NotEditable | None = None
        """Rejection of `get_editable_call`; None if the call is editable."""
        self.editings: list[EditResult] = []
        """Results of `revise`, in order. Later edits are accepted."""
        self.revisions: list[tuple[str, int, dict[str, Any], Member]] = []
        self.views_opened: list[tuple[str, int, Portion]] = []
        self.inquiries: dict[str, OpenElicitation | AnswerRejected] = {}
        """Elicitations by id."""
        self.answerings: list[AnswerResult] = []
        """Results of `answer`, in order. Later answers are accepted."""
        self.replied: list[tuple[str, ElicitationResult, Member]] = []
        self.answered: asyncio.Queue[ElicitationResult] = asyncio.Queue()
        """Final answers, for a script that waits for an answer."""

    @property
    def approvals(self) -> Self:
        return self

    @property
    def elicitations(self) -> Self:
        return self

    @abstractmethod
    def stored_views(self) -> Iterable[TurnView]:
        """Return the stored views."""

    @abstractmethod
    async def decide(self, decision: Decision, member: Member) -> DecisionResult: ...

    async def rejection(self, decision: Decision, member: Member) -> DecisionResult | None:
        return self.forbidden

    async def grant(self, decision: Decision, request: GrantRequest, member: Member) -> DecisionResult:
        self.granted.append(request)
        return await self.decide(decision, member)

    async def open_call(
        self, approval_id: str, revision: int, member: Member, portion: Portion = WHOLE
    ) -> ToolStep | NotEditable:
        """Return the step of a call to any user. `views_opened` records the pages."""
        editable_call = await self.get_editable_call(approval_id, revision, member)
        if not isinstance(editable_call, EditableCall):
            return editable_call
        self.views_opened.append((approval_id, revision, portion))
        return editable_call.step

    async def get_editable_call(self, approval_id: str, revision: int, member: Member) -> EditableCall | NotEditable:
        if self.not_now is not None:
            return self.not_now
        for view in self.stored_views():
            for step in view.steps:
                if isinstance(step, ToolStep) and step.approval is not None and step.approval.id == approval_id:
                    return (
                        EditableCall(view.turn, step, self.schema)
                        if step.approval.revision == revision
                        else StaleRevision()
                    )
        return ApprovalNotFound()

    async def revise(self, approval_id: str, revision: int, arguments: Mapping[str, Any], member: Member) -> EditResult:
        self.revisions.append((approval_id, revision, dict(arguments), member))
        return self.editings.pop(0) if self.editings else RevisionAccepted(revision + 1)

    async def get(self, elicitation_id: str, member: Member) -> OpenElicitation | AnswerRejected:
        return self.inquiries.get(elicitation_id, ApprovalNotFound())

    async def answer(self, elicitation_id: str, result: ElicitationResult, member: Member) -> AnswerResult:
        self.replied.append((elicitation_id, result, member))
        answering = self.answerings.pop(0) if self.answerings else ElicitationAnswered(result.action)
        if not isinstance(answering, InvalidValues):
            self.answered.put_nowait(result)
        return answering


class FakeEngine(CallScript):
    """A scripted engine.

    `receive` raises `troubles` and `decide` returns `settlements`, each in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.received: list[InboundMessage] = []
        self.decisions: list[tuple[Decision, Member]] = []
        self.stopped: list[tuple[str, Author]] = []
        self.repeated: list[tuple[str, str, int, Author]] = []
        self.troubles: list[CountersignError] = []
        self.settlements: list[DecisionResult] = []
        self.stops = True
        self.views: list[TurnView] = []
        self.edited: list[tuple[str, str]] = []
        """Ids of turns with an edited message, and the new text."""
        self.deleted: list[str] = []
        """Ids of turns whose messages were deleted."""
        self.titles: dict[ConversationKey, str] = {}
        self.addressees: dict[ConversationKey, tuple[float, bool]] = {}
        """Time of the last addressed message, and True if it addresses the bot."""
        self.opened = asyncio.Event()
        self.opened.set()
        self.arrived = 0
        self.clock: Callable[[], float] = lambda: 0.0
        """Clock for the creation times of turns."""
        self._keys: dict[str, str] = {}
        self._stored = 0

    async def receive(self, message: InboundMessage) -> Receipt:
        self.arrived += 1
        await self.opened.wait()
        if self.troubles:
            raise self.troubles.pop(0)
        for key in message.keys:
            if key in self._keys:
                return Receipt(self._keys[key], redelivery=True)
        self.received.append(message)
        self._stored += 1
        turn_id = f"t{self._stored}"
        self._keys |= dict.fromkeys(message.keys, turn_id)
        turn = Turn(
            turn_id,
            message.conversation,
            len(self.received),
            message.author,
            TurnInput(message.text, message_id=message.message_id),
            TurnStatus.DONE,
            self.clock(),
        )
        self.views.append(TurnView(turn, (), 1))
        return Receipt(turn_id)

    async def is_stored(self, keys: Sequence[str]) -> bool:
        return any(key in self._keys for key in keys)

    def agents(self, conversation: ConversationKey) -> Agents:
        return self.known_agents

    async def edit_question(
        self, keys: Sequence[str], text: str, by: Author, agent: AgentRef | None = None
    ) -> EditedQuestion | None:
        turn_ids = [self._keys[key] for key in keys if key in self._keys]
        if not turn_ids:
            return None
        view = await self.view(turn_ids[0])
        effect = EditEffect.NONE
        if text != view.turn.question.text and by.id == view.turn.author.id:
            effect = EditEffect.REPLACED if view.turn.status is TurnStatus.QUEUED else EditEffect.STORED
            self.edited.append((view.turn.id, text))
        return EditedQuestion(view.turn.id, view.turn.conversation, effect)

    async def delete_question(self, keys: Sequence[str]) -> bool:
        self.deleted += [self._keys[key] for key in keys if key in self._keys]
        return any(key in self._keys for key in keys)

    async def ask_again(self, turn_id: str, by: Author) -> Receipt:
        return self._repeat("edited", turn_id, 0, by)

    async def is_followed(self, conversation: ConversationKey, at: float, by: str = "") -> bool:
        last, is_bot = self.addressees.get(conversation, (0.0, True))
        turns = await self.recent_turns(conversation, 1000)
        return is_bot and last <= at and any(by in ("", view.turn.author.id) for view in turns)

    async def save_addressee(self, conversation: ConversationKey, *, is_bot: bool, at: float) -> None:
        known = any(view.turn.conversation == conversation for view in self.views)
        if known and at >= self.addressees.get(conversation, (0.0, True))[0]:
            self.addressees[conversation] = at, is_bot

    async def rename(self, conversation: ConversationKey, title: str) -> None:
        self.titles[conversation] = title

    def stored_views(self) -> Iterable[TurnView]:
        return self.views

    async def decide(self, decision: Decision, member: Member) -> DecisionResult:
        self.decisions.append((decision, member))
        return self.settlements.pop(0) if self.settlements else Decided(decision.type)

    async def stop(self, turn_id: str, by: Author) -> bool:
        self.stopped.append((turn_id, by))
        return self.stops

    async def run_again(self, turn_id: str, n: int, by: Author) -> Receipt:
        return self._repeat("again", turn_id, n, by)

    async def check_outcome(self, turn_id: str, n: int, by: Author) -> Receipt:
        return self._repeat("check", turn_id, n, by)

    async def continue_turn(self, turn_id: str, by: Author) -> Receipt:
        return self._repeat("continue", turn_id, 0, by)

    async def view(self, turn_id: str) -> TurnView:
        for view in self.views:
            if view.turn.id == turn_id:
                return view
        raise NotFound("There is no such turn.")

    @property
    def arrivals(self) -> Arrivals:
        return Arrivals(monotonic)

    async def latest_turn(self, conversation: ConversationKey) -> Turn | None:
        turns = await self.recent_turns(conversation, 1)
        return turns[-1].turn if turns else None

    async def recent_turns(self, conversation: ConversationKey, limit: int) -> Sequence[TurnView]:
        return [view for view in self.views if view.turn.conversation == conversation][-limit:]

    def forget(self) -> None:
        """Delete the stored conversations: a repeated message is new."""
        self.views.clear()
        self._keys.clear()

    def knows(self, view: TurnView, conversation: ConversationKey) -> TurnView:
        """Store a turn in this conversation."""
        placed = dataclasses.replace(view, turn=dataclasses.replace(view.turn, conversation=conversation))
        self.views.append(placed)
        return placed

    def _repeat(self, kind: str, turn_id: str, n: int, by: Author) -> Receipt:
        before = any(each[:3] == (kind, turn_id, n) for each in self.repeated)
        self.repeated.append((kind, turn_id, n, by))
        return Receipt(turn_id, redelivery=before)


class SharedLeases:
    """Leases that several processes share, by the event loop's clock.

    `acquire_or_renew` raises each entry of `broken` once.
    """

    def __init__(self) -> None:
        self.held: dict[str, tuple[str, float]] = {}
        self.asked = 0
        self.broken: list[Exception] = []

    async def acquire_or_renew(self, name: str, holder: str, seconds: float) -> bool:
        self.asked += 1
        if self.broken:
            raise self.broken.pop(0)
        now = asyncio.get_running_loop().time()
        owner, until = self.held.get(name, ("", 0.0))
        if owner != holder and until > now:
            return False
        self.held[name] = (holder, now + seconds)
        return True

    async def find_holders(self, prefix: str) -> dict[str, str]:
        now = asyncio.get_running_loop().time()
        return {name: owner for name, (owner, until) in self.held.items() if name.startswith(prefix) and until > now}

    async def release(self, name: str, holder: str) -> None:
        if self.held.get(name, ("", 0.0))[0] == holder:
            del self.held[name]


class ScriptedCommands:
    """Scripted commands: each request takes the next list of answers."""

    def __init__(self, *answers: Sequence[Reply | Form]) -> None:
        self.answers = list(answers)
        self.requests: list[Invocation | FormSubmission] = []
        self.going_on = asyncio.Event()
        self.going_on.set()
        """Later answers of a request wait for this event."""
        self.begun = asyncio.Event()
        self.begun.set()

    async def handle(self, request: Invocation | FormSubmission) -> AsyncIterator[Reply | Form]:
        self.requests.append(request)
        await self.begun.wait()
        for number, answer in enumerate(self.answers.pop(0) if self.answers else []):
            if number:
                await self.going_on.wait()
            yield answer

    @property
    def verbs(self) -> Mapping[str, Sequence[Verb]]:
        return {}

    def complete(self, text: str, conversation: ConversationKey) -> Sequence[str]:
        known = ("profile list", "profile show", "conversations list", "mcp list")
        return [line for line in known if line.startswith(text)]
