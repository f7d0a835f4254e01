"""Models that programs read: their base, and messages, tool calls, approvals, elicitations and responses of turns.

Names are in camelCase, times are ISO 8601. Arguments are redacted as on cards in a shared channel: labels for stored
secrets, counts for text that looks like one. All other text is unchanged: clients have to escape it for display.
docs/http-api.md lists the states.

The address of a URL elicitation is only for the token that asked, not for other readers of the response. Answers to
elicitations are never included.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from bot.domain.agents import AgentRef
from bot.domain.approvals import ApprovalRequirements
from bot.domain.conversations import ConversationKey
from bot.domain.elicitations import Elicitation, FormMode, UrlMode
from bot.domain.tools import Risk
from bot.domain.turns import WAITING, ModelStep, StepStatus, ToolStep, Turn, TurnStatus, TurnView
from bot.i18n import LazyText, _
from bot.rendering.approval_card import (
    ApprovalCard,
    approval_card,
    approver_reason,
    asker_name,
    format_changes,
    whole_card,
)
from bot.rendering.call_arguments import whole_json
from bot.rendering.elicitation_card import domain_of, outcome_text, server_name, warning_text
from bot.rendering.timeline import answer


class ResponseModel(BaseModel):
    """A response body."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True)

    @model_validator(mode="before")
    @classmethod
    def _translate(cls, values: object) -> object:
        return {name: _translated(value) for name, value in values.items()} if isinstance(values, dict) else values


def _translated(value: object) -> object:
    match value:
        case LazyText():
            return str(value)
        case list() | tuple():
            return [_translated(item) for item in value]
        case dict():
            return {name: _translated(item) for name, item in value.items()}
    return value


def format_time(seconds: float) -> str:
    """Format epoch seconds as ISO 8601 in UTC, to the millisecond: `2026-08-31T14:30:00.000Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class ConversationStatus(StrEnum):
    """Status of a conversation, which is that of its last response."""

    CREATED = "CREATED"
    STREAMING = "STREAMING"
    COMPLETED = "COMPLETED"
    INCOMPLETE = "INCOMPLETE"
    FAILED = "FAILED"


class CallStatus(StrEnum):
    """Status of a tool call. UNKNOWN: it was sent, and its outcome is unknown."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    DENIED = "DENIED"
    EXPIRED = "EXPIRED"
    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"


def call_status(status: StepStatus) -> CallStatus:
    """Return the status of a call as programs see it."""
    match status:
        case StepStatus.AWAITING | StepStatus.READY | StepStatus.STARTED | StepStatus.ASKING:
            return CallStatus.IN_PROGRESS
        case StepStatus.DONE:
            return CallStatus.COMPLETED
        case _:
            return CallStatus[status.name]


def step_statuses(status: CallStatus) -> tuple[StepStatus, ...]:
    """Return the stored statuses of calls that programs see with this status."""
    return tuple(stored for stored in StepStatus if call_status(stored) is status)


