"""Approvals for calls that run elsewhere: an agent asks here, waits, and runs the call itself with the arguments as
approved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query
from pydantic import BaseModel, Field
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse

from bot.admin.browser_sessions import CONSOLE_PATH
from bot.domain.api_clients import ApiClient
from bot.domain.approvals import ApprovalPolicy
from bot.domain.gateway import GatewayRequest, GatewayStatus
from bot.domain.turns import TurnView
from bot.engine.external_calls import external_tool
from bot.i18n import _
from bot.ports import DirectCall
from bot.rendering.response_models import ResponseModel, format_time
from bot.web.dependencies import WebDependencies
from bot.web.gateway.calls import GatewayCall, GatewayCalls
from bot.web.parameters import MemberCaller, RequestStreamPlace
from bot.web.routes import RequestModel, Routes, route

JUDGE_SECONDS = 10.0
"""Longest wait for the rules, before a call counts as pending."""
LONGEST_WAIT = 60.0
_LONGEST_LIFE = 30 * 24 * 3600
TOOL_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.:/@-]*$"
CallId = Annotated[str, Path(alias="approvalId", max_length=100)]
IdempotencyKey = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        max_length=200,
        description="The caller's own key of this call: sent again under it, the call is asked for once.",
    ),
]

_HOOK_SECONDS, _LONGEST_HOOK = 590.0, 3600.0
"""The client's own limit is 600 seconds, and a call goes on where it ends the wait."""
_DECISIONS: Mapping[ApprovalPolicy, Literal["allow", "deny"]] = {
    ApprovalPolicy.ALWAYS_ALLOW: "allow",
    ApprovalPolicy.ALWAYS_DENY: "deny",
}


class CallQuestion(RequestModel):
    """A call that runs elsewhere."""

    tool: str = Field(max_length=200, pattern=TOOL_NAME, description="Name of the tool, for rules.")
    arguments: dict[str, Any] = Field(default_factory=dict)
    server: str = Field(
        default="", max_length=64, pattern=f"{TOOL_NAME}|^$", description="Server for rules; else the token's name."
    )
    title: str = Field(default="", max_length=200, description="Subject of the call, in the agent's own words.")
    reason: str = Field(default="", max_length=1000, description="The agent's own reason.")
    expires_in: float | None = Field(
        default=None, gt=0, le=_LONGEST_LIFE, description="Seconds; a rule's shorter time counts."
    )
    effect: str = Field(
        default="", max_length=200, description="Subject of the change, such as `refund:42`: one open call at a time."
    )
    audience: str = Field(default="", max_length=200, description="Executor of the receipt; else the token's name.")
    session: str = Field(default="", max_length=200, description="The agent's session, in its own words.")
    client: str = Field(default="", max_length=200, description="The agent's program, in its own words.")
    cwd: str = Field(default="", max_length=1000, description="The agent's working folder, in its own words.")

    def request(self, caller: ApiClient, key: str = "") -> GatewayRequest:
        """Return the request of this client."""
        own_words = {"client": self.client, "session": self.session, "cwd": self.cwd}
        return GatewayRequest(
            self.tool,
            self.arguments,
            self.server or caller.name,
            self.session,
            key,
            self.effect,
            self.title,
            self.reason,
            self.expires_in,
            self.audience or caller.name,
            {name: text for name, text in own_words.items() if text},
        )


class CallAnswer(ResponseModel):
    """State of a call that runs elsewhere."""

    approval_id: str
    status: GatewayStatus = Field(description="`pending`, `approved`, `denied`, `expired` or `withdrawn`.")
    server: str
    tool: str
    arguments: dict[str, Any] = Field(description="As approved: run the call with these alone.")
    edited: bool = Field(description="A person has changed the arguments.")
    deciders: list[str] = Field(description="Names of the people that have decided; empty if a rule did.")
    reason: str = Field(description="Reason of a denial or another end without an approval.")
    waiting_for: str | None = Field(description="Approvers of a pending call.")
    expires_at: str | None = Field(description="End of the wait for approvers.")
    url: str | None = Field(description="Page of a pending call in the console.")
    receipt: str | None = Field(description="JWS of an approved call, for its executor.")


