"""The operations channel: one message about each fault, edited when the fault is over.

Every process may deliver; a lease selects one. A post that an earlier process began is looked up before it is repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic

from bot.chat.delivery import ChannelMessages, NoticeOwner
from bot.chat.message_model import Block, Footer, Heading, Message, Paragraph, Spans, Text, Tone, clock_time, fill_spans
from bot.domain.conversations import ConversationKey
from bot.domain.health import FaultKind, FaultRecord
from bot.domain.locales import use_locale
from bot.engine.locales import LocaleResolver
from bot.errors import DatabaseError, DeliveryFailed
from bot.i18n import _, ngettext
from bot.ports import FaultStore, Leases
from bot.rendering.approval_card import format_duration

log = logging.getLogger(__name__)

LEASE = "operations channel"
CYCLE_SECONDS = 5.0
LEASE_SECONDS = 30.0
GRACE_SECONDS = 60.0
"""Seconds after the start in which no fault is closed for lack of reports: this process first reports its own."""
REFUSED_SECONDS = 600.0
"""Seconds until the next try after a rejection that no retry mends."""
_WAITS = frozenset({FaultKind.REVIEW, FaultKind.SIGN_IN, FaultKind.USAGE_LIMIT, FaultKind.CONFIGURATION})
"""Kinds that wait for an admin, or for time."""


class OperationsChannel:
    """Delivers the faults of all processes to one channel. `holder` names this process; `clock` is in seconds."""

    def __init__(
        self,
        store: FaultStore,
        leases: Leases,
        messages: ChannelMessages,
        channel: ConversationKey,
        holder: str,
        *,
        locales: LocaleResolver,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._store = store
        self._leases = leases
        self._messages = messages
        self._channel = channel
        self._holder = holder
        self._locales = locales
        self._clock = clock
        self._started_at = clock()
        self._not_before = clock()
        self._refusal = ""

    async def run(self) -> None:
        """Deliver until cancelled."""
        try:
            while True:
                try:
                    await self.update()
                except DatabaseError as error:
                    log.debug("operations channel: %s", error)
                except Exception:
                    log.exception("operations channel")
                await asyncio.sleep(CYCLE_SECONDS)
        finally:
            try:
                await self._leases.release(LEASE, self._holder)
            except DatabaseError as error:
                log.debug("operations channel: lease not released: %s", error)

    async def update(self) -> None:
        """Deliver changed faults, if this process holds the lease. Raises DatabaseError."""
        if not await self._leases.acquire_or_renew(LEASE, self._holder, LEASE_SECONDS):
            return
        if self._clock() - self._started_at >= GRACE_SECONDS:
            await self._store.close_unreported()
        if self._clock() < self._not_before:
            return
        for record in await self._store.undelivered_faults():
            try:
                await self._deliver(record)
            except DeliveryFailed as error:
                seconds = REFUSED_SECONDS if error.permanent else error.retry_after or CYCLE_SECONDS
                self._not_before = self._clock() + seconds
                if error.permanent and str(error) != self._refusal:
                    log.error("OPS_CHANNEL (%s) cannot be written to: %s", self._channel.channel, error)
                    self._refusal = str(error)
                return
            self._refusal = ""

    async def _deliver(self, record: FaultRecord) -> None:
        if record.closed_at is not None and not record.is_attempted:
            # Over before it was told.
            await self._store.record_message(record, "")
            return
        owner = NoticeOwner(f"fault:{record.fault.key}:{record.message}", self._channel, record.first_at)
        search = record.is_attempted and not record.ref
        await self._store.begin_message(record)
        with use_locale(self._locales.for_place(self._channel)):
            message = fault_message(record)
        ref = await self._messages.show_in_channel(owner, message, record.ref, search=search)
        await self._store.record_message(record, ref)


def fault_message(record: FaultRecord) -> Message:
    """Return the message about a fault. It looks the same whenever it is composed."""
    fault, is_over = record.fault, record.closed_at is not None
    blocks: list[Block] = [Heading(str(fault.over if is_over else fault.title))]
    if not is_over:
        fix = _("Fix: {fix}.", fix=str(fault.fix).rstrip(".。")) if fault.fix else ""
        blocks += [Paragraph((Text(str(text)),)) for text in (fault.cause, fix) if text]
        if more := _more(fault.command, fault.guide):
            blocks.append(Paragraph(more))
    since = clock_time(record.opened_at)
    if record.closed_at is not None:
        lasted = Text(format_duration(record.closed_at - record.opened_at))
        spans = fill_spans(_("After {duration} · since {time}"), duration=lasted, time=since)
    else:
        spans = fill_spans(_("Since {time}"), time=since)
    if record.occurrences > 1:
        times = ngettext("{n} time since {time}", "{n} times since {time}", record.occurrences, time="{time}")
        spans = (*spans, Text(" · "), *fill_spans(times, time=clock_time(record.first_at)))
    blocks.append(Footer(spans))
    tone = Tone.SUCCESS if is_over else Tone.PENDING if fault.kind in _WAITS else Tone.DANGER
    return Message("fault", tuple(blocks), tone)


def _more(command: str, guide: str) -> Spans:
    if not command:
        return (Text(_("See {guide}.", guide=guide)),) if guide else ()
    text = _("Run {command}. See {guide}.") if guide else _("Run {command}.")
    return fill_spans(text, command=Text(command, code=True), guide=Text(guide))
