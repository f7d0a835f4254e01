"""`/mcp review`, `review approve`, `review refuse`: new and changed tools and instructions, and their differences.

A decision names the digest of the shown definitions, because a server may change a tool during the review. Text from a
server is only in cells, details and documents, never in the text of a reply.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from bot.admin.command import A_SERVER, SERVER, CommandContext, ForbiddenRejection, Verbs, option, verb
from bot.admin.dependencies import CommandDependencies
from bot.admin.servers.directory import ServerDirectory, VisibleServer
from bot.admin.text_format import (
    code,
    format_ago,
    format_change,
    known_facts,
    page_of,
    page_rows,
    sentences,
    server_label,
    shorten,
)
from bot.domain.commands import ActionStyle, CompletionSource, Parameter, Reply, ReplyAction, ReplyFile, Table
from bot.domain.conversations import HTTP, Author, Member
from bot.domain.pins import (
    FIRST_SYNC,
    Pin,
    ReviewPolicy,
    ReviewStatus,
    combined_digest,
    count_definitions,
    definition_changes,
    escape_invisible,
    review_status,
)
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import PartChange, Tool, ToolKind
from bot.errors import NotFound
from bot.i18n import _, format_enumeration, gettext_lazy, ngettext
from bot.ports import ServerAdmin

_TOOL = Parameter("tool", "one tool alone", completes=CompletionSource.TOOLS)
_DEFINITION = option("definition", "its digest, as the review shows it", metavar="DIGEST")
_Decide = Callable[[str, Sequence[Tool], Author], Awaitable[None]]
_DecideShown = Callable[[VisibleServer, str, str, Member], Awaitable["tuple[UnreviewedTool, ...]"]]
_SHORT_DIGEST = 12
"""Digits of a digest that users have to type. They choose among the digests that this user was shown, because a server
could make two definitions with the same beginning.
"""
_MOST_SHOWN = 64
_MOST_DETAILS = 14
_LONGEST_VALUE = 600
_LONGEST_IN_ALL = 2_000
"""Characters of all details; longer text goes into a document."""
_MOST_ACTIONS = 5
_STATUS_TEXTS = {
    ReviewStatus.PINNED: (gettext_lazy("pinned"), gettext_lazy("nothing")),
    ReviewStatus.NEW: (gettext_lazy("new"), gettext_lazy("it was not there when the server was looked at")),
    ReviewStatus.CHANGED: (gettext_lazy("changed"), gettext_lazy("it is not what was looked at any more")),
    ReviewStatus.FLAGGED: (gettext_lazy("flagged"), gettext_lazy("there is something in it to look at")),
    ReviewStatus.REFUSED: (gettext_lazy("refused"), gettext_lazy("an admin has refused it")),
}
"""Each status in a word, and why it waits."""


@dataclass(frozen=True, slots=True)
class UnreviewedTool:
    """A tool without a pin on its definition, with its differences from the last pin. All parts differ if the pin is
    unreadable.
    """

    tool: Tool
    review: ReviewStatus
    alterations: tuple[PartChange, ...]
    pin: Pin | None = None


class ToolReview:
    """Lists unreviewed tools, and pins or refuses them."""

    def __init__(self, dependencies: CommandDependencies) -> None:
        self._dependencies = dependencies

    async def unreviewed_tools(self, server_id: str, wanted: str = "") -> tuple[UnreviewedTool, ...]:
        """Return the tools of a server that wait for a review; with `wanted` that one alone, also if it was refused."""
        pins = {pin.tool: pin for pin in await self._dependencies.stores.pins.pins_of(server_id)}
        pinned = {tool: pin.definition for tool, pin in pins.items()}
        waiting = []
        for tool in _unpinned_tools(self._dependencies.servers, server_id, wanted):
            pin, status = pins.get(tool.original_name), review_status(tool, pinned)
            if status is not ReviewStatus.PINNED:  # Another process may have pinned it a moment ago.
                changes = definition_changes(pin.pinned_tool if pin is not None else None, tool)
                waiting.append(UnreviewedTool(tool, status, changes, pin))
        return tuple(waiting)

    async def approve(
        self, server: VisibleServer, tool: str, definition: str, member: Member
    ) -> tuple[UnreviewedTool, ...]:
        """Pin a tool as shown, or all unreviewed tools if `tool` is empty; no tool if `definition` is no longer their
        digest. Return the pinned tools. Raises NotFound without the server; ForbiddenRejection if the pin would apply
        beyond a token's workspace.
        """
        return await self._decide(server, tool, definition, member, self._dependencies.stores.pins.pin)

    async def refuse(
        self, server: VisibleServer, tool: str, definition: str, member: Member
    ) -> tuple[UnreviewedTool, ...]:
        """Refuse like `approve`: these definitions are not offered, and do not wait for a review any more."""
        return await self._decide(server, tool, definition, member, self._dependencies.stores.pins.refuse)

    async def _decide(
        self, server: VisibleServer, tool: str, definition: str, member: Member, decide: _Decide
    ) -> tuple[UnreviewedTool, ...]:
        if server.config.workspace == EVERYWHERE and self._dependencies.rights.is_confined(member):
            label = server_label(server.config)
            raise ForbiddenRejection(
                _(
                    "{server} belongs to every workspace. Approving its tools takes a token for all of them.",
                    server=label,
                )
                if member.author.platform == HTTP
                else _("{server} belongs to every workspace. The operator approves its tools.", server=label)
            )
        chosen = await self.unreviewed_tools(server.id, tool)
        current_digest = (
            combined_digest(unreviewed.tool for unreviewed in chosen)
            if not tool
            else next((unreviewed.tool.definition for unreviewed in chosen), "")
        )
        if not chosen or current_digest != definition:
            return ()
        await decide(server.id, [unreviewed.tool for unreviewed in chosen], member.author)
        await self._dependencies.administration.refresh()
        return chosen


def unpinned_tools(servers: ServerAdmin, server_id: str) -> Sequence[Tool]:
    """Return the tools of a server that wait for a review; empty if the server is not loaded."""
    try:
        return servers.unpinned_tools(server_id)
    except NotFound:
        return ()


def refused_tools(servers: ServerAdmin, server_id: str) -> Sequence[Tool]:
    """Return the refused tools of a server; empty if the server is not loaded."""
    try:
        return servers.refused_tools(server_id)
    except NotFound:
        return ()


def _unpinned_tools(servers: ServerAdmin, server_id: str, wanted: str) -> Sequence[Tool]:
    waiting = unpinned_tools(servers, server_id)
    if not wanted:
        return waiting
    tools = (*waiting, *refused_tools(servers, server_id))
    return [tool for tool in tools if wanted in (tool.original_name, tool.name)]


def withheld_tools(servers: ServerAdmin, server_id: str) -> Sequence[Tool]:
    """Return the tools that are not offered before a review."""
    return unpinned_tools(servers, server_id) if servers.review is ReviewPolicy.CHANGED else ()


class ServerReview(Verbs):
    """Verbs of `/mcp review`."""

    def __init__(self, dependencies: CommandDependencies, directory: ServerDirectory) -> None:
        self._dependencies = dependencies
        self._directory = directory
        self._review = ToolReview(dependencies)
        self._shown: deque[tuple[str, str, str]] = deque(maxlen=_MOST_SHOWN)

    @verb(
        "review show",
        "tools that are new or have changed, with the differences",
        (A_SERVER, _TOOL),
        aliases=("review", "review list"),
        reads=True,
    )
    async def _show(self, request: CommandContext) -> Reply:
        name = request.arguments.get("server")
        if not name:
            return self._servers(await self._directory.all(request.conversation), request)
        server = await self._directory.find(name, request.conversation)
        await self._directory.connect([server])
        return await self._show_server(server, request)

    @verb("review approve", "offer tools as they were shown", (SERVER, _TOOL, _DEFINITION), free=True)
    async def _approve(self, request: CommandContext) -> Reply:
        server = await self._directory.find(request.arguments.get("server"), request.conversation)
        decided = await self._decide(request, server, "approve", self._review.approve)
        if isinstance(decided, Reply):
            return decided
        texts = {"definitions": count_definitions(decided), "server": server_label(server.config)}
        return Reply(
            _("Approved: {definitions} of {server}, to be offered from the next answer on.", **texts),
            details=((gettext_lazy("approved"), _names(decided)),),
        )

    @verb("review refuse", "never offer these definitions", (SERVER, _TOOL, _DEFINITION), free=True)
    async def _refuse(self, request: CommandContext) -> Reply:
        server = await self._directory.find(request.arguments.get("server"), request.conversation)
        decided = await self._decide(request, server, "refuse", self._review.refuse)
        if isinstance(decided, Reply):
            return decided
        texts = {"definitions": count_definitions(decided), "server": server_label(server.config)}
        return Reply(
            _("Refused: {definitions} of {server}. Other definitions of the same tools wait again.", **texts),
            details=((gettext_lazy("refused"), _names(decided)),),
        )

    async def _decide(
        self, request: CommandContext, server: VisibleServer, verb_name: str, decide: _DecideShown
    ) -> Sequence[Tool] | Reply:
        """Return the decided tools, or the reason why no tool was decided."""
        arguments = request.arguments
        definition = arguments.get("definition")
        if not definition:
            # A decision implies a review.
            shown = await self._show_server(server, request)
            return replace(shown, text=sentences(shown.text, _what_is_missing(shown, verb_name)))
        definition = self._whole_digest(server, definition, request.member)
        decided = await decide(server, arguments.get("tool"), definition, request.member)
        if decided:
            return [unreviewed.tool for unreviewed in decided]
        again = ReplyAction(_("Review"), ("mcp", "review", "show", server.name), ActionStyle.PRIMARY)
        label = server_label(server.config)
        return Reply(
            _("What waits in {server} is not what you have looked at any more. Nothing was decided.", server=label),
            failed=True,
            actions=(again,),
        )

    def _servers(self, servers: Sequence[VisibleServer], request: CommandContext) -> Reply:
        waiting = [
            (server, tools) for server in servers if (tools := unpinned_tools(self._dependencies.servers, server.id))
        ]
        if not waiting:
            return Reply(_("No tool waits for a review: every definition is the accepted one."))
        total = sum(len(tools) for _server, tools in waiting)
        page = page_rows(waiting, request.arguments.page)
        text = ngettext(
            "{definitions} of {servers} waits for a review.",
            "{definitions} of {servers} wait for a review.",
            total,
            definitions=_capitalized_count([tool for _server, tools in waiting for tool in tools]),
            servers=ngettext("{n} server", "{n} servers", len(waiting)),
        )
        return Reply(
            sentences(text, self._meanwhile),
            Table(
                ("server", "tools", "which"),
                tuple((server.name, str(len(tools)), shorten(_names(tools))) for server, tools in page),
                tuple(("mcp", "review", "show", server.name) for server, _tools in page),
            ),
            actions=tuple(
                ReplyAction(_("Review {server}", server=server.name), ("mcp", "review", "show", server.name))
                for server, _tools in page[:_MOST_ACTIONS]
            ),
            page=page_of(request.arguments.page, len(waiting), ("mcp", "review", "show")),
        )

    async def _show_server(self, server: VisibleServer, request: CommandContext) -> Reply:
        wanted = request.arguments.get("tool")
        chosen = await self._review.unreviewed_tools(server.id, wanted)
        if not chosen:
            return self._nothing_to_review(server, wanted)
        is_single = len(chosen) == 1
        digest = chosen[0].tool.definition if is_single else combined_digest(shown.tool for shown in chosen)
        self._shown.append((request.member.author.principal, server.id, digest))
        return self._one_tool(server, chosen[0]) if is_single else self._several_tools(server, chosen, request)

    def _whole_digest(self, server: VisibleServer, written: str, member: Member) -> str:
        """Return the digest that begins as written, among those that this member was shown; else what was written."""
        shown = {
            digest
            for principal, server_id, digest in self._shown
            if (principal, server_id) == (member.author.principal, server.id) and digest.startswith(written.lower())
        }
        return shown.pop() if len(shown) == 1 and len(written) >= _SHORT_DIGEST else written

    def _nothing_to_review(self, server: VisibleServer, wanted: str) -> Reply:
        if wanted:
            self._directory.find_tool(server, wanted)
        label = server_label(server.config)
        refused = refused_tools(self._dependencies.servers, server.id)
        return Reply(
            _("This tool of {server} has its accepted definition. No tool waits for a review.", server=label)
            if wanted
            else _("No tool of {server} waits for a review.", server=label)
            if refused
            else _("Every tool of {server} has its accepted definition. No tool waits for a review.", server=label),
            details=known_facts((gettext_lazy("refused"), _names(refused))),
        )

    def _one_tool(self, server: VisibleServer, unreviewed: UnreviewedTool) -> Reply:
        tool = unreviewed.tool
        facts = (*self._facts(unreviewed), *_differences(unreviewed))
        long = _too_long(facts)
        label, reason = server_label(server.config), _STATUS_TEXTS[unreviewed.review][1]
        is_text = tool.kind is ToolKind.INSTRUCTIONS
        name = _("The text for models") if is_text else code(tool.original_name, _("A tool"))
        texts = {"tool": name, "server": label, "reason": reason}
        return Reply(
            _("{tool} of {server} is refused and not offered.", **texts)
            if unreviewed.review is ReviewStatus.REFUSED
            else sentences(_("{tool} of {server} waits for a review: {reason}.", **texts), self._meanwhile),
            details=tuple(self._facts(unreviewed)) if long else facts,
            actions=_decisions(_("Approve"), _("Refuse"), (server.name, tool.original_name), tool.definition),
            document=_document(server, [unreviewed]) if long else None,
        )

    def _several_tools(
        self, server: VisibleServer, waiting: Sequence[UnreviewedTool], request: CommandContext
    ) -> Reply:
        facts = [
            (f"{escape_invisible(unreviewed.tool.original_name)} · {name}", text)
            for unreviewed in waiting
            for name, text in _differences(unreviewed)
        ]
        long = _too_long(facts)
        page = page_rows(waiting, request.arguments.page)
        digest = combined_digest(unreviewed.tool for unreviewed in waiting)
        rows = tuple(
            (
                escape_invisible(unreviewed.tool.original_name),
                str(_STATUS_TEXTS[unreviewed.review][0]),
                shorten(format_enumeration(change.name for change in unreviewed.alterations))
                if unreviewed.pin
                else _("all of it"),
                shorten("; ".join(unreviewed.tool.flags)),
            )
            for unreviewed in page
        )
        return Reply(
            sentences(
                ngettext(
                    "{definitions} of {server} waits for a review.",
                    "{definitions} of {server} wait for a review.",
                    len(waiting),
                    definitions=_capitalized_count([unreviewed.tool for unreviewed in waiting]),
                    server=server_label(server.config),
                ),
                self._meanwhile,
            ),
            Table(("tool", "is", "what is different", "look at"), rows),
            details=() if long else tuple(facts),
            actions=(
                *(
                    _review_action(server, unreviewed, number)
                    for number, unreviewed in enumerate(page[:_MOST_ACTIONS], 1)
                ),
                *_decisions(
                    _("Approve all {count}", count=len(waiting)),
                    _("Refuse all {count}", count=len(waiting)),
                    (server.name,),
                    digest,
                ),
            ),
            page=page_of(request.arguments.page, len(waiting), ("mcp", "review", "show", server.name)),
            document=_document(server, waiting) if long else None,
        )

    @property
    def _meanwhile(self) -> str:
        if self._dependencies.servers.review is ReviewPolicy.OFF:
            return _("What waits is offered all the same (`MCP_REVIEW=off`); `AUTO` asks before it runs.")
        return _("What waits is not offered.")

    def _facts(self, waiting: UnreviewedTool) -> Iterator[tuple[str, str]]:
        yield gettext_lazy("tool"), escape_invisible(waiting.tool.original_name)
        yield gettext_lazy("is"), str(_STATUS_TEXTS[waiting.review][0])
        pin = waiting.pin
        if pin is not None:
            now = self._dependencies.clock()
            yield (
                gettext_lazy("pinned"),
                _("{when}, by the first sync", when=format_ago(pin.pinned_at, now))
                if pin.pinned_by == FIRST_SYNC
                else format_change(pin.pinned_at, pin.pinned_by, now),
            )
            if pin.pinned_tool is None:
                yield gettext_lazy("note"), _("what was pinned cannot be read any more, so all of it is shown")
        yield from ((gettext_lazy("look at"), flag) for flag in waiting.tool.flags)


def _decisions(approve: str, refuse: str, subject: tuple[str, ...], digest: str) -> tuple[ReplyAction, ...]:
    """Return the buttons with these labels for the definitions of a digest."""
    return tuple(
        ReplyAction(label, ("mcp", "review", verb_name, *subject, "--definition", digest), style)
        for label, verb_name, style in (
            (approve, "approve", ActionStyle.PRIMARY),
            (refuse, "refuse", ActionStyle.DANGER),
        )
    )


def _what_is_missing(shown: Reply, verb_name: str) -> str:
    """Return what a decision without a digest lacks; empty if the reply has nothing to decide."""
    words = next((action.words for action in shown.actions if action.words[2:3] == (verb_name,)), None)
    if words is None:
        return ""
    command = "/mcp review"
    if all(code(word, "") for word in words[3:-2]):  # names that are none are not typed
        command = f"/{' '.join((*words[:-1], words[-1][:_SHORT_DIGEST]))}"
    return _(
        "Nothing is decided yet, because the digest of what you look at is missing. To decide it: {command}.",
        command=f"`{command}`",
    )


def _names(tools: Iterable[Tool]) -> str:
    return ", ".join(escape_invisible(tool.original_name) for tool in tools)


def _capitalized_count(definitions: Sequence[Tool]) -> str:
    text = count_definitions(definitions)
    return f"{text[0].upper()}{text[1:]}"


def _review_action(server: VisibleServer, waiting: UnreviewedTool, number: int) -> ReplyAction:
    name = waiting.tool.original_name
    label = _("Review {tool}", tool=name) if code(name, "") else _("Review tool {number}", number=number)
    return ReplyAction(label, ("mcp", "review", "show", server.name, name))


def _differences(waiting: UnreviewedTool) -> tuple[tuple[str, str], ...]:
    if waiting.pin is None or waiting.pin.pinned_tool is None:
        return tuple((alteration.name, alteration.after or "") for alteration in waiting.alterations)
    return tuple((alteration.name, "\n".join(_lines(alteration))) for alteration in waiting.alterations)


def _lines(alteration: PartChange) -> Iterator[str]:
    """Mark every line: a text of several lines cannot pass for several parts."""
    for mark, text in (("\N{MINUS SIGN}", alteration.before), ("+", alteration.after)):
        if text is not None:
            yield from (f"{mark} {line}" for line in text.split("\n"))


def _too_long(facts: Sequence[tuple[str, str]]) -> bool:
    return (
        len(facts) > _MOST_DETAILS
        or any(len(text) > _LONGEST_VALUE for _, text in facts)
        or sum(len(name) + len(text) for name, text in facts) > _LONGEST_IN_ALL
    )


def _document(server: VisibleServer, waiting: Sequence[UnreviewedTool]) -> ReplyFile:
    lines = [_("{server}: tools that wait for a review", server=server.name), ""]
    for unreviewed in waiting:
        lines += [f"* {escape_invisible(unreviewed.tool.original_name)} ({_STATUS_TEXTS[unreviewed.review][0]})"]
        lines += ["  " + _("look at: {flag}", flag=flag) for flag in unreviewed.tool.flags]
        for alteration in unreviewed.alterations:
            lines += [f"  {alteration.name}", *(f"    {line}" for line in _lines(alteration))]
        words = f"/mcp review approve {server.name} {escape_invisible(unreviewed.tool.original_name)}"
        command = f"{words} --definition {unreviewed.tool.definition}"
        lines += ["  " + _("to approve this tool: {command}", command=command), ""]
    if len(waiting) > 1:
        digest = combined_digest(unreviewed.tool for unreviewed in waiting)
        command = f"/mcp review approve {server.name} --definition {digest}"
        lines += [_("To approve all of them: {command}", command=command), ""]
    return ReplyFile(f"review-{server.name}.txt", "\n".join(lines), "text/plain")
