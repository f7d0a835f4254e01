"""Limits that this process keeps together with others, for as long as what they share answers.

Used by `pacing.py`. A store that says nothing must not keep a drawing from getting out: after a short time nobody waits
for it any more, and for a while nobody asks. Each process counts for itself then, and Slack's own refusals hold.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bot.errors import DatabaseError
from bot.ports import Quota, QuotaExceeded, QuotaGranted, Quotas

log = logging.getLogger(__name__)

ANSWER_SECONDS = 2.0
"""How long a call to Slack waits for the answer."""
SILENT_SECONDS = 10.0
"""How long nobody asks after there was none."""

T = TypeVar("T")


class SharedRateLimits:
    """Quotas under the name of one account. `clock` counts seconds."""

    def __init__(self, quotas: Quotas, account: str, clock: Callable[[], float]) -> None:
        self._quotas = quotas
        self._account = account
        self._clock = clock
        self._asked_again_at = float("-inf")
        self._failing = False

    @property
    def works(self) -> bool:
        """Whether the others are asked at present."""
        return self._clock() >= self._asked_again_at

    async def take(self, name: str, quota: Quota, most_wait: float) -> QuotaGranted | QuotaExceeded | None:
        """Take a turn; None if the others cannot be asked."""
        return await self._answer(lambda: self._quotas.acquire(self._named(name), quota, most_wait))

    async def pause(self, name: str, quota: Quota, seconds: float) -> None:
        """Let nobody have a turn for so long, if the others can be told."""
        await self._answer(lambda: self._quotas.pause(self._named(name), quota, seconds))

    def _named(self, name: str) -> str:
        return f"{self._account}:{name}"

    async def _answer(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        if not self.works:
            return None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await ask()
        except (DatabaseError, TimeoutError) as error:
            self._asked_again_at = self._clock() + SILENT_SECONDS
            if not self._failing:
                self._failing = True
                log.warning("Slack's limits are not shared with other processes for now (%s)", type(error).__name__)
            return None
        if self._failing:
            self._failing = False
            log.info("Slack's limits are shared with other processes again")
        return answer
