"""One call of a tool: is it still what was signed, is the intent on disk, and how did it end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from bot.domain.approvals import ApprovalPolicy, fingerprint
from bot.domain.conversations import Author, Member
from bot.domain.flows import Words
from bot.domain.grants import requirements_digest
from bot.domain.messages import TextPart, ToolResult
from bot.domain.policies import PolicyResult
from bot.domain.tools import UNSURE, CallNeedsInput, CallNotSent, CallOutcomeUnknown, CallReturned, Tool, ToolOutcome
from bot.domain.turns import Claim, StepStatus, ToolStep, TurnRecord
from bot.engine.call_authorization import BARRED, NOT_ENABLED, WITHHELD
from bot.engine.elicitation import TOO_MANY, PendingElicitations
from bot.engine.monotonic_clock import monotonic
from bot.engine.rules import Rules
from bot.ports import CallContext, Toolbox, TurnLog


async def execute_call(
    step: ToolStep,
    claim: Claim,
    author: Author,
    *,
    log: TurnLog,
    toolbox: Toolbox,
    rules: Callable[[], Rules],
    member: Callable[[], Awaitable[Member | None]],
    workspace: str,
    on_record: Callable[[TurnRecord], None],
    on_progress: Callable[[str], None],
    questions: PendingElicitations,
) -> None:
    """Run a call that is ready and record how it ended, or that its server has asked back. `rules` are asked for at the
    last moment, since people may have taken hours to sign, and so is who `member` the author is by then. Raises
    LostLease and Stopped.

    A call that may not be repeated is committed as started before it is sent: whoever finds it in that state later
    knows that it may have happened.
    """
    # Somebody has approved this definition, perhaps hours ago: only such calls wait for the server to confirm it.
    unsure = await toolbox.confirm(step.tool.server_id) if step.tool and (step.approval or step.grant) else ""
    offered = await toolbox.offer(workspace)
    tool = offered.find(step.call.name)
    asker = await member()
    name = step.call.name
    if name in offered.withheld:
        problem = WITHHELD.format(name)
    elif name in offered.barred:
        problem = BARRED.format(name)
    elif unsure:
        problem = unsure
    else:
        problem = _objection(step, tool, rules(), author, asker)
    if tool is None or problem:
        # Why a server cannot confirm its tools may quote it.
        result = replace(_said(step, f"Not run: {problem}"), own=not unsure)
        on_record(await log.finish_call(claim, step.n, StepStatus.FAILED, result))
        return
    if not step.repeatable:
        on_record(await _begin(log, claim, step.n))
    context = CallContext(
        author,
        key=f"{claim.turn_id}:{step.n}",
        on_progress=on_progress,
        replies=step.resume,
        elicit=partial(questions.open, step.n),
    )
    sent_at = monotonic()
    outcome = await toolbox.call(tool, step.call, context)
    if isinstance(outcome, CallNeedsInput) and not questions.too_many(step):
        on_record(await questions.save(step.n, outcome))
        return
    status, result = _ending(step, outcome)
    on_record(await log.finish_call(claim, step.n, status, result, monotonic() - sent_at))


async def _begin(log: TurnLog, claim: Claim, n: int) -> TurnRecord:
    """Record the intent, again if this process slept over it: others may have called the outcome unknown by now, and
    nothing must be sent after that. Raises LostLease and Stopped.
    """
    while True:
        asked_at = monotonic()
        record = await log.start_call(claim, n)
        if log.lease_seconds is None or monotonic() - asked_at < log.lease_seconds:
            return record


def _objection(step: ToolStep, tool: Tool | None, rules: Rules, author: Author, member: Member | None) -> str:
    """Why a call must not be sent after all. People may have taken hours to sign it."""
    if tool is None:
        return f"{step.call.name} is not available now."
    if not rules.profile.enables(tool):
        return NOT_ENABLED.format(step.call.name)
    found = rules.judge(tool, step.call.arguments, author, member)
    if found.ruling.policy is ApprovalPolicy.ALWAYS_DENY:
        return f"a policy forbids {step.call.name}."
    if found.ruling.policy is ApprovalPolicy.ASK_USER and not (step.approval or _granted(step, found)):
        # It was allowed when the model asked, perhaps of another server of that name.
        return f"{step.call.name} needs a signature now. Call it again to ask for one."
    return _strayed(step, tool)


def _strayed(step: ToolStep, tool: Tool) -> str:
    """Why a call would be another one than was signed, or go elsewhere than its server has asked back from: the answers
    are for that one, and so is its state.
    """
    signed = step.approval or step.grant
    if signed is not None and signed.fingerprint != fingerprint(tool, step.call.arguments):
        return f"{step.call.name} has changed since it was signed. Ask again to get the new version signed."
    asked = step.tool if step.resume is not None else None
    if asked is not None and (asked.server_id, asked.place) != (tool.server_id, tool.place):
        return f"{step.call.name} is another server's by now, or at another place, and the answers were for the first."
    return ""


def _granted(step: ToolStep, found: PolicyResult) -> bool:
    """Whether it runs on a grant that has answered what is asked now: the same rule, on the same terms."""
    taint = Words.OWN if step.ruling is None else step.ruling.taint
    asked = (replace(found.ruling, taint=taint).asked_by, requirements_digest(found.terms))
    return step.grant is not None and (step.grant.rule, step.grant.terms) == asked


def _ending(step: ToolStep, outcome: ToolOutcome) -> tuple[StepStatus, ToolResult]:
    match outcome:
        case CallReturned(result):
            return (StepStatus.FAILED if result.is_error else StepStatus.DONE), result
        case CallNeedsInput():
            return StepStatus.FAILED, _said(step, TOO_MANY)
        case CallNotSent(reason):
            return StepStatus.FAILED, _said(step, f"Not run: {reason}")
        case CallOutcomeUnknown(reason) if step.repeatable:
            return StepStatus.FAILED, _said(step, reason)
        case CallOutcomeUnknown(reason):
            return StepStatus.UNKNOWN, _said(step, f"{reason} {UNSURE} Check before trying again, and tell the person.")


def _said(step: ToolStep, text: str) -> ToolResult:
    return ToolResult(step.call.id, (TextPart(text),), is_error=True)
