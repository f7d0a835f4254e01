"""Call authorization: decides if a call runs at once, needs an approval, or is rejected.

The rules are read once per completion, and the result is stored with the call. Approvers to name and notify are
resolved afterwards (`bot.engine.possible_approvers`).
"""

from __future__ import annotations

import dataclasses
import difflib
import heapq
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bot.domain.approvals import Approval, ApprovalPolicy, ApprovalRequirements, OnTimeout, fingerprint
from bot.domain.conversations import Author, Member
from bot.domain.flows import Words
from bot.domain.messages import ToolCall, explained_failure
from bot.domain.policies import PolicyResult, StoredPolicyResult
from bot.domain.secrets import SecretSpan, StoredSecret, stored_secrets
from bot.domain.servers import FILE
from bot.domain.tools import Tool, ToolSet
from bot.domain.turns import CallOrigin, StepStatus, ToolRef, ToolStep
from bot.engine.policy.information_flow import UNTAINTED, Taint
from bot.engine.policy.rules import Rules
from bot.i18n import LazyText, _, gettext_lazy, join_lazy

APPROVAL_ID_BYTES = 12
"""Random bytes of an approval id. The button that approves all calls of a card has their ids in 100 characters."""

_MAX_SUGGESTIONS = 3
_MAX_TOOLS = 1_000
"""Highest number of tools to compare with. Larger sets take too long; the model searches them instead."""
_MAX_COMPARED = 12
"""Spellings that the slower letter-by-letter comparison gets."""
_MAX_LETTERS = 64
"""Compared letters of a name. Names in model requests are not longer."""
_SIMILAR_SERVER = 0.6
_WORDS = re.compile(r"[^\W_]+")
_SHOWN_OF_UNREADABLE = 500


def not_run(reason: str) -> LazyText:
    """Return the text for a call that was not sent for this reason."""
    return gettext_lazy("Not run: {reason}", reason=reason)


def not_enabled_reason(tool: str) -> LazyText:
    """Return the reason why a tool of another profile is not called."""
    return gettext_lazy("{tool} is not enabled in this conversation's profile.", tool=tool)


def barred_reason(tool: str) -> LazyText:
    """Return the reason why a tool of an excluded server is not called."""
    return gettext_lazy(
        "the operator's settings exclude the server of {tool}. An administrator sees in `/mcp list` which setting.",
        tool=tool,
    )


def reject_while_checking(n: int, call: ToolCall) -> ToolStep:
    """Return the step of a call that is not made in the turn that checks an earlier one."""
    reason = gettext_lazy(
        "this turn only finds out whether an earlier call has run. Use tools that only read; the user can run the call "
        "again."
    )
    return _rejected_step(n, call, None, StepStatus.FAILED, not_run(reason))


def withheld_reason(tool: str) -> LazyText:
    """Return the reason why a tool that waits for a review is not called."""
    server, separator, _rest = tool.partition("__")
    command = f"`/mcp review {server}`" if separator else "`/mcp review`"
    return gettext_lazy(
        "{tool} is new or has changed, and an admin has to review it first: {command}.", tool=tool, command=command
    )


def closed_reason(name: str, offered: ToolSet) -> str:
    """Return the reason why a known tool is not offered: it waits for a review, or its server is excluded. Empty for
    other tools.
    """
    if name in offered.withheld:
        return withheld_reason(name)
    return barred_reason(name) if name in offered.excluded else ""


def away_text(server: str) -> LazyText:
    """Return the text for a call of a server that is not connected."""
    return gettext_lazy(
        "Not run: server {server} is not available now. Its tools are offered again when it is connected. Tell the "
        "user; do not use another server in its place.",
        server=server,
    )


