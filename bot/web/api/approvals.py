"""Approvals over HTTP, by the same rules as the buttons of a card.

The approver is the token with its current role; the engine checks its right to approve. A decision applies to one
revision of a call: a decision on an older revision has no effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, assert_never

from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict, Field

from bot.chat.actions import VIEW_FIRST
from bot.chat.approval_inbox import read_if_readable
from bot.domain.api_clients import ApiClient, ApiRole
from bot.domain.approvals import (
    AlreadyDecided,
    ApprovalNotFound,
    Decided,
    Decision,
    DecisionType,
    MoreApprovalsNeeded,
    NotAllowed,
    StaleRevision,
    ViewRequired,
)
from bot.domain.grants import GrantRequest
from bot.domain.turns import StepStatus, ToolStep, Turn
from bot.errors import ContentDeleted
from bot.i18n import _
from bot.ports import EngineApi, PendingApproval, PendingApprovalPosition
from bot.ports.platform import InvalidValues, NotEditable, RevisionAccepted
from bot.ports.reporting import read_pending_approvals
from bot.rendering.approval_card import OFFERS, parse_grant_option, remaining_approvals_text
from bot.rendering.call_arguments import whole_json
from bot.rendering.deceptive_text import imitates_mask
from bot.rendering.response_models import ApprovalShape, ResponseModel, approval_shape, whole_approval_shape
from bot.web.conversation_ids import format_id, key_prefixes
from bot.web.dependencies import WebDependencies
from bot.web.parameters import MemberCaller
from bot.web.problems import Problem, invalid_fields
from bot.web.routes import RequestModel, api_router

FIRST = 1
"""Revision of a new call, and of a decision that names none."""
MOST_REVISIONS = 1_000_000
MOST = 100
"""Calls per page."""
MOST_READ = 5_000
"""Pending calls that are read for one page, those of other users included."""
WORDS = ", ".join(offer.word for offer in OFFERS)

ApprovalId = Annotated[str, Path(alias="approvalRequestId", max_length=100)]


class Outcome(StrEnum):
    """Results of a decision."""

    APPROVED = "approved"
    DENIED = "denied"
    COUNTED = "counted"
    REVISED = "revised"


class ApprovalDecision(RequestModel):
    """A decision, new arguments, or both: an edited call is approved with its new arguments. Only a literal `true`
    approves.
    """

    model_config = ConfigDict(strict=True)

    approved: bool | None = None
    reason: str = Field(default="", max_length=500, description="Reason of a denial, for the model.")
    revision: int = Field(
        default=FIRST,
        ge=1,
        le=MOST_REVISIONS,
        description="Revision of the decision; 409 if it is not the current one.",
    )
    arguments: dict[str, Any] | None = Field(
        default=None,
        description="All arguments, in place of the requested ones. One that is sent back with the mask of a secret "
        "keeps the secret.",
    )
    grant: str = Field(default="", description=f"Allow the next calls like it, too: {WORDS}.")


class CallOpening(RequestModel):
    """Revision of a call to open."""

    model_config = ConfigDict(strict=True)

    revision: int = Field(
        default=FIRST, ge=1, le=MOST_REVISIONS, description="Revision to open; 409 if it is not the current one."
    )


class DecisionAnswer(ResponseModel):
    """Result of a decision."""

    approval_request_id: str
    revision: int = Field(description="The current revision.")
    outcome: Outcome
    needed: int = Field(default=0, description="Number of approvals still needed before the call runs.")
    message: str = ""


class Whose(StrEnum):
    """Filter of pending calls: those the caller may approve, those it has asked for, or both."""

    ALL = "all"
    TO_SIGN = "to_sign"
    ASKED = "asked"


class ApprovalList(ResponseModel):
    """A page of pending calls, newest first."""

    approvals: list[ApprovalShape]
    more: bool = Field(description="There may be more than these: ask again with `nextCursor`.")
    next_cursor: str | None = Field(description="The `cursor` of the next page; null on the last one.")


def routes(dependencies: WebDependencies) -> APIRouter:
    """Return the routes to list, read and decide approvals."""
    router = api_router(tags=["approvals"])
    calls = _Calls(dependencies)
    engine = dependencies.engine

    @router.get("/api/responses/approvals", response_model=ApprovalList)
    async def list_approvals(
        caller: MemberCaller,
        whose: Annotated[
            Whose, Query(description="Approvals that the API client may decide, those of its own questions, or both.")
        ] = (Whose.ALL),
        size: Annotated[int, Query(ge=1, le=MOST)] = MOST,
        cursor: Annotated[str, Query(max_length=150, description="`nextCursor` of the page before.")] = "",
    ) -> ApprovalList:
        """List pending calls, newest first. A page may hold fewer calls than `size`, or no calls, and still have a next
        one.
        """
        try:
            behind = PendingApprovalPosition.parse(cursor) if cursor else None
        except ValueError:
            raise invalid_fields({"cursor": _("It must be the nextCursor of another page.")}) from None
        page = await read_pending_approvals(
            dependencies.user_activity,
            key_prefixes(caller),
            calls.listed(caller, whose),
            limit=size,
            most_read=MOST_READ,
            behind=behind,
        )
        found = [await read_if_readable(dependencies.find_approval(call.approval_id)) for call in page.calls]
        return ApprovalList(
            approvals=[calls.shape(caller, *call) for call in found if call and call[1].status is StepStatus.AWAITING],
            more=page.behind is not None,
            next_cursor=None if page.behind is None else str(page.behind),
        )

    @router.get("/api/responses/approval/{approvalRequestId}", response_model=ApprovalShape)
    async def read_approval(approval_id: ApprovalId, caller: MemberCaller) -> ApprovalShape:
        """Return one pending call."""
        turn, step = await calls.find(caller, approval_id)
        if step.status is not StepStatus.AWAITING:
            raise _not_found()
        return calls.shape(caller, turn, step)

    @router.post("/api/responses/approval/{approvalRequestId}/open", response_model=ApprovalShape)
    async def open_approval(approval_id: ApprovalId, body: CallOpening, caller: MemberCaller) -> ApprovalShape:
        """Return the whole call, including parts that are hidden elsewhere because they look like a secret. Takes a
        token that may approve the call, and records it in the audit. Such a call can be approved only by a token that
        has opened it.
        """
        turn, _step = await calls.find(caller, approval_id)
        match await engine.approvals.open_call(approval_id, body.revision, caller.member):
            case ToolStep() as step if step.approval is not None:
                return whole_approval_shape(turn, step, format_id(caller, turn.conversation), calls.signed_by)
            case ToolStep():
                raise _not_found()
            case rejection:
                raise _rejection_problem(rejection)

    @router.post("/api/responses/approval/{approvalRequestId}", response_model=DecisionAnswer)
    async def decide_approval(approval_id: ApprovalId, body: ApprovalDecision, caller: MemberCaller) -> DecisionAnswer:
        """Approve or deny a call, change its arguments before approval, or allow later calls like it."""
        return await _decide(engine, calls, caller, approval_id, body)

    return router


class _Calls:
    """Calls for the responses. Every rejection is a Problem."""

    def __init__(self, dependencies: WebDependencies) -> None:
        self._dependencies = dependencies
        self.signed_by = dependencies.command_dependencies.administration.signed_by

    async def find(self, caller: ApiClient, approval_id: str) -> tuple[Turn, ToolStep]:
        """Return a call in the caller's workspace that the caller may approve or has asked for. Raises Problem."""
        call = await self._dependencies.find_approval(approval_id)
        if call is None or call[1].approval is None:
            raise _not_found()
        turn, approval = call[0], call[1].approval
        pending = PendingApproval.of(turn, approval)
        if not caller.covers_workspace(turn.conversation.workspace_key) or not (
            caller.may(ApiRole.APPROVER) or await self.listed(caller, Whose.ALL)(pending)
        ):
            raise _not_found()
        if turn.content_deleted:
            raise ContentDeleted
        return call

    def listed(self, caller: ApiClient, whose: Whose) -> Callable[[PendingApproval], Awaitable[bool]]:
        """Return a test of the calls that the caller has asked for or may approve."""
        may_approve = self._dependencies.may_approve(caller.member)

        async def is_listed(call: PendingApproval) -> bool:
            own = whose is not Whose.TO_SIGN and call.asked_by.principal == caller.author.principal
            return own or (whose is not Whose.ASKED and await may_approve(call))

        return is_listed

    def shape(self, caller: ApiClient, turn: Turn, step: ToolStep) -> ApprovalShape:
        """Return a pending call for the response."""
        return approval_shape(turn, step, format_id(caller, turn.conversation), self.signed_by)


