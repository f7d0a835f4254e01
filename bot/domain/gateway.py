"""Calls that other agents ask for, over HTTP and MCP.

Such a call is a turn of one call. The tool is one of our servers, or one that runs elsewhere: the agent runs that
itself, with the arguments as approved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class GatewayRequest:
    """Request of an agent for one call.

    `tool` is the offered name of a tool of our servers. With a `server`, it is a tool that runs elsewhere, and rules
    see both names. `session` and `idempotency_key` recognize repetitions of the request. `effect` names what the call
    changes, such as `refund:42`. `expires_in` is in seconds, and `audience` is the executor that a receipt is for.
    `title`, `reason` and `origin` (client, folder) are the agent's own words.
    """

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    server: str = ""
    session: str = ""
    idempotency_key: str = ""
    effect: str = ""
    title: str = ""
    reason: str = ""
    expires_in: float | None = None
    audience: str = ""
    origin: Mapping[str, Any] = field(default_factory=dict)


class GatewayStatus(StrEnum):
    """Status of a call for its agent. A call that runs elsewhere is approved where a call of our servers is done."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class GatewayRecord:
    """Stored facts of a call. `token` is the name of the asking token, `since` its time. A call with the same
    `attach_key` is the same call, unless `digest`, of its tool and arguments, differs. `effect` is that of its
    workspace. Both keys are None once they are released; `turn_id` is None until the turn is stored.
    """

    id: str
    token: str
    since: float
    digest: str
    attach_key: str | None
    effect: str | None = None
    turn_id: str | None = None


@dataclass(frozen=True, slots=True)
class ReceiptKey:
    """Key that signs receipts. `public` is its public JWK as JSON; the one with the highest number signs."""

    number: int
    public: str
    created_at: float


KEYED = "key:"
"""Prefix of an `attach_key` of an idempotency key, which counts as long as the call is stored."""
