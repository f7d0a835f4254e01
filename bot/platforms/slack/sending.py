"""Delivery of a turn's messages: post once, edit afterwards, stream while the model writes; with the status and title
of its thread, and a reaction to its question.

Messages unfurl no links. The metadata of a post names its turn and message, so that it can be found in the thread.

Streaming is optional: the message is edited to its final blocks however its stream ended. Slack ends a stream five
minutes after its start and rejects one above about ten thousand bytes; `StreamManager` stays below both limits. Only
the process that started a stream knows it; other processes edit the message.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from time import monotonic
from typing import Any

from bot.chat.delivery import MessageOwner, require_ref
from bot.chat.turn_messages import NO_REFS, AnswerPage, answer_pages, answer_segments, last_section, shown_timeline
from bot.chat.users import RecentEntries
from bot.domain.conversations import ConversationKey
from bot.domain.turns import MessageRefs, StepStatus, ToolStep, Turn, TurnStatus, TurnView
from bot.errors import DeliveryFailed
from bot.i18n import _, gettext_lazy
from bot.platforms.slack.blocks import TASK_TEXT, OutgoingMessage
from bot.platforms.slack.message_blocks import ANSWER_LIMITS
from bot.platforms.slack.web_api import (
    MessageRef,
    SlackConnectionError,
    SlackWebApiError,
    WebApi,
    object_in,
    text_in,
)
from bot.rendering.approval_card import call_title
from bot.rendering.markdown import sanitize, sanitize_partial, text_weight
from bot.rendering.text_safety import ELLIPSIS, single_line
from bot.rendering.timeline import CallLine, ReplyText, StatusIcon, TimelineSection, last_state

log = logging.getLogger(__name__)

EVENT_TYPE = "countersign_turn"
LATEST = 200
"""Messages of one page, and those of a channel among which a message is looked up."""
MOST_PAGES = 5
LONGEST_TEXT = 3_990
"""Bytes of `text` in an edit, with room for an ellipsis. Slack names 4,000 without a unit."""
SET_STATUS = "assistant.threads.setStatus"
RENAME = "agents.sessions.rename"
SET_SESSION = "agents.sessions.setStatus"
ACTIVE = "active"
EYES = "eyes"
STATUS_LIMIT = 100
TITLE_LIMIT = 60
STATUS_SECONDS = 90.0
"""Seconds after which an unchanged status is sent again: Slack clears it after two minutes."""
MOST_STATUSES = 1000
_HALF_ENTITY = re.compile(r"&[a-z]{0,3}$")
_GONE = frozenset({"message_not_found", "cant_update_message", "edit_window_closed"})
_UNCLEAR = frozenset({"internal_error", "fatal_error", "request_timeout", "service_unavailable"})
"""Slack's own words for: something of it may have happened."""
_DONE = frozenset({"already_reacted", "no_reaction", "message_not_found"})
_TOO_MUCH = frozenset({"invalid_blocks", "invalid_blocks_format", "msg_too_long", "msg_blocks_too_long"})


