"""Events of a turn for programs, over HTTP and as lines of `--json`: differences between the client's view and the
current one.

    event                 data
    init                  the response and its state (`OpeningShape`)
    conversation_status   its state (`TurnStateShape`)
    message               a piece of a reply: `delta` at `offset`; the whole with `notes` in the last one
                          (`ReplyPieceShape`)
    model_retry           the model is asked again (`ModelRetryShape`)
    tool_call_update      a call with its status (`CallUpdateShape`)
    approval_required     a pending call (`ApprovalShape`)
    elicitation_required  an open elicitation, for the user who asked (`ElicitationShape`)
    elicitation_settled   the same after its end
    error                 the reason for a missing answer (`StreamErrorShape`)
    done                  the whole response (`ResponseShape`), as the last event

Views may be skipped, so events are states, not a history: a call that was approved and has ended since the last view is
one event. Every event carries the position after it, small enough for an event id: `Last-Event-ID` is all that a stream
needs to resume, in any process, without repeats. It is untrusted, and only affects the events that this client gets.
Retries of the model and the progress of calls are live only.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from pydantic.json_schema import models_json_schema

from bot.domain.elicitations import Elicitation
from bot.domain.turns import ModelRetry, ModelStep, StepStatus, ToolStep, TurnStatus, TurnView
from bot.i18n import _
from bot.rendering.response_models import (
    ApprovalShape,
    CallUpdateShape,
    ElicitationShape,
    MessageStatus,
    ModelRetryShape,
    OpeningShape,
    ReplyPieceShape,
    ResponseModel,
    ResponseShape,
    SignedBy,
    StreamErrorShape,
    TurnStateShape,
    approval_shape,
    elicitation_shape,
    response_shape,
    status_of,
    step_id,
    tool_call_shape,
    waits_for_answer,
    waits_for_approval,
    waits_its_turn,
)

NOTHING = "-"
OVER = "x"
_CODE = r"[a-z][0-9]{0,6}(?:_[0-9]{1,6})?"
_FORM = re.compile(
    rf"([A-Za-z0-9_-]{{1,64}})\.([-a-z][0-9]{{0,6}})\.([0-9]{{1,9}})\.([0-9a-f]{{8}})\.((?:{_CODE}){{0,1000}})"
)
REMEMBERED = 16
"""Number of latest elicitations of a call that a cursor tracks."""
_BITS = (1 << REMEMBERED) - 1
_NUMBERED = re.compile(r"([b-vx-z])([0-9]+)_([0-9]+)")
"""Codes with counts. The other letters are codes of pending calls with other numbers."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in the events of a turn.

    `state` is the last code of the turn, `steps` has one code for each step in order (see `_CALLS`). `length` and
    `check` are the number of characters sent of the current reply and their checksum, because a restarted reply may
    differ.
    """

    turn_id: str
    state: str = NOTHING
    steps: tuple[str, ...] = ()
    length: int = 0
    check: int = 0

    def __str__(self) -> str:
        return f"{self.turn_id}.{self.state}.{self.length}.{self.check:08x}.{''.join(self.steps)}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Parse the text form. Raises ValueError."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise ValueError("not a cursor")
        turn_id, state, length, check, steps = match.groups()
        return cls(turn_id, state, tuple(re.findall(_CODE, steps)), int(length), int(check, 16))

    @property
    def is_over(self) -> bool:
        """True if all events were sent."""
        return self.state == OVER

    def continues(self, text: str) -> bool:
        """Return True if this text begins with the part that was sent."""
        return len(text) >= self.length and _checksum(text[: self.length]) == self.check


def _checksum(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class ElicitationCursor:
    """Position of a client in the elicitations of one call: their number, and a bit mask of the last `REMEMBERED` that
    were sent as open, the last one in the lowest bit.
    """

    count: int = 0
    waiting: int = 0

    @classmethod
    def parse(cls, code: str) -> tuple[str, ElicitationCursor]:
        """Split the code of a call into its own code and this position."""
        match = _NUMBERED.fullmatch(code)
        return (match[1], cls(int(match[2]), int(match[3]))) if match is not None else (code, cls())

    def format(self, code: str) -> str:
        """Append the position to the code of a call; unchanged without elicitations."""
        return f"{code}{self.count}_{self.waiting}" if self.count else code

    def changes(self, elicitations: Sequence[Elicitation]) -> Iterator[tuple[Elicitation | None, ElicitationCursor]]:
        """Yield each elicitation that has ended or opened since, with the position after it. One that opened and ended
        meanwhile is None.
        """
        cursor = self
        for behind, elicitation in enumerate(reversed(elicitations[: cursor.count])):
            if not elicitation.open and cursor.waiting >> behind & 1:
                cursor = ElicitationCursor(cursor.count, cursor.waiting & ~(1 << behind))
                yield elicitation, cursor
        for elicitation in elicitations[cursor.count :]:
            cursor = ElicitationCursor(cursor.count + 1, (cursor.waiting << 1 | elicitation.open) & _BITS)
            yield elicitation if elicitation.open else None, cursor


EVENTS: Mapping[str, type[ResponseModel]] = {
    "init": OpeningShape,
    "conversation_status": TurnStateShape,
    "message": ReplyPieceShape,
    "model_retry": ModelRetryShape,
    "tool_call_update": CallUpdateShape,
    "approval_required": ApprovalShape,
    "elicitation_required": ElicitationShape,
    "elicitation_settled": ElicitationShape,
    "error": StreamErrorShape,
    "done": ResponseShape,
}
"""Names of events, and their data."""
_ENDS = {TurnStatus.DONE: "d", TurnStatus.CANCELLED: "c", TurnStatus.FAILED: "f"}
_FAILURE_SENT = "e"
_QUEUED = "q"
"""Code of a queued turn, followed by the number of turns ahead of it."""
_REPLY_SENT = "m"
"""Code of a reply that was sent completely."""
_AWAITING, _APPROVAL_SENT = "w", "a"
"""Codes of a call that waits, followed by revision and number of approvals, before and after its approval was sent."""
_CALLS = {
    StepStatus.READY: "s",
    StepStatus.STARTED: "s",
    StepStatus.ASKING: "q",
    StepStatus.DONE: "d",
    StepStatus.FAILED: "f",
    StepStatus.DENIED: "n",
    StepStatus.EXPIRED: "e",
    StepStatus.CANCELLED: "c",
    StepStatus.UNKNOWN: "u",
}


def event_schemas(reference: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the JSON Schema of each event, an object of `event` and `data`, and the definitions that they refer to.
    `reference` is the address of the definition `{model}`.
    """
    models = [(model, "serialization") for model in dict.fromkeys(EVENTS.values())]
    references, definitions = models_json_schema(models, ref_template=reference)  # type: ignore[arg-type]
    events = [
        {
            "type": "object",
            "properties": {
                "event": {"const": name},
                "data": references[model, "serialization"],
                "id": {"type": "string", "description": "Over HTTP: the position for `Last-Event-ID`."},
            },
            "required": ["event", "data"],
        }
        for name, model in EVENTS.items()
    ]
    return events, definitions["$defs"]


