"""Timeline of a turn: its replies, tool lines, approvals and elicitations in order, with status lines and actions.

Every section keeps its number from its first appearance on, so that delivery finds its message again. Actions are
offered for calls with an unknown outcome, and for messages that wait for another turn. The platform chooses buttons,
keys or commands for them; the engine has a method for each (`EngineApi`).
"""

from __future__ import annotations

import mimetypes
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import ClassVar, assert_never

from bot.domain.approvals import Approval
from bot.domain.elicitations import Elicitation
from bot.domain.messages import FilePart, ImageAudience, ImagePart, StoredFile, ToolResult
from bot.domain.tools import UNSURE
from bot.domain.turns import (
    BlockingTurn,
    CallOrigin,
    ModelStep,
    StepStatus,
    ToolStep,
    TurnStatus,
    TurnView,
    can_continue,
)
from bot.i18n import _, format_datetime, gettext_lazy, ngettext
from bot.rendering.tables import format_for_people, summarize
from bot.rendering.text_safety import single_line, strip_control

# -------------------- tool calls on one line, and the files that they returned
# The platform chooses the symbols. Each returned file is one slot of its turn, named by its step and its position, so
# that it is posted once.

SUMMARY_LIMIT = 72
NAME_LIMIT = 60
FILE_PREFIX = "file-"
"""Prefix of the slots of files."""
MOST_FILES = 20
_RETURNED = (StepStatus.DONE, StepStatus.FAILED)
_ENDINGS = {"image/webp": ".webp", "audio/flac": ".flac", "audio/mpeg": ".mp3", "audio/wav": ".wav"}
"""File endings that Python's own table has on some systems only."""
LEFT_OUT = "left out"
"""The reference of a file that the platform will never take: the turn is drawn without it."""