class SlackMessages:
    """Posts, edits and lookups of messages."""

    def __init__(self, api: WebApi) -> None:
        self._api = api

    async def create(self, owner: MessageOwner, message: OutgoingMessage, replaced: str) -> str:
        """Post a message in the thread of its owner, or in its channel. A replacement notifies no user."""
        blocks = message.silent if replaced and message.silent else message.blocks
        conversation = owner.conversation
        channel, thread = (message.place, "") if message.place else (conversation.channel, conversation.thread)
        metadata = {"event_type": EVENT_TYPE, "event_payload": {"turn": owner.id, "slot": message.name}}
        text = _text(message)
        return str(await self._api.post_message(channel, thread, text=text, blocks=blocks, metadata=metadata))

    async def update(self, owner: MessageOwner, message: OutgoingMessage, ref: str) -> None:  # noqa: ARG002
        """Edit a message. A stream that this or another process did not finish is stopped first."""
        posted = require_ref(MessageRef.parse(ref))
        for _attempt in range(2):
            try:
                await self._api.edit(
                    "chat.update",
                    channel=posted.channel,
                    ts=posted.ts,
                    text=_text(message),
                    blocks=list(message.blocks),
                )
            except SlackWebApiError as error:
                if error.code != "streaming_state_conflict":
                    raise
                await self._stop_stream(posted)
            else:
                return
        raise SlackWebApiError(
            "streaming_state_conflict", gettext_lazy("Slack still streams that message."), retry_after=5.0
        )

    async def remove(self, ref: str) -> None:
        """Delete a message, unless it is gone."""
        posted = require_ref(MessageRef.parse(ref))
        try:
            await self._api.edit("chat.delete", channel=posted.channel, ts=posted.ts)
        except SlackWebApiError as error:
            if error.code not in (*_GONE, "cant_delete_message"):
                raise

    async def find(self, owner: MessageOwner, message: OutgoingMessage, taken: Collection[str]) -> str:  # noqa: ARG002
        """Return the ref of the message with these metadata, in its thread or among the latest of its channel. It is
        not found either if the bot may not read there: a duplicate is better than a missing message.
        """
        conversation = owner.conversation
        if not (message.place or conversation.thread):
            return ""
        method = "conversations.history" if message.place else "conversations.replies"
        pages = self._api.pages(
            method,
            "messages",
            most=1 if message.place else MOST_PAGES,
            channel=message.place or conversation.channel,
            ts=None if message.place else conversation.thread,
            include_all_metadata="true",
            limit=LATEST,
        )
        try:
            identity = await self._api.identity()
            async with aclosing(pages):
                async for messages in pages:
                    for posted in messages:
                        payload = object_in(object_in(posted, "metadata"), "event_payload")
                        is_same = (payload.get("turn"), payload.get("slot")) == (owner.id, message.name)
                        if is_same and posted.get("user") == identity.user:
                            return str(MessageRef(message.place or conversation.channel, text_in(posted, "ts")))
        except DeliveryFailed as failure:
            if not failure.permanent:
                raise
        return ""

    def digest(self, message: OutgoingMessage) -> str:
        """Return a digest of the content."""
        return hashlib.sha256(json.dumps([message.text, message.blocks], sort_keys=True).encode()).hexdigest()

    def fallback(self, message: OutgoingMessage, error: DeliveryFailed) -> OutgoingMessage | None:
        """Return the text alone if Slack rejects the layout. Raises DeliveryFailed for a card, which would count as
        posted and could never be decided.
        """
        if not isinstance(error, SlackWebApiError) or error.code not in _TOO_MUCH:
            return None
        if message.asks:
            cause = gettext_lazy("Slack did not take the layout of an approval card.")
            raise SlackWebApiError(error.code, cause, permanent=True, details=error.code) from error
        return replace(message, blocks=())

    def is_gone(self, error: DeliveryFailed, ref: str) -> bool:  # noqa: ARG002
        """Return True for a deleted message."""
        return isinstance(error, SlackWebApiError) and error.code in _GONE

    def is_unclear(self, error: DeliveryFailed) -> bool:
        """Return True if Slack gave no answer, or one that says so."""
        return isinstance(error, SlackConnectionError) or getattr(error, "code", "") in _UNCLEAR

    async def _stop_stream(self, ref: MessageRef) -> None:
        try:
            await self._api.edit("chat.stopStream", channel=ref.channel, ts=ref.ts)
        except SlackWebApiError as error:
            if error.code != "message_not_in_streaming_state":
                raise


def _text(message: OutgoingMessage) -> str:
    """Return the message's text, cut to Slack's limit."""
    whole = message.text.encode()
    if len(whole) <= LONGEST_TEXT:
        return message.text or ELLIPSIS
    return _HALF_ENTITY.sub("", whole[:LONGEST_TEXT].decode(errors="ignore")) + ELLIPSIS


# -------------------- streaming

LONGEST_SECONDS = 240.0
FORGOTTEN = 600.0
"""Seconds after which no stream of this process can still be running."""
HEAVIEST = 9_500
"""In ``markdown.text_weight`` or bytes of UTF-8; a task counts as much as a text of TASK_WEIGHT."""
TASK_WEIGHT = 250
NOT_AVAILABLE = frozenset(
    {
        "unknown_method",
        "feature_not_enabled",
        "channel_type_not_supported",
        "method_not_supported_for_channel_type",
        "missing_scope",
        "not_allowed_token_type",
        "access_denied",
        "no_permission",
        "not_authorized",
    }
)


