"""Changes of servers: the service that saves them, shared by `/mcp` and the HTTP API, and verbs of `/mcp`.

The verbs are `enable`, `disable`, `connect`, `disconnect`, `remove`, `sync` and `reload`. Removal cannot be undone: it
lists the lost records and asks for the name. Drafts come validated from `ServerValidator`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace

from bot.commands.argument_parser import CONFIRM, SERVER, VERSION, CommandRejected, ForbiddenRejection
from bot.commands.command import CommandContext, VerbHandler
from bot.commands.dependencies import CommandDependencies, ConfigDiff
from bot.commands.server_checks import count_tools, to_review, waits_for_review
from bot.commands.server_definition import ParsedDefinition, differences
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.commands.sign_in import SignInSteps
from bot.commands.text_format import format_ago, pluralize, server_label
from bot.commands.tool_review import withheld
from bot.domain.approvals import ApprovalPolicy
from bot.domain.capabilities import ServerCapabilities
from bot.domain.commands import ActionStyle, Parameter, ParameterKind, Reply, ReplyAction, Verb
from bot.domain.conversations import Author, Member
from bot.domain.secret_binding import cleared_slots
from bot.domain.servers import ServerEnablement, ServerRecord, ServerSnapshot, ServerStatus
from bot.errors import Conflict

A_WEEK = 7 * 86400
LOOKED_THROUGH = 500
"""Recent calls that are counted at most."""
_APPLY = Parameter("apply", "run by the file from now on", ParameterKind.FLAG)


@dataclass(frozen=True, slots=True)
class ServerSaved:
    """The saved record. `changes` are by field, without secrets; no row was written if they are empty."""

    record: ServerRecord
    changes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InvalidServer:
    """Errors by field; no record was saved. `taken` is True if another server has the name."""

    errors: Mapping[str, str]
    taken: bool = False


@dataclass(frozen=True, slots=True)
class VersionConflict:
    """A newer version exists; no record was saved. The current record is included."""

    record: ServerRecord


@dataclass(frozen=True, slots=True)
class SyncResult:
    """Capabilities after a sync, and the names of changed tools."""

    capabilities: ServerCapabilities
    new: tuple[str, ...]
    changed: tuple[str, ...]
    gone: tuple[str, ...]


class ServerService:
    """Saves servers, and applies changes to this process."""

    def __init__(self, parts: CommandDependencies, directory: ServerDirectory) -> None:
        self._parts = parts
        self._directory = directory

    async def add(
        self, draft: ParsedDefinition, policy: ApprovalPolicy | None, by: Author
    ) -> ServerSaved | InvalidServer:
        """Save a new server. `policy` applies to its tools from the start."""
        if draft.errors:
            return InvalidServer(draft.errors)
        try:
            record = await self._parts.server_store.add(draft.record, draft.secrets, by, policy=policy)
        except Conflict as conflict:
            return InvalidServer({conflict.field or "name": str(conflict)}, taken=True)
        await self._parts.administration.refresh()
        return ServerSaved(record)

    async def change(
        self, before: ServerRecord, draft: ParsedDefinition, by: Author
    ) -> ServerSaved | InvalidServer | VersionConflict:
        """Replace a record if its version is current. Stored secrets are cleared if the server's address changes."""
        if draft.errors:
            return InvalidServer(draft.errors)
        changes = differences(before, draft.record)
        # A new value of a stored secret is not a visible difference.
        changes |= {f"secret {slot}": "a new value" for slot in draft.secrets if f"secret {slot}" not in changes}
        cleared = cleared_slots(before, draft.record, draft.secrets)
        changes |= {f"secret {slot}": f"cleared: it was entered for {place}" for slot, place in cleared.items()}
        if not changes and before.secrets != draft.record.secrets:
            changes["references"] = "vouched for by the operator"
        if not changes:
            return ServerSaved(before)
        try:
            record = await self._parts.server_store.change(draft.record, draft.secrets, by, changes=changes)
        except Conflict as conflict:
            if conflict.field:
                return InvalidServer({conflict.field: str(conflict)}, taken=True)
            return VersionConflict(await self._present(before))
        await self._parts.administration.refresh()
        return ServerSaved(record, changes)

    async def set_enablement(self, record: ServerRecord, standing: ServerEnablement, by: Author) -> ServerRecord:
        """Enable or disable a server, in every process."""
        present = await self._parts.server_store.set_enablement(record.id, standing, by)
        await self._parts.administration.refresh()
        return present

    async def let_connect(self, server: VisibleServer, member: Member) -> bool:
        """Allow connections to a disconnected server. Return False if it is disabled. Raises ForbiddenRejection if that
        needs a change that the member may not make.
        """
        if server.record is None or server.record.standing is ServerEnablement.ON:
            return True
        record = self._directory.record_of(server, member)
        if record.standing is ServerEnablement.DISABLED:
            return False
        await self.set_enablement(record, ServerEnablement.ON, member.author)
        return True

    async def fetch(self, server: VisibleServer) -> SyncResult:
        """Sync a server's capabilities. Raises ServerTrouble."""
        before = {tool.original_name: tool.definition for tool in self._directory.capabilities(server).tools}
        known = await self._parts.servers.sync(server.id)
        after = {tool.original_name: tool.definition for tool in known.tools}
        return SyncResult(
            known,
            tuple(sorted(after.keys() - before.keys())),
            tuple(sorted(name for name in after.keys() & before.keys() if after[name] != before[name])),
            tuple(sorted(before.keys() - after.keys())),
        )

    async def remove(self, record: ServerRecord, by: Author) -> VersionConflict | None:
        """Delete a server with its secrets and rules if its version is current."""
        try:
            await self._parts.server_store.remove(record.id, record.version, by)
        except Conflict:
            return VersionConflict(await self._present(record))
        await self._parts.administration.refresh()
        return None

    async def reload(self, member: Member) -> ConfigDiff:
        """Apply the operator's file as it is now. Return the difference. Raises ForbiddenRejection, SettingsError."""
        if self._parts.rights.is_confined(member):
            raise ForbiddenRejection(
                "The operator's file is for every workspace. Reading it again takes a token for all of them."
            )
        return await self._parts.administration.reload()

    async def _present(self, record: ServerRecord) -> ServerRecord:
        """Return the current record."""
        records = await self._parts.server_store.records()
        return next((each for each in records if each.id == record.id), record)


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