class StatusIcon(StrEnum):
    """Icon in front of a tool line."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    DENIED = "denied"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class ToolStatus:
    """Tool call on one line. All text is plain. `state` is empty if the icon is sufficient. `more` is the size of the
    rest of the `summary`: `+4 lines`.
    """

    mark: StatusIcon
    name: str
    state: str = ""
    summary: str = ""
    more: str = ""


_STATES = {
    StepStatus.AWAITING: (StatusIcon.WAITING, gettext_lazy("waits for approval")),
    StepStatus.ASKING: (StatusIcon.WAITING, gettext_lazy("waits for an answer")),
    StepStatus.EXPIRED: (StatusIcon.SKIPPED, gettext_lazy("timed out, not run")),
    StepStatus.CANCELLED: (StatusIcon.SKIPPED, gettext_lazy("cancelled, not run")),
    StepStatus.DONE: (StatusIcon.DONE, ""),
    StepStatus.FAILED: (StatusIcon.FAILED, gettext_lazy("failed")),
    StepStatus.UNKNOWN: (StatusIcon.UNKNOWN, gettext_lazy("may or may not have happened")),
}
_STOPPED = (StatusIcon.SKIPPED, gettext_lazy("stopped while running"))


def tool_status(step: ToolStep, view: TurnView) -> ToolStatus:
    """Return the status of a call: present tense while it runs, past tense after its end."""
    name = tool_name(step)
    match step.status:
        case StepStatus.AWAITING | StepStatus.ASKING | StepStatus.EXPIRED | StepStatus.CANCELLED:
            mark, unsent = _STOPPED if step.is_stopped else _STATES[step.status]
            return ToolStatus(mark, name, str(unsent))
        case StepStatus.READY | StepStatus.STARTED if step.pending_elicitations:
            return ToolStatus(StatusIcon.WAITING, name, str(_STATES[StepStatus.ASKING][1]))
        case StepStatus.READY | StepStatus.STARTED:
            moving = step.status is StepStatus.STARTED or step.n in view.running
            progress = single_line(view.progress.get(step.n, ""), SUMMARY_LIMIT)
            return ToolStatus(StatusIcon.RUNNING, name, _("running") if moving else _("about to run"), progress)
        case StepStatus.DENIED:
            return ToolStatus(StatusIcon.DENIED, name, *_denial(step))
        case StepStatus.DONE | StepStatus.FAILED:
            mark, sent = _STATES[step.status]
            state = ", ".join(filter(None, (str(sent), _granted_by(step))))
            return ToolStatus(mark, name, state, *_outcome_of(step.result))
        case StepStatus.UNKNOWN:
            mark, sent = _STATES[step.status]
            return ToolStatus(mark, name, str(sent), _reason(step.result))
        case _:
            assert_never(step.status)


def tool_name(step: ToolStep) -> str:
    """Return `server.tool`, or the name that the model invented."""
    if step.tool is None:
        return single_line(step.call.name, NAME_LIMIT)
    return single_line(f"{step.tool.server}.{step.tool.name}", NAME_LIMIT)


def _outcome_of(result: ToolResult | None) -> tuple[str, str]:
    """Return a result on one short line, and the size of the rest."""
    if result is None:
        return "", ""
    lines = [line for line in result.shown_text.splitlines() if line.strip()]
    first = single_line(lines[0], SUMMARY_LIMIT) if lines else ""
    if not result.for_people and (summary := summarize(result, SUMMARY_LIMIT)):
        return summary, ""
    if first in ("{", "[", "```", "---"):
        return ngettext("{n} line", "{n} lines", len(lines)), ""
    more = ngettext("+{n} line", "+{n} lines", len(lines) - 1) if len(lines) > 1 else ""
    return first or _attachments(result), more


def _reason(result: ToolResult | None) -> str:
    """Return the reason for an unknown outcome, without the part for the model."""
    return single_line(result.shown_text.partition(UNSURE)[0], SUMMARY_LIMIT) if result else ""


def _attachments(result: ToolResult) -> str:
    stored = [part for part in result.parts if isinstance(part, StoredFile)]
    images = sum(isinstance(part, ImagePart) for part in result.parts) + sum(file.is_image for file in stored)
    files = sum(isinstance(part, FilePart) for part in result.parts) + sum(not file.is_image for file in stored)
    counts = (
        ngettext("{n} image", "{n} images", images) if images else "",
        ngettext("{n} file", "{n} files", files) if files else "",
    )
    return ", ".join(filter(None, counts))


def denial_reason(approval: Approval) -> str:
    """Return the reason of a denial. The program's own is stored in English, for the model, and shown translated."""
    return approval.reason if approval.decided_by or not approval.reason else _(approval.reason)


def _denial(step: ToolStep) -> tuple[str, str, str]:
    """Return the state of a denied call, with the parts of its summary."""
    approval = step.approval
    decider = single_line(approval.decided_by, 40) if approval else ""
    if not decider and (approval is None or step.result is not None):
        return (_("denied"), *_outcome_of(step.result))
    reason = single_line(denial_reason(approval), SUMMARY_LIMIT) if approval else ""
    if not decider:
        return _("not approved, not run"), reason, ""
    if not reason:
        return _("denied"), _("by {name}", name=decider), ""
    return _("denied"), _("by {name}: {reason}", name=decider, reason=reason), ""


def _granted_by(step: ToolStep) -> str:
    """Return the author of the grant that replaced an approval."""
    if step.grant is None:
        return ""
    name = single_line(step.grant.name, 40) or single_line(step.grant.by, 40)
    if step.grant.until is None:
        return _("allowed by {name}", name=name)
    return _("allowed by {name} until {time}", name=name, time=format_datetime(step.grant.until))


@dataclass(frozen=True, slots=True)
class ToolFile:
    """One file. `read` gives its bytes; it raises NotFound if they are gone."""

    slot: str
    name: str
    read: Callable[[], Awaitable[bytes]]


def returned_files(view: TurnView, largest: int) -> tuple[ToolFile, ...]:
    """Return the files of a turn in order, at most MOST_FILES, without those larger than `largest` bytes and those that
    are for the model alone.
    """
    return tuple(_files(view, largest))[:MOST_FILES]


