"""`/mcp verify` and `doctor`: checks of servers, with a fix for each failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from enum import Enum
from itertools import chain

from bot.admin.command import (
    A_SERVER,
    SERVER,
    Answers,
    CommandContext,
    Verbs,
    verb,
)
from bot.admin.dependencies import Administration, CommandDependencies
from bot.admin.servers.directory import ServerDirectory, VisibleServer, capabilities
from bot.admin.servers.review import withheld_tools
from bot.admin.servers.sign_in import SignInSteps
from bot.admin.text_format import format_duration, known_facts, sentences, server_label, shorten, status_word
from bot.domain.approvals import ApprovalPolicy
from bot.domain.commands import ActionStyle, Reply, ReplyAction, Table
from bot.domain.conversations import ConversationKey, Member
from bot.domain.pins import count_definitions, escape_invisible
from bot.domain.servers import (
    ServerConfig,
    ServerStatus,
)
from bot.domain.tools import Tool, count_tools
from bot.engine.policy.authorization import context_tool_rejection
from bot.errors import NotFound
from bot.examination import Check, CheckStatus
from bot.i18n import _, format_enumeration, gettext_lazy, ngettext
from bot.ports import ServerAdmin

_MOST_STEPS = 5
_SWITCHED_OFF = (ServerStatus.DISABLED, ServerStatus.DISCONNECTED)


class ServerChecks(Verbs):
    """Verbs that check servers and report progress."""

    def __init__(
        self, dependencies: CommandDependencies, directory: ServerDirectory, sign_in_steps: SignInSteps
    ) -> None:
        self._servers = dependencies.servers
        self._administration = dependencies.administration
        self._directory = directory
        self._sign_in_steps = sign_in_steps

    @verb("verify", "whether a server can be used, step by step", (SERVER,), aliases=("test", "check"))
    async def _verify(self, request: CommandContext) -> Reply | Answers:
        server = await self._directory.find(request.arguments.get("server"), request.conversation)
        if server.status is ServerStatus.DISABLED:
            return disabled_reply(server)
        return verify_server(self._servers, self._sign_in_steps, server.config, ServerChange.VERIFIED)

    @verb("doctor", "everything about a server that could be wrong, with fixes", (A_SERVER,))
    async def _doctor(self, request: CommandContext) -> AsyncIterator[Reply]:
        name = request.arguments.get("server")
        if name:
            chosen = [await self._directory.find(name, request.conversation)]
        else:
            chosen = await self._directory.all(request.conversation)
        if not chosen:
            yield Reply(_("There is no server to look at. Try `/mcp add`."))
            return
        rows: list[tuple[str, ...]] = []
        broken = 0
        for server in chosen:
            async for check in self._run_checks(server, request):
                took = f" ({format_duration(check.seconds)})" if check.seconds is not None else ""
                detail, fix = shorten(check.detail + took, 300), shorten(check.fix, 300)
                rows.append((server.name, check.finding.mark, str(check.name), detail, fix))
                broken += check.is_broken
                yield _report(_("Looking at {server}…", server=server_label(server.config)), rows)
        where = server_label(chosen[0].config)
        if len(chosen) > 1:
            where = ngettext("{n} server", "{n} servers", len(chosen))
        text = _("Nothing is wrong with {servers}.", servers=where)
        if broken:
            text = ngettext(
                "{n} thing is wrong with {servers}.", "{n} things are wrong with {servers}.", broken, servers=where
            )
        waiting = await asyncio.gather(*(self._sign_in_steps.steps(server.config) for server in chosen))
        yield _report(text, rows, failed=bool(broken), actions=tuple(chain(*waiting))[:_MOST_STEPS])

    async def _run_checks(self, server: VisibleServer, request: CommandContext) -> AsyncIterator[Check]:
        if server.status in _SWITCHED_OFF:
            yield _switched_off(server)
            return
        place = (request.member, request.conversation)
        try:
            async with aclosing(examine_server(self._servers, self._administration, server.config, *place)) as checks:
                async for check in checks:
                    yield check
        except NotFound:
            text, fix = _("This process does not follow it yet."), _("try again in a moment")
            yield Check(gettext_lazy("known"), CheckStatus.DOUBTFUL, text, fix)


async def examine_server(
    servers: ServerAdmin,
    administration: Administration,
    config: ServerConfig,
    member: Member,
    conversation: ConversationKey,
) -> AsyncGenerator[Check, None]:
    """Yield all checks of a server, and those of one conversation: its profile, the approvers of its calls, and the
    context tool. Raises NotFound.
    """
    async with aclosing(servers.diagnose(config.id)) as checks:
        async for check in checks:
            yield check
    tools = capabilities(servers, config.id).tools
    for check in _check_place(administration, config, tools, member, conversation):
        yield check


def disabled_reply(server: VisibleServer) -> Reply:
    """Return the reply to a verb that a disabled server cannot be used with."""
    text = _("{server} is disabled. Enable it first.", server=server_label(server.config))
    return Reply(text, failed=True, actions=(ReplyAction(_("Enable"), ("mcp", "enable", server.name)),))


def _check_place(
    administration: Administration,
    config: ServerConfig,
    tools: Sequence[Tool],
    member: Member,
    conversation: ConversationKey,
) -> Iterator[Check]:
    profile = administration.rules(conversation).profile
    enabled = [tool for tool in tools if profile.enables(tool)]
    texts = {"profile": profile.name, "enabled": len(enabled), "count": len(tools)}
    if tools and not enabled:
        text = _(
            "The profile {profile} of this conversation does not enable it: its tools are not offered here.", **texts
        )
        if not any(other.enables_server(config.id) for other in administration.rule_book.profiles_in_use(conversation)):
            text = _("No profile enables it: its tools are offered nowhere.")
        fix = _("enable it here: /profile enable {server}", server=config.name)
        yield Check(gettext_lazy("profile"), CheckStatus.DOUBTFUL, text, fix)
    elif len(enabled) < len(tools):
        text = _("The profile {profile} of this conversation enables {enabled} of its {count} tools.", **texts)
        yield Check(gettext_lazy("profile"), CheckStatus.WELL, text)
    judged = [administration.rules(conversation).judge(tool, {}, member.author, member) for tool in enabled]
    if denied := [
        tool.name
        for tool, rule in zip(enabled, judged, strict=True)
        if rule.stored.policy is ApprovalPolicy.ALWAYS_DENY
    ]:
        text = _("Rules forbid {tools} here.", tools=format_enumeration(denied[:5]))
        fix = _("see which: /mcp policy explain {server} {tool}", server=config.name, tool=denied[0])
        yield Check(gettext_lazy("rules"), CheckStatus.DOUBTFUL, text, fix)
    asking = [result.requirements for result in judged if result.stored.policy is ApprovalPolicy.ASK_USER]
    if asking:
        text = ngettext(
            "{own} of {n} tool that asks may be approved by the user who asked.",
            "{own} of {n} tools that ask may be approved by the user who asked.",
            len(asking),
            own=sum(requirements.asker_may_approve for requirements in asking),
        )
        yield Check(gettext_lazy("approvals"), CheckStatus.WELL, text)
    wanted = next((tool for tool in enabled if tool.original_name == config.auto_context_tool), None)
    if wanted is not None:
        result = administration.rules(conversation).judge(wanted, {}, member.author, member).stored
        if reason := context_tool_rejection(wanted, result):
            names = {"server": config.name, "tool": wanted.original_name, "reason": reason}
            text = _("{tool} is its auto_context_tool and is not called with each question: {reason}.", **names)
            fix = _("allow it by a rule (/mcp policy set {server} {tool} allow), or leave it out", **names)
            yield Check(gettext_lazy("context tool"), CheckStatus.DOUBTFUL, text, fix)


class ServerChange(Enum):
    """The change of a server before its checks, as it is told if they pass and if not. An import names the server
    elsewhere.
    """

    VERIFIED = gettext_lazy("{server} is verified."), gettext_lazy("{server} is verified, but does not work yet.")
    ADDED = gettext_lazy("{server} is added."), gettext_lazy("{server} is added, but does not work yet.")
    CHANGED = gettext_lazy("{server} is changed."), gettext_lazy("{server} is changed, but does not work yet.")
    IMPORTED = gettext_lazy("added."), gettext_lazy("added, but does not work yet.")

    def text(self, label: str, *, works: bool = True) -> str:
        """Return the sentence on the server with this label."""
        return str(self.value[0 if works else 1]).format(server=label)


async def verify_server(
    servers: ServerAdmin, sign_in_steps: SignInSteps, config: ServerConfig, change: ServerChange
) -> AsyncIterator[Reply]:
    """Check a saved server and report every step; the last reply has the result."""
    checks: list[Check] = []
    label = server_label(config)
    async with aclosing(servers.diagnose(config.id)) as results:
        async for check in results:
            checks.append(check)
            yield Reply(_("Verifying {server}… {checks}", server=label, checks=_check_marks(checks)))
    if any(check.is_broken for check in checks):
        # The need for a sign-in shows on the first connection, which may be in progress.
        await servers.wait_ready()
        to_sign_in = await sign_in_steps.steps(config)
        style = ActionStyle.PLAIN if to_sign_in else ActionStyle.PRIMARY
        yield Reply(
            sentences(change.text(label, works=False), _check_marks(checks)),
            details=_problems(checks),
            failed=change is ServerChange.VERIFIED,
            actions=(
                *to_sign_in,
                ReplyAction(_("Try again"), ("mcp", "verify", config.name), style),
                ReplyAction(_("Edit"), ("mcp", "edit", config.name)),
            ),
        )
        return
    state = await servers.connect(config.id)
    tools = capabilities(servers, config.id).tools
    connected = state.status is ServerStatus.CONNECTED
    waiting = withheld_tools(servers, config.id)
    style = ActionStyle.PLAIN if waiting else ActionStyle.PRIMARY
    yield Reply(
        sentences(change.text(label), _check_marks(checks), "✓" if connected else "✗", count_tools(tools)),
        details=(
            *_problems(checks),
            *known_facts((gettext_lazy("problem"), state.problem)),
            *waits_for_review(waiting),
        ),
        failed=not connected and change is ServerChange.VERIFIED,
        actions=(
            *(await sign_in_steps.steps(config)),
            *to_review(config, waiting),
            ReplyAction(_("Show tools"), ("mcp", "tools", config.name), style),
        ),
    )


def waits_for_review(waiting: Sequence[Tool]) -> tuple[tuple[str, str], ...]:
    """Return the details about tools that are withheld until an admin reviews them."""
    if not waiting:
        return ()
    flagged = ((escape_invisible(tool.original_name), "; ".join(tool.flags)) for tool in waiting if tool.flags)
    return (
        (gettext_lazy("waits for review"), ", ".join(escape_invisible(tool.original_name) for tool in waiting)),
        *flagged,
    )


def to_review(config: ServerConfig, waiting: Sequence[Tool]) -> tuple[ReplyAction, ...]:
    """Return the action to review tools."""
    if not waiting:
        return ()
    label = _("Review {definitions}", definitions=count_definitions(waiting))
    return (ReplyAction(label, ("mcp", "review", "show", config.name), ActionStyle.PRIMARY),)


def _check_marks(checks: list[Check]) -> str:
    return " ".join(
        f"{check.finding.mark} {check.name}" for check in checks if check.finding is not CheckStatus.SKIPPED
    )


def _problems(checks: list[Check]) -> tuple[tuple[str, str], ...]:
    failures: list[tuple[str, str]] = []
    for check in checks:
        if check.finding in (CheckStatus.BROKEN, CheckStatus.DOUBTFUL):
            failures.append((check.name, check.detail))
            failures += [(gettext_lazy("fix"), check.fix)] if check.fix else []
    return tuple(failures)


def _report(
    text: str, rows: list[tuple[str, ...]], *, failed: bool = False, actions: tuple[ReplyAction, ...] = ()
) -> Reply:
    return Reply(text, Table(("server", "how", "look at", "found", "fix"), tuple(rows)), failed=failed, actions=actions)


def _switched_off(server: VisibleServer) -> Check:
    """Return the check of a disabled server, which is not a failure."""
    status = status_word(server.status)
    name = gettext_lazy("switched on")
    if not server.config.from_file:
        fix = _("enable it") if server.status is ServerStatus.DISABLED else _("connect it")
        return Check(name, CheckStatus.SKIPPED, _("An admin has made it {status}.", status=status), fix)
    if server.status is ServerStatus.DISABLED:
        text = _("The operator's file has it disabled: take out `disabled` to use it.")
        return Check(name, CheckStatus.SKIPPED, text)
    return Check(name, CheckStatus.SKIPPED, _("It was {status} by hand.", status=status), _("connect it"))
