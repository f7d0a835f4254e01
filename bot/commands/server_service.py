"""What becomes of servers that admins define: added, changed, switched, removed. Values in, values out.

`/mcp` says it in replies, the HTTP API in JSON; neither does any of it by itself. Drafts come from `ServerValidator`,
which has judged them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bot.commands.dependencies import CommandDependencies, ConfigDiff
from bot.commands.rejections import ForbiddenRejection
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
    """The record as it is on disk now. `changes` say what is different, field by field, without any secret; nothing
    was written where there are none.
    """

    record: ServerRecord
    changes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InvalidServer:
    """Nothing was kept: what is wrong, by field. `taken` says that another server has the name."""

    errors: Mapping[str, str]
    taken: bool = False


@dataclass(frozen=True, slots=True)
class VersionConflict:
    """Nothing was kept: somebody was faster, and this is how it stands now."""

    record: ServerRecord


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What a server offers now, and the names of the tools that are different from before."""

    capabilities: ServerCapabilities
    new: tuple[str, ...]
    changed: tuple[str, ...]
    gone: tuple[str, ...]


class ServerService:
    """Keeps servers, and lets this process follow at once."""

    def __init__(self, parts: CommandDependencies, directory: ServerDirectory) -> None:
        self._parts = parts
        self._directory = directory

    async def add(
        self, draft: ParsedDefinition, policy: ApprovalPolicy | None, by: Author
    ) -> ServerSaved | InvalidServer:
        """Keep a new server. `policy` holds for its tools from the first moment."""
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
        """Replace a record, if it is still the one that was drafted from. Stored secrets are cleared if the server
        moves away from the place they were entered for.
        """
        if draft.errors:
            return InvalidServer(draft.errors)
        changes = differences(before, draft.record)
        # A new value of a secret that is kept here already is no difference that anybody could be shown.
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
        """Switch a server on or off, in every process."""
        present = await self._parts.server_store.set_enablement(record.id, standing, by)
        await self._parts.administration.refresh()
        return present

    async def let_connect(self, seen: VisibleServer, member: Member) -> bool:
        """Let a server that was disconnected be connected to again; False if it is disabled, which is more than that.
        Raises ForbiddenRejection if it would have to be changed for it.
        """
        if seen.record is None or seen.record.standing is ServerEnablement.ON:
            return True
        record = self._directory.record_of(seen, member)
        if record.standing is ServerEnablement.DISABLED:
            return False
        await self.set_enablement(record, ServerEnablement.ON, member.author)
        return True

    async def fetch(self, seen: VisibleServer) -> SyncResult:
        """Ask a server for everything it offers. Raises ServerTrouble."""
        before = {tool.original_name: tool.definition for tool in self._directory.capabilities(seen).tools}
        known = await self._parts.servers.sync(seen.id)
        after = {tool.original_name: tool.definition for tool in known.tools}
        return SyncResult(
            known,
            tuple(sorted(after.keys() - before.keys())),
            tuple(sorted(name for name in after.keys() & before.keys() if after[name] != before[name])),
            tuple(sorted(before.keys() - after.keys())),
        )

    async def remove(self, record: ServerRecord, by: Author) -> VersionConflict | None:
        """Delete a server of this very version, with its secrets and rules."""
        try:
            await self._parts.server_store.remove(record.id, record.version, by)
        except Conflict:
            return VersionConflict(await self._present(record))
        await self._parts.administration.refresh()
        return None

    async def reload(self, member: Member) -> ConfigDiff:
        """Run by the operator's file as it is now; what has changed. Raises ForbiddenRejection, SettingsError."""
        if self._parts.rights.is_confined(member):
            raise ForbiddenRejection(
                "The operator's file is for every workspace. Reading it again takes a token for all of them."
            )
        return await self._parts.administration.reload()

    async def _present(self, record: ServerRecord) -> ServerRecord:
        """The record as it is now."""
        records = await self._parts.server_store.records()
        return next((each for each in records if each.id == record.id), record)
