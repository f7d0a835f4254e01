"""Service of admins' servers, shared by `/mcp` and the HTTP API. Drafts come validated from `ServerValidator`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bot.commands.argument_parser import ForbiddenRejection
from bot.commands.dependencies import CommandDependencies, ConfigDiff
from bot.commands.server_definition import ParsedDefinition, differences
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.domain.approvals import ApprovalPolicy
from bot.domain.capabilities import ServerCapabilities
from bot.domain.conversations import Author, Member
from bot.domain.secret_binding import cleared_slots
from bot.domain.servers import ServerEnablement, ServerRecord
from bot.errors import Conflict


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