class TaskStatus(StrEnum):
    """The words of Slack's `task_update`."""

    IN_PROGRESS = "in_progress"
    COMPLETE = "complete"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Task:
    """One tool call. `details` never change, `output` may. Slack appends to both, so each is sent once."""

    id: str
    title: str
    status: TaskStatus
    details: str
    output: str = ""


@dataclass(frozen=True, slots=True)
class Stream:
    """One answer message that is being written. `text` is Markdown and extends the earlier text, unless the model's
    reply restarted. `open` is False if the message is complete: then its stream is
    stopped.
    """

    name: str
    text: str
    tasks: tuple[Task, ...]
    open: bool


_STATUSES = {
    StatusIcon.WAITING: TaskStatus.COMPLETE,
    StatusIcon.RUNNING: TaskStatus.IN_PROGRESS,
    StatusIcon.DONE: TaskStatus.COMPLETE,
    StatusIcon.FAILED: TaskStatus.ERROR,
    StatusIcon.DENIED: TaskStatus.COMPLETE,
    StatusIcon.UNKNOWN: TaskStatus.ERROR,
    StatusIcon.SKIPPED: TaskStatus.COMPLETE,
}
"""Task status by step status. A call that waits for a user is complete, because an unfinished task spins forever after
its stream has stopped.
"""


def streams(view: TurnView, refs: MessageRefs = NO_REFS) -> tuple[Stream, ...]:
    """Return every answer message of a turn, in order. `refs` are those of the turn, as they are stored."""
    sequence = shown_timeline(view, refs)
    last = last_section(sequence)
    steps = {step.n: last_state(step, view) for step in view.steps if isinstance(step, ToolStep)}
    going_on = view.turn.status is TurnStatus.RUNNING and not (view.awaiting or view.asks)
    return tuple(
        Stream(
            part.name,
            _stream_text(part),
            tuple(_task(steps[entry.n], entry) for entry in part.entries if isinstance(entry, CallLine)),
            open=going_on and part.last and number == len(sequence) - 1,
        )
        for number, passage in enumerate(sequence)
        if isinstance(passage, TimelineSection)
        for segment in answer_segments(passage, view, refs, ends=number == last)
        for part in answer_pages(segment, ANSWER_LIMITS)
    )


def _stream_text(part: AnswerPage) -> str:
    texts = [entry for entry in part.entries if isinstance(entry, ReplyText)]
    written = [sanitize_partial(text.text) if text.growing else sanitize(text.text).rstrip() for text in texts]
    return "\n\n".join(written).rstrip()


def _is_too_heavy(stream: Stream) -> bool:
    size = max(text_weight(stream.text), len(stream.text.encode("utf-8", "replace")))
    return size + TASK_WEIGHT * len(stream.tasks) > HEAVIEST


def _task(step: ToolStep, called: CallLine) -> Task:
    line, title, call_id = called.line, call_title(step), f"call-{step.n}"
    if line.mark is StatusIcon.WAITING:
        call_id += "-asked"
        is_approval = step.status is StepStatus.AWAITING
        title = (
            _("Asked for an approval: {call}", call=title)
            if is_approval
            else _("Asked for an answer: {call}", call=title)
        )
    ended = line.mark not in (StatusIcon.RUNNING, StatusIcon.WAITING)
    output = "  ".join(filter(None, (line.state, line.summary))) if ended else ""
    texts = (single_line(text, TASK_TEXT) for text in (title, line.name, output))
    title, details, output = texts
    return Task(call_id, title, _STATUSES[line.mark], details, output)


class Streaming(StrEnum):
    """Streaming support by conversation type: in a channel only the author of the question sees the stream grow."""

    NOWHERE = "nowhere"
    DIRECT = "direct"
    EVERYWHERE = "everywhere"


@dataclass(slots=True)
class _Growing:
    """A stream of this process and its sent content."""

    ref: MessageRef
    began: float
    text: str = ""
    tasks: dict[str, Task] = field(default_factory=dict)


