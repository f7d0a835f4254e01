"""How a caller wants servers written: whose words say how they stand, and how points in time look."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from fastapi import Depends, Query

from bot.domain.servers import ServerStatus
from bot.web.wire import moment

Moment = str | int | None
"""A point in time: ISO 8601 in UTC, or epoch milliseconds; null for never."""


class Vocabulary(StrEnum):
    """Whose words are used for how a server stands (checklist C11)."""

    OURS = "countersign"
    IDLE_OR_ERROR = "seed000"
    """IDLE, CONNECTING, CONNECTED, ERROR."""
    PENDING_OR_FAILED = "seed004"
    """PENDING, CONNECTING, CONNECTED, DISCONNECTED, FAILED, DISABLED."""


class Times(StrEnum):
    """How points in time are written (checklist 17)."""

    ISO = "iso"
    EPOCH_MS = "epoch_ms"


_OTHER_WORDS = {
    Vocabulary.OURS: {},
    Vocabulary.IDLE_OR_ERROR: {
        ServerStatus.PENDING: "IDLE",
        ServerStatus.FAILED: "ERROR",
        ServerStatus.AUTH_REQUIRED: "ERROR",
        ServerStatus.DISCONNECTED: "IDLE",
        ServerStatus.DISABLED: "IDLE",
    },
    Vocabulary.PENDING_OR_FAILED: {
        ServerStatus.IDLE: "PENDING",
        ServerStatus.AUTH_REQUIRED: "FAILED",
    },
}


@dataclass(frozen=True, slots=True)
class Manner:
    """How a caller wants answers written."""

    vocabulary: Vocabulary = Vocabulary.OURS
    times: Times = Times.ISO

    def status(self, status: ServerStatus) -> str:
        """How a server stands, in a word."""
        return _OTHER_WORDS[self.vocabulary].get(status, status.name)

    def moment(self, seconds: float | None) -> Moment:
        """A point in time, from epoch seconds; zero and None are never."""
        if not seconds:
            return None
        if self.times is Times.EPOCH_MS:
            return int(seconds * 1000)
        return moment(seconds)


async def _manner(
    vocab: Annotated[Vocabulary, Query(description="Whose words say how a server stands.")] = Vocabulary.OURS,
    time: Annotated[Times, Query(description="How points in time are written.")] = Times.ISO,
) -> Manner:
    return Manner(vocab, time)


AskedManner = Annotated[Manner, Depends(_manner)]
"""What the query says of it."""