def _files(view: TurnView, largest: int) -> Iterator[ToolFile]:
    for step in view.steps:
        if not isinstance(step, ToolStep) or step.result is None or step.status not in _RETURNED:
            continue
        for place, part in enumerate(step.result.parts):
            if view.read is None or not isinstance(part, StoredFile) or not part.id:
                continue
            if 0 < part.size <= largest and part.readers is not ImageAudience.MODEL:
                ending = _ENDINGS.get(part.mime_type) or mimetypes.guess_extension(part.mime_type) or ""
                name = part.name or f"{tool_name(step)}{ending}"
                yield ToolFile(f"{FILE_PREFIX}{step.n}-{place}", name, partial(view.read, part.id))


# -------------------- actions


@dataclass(frozen=True, slots=True)
class CheckCallAction:
    """Ask the model to check if call `n` of a turn has run."""

    label: ClassVar[str] = gettext_lazy("Check")
    turn_id: str
    n: int


@dataclass(frozen=True, slots=True)
class RunAgainAction:
    """Run call `n` of a turn once more, after a new approval."""

    label: ClassVar[str] = gettext_lazy("Run again")
    turn_id: str
    n: int


@dataclass(frozen=True, slots=True)
class StopTurnAction:
    """Stop the turn that holds the conversation."""

    label: ClassVar[str] = gettext_lazy("Stop what is ahead")
    turn_id: str


@dataclass(frozen=True, slots=True)
class ContinueTurnAction:
    """Ask the model to go on where a turn was stopped."""

    label: ClassVar[str] = gettext_lazy("Continue")
    turn_id: str


Offer = CheckCallAction | RunAgainAction | StopTurnAction | ContinueTurnAction


def available_actions(view: TurnView) -> tuple[Offer, ...]:
    """Return the actions to offer beside this view."""
    of_calls = [offer for step in _calls(view) for offer in offers_of_call(view.turn.id, step)]
    if can_continue(view):
        return (ContinueTurnAction(view.turn.id), *of_calls)
    return (*of_calls, *(offers_behind(view.blocker) if view.turn.status is TurnStatus.QUEUED else ()))


def offers_of_call(turn_id: str, step: ToolStep) -> tuple[CheckCallAction | RunAgainAction, ...]:
    """Return the actions for a call with an unknown outcome; none for other calls."""
    if step.status is not StepStatus.UNKNOWN:
        return ()
    return CheckCallAction(turn_id, step.n), RunAgainAction(turn_id, step.n)


def offers_behind(blocker: BlockingTurn | None) -> tuple[StopTurnAction, ...]:
    """Return the actions for a message that waits behind an approval or an elicitation."""
    return (StopTurnAction(blocker.turn_id),) if blocker is not None and _awaits_user(blocker) else ()


def call_to_check(views: Sequence[TurnView]) -> CheckCallAction | None:
    """Return the newest call of unknown outcome in a conversation. `views` are oldest first."""
    matching = (
        CheckCallAction(view.turn.id, step.n) for view, step in _newest(views) if step.status is StepStatus.UNKNOWN
    )
    return next(matching, None)


def call_to_run_again(views: Sequence[TurnView]) -> RunAgainAction | None:
    """Return the newest call of a conversation that has an unknown outcome or was denied, has expired or failed when it
    was run again. `views` are oldest first.
    """
    for view, step in _newest(views):
        is_repeated = view.turn.question.again and step.status.ended and step.status is not StepStatus.DONE
        if is_repeated or step.status is StepStatus.UNKNOWN:
            return RunAgainAction(view.turn.id, step.n)
    return None


def blocking_turn(views: Sequence[TurnView]) -> StopTurnAction | None:
    """Return the turn that blocks a conversation. `views` are oldest first."""
    return next((StopTurnAction(view.turn.id) for view in views if not view.turn.status.ended), None)


