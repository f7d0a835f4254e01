"""Turns: a question with all steps up to its answer, views for display, the history of a conversation, and wakeups
between processes.

The steps are the transcript. A turn is resumed by reading them and doing the missing steps; completed steps are not
repeated. A view holds the whole state of a turn, so that displaying it twice or skipping one does no harm. A wakeup is
a hint that a row has changed. It may be lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from bot.domain.agents import AgentRef
from bot.domain.approvals import Approval
from bot.domain.completions import StopReason, Usage
from bot.domain.conversations import Attachment, Author, ConversationKey
from bot.domain.elicitations import Elicitation, ElicitationResults
from bot.domain.flows import Sources
from bot.domain.gateway import GatewayRequest
from bot.domain.grants import GrantUse
from bot.domain.locales import UNKNOWN, Locale
from bot.domain.messages import Message, TextPart, ToolCall, ToolResult
from bot.domain.policies import StoredPolicyResult
from bot.domain.secrets import MASK, StoredSecret, mask_arguments, redact_secrets
from bot.domain.tools import OWN_SERVER, PartChange, Risk, Tool, canonical_json, risk_of
from bot.domain.usage import UsageEntry
from bot.i18n import _

NO_LIMIT = 2**31 - 1
BEGINNING = 4_000
"""Maximum number of characters of a result in later turns."""
ReadFile = Callable[[str], Awaitable[bytes]]
MessageRefs = Mapping[str, str]
"""The platform's reference of each posted message by slot. Each platform defines its own slots."""


class WakeupKind(StrEnum):
    """Kind of a notification between processes, as its payload begins."""

    WORK_AVAILABLE = "work"
    """A turn to claim or a view to deliver may be available."""
    APPROVAL_DECIDED = "decided"
    """A decision was made on an approval of the turn."""
    STOP_REQUESTED = "stopped"
    """A stop of the turn was requested."""
    CONFIG_CHANGED = "changed"
    """Servers, policies or profiles have changed."""


@dataclass(frozen=True, slots=True)
class Wakeup:
    """Notification between processes. `turn_id` is empty if it is about no turn."""

    kind: WakeupKind = WakeupKind.WORK_AVAILABLE
    turn_id: str = ""


class TurnStatus(StrEnum):
    """Status of a turn: queued, then running and waiting in alternation, then one of three final ones."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """True if the turn has ended."""
        return self in (TurnStatus.DONE, TurnStatus.FAILED, TurnStatus.CANCELLED)


class StepStatus(StrEnum):
    """`awaiting -> ready | denied | expired | cancelled`, `ready -> started -> asking | done | failed | unknown`,
    `asking -> ready | cancelled`.
    """

    AWAITING = "awaiting"
    READY = "ready"
    STARTED = "started"
    ASKING = "asking"
    """The server needs answers from the user before the call is sent again. No request is in progress."""
    DONE = "done"
    FAILED = "failed"
    DENIED = "denied"
    EXPIRED = "expired"
    UNKNOWN = "unknown"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """True if the step has ended."""
        return self not in OPEN


OPEN = (StepStatus.AWAITING, StepStatus.READY, StepStatus.STARTED, StepStatus.ASKING)
"""Calls that have not ended."""
NO_CALLS: Mapping[int, float] = MappingProxyType({})
"""No calls by step number."""
WAITING = (StepStatus.AWAITING, StepStatus.ASKING)
"""Calls that wait for a user."""


class CallOrigin(StrEnum):
    """Origin of a tool call: the model, the operator's `auto_context_tool`, the user that attached it, or the card of
    another call. No model gets the result of the last.
    """

    MODEL = "model"
    CONTEXT = "context"
    ATTACHED = "attached"
    PREVIEW = "preview"


DELETED_TEXT = "…"
DELETION = "the deletion of the question"
"""Completes "Stopped by"."""


@dataclass(frozen=True, slots=True)
class TurnInput:
    """Input of a turn."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    context: tuple[str, ...] = ()
    call: ToolCall | None = None
    """Call that a user runs by hand. The turn consists of that call and asks no model."""
    again: bool = False
    """The call was asked for before: it needs a new approval regardless of the policy."""
    message_id: str = ""
    """The platform's id of the user's message; empty if the question is none."""
    attached: tuple[ToolCall, ...] = ()
    """Calls that the user attached to the question: resources to read, or a prompt. They run before the model is
    asked."""
    edited_text: str = ""
    """The text after the author has edited the message of a turn that had begun; empty if it is the same."""
    model: str = ""
    """Model that the user chose, `provider:name`, in place of the profile's."""
    locale: Locale = UNKNOWN
    """Locale of the conversation, for what everybody there reads."""
    author_locale: Locale = UNKNOWN
    """Locale of the author."""
    agent: AgentRef | None = None
    """Agent that answers; None for the profile of the place."""
    edited_agent: AgentRef | None = None
    """Agent that the edited text names; None if it names none."""
    may_have_run: bool = False
    """The call of `again`, or the one that it repeats, had an unknown outcome."""
    deleted: bool = False
    """True if the user's message was deleted on its platform. Its text is DELETED_TEXT."""
    gateway: GatewayRequest | None = None
    """Request of another agent for `call`, without the arguments."""

    @property
    def agent_name(self) -> str:
        """Name of the agent that was asked; empty for the profile of the place."""
        return self.agent.name if self.agent is not None else ""

    @property
    def typed_text(self) -> str:
        """Text typed by the author. A question with a prompt of a server names it, which the server has chosen."""
        prompts = [call.arguments["arguments"] for call in self.attached if "arguments" in call.arguments]
        if any("name" in call.arguments for call in self.attached):
            return "\n".join(str(value) for arguments in prompts for value in arguments.values())
        return self.text