class RuleAnswer(ResponseModel):
    """Decision of rules alone."""

    decision: Literal["allow", "deny", "ask"]
    rule: str = Field(description="Rule that decides; empty for the default.")
    reason: str


class HookEvent(BaseModel):
    """A PreToolUse hook's event; its other fields are ignored."""

    tool_name: str = Field(max_length=200, pattern=TOOL_NAME)
    tool_input: dict[str, Any] = Field(default_factory=dict)
    session_id: str = Field(default="", max_length=200)
    tool_use_id: str = Field(default="", max_length=200)
    cwd: str = Field(default="", max_length=1000)


class HookDecision(BaseModel):
    """A PreToolUse hook's answer."""

    hookSpecificOutput: dict[str, Any]  # noqa: N815 - the client's name


_CREATED: Any = {
    200: {"model": CallAnswer, "description": "The same call was asked for before."},
    201: {"model": CallAnswer, "description": "The call is new."},
}

_WAITS: Any = {202: {"model": HookDecision, "description": "The call still waits for an approval."}}


class GatewayRoutes(Routes):
    """The routes."""

    def __init__(self, dependencies: WebDependencies) -> None:
        self._calls = GatewayCalls(dependencies)
        self._audit = dependencies.call_audit
        self._administration = dependencies.command_dependencies.administration
        console = dependencies.command_dependencies.console
        self._console = "" if console is None else f"{console.address}{CONSOLE_PATH}"

    @route("post", "", "Ask for an approval", response_model=CallAnswer, status_code=201, responses=_CREATED)
    async def ask(self, body: CallQuestion, caller: MemberCaller, idempotency_key: IdempotencyKey = "") -> JSONResponse:
        """Ask for an approval of a call that runs elsewhere. Rules decide at once, or people later. The same request
        attaches to its call until the answer has been read, and with an `Idempotency-Key` also after that.
        """
        call = await self._calls.submit(caller, body.request(caller, idempotency_key))
        judged = await self._calls.wait(caller, call.id, JUDGE_SECONDS, _is_judged)
        return await self._answer(judged, 200 if call.attached else 201)

    @route("post", "/check", "Ask the rules alone")
    async def check(self, body: CallQuestion, caller: MemberCaller) -> RuleAnswer:
        """Return the decision of rules about a call, at once and without asking people."""
        tool, place = external_tool(body.request(caller)), caller.place()
        rules = self._administration.rules(place)
        result = rules.judge(tool, body.arguments, caller.author, caller.member).stored
        if result.policy is ApprovalPolicy.ALWAYS_DENY:
            await self._audit.record_forbidden(DirectCall(tool, body.arguments, place, caller.author), result.rule)
        return RuleAnswer(decision=_DECISIONS.get(result.policy, "ask"), rule=result.rule, reason=result.why)

    @route("post", "/hook", "Decide a PreToolUse hook", response_model=HookDecision, responses=_WAITS)
    async def decide_hook(
        self,
        body: HookEvent,
        caller: MemberCaller,
        place: RequestStreamPlace,
        wait: Annotated[float, Query(ge=0, le=_LONGEST_HOOK, description="Longest wait in seconds.")] = _HOOK_SECONDS,
        defer: Annotated[bool, Query(description="Defer a call that waits, in place of a denial.")] = False,
    ) -> JSONResponse:
        """Decide the call of an agent's PreToolUse hook. An answer is given once: a call that is repeated after it is a
        new one. At the end of the wait the approval stays, and the same call attaches to it.
        """
        origin = {"cwd": body.cwd, "session": body.session_id, "toolUseId": body.tool_use_id}
        own_words = {name: text for name, text in origin.items() if text}
        request = GatewayRequest(
            body.tool_name, body.tool_input, caller.name, body.session_id, audience=caller.name, origin=own_words
        )
        seconds = wait if wait > 0 and place.take_to_wait() else 0.0
        while True:
            call = await self._calls.submit(caller, request)
            call = await self._calls.wait(caller, call.id, JUDGE_SECONDS, _is_judged)
            call = await self._calls.wait(caller, call.id, seconds)
            if call.status is GatewayStatus.PENDING or await self._calls.delivered(call):
                return _hook_answer(call, defer=defer)

    @route("get", "/{approvalId}", "Wait for an approval", response_model=CallAnswer)
    async def read(
        self,
        approval_id: CallId,
        caller: MemberCaller,
        place: RequestStreamPlace,
        wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="Longest wait in seconds.")] = 0.0,
    ) -> JSONResponse:
        """Return a call of this token, at its end or after `wait` seconds."""
        may_wait = wait > 0 and place.take_to_wait()
        return await self._answer(await self._calls.wait(caller, approval_id, wait if may_wait else 0.0))

    @route("delete", "/{approvalId}", "Withdraw a call", response_model=CallAnswer)
    async def withdraw(self, approval_id: CallId, caller: MemberCaller) -> JSONResponse:
        """Withdraw a call of this token that waits. One that has ended stays as it is."""
        return await self._answer(await self._calls.withdraw(caller, approval_id, caller.author))

    async def _answer(self, call: GatewayCall, status: int = 200) -> JSONResponse:
        """Return the response, after which the call counts as delivered if it has ended."""
        receipt = await self._calls.receipt(call)
        content = CallAnswer(**self._shape(call), receipt=receipt).model_dump(mode="json")
        return JSONResponse(content, status, background=BackgroundTask(self._calls.delivered, call))

    def _shape(self, call: GatewayCall) -> Mapping[str, Any]:
        step, turn = call.step, call.view.turn
        is_pending = call.status is GatewayStatus.PENDING
        approval = step.approval if step is not None and is_pending else None
        expires_at = None if approval is None else approval.expires_at
        waiting_for = (
            None
            if approval is None
            else self._administration.signed_by(approval.requirements, turn.conversation, turn.question.agent)
        )
        return {
            "approval_id": call.id,
            "status": call.status,
            "server": call.request.server,
            "tool": call.request.tool,
            "arguments": dict(call.arguments),
            "edited": call.edited,
            "deciders": list(call.deciders),
            "reason": call.reason,
            "waiting_for": waiting_for,
            "expires_at": None if expires_at is None else format_time(expires_at),
            "url": f"{self._console}/approvals/{approval.id}" if approval is not None and self._console else None,
        }