async def _decide(
    engine: EngineApi, calls: _Calls, caller: ApiClient, approval_id: str, body: ApprovalDecision
) -> DecisionAnswer:
    grant = _requested_grant(body)
    _turn, step = await calls.find(caller, approval_id)
    revision = body.revision
    if body.arguments is not None:
        revision = await _revise(engine, caller, approval_id, body, step)
    answer = partial(DecisionAnswer, approval_request_id=approval_id, revision=revision)
    if body.approved is None:
        return answer(outcome=Outcome.REVISED)
    decision_type = DecisionType.APPROVE if body.approved else DecisionType.DENY
    decision = Decision(approval_id, revision, decision_type, caller.author, body.reason)
    result = (
        await engine.approvals.grant(decision, grant, caller.member)
        if grant is not None
        else await engine.approvals.decide(decision, caller.member)
    )
    match result:
        case Decided(verdict):
            return answer(outcome=Outcome.APPROVED if verdict is DecisionType.APPROVE else Outcome.DENIED)
        case MoreApprovalsNeeded(needed):
            message = remaining_approvals_text(needed)
            return answer(outcome=Outcome.COUNTED, needed=needed, message=message)
        # The change is saved in any case: another approver is needed now, or the call has to be opened first.
        case NotAllowed(reason) if body.arguments is not None:
            return answer(outcome=Outcome.REVISED, message=reason)
        case ViewRequired() if body.arguments is not None:
            return answer(outcome=Outcome.REVISED, message=str(VIEW_FIRST))
        case rejection:
            raise _rejection_problem(rejection)


