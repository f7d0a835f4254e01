"""Changes of servers: the service that saves them, shared by `/mcp` and the HTTP API, and verbs of `/mcp`.

The verbs are `enable`, `disable`, `connect`, `disconnect`, `remove`, `sync` and `reload`. Removal cannot be undone: it
lists the lost records and asks for the name. Drafts come validated from `ServerValidator`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace

from bot.admin.command import (
    CONFIRM,
    SERVER,
    VERSION,
    CommandContext,
    CommandRejected,
    ForbiddenRejection,
    Verbs,
    verb,
)
from bot.admin.dependencies import CommandDependencies, ConfigDiff
from bot.admin.servers.checks import disabled_reply, to_review, waits_for_review
from bot.admin.servers.definition import ParsedDefinition, differences
from bot.admin.servers.directory import ServerDirectory, VisibleServer
from bot.admin.servers.review import withheld_tools
from bot.admin.servers.sign_in import SignInSteps
from bot.admin.text_format import (
    error_reply,
    format_ago,
    format_change,
    known_facts,
    sentences,
    server_label,
    status_word,
)
from bot.domain.approvals import ApprovalPolicy
from bot.domain.commands import ActionStyle, Parameter, ParameterKind, Reply, ReplyAction
from bot.domain.conversations import HTTP, Author, Member
from bot.domain.secret_binding import cleared_slots
from bot.domain.servers import ServerCapabilities, ServerEnablement, ServerRecord, ServerSnapshot, ServerStatus
from bot.domain.tools import count_tools
from bot.errors import Conflict, SettingsError
from bot.i18n import _, format_enumeration, gettext_lazy, ngettext
from bot.ports import CallQuery

A_WEEK = 7 * 86400
LOOKED_THROUGH = 500
"""Recent calls that are counted at most."""
_APPLY = Parameter("apply", "the same: changes count by themselves", ParameterKind.FLAG)


@dataclass(frozen=True, slots=True)
class ServerSaved:
    """The saved record. `changes` are by field, without secrets; no row was written if they are empty."""

    record: ServerRecord
    changes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InvalidServer:
    """Errors by field; no record was saved."""

    errors: Mapping[str, str]


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

    def __init__(self, dependencies: CommandDependencies, directory: ServerDirectory) -> None:
        self._dependencies = dependencies
        self._directory = directory

    async def add(
        self, draft: ParsedDefinition, policy: ApprovalPolicy | None, by: Author
    ) -> ServerSaved | InvalidServer:
        """Save a new server. `policy` applies to its tools from the start."""
        if draft.errors:
            return InvalidServer(draft.errors)
        try:
            record = await self._dependencies.stores.servers.add(draft.record, draft.secrets, by, policy=policy)
        except Conflict as conflict:
            return InvalidServer({conflict.field or "name": str(conflict)})
        await self._dependencies.administration.refresh()
        return ServerSaved(record)

    async def change(
        self, before: ServerRecord, draft: ParsedDefinition, by: Author
    ) -> ServerSaved | InvalidServer | VersionConflict:
        """Replace a record if its version is current. Stored secrets are cleared if the server's address changes."""
        if draft.errors:
            return InvalidServer(draft.errors)
        changes = differences(before, draft.record)
        # A new value of a stored secret is not a visible difference.
        changes |= {
            gettext_lazy("secret {slot}", slot=slot): gettext_lazy("a new value")
            for slot in draft.secrets
            if f"secret {slot}" not in changes
        }
        cleared = cleared_slots(before, draft.record, draft.secrets)
        changes |= {
            gettext_lazy("secret {slot}", slot=slot): gettext_lazy("cleared: it was entered for {place}", place=place)
            for slot, place in cleared.items()
        }
        if not changes and before.secrets != draft.record.secrets:
            changes[gettext_lazy("references")] = gettext_lazy("vouched for by the operator")
        if not changes:
            return ServerSaved(before)
        try:
            record = await self._dependencies.stores.servers.change(draft.record, draft.secrets, by, changes=changes)
        except Conflict as conflict:
            if conflict.field:
                return InvalidServer({conflict.field: str(conflict)})
            return VersionConflict(await self._current(before))
        await self._dependencies.administration.refresh()
        return ServerSaved(record, changes)

    async def set_enablement(self, record: ServerRecord, standing: ServerEnablement, by: Author) -> ServerRecord:
        """Enable or disable a server, in every process."""
        present = await self._dependencies.stores.servers.set_enablement(record.id, standing, by)
        await self._dependencies.administration.refresh()
        return present

    async def let_connect(self, server: VisibleServer, member: Member) -> bool:
        """Allow connections to a disconnected server. Return False if it is disabled. Raises ForbiddenRejection if that
        needs a change that the member may not make.
        """
        if server.record is None or server.record.enablement is ServerEnablement.ON:
            return True
        record = self._directory.record_of(server, member)
        if record.enablement is ServerEnablement.DISABLED:
            return False
        await self.set_enablement(record, ServerEnablement.ON, member.author)
        return True

    async def fetch(self, server: VisibleServer) -> SyncResult:
        """Sync a server's capabilities. Raises ServerTrouble."""
        before = {tool.original_name: tool.definition for tool in self._directory.capabilities(server).tools}
        known = await self._dependencies.servers.sync(server.id)
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
            await self._dependencies.stores.servers.remove(record.id, record.version, by)
        except Conflict:
            return VersionConflict(await self._current(record))
        await self._dependencies.administration.refresh()
        return None

    async def reload(self, member: Member) -> ConfigDiff:
        """Apply the operator's file as it is now. Return the difference. Raises ForbiddenRejection, SettingsError."""
        if self._dependencies.rights.is_confined(member):
            raise ForbiddenRejection(
                _("The operator's file is for every workspace. Reading it again takes a token for all of them.")
                if member.author.platform == HTTP
                else _("The operator's file is for every workspace. The operator reads it again.")
            )
        return await self._dependencies.administration.reload()

    async def _current(self, record: ServerRecord) -> ServerRecord:
        records = await self._dependencies.stores.servers.records()
        return next((candidate for candidate in records if candidate.id == record.id), record)


