"""`/mcp enable`, `disable`, `connect`, `disconnect`, `remove`, `sync`, `reload`. Removal cannot be undone: it lists the
lost records and asks for the name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from bot.commands.argument_parser import CONFIRM, SERVER, VERSION, CommandRejected
from bot.commands.command import CommandContext, VerbHandler
from bot.commands.dependencies import CommandDependencies, ConfigDiff
from bot.commands.server_checks import count_tools, to_review, waits_for_review
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.commands.server_service import ServerService
from bot.commands.sign_in import SignInSteps
from bot.commands.text_format import format_ago, pluralize, server_label
from bot.commands.tool_review import withheld
from bot.domain.commands import ActionStyle, Parameter, ParameterKind, Reply, ReplyAction, Verb
from bot.domain.servers import ServerEnablement, ServerRecord, ServerSnapshot, ServerStatus

A_WEEK = 7 * 86400
LOOKED_THROUGH = 500
"""Recent calls that are counted at most."""
_APPLY = Parameter("apply", "run by the file from now on", ParameterKind.FLAG)


class ServerControl:
    """Verbs that enable, connect, sync and remove servers."""

    def __init__(
        self, parts: CommandDependencies, directory: ServerDirectory, keeping: ServerService, signing_in: SignInSteps
    ) -> None:
        self._parts = parts
        self._directory = directory
        self._keeping = keeping
        self._signing_in = signing_in

    @property
    def handlers(self) -> tuple[VerbHandler, ...]:
        """Return the verbs."""
        one = (SERVER,)
        return (
            VerbHandler(
                Verb("remove", "delete a server for good", (SERVER, CONFIRM, VERSION), aliases=("rm", "delete")),
                self._remove,
            ),
            VerbHandler(Verb("enable", "let a server be used again", one, aliases=("on",)), self._enable),
            VerbHandler(Verb("disable", "disable a server until it is enabled", one, aliases=("off",)), self._disable),
            VerbHandler(Verb("connect", "connect to a server now", one, aliases=("reconnect",)), self._connect),
            VerbHandler(Verb("disconnect", "leave a server alone until it is connected again", one), self._disconnect),
            VerbHandler(
                Verb("sync", "ask a server again for everything it offers", one, aliases=("refresh",)), self._sync
            ),
            VerbHandler(
                Verb("reload", "read the operator's file again; the difference first", (_APPLY,)), self._reload
            ),
        )

    async def _enable(self, request: CommandContext) -> AsyncIterator[Reply]:
        seen, record = await self._directory.get_editable(request.arguments.one("server"), request)
        if record.standing is ServerEnablement.ON:
            yield Reply(f"{server_label(seen.config)} is on already.")
            return
        await self._keeping.set_enablement(record, ServerEnablement.ON, request.author)
        yield Reply(
            f"{server_label(seen.config)} is on.", actions=(ReplyAction("Verify", ("mcp", "verify", seen.name)),)
        )

    async def _disable(self, request: CommandContext) -> AsyncIterator[Reply]:
        seen, record = await self._directory.get_editable(request.arguments.one("server"), request)
        if record.standing is ServerEnablement.DISABLED:
            yield Reply(f"{server_label(seen.config)} is off already.")
            return
        waiting = await self._parts.archive.count_pending(seen.id)
        await self._keeping.set_enablement(record, ServerEnablement.DISABLED, request.author)
        note = f" {_waiting(waiting)}" if waiting else ""
        undo = ReplyAction(
            "Undo", ("mcp", "enable" if record.standing is ServerEnablement.ON else "disconnect", seen.name)
        )
        yield Reply(
            f"{server_label(seen.config)} is off: its tools are gone from the next answer on.{note}", actions=(undo,)
        )

    async def _connect(self, request: CommandContext) -> AsyncIterator[Reply]:
        seen = await self._directory.find(request.arguments.one("server"), request.conversation)
        if not await self._keeping.let_connect(seen, request.member):
            yield Reply(
                f"{server_label(seen.config)} is disabled. Enable it first.",
                failed=True,
                actions=(ReplyAction("Enable", ("mcp", "enable", seen.name)),),
            )
            return
        yield Reply(f"Connecting to {server_label(seen.config)}…")
        state = await self._parts.servers.connect(seen.id)
        if not await self._signing_in.waits(seen.config):
            yield self._stands(seen, state)
            return
        self._signing_in.allow(seen, request.member)
        yield Reply(f"{server_label(seen.config)} wants a sign-in. Asking where…")
        said = f"{server_label(seen.config)} lets the bot in once somebody has signed in."
        yield await self._signing_in.link(seen, request.member, request.conversation, said)

    async def _disconnect(self, request: CommandContext) -> AsyncIterator[Reply]:
        seen, record = await self._directory.get_editable(request.arguments.one("server"), request)
        if record.standing is ServerEnablement.DISCONNECTED:
            yield Reply(f"{server_label(seen.config)} is disconnected already.")
            return
        await self._keeping.set_enablement(record, ServerEnablement.DISCONNECTED, request.author)
        undo = ReplyAction(
            "Undo", ("mcp", "connect" if record.standing is ServerEnablement.ON else "disable", seen.name)
        )
        yield Reply(
            f"{server_label(seen.config)} is disconnected, and stays so until it is connected again.", actions=(undo,)
        )

    async def _sync(self, request: CommandContext) -> AsyncIterator[Reply]:
        seen = await self._directory.find(request.arguments.one("server"), request.conversation)
        if seen.status in (ServerStatus.DISABLED, ServerStatus.DISCONNECTED):
            yield Reply(f"{server_label(seen.config)} is {seen.status.value}: it is not connected.", failed=True)
            return
        yield Reply(f"Asking {server_label(seen.config)}…")
        fetched = await self._keeping.fetch(seen)
        known = fetched.capabilities
        waiting = withheld(self._parts.servers, seen.id)
        news = (("new", fetched.new), ("changed", fetched.changed), ("gone", fetched.gone))
        beside = [
            pluralize(len(known.resources) + len(known.templates), "resource"),
            pluralize(len(known.prompts), "prompt"),
        ]
        yield Reply(
            f"{server_label(seen.config)} is synced: {count_tools(known.tools)}, {', '.join(beside)}.",
            details=(
                *((name, ", ".join(names)) for name, names in news if names),
                *waits_for_review(waiting),
            ),
            actions=(*to_review(seen.config, waiting), ReplyAction("Show tools", ("mcp", "tools", seen.name))),
        )

    async def _remove(self, request: CommandContext) -> AsyncIterator[Reply]:
        seen, record = await self._directory.get_editable(request.arguments.one("server"), request)
        typed, version = request.arguments.one("confirm"), request.arguments.one("version")
        if not typed or (version and version != str(record.version)):
            yield await self._consequences(seen, record, overtaken=bool(typed))
            return
        # An empty title is not a name.
        if typed.strip().lower() not in {seen.name.lower(), seen.config.title.lower()} - {""}:
            raise CommandRejected("That was not its name. Nothing was removed.")
        if await self._keeping.remove(record, request.author) is not None:
            seen, record = await self._directory.get_editable(record.id, request)
            yield await self._consequences(seen, record, overtaken=True)
            return
        yield Reply(f"{server_label(seen.config)} is removed, with its secrets and rules.")

    async def _consequences(self, server: VisibleServer, record: ServerRecord, *, overtaken: bool) -> Reply:
        now = self._parts.clock()
        waiting = await self._parts.archive.count_pending(server.id)
        rules = sum(rule.server_id == server.id for rule in await self._parts.policies.rules())
        calls, _ = await self._parts.archive.calls(server.name, server.config.workspace, LOOKED_THROUGH, 0)
        recent = [call for call in calls if now - call.at < A_WEEK]
        people = len({call.asked_by for call in recent})
        secrets = len(record.secrets)
        goes = [
            f"{pluralize(people, 'person', 'people')} used it this week, in {pluralize(len(recent), 'call')}"
            if recent
            else "It was not used this week",
            f"{pluralize(rules, 'rule goes', 'rules go')}" if rules else "no rules go",
            f"{pluralize(secrets, 'secret goes', 'secrets go')}" if secrets else "",
        ]
        note = f"{', '.join(filter(None, goes))}. {_waiting(waiting)}".strip()
        changed = f" It was changed {format_ago(record.updated_at, now)}, after you asked." if overtaken else ""
        words = ("mcp", "remove", server.name, "--version", str(record.version))
        return Reply(
            f"Remove {server_label(server.config)}?{changed} {note} This cannot be undone. Type its name to confirm.",
            details=(("changed", f"{format_ago(record.updated_at, now)} by {record.updated_by}"),) if overtaken else (),
            failed=overtaken,
            actions=(ReplyAction(f"Remove {server.name}", words, ActionStyle.DANGER, confirm=server.name),),
        )

    async def _reload(self, request: CommandContext) -> AsyncIterator[Reply]:
        file = self._parts.file
        if request.arguments.given("apply"):
            difference = await self._keeping.reload(request.member)
            yield _told(f"The bot runs by `{file}` as it is now.", difference, ())
            return
        difference = await self._parts.administration.difference()
        if difference.nothing:
            yield _told(f"`{file}` says what runs already.", difference, ())
            return
        apply = (ReplyAction("Apply", ("mcp", "reload", "--apply"), ActionStyle.PRIMARY),)
        yield _told(f"`{file}` and what runs are different. Nothing has been changed yet.", difference, apply)

    def _stands(self, server: VisibleServer, state: ServerSnapshot) -> Reply:
        tools = self._directory.capabilities(server).tools
        if state.status is ServerStatus.CONNECTED:
            return Reply(f"{server_label(server.config)} is connected: {count_tools(tools)}.")
        hint = self._signing_in.hint(replace(server, state=state))
        return Reply(
            f"{server_label(server.config)} is not connected.",
            details=(
                ("state", state.status.value),
                ("problem", state.problem),
                *((("by a browser", hint),) if hint else ()),
            ),
            failed=True,
            actions=(ReplyAction("Find out why", ("mcp", "doctor", server.name)),),
        )


def _waiting(count: int) -> str:
    """Return the warning about pending calls, which are checked again before they are sent and fail then."""
    if not count:
        return ""
    return f"{pluralize(count, 'approval is', 'approvals are')} waiting; {'it' if count == 1 else 'they'} will not run."


def _told(text: str, difference: ConfigDiff, actions: tuple[ReplyAction, ...]) -> Reply:
    facts = [(f"+ {name}", "new") for name in difference.added]
    facts += [(f"~ {name}", what) for name, what in difference.changed]
    facts += [(f"- {name}", "gone") for name in difference.removed]
    facts += [("problem", problem) for problem in difference.problems]
    return Reply(text, details=tuple(facts), actions=actions)