async def _revise(
    engine: EngineApi, caller: ApiClient, approval_id: str, body: ApprovalDecision, step: ToolStep
) -> int:
    """Request approval of changed arguments. Return the new revision."""
    arguments = _restore_redacted(step, body.arguments or {})
    match await engine.approvals.revise(approval_id, body.revision, arguments, caller.member):
        case RevisionAccepted(revision):
            return revision
        case InvalidValues(problems):
            fields = {".".join(filter(None, ("arguments", each.argument))): each.problem for each in problems}
            raise invalid_fields(fields, _("Some arguments do not fit the tool."), _("correct those named"))
        case rejection:
            raise _rejection_problem(rejection)


def _requested_grant(body: ApprovalDecision) -> GrantRequest | None:
    """Return the requested grant, None if the decision is for this call alone. Raises Problem if the fields contradict
    each other.
    """
    if body.approved is None and body.arguments is None:
        raise invalid_fields({"approved": _("It takes approved, arguments, or both.")})
    if body.approved is False and body.arguments is not None:
        raise invalid_fields({"arguments": _("A call that is denied needs no other arguments.")})
    if not body.grant:
        return None
    grant = parse_grant_option(body.grant)
    if grant is None:
        raise invalid_fields({"grant": _("It must be one of {choices}.", choices=WORDS)})
    if not body.approved:
        raise invalid_fields({"grant": _("Only a call that is approved can be allowed from now on.")})
    return grant


def _restore_redacted(step: ToolStep, sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sent arguments. A redacted value sent back unchanged stands for the original. Raises Problem if a
    changed value contains a redaction.
    """
    present, restored = step.call.arguments, dict[str, Any]()
    # By original names: a name may be redacted too.
    originals = [
        (name, {displayed: value})
        for form in (step.masked_arguments, whole_json(step))
        for name, (displayed, value) in zip(present, form.items(), strict=True)
    ]
    for name, value in sent.items():
        original = next((real for real, displayed in originals if displayed == {name: value}), None)
        if original is not None:
            restored[original] = present[original]
        elif imitates_mask(name) or imitates_mask(value):
            problem = _("Part of it stands for a secret: send all of it, or leave it as it was.")
            raise invalid_fields({f"arguments.{name}": problem})
        else:
            restored[name] = value
    return restored


def _rejection_problem(rejection: NotEditable | ViewRequired) -> Problem:
    """Return the reason why a decision had no effect."""
    match rejection:
        case AlreadyDecided(how):
            return Problem(409, "already_settled", how, _("see what has become of the response"))
        case StaleRevision():
            return Problem(
                409,
                "out_of_date",
                _("The call is asked for with other arguments by now."),
                _("read it again, then decide"),
            )
        case NotAllowed(reason):
            return Problem(403, "not_allowed", reason, _("leave it to those who may"))
        case ApprovalNotFound():
            return _not_found()
        case ViewRequired():
            return Problem(409, "open_first", str(VIEW_FIRST), _("POST to …/open with this token, then decide"))
        case _:
            assert_never(rejection)


def _not_found() -> Problem:
    return Problem(
        404, "not_found", _("No such call waits for an approval."), _("GET /api/responses/approvals lists what does")
    )
