"""Calls of other agents as turns of one call: submitted or attached to, waited for, withdrawn, and delivered once.

An agent that goes away withdraws nothing: the same request attaches to its call until the answer has been delivered. A
call belongs to its token, and is missing for all others.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bot.domain.api_clients import ApiClient
from bot.domain.conversations import Author, InboundMessage
from bot.domain.gateway import KEYED, GatewayRecord, GatewayRequest, GatewayStatus
from bot.domain.messages import ToolCall
from bot.domain.turns import CallOrigin, StepStatus, ToolStep, TurnStatus, TurnView
from bot.engine.external_calls import external_tool
from bot.errors import ContentDeleted, SecretUnavailable
from bot.i18n import _
from bot.web.dependencies import WebDependencies
from bot.web.gateway.receipts import Receipts, digest_arguments
from bot.web.problems import Problem, invalid_fields

_MOST_ATTEMPTS = 3
_WANTED = (GatewayStatus.PENDING, GatewayStatus.APPROVED)
"""Statuses of a call whose answer another one with its effect takes."""
_STATUSES = {
    StepStatus.DONE: GatewayStatus.APPROVED,
    StepStatus.UNKNOWN: GatewayStatus.APPROVED,
    StepStatus.EXPIRED: GatewayStatus.EXPIRED,
    StepStatus.CANCELLED: GatewayStatus.WITHDRAWN,
}


@dataclass(frozen=True, slots=True)
class GatewayCall:
    """State of a call. `attached` is True if the request repeated an earlier one."""

    id: str
    view: TurnView
    attached: bool = False

    @property
    def request(self) -> GatewayRequest:
        """The agent's request, without the arguments."""
        return self.view.turn.question.gateway or GatewayRequest("")

    @property
    def step(self) -> ToolStep | None:
        """The call with its approval and result; None until rules were applied."""
        calls = (step for step in self.view.steps if isinstance(step, ToolStep))
        return next((step for step in calls if step.origin is not CallOrigin.PREVIEW), None)

    @property
    def status(self) -> GatewayStatus:
        """The status. A tool of our servers that failed was approved."""
        turn, step = self.view.turn, self.step
        if not turn.status.ended:
            return GatewayStatus.PENDING
        if turn.status is TurnStatus.CANCELLED:
            return GatewayStatus.WITHDRAWN
        if step is None:
            return GatewayStatus.DENIED
        has_failed = step.status is StepStatus.FAILED and step.result is not None and not step.result.own
        return GatewayStatus.APPROVED if has_failed else _STATUSES.get(step.status, GatewayStatus.DENIED)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments as they are now: an approver may have edited them."""
        call = self.view.turn.question.call if self.step is None else self.step.call
        return call.arguments if call is not None else {}

    @property
    def edited(self) -> bool:
        """True if a person has changed the arguments."""
        return self.step is not None and self.step.approval is not None and self.step.approval.proposed is not None

    @property
    def deciders(self) -> tuple[str, ...]:
        """Names of the people that have decided; for a grant, of its giver. Empty if a rule did."""
        step = self.step
        if step is None or step.approval is None:
            return (step.grant.name,) if step is not None and step.grant is not None else ()
        decided_by = step.approval.decided_by
        return step.approval.approver_names or ((decided_by,) if decided_by else ())

    @property
    def reason(self) -> str:
        """Reason of the status, for the agent; empty for an approval."""
        step, turn = self.step, self.view.turn
        if self.status in (GatewayStatus.PENDING, GatewayStatus.APPROVED):
            return ""
        given = step.approval.reason if step is not None and step.approval is not None else ""
        result = step.result.shown_text if step is not None and step.result is not None else ""
        return given or result or turn.failure


class GatewayCalls:
    """Calls of all agents. Every rejection is a Problem."""

    def __init__(self, dependencies: WebDependencies) -> None:
        self._engine = dependencies.engine
        self._store = dependencies.gateway_calls
        self._subscriptions = dependencies.surface.subscriptions
        self._receipts = Receipts(dependencies.receipt_keys, dependencies.issuer)

    async def submit(self, client: ApiClient, request: GatewayRequest) -> GatewayCall:
        """Ask for a call, or attach to the one that the same request asked for."""
        new = _record(client, request)
        for _attempt in range(_MOST_ATTEMPTS):
            stored = await self._store.add(new)
            same = stored.digest == new.digest and _owns(client, stored)
            if stored.attach_key == new.attach_key and not same:
                raise Problem(
                    409,
                    "idempotency_key_reused",
                    _("Another call was asked for under this Idempotency-Key."),
                    _("take a new key for a new call"),
                )
            call = await self._begin(client, request, stored) if same else await self._read(stored)
            if same and (stored.attach_key == new.attach_key or call.status in _WANTED):
                return replace(call, attached=stored.id != new.id)
            if not call.view.turn.status.ended:
                break
            await self._store.release(stored.id)
        raise Problem(
            409,
            "effect_in_progress",
            _("Another call with this effect waits or is running."),
            _("wait for its end, and ask then whether this call is still needed"),
        )

    async def find(self, client: ApiClient, call_id: str) -> GatewayCall:
        """Return a call of this token."""
        stored = await self._store.find(call_id)
        if stored is None or not _owns(client, stored) or stored.turn_id is None:
            raise Problem(404, "not_found", _("There is no such approval."), _("POST /api/approvals asks for one"))
        return await self._read(stored)

    async def wait(
        self,
        client: ApiClient,
        call_id: str,
        seconds: float,
        is_enough: Callable[[TurnView], bool] = lambda view: view.turn.status.ended,
    ) -> GatewayCall:
        """Return a call once it has ended, or as it is after `seconds`. `is_enough` may end the wait earlier."""
        call = await self.find(client, call_id)
        turn_id = call.view.turn.id
        return replace(call, view=await self._subscriptions.wait(turn_id, self._engine.view, seconds, is_enough))

    async def withdraw(self, client: ApiClient, call_id: str, by: Author) -> GatewayCall:
        """Withdraw a call of this token that has not ended, and return it."""
        call = await self.find(client, call_id)
        await self._engine.stop(call.view.turn.id, by)
        return await self.find(client, call_id)

    async def delivered(self, call: GatewayCall) -> bool:
        """Record that the agent has the answer: the next request like this one is a new call. Return False if the call
        has not ended, or its answer was delivered before.
        """
        return call.view.turn.status.ended and await self._store.release(call.id)

    async def receipt(self, call: GatewayCall) -> str | None:
        """Return the receipt of an approved call that runs elsewhere. None for other calls, and without a key to store
        keys with.
        """
        step, turn = call.step, call.view.turn
        if call.status is not GatewayStatus.APPROVED or not call.request.server or step is None:
            return None
        claims = {
            "sub": turn.author.principal,
            "aud": call.request.audience or turn.author.id,
            "jti": call.id,
            "server": call.request.server,
            "tool": call.request.tool,
            "arguments_sha256": digest_arguments(dict(call.arguments)),
            "decision": call.status.value,
            "deciders": list(call.deciders),
            "edited": call.edited,
        }
        ended_at = step.times.ended_at if step.times is not None else None
        try:
            return await self._receipts.issue(claims, turn.created_at if ended_at is None else ended_at)
        except SecretUnavailable:
            return None

    async def _begin(self, client: ApiClient, request: GatewayRequest, stored: GatewayRecord) -> GatewayCall:
        """Return a stored call. Its turn is stored first if it is missing: a process may have died before."""
        if stored.turn_id is None:
            receipt = await self._engine.receive(_message(client, request, stored.id))
            await self._store.save_turn(stored.id, receipt.turn_id)
            stored = replace(stored, turn_id=receipt.turn_id)
        return await self._read(stored)

    async def _read(self, stored: GatewayRecord) -> GatewayCall:
        if stored.turn_id is None:
            raise Problem(
                503, "not_stored", _("Another call with this effect is just being stored."), _("try again in a moment")
            )
        view = await self._engine.view(stored.turn_id)
        if view.turn.content_deleted:
            raise ContentDeleted
        return GatewayCall(stored.id, view)


def _owns(client: ApiClient, stored: GatewayRecord) -> bool:
    """Return True if the call is of this token. Another token may have had its name before."""
    return (stored.token, stored.since) == (client.name, client.since)


def _record(client: ApiClient, request: GatewayRequest) -> GatewayRecord:
    owner: list[Any] = [client.name, client.since]
    try:
        digest = digest_arguments([request.server, request.tool, dict(request.arguments)])
    except (ValueError, RecursionError):
        problem = _("They have a number or a text that no JSON can hold exactly: send a long number as text.")
        raise invalid_fields({"arguments": problem}) from None
    key = (
        KEYED + digest_arguments([*owner, request.idempotency_key])
        if request.idempotency_key
        else digest_arguments([*owner, request.session, digest])
    )
    effect = f"{client.place().workspace_key} {request.effect}" if request.effect else None
    return GatewayRecord(secrets.token_hex(16), client.name, client.since, digest, key, effect)


def _message(client: ApiClient, request: GatewayRequest, call_id: str) -> InboundMessage:
    """Return the message of a call, in a conversation of its own: a call that waits must not block others. The thread
    begins with the session.
    """
    named = str(request.origin.get("session", ""))
    session = hashlib.sha256(named.encode(errors="replace")).hexdigest()[:16] if named else "call"
    name = external_tool(request).name if request.server else request.tool
    return InboundMessage(
        (f"gateway:{call_id}",),
        client.place(thread=f"{session}.{call_id}"),
        client.author,
        request.title or _("Run {tool}", tool=f"{request.server}.{request.tool}" if request.server else request.tool),
        call=ToolCall(f"gateway-{call_id}", name, request.arguments),
        gateway=replace(request, arguments={}),
    )
