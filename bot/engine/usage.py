"""Usage of models: estimates of tokens, metering of requests, and limits that are checked before a turn's first
request.

Estimates are corrected by the services' counts.

Requests are metered from the first event of a reply, because services charge for broken-off replies, too. A complete
reply is stored with its row. Broken-off replies and summaries are stored here at once, running replies every
NOTE_SECONDS. Each request is counted once, by its id. Numbers that the service does not report are estimated.

A limit does not end a running turn, and concurrent turns are not seen: both may exceed a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from bot.domain.completions import (
    Capabilities,
    Completion,
    ModelEvent,
    ModelLimits,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReported,
)
from bot.domain.messages import FilePart, ImagePart, Message, Part, StoredFile, TextPart, ToolCall, ToolResult
from bot.domain.tools import Tool
from bot.domain.turns import Claim, Turn
from bot.domain.usage import (
    LimitPeriod,
    LimitScope,
    LimitStatus,
    UsageEntry,
    UsageKind,
    UsageLimit,
    UsageOwner,
    UsageQuery,
    UsageTotal,
    limit_owner,
    limits_for,
)
from bot.errors import DatabaseUnavailable, LimitReached
from bot.i18n import _, format_date, format_time, format_time_zone
from bot.ports import TurnExecution, UsageStore

_ASCII_PER_TOKEN = 4
"""ASCII characters a token: English prose has somewhat more, code and JSON fewer."""
_OTHERS_PER_TOKEN = 1.5
"""Other characters a token: some languages need more than a token for each, others less than half."""
_MESSAGE_TOKENS = 4
_IMAGE_TOKENS = 1_500
_DOCUMENT_BYTES_PER_TOKEN = 25
"""A PDF page has about 2,000 tokens, as text and image, and about 50 KB."""
_MAX_DOCUMENT_TOKENS = 40_000
"""Highest estimate of a document: large ones are scans, with few pages for their size."""
_RESERVE = 0.05
"""Share of the window that is kept free for estimation errors."""
_MIN_RATIO, _MAX_RATIO = 0.5, 4.0
"""Accepted range of counted by estimated tokens. A service that reports less has truncated the request or omits cached
tokens: accepting that would let requests grow further.
"""
_WEIGHT = 0.3
_SAFETY_FACTOR, _RECOVERY_FACTOR, _SMALLEST = 0.9, 1.02, 2_000.0
_MIN_ESTIMATE = 200
"""Smaller requests say little about larger ones."""
_MAX_MODELS = 100
log = logging.getLogger(__name__)
NOTE_SECONDS = 4.0
"""Seconds of usage that a killed process may lose."""
SETTLE_SECONDS = 2.0
"""Seconds that a turn waits for the usage of a broken-off reply to be stored; later tries run in the background."""
LARGE_REQUESTS = 2_000
LARGE_SECONDS = 10.0
"""Seconds for which a sum of many requests is cached: one request more changes little."""


@dataclass(frozen=True, slots=True)
class _Observations:
    """Observations of a model: the ratio of counts to estimates, and the smallest estimate that was rejected as too
    long; 0 if there is none.
    """

    ratio: float = 1.0
    too_long: float = 0.0


class Estimates:
    """Observations of the models, by name."""

    def __init__(self) -> None:
        self._observations: OrderedDict[str, _Observations] = OrderedDict()

    def tokens(self, model: str, estimate: float) -> int:
        """Return an estimate in this model's tokens."""
        return round(estimate * self._find(model).ratio)

    def estimate(self, model: str, tokens: float) -> float:
        """Return this model's tokens as an estimate."""
        return tokens / self._find(model).ratio

    def room(self, model: str, capabilities: Capabilities, limits: ModelLimits) -> int:
        """Return the most tokens of a request: the window less the reply and a reserve, and below the last rejected
        size.
        """
        window, observed = capabilities.context_tokens, self._find(model)
        room = round(window * (1 - _RESERVE)) - reply_limits(limits, capabilities).max_tokens
        return min(room, round(observed.too_long * observed.ratio * _SAFETY_FACTOR)) if observed.too_long else room

    def record_count(self, model: str, estimate: float, tokens: int) -> None:
        """Learn from the service's count of input tokens; 0 if it does not count."""
        if estimate < _MIN_ESTIMATE or tokens < estimate * _MIN_RATIO:
            return
        observed = self._find(model)
        ratio = observed.ratio + _WEIGHT * (min(_MAX_RATIO, tokens / estimate) - observed.ratio)
        # The limit rises slowly: the request may have been rejected for another reason.
        self._remember(
            model, _Observations(ratio, observed.too_long * _RECOVERY_FACTOR if observed.too_long > estimate else 0.0)
        )

    def record_rejection(self, model: str, estimate: float) -> None:
        """Learn that the service rejected a request of this size as too long."""
        observed = self._find(model)
        self._remember(model, replace(observed, too_long=max(_SMALLEST, min(observed.too_long or estimate, estimate))))

    def _find(self, model: str) -> _Observations:
        return self._observations.get(model, _Observations())

    def _remember(self, model: str, observed: _Observations) -> None:
        self._observations[model] = observed
        self._observations.move_to_end(model)
        while len(self._observations) > _MAX_MODELS:
            self._observations.popitem(last=False)


