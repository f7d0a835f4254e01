"""Tracker of the turns of this terminal and their rendering; shared by the listener and the surface.

Commands `/check`, `/again` and `/stop`, which replace buttons. They act on the newest call of unknown outcome, or on
the active turn. `/open` continues an earlier conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from bot.domain.conversations import ConversationKey
from bot.domain.elicitations import Elicitation
from bot.domain.turns import CallOrigin, Receipt, StepStatus, ToolStep, Turn, TurnStatus, TurnView
from bot.errors import CountersignError, DatabaseUnavailable, InvalidOption, NotFound
from bot.i18n import gettext_lazy
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.typed_lines import LocalCommand, RepeatCall
from bot.ports import EngineApi
from bot.rendering.timeline import blocking_turn, call_to_check, call_to_run_again

T = TypeVar("T")

SEARCHED_TURNS = 50
"""Number of turns that are searched."""
NOTHING_UNKNOWN = gettext_lazy("There is no call here whose outcome is unknown.")
NOTHING_RUNS = gettext_lazy("Nothing runs or waits in this conversation.")
POLL_SECONDS = 1.0
MOST_CONVERSATIONS = 20
"""Number of conversations with turns that one terminal runs and shows."""

ANSWERED, FAILED, MISUSED, UNAPPROVED, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit codes. UNAPPROVED: a call or its tool lacks an approval, even if the model has answered since."""
_SEVERITY = (ANSWERED, UNAPPROVED, FAILED, INTERRUPTED)


async def repeat(engine: EngineApi, user: LocalUser, conversation: ConversationKey, command: RepeatCall) -> Receipt:
    """Ask the model to check the newest call of unknown outcome, or run it again. Raises NotFound if there is none with
    which that was not done before.
    """
    turns = await engine.recent_turns(conversation, SEARCHED_TURNS)
    is_check = command is LocalCommand.CHECK
    offer = call_to_check(turns) if is_check else call_to_run_again(turns)
    if offer is None:
        raise NotFound(NOTHING_UNKNOWN)
    start = engine.check_outcome if is_check else engine.run_again
    receipt = await start(offer.turn_id, offer.n, user.author)
    if receipt.redelivery:
        checked = gettext_lazy("That call has been checked already.")
        raise NotFound(checked if is_check else gettext_lazy("That call has been run again already."))
    return receipt


async def stop(engine: EngineApi, user: LocalUser, conversation: ConversationKey) -> None:
    """Stop the active turn of the conversation. Raises NotFound if there is none."""
    offer = blocking_turn(await engine.recent_turns(conversation, SEARCHED_TURNS))
    if offer is None or not await engine.stop(offer.turn_id, user.author):
        raise NotFound(NOTHING_RUNS)


@dataclass(frozen=True, slots=True)
class Welcome:
    """Start of a new conversation: servers with the number of their tools, failed and starting ones, messages to try.
    `is_demo` is True if no language model answers.
    """

    servers: Mapping[str, int]
    in_trouble: Sequence[str] = ()
    examples: Sequence[str] = ()
    is_demo: bool = False
    starting: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PendingElicitation:
    """An open elicitation. `over` is set at its end."""

    step: ToolStep
    elicitation: Elicitation
    own: bool
    over: asyncio.Event


