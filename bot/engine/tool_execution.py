"""Execution of one tool call: checks it again, records the intent, sends it and stores the outcome."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from bot.domain.approvals import ApprovalPolicy, fingerprint
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.flows import Words
from bot.domain.grants import accepted_digests
from bot.domain.messages import ToolResult, explained_failure, text_for_people
from bot.domain.policies import PolicyResult
from bot.domain.tools import UNSURE, CallNeedsInput, CallNotSent, CallOutcomeUnknown, CallReturned, Tool, ToolOutcome
from bot.domain.turns import CallOrigin, Claim, StepStatus, ToolStep, TurnRecord
from bot.engine.builtin_tools.toolbox import TurnToolbox
from bot.engine.elicitation import TOO_MANY, PendingElicitations
from bot.engine.monotonic_clock import monotonic
from bot.engine.policy.authorization import (
    barred_reason,
    context_tool_rejection,
    not_enabled_reason,
    not_run,
    withheld_reason,
)
from bot.engine.policy.rules import Rules
from bot.engine.prompt.text_format import single_line
from bot.i18n import english, gettext_lazy
from bot.ports import CallContext, Toolbox, TurnExecution

program_log = logging.getLogger(__name__)

_LONGEST_ERROR = 300


async def execute_call(
    step: ToolStep,
    claim: Claim,
    author: Author,
    *,
    log: TurnExecution,
    toolbox: TurnToolbox,
    rules: Callable[[], Rules],
    member: Callable[[], Awaitable[Member | None]],
    conversation: ConversationKey,
    on_record: Callable[[TurnRecord], None],
    on_progress: Callable[[str], None],
    on_sent: Callable[[], None],
    elicitations: PendingElicitations,
) -> None:
    """Run a ready call and store its outcome or its server's elicitation. Raises LostLease and Stopped.

    `rules` and `member` are read just before the call, because an approval may take hours. A call that may not be
    repeated is stored as started before it is sent: after a crash its outcome counts as unknown.
    """
    context = CallContext(
        author,
        key=f"{claim.turn_id}:{step.n}",
        on_progress=on_progress,
        replies=step.resume,
        elicit=partial(elicitations.open, step.n),
        conversation=conversation,
    )
    if step.tool is not None and step.tool.is_builtin:
        tool = Tool(step.call.name, step.tool.server, step.tool.name)  # no rule is about the bot's own tools
    else:
        checked = await _check_again(
            step, context, servers=toolbox.servers, rules=rules, member=member, workspace=conversation.workspace_key
        )
        if isinstance(checked, ToolResult):
            _log_failure(step, StepStatus.FAILED, checked, 0.0)
            on_record(await log.finish_call(claim, step.n, StepStatus.FAILED, checked))
            return
        tool = checked
    if not step.repeatable:
        on_record(await _record_start(log, claim, step.n))
    sent_at = monotonic()
    on_sent()
    outcome = await toolbox.call(tool, step.call, context)
    if isinstance(outcome, CallNeedsInput) and not elicitations.too_many(step):
        on_record(await elicitations.save(step.n, outcome))
        return
    status, result = _final_status(step, outcome)
    seconds = monotonic() - sent_at
    _log_failure(step, status, result, seconds)
    on_record(await log.finish_call(claim, step.n, status, result, seconds))


def _log_failure(step: ToolStep, status: StepStatus, result: ToolResult, seconds: float) -> None:
    """Log a call without a result. Its text has no secrets of its server (`bot.mcp.redaction`)."""
    if status is not StepStatus.DONE:
        error = single_line(result.text, _LONGEST_ERROR)
        program_log.warning("call of %s ended as %s after %.1f s: %s", step.call.name, status.value, seconds, error)


async def _check_again(
    step: ToolStep,
    context: CallContext,
    *,
    servers: Toolbox,
    rules: Callable[[], Rules],
    member: Callable[[], Awaitable[Member | None]],
    workspace: str,
) -> Tool | ToolResult:
    """Return the tool of a server's call, or the result of a call that must not be sent any more."""
    # Only approved and granted calls wait for the server to confirm its tools: their definition may be hours old.
    unconfirmed = ""
    if step.tool and (step.approval or step.grant):
        unconfirmed = await servers.confirm(step.tool.server_id, context)
    offered = await servers.offer(workspace)
    tool = offered.find(step.call.name)
    asker = await member()
    name, rejection = step.call.name, ""
    if name in offered.withheld:
        rejection = withheld_reason(name)
    elif name in offered.excluded:
        rejection = barred_reason(name)
    elif other_server := _other_server(step, tool):
        rejection, unconfirmed = other_server, ""
    elif unconfirmed:
        rejection = unconfirmed
    else:
        rejection = _rejection_reason(step, tool, rules(), context.author, asker)
    if tool is None or rejection:
        # The reason why a server cannot confirm its tools may hold text from the server.
        return explained_failure(step.call.id, not_run(rejection), own=not unconfirmed)
    return tool