def waiting_text(view: TurnView) -> str:
    """Return the reason that a queued turn waits; empty for any other turn."""
    if view.turn.status is not TurnStatus.QUEUED or not view.ahead:
        return ""
    if view.blocker is None or not _awaits_user(view.blocker):
        return ngettext("Waiting behind {n} earlier message", "Waiting behind {n} earlier messages", view.ahead)
    others = view.ahead - 1
    if view.blocker.awaits_approval:
        if not others:
            return _("Waiting behind an approval")
        return ngettext(
            "Waiting behind an approval and {n} earlier message",
            "Waiting behind an approval and {n} earlier messages",
            others,
        )
    if not others:
        return _("Waiting behind a question of a server")
    return ngettext(
        "Waiting behind a question of a server and {n} earlier message",
        "Waiting behind a question of a server and {n} earlier messages",
        others,
    )


def _awaits_user(blocker: BlockingTurn) -> bool:
    return blocker.awaits_approval or blocker.awaits_answer


def _newest(views: Sequence[TurnView]) -> Iterator[tuple[TurnView, ToolStep]]:
    return ((view, step) for view in reversed(views) for step in reversed(_calls(view)))


def _calls(view: TurnView) -> list[ToolStep]:
    return [step for step in view.steps if isinstance(step, ToolStep)]


# -------------------- entries

NOTE_LIMIT = 500
REASON_LIMIT = 300
SECOND_TRY = gettext_lazy("It may have run before. Approving runs it again.")
STOPPED = gettext_lazy("Stopped.")
FAILED = gettext_lazy("Something went wrong.")


@dataclass(frozen=True, slots=True)
class ReplyText:
    """A reply of the model, Markdown as it wrote it; `growing` while it writes."""

    text: str
    growing: bool = False


@dataclass(frozen=True, slots=True)
class CallLine:
    """A tool call, by the number of its step."""

    n: int
    line: ToolStatus


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """Result of a call that a user ran by hand, which the model does not report. `raw` is the text for scripts."""

    text: str
    failed: bool = False
    raw: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence beside the replies, on one line."""

    text: str


@dataclass(frozen=True, slots=True)
class ActivityLine:
    """Current activity; it is not part of the finished timeline."""

    text: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no answer, and the reference under which it is logged."""

    text: str
    reference: str


Entry = ReplyText | CallLine | ToolOutput | Note | ActivityLine | Failure