class EditEffect(StrEnum):
    """Effect of an edit of a user's message on its turn."""

    NONE = "none"
    """The text is the same, or the turn has ended some time ago."""
    REPLACED = "replaced"
    """The turn had not begun, and works on the new text."""
    STORED = "stored"
    """The turn had begun. The new text can be asked (`EngineApi.ask_again`)."""


@dataclass(frozen=True, slots=True)
class EditedQuestion:
    """A turn with an edited message, and the effect of the edit."""

    turn_id: str
    conversation: ConversationKey
    effect: EditEffect


@dataclass(frozen=True, slots=True)
class Turn:
    """Turn of one user: its question and status. Times are epoch seconds."""

    id: str
    conversation: ConversationKey
    seq: int
    author: Author
    question: TurnInput
    status: TurnStatus
    created_at: float
    failure: str = ""
    """Reason for the failure or the stop, with its user: a sentence for users."""
    begun: bool = False
    """True if the turn has run before: it is queued again after an approval, or because it was released."""
    content_deleted: bool = False
    """True if only ids, names, times and statuses are left of the turn."""


@dataclass(frozen=True, slots=True)
class ToolRef:
    """Tool as of the model's request. `definition` shows later if the tool has changed."""

    server: str
    name: str
    title: str = ""
    definition: str = ""
    read_only: bool = False
    destructive: bool = True
    server_id: str = ""
    """Empty for tools of the bot itself."""
    place: str = ""
    """Digest of the server's place; empty for tools of the bot itself."""
    unknown: bool = False

    @property
    def risk(self) -> Risk:
        """Possible effect of a call on data, as users read it."""
        return risk_of(read_only=self.read_only, destructive=self.destructive, unknown=self.unknown)

    @property
    def is_builtin(self) -> bool:
        """True for a tool of the bot itself."""
        return self.server == OWN_SERVER and not self.server_id

    def is_still(self, tool: Tool) -> bool:
        """Return True if the tool's definition and its server's place are unchanged."""
        return (tool.definition, tool.place) == (self.definition, self.place)


@dataclass(frozen=True, slots=True)
class ModelStep:
    """Reply of the model. `notes` are sentences for users about it. `model` is the name of the model that wrote it.
    `usage` are the service's counts. `use` is the entry for usage statistics, None in a record read from the database.
    `sources` are those of the text in its prompt. `out_of_rounds` is True if no further tool could be used.
    """

    n: int
    message: Message
    stop: StopReason = StopReason.ANSWERED
    usage: Usage = Usage()
    notes: tuple[str, ...] = ()
    model: str = ""
    use: UsageEntry | None = None
    sources: Sources = ()
    out_of_rounds: bool = False
    created_at: float | None = field(default=None, compare=False)
    """In epoch seconds; None in a record that was not read from the database."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Times of a call in epoch seconds: of the request, of the start, and of the end."""

    created_at: float
    started_at: float | None = None
    ended_at: float | None = None


class PreviewProblem(StrEnum):
    """Reason why a card has no preview."""

    TIMEOUT = "timeout"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Preview:
    """Answer of the preview's tool, cut to what a card shows, or the reason why there is none."""

    text: str = ""
    problem: PreviewProblem | None = None