def _other_server(step: ToolStep, tool: Tool | None) -> str:
    """Return the reason why a call is not sent to another server that has the tool by now; empty if it is the same. The
    decisions about the call were for the first.
    """
    if step.tool is None or tool is None or step.tool.server == tool.server or step.tool.server_id == tool.server_id:
        return ""
    return gettext_lazy(
        "the call was for server {server}, which is away now. Server {other} has {tool}, too. Call it again to use "
        "that one.",
        server=step.tool.server,
        other=tool.server,
        tool=step.call.name,
    )


async def _record_start(log: TurnExecution, claim: Claim, n: int) -> TurnRecord:
    """Store the start of a call, again if that took longer than the lease: another process may have set the outcome to
    unknown, and nothing may be sent after that. Raises LostLease and Stopped.
    """
    while True:
        started_at = monotonic()
        record = await log.start_call(claim, n)
        if monotonic() - started_at < log.lease_seconds:
            return record


def _rejection_reason(step: ToolStep, tool: Tool | None, rules: Rules, author: Author, member: Member | None) -> str:
    """Return the reason why a call must not be sent any more; empty if it may."""
    if tool is None:
        return gettext_lazy("{tool} is not available now.", tool=step.call.name)
    if not rules.profile.enables(tool):
        return not_enabled_reason(step.call.name)
    result = rules.judge(tool, step.call.arguments, author, member)
    if result.stored.policy is ApprovalPolicy.ALWAYS_DENY:
        return gettext_lazy("a policy forbids {tool}.", tool=step.call.name)
    if result.stored.policy is ApprovalPolicy.ASK_USER and not (
        step.approval or _is_granted(step, result) or _is_context_call(step, tool, result)
    ):
        # Allowed at the time of the completion, perhaps for another server of that name.
        return gettext_lazy("{tool} needs an approval now. Call it again to request one.", tool=step.call.name)
    return _approved_call_mismatch(step, tool)


def _approved_call_mismatch(step: ToolStep, tool: Tool) -> str:
    """Return the difference between this call and the approved one, or between this server and the one that the answers
    are for; empty if there is none.
    """
    approved = step.approval or step.grant
    if approved is not None and approved.fingerprint != fingerprint(tool, step.call.arguments):
        return gettext_lazy(
            "{tool} has changed since it was approved. Ask again to get the new version approved.", tool=step.call.name
        )
    current = step.tool if step.resume is not None else None
    if current is not None and (current.server_id, current.place) != (tool.server_id, tool.place):
        return gettext_lazy(
            "{tool} now belongs to another server or address, and the answers were for the first.", tool=step.call.name
        )
    return ""


def _is_context_call(step: ToolStep, tool: Tool, result: PolicyResult) -> bool:
    return step.origin is CallOrigin.CONTEXT and not context_tool_rejection(tool, result.stored)


def _is_granted(step: ToolStep, result: PolicyResult) -> bool:
    """Return True if the call's grant answers the current rule on its current requirements."""
    taint = Words.OWN if step.policy_result is None else step.policy_result.taint
    asked_by = replace(result.stored, taint=taint).asked_by
    grant = step.grant
    return grant is not None and grant.rule == asked_by and grant.terms in accepted_digests(result.requirements)


def _final_status(step: ToolStep, outcome: ToolOutcome) -> tuple[StepStatus, ToolResult]:
    match outcome:
        case CallReturned(result):
            return (StepStatus.FAILED if result.is_error else StepStatus.DONE), result
        case CallNeedsInput():
            return StepStatus.FAILED, explained_failure(step.call.id, TOO_MANY)
        case CallNotSent(reason):
            return StepStatus.FAILED, explained_failure(step.call.id, not_run(reason))
        case CallOutcomeUnknown(reason) if step.only_reads:
            return StepStatus.FAILED, explained_failure(step.call.id, reason)
        case CallOutcomeUnknown(reason):
            advice = f"{english(reason)} {UNSURE} Check before trying again, and tell the person."
            return StepStatus.UNKNOWN, replace(
                explained_failure(step.call.id, advice), for_people=text_for_people(reason)
            )