def closest_names(written: str, tools: Sequence[Tool]) -> tuple[str, ...]:
    """Return up to three tool names that are most similar to `written`, best first. Names without the server's prefix
    are compared, too, because models omit or replace it; then the words in any order, then the server's name alone.
    """
    if len(tools) > _MAX_TOOLS:
        return ()
    wanted = written.lower()[:_MAX_LETTERS]
    names = {tool.name: (tool.name.lower(), tool.original_name.lower()) for tool in tools}
    ordered = {name: tuple(map(_in_order, spellings)) for name, spellings in names.items()}
    return (
        _closest(wanted, names)
        or _closest(_in_order(wanted), ordered)
        or _closest(wanted, {name: (name.lower().partition("__")[0],) for name in names})
    )


def _closest(wanted: str, spellings_of: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    names_by_spelling: dict[str, list[str]] = {}
    for name, spellings in spellings_of.items():
        for spelling in dict.fromkeys(spelling[:_MAX_LETTERS] for spelling in spellings):
            names_by_spelling.setdefault(spelling, []).append(name)
    wanted_pairs = _pairs(wanted)

    def similarity(spelling: str) -> float:
        pairs = _pairs(spelling)
        return len(wanted_pairs & pairs) / max(1, len(wanted_pairs) + len(pairs))

    compared = heapq.nlargest(_MAX_COMPARED, names_by_spelling, key=similarity)
    close = difflib.get_close_matches(wanted, compared, n=2 * _MAX_SUGGESTIONS)
    return tuple(dict.fromkeys(name for spelling in close for name in names_by_spelling[spelling]))[:_MAX_SUGGESTIONS]


def explain_unknown_tool(written: str, unavailable: frozenset[str], tools: Sequence[Tool]) -> str:
    """Return the text for the model about a tool that is not offered. A tool of another server is no substitute for one
    of a named server, such as that of a test system for that of production.
    """
    server, separator, _rest = written.partition("__")
    if separator and server in unavailable:
        return away_text(server)
    prefix, start = server.lower()[:_MAX_LETTERS], written.lower()[: 2 * _MAX_LETTERS]

    def may_be_meant(tool: Tool) -> bool:
        other = tool.name.partition("__")[0].lower()
        is_similar = difflib.SequenceMatcher(None, prefix, other).ratio() >= _SIMILAR_SERVER
        return is_similar or f"{other}__" in start

    meant = [tool for tool in tools if may_be_meant(tool)] if separator else tools
    suggestions = ", ".join(closest_names(written, meant))
    hint = gettext_lazy("Did you mean {name}?", name=suggestions) if suggestions else ""
    return join_lazy(gettext_lazy("There is no tool called {name}.", name=repr(written)), hint)


def _in_order(name: str) -> str:
    """Return the words of a name in alphabetical order: `add_note` may mean `notes__add`."""
    return " ".join(sorted(_WORDS.findall(name)))


def _pairs(text: str) -> set[str]:
    return {text[i : i + 2] for i in range(len(text) - 1)}


@dataclass(frozen=True, slots=True)
class CallAuthorizer:
    """Authorizes calls by the rules of their conversation.

    `approval_seconds` is None if approvals never expire. `member` is the author in this conversation; None if no rule
    needs it or the platform cannot tell. `taint` holds the sources of the model's prompt. `objection` returns the
    reason why arguments would not be sent: a call that cannot run needs no approval. `secret_spans` finds the server's
    secrets in arguments.
    """

    rules: Rules
    approval_seconds: float | None = 1800.0
    member: Member | None = None
    taint: Taint = UNTAINTED
    objection: Callable[[Tool, ToolCall], str] = lambda _tool, _call: ""
    secret_spans: Callable[[str, str], Sequence[SecretSpan]] = lambda _server_id, _text: ()

    def authorize(self, n: int, call: ToolCall, offered: ToolSet, author: Author) -> ToolStep:
        """Return the step of a model's call: `ready`, `awaiting`, or ended with a reason."""
        tool = offered.find(call.name)
        if tool is None:
            if closed := closed_reason(call.name, offered):
                is_unreviewed = call.name in offered.withheld
                result = explained_failure(call.id, not_run(closed), own=True, unreviewed=is_unreviewed)
                return ToolStep(n, call, None, StepStatus.FAILED, result=result)
            reason = explain_unknown_tool(call.name, offered.unavailable, self.rules.enabled_tools(offered).tools)
            return _rejected_step(n, call, None, StepStatus.FAILED, reason)
        if call.unreadable:
            shown = call.unreadable[:_SHOWN_OF_UNREADABLE]
            reason = not_run(gettext_lazy("the arguments are not a JSON object: {text}", text=shown))
            return _rejected_step(n, call, tool, StepStatus.FAILED, reason)
        if not self.rules.profile.enables(tool):
            return _rejected_step(n, call, tool, StepStatus.FAILED, not_run(not_enabled_reason(call.name)))
        judged = self._judge(tool, call, author)
        step = self._apply_policy(n, call, tool, author, judged)
        return dataclasses.replace(step, policy_result=judged.stored, secrets=self._stored_secrets(tool, call))

    def _stored_secrets(self, tool: Tool, call: ToolCall) -> tuple[StoredSecret, ...]:
        return stored_secrets(call.arguments, partial(self.secret_spans, tool.server_id))

    def _judge(self, tool: Tool, call: ToolCall, author: Author) -> PolicyResult:
        result = self.rules.judge(tool, call.arguments, author, self.member)
        return self.taint.apply_policy(tool, call.arguments, result)

    def _apply_policy(self, n: int, call: ToolCall, tool: Tool, author: Author, result: PolicyResult) -> ToolStep:
        match result.stored.policy:
            case ApprovalPolicy.ALWAYS_ALLOW:
                return ToolStep(n, call, _reference(tool), StepStatus.READY, tool.repeatable)
            case ApprovalPolicy.ALWAYS_DENY:
                forbidden = gettext_lazy("a policy forbids {tool}.", tool=call.name)
                return _rejected_step(n, call, tool, StepStatus.DENIED, not_run(forbidden))
            case ApprovalPolicy.ASK_USER | ApprovalPolicy.AUTO if reason := self.objection(tool, call):
                return _rejected_step(n, call, tool, StepStatus.FAILED, reason)
            case ApprovalPolicy.ASK_USER | ApprovalPolicy.AUTO:
                approval = self._request(call, tool, author, result.requirements)
                return ToolStep(n, call, _reference(tool), StepStatus.AWAITING, tool.repeatable, approval=approval)

    def authorize_rerun(self, n: int, call: ToolCall, offered: ToolSet, author: Author) -> ToolStep:
        """Return the step of a repeated call. It needs a fresh approval under any policy."""
        step = self.authorize(n, call, offered, author)
        tool = offered.find(call.name)
        if step.status is not StepStatus.READY or tool is None:
            return step
        approval = self._request(call, tool, author, self._judge(tool, call, author).requirements)
        return dataclasses.replace(step, status=StepStatus.AWAITING, approval=approval)

    def context_calls(
        self, question: str, offered: ToolSet, author: Author | None = None, *, first: int = 1
    ) -> list[ToolStep]:
        """Return calls of the servers' `auto_context_tool`s with the question, for the time before the first
        completion, numbered from `first` (`context_tool_rejection`).
        """
        steps: list[ToolStep] = []
        for guidance in offered.guidance:
            tool = offered.find(guidance.auto_context_tool)
            argument = _question_argument(tool) if tool else None
            if tool is None or argument is None:
                continue
            n = first + len(steps)
            call = ToolCall(f"context-{n}", tool.name, {argument: question})
            result = self.rules.judge(tool, call.arguments, author, self.member).stored
            if not context_tool_rejection(tool, result):
                step = ToolStep(n, call, _reference(tool), StepStatus.READY, tool.repeatable, CallOrigin.CONTEXT)
                found = self._stored_secrets(tool, call)
                steps.append(dataclasses.replace(step, policy_result=result, secrets=found))
        return steps

    def preview_call(self, n: int, step: ToolStep, offered: ToolSet, author: Author) -> ToolStep | None:
        """Return the ready call whose answer shows what `step` is about, numbered `n`; None without one that runs
        unasked. It has those arguments of `step` that its own schema knows.

        A tool that the operator's file names needs no rule that allows it, and no hints, but rules about it and words
        of others count.
        """
        asked = offered.find(step.call.name)
        if asked is None or not asked.preview or step.status is not StepStatus.AWAITING:
            return None
        own = (each for each in offered.tools if each.server_id == asked.server_id)
        tool = next((each for each in own if each.original_name == asked.preview), None)
        if tool is None or tool.name == asked.name:
            return None
        known = tool.input_schema.get("properties", {})
        arguments = {name: value for name, value in step.call.arguments.items() if name in known}
        call = ToolCall(f"preview-{n}", tool.name, arguments)
        shown = self.authorize(n, call, offered, author)
        result = shown.policy_result
        if result is None or self.objection(tool, call):
            return None
        named = asked.server_id.startswith(FILE) and not result.rule and result.taint is Words.OWN
        if shown.status is not StepStatus.READY and not (named and shown.status is StepStatus.AWAITING):
            return None
        if not (tool.read_only or asked.server_id.startswith(FILE)):
            return None
        return dataclasses.replace(shown, status=StepStatus.READY, origin=CallOrigin.PREVIEW, approval=None)

    def _request(self, call: ToolCall, tool: Tool, author: Author, terms: ApprovalRequirements) -> Approval:
        seconds = self.approval_seconds if terms.expires is None else terms.expires
        notices = [seconds / 2] if terms.remind and seconds is not None else []
        notices += [terms.escalate.after] if terms.escalate is not None else []
        return Approval(
            id=secrets.token_urlsafe(APPROVAL_ID_BYTES),
            revision=1,
            fingerprint=fingerprint(tool, call.arguments),
            requested_for=author,
            expires_in=None if terms.on_timeout is OnTimeout.KEEP else seconds,
            requirements=terms,
            remind_in=min(notices, default=None),
            secrets=self._stored_secrets(tool, call),
        )


def _rejected_step(n: int, call: ToolCall, tool: Tool | None, status: StepStatus, reason: str) -> ToolStep:
    result = explained_failure(call.id, reason, own=True)
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
        tool.unknown,
    )


