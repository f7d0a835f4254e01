"""Response options in the query: status vocabulary and format of times."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from fastapi import Depends, Query

from bot.domain.servers import ServerStatus
from bot.web.schemas import moment

Moment = str | int | None
"""A point in time: ISO 8601 in UTC, or epoch milliseconds; null for never."""


class StatusVocabulary(StrEnum):
    """Vocabularies of the server status."""

    OURS = "countersign"
    IDLE_OR_ERROR = "idle-error"
    """IDLE, CONNECTING, CONNECTED, ERROR."""
    PENDING_OR_FAILED = "pending-failed"
    """PENDING, CONNECTING, CONNECTED, DISCONNECTED, FAILED, DISABLED."""


class Times(StrEnum):
    """Formats of times."""

    ISO = "iso"
    EPOCH_MS = "epoch_ms"


_OTHER_WORDS = {
    StatusVocabulary.OURS: {},
    StatusVocabulary.IDLE_OR_ERROR: {
        ServerStatus.PENDING: "IDLE",
        ServerStatus.FAILED: "ERROR",
        ServerStatus.AUTH_REQUIRED: "ERROR",
        ServerStatus.DISCONNECTED: "IDLE",
        ServerStatus.DISABLED: "IDLE",
    },
    StatusVocabulary.PENDING_OR_FAILED: {
        ServerStatus.IDLE: "PENDING",
        ServerStatus.AUTH_REQUIRED: "FAILED",
    },
}


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """Response options of a request."""

    vocabulary: StatusVocabulary = StatusVocabulary.OURS
    times: Times = Times.ISO

    def status(self, status: ServerStatus) -> str:
        """Return a server's status in the chosen vocabulary."""
        return _OTHER_WORDS[self.vocabulary].get(status, status.name)

    def moment(self, seconds: float | None) -> Moment:
        """Format epoch seconds; zero and None are never."""
        if not seconds:
            return None
        if self.times is Times.EPOCH_MS:
            return int(seconds * 1000)
        return moment(seconds)


async def _manner(
    vocab: Annotated[
        StatusVocabulary, Query(description="Whose words say how a server stands.")
    ] = StatusVocabulary.OURS,
    time: Annotated[Times, Query(description="How points in time are written.")] = Times.ISO,
) -> ResponseOptions:
    return ResponseOptions(vocab, time)


AskedManner = Annotated[ResponseOptions, Depends(_manner)]
"""Response options from the query."""