class ServerControl(Verbs):
    """Verbs that enable, connect, sync and remove servers."""

    def __init__(
        self,
        dependencies: CommandDependencies,
        directory: ServerDirectory,
        service: ServerService,
        sign_in_steps: SignInSteps,
    ) -> None:
        self._dependencies = dependencies
        self._directory = directory
        self._service = service
        self._sign_in_steps = sign_in_steps

    @verb("remove", "delete a server for good", (SERVER, CONFIRM, VERSION), aliases=("rm", "delete"))
    async def _remove(self, request: CommandContext) -> Reply:
        server, record = await self._directory.get_editable(request.arguments.get("server"), request)
        typed, version = request.arguments.get("confirm"), request.arguments.get("version")
        if not typed or (version and version != str(record.version)):
            return await self._consequences(server, record, overtaken=bool(typed))
        # An empty title is not a name.
        if typed.strip().lower() not in {server.name.lower(), server.config.title.lower()} - {""}:
            raise CommandRejected(_("That was not its name. Nothing was removed."))
        if await self._service.remove(record, request.author) is not None:
            server, record = await self._directory.get_editable(record.id, request)
            return await self._consequences(server, record, overtaken=True)
        return Reply(_("{server} is removed, with its secrets and rules.", server=server_label(server.config)))

    async def _consequences(self, server: VisibleServer, record: ServerRecord, *, overtaken: bool) -> Reply:
        now = self._dependencies.clock()
        waiting = await self._dependencies.stores.archive.count_pending(server.id)
        rules = sum(rule.server_id == server.id for rule in await self._dependencies.stores.policies.rules())
        this_week = CallQuery(server.config.workspace, server.name, since=now - A_WEEK)
        recent, _count = await self._dependencies.stores.archive.calls(this_week, LOOKED_THROUGH, 0)
        people = len({call.asked_by for call in recent})
        secrets = len(record.secrets.keys() - record.missing)
        uses = {
            "people": ngettext("{n} person", "{n} people", people),
            "calls": ngettext("{n} call", "{n} calls", len(recent)),
        }
        consequences = [
            _("{people} used it this week, in {calls}", **uses) if recent else _("It was not used this week"),
            ngettext("{n} rule goes", "{n} rules go", rules) if rules else _("no rules go"),
            ngettext("{n} secret goes", "{n} secrets go", secrets) if secrets else "",
        ]
        when = format_ago(record.updated_at, now)
        words = ("mcp", "remove", server.name, "--version", str(record.version))
        label, change = (
            _("Remove {server}", server=server.name),
            format_change(record.updated_at, record.updated_by, now),
        )
        return Reply(
            sentences(
                _("Remove {server}?", server=server_label(server.config)),
                _("It was changed {when}, after you asked.", when=when) if overtaken else "",
                _("{consequences}.", consequences=format_enumeration(filter(None, consequences))),
                _pending_warning(waiting),
                _("This cannot be undone. Type its name to confirm."),
            ),
            details=((gettext_lazy("changed"), change),) if overtaken else (),
            failed=overtaken,
            actions=(ReplyAction(label, words, ActionStyle.DANGER, confirm=server.name),),
        )

    @verb("enable", "let a server be used again", (SERVER,), aliases=("on",))
    async def _enable(self, request: CommandContext) -> Reply:
        server, record = await self._directory.get_editable(request.arguments.get("server"), request)
        if record.enablement is ServerEnablement.ON:
            return Reply(_("{server} is on already.", server=server_label(server.config)))
        await self._service.set_enablement(record, ServerEnablement.ON, request.author)
        return Reply(
            _("{server} is on.", server=server_label(server.config)),
            actions=(ReplyAction(_("Verify"), ("mcp", "verify", server.name)),),
        )

    @verb("disable", "disable a server until it is enabled", (SERVER,), aliases=("off",))
    async def _disable(self, request: CommandContext) -> Reply:
        server, record = await self._directory.get_editable(request.arguments.get("server"), request)
        if record.enablement is ServerEnablement.DISABLED:
            return Reply(_("{server} is off already.", server=server_label(server.config)))
        waiting = await self._dependencies.stores.archive.count_pending(server.id)
        await self._service.set_enablement(record, ServerEnablement.DISABLED, request.author)
        undo = "enable" if record.enablement is ServerEnablement.ON else "disconnect"
        text = _("{server} is off: its tools are gone from the next answer on.", server=server_label(server.config))
        return Reply(
            sentences(text, _pending_warning(waiting)),
            actions=(ReplyAction(_("Undo"), ("mcp", undo, server.name)),),
        )

    @verb("connect", "connect to a server now", (SERVER,), aliases=("reconnect",))
    async def _connect(self, request: CommandContext) -> AsyncIterator[Reply]:
        server = await self._directory.find(request.arguments.get("server"), request.conversation)
        if not await self._service.let_connect(server, request.member):
            yield disabled_reply(server)
            return
        yield Reply(_("Connecting to {server}…", server=server_label(server.config)))
        state = await self._dependencies.servers.connect(server.id)
        if not await self._sign_in_steps.is_needed(server.config):
            yield self._connect_result(server, state)
            return
        self._sign_in_steps.check_access(server, request.member)
        yield Reply(_("{server} wants a sign-in. Asking where…", server=server_label(server.config)))
        text = _("{server} lets the bot in once somebody has signed in.", server=server_label(server.config))
        yield await self._sign_in_steps.link(server, request, text)

    @verb("disconnect", "leave a server alone until it is connected again", (SERVER,))
    async def _disconnect(self, request: CommandContext) -> Reply:
        server, record = await self._directory.get_editable(request.arguments.get("server"), request)
        if record.enablement is ServerEnablement.DISCONNECTED:
            return Reply(_("{server} is disconnected already.", server=server_label(server.config)))
        await self._service.set_enablement(record, ServerEnablement.DISCONNECTED, request.author)
        undo = "connect" if record.enablement is ServerEnablement.ON else "disable"
        label = server_label(server.config)
        return Reply(
            _("{server} is disconnected, and stays so until it is connected again.", server=label),
            actions=(ReplyAction(_("Undo"), ("mcp", undo, server.name)),),
        )

    @verb("sync", "ask a server again for everything it offers", (SERVER,), aliases=("refresh",))
    async def _sync(self, request: CommandContext) -> AsyncIterator[Reply]:
        server = await self._directory.find(request.arguments.get("server"), request.conversation)
        if server.status in (ServerStatus.DISABLED, ServerStatus.DISCONNECTED):
            texts = {"server": server_label(server.config), "status": status_word(server.status)}
            yield error_reply(_("{server} is {status}: it is not connected.", **texts))
            return
        yield Reply(_("Asking {server}…", server=server_label(server.config)))
        result = await self._service.fetch(server)
        capabilities = result.capabilities
        waiting = withheld_tools(self._dependencies.servers, server.id)
        names = (gettext_lazy("new"), gettext_lazy("changed"), gettext_lazy("gone"))
        news = zip(names, (result.new, result.changed, result.gone), strict=True)
        resources = len(capabilities.resources) + len(capabilities.templates)
        yield Reply(
            _(
                "{server} is synced: {tools}, {resources}, {prompts}.",
                server=server_label(server.config),
                tools=count_tools(capabilities.tools),
                resources=ngettext("{n} resource", "{n} resources", resources),
                prompts=ngettext("{n} prompt", "{n} prompts", len(capabilities.prompts)),
            ),
            details=(*((name, ", ".join(tools)) for name, tools in news if tools), *waits_for_review(waiting)),
            actions=(*to_review(server.config, waiting), ReplyAction(_("Show tools"), ("mcp", "tools", server.name))),
        )

    @verb("reload", "say if the operator's files are in use as they are saved", (_APPLY,))
    async def _reload(self, request: CommandContext) -> Reply:
        file = self._dependencies.operator.file
        try:
            if request.arguments.has("apply"):
                difference = await self._service.reload(request.member)
            else:
                difference = await self._dependencies.administration.reload()
        except SettingsError as error:
            return Reply(
                _("The operator's files cannot be used as they are saved. The previous ones stay in use."),
                details=((gettext_lazy("cause"), error.detailed_cause), (gettext_lazy("fix"), error.fix)),
                failed=True,
            )
        facts = [(f"+ {name}", _("new")) for name in difference.added]
        facts += [(f"~ {name}", what) for name, what in difference.changed]
        facts += [(f"- {name}", _("gone")) for name in difference.removed]
        facts += [(gettext_lazy("problem"), problem) for problem in difference.problems]
        return Reply(
            _("`{file}` says what runs already.", file=file)
            if difference.is_empty
            else _("The bot runs by `{file}` as it is now.", file=file),
            details=tuple(facts),
        )

    def _connect_result(self, server: VisibleServer, state: ServerSnapshot) -> Reply:
        tools = self._directory.capabilities(server).tools
        label = server_label(server.config)
        if state.status is ServerStatus.CONNECTED:
            return Reply(_("{server} is connected: {tools}.", server=label, tools=count_tools(tools)))
        hint = self._sign_in_steps.hint(replace(server, state=state))
        return Reply(
            _("{server} is not connected.", server=label),
            details=(
                (gettext_lazy("state"), status_word(state.status)),
                (gettext_lazy("problem"), state.problem),
                *known_facts((gettext_lazy("by a browser"), hint)),
            ),
            failed=True,
            actions=(ReplyAction(_("Find out why"), ("mcp", "doctor", server.name)),),
        )


def _pending_warning(count: int) -> str:
    if not count:
        return ""
    return ngettext("{n} approval is waiting; it will not run.", "{n} approvals are waiting; they will not run.", count)