@dataclass(frozen=True, slots=True)
class ToolStep:
    """Tool call and its status.

    `tool` is None if no tool has the requested name. `repeatable` calls may run again after a crash. All others are
    recorded as started before they are sent, and become `unknown` if no process received the answer.
    """

    n: int
    call: ToolCall
    tool: ToolRef | None
    status: StepStatus
    repeatable: bool = False
    origin: CallOrigin = CallOrigin.MODEL
    result: ToolResult | None = None
    approval: Approval | None = None
    grant: GrantUse | None = None
    """Grant that replaces an approval of the call."""
    policy_result: StoredPolicyResult | None = None
    """Policy result at the time of the request; None if no rule was evaluated."""
    elicitations: tuple[Elicitation, ...] = ()
    """Elicitations by the call's server, in order, answered or not."""
    resume: ElicitationResults | None = None
    """Data for the next attempt of the call after an elicitation."""
    times: StepTimes | None = field(default=None, compare=False)
    """None in a record that was not read from the database."""
    secrets: tuple[StoredSecret, ...] = ()
    """Stored secrets of the tool's server in the requested arguments."""
    preview: Preview | None = None
    """Answer of another tool about the call, for its card. The approval does not cover it."""

    @property
    def stored_secrets(self) -> tuple[StoredSecret, ...]:
        """Stored secrets in the arguments as they are now: an approver may have edited them."""
        return self.secrets if self.approval is None else self.approval.secrets

    @property
    def masked_arguments(self) -> dict[str, Any]:
        """Arguments for a place with several readers."""
        return mask_arguments(self.call.arguments, self.stored_secrets)

    @property
    def only_reads(self) -> bool:
        """True if the call changes nothing, as a trusted server says, or is of the bot itself."""
        return self.tool is not None and self.tool.read_only

    @property
    def may_destroy(self) -> bool:
        """True if the call is decided like one that destroys data. Nothing is known of a tool that is missing."""
        return self.tool is None or self.tool.destructive

    @property
    def is_stopped(self) -> bool:
        """True if the call was cancelled after it had been started, so that its result is missing."""
        return self.status is StepStatus.CANCELLED and self.times is not None and self.times.started_at is not None

    @property
    def pending_elicitations(self) -> tuple[Elicitation, ...]:
        """Elicitations of the call that wait for an answer."""
        return tuple(elicitation for elicitation in self.elicitations if elicitation.open)


Step = ModelStep | ToolStep


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """Turn with its steps in order. `revision` grows with every visible change."""

    turn: Turn
    steps: tuple[Step, ...]
    revision: int

    @property
    def next_n(self) -> int:
        """Number of the next step."""
        return self.steps[-1].n + 1 if self.steps else 1

    @property
    def replies(self) -> tuple[ModelStep, ...]:
        """Completions of the model, in order."""
        return tuple(step for step in self.steps if isinstance(step, ModelStep))

    @property
    def calls(self) -> tuple[ToolStep, ...]:
        """The tool calls, in order."""
        return tuple(step for step in self.steps if isinstance(step, ToolStep))

    @property
    def ready_calls(self) -> tuple[ToolStep, ...]:
        """Calls that may be sent now."""
        return tuple(step for step in self.calls if step.status is StepStatus.READY)

    @property
    def calls_awaiting_approval(self) -> tuple[ToolStep, ...]:
        """Calls that wait for an approval."""
        return tuple(step for step in self.calls if step.status is StepStatus.AWAITING)

    @property
    def is_waiting(self) -> bool:
        """True if a call waits for an approval or for the answer to an elicitation."""
        return any(step.status in WAITING for step in self.calls)

    @property
    def is_awaiting_input(self) -> bool:
        """True if a server waits for an answer from a user."""
        return any(step.pending_elicitations for step in self.calls)

    @property
    def answer(self) -> ModelStep | None:
        """Reply that ends the turn: the last step, if it requests no call; otherwise None."""
        return _answer_of(self.steps)

    @property
    def out_of_rounds(self) -> bool:
        """True if the turn ended because no further tool could be used."""
        return self.answer is not None and self.answer.out_of_rounds


