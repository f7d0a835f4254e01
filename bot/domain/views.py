"""View of a turn: its current state for display.

A view holds the whole state, so that displaying it twice or skipping one does no harm. `rendering` and the platforms
decide the appearance.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from bot.domain.turns import Step, StepStatus, ToolStep, Turn, TurnStatus

ReadFile = Callable[[str], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class ModelRetry:
    """Model request that is retried in `seconds`, because the model was busy or unreachable as `reason` says."""

    seconds: int
    reason: str

    def __str__(self) -> str:
        # The wait comes first: a narrow screen shows the beginning of this line, and reasons can be long.
        return f"Trying again in {self.seconds} s. {self.reason}"


@dataclass(frozen=True, slots=True)
class BlockingTurn:
    """Turn that blocks a conversation: the first unfinished one. `awaits_approval` is True if it waits for an
    approval, `awaits_answer` if a server waits for an answer of that turn's author.
    """

    turn_id: str
    awaits_approval: bool = False
    awaits_answer: bool = False


@dataclass(frozen=True, slots=True)
class TurnView:
    """Turn to display.

    `steps` are stored up to `revision`. The other fields are temporary: `streaming` is the partial reply, `running` are
    the calls in progress (step numbers), `progress` are their progress messages, `activity` is the bot's current
    activity as text. `early` is True in the first seconds of work, in which users need no message about it. For a
    queued turn, `ahead` is the number of turns before it, in its conversation and in the queue of all turns. `blocker`
    is the turn of its conversation that it waits for. `read` returns the bytes of a file from one of the turn's tools,
    by its id (`StoredFile`), or raises NotFound.
    """

    turn: Turn
    steps: tuple[Step, ...]
    revision: int
    streaming: str = ""
    running: frozenset[int] = frozenset()
    progress: Mapping[int, str] = field(default_factory=dict)
    activity: str | ModelRetry = ""
    early: bool = False
    ahead: int = 0
    blocker: BlockingTurn | None = None
    read: ReadFile | None = field(default=None, compare=False, repr=False)

    @property
    def awaiting(self) -> tuple[ToolStep, ...]:
        """Calls that wait for an approval."""
        return tuple(step for step in self.steps if isinstance(step, ToolStep) and step.status is StepStatus.AWAITING)

    @property
    def asks(self) -> bool:
        """True if a server waits for an answer from a user."""
        return any(step.pending_elicitations for step in self.steps if isinstance(step, ToolStep))


def can_continue(view: TurnView) -> bool:
    """Return True if the turn was stopped at work, so that the model can go on."""
    return view.turn.status is TurnStatus.CANCELLED and bool(view.steps) and view.turn.question.call is None


MessageRefs = Mapping[str, str]
"""The platform's reference of each posted message by slot. Each platform defines its own slots."""


@dataclass(frozen=True, slots=True)
class PostedMessage:
    """Posted message of one slot. `ref` is the platform's reference for edits."""

    slot: str
    ref: str


@dataclass(frozen=True, slots=True)
class NoticeTarget:
    """Target of a notice: one user in the conversation, that user in private, or everyone in the conversation."""

    conversation: str
    person: str = ""
    private: bool = False


@dataclass(frozen=True, slots=True)
class Notice:
    """Text to post outside a turn. `card_url` is a link to the card that it is about, empty without one."""

    text: str
    card_url: str = ""
