"""Where a call begins: at once, with a signature, or not at all.

The rules are read once, when the model asks, and what they say is stored with the call.
"""

from __future__ import annotations

import dataclasses
import difflib
import heapq
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bot.domain.approval_requirements import NO_TERMS, ApprovalRequirements, OnTimeout
from bot.domain.approvals import Approval, ApprovalPolicy, fingerprint
from bot.domain.argument_secrets import stored_secrets
from bot.domain.conversations import Author, Member
from bot.domain.messages import TextPart, ToolCall, ToolResult
from bot.domain.policies import PolicyResult
from bot.domain.secrets import SecretSpan
from bot.domain.tools import Tool, ToolSet
from bot.domain.turns import CallOrigin, StepStatus, ToolRef, ToolStep
from bot.engine.approval_routing import route_approval
from bot.engine.rules import Rules
from bot.engine.taint import UNTAINTED, Taint

# -------------------- tool suggestions
# Which tools a model may have meant by a name that no tool has, so that it can correct itself. Called by
# `call_authorization`, with the tools that are enabled in the conversation: no others are named.

_MOST = 3
_MOST_TOOLS = 1_000
"""Among more, looking takes too long while others wait; a model has their names from searching then."""
_COMPARED = 12
"""Spellings that are compared letter by letter, which takes longer than all the rest."""
_LONGEST = 64
"""Letters of each: no name that models are given has more, and comparing takes far longer than they are longer."""


def closest_names(written: str, tools: Sequence[Tool]) -> tuple[str, ...]:
    """The names of at most three tools that look most like what was written, the likeliest first. Models leave out a
    server's name, too, or put another before it: so the names that servers have for their tools are looked at as well.
    """
    if len(tools) > _MOST_TOOLS:
        return ()
    wanted = written.lower()[:_LONGEST]
    spelled: dict[str, list[str]] = {}
    for tool in tools:
        for spelling in dict.fromkeys((tool.name.lower(), tool.original_name.lower()[:_LONGEST])):
            spelled.setdefault(spelling, []).append(tool.name)
    pairs = _pairs(wanted)
    compared = heapq.nlargest(_COMPARED, spelled, key=lambda spelling: _likeness(pairs, _pairs(spelling)))
    close = difflib.get_close_matches(wanted, compared, n=2 * _MOST)
    return tuple(dict.fromkeys(name for spelling in close for name in spelled[spelling]))[:_MOST]


def _pairs(text: str) -> set[str]:
    return {text[i : i + 2] for i in range(len(text) - 1)}


def _likeness(some: set[str], others: set[str]) -> float:
    return len(some & others) / max(1, len(some) + len(others))


NOT_ENABLED = "{} is not enabled in this conversation's profile."
BARRED = "the operator's settings keep the server of {} out. An administrator sees in `/mcp list` which setting."
WITHHELD = "{} is new or has changed, and an admin has to review it first."
_SHOWN_OF_UNREADABLE = 500


def allow_all(_tool: Tool, _call: ToolCall) -> str:
    """Where arguments are not looked at."""
    return ""


def no_secrets(_server_id: str, _text: str) -> Sequence[SecretSpan]:
    """Find nothing, where no server has a secret."""
    return ()