def _is_judged(view: TurnView) -> bool:
    return view.turn.status.ended or bool(view.awaiting)


def _hook_answer(call: GatewayCall, *, defer: bool) -> JSONResponse:
    """Return the hook's answer about a call. A client that knows no `202` takes it as a denial, too."""
    output: dict[str, Any] = {"hookEventName": "PreToolUse", "permissionDecision": "deny"}
    match call.status:
        case GatewayStatus.PENDING:
            output["permissionDecision"] = "defer" if defer else "deny"
            output["permissionDecisionReason"] = _(
                "Nobody has decided yet. The approval stays: the same call, made again, waits for it."
            )
        case GatewayStatus.APPROVED:
            by = ", ".join(call.deciders)
            reason = _("Approved by {names}.", names=by) if by else _("A rule allows it.")
            output |= {"permissionDecision": "allow", "permissionDecisionReason": reason}
            output["updatedInput"] = dict(call.arguments)
        case status:
            output["permissionDecisionReason"] = call.reason or status.value
    return JSONResponse({"hookSpecificOutput": output}, 202 if call.status is GatewayStatus.PENDING else 200)


def routes(dependencies: WebDependencies) -> APIRouter:
    """Return the routes."""
    return GatewayRoutes(dependencies).mount("/api/approvals", "gateway")