class TurnTracker:
    """Turns of this terminal. `pending_calls` receives each of their calls once, `pending_elicitations` each
    elicitation.

    Another process may run a turn of this terminal, which is then polled to render it.
    """

    def __init__(self) -> None:
        self.conversations: tuple[str, ...] = ()
        """Conversations of this terminal: the open one is the last."""
        self.on_open: Callable[[Sequence[str]], None] = lambda _conversations: None
        """Called with `conversations` when they change, before anything is asked there."""
        self.uploads: dict[str, bytes] = {}
        """Files of questions of this process, by the id of their attachment."""
        self.saved: SavedConversations | None = None
        """Conversations to choose from; set at the start."""
        self.draw: Callable[[TurnView], None] = lambda _view: None
        """Renders a turn of this terminal from the database; set by the surface."""
        self.pending_calls: asyncio.Queue[tuple[ToolStep, bool]] = asyncio.Queue()
        """Calls with a pending approval, and True for those of a turn of this terminal."""
        self.pending_elicitations: asyncio.Queue[PendingElicitation] = asyncio.Queue()
        self._submitting = asyncio.Lock()
        self._own: set[str] = set()
        self._ends: dict[str, asyncio.Future[TurnView]] = {}
        self._newest: dict[str, TurnView] = {}
        self._earlier: set[str] = set()
        self._waiting: set[str] = set()
        self._rendered: set[str] = set()
        self._queued_calls: set[tuple[str, int]] = set()
        self._open_elicitations: dict[str, asyncio.Event] = {}
        self._others_approvals: set[str] = set()
        self.closed = asyncio.Event()
        """True after the output was closed."""

    @property
    def conversation(self) -> str:
        """Conversation that is open in this terminal."""
        return self.conversations[-1] if self.conversations else ""

    def begin(self, start: StartState) -> None:
        """Open the conversation of the start, with those that ended processes left."""
        self._waiting.update(turn.id for turn in start.waiting)
        self.conversations = tuple(start.left)
        self.saved = start.saved
        self._continue(start)

    def open(self, conversation: str) -> None:
        """Open a conversation. The turns of those before still belong to this terminal."""
        others = [name for name in self.conversations if name != conversation]
        self.conversations = (*others, conversation)[-MOST_CONVERSATIONS:]
        self.on_open(self.conversations)

    async def reopen(self, name: str) -> StartState:
        """Continue an earlier conversation, of which the beginning of its id is enough, and return it. Raises NotFound
        without a name, InvalidOption for an unknown or ambiguous one.
        """
        if not name or self.saved is None:
            raise NotFound(gettext_lazy("Write which one: /open ID. The ids are those of /conversations list."))
        start = await self.saved.read(name)
        self._continue(start)
        return start

    def _continue(self, start: StartState) -> None:
        self._earlier.update(view.turn.id for view in start.earlier)
        self.open(start.conversation)

    async def submit(self, submission: Awaitable[Receipt]) -> Receipt:
        """Submit an input to the engine and track its turn. Views wait meanwhile, because the owner of a turn is
        unknown until then.
        """
        async with self._submitting:
            receipt = await submission
            self.track(receipt.turn_id)
        return receipt

    def track(self, turn_id: str) -> None:
        """Track this turn as one of this terminal."""
        if turn_id not in self._own:
            self._own.add(turn_id)
            self._ends[turn_id] = asyncio.get_running_loop().create_future()

    def track_earlier(self, view: TurnView) -> None:
        """Ask for the approvals of a turn of an earlier process; its end is printed as that of a foreign turn."""
        self._earlier.add(view.turn.id)
        self._queue_pending(view)

    def owns(self, turn_id: str) -> bool:
        """Return True if a completely submitted turn is one of this terminal."""
        return turn_id in self._own

    async def is_own(self, turn_id: str) -> bool:
        """Return True if the turn is one of this terminal."""
        if self.owns(turn_id):
            return True
        async with self._submitting:
            return self.owns(turn_id)

    def from_another_window(self, view: TurnView) -> bool:
        """Return True if another process currently asks this, in the conversation that is open here."""
        here = view.turn.conversation.thread == self.conversation
        return here and view.turn.id not in self._earlier

    def waited_at_start(self, turn_id: str) -> bool:
        """Return True if the start named this turn of another conversation as one that waits."""
        return turn_id in self._waiting

    def was_rendered(self, turn_id: str) -> bool:
        """Return True if the turn's end was rendered in this process."""
        return turn_id in self._rendered

    def mark_rendered(self, view: TurnView) -> None:
        """Note that the turn's end is rendered. Tasks that wait for it go on at `record`."""
        if view.turn.status.ended:
            self._rendered.add(view.turn.id)

    def newest(self, turn_id: str) -> TurnView | None:
        """Return the latest rendered view of an open turn."""
        return self._newest.get(turn_id)

    def is_outdated(self, view: TurnView) -> bool:
        """Return True if a later state of the turn was rendered already."""
        newest = self._newest.get(view.turn.id)
        return newest is not None and newest.revision > view.revision

    def record(self, view: TurnView) -> None:
        """Record a rendered view, and wake the tasks that wait for its end or its approvals."""
        self.mark_rendered(view)
        if view.turn.status.ended:
            self._newest.pop(view.turn.id, None)
        elif not self.is_outdated(view):
            self._newest[view.turn.id] = view
            self._check_left(view)
        end = self._ends.get(view.turn.id)
        if self.owns(view.turn.id) or view.turn.id in self._earlier:
            self._queue_pending(view)
        if end is not None and view.turn.status.ended and not end.done():
            end.set_result(view)

    async def end_turn(self, turn_id: str, engine: EngineApi) -> TurnView:
        """Return the last view of a turn after its rendering, or its present view once it only waits for other users
        (`leave_waiting`). It is polled every `POLL_SECONDS`, because another process may run it.
        Raises NotFound if it was deleted.
        """
        end = self._ends[turn_id]
        while not end.done():
            await asyncio.wait({end}, timeout=POLL_SECONDS)
            with suppress(DatabaseUnavailable):
                await self._poll(turn_id, end, engine)
        view = await asyncio.shield(end)
        self._ends.pop(turn_id, None)  # long talks need not remember every answer
        return view

    def leave_waiting(self, approval_id: str) -> None:
        """Note that an approval waits for other users. A turn is left if all its open calls do."""
        self._others_approvals.add(approval_id)
        for view in list(self._newest.values()):
            self._check_left(view)

    def _check_left(self, view: TurnView) -> None:
        open_calls = [step for step in view.steps if isinstance(step, ToolStep) and not step.status.ended]
        waits = all(step.approval is not None and step.approval.id in self._others_approvals for step in view.awaiting)
        end = self._ends.get(view.turn.id)
        if open_calls and len(open_calls) == len(view.awaiting) and waits and end is not None and not end.done():
            end.set_result(view)

    async def _poll(self, turn_id: str, end: asyncio.Future[TurnView], engine: EngineApi) -> None:
        if end.done():
            return
        view = await engine.view(turn_id)
        newest = self._newest.get(turn_id)
        if not self.was_rendered(turn_id) and (newest is None or view.revision > newest.revision):
            self.draw(view)

    def _queue_pending(self, view: TurnView) -> None:
        for step in view.steps:
            if isinstance(step, ToolStep):
                for elicitation in step.elicitations:
                    waits = elicitation.open and not view.turn.status.ended
                    if waits and elicitation.id not in self._open_elicitations:
                        over = self._open_elicitations[elicitation.id] = asyncio.Event()
                        self.pending_elicitations.put_nowait(
                            PendingElicitation(step, elicitation, self.owns(view.turn.id), over)
                        )
                    elif not waits and elicitation.id in self._open_elicitations:
                        self._open_elicitations[elicitation.id].set()
            if isinstance(step, ToolStep) and step.approval is not None and step.status is StepStatus.AWAITING:
                key = (step.approval.id, step.approval.revision)
                if key not in self._queued_calls:
                    self._queued_calls.add(key)
                    self.pending_calls.put_nowait((step, self.owns(view.turn.id)))