def context_tool_rejection(tool: Tool, result: StoredPolicyResult) -> str:
    """Return why a tool is not called with each question although it is its server's `auto_context_tool`, as a part of
    a sentence; empty if it is. `result` is the policy of its call.

    A tool that the operator's file names needs no rule that allows it, and no hints. Rules about it count.
    """
    is_named_by_operator = tool.server_id.startswith(FILE)
    if _question_argument(tool) is None:
        return _("it takes no single text, which would be the question")
    if result.policy is ApprovalPolicy.ALWAYS_DENY:
        return _("{rule} denies it", rule=result.rule or _("the default policy"))
    if is_named_by_operator and not result.rule:
        return ""
    if result.policy is not ApprovalPolicy.ALWAYS_ALLOW:
        return _("{rule} wants an approval of each call", rule=result.rule or _("the default policy"))
    if not (is_named_by_operator or tool.read_only):
        return _("it does not say that it only reads, or its server is not marked trusted")
    return ""


def _question_argument(tool: Tool) -> str | None:
    """Return the string parameter for the question: the required one, or the only one; None if there is no such."""
    properties = tool.input_schema.get("properties", {})
    required: Sequence[str] = tool.input_schema.get("required", [])
    names = required or list(properties)
    if len(names) == 1 and properties.get(names[0], {}).get("type") == "string":
        return names[0]
    return None