class StreamManager:
    """The streams of this process, by turn and message."""

    def __init__(
        self, api: WebApi, streaming: Streaming = Streaming.DIRECT, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._api = api
        self._streaming = streaming
        self._clock = clock
        self._growing: dict[tuple[str, str], _Growing] = {}
        self._unable: set[str] = set()

    def __len__(self) -> int:
        return len(self._growing)

    def has(self, turn_id: str, name: str) -> bool:
        """Return True if this process streams the message."""
        return (turn_id, name) in self._growing

    def may_stream(self, conversation: ConversationKey) -> bool:
        """Return True unless streaming is known to fail in this conversation."""
        direct = conversation.channel.startswith("D")
        allowed = self._streaming is Streaming.EVERYWHERE or (self._streaming is Streaming.DIRECT and direct)
        return allowed and bool(conversation.thread) and _kind(conversation) not in self._unable

    async def start(self, turn: Turn, stream: Stream) -> MessageRef | None:
        """Start a message as a stream. Return None if it has to be posted instead. Raises DeliveryFailed if the start
        may have succeeded.
        """
        where = turn.conversation
        can_start = self.may_stream(where) and self._api.pacing.has_headroom("chat.startStream")
        if not can_start or _is_too_heavy(stream):
            return None
        growing = _Growing(MessageRef(where.channel, ""), self._clock())
        chunks = _chunks(growing, stream)
        recipient = (
            {}
            if where.channel.startswith("D")
            else {
                "recipient_user_id": turn.author.id,
                "recipient_team_id": where.workspace,
            }
        )
        try:
            answer = await self._api.post(
                "chat.startStream",
                channel=where.channel,
                thread_ts=where.thread,
                chunks=chunks or None,
                task_display_mode="timeline",
                **recipient,
            )
        except SlackWebApiError as refusal:
            log.info("reply not streamed: %s", refusal)
            if refusal.code in NOT_AVAILABLE:
                self._unable.add(_kind(where))
            return None
        growing.ref = MessageRef(str(answer.get("channel") or where.channel), str(answer.get("ts") or ""))
        _record_sent(growing, stream)
        # A stream without an end in this process was taken over by another one.
        earliest = growing.began - FORGOTTEN
        self._growing = {key: other for key, other in self._growing.items() if other.began > earliest}
        self._growing[turn.id, stream.name] = growing
        return growing.ref

    async def append(self, turn_id: str, stream: Stream) -> bool:
        """Append to a stream, if the rate limit has headroom. Return False if it cannot continue as a stream."""
        growing = self._growing[turn_id, stream.name]
        too_old = self._clock() - growing.began > LONGEST_SECONDS
        if too_old or _is_too_heavy(stream) or not stream.text.startswith(growing.text):
            return False
        chunks = _chunks(growing, stream)
        if not chunks or not self._api.pacing.has_headroom("chat.appendStream"):
            return True
        try:
            await self._api.post("chat.appendStream", channel=growing.ref.channel, ts=growing.ref.ts, chunks=chunks)
        except DeliveryFailed as failure:
            log.info("stream ended: %s", failure)
            return False
        _record_sent(growing, stream)
        return True

    async def stop(self, turn_id: str, name: str) -> None:
        """Stop a stream. Never raises: the next edit of the message stops a stream that still runs."""
        growing = self._growing.pop((turn_id, name), None)
        if growing is None:
            return
        open_tasks = [task for task in growing.tasks.values() if task.status is TaskStatus.IN_PROGRESS]
        chunks = [_task_chunk(task, TaskStatus.COMPLETE) for task in open_tasks]
        try:
            await self._api.post(
                "chat.stopStream",
                channel=growing.ref.channel,
                ts=growing.ref.ts,
                chunks=chunks or None,
                session_status=ACTIVE,
            )
        except DeliveryFailed as failure:
            log.info("stream not stopped: %s", failure)


def _chunks(growing: _Growing, stream: Stream) -> list[dict[str, Any]]:
    """Return the new content: text, and new or changed tasks."""
    chunks: list[dict[str, Any]] = []
    for task in stream.tasks:
        before = growing.tasks.get(task.id)
        if before != task:
            chunks.append(_task_chunk(task, task.status, before))
    if new := stream.text[len(growing.text) :]:
        chunks.append({"type": "markdown_text", "text": new})
    return chunks


def _task_chunk(task: Task, status: TaskStatus, before: Task | None = None) -> dict[str, Any]:
    """Return an update of one task. Slack appends details and output, so each is sent once."""
    chunk: dict[str, Any] = {"type": "task_update", "id": task.id, "title": task.title, "status": status.value}
    if before is None and task.details:
        chunk["details"] = task.details
    if task.output and (before is None or not before.output) and task.status is not TaskStatus.IN_PROGRESS:
        chunk["output"] = task.output
    return chunk


def _record_sent(growing: _Growing, stream: Stream) -> None:
    growing.text = stream.text
    growing.tasks.update({task.id: task for task in stream.tasks})


def _kind(conversation: ConversationKey) -> str:
    """Return the conversation type: streaming may work in direct conversations only."""
    return conversation.channel[:1]


# -------------------- activity
# All of it is optional: a method that a workspace or the app's scopes forbid is tried once, logged once, and left out.


class SlackActivity:
    """Statuses, titles and reactions of one workspace. No method raises."""

    def __init__(self, api: WebApi) -> None:
        self._api = api
        self._unable: set[str] = set()
        self._shown = RecentEntries[str, tuple[str, float]](MOST_STATUSES)
        self._sessions = RecentEntries[str, str](MOST_STATUSES)

    async def show_session(self, view: TurnView) -> None:
        """Set the state of the thread's agent session. Slack shows its Stop button while a turn works."""
        turn, thread, state = view.turn, view.turn.conversation, _session_state(view)
        last = self._sessions.pop(turn.id, "")
        if not thread.thread or not (state and (last or state != ACTIVE)):
            return
        if not last and not self._api.pacing.has_headroom(SET_SESSION):
            return
        if state != ACTIVE:
            self._sessions[turn.id] = state
        if state != last:
            where = {"channel_id": thread.channel, "thread_ts": thread.thread}
            title = {"title": _thread_title(turn)} if turn.seq == 1 and not last else {}
            await self._call(SET_SESSION, thread.channel[:1], **where, **title, status=state)

    async def show_activity(self, view: TurnView, text: str, *, is_shown: bool) -> bool:
        """Set the status of the turn's thread, unless a message shows the same. Slack clears it when a message is
        posted there. Return False if Slack shows no status there.
        """
        turn, thread = view.turn, view.turn.conversation
        if is_shown or not thread.thread:
            return is_shown
        status = _("is {activity}", activity=f"{text[:1].lower()}{text[1:]}")
        last, at = self._shown.get(turn.id, ("", 0.0))
        if status == last and monotonic() - at < STATUS_SECONDS:
            return True
        self._shown[turn.id] = (status, monotonic())
        kind = thread.channel[:1]
        where = {"channel_id": thread.channel, "thread_ts": thread.thread}
        is_set = await self._try(SET_STATUS, kind, **where, status=f"{single_line(status, STATUS_LIMIT)}…")
        if is_set and not last and turn.seq == 1:
            await self._try(RENAME, kind, **where, title=_thread_title(turn))
        return is_set

    async def acknowledge(self, turn: Turn) -> None:
        """React to the question of a turn."""
        await self._react("reactions.add", turn)

    async def withdraw(self, turn: Turn) -> None:
        """Remove the reaction."""
        await self._react("reactions.remove", turn)

    async def _react(self, method: str, turn: Turn) -> None:
        question = MessageRef.parse(turn.question.message_id)
        if question is not None:
            await self._try(method, "", channel=question.channel, timestamp=question.ts, name=EYES)

    async def _try(self, method: str, kind: str, **arguments: Any) -> bool:
        return self._api.pacing.has_headroom(method) and await self._call(method, kind, **arguments)

    async def _call(self, method: str, kind: str, **arguments: Any) -> bool:
        """Call a method. Return False if it fails. One that the workspace does not allow in this kind of channel is not
        called there again.
        """
        key = f"{method} {kind}"
        if key in self._unable:
            return False
        try:
            await self._api.edit(method, **arguments)
        except SlackWebApiError as refusal:
            if refusal.code in _DONE:
                return True
            if refusal.code in NOT_AVAILABLE:
                self._unable.add(key)
            log.info("%s is left out: %s", method, refusal)
            return False
        except DeliveryFailed as failure:
            log.info("%s failed: %s", method, failure)
            return False
        return True


def _session_state(view: TurnView) -> str:
    """Return the state of a turn's session; empty while nothing needs to be shown."""
    if view.turn.status.ended:
        return ACTIVE
    if view.awaiting or view.asks:
        return "suspended"
    return "processing" if view.turn.status is TurnStatus.RUNNING and not view.early else ""


def _thread_title(turn: Turn) -> str:
    """Return the title of a thread: its question, without the characters that Slack's clients misread."""
    return single_line(turn.question.text.translate(str.maketrans(":/", "  ")), TITLE_LIMIT) or _("Question")
