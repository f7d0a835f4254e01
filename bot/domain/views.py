"""View of a turn: its state to display now.

A view holds the whole state, so drawing one twice or skipping one does no harm. How a card or a tool line looks is
for `rendering` and the platforms.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from bot.domain.turns import Step, StepStatus, ToolStep, Turn

ReadFile = Callable[[str], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class ModelRetry:
    """A model was busy or could not be reached, as `reason` says, and is asked again after so many seconds."""

    seconds: int
    reason: str

    def __str__(self) -> str:
        # The wait comes first: a narrow screen shows the beginning of this line, and reasons can be long.
        return f"Trying again in {self.seconds} s. {self.reason}"


@dataclass(frozen=True, slots=True)
class BlockingTurn:
    """The turn that holds a conversation: the first of those that have not ended. `awaits_signature` says that nothing
    more happens in it until somebody has decided, `awaits_answer` that a server waits to hear something from whoever
    asked there.
    """

    turn_id: str
    awaits_signature: bool = False
    awaits_answer: bool = False


@dataclass(frozen=True, slots=True)
class TurnView:
    """A turn as it should be drawn.

    `steps` are on disk up to `revision`. The rest is the moment: `streaming` is the reply being written, `running` the
    calls in flight (step numbers), `progress` what they say of themselves, `activity` what the bot is busy with, in
    words (`str`). Of a queued turn, `ahead` counts the turns that come first, in its conversation and in the queue of
    all, as things stand; `blocker` is the one of its conversation that it waits for. `read` gives the bytes of a file
    that one of the turn's tools returned, by its id (`StoredFile`), to whoever draws it; it raises NotFound.
    """

    turn: Turn
    steps: tuple[Step, ...]
    revision: int
    streaming: str = ""
    running: frozenset[int] = frozenset()
    progress: Mapping[int, str] = field(default_factory=dict)
    activity: str | ModelRetry = ""
    ahead: int = 0
    blocker: BlockingTurn | None = None
    read: ReadFile | None = field(default=None, compare=False, repr=False)

    @property
    def awaiting(self) -> tuple[ToolStep, ...]:
        """Calls that wait for a signature."""
        return tuple(step for step in self.steps if isinstance(step, ToolStep) and step.status is StepStatus.AWAITING)

    @property
    def asks(self) -> bool:
        """A server waits to hear something from a person."""
        return any(step.pending_elicitations for step in self.steps if isinstance(step, ToolStep))


MessageRefs = Mapping[str, str]
"""Slot to the platform's reference of the message that shows it. Slots are the surface's own words."""


@dataclass(frozen=True, slots=True)
class PostedMessage:
    """One slot is out; `ref` is what the platform needs to edit it."""

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
    """Something to be told outside a turn."""

    text: str