# -------------------- start of a conversation


class SavedConversations(Protocol):
    """The user's conversations."""

    async def titles(self) -> Mapping[str, str]:
        """Return the titles of the last ones by id, newest first."""

    async def read(self, name: str) -> StartState:
        """Return the conversation whose id begins with this name. Raises InvalidOption if that is not one."""


@dataclass(frozen=True, slots=True)
class StartState:
    """The conversation to talk in, and its earlier turns, oldest first (the last few are enough)."""

    conversation: str
    earlier: Sequence[TurnView] = ()
    turns: int = 0
    """Number of all turns; 0 for the length of `earlier`."""
    left: Sequence[str] = ()
    """Other conversations in which ended processes left turns without an answer."""
    elsewhere: str = ""
    """The last conversation, if it is open in another process and this one is therefore new."""
    waiting: Sequence[Turn] = ()
    """Turns of other conversations, once for each of their calls that waits for this user's approval."""
    abandoned: Sequence[TurnView] = ()
    """Turns of ended processes that go on here."""
    saved: SavedConversations | None = None
    """The conversations that can be opened instead."""

    @property
    def count(self) -> int:
        """Number of earlier turns of the conversation."""
        return max(self.turns, len(self.earlier))

    @property
    def ended(self) -> tuple[TurnView, ...]:
        """Last ended turns, for the reminder."""
        return tuple(view for view in self.earlier if view.turn.status.ended)

    @property
    def open(self) -> tuple[TurnView, ...]:
        """Turns that run or wait for an approval."""
        return tuple(view for view in self.earlier if not view.turn.status.ended)


async def await_ready(promised: Awaitable[T]) -> T:
    """Wait for a promised value. A cancelled wait does not cancel the promise. Raises CountersignError if the promise
    is cancelled or fails.
    """
    future = asyncio.ensure_future(promised)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if not future.cancelled():
            raise
    raise CountersignError(gettext_lazy("The program could not be started."), gettext_lazy("Look into its log."))


def exit_code(view: TurnView) -> int:
    """Return the exit code for one turn. A manual call must have succeeded for ANSWERED."""
    calls = [step for step in view.steps if isinstance(step, ToolStep) and step.origin is not CallOrigin.PREVIEW]
    match view.turn.status:
        case TurnStatus.CANCELLED:
            return INTERRUPTED
        case TurnStatus.FAILED:
            return FAILED
        case TurnStatus.DONE if not any(_lacks_approval(call) for call in calls):
            by_hand = view.turn.question.call is not None
            return FAILED if by_hand and any(call.status is not StepStatus.DONE for call in calls) else ANSWERED
        case _:
            return UNAPPROVED


def error_code(error: CountersignError) -> int:
    """Return the exit code after an error."""
    return MISUSED if isinstance(error, InvalidOption) else FAILED


def worst_exit_code(codes: Iterable[int]) -> int:
    """Return the exit code of several messages, ANSWERED without any."""
    return max(codes, key=_SEVERITY.index, default=ANSWERED)


def _lacks_approval(call: ToolStep) -> bool:
    is_denied = call.approval is not None and call.status in (StepStatus.DENIED, StepStatus.EXPIRED)
    return is_denied or (call.result is not None and call.result.unreviewed)