@dataclass(frozen=True, slots=True)
class TimelineSection:
    """Replies and calls without an approval. The first has number 0 and may be empty at the start."""

    number: int
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class ApprovalEntry:
    """Calls of one reply that needed an approval, with any outcome. `number` is the step of the first, `reason` the
    model's text with it, on one line.
    """

    number: int
    calls: tuple[ToolStep, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ElicitationEntry:
    """Elicitations of one call, in order, answered or not. `number` is the call's step."""

    number: int
    step: ToolStep
    elicitations: tuple[Elicitation, ...]


TimelineEntry = TimelineSection | ApprovalEntry | ElicitationEntry

_END = {
    StepStatus.AWAITING: StepStatus.CANCELLED,
    StepStatus.READY: StepStatus.CANCELLED,
    StepStatus.STARTED: StepStatus.UNKNOWN,
    StepStatus.ASKING: StepStatus.CANCELLED,
}
"""Statuses of unfinished calls after the end of their turn."""


def timeline(view: TurnView) -> tuple[TimelineEntry, ...]:
    """Return the whole turn in order. A section comes first, even if empty. Elicitations follow the entry of their
    call.
    """
    reader = _Reader()
    for entry in entries(view):
        reader.add_entry(entry)
    return reader.finish()


def last_state(step: ToolStep, view: TurnView) -> ToolStep:
    """Return the final state of a call of an ended turn."""
    if not view.turn.status.ended or step.status.ended:
        return step
    return replace(step, status=_END[step.status])


def answer(view: TurnView) -> str:
    """Return the answer of a turn: its last reply so far, or the result of a call that was run by hand."""
    if view.turn.question.call is not None:
        done = [step for step in _calls(view) if step.status is StepStatus.DONE]
        calls = [step for step in done if step.origin is not CallOrigin.PREVIEW]
        return calls[-1].result.text if calls and calls[-1].result else ""
    if view.streaming and not view.turn.status.ended:
        return view.streaming
    replies = [step.message.text for step in view.steps if isinstance(step, ModelStep)]
    return replies[-1] if replies else ""


def reference(turn_id: str) -> str:
    """Return the reference of a turn for reports by users."""
    return turn_id[:8]


class _Reader:
    """Collects entries into sections. Calls of a reply that need an approval follow its section, and elicitations
    follow those.
    """

    def __init__(self) -> None:
        self._parts: list[TimelineEntry] = []
        self._entries: list[Entry] = []
        self._asked: list[ToolStep] = []
        self._inquired: list[ElicitationEntry] = []
        self._reason = ""

    def add_entry(self, entry: Entry | ModelStep | ToolStep | ElicitationEntry) -> None:
        match entry:
            case ToolStep():
                self._asked.append(entry)
            case ElicitationEntry():
                self._inquired.append(entry)
            case CallLine():
                self._entries.append(entry)
            case ModelStep():
                if self._asked or self._inquired:
                    self._close()
                self._reason = single_line(entry.message.text, REASON_LIMIT)
            case _:
                if self._asked or self._inquired:
                    self._close()
                self._entries.append(entry)

    def finish(self) -> tuple[TimelineEntry, ...]:
        self._close()
        return tuple(self._parts) or (TimelineSection(0),)

    def _close(self) -> None:
        if self._entries or not self._parts:
            number = sum(isinstance(part, TimelineSection) for part in self._parts)
            self._parts.append(TimelineSection(number, tuple(self._entries)))
        if self._asked:
            self._parts.append(ApprovalEntry(self._asked[0].n, tuple(self._asked), self._reason))
        self._parts += self._inquired
        self._entries, self._asked, self._inquired, self._reason = [], [], [], ""


def entries(view: TurnView) -> Iterator[Entry | ModelStep | ToolStep | ElicitationEntry]:
    """Yield the entries of a turn in order, each reply behind its step, each call that needed an approval, and the
    elicitations of each call.
    """
    turn = view.turn
    if turn.question.may_have_run and not turn.status.ended:
        yield Note(str(SECOND_TRY))
    for step in view.steps:
        match step:
            case ModelStep():
                yield step
                yield from _reply_texts(step.message.text)
                yield from (Note(single_line(note, NOTE_LIMIT)) for note in step.notes if note.strip())
            case ToolStep() if step.origin is not CallOrigin.PREVIEW:  # its text is on the card
                yield from _call_entries(last_state(step, view), view)
    yield from _ending(view)


def _ending(view: TurnView) -> Iterator[Entry]:
    match view.turn.status:
        case TurnStatus.QUEUED if text := waiting_text(view):
            yield ActivityLine(text)
        case TurnStatus.QUEUED | TurnStatus.RUNNING | TurnStatus.WAITING:
            yield from (replace(passage, growing=True) for passage in _reply_texts(view.streaming))
            if not view.streaming.strip() and (activity := single_line(str(view.activity), NOTE_LIMIT)):
                yield ActivityLine(activity)
        case TurnStatus.CANCELLED:
            yield Note(single_line(view.turn.failure, NOTE_LIMIT) or str(STOPPED))
        case TurnStatus.FAILED:
            yield Failure(single_line(view.turn.failure, NOTE_LIMIT) or str(FAILED), reference(view.turn.id))
        case TurnStatus.DONE:
            return


def _reply_texts(text: str) -> Sequence[ReplyText]:
    return (ReplyText(text),) if text.strip() else ()


def _call_entries(step: ToolStep, view: TurnView) -> Iterator[Entry | ToolStep | ElicitationEntry]:
    line = tool_status(step, view)
    text = step.result.text.strip() if step.result else ""
    by_hand = view.turn.question.call is not None and text and step.status in (StepStatus.DONE, StepStatus.FAILED)
    yield CallLine(step.n, replace(line, summary="", more="") if by_hand else line)
    if step.approval is not None:
        yield step
    if step.elicitations:
        yield ElicitationEntry(step.n, step, step.elicitations)
    if by_hand:
        shown = format_for_people(step.result) if step.result else text
        yield ToolOutput(shown, step.status is StepStatus.FAILED, text)


# -------------------- texts

WORKING = gettext_lazy("Working")
AI_NOTICE = gettext_lazy("AI answer. Check before acting.")
RETURNED_LIMIT = 3_000
ON_ITS_CARD = gettext_lazy("see its card")
MARKS = {
    StatusIcon.WAITING: "◇",
    StatusIcon.RUNNING: "◌",
    StatusIcon.DONE: "✓",
    StatusIcon.FAILED: "✗",
    StatusIcon.DENIED: "⊘",
    StatusIcon.UNKNOWN: "?",
    StatusIcon.SKIPPED: "\N{EN DASH}",
}
_QUIET = (StatusIcon.DONE, StatusIcon.RUNNING)


def tool_text(line: ToolStatus) -> str:
    """Format a tool call on one line: `✓ notes.add_note Added note 3`."""
    state = line.state if line.mark not in _QUIET or not line.summary else ""
    more = f" ({line.more})" if line.more else ""
    text = "  ".join(part for part in (line.name, state, line.summary) if part)
    return f"{MARKS[line.mark]} {text}{more}"


def busy_text(text: str) -> str:
    """Return the current activity, one line."""
    return f"{MARKS[StatusIcon.RUNNING]} {text}"


def activity_text(view: TurnView) -> str:
    """Return what a running turn does, in a few words."""
    if view.streaming.strip():
        return _("Writing the answer")
    running = [step for step in _calls(view) if step.n in view.running]
    if running:
        return _("Using {tool}", tool=tool_name(running[-1]))
    return single_line(str(view.activity), NAME_LIMIT) or str(WORKING)


def truncate_output(text: str) -> str:
    """Return the text from a tool, cut to the size for a message."""
    text = strip_control(text).strip()
    if len(text) <= RETURNED_LIMIT:
        return text
    more = ngettext("… {n} more character", "… {n} more characters", len(text) - RETURNED_LIMIT)
    return f"{text[:RETURNED_LIMIT].rstrip()}\n{more}"


def drop_repeats(entries: Iterable[Entry], view: TurnView, *, is_settled: bool) -> Iterator[Entry]:
    """Drop results that a card already shows. Drop the status of such a call, too, until the turn is settled, because
    each change of it would be one more edit.
    """
    with_card = {step.n for step in view.steps if isinstance(step, ToolStep) and _has_card(step)}
    for entry in entries:
        if isinstance(entry, CallLine) and entry.n in with_card:
            line = replace(entry.line, summary="", more="")
            unsettled = ToolStatus(StatusIcon.WAITING, line.name, str(ON_ITS_CARD))
            yield replace(entry, line=line if is_settled else unsettled)
        else:
            yield entry


def offer_label(offer: Offer, view: TurnView) -> str:
    """Return the label of an offer's button, with the call's name if there are several calls."""
    match offer:
        case StopTurnAction() | ContinueTurnAction():
            return str(offer.label)
        case CheckCallAction(n=n) | RunAgainAction(n=n):
            unsure = [action.n for action in available_actions(view) if isinstance(action, CheckCallAction)]
            name = next((tool_name(step) for step in _calls(view) if step.n == n), str(n))
            return f"{offer.label}: {name}" if len(unsure) > 1 else str(offer.label)


def _has_card(step: ToolStep) -> bool:
    """Return True if the step has a card. A denial with a result, and without an author, means that the card could not
    be posted.
    """
    if step.approval is None:
        return False
    return step.status is not StepStatus.DENIED or bool(step.approval.decided_by) or step.result is None