@dataclass(frozen=True, slots=True)
class CallAuthorizer:
    """Judges calls by what holds in their conversation. `approval_seconds` is None where approvals never expire;
    `member` is who asks there, fresh, None if no rule wants to know or nobody could say; `taint` is whose words the
    model was given. `objection` says why arguments would not be sent: nobody is asked to sign what could not run.
    `secret_spans` finds the called server's secrets in arguments.
    """

    rules: Rules = Rules()
    approval_seconds: float | None = 1800.0
    member: Member | None = None
    taint: Taint = UNTAINTED
    objection: Callable[[Tool, ToolCall], str] = allow_all
    secret_spans: Callable[[str, str], Sequence[SecretSpan]] = no_secrets

    def authorize(self, n: int, call: ToolCall, offered: ToolSet, author: Author) -> ToolStep:
        """The step of a call that the model asks for: `ready`, `awaiting`, or ended with a reason."""
        tool = offered.find(call.name)
        if tool is None:
            if call.name in offered.withheld:
                return _refused(n, call, None, StepStatus.FAILED, f"Not run: {WITHHELD.format(call.name)}")
            if call.name in offered.barred:
                return _refused(n, call, None, StepStatus.FAILED, f"Not run: {BARRED.format(call.name)}")
            near = ", ".join(closest_names(call.name, self.rules.enabled(offered).tools))
            hint = f" Did you mean {near}?" if near else ""
            return _refused(n, call, None, StepStatus.FAILED, f"There is no tool called {call.name!r}.{hint}")
        if call.unreadable:
            shown = call.unreadable[:_SHOWN_OF_UNREADABLE]
            return _refused(n, call, tool, StepStatus.FAILED, f"Not run: the arguments are no JSON object: {shown}")
        if not self.rules.profile.enables(tool):
            return _refused(n, call, tool, StepStatus.FAILED, f"Not run: {NOT_ENABLED.format(call.name)}")
        found = self.rules.judge(tool, call.arguments, author, self.member)
        found = self.taint.apply_policy(tool, call.arguments, found)
        return dataclasses.replace(self._admitted(n, call, tool, author, found), ruling=found.ruling)

    def _admitted(self, n: int, call: ToolCall, tool: Tool, author: Author, found: PolicyResult) -> ToolStep:
        match found.ruling.policy:
            case ApprovalPolicy.ALWAYS_ALLOW:
                return ToolStep(n, call, _reference(tool), StepStatus.READY, tool.repeatable)
            case ApprovalPolicy.ALWAYS_DENY:
                return _refused(n, call, tool, StepStatus.DENIED, f"Not run: a policy forbids {call.name}.")
            case ApprovalPolicy.ASK_USER | ApprovalPolicy.AUTO if reason := self.objection(tool, call):
                return _refused(n, call, tool, StepStatus.FAILED, reason)
            case ApprovalPolicy.ASK_USER | ApprovalPolicy.AUTO:
                approval = self._request(call, tool, author, found.terms)
                return ToolStep(n, call, _reference(tool), StepStatus.AWAITING, tool.repeatable, approval=approval)

    def authorize_rerun(self, n: int, call: ToolCall, offered: ToolSet, author: Author) -> ToolStep:
        """The step of a call whose first outcome nobody knows: it takes a fresh signature whatever the policy says."""
        step = self.authorize(n, call, offered, author)
        tool = offered.find(call.name)
        if step.status is not StepStatus.READY or tool is None:
            return step
        return dataclasses.replace(step, status=StepStatus.AWAITING, approval=self._request(call, tool, author))

    def context_calls(self, question: str, offered: ToolSet, author: Author | None = None) -> list[ToolStep]:
        """Calls of the servers' `auto_context_tool`s with the question, to be made before the model is asked. Only what
        is read-only and allowed without asking; anything else is left out.
        """
        steps: list[ToolStep] = []
        for guidance in offered.guidance:
            tool = offered.find(guidance.auto_context_tool)
            argument = _question_argument(tool) if tool else None
            if tool is None or argument is None or not tool.read_only:
                continue
            n = len(steps) + 1
            call = ToolCall(f"context-{n}", tool.name, {argument: question})
            ruling = self.rules.judge(tool, call.arguments, author, self.member).ruling
            if ruling.policy is ApprovalPolicy.ALWAYS_ALLOW:
                reference = _reference(tool)
                steps.append(
                    ToolStep(n, call, reference, StepStatus.READY, tool.repeatable, CallOrigin.CONTEXT, ruling=ruling)
                )
        return steps

    def _request(self, call: ToolCall, tool: Tool, author: Author, terms: ApprovalRequirements = NO_TERMS) -> Approval:
        seconds = self.approval_seconds if terms.expires is None else terms.expires
        return Approval(
            id=secrets.token_urlsafe(16),
            revision=1,
            fingerprint=fingerprint(tool, call.arguments),
            requested_for=author,
            expires_in=None if terms.on_timeout is OnTimeout.KEEP else seconds,
            terms=route_approval(terms, self.rules.signatories, self.rules.place, author),
            remind_in=seconds / 2 if terms.remind and seconds is not None else None,
            secrets=stored_secrets(call.arguments, partial(self.secret_spans, tool.server_id)),
        )


def _refused(n: int, call: ToolCall, tool: Tool | None, status: StepStatus, reason: str) -> ToolStep:
    result = ToolResult(call.id, (TextPart(reason),), is_error=True, own=True)
    return ToolStep(n, call, _reference(tool) if tool else None, status, result=result)


def _reference(tool: Tool) -> ToolRef:
    return ToolRef(
        tool.server,
        tool.original_name,
        tool.title,
        tool.definition,
        tool.read_only,
        tool.destructive,
        tool.server_id,
        tool.place,
    )


def _question_argument(tool: Tool) -> str | None:
    """The one string parameter that a context tool takes the question in: the required one, or the only one."""
    properties = tool.input_schema.get("properties", {})
    required: Sequence[str] = tool.input_schema.get("required", [])
    names = required or list(properties)
    if len(names) == 1 and properties.get(names[0], {}).get("type") == "string":
        return names[0]
    return None