class MessageStatus(StrEnum):
    """Status of a message."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"


class MessageShape(ResponseModel):
    """One message of a conversation."""

    id: str = Field(description="`RESPONSE:N`: its place among the steps of its response, 0 for the question.")
    response_id: str
    role: str = Field(description="USER, ASSISTANT or TOOL.")
    content: str
    output_index: int
    item_id: str | None = Field(default=None, description="Of a tool's answer: the model's own id of the call.")
    notes: list[str] = Field(default_factory=list, description="Sentences for people about this message.")
    created_at: str = Field(description="Of the question, the reply, or the result.")
    tool_calls: list[ToolCallShape] = Field(default_factory=list, description="What an assistant's message asks for.")


class ToolCallShape(ResponseModel):
    """A tool call with its status."""

    id: str = Field(description="`RESPONSE:N`: its place among the steps of its response.")
    response_id: str
    item_id: str = Field(description="The model's own id of the call.")
    output_index: int
    type: str = Field(description="MCP; FUNCTION for a name that is no tool.")
    server: str | None
    name: str
    title: str
    status: CallStatus
    waiting_for_approval: bool
    waiting_for_answer: bool = Field(description="Its server waits for an answer of the user who asked.")
    approval_request_id: str | None
    arguments: dict[str, Any] = Field(
        description="Labels stand for stored secrets, lengths and reasons for parts that look like a secret."
    )
    result: str | None
    error: str | None = Field(description="Why it gave nothing, where it did not.")
    decided_by: str
    reason: str = Field(description="Reason of a denial, if one was given.")
    granted_by: str = Field(description="Owner of the grant that it ran under, if no approval was asked for.")
    progress: str | None = Field(default=None, description="What a running call says of itself.")
    created_at: str | None = Field(
        default=None, description="When the model asked for it; null while events report a running turn."
    )
    started_at: str | None = Field(default=None, description="When it was sent.")
    ended_at: str | None = None


class ShownArgument(ResponseModel):
    """One argument for display: invisible characters are spelled out."""

    name: str
    value: str
    warnings: list[str] = Field(description="Sentences for people about characters that are not what they seem.")


class ShownChange(ResponseModel):
    """An argument changed since the model's request, as JSON; null where it is missing."""

    name: str
    before: str | None
    after: str | None


class ApprovalShape(ResponseModel):
    """A pending call, with everything that an approval covers."""

    approval_request_id: str
    revision: int = Field(description="Grows when the arguments are changed. A decision names the one it is about.")
    conversation_id: str
    response_id: str
    tool_call_id: str
    title: str
    risk: Risk = Field(description="`unknown` if the server is not trusted and does not say that it destroys.")
    server: str
    tool: str
    arguments: dict[str, Any] = Field(
        description="All of them. Labels stand for stored secrets, lengths and reasons for what is hidden here."
    )
    hidden: int = Field(
        description="Characters that are hidden here because they look like a secret. With any, the call is approved "
        "only after it was opened: `POST /api/responses/approval/{id}/open`."
    )
    shown: list[ShownArgument] = Field(description="The same as plain text, to read before approving.")
    preview: str = Field(description="What the call is about, from a tool that only reads; no part of the approval.")
    changes: list[ShownChange]
    changed_by: str
    fingerprint: str = Field(description="Digest of the approved server, tool, definition and arguments.")
    requested_for: str
    signed_by: str = Field(description="The approvers, in a few words.")
    asker_may_approve: bool = Field(description="The user who asked may approve it without being an approver.")
    approver_reason: str = Field(
        description="Why the user who asked may not approve it, a sentence; empty if they may or a rule says who may."
    )
    signatures: list[str] = Field(description="The users who have approved so far, if several are needed.")
    needed: int = Field(description="Number of approvals that are needed in all.")
    expires_in_seconds: float | None = Field(description="From when it was asked; null if it never expires.")
    expires_at: str | None


class ElicitationShape(ResponseModel):
    """An elicitation, for the token in whose name the call runs."""

    elicitation_id: str
    conversation_id: str
    response_id: str
    tool_call_id: str
    server: str
    tool: str
    message: str = Field(description="The server's own words.")
    mode: str = Field(description="`form` or `url`.")
    requested_schema: dict[str, Any] | None = Field(description="Of a form: what `content` has to fit.")
    url: str | None = Field(description="A page to visit, sent only to the token that asked.")
    domain: str = Field(description="Where that leads to.")
    warning: str = Field(description="What to be careful of, in a sentence; mostly empty.")
    asked_of: str = Field(description="Whose answer it takes.")
    expires_in_seconds: float | None = Field(description="From when it was asked; null if it never expires.")
    expires_at: str | None
    action: str | None = Field(description="How it ended: `accept`, `decline` or `cancel`; null while it waits.")
    outcome: str = Field(description="The same in a few words.")


class TurnStateShape(ResponseModel):
    """The state of a response."""

    response_id: str
    conversation_id: str
    status: ConversationStatus
    waiting_for_approval: bool
    waiting_for_answer: bool
    ahead: int = Field(description="Number of responses that come first.")