@dataclass(frozen=True, slots=True)
class Claim:
    """Right to run a turn until the lease expires. `fencing_token` grows with every owner."""

    turn_id: str
    conversation: ConversationKey
    fencing_token: int
    recoveries: int = 0
    """Number of times that an owner was lost during the turn."""
    initial_record: TurnRecord | None = None
    """The turn itself, if it has not run before."""
    person: str = ""
    """`Author.principal` of the turn's author: usage counts for that user even after the turn is deleted."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Receipt of a stored message. `queue_position` is the number of earlier unfinished turns in its conversation."""

    turn_id: str
    redelivery: bool = False
    queue_position: int = 0


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """Limits of one user's turns, running and queued, in all processes together. A turn that waits for an approval or
    an answer counts as neither.
    """

    running: int = NO_LIMIT
    queued: int = NO_LIMIT


NO_TURN_LIMITS = TurnLimits()


class ToolReplay(StrEnum):
    """Detail of earlier tool calls in the model's history: nothing, names and statuses, or everything."""

    NONE = "none"
    NAMES = "names"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class HistorySummary:
    """Summary of a conversation's turns up to number `upto`. Empty if they are only left out. `sources` are the
    sources of the summarized text.
    """

    upto: int
    text: str = ""
    sources: Sources = ()


@dataclass(frozen=True, slots=True)
class History:
    """Ended turns after the summary, oldest first, and the summary if one exists. Large results are truncated
    (`truncate_results`).
    """

    turns: tuple[TurnRecord, ...] = ()
    summary: HistorySummary | None = None


def truncate_results(record: TurnRecord) -> TurnRecord:
    """Return an ended turn with every result cut to BEGINNING characters, because each question resends the history."""
    steps = tuple(map(_shorten_step, record.steps))
    return record if steps == record.steps else replace(record, steps=steps)


def _shorten_step(step: Step) -> Step:
    result = step.result if isinstance(step, ToolStep) else None
    if not isinstance(step, ToolStep) or result is None or len(result.text_or_json) <= BEGINNING:
        return step
    text = result.text_or_json
    others = (part for part in result.parts if not isinstance(part, TextPart))
    parts = (TextPart(text[:BEGINNING]), *others)
    return replace(step, result=replace(result, parts=parts, structured=None, left_out=result.length - BEGINNING))


@dataclass(frozen=True, slots=True)
class ModelRetry:
    """Model request that is retried in `seconds`, because the model was busy or unreachable as `reason` says."""

    seconds: int
    reason: str

    def __str__(self) -> str:
        # The wait comes first: a narrow screen shows the beginning of this line, and reasons can be long.
        return _("Trying again in {seconds} s. {reason}", seconds=self.seconds, reason=_(self.reason))


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


def _answer_of(steps: tuple[Step, ...]) -> ModelStep | None:
    last = steps[-1] if steps else None
    return last if isinstance(last, ModelStep) and not last.message.tool_calls else None


def can_continue(view: TurnView) -> bool:
    """Return True if the turn was stopped or failed at work, or ended by a limit, so that the model can go on."""
    if view.turn.question.call is not None:
        return False
    match view.turn.status:
        case TurnStatus.CANCELLED:
            return bool(view.steps)
        case TurnStatus.FAILED:
            return any(isinstance(step, ModelStep) for step in view.steps)
        case TurnStatus.DONE:
            answer = _answer_of(view.steps)
            return answer is not None and (answer.out_of_rounds or answer.stop is StopReason.LENGTH)
        case _:
            return False


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
    """Text to post outside a turn. `card_url` is a link to the card that it is about, empty without one. `call` is the
    pending call that it is about, which its reader can decide there.
    """

    text: str
    card_url: str = ""
    call: tuple[Turn, ToolStep] | None = None


def changed_names(step: ToolStep) -> tuple[str, ...]:
    """Return the names of the arguments that users have changed since the model requested the call."""
    if step.approval is None or step.approval.proposed is None:
        return ()
    before, after = step.approval.proposed, step.call.arguments
    return tuple(
        name
        for name in dict.fromkeys((*before, *after))
        if (name in before) != (name in after) or canonical_json(before.get(name)) != canonical_json(after.get(name))
    )


def argument_changes(step: ToolStep) -> tuple[PartChange, ...]:
    """Return the changes by users to a call, for the model. Values that look like a secret are masked."""
    proposed = (step.approval.proposed if step.approval is not None else None) or {}
    return tuple(
        PartChange(name, _argument_text(proposed, name), _argument_text(step.call.arguments, name))
        for name in changed_names(step)
    )


def _argument_text(arguments: Mapping[str, Any], name: str) -> str | None:
    if name not in arguments:
        return None
    value = redact_secrets(name, arguments[name])
    return value if value == MASK else canonical_json(value)
