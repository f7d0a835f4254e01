"""What requests to models have taken, from the moment a reply begins: services charge for replies that break off, too.

Called by whoever asks a model. A reply that is whole is counted with its row; everything else is counted from here:
replies that broke off and summaries at once, and replies under way every few seconds, so that they are counted even if
this process is killed. Each request is counted once, under its own id, however often that is written. What a service
does not count is estimated.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bot.domain.completions import (
    Completion,
    ModelEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReported,
)
from bot.domain.messages import Message
from bot.domain.turns import Claim
from bot.domain.usage import UsageEntry, UsageKind
from bot.engine.token_estimates import Estimates, estimate_text
from bot.errors import DatabaseUnavailable
from bot.ports import TurnLog

log = logging.getLogger(__name__)

NOTE_SECONDS = 4.0
"""A killed process has written down replies up to so long before it died."""
SETTLE_SECONDS = 2.0
"""How long a turn waits until what broke off is written down. It is written later where the database is away."""


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """What a model is asked for, for which step. `size` is the request's, as an estimate; of several models that stand
    in for one another, another one than `model` may answer.
    """

    n: int
    kind: UsageKind
    model: str
    size: float


class RequestAttempt:
    """One request to a model, from the moment it is sent."""

    def __init__(self, claim: Claim, asked: RequestInfo, estimates: Estimates) -> None:
        self.id = uuid.uuid4().hex
        self.claim = claim
        self.over = False
        """Nothing more comes, and nobody else will write it down."""
        self._asked = asked
        self._model = asked.model
        self._estimates = estimates
        self._begun = False
        self._counted = Usage()
        self._since: list[str] = []
        """What was written since the service has counted."""
        self._ended = False
        """The reply is whole."""
        self._complete = False
        """The service has counted all of it."""

    def take(self, event: ModelEvent) -> None:
        """Another event of the reply: most are more of its text."""
        if isinstance(event, TextDelta):
            self._since.append(event.text)
            return
        self._begun = True
        match event:
            case ReasoningDelta(text) | ToolCallDelta(text):
                self._since.append(text)
            case UsageReported(usage, model):
                if usage.output_tokens > self._counted.output_tokens:
                    self._since.clear()
                self._counted, self._model = _most(usage, self._counted), model or self._model
            case Completion(message, _, usage, model):
                self._model = model or self._model
                self._end(message, usage)

    @property
    def use(self) -> UsageEntry | None:
        """What it has taken until now; None as long as no reply has begun, which costs nothing."""
        if not (self._begun or self._since):
            return None
        usage = self._counted if self._complete else self._estimated()
        asked, final = self._asked, self._ended or self.over
        return UsageEntry(self.id, asked.n, asked.kind, self._model, usage, estimated=not self._complete, final=final)

    def _end(self, message: Message, usage: Usage) -> None:
        """The reply is whole, and this is the last that its service says. If it has never counted what was written,
        that is in the reply, whether it came in parts or not.
        """
        self._ended = True
        if usage.output_tokens:
            self._since.clear()
        elif not (self._since or self._counted.output_tokens):
            self._since += (message.text, *(json.dumps(call.arguments) for call in message.tool_calls))
        says_all = usage.input_tokens and (usage.output_tokens or not self._counted.output_tokens)
        self._counted = usage if says_all else _most(usage, self._counted)
        self._complete = bool(self._counted.input_tokens) and not any(self._since)

    def _estimated(self) -> Usage:
        """What the service has counted, and estimates of all that it has not."""
        counted = self._counted
        written = self._estimates.tokens(self._model, estimate_text("".join(self._since)))
        return Usage(
            counted.input_tokens or self._estimates.tokens(self._model, self._asked.size),
            counted.output_tokens + written,
            counted.cached_tokens,
            counted.cache_writes,
            counted.reasoning_tokens,
        )


def _most(now: Usage, before: Usage) -> Usage:
    """What was counted stays counted: some services send nothing, or nothing of the reply, with each part of it."""
    read = max(now, before, key=lambda each: each.input_tokens)
    written = max(now, before, key=lambda each: each.output_tokens)
    return Usage(
        read.input_tokens, written.output_tokens, read.cached_tokens, read.cache_writes, written.reasoning_tokens
    )


class UsageMeters:
    """All requests of this process that are not yet on disk for good."""

    def __init__(self, turn_log: TurnLog, estimates: Estimates, pause: Callable[[float], Awaitable[None]]) -> None:
        self._log = turn_log
        self._estimates = estimates
        self._pause = pause
        self._open: dict[str, RequestAttempt] = {}

    def begin(self, claim: Claim, asked: RequestInfo) -> RequestAttempt:
        """A request is sent now."""
        attempt = RequestAttempt(claim, asked, self._estimates)
        self._open[attempt.id] = attempt
        return attempt

    def forget(self, attempts: Sequence[RequestAttempt]) -> None:
        """These are on disk."""
        for attempt in attempts:
            self._open.pop(attempt.id, None)

    async def write(self, attempts: Sequence[RequestAttempt]) -> None:
        """Count what these have taken until now; those that are over are on disk with that. Raises DatabaseError."""
        over = [attempt for attempt in attempts if attempt.over]
        if uses := [(attempt.claim, use) for attempt in attempts if (use := attempt.use) is not None]:
            await self._log.record_usage(uses)
        self.forget(over)

    async def run(self) -> None:
        """Count every few seconds what is under way, and what could not be written before, until cancelled. That is
        tried once more then; turns count what is under way themselves.
        """
        try:
            while True:
                await self._pause(NOTE_SECONDS)
                await self._note(list(self._open.values()))
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_SECONDS):
                    await self._note([attempt for attempt in self._open.values() if attempt.over])

    async def _note(self, attempts: Sequence[RequestAttempt]) -> None:
        try:
            await self.write(attempts)
        except DatabaseUnavailable:
            pass  # the database itself says once that it is away
        except Exception:
            log.exception("what models were asked could not be counted")
            await self._note_each(attempts)

    async def _note_each(self, attempts: Sequence[RequestAttempt]) -> None:
        """One that cannot be written must not take the others along, nor be tried for ever once it is over."""
        for attempt in attempts:
            try:
                await self.write([attempt])
            except DatabaseUnavailable:
                return
            except Exception as error:  # noqa: BLE001 - the log has it
                if attempt.over:
                    log.error("what a model was asked in turn %s is not counted: %r", attempt.claim.turn_id, error)
                    self.forget([attempt])


class UsageMeter:
    """The requests of one turn, one after the other."""

    def __init__(self, claim: Claim, meters: UsageMeters) -> None:
        self._claim = claim
        self._meters = meters
        self._attempt: RequestAttempt | None = None
        """The last one, until it is counted."""

    @property
    def use(self) -> UsageEntry | None:
        """What the last request has taken, if it is not counted yet."""
        return None if self._attempt is None else self._attempt.use

    async def begin(self, asked: RequestInfo) -> RequestAttempt:
        """Another request is sent. What broke off before is counted first."""
        await self.settle()
        self._attempt = self._meters.begin(self._claim, asked)
        return self._attempt

    def recorded(self) -> None:
        """The last reply is on disk, and counted with that."""
        if self._attempt is not None:
            self._meters.forget([self._attempt])
            self._attempt = None

    async def settle(self) -> None:
        """Count what is not counted yet. Nothing more comes of it."""
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return
        attempt.over = True
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._meters.write([attempt])
        except (DatabaseUnavailable, TimeoutError):
            log.warning("what a model was asked is counted later: the database is away")
        except Exception:  # the turn ends as it would without
            log.exception("what a model was asked could not be counted at once")