def event_schema() -> dict[str, Any]:
    """Return the JSON Schema of an event, as `docs/turn-events.schema.json` publishes it."""
    events, definitions = event_schemas("#/$defs/{model}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Event of a turn",
        "description": "An event of a response over HTTP, and a line of `countersign chat --json`.",
        "oneOf": events,
        "$defs": definitions,
    }


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event. `cursor` is the client's position after it."""

    name: str
    data: Mapping[str, Any]
    cursor: Cursor


@dataclass(slots=True)
class EventEncoder:
    """Encoder of a turn's events for one client. `conversation` is the public id, `opening` has extra fields of `init`,
    `reader` is the client's principal, `cursor` the client's position. Progress of running calls is sent live and not
    repeated.
    """

    conversation: str
    signed_by: SignedBy
    cursor: Cursor
    opening: Mapping[str, Any] = field(default_factory=dict)
    reader: str = ""
    _progress: dict[int, str] = field(default_factory=dict)
    _retry: str | ModelRetry = ""

    def encode(self, view: TurnView) -> Iterator[StreamEvent]:
        """Yield the events that are new in this view; no events after the end."""
        if self.cursor.is_over:
            return
        if self.cursor.state == NOTHING:
            opening = OpeningShape(**self._state_fields(view), **self.opening)
            yield self._event("init", opening, state=_state(view, opening=True))
        for index, step in enumerate(view.steps):
            match step:
                case ModelStep():
                    yield from self._reply(view, index, step)
                case ToolStep():
                    yield from self._call(view, index, step)
                case _:
                    assert_never(step)
        if view.turn.status.ended:
            yield from self._end(view)
            return
        # A turn that has begun is not reported as queued again.
        is_requeued = waits_its_turn(view) and not self.cursor.state.startswith((NOTHING, _QUEUED))
        if self.cursor.state != _state(view) and not is_requeued:
            yield self._event("conversation_status", TurnStateShape(**self._state_fields(view)), state=_state(view))
        if view.streaming:
            yield from self._partial_reply(view)
        if isinstance(view.activity, ModelRetry) and view.activity != self._retry:
            retry = view.activity
            yield self._event(
                "model_retry", ModelRetryShape(**self._ids(view), seconds=retry.seconds, reason=_(retry.reason))
            )
        self._retry = view.activity

    def _event(self, name: str, data: ResponseModel, **cursor_fields: Any) -> StreamEvent:
        self.cursor = replace(self.cursor, **cursor_fields)
        # The fields of these belong to some of their events only.
        is_sparse = isinstance(data, OpeningShape | ReplyPieceShape)
        return StreamEvent(name, data.model_dump(by_alias=True, mode="json", exclude_unset=is_sparse), self.cursor)

    def _ids(self, view: TurnView) -> dict[str, str]:
        return {"response_id": view.turn.id, "conversation_id": self.conversation}

    def _state_fields(self, view: TurnView) -> dict[str, Any]:
        return {
            **self._ids(view),
            "status": status_of(view),
            "waiting_for_approval": waits_for_approval(view),
            "waiting_for_answer": waits_for_answer(view),
            "ahead": view.ahead,
        }

    # ------------------------------------------------------------------ replies

    def _reply(self, view: TurnView, index: int, step: ModelStep) -> Iterator[StreamEvent]:
        if index < len(self.cursor.steps):
            return
        text = step.message.text
        if text or step.notes or self.cursor.length:
            piece = self._piece(view, step.n, text, MessageStatus.COMPLETED, content=text, notes=list(step.notes))
            yield self._event("message", piece, steps=(*self.cursor.steps, _REPLY_SENT), length=0, check=0)
        else:
            self.cursor = replace(self.cursor, steps=(*self.cursor.steps, _REPLY_SENT), length=0, check=0)

    def _partial_reply(self, view: TurnView) -> Iterator[StreamEvent]:
        text = view.streaming
        if self.cursor.continues(text) and len(text) == self.cursor.length:
            return
        n = view.steps[-1].n + 1 if view.steps else 1
        piece = self._piece(view, n, text, MessageStatus.IN_PROGRESS)
        yield self._event("message", piece, length=len(text), check=_checksum(text))

    def _piece(self, view: TurnView, n: int, text: str, status: MessageStatus, **whole: Any) -> ReplyPieceShape:
        sent = self.cursor.length if self.cursor.continues(text) else 0
        return ReplyPieceShape(
            id=step_id(view.turn, n),
            response_id=view.turn.id,
            conversation_id=self.conversation,
            role="ASSISTANT",
            output_index=n,
            status=status,
            offset=sent,
            delta=text[sent:],
            **whole,
        )

    # ------------------------------------------------------------------ calls

    def _call(self, view: TurnView, index: int, step: ToolStep) -> Iterator[StreamEvent]:
        before = self.cursor.steps[index] if index < len(self.cursor.steps) else ""
        sent, elicitations = ElicitationCursor.parse(before)
        code, progress = _code(step), view.progress.get(step.n, "")
        if sent not in (code, _code_after_approval(code)):
            yield self._call_update(view, index, step, elicitations.format(code))
        elif progress and not step.status.ended and self._progress.get(step.n) != progress:
            yield self._call_update(view, index, step, before)
        self._progress[step.n] = progress
        approval = step.approval
        if step.status is StepStatus.AWAITING and approval is not None and self.cursor.steps[index] == code:
            shape = approval_shape(view.turn, step, self.conversation, self.signed_by)
            steps = _replace_code(self.cursor.steps, index, _code_after_approval(code))
            yield self._event("approval_required", shape, steps=steps)
        yield from self._elicitations(view, index, step, code)

    def _elicitations(self, view: TurnView, index: int, step: ToolStep, code: str) -> Iterator[StreamEvent]:
        _, sent = ElicitationCursor.parse(self.cursor.steps[index])
        for elicitation, after in sent.changes(step.elicitations):
            steps = _replace_code(self.cursor.steps, index, after.format(code))
            if elicitation is None:
                self.cursor = replace(self.cursor, steps=steps)
                continue
            name = "elicitation_required" if elicitation.open else "elicitation_settled"
            shape = elicitation_shape(view.turn, step, elicitation, self.conversation, self.reader)
            yield self._event(name, shape, steps=steps)

    def _call_update(self, view: TurnView, index: int, step: ToolStep, code: str) -> StreamEvent:
        shape = tool_call_shape(view.turn, step, view.progress.get(step.n))
        update = CallUpdateShape(**dict(shape), conversation_id=self.conversation)
        return self._event("tool_call_update", update, steps=_replace_code(self.cursor.steps, index, code))

    # ------------------------------------------------------------------ the end

    def _end(self, view: TurnView) -> Iterator[StreamEvent]:
        state = _state(view)
        if self.cursor.state not in (state, _FAILURE_SENT):
            yield self._event("conversation_status", TurnStateShape(**self._state_fields(view)), state=state)
        if view.turn.status is TurnStatus.FAILED and self.cursor.state != _FAILURE_SENT:
            failure = StreamErrorShape(code="response_failed", message=view.turn.failure, **self._ids(view))
            yield self._event("error", failure, state=_FAILURE_SENT)
        shape = response_shape(view, self.conversation, self.signed_by, self.reader)
        yield self._event("done", shape, state=OVER)


def _state(view: TurnView, *, opening: bool = False) -> str:
    """Return the code of a turn. `init` includes the state unless the turn has ended: the end is sent after the events
    that led to it.
    """
    if waits_its_turn(view):
        return f"{_QUEUED}{view.ahead}"
    if view.turn.status.ended:
        return "i" if opening else _ENDS[view.turn.status]
    match waits_for_approval(view), waits_for_answer(view):
        case True, True:
            return "b"
        case approval, answer:
            return "w" if approval else "n" if answer else "r"


def _code(step: ToolStep) -> str:
    if step.status is not StepStatus.AWAITING:
        return _CALLS[StepStatus.ASKING if step.pending_elicitations else step.status]
    approval = step.approval
    signed = f"_{len(approval.approver_names)}" if approval is not None and approval.approver_names else ""
    return f"{_AWAITING}{approval.revision if approval is not None else 0}{signed}"


def _code_after_approval(code: str) -> str:
    return f"{_APPROVAL_SENT}{code[1:]}" if code.startswith(_AWAITING) else code


def _replace_code(steps: tuple[str, ...], index: int, code: str) -> tuple[str, ...]:
    return (*steps[:index], code, *steps[index + 1 :])
