"""`/mcp policy explain`: the rule that decides about a call, and the reason. For an earlier call, the result at that
time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bot.admin.command import CommandContext, CommandRejected, NotFoundRejection, option, verb
from bot.admin.servers.directory import ServerVerbs
from bot.admin.servers.listing import risk
from bot.admin.servers.review import refused_tools, withheld_tools
from bot.admin.text_format import POLICY_WORDS, page_of, page_rows, parse_user, status_word
from bot.domain.approvals import ApprovalPolicy, ApprovalRequirements
from bot.domain.commands import CompletionSource, Parameter, ParameterKind, Reply, Table
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.flows import Sends, Words
from bot.domain.lenient_json import DuplicateName, parse_json
from bot.domain.policies import PolicyResult, describe_rule
from bot.domain.tools import Tool
from bot.domain.turns import ToolStep
from bot.engine.policy.information_flow import except_after, sends_of
from bot.i18n import _, format_alternatives, gettext_lazy

_WRITERS = {
    Words.OWN: gettext_lazy("you, the operator or the tool itself"),
    Words.SHARED: gettext_lazy("several people of the team"),
    Words.STRANGERS: gettext_lazy("people outside the team, too"),
}
_READERS = {
    Sends.CLOSED: gettext_lazy("only the server reads what is sent"),
    Sends.TEAM: gettext_lazy("other people of the team read what is sent"),
    Sends.WORLD: gettext_lazy("people outside the team may read what is sent"),
}


class PolicyExplain(ServerVerbs):
    """Explanations of policies."""

    @verb(
        "policy explain",
        "which rule decides about a call, and why",
        (
            Parameter(
                "server",
                "a server; or a call: its approval's id, or TURN:N",
                required=True,
                completes=CompletionSource.SERVERS,
                metavar="NAME",
            ),
            Parameter("tool", "the server's own name for the tool", completes=CompletionSource.TOOLS),
            option("arguments", "arguments of the call", metavar="JSON"),
            option("as", "the user who would ask; you without it", metavar="PLATFORM:ID"),
            option("role", "a group or role that person is in", repeated=True, metavar="PLATFORM:ID"),
            Parameter("guest", "that person is a guest", ParameterKind.FLAG),
            option("in", "where; without it, here", metavar="CHANNEL|PLACE"),
        ),
        aliases=("explain", "why"),
        free=True,
        reads=True,
    )
    async def _explain(self, request: CommandContext) -> Reply:
        if request.arguments.has("tool"):
            return await self._hypothetical(request)
        wanted = request.arguments.get("server")
        results = await self._dependencies.stores.policies.stored_results(
            wanted, f"{request.conversation.workspace_key}:"
        )
        if not results:
            return await self._tools(wanted, request)
        call_facts = [self._earlier_result(conversation, step) for conversation, step in results]
        return Reply(
            _("What was decided of this call, when it was asked for.")
            if len(results) == 1
            else _("What was decided of these {count} calls, when they were asked for.", count=len(results)),
            details=tuple(fact for facts in call_facts for fact in facts),
        )

    async def _tools(self, name: str, request: CommandContext) -> Reply:
        """Return the rule that decides about each tool of a server."""
        try:
            server = await self._directory.find_synced(name, request.conversation)
        except NotFoundRejection:
            text = _(
                "No call of that id was asked for here. Of a call that was not, say server and tool: "
                "`/mcp policy explain SERVER TOOL`."
            )
            raise CommandRejected(text) from None
        tools = self._directory.callable_tools(server)
        rules = self._dependencies.administration.rules(request.conversation)
        page, command = page_rows(tools, request.arguments.page), ("mcp", "policy", "explain", server.name)
        results = [rules.judge(tool).stored for tool in page]
        return Reply(
            _("Policies · {count}", count=len(tools)),
            Table(
                ("tool", "policy", "decided by", "because"),
                tuple(
                    (tool.original_name, POLICY_WORDS[result.policy], result.rule or _("the default"), result.why)
                    for tool, result in zip(page, results, strict=True)
                ),
                tuple((*command, tool.original_name) for tool in page),
            ),
            page=page_of(request.arguments.page, len(tools), command),
        )

    async def _hypothetical(self, request: CommandContext) -> Reply:
        arguments = request.arguments
        server = await self._directory.find_synced(arguments.get("server"), request.conversation)
        tool = self._directory.find_tool(server, arguments.get("tool"))
        conversation = self._place(arguments.get("in"), request)
        call_arguments = _arguments(arguments.get("arguments", "{}"))
        administration, asker = self._dependencies.administration, _asker(request)
        judged = administration.rules(conversation).judge(tool, call_arguments, asker.author, asker)
        is_allowed = judged.stored.policy is ApprovalPolicy.ALWAYS_ALLOW
        words = administration.asks_after(tool, call_arguments) if is_allowed else ()
        facts: list[tuple[str, str]] = [
            (gettext_lazy("call"), f"{server.name}.{tool.original_name}"),
            (gettext_lazy("risk"), risk(tool)),
            (gettext_lazy("policy"), except_after(str(POLICY_WORDS[judged.stored.policy]), words)),
            (gettext_lazy("decided by"), judged.stored.rule or _("the default")),
            (
                gettext_lazy("which says"),
                describe_rule(judged.rule, server.name) if judged.rule else judged.stored.words,
            ),
            (gettext_lazy("because"), judged.stored.why),
            *self._approvers(judged, conversation),
            *_flow(tool, call_arguments),
            *([(gettext_lazy("asks after words of"), _authors(words))] if is_allowed else []),
            *self._withheld(tool),
            *(
                (
                    rule.id or _("another rule"),
                    f"{describe_rule(rule, tool.server if rule.server_id == tool.server_id else '')}: {why}",
                )
                for rule, why in judged.passed
            ),
        ]
        return Reply(_("What would happen to this call."), details=tuple(facts))

    def _place(self, channel_or_key: str, request: CommandContext) -> ConversationKey:
        """Parse a channel id of this workspace, or a key as in rules: `slack:T1:C9`."""
        here = request.conversation
        if ":" not in channel_or_key:
            return replace(here, channel=channel_or_key.strip("<#>"), thread="") if channel_or_key else here
        platform, workspace, channel = [*channel_or_key.split(":"), ""][:3]
        key = ConversationKey(platform, workspace, channel, "")
        if key.workspace_key != here.workspace_key and not self._dependencies.rights.operates(request.member):
            raise CommandRejected(_("Rules of another workspace are shown to its admins and to the operator."))
        return key

    def _approvers(self, judged: PolicyResult, conversation: ConversationKey) -> list[tuple[str, str]]:
        if judged.stored.policy is not ApprovalPolicy.ASK_USER:
            return []
        signed_by = self._dependencies.administration.signed_by(judged.requirements, conversation)
        return [(gettext_lazy("approved by"), signed_by), *_self_approval(judged.requirements)]

    def _withheld(self, tool: Tool) -> list[tuple[str, str]]:
        """Return the note that an unreviewed tool is not offered, regardless of rules."""
        servers, server_id = self._dependencies.servers, tool.server_id
        withheld = (*withheld_tools(servers, server_id), *refused_tools(servers, server_id))
        if all(withheld_tool.name != tool.name for withheld_tool in withheld):
            return []
        return [
            (
                gettext_lazy("review"),
                _("the tool is not offered before a review: /mcp review {server}", server=tool.server),
            )
        ]

    def _earlier_result(self, conversation: ConversationKey, step: ToolStep) -> list[tuple[str, str]]:
        policy_result, approval = step.policy_result, step.approval
        name = f"{step.tool.server}.{step.tool.name}" if step.tool else step.call.name
        facts: list[tuple[str, str]] = [(gettext_lazy("call"), f"{name} ({status_word(step.status)})")]
        if policy_result is None:
            return [*facts, (gettext_lazy("decided by"), _("no rule: it was refused before one was asked"))]
        facts += [
            (gettext_lazy("policy"), POLICY_WORDS[policy_result.policy]),
            (gettext_lazy("decided by"), policy_result.rule or _("the default")),
            (gettext_lazy("which said"), policy_result.words),
            (gettext_lazy("because"), policy_result.why),
        ]
        if approval is not None:
            facts.append(
                (
                    gettext_lazy("approved by"),
                    approval.possible_approvers.named(
                        self._dependencies.administration.signed_by(approval.requirements, conversation)
                    ),
                )
            )
            facts += _self_approval(approval.requirements)
            if approval.decided_by:
                decided = _("{status} by {who}", status=status_word(step.status), who=approval.decided_by)
                facts.append((gettext_lazy("decided"), decided))
        return facts


def _self_approval(requirements: ApprovalRequirements) -> list[tuple[str, str]]:
    """Return whether the asker may approve the call without being an approver, and why not; nothing if a rule says who
    approves.
    """
    if requirements.asker_may_approve:
        return [(gettext_lazy("the user who asks"), _("may approve it: it deletes nothing and names no others"))]
    reason = requirements.self_approval.reason
    return [(gettext_lazy("the user who asks"), reason)] if reason else []


def _authors(words: Sequence[Words]) -> str:
    return format_alternatives([str(author) for author in words]) if words else _("nobody")


def _flow(tool: Tool, arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the source of the tool's output, and the destination of its calls."""
    sends = sends_of(tool, arguments)
    facts: list[tuple[str, str]] = [
        (gettext_lazy("returns words of"), f"{tool.words}: {_WRITERS[tool.words]} ({_because(tool, tool.flow.words)})"),
        (gettext_lazy("can send"), f"{sends}: {_READERS[sends]} ({_because(tool, tool.flow.sends)})"),
    ]
    if tool.flow.recipients:
        facts.append((gettext_lazy("recipients"), _("named in {arguments}", arguments=", ".join(tool.flow.recipients))))
    return facts


def _because(tool: Tool, configured: Words | Sends | None) -> str:
    if configured is not None:
        return _("as set")
    return _("by its server's hints") if tool.trusted else _("its server is not marked trusted")


def _arguments(text: str) -> Mapping[str, Any]:
    try:
        value = parse_json(text)
    except DuplicateName as error:
        raise CommandRejected(_("`--arguments` cannot be used: {error}.", error=error)) from None
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise CommandRejected(_('`--arguments` is a JSON object, such as `{"project": "OPS"}`.'))
    return value


def _asker(request: CommandContext) -> Member:
    """Return the asking member: the current user, or one with the given roles."""
    arguments = request.arguments
    principal = arguments.get("as")
    if not principal:
        return request.member
    platform, _colon, identifier = parse_user(principal, request.conversation).rpartition(":")
    author = Author(platform, identifier, identifier)
    return Member(author, frozenset(arguments.get_all("role")), guest=arguments.has("guest"))