def usual_limits(capabilities: Capabilities, limits: ModelLimits | None = None) -> ModelLimits:
    """Return the limits of a reply of this model's usual length."""
    return reply_limits(replace(limits or ModelLimits(), max_tokens=capabilities.output_tokens), capabilities)


def reply_limits(limits: ModelLimits, capabilities: Capabilities) -> ModelLimits:
    """Return the limits of a reply that leaves half of the window to the request. Services reject requests that do not
    fit together with the longest reply.
    """
    half = capabilities.context_tokens // 2
    return limits if limits.max_tokens <= half else replace(limits, max_tokens=half)


def truncate_to_tokens(text: str, tokens: float) -> str:
    """Return the beginning of a text, within `tokens` estimated tokens."""
    while (size := estimate_text(text)) > tokens:
        text = text[: int(len(text) * tokens / size)]
    return text


def is_text(request: ModelRequest) -> bool:
    """Return True if the request holds text only: other requests give no ratio of count to estimate."""
    parts = (part for message in request.messages for part in message.parts)
    return not any(_has_files(part) for part in parts)


def estimate_messages(messages: Iterable[Message]) -> float:
    """Return the estimated tokens of messages."""
    return sum(_MESSAGE_TOKENS + sum(map(_of_part, message.parts)) for message in messages)


def estimate_tools(tools: Iterable[Tool]) -> float:
    """Return the estimated tokens of tool definitions."""
    return sum(
        estimate_text(tool.description) + estimate_text(_json(tool.input_schema)) + 3 * _MESSAGE_TOKENS
        for tool in tools
    )


def estimate_text(text: str) -> float:
    """Return the estimated tokens of a text. Deterministic, so that excerpts are stable."""
    letters = len(text) if text.isascii() else len(text.encode("ascii", "ignore"))
    return letters / _ASCII_PER_TOKEN + (len(text) - letters) / _OTHERS_PER_TOKEN


def _of_part(part: Part) -> float:
    match part:
        case TextPart(text):
            return estimate_text(text)
        case ImagePart():
            return _IMAGE_TOKENS
        case FilePart(data=data):
            return min(_MAX_DOCUMENT_TOKENS, len(data) / _DOCUMENT_BYTES_PER_TOKEN)
        case ToolCall():
            return _MESSAGE_TOKENS + estimate_text(part.name) + estimate_text(part.unreadable or _json(part.arguments))
        case ToolResult(parts=parts):
            return _MESSAGE_TOKENS + (sum(map(_of_part, parts)) if parts else estimate_text(_json(part.structured)))
        case StoredFile():
            return _MESSAGE_TOKENS


def _has_files(part: Part) -> bool:
    if isinstance(part, ToolResult):
        return any(map(_has_files, part.parts))
    return isinstance(part, ImagePart | FilePart)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=dict)