class OpeningShape(TurnStateShape):
    """The state at the beginning of a stream. The other fields are in a stream that begins with its question."""

    title: str | None = None
    redelivery: bool = Field(default=False, description="The question was asked before, under its Idempotency-Key.")
    ignored: list[str] = Field(default_factory=list, description="Fields of the request that had no effect.")


class ReplyPieceShape(ResponseModel):
    """A piece of a reply. The last one is COMPLETED, with the whole text in `content`."""

    id: str = Field(description="`RESPONSE:N`, the same for all pieces of a reply.")
    response_id: str
    conversation_id: str
    role: str = Field(description="ASSISTANT.")
    output_index: int
    status: MessageStatus
    offset: int = Field(description="Where `delta` belongs, in characters; what was sent from there on is void.")
    delta: str
    content: str = Field(default="", description="Of the last piece: the whole text.")
    notes: list[str] = Field(default_factory=list, description="Of the last piece: sentences for people about it.")


class CallUpdateShape(ToolCallShape):
    """The state of a tool call."""

    conversation_id: str


class ModelRetryShape(ResponseModel):
    """The model was busy or unreachable, and is asked again. A reply that was begun starts again."""

    response_id: str
    conversation_id: str
    seconds: int = Field(description="From this event until then.")
    reason: str


class StreamErrorShape(ResponseModel):
    """Why there is no answer, or why the stream ends early."""

    code: str
    message: str
    response_id: str = ""
    conversation_id: str = ""


class AgentShape(ResponseModel):
    """An agent: a profile that was asked by name."""

    id: str
    name: str = Field(description="Its name when it was asked.")


class ResponseShape(ResponseModel):
    """An input with the result so far."""

    response_id: str
    conversation_id: str
    agent: AgentShape | None = Field(description="Who answers, if an agent was asked by name.")
    status: ConversationStatus
    waiting_for_approval: bool = Field(description="The turn waits for an approval.")
    waiting_for_answer: bool = Field(description="The turn waits for an answer of the user who asked.")
    ahead: int = Field(
        description="How many responses come first: of the conversation and, as things stand, of others."
    )
    text: str = Field(description="The answer, as far as it has come.")
    error: str | None
    messages: list[MessageShape]
    tool_calls: list[ToolCallShape]
    approvals: list[ApprovalShape] = Field(description="Calls that wait for an approval.")
    elicitations: list[ElicitationShape] = Field(description="Open elicitations of servers.")
    ignored: list[str] = Field(default_factory=list, description="Fields of the request that had no effect.")
    created_at: str


SignedBy = Callable[[ApprovalRequirements, ConversationKey, AgentRef | None], str]
"""Return the approvers of a call in short text (`bot.admin.dependencies.Administration.signed_by`)."""

_TURN_STATUSES = {
    TurnStatus.QUEUED: ConversationStatus.STREAMING,
    TurnStatus.RUNNING: ConversationStatus.STREAMING,
    TurnStatus.WAITING: ConversationStatus.STREAMING,
    TurnStatus.DONE: ConversationStatus.COMPLETED,
    TurnStatus.CANCELLED: ConversationStatus.INCOMPLETE,
    TurnStatus.FAILED: ConversationStatus.FAILED,
}


def status_of(view: TurnView) -> ConversationStatus:
    """Return the status of a response. The SQL view `conversation_states` implements the same rule."""
    return ConversationStatus.CREATED if waits_its_turn(view) else _TURN_STATUSES[view.turn.status]


def waits_its_turn(view: TurnView) -> bool:
    """Return True if the turn is queued for its first start. A turn in the queue after an approval, an answer or a
    restart does not count.
    """
    return view.turn.status is TurnStatus.QUEUED and not view.turn.begun


def is_waiting(view: TurnView) -> bool:
    """Return True if the turn waits for a user's decision or answer. The engine may still be releasing it."""
    if view.turn.status not in (TurnStatus.RUNNING, TurnStatus.WAITING):
        return False
    open_calls = [step for step in view.steps if isinstance(step, ToolStep) and not step.status.ended]
    return bool(open_calls) and all(step.status in WAITING or step.pending_elicitations for step in open_calls)


def waits_for_approval(view: TurnView) -> bool:
    """Return True if the turn waits for an approval."""
    return is_waiting(view) and bool(view.awaiting)


def waits_for_answer(view: TurnView) -> bool:
    """Return True if the turn waits for an answer to an elicitation."""
    return is_waiting(view) and view.asks


def step_id(turn: Turn, n: int) -> str:
    """Return the public id of a step."""
    return f"{turn.id}:{n}"


def tool_call_shape(turn: Turn, step: ToolStep, progress: str | None = None) -> ToolCallShape:
    """Return a call with its current status."""
    approval, tool, grant, times = step.approval, step.tool, step.grant, step.times
    text = step.result.text if step.result is not None else _("Stopped while running.") if step.is_stopped else None
    good = step.status is StepStatus.DONE
    return ToolCallShape(
        id=step_id(turn, step.n),
        response_id=turn.id,
        item_id=step.call.id,
        output_index=step.n,
        type="MCP" if tool is not None else "FUNCTION",
        server=tool.server if tool is not None else None,
        name=tool.name if tool is not None else step.call.name,
        title=tool.title if tool is not None else "",
        status=call_status(step.status),
        waiting_for_approval=step.status is StepStatus.AWAITING,
        waiting_for_answer=not step.status.ended and bool(step.pending_elicitations),
        approval_request_id=approval.id if approval is not None else None,
        arguments=step.masked_arguments,
        result=text if good else None,
        error=text if not good else None,
        decided_by=approval.decided_by if approval is not None else "",
        reason=approval.reason if approval is not None else "",
        granted_by=(grant.name or grant.by) if grant is not None else "",
        progress=progress,
        created_at=None if times is None else format_time(times.created_at),
        started_at=None if times is None or times.started_at is None else format_time(times.started_at),
        ended_at=None if times is None or times.ended_at is None else format_time(times.ended_at),
    )


def whole_approval_shape(turn: Turn, step: ToolStep, conversation: str, signed_by: SignedBy) -> ApprovalShape:
    """Return a pending call for one of its approvers, including parts that look like a secret."""
    card = whole_card(step)
    assert card is not None
    whole = {"arguments": whole_json(step), "hidden": card.withheld, "shown": _shown_arguments(card)}
    return approval_shape(turn, step, conversation, signed_by).model_copy(update=whole)


def _shown_arguments(card: ApprovalCard) -> list[ShownArgument]:
    return [
        ShownArgument(name=argument.name, value=argument.full, warnings=list(argument.warnings))
        for argument in card.arguments
    ]


def approval_shape(turn: Turn, step: ToolStep, conversation: str, signed_by: SignedBy) -> ApprovalShape:
    """Return a pending call for every reader of the conversation. `conversation` is its public id."""
    approval, card = step.approval, approval_card(step)
    assert approval is not None
    assert card is not None
    return ApprovalShape(
        approval_request_id=approval.id,
        revision=approval.revision,
        conversation_id=conversation,
        response_id=turn.id,
        tool_call_id=step_id(turn, step.n),
        title=card.title,
        risk=card.risk,
        server=card.server,
        tool=card.tool,
        arguments=step.masked_arguments,
        hidden=card.withheld,
        shown=_shown_arguments(card),
        preview=card.preview,
        changes=[
            ShownChange(name=change.name, before=change.before, after=change.after) for change in format_changes(step)
        ],
        changed_by=approval.revised_by,
        fingerprint=approval.fingerprint,
        requested_for=asker_name(approval),
        signed_by=signed_by(approval.requirements, turn.conversation, turn.question.agent),
        asker_may_approve=approval.requirements.asker_may_approve,
        approver_reason=approver_reason(step),
        signatures=list(approval.approver_names),
        needed=approval.requirements.quorum,
        expires_in_seconds=approval.expires_in,
        expires_at=None if approval.expires_at is None else format_time(approval.expires_at),
    )