class RequestAttempt:
    """One request to a model, from the moment it is sent. `n` is its step, `size` in estimated tokens. With fallbacks
    another model than `model` may answer.
    """

    def __init__(self, claim: Claim, n: int, kind: UsageKind, model: str, size: float, *, estimates: Estimates) -> None:
        self.id = uuid.uuid4().hex
        self.claim = claim
        self.finished = False
        """True if no more events follow and only the meters will store it."""
        self._n = n
        self._kind = kind
        self._size = size
        self._model = model
        self._estimates = estimates
        self._started = False
        self._counted = Usage()
        self._uncounted: list[str] = []
        """Text since the service's last count."""
        self._ended = False
        """True once the reply is complete."""
        self._complete = False
        """True if the service has counted the whole reply."""

    def take(self, event: ModelEvent) -> None:
        """Count an event of the reply."""
        if isinstance(event, TextDelta):
            self._uncounted.append(event.text)
            return
        self._started = True
        match event:
            case ReasoningDelta(text) | ToolCallDelta(text):
                self._uncounted.append(text)
            case UsageReported(usage, model):
                if usage.output_tokens > self._counted.output_tokens:
                    self._uncounted.clear()
                self._counted, self._model = _highest_counts(usage, self._counted), model or self._model
            case Completion(message, _, usage, model):
                self._model = model or self._model
                self._end(message, usage)

    @property
    def entry(self) -> UsageEntry | None:
        """Usage so far; None before the reply begins, which is free."""
        if not (self._started or self._uncounted):
            return None
        usage = self._counted
        if not self._complete:
            # The service's counts, with estimates for the missing ones.
            uncounted = self._estimates.tokens(self._model, estimate_text("".join(self._uncounted)))
            usage = replace(
                usage,
                input_tokens=usage.input_tokens or self._estimates.tokens(self._model, self._size),
                output_tokens=usage.output_tokens + uncounted,
            )
        final = self._ended or self.finished
        return UsageEntry(self.id, self._n, self._kind, self._model, usage, estimated=not self._complete, final=final)

    def _end(self, message: Message, usage: Usage) -> None:
        """Count the final numbers of a complete reply. An uncounted output is estimated."""
        self._ended = True
        if usage.output_tokens:
            self._uncounted.clear()
        elif not (self._uncounted or self._counted.output_tokens):
            self._uncounted += (message.text, *(json.dumps(call.arguments) for call in message.tool_calls))
        says_all = usage.input_tokens and (usage.output_tokens or not self._counted.output_tokens)
        self._counted = usage if says_all else _highest_counts(usage, self._counted)
        self._complete = bool(self._counted.input_tokens) and not any(self._uncounted)


def _highest_counts(now: Usage, before: Usage) -> Usage:
    """Return the higher of two counts. Some services omit counts in later parts of a stream."""
    output = max(now, before, key=lambda usage: usage.output_tokens)
    return replace(
        max(now, before, key=lambda usage: usage.input_tokens),
        output_tokens=output.output_tokens,
        reasoning_tokens=output.reasoning_tokens,
    )


class UsageMeters:
    """Requests of this process without finally stored usage, and the estimates of all its turns."""

    def __init__(self, turn_log: TurnExecution, pause: Callable[[float], Awaitable[None]]) -> None:
        self._log = turn_log
        self.estimates = Estimates()
        self._pause = pause
        self._open: dict[str, RequestAttempt] = {}

    def begin(self, claim: Claim, n: int, kind: UsageKind, model: str, size: float) -> RequestAttempt:
        """Start metering a request."""
        attempt = RequestAttempt(claim, n, kind, model, size, estimates=self.estimates)
        self._open[attempt.id] = attempt
        return attempt

    def drop_stored(self, attempts: Sequence[RequestAttempt]) -> None:
        """Drop attempts with stored usage."""
        for attempt in attempts:
            self._open.pop(attempt.id, None)

    async def write(self, attempts: Sequence[RequestAttempt]) -> None:
        """Store the usage of these attempts so far, and drop the finished ones. Raises DatabaseError."""
        finished = [attempt for attempt in attempts if attempt.finished]
        if entries := [(attempt.claim, entry) for attempt in attempts if (entry := attempt.entry) is not None]:
            await self._log.record_usage(entries)
        self.drop_stored(finished)

    async def run(self) -> None:
        """Store usage every NOTE_SECONDS until cancelled; then store that of finished attempts once more."""
        try:
            while True:
                await self._pause(NOTE_SECONDS)
                await self._store(list(self._open.values()))
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_SECONDS):
                    await self._store([attempt for attempt in self._open.values() if attempt.finished])

    async def _store(self, attempts: Sequence[RequestAttempt]) -> None:
        try:
            await self.write(attempts)
        except DatabaseUnavailable:
            pass  # logged by the database
        except Exception:
            log.exception("usage of %d model requests not stored", len(attempts))
            # One by one, so that an unwritable one does not block the others. A finished one is dropped then.
            for attempt in attempts:
                try:
                    await self.write([attempt])
                except DatabaseUnavailable:
                    return
                except Exception as error:  # noqa: BLE001 - the log has it
                    if attempt.finished:
                        log.error("turn %s: usage of a model request dropped: %r", attempt.claim.turn_id, error)
                        self.drop_stored([attempt])


class UsageMeter:
    """Sequential model requests of one turn."""

    def __init__(self, claim: Claim, meters: UsageMeters) -> None:
        self._claim = claim
        self._meters = meters
        self._attempt: RequestAttempt | None = None
        """The last attempt, until it is stored."""

    @property
    def entry(self) -> UsageEntry | None:
        """Usage of the last request, if it is not stored yet."""
        return None if self._attempt is None else self._attempt.entry

    async def begin(self, n: int, kind: UsageKind, model: str, size: float) -> RequestAttempt:
        """Start metering a request of step `n`, after storing the previous one."""
        await self.settle()
        self._attempt = self._meters.begin(self._claim, n, kind, model, size)
        return self._attempt

    def drop_attempt(self) -> None:
        """Drop the last attempt, stored with its reply."""
        if self._attempt is not None:
            self._meters.drop_stored([self._attempt])
            self._attempt = None

    async def settle(self) -> None:
        """Store the usage of the last attempt as final."""
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return
        attempt.finished = True
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._meters.write([attempt])
        except (DatabaseUnavailable, TimeoutError):
            log.warning("usage of a model request not stored yet, the database is unavailable")
        except Exception:  # the turn ends normally
            log.exception("usage of a model request not stored")