def elicitation_shape(
    turn: Turn, step: ToolStep, elicitation: Elicitation, conversation: str, reader: str
) -> ElicitationShape:
    """Return an elicitation for the response. `conversation` is its public id, `reader` the principal of the reader."""
    mode = elicitation.question.ask
    url = mode.url if isinstance(mode, UrlMode) and reader == turn.author.principal else None
    return ElicitationShape(
        elicitation_id=elicitation.id,
        conversation_id=conversation,
        response_id=turn.id,
        tool_call_id=step_id(turn, step.n),
        server=server_name(step),
        tool=step.tool.name if step.tool is not None else step.call.name,
        message=elicitation.question.message,
        mode="form" if isinstance(mode, FormMode) else "url",
        requested_schema=dict(mode.schema) if isinstance(mode, FormMode) else None,
        url=url,
        domain=domain_of(mode),
        warning=warning_text(elicitation.question),
        asked_of=turn.author.name or turn.author.id,
        expires_in_seconds=elicitation.expires_in,
        expires_at=None if elicitation.expires_at is None else format_time(elicitation.expires_at),
        action=elicitation.reply.action.value if elicitation.reply is not None else None,
        outcome="" if elicitation.open else outcome_text(elicitation),
    )


def messages_of(view: TurnView) -> list[MessageShape]:
    """Return the input, the replies with their calls, and the tool results, in order."""
    turn = view.turn
    latest_time = format_time(turn.created_at)
    messages: list[MessageShape] = []
    if turn.question.call is None:
        messages.append(
            MessageShape(
                id=step_id(turn, 0), response_id=turn.id, role="USER", content=turn.question.text, output_index=0,
                created_at=latest_time,
            )
        )  # fmt: skip
    last_reply: MessageShape | None = None
    for step in view.steps:
        message = MessageShape(
            id=step_id(turn, step.n), response_id=turn.id, role="ASSISTANT", content="", output_index=step.n,
            created_at=latest_time,
        )  # fmt: skip
        match step:
            case ModelStep():
                message.content, message.notes = step.message.text, list(step.notes)
                if step.created_at is not None:
                    message.created_at = format_time(step.created_at)
                last_reply = message
            case ToolStep():
                if last_reply is not None:
                    last_reply.tool_calls.append(tool_call_shape(turn, step))
                if step.result is None:
                    continue
                message.role, message.content, message.item_id = "TOOL", step.result.text, step.call.id
                if step.times is not None and step.times.ended_at is not None:
                    message.created_at = format_time(step.times.ended_at)
        latest_time = max(latest_time, message.created_at)
        messages.append(message)
    return messages


def calls_of(view: TurnView) -> list[ToolCallShape]:
    """Return the calls of a response, in order."""
    calls = (step for step in view.steps if isinstance(step, ToolStep))
    return [tool_call_shape(view.turn, step, view.progress.get(step.n)) for step in calls]


def elicitations_of(view: TurnView, conversation: str, reader: str) -> list[ElicitationShape]:
    """Return the open elicitations of a response."""
    calls = (step for step in view.steps if isinstance(step, ToolStep) and not view.turn.status.ended)
    return [
        elicitation_shape(view.turn, step, pending_elicitation, conversation, reader)
        for step in calls
        for pending_elicitation in step.pending_elicitations
    ]


def response_shape(view: TurnView, conversation: str, signed_by: SignedBy, reader: str = "") -> ResponseShape:
    """Return a response with its current state. `conversation` is the public id, `reader` the reader's principal."""
    agent = view.turn.question.agent
    return ResponseShape(
        response_id=view.turn.id,
        conversation_id=conversation,
        agent=AgentShape(id=agent.id, name=agent.name) if agent else None,
        status=status_of(view),
        waiting_for_approval=waits_for_approval(view),
        waiting_for_answer=waits_for_answer(view),
        ahead=view.ahead,
        text=answer(view),
        error=view.turn.failure or None,
        messages=messages_of(view),
        tool_calls=calls_of(view),
        approvals=[approval_shape(view.turn, step, conversation, signed_by) for step in view.awaiting if step.approval],
        elicitations=elicitations_of(view, conversation, reader),
        created_at=format_time(view.turn.created_at),
    )