async def no_limits(_turn: Turn) -> None:
    """Accept all turns."""


class UsageLimiter:
    """Usage limits with their present usage. `on_checked` receives every checked limit and its owner; `clock` is in
    epoch seconds.
    """

    def __init__(
        self,
        limits: Sequence[UsageLimit],
        usage: UsageStore,
        currency: str = "",
        *,
        on_checked: Callable[[LimitStatus, str], None] = lambda _status, _owner: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._on_checked = on_checked
        self._limits = limits
        self._usage = usage
        self._currency = currency
        self._clock = clock
        self._large: dict[UsageQuery, tuple[float, UsageTotal]] = {}
        """Cached large sums, with their expiry."""

    def replace_limits(self, limits: Sequence[UsageLimit], currency: str) -> None:
        """Check these limits from now on."""
        self._limits, self._currency = limits, currency

    async def check(self, turn: Turn) -> None:
        """Raise LimitReached if a limit of this turn is used up."""
        now, owner = self._clock(), UsageOwner.of(turn.author, turn.conversation)
        statuses = await self.statuses(owner)
        for status in statuses:
            self._on_checked(status, limit_owner(status.limit, owner))
        for status in statuses:
            if status.reached:
                raise LimitReached(_limit_text(status, now))

    async def statuses(self, owner: UsageOwner) -> Sequence[LimitStatus]:
        """Return the status of every limit for this owner, in the order of the file."""
        limits = limits_for(self._limits, owner)
        if not limits:
            return ()
        now = self._clock()
        # The scopes are named as the fields of a query.
        queries = [
            UsageQuery(limit.every.start_of_period(now), **{limit.per: limit_owner(limit, owner)}) for limit in limits
        ]
        # The upper bound covers a clock that was set back.
        self._large = {query: entry for query, entry in self._large.items() if now < entry[0] <= now + LARGE_SECONDS}
        sums = {query: self._large[query][1] for query in queries if query in self._large}
        if missing := [query for query in queries if query not in sums]:
            totals = dict(zip(missing, await self._usage.totals(missing), strict=True))
            # A concurrent check may have replaced an entry: set, not kept.
            expiry = now + LARGE_SECONDS
            self._large |= {
                query: (expiry, total) for query, total in totals.items() if total.requests >= LARGE_REQUESTS
            }
            sums |= totals
        return [
            LimitStatus(
                limit, limit.used_amount(sums[query], self._currency), limit.every.end_of_period(now), self._currency
            )
            for limit, query in zip(limits, queries, strict=True)
        ]


def _limit_text(status: LimitStatus, now: float) -> str:
    limit = status.limit
    hours = max(status.resets_at - now, 0) / 3600
    wait = _("in {hours} h", hours=round(hours)) if hours >= 2 else _("in {minutes} min", minutes=round(hours * 60))
    wait = _("in {days} days", days=round(hours / 24)) if hours >= 48 else wait
    at = {"date": format_date(status.resets_at), "time": format_time(status.resets_at), "zone": format_time_zone()}
    reset = _("It resets on {date} at {time} {zone}, {wait}.", wait=wait, **at)
    return f"{_used_up(limit, status.text)} {reset}"


def _used_up(limit: UsageLimit, used: str) -> str:
    match limit.per, limit.every:
        case LimitScope.PERSON, LimitPeriod.DAY:
            return _("The request was not sent: your limit for today is used up, {used}.", used=used)
        case LimitScope.PERSON, LimitPeriod.MONTH:
            return _("The request was not sent: your limit for this month is used up, {used}.", used=used)
        case LimitScope.CHANNEL, LimitPeriod.DAY:
            return _("The request was not sent: this channel's limit for today is used up, {used}.", used=used)
        case LimitScope.CHANNEL, LimitPeriod.MONTH:
            return _("The request was not sent: this channel's limit for this month is used up, {used}.", used=used)
        case LimitScope.WORKSPACE, LimitPeriod.DAY:
            return _("The request was not sent: this workspace's limit for today is used up, {used}.", used=used)
        case _:
            return _("The request was not sent: this workspace's limit for this month is used up, {used}.", used=used)
