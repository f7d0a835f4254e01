"""Servers visible in a workspace: definitions joined with their state."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from bot.commands.argument_parser import ForbiddenRejection, NotFoundRejection
from bot.commands.command import CommandContext
from bot.commands.dependencies import CommandDependencies
from bot.commands.text_format import did_you_mean, server_label
from bot.domain.capabilities import ServerCapabilities
from bot.domain.conversations import ConversationKey, Member
from bot.domain.launch_templates import expand_template
from bot.domain.servers import (
    EVERYWHERE,
    ServerConfig,
    ServerEnablement,
    ServerRecord,
    ServerSnapshot,
    ServerStatus,
    SyncStatus,
)
from bot.errors import NotFound, ServerTrouble
from bot.ports import ServerAdmin

_STANDING = {
    ServerEnablement.ON: ServerStatus.PENDING,
    ServerEnablement.DISCONNECTED: ServerStatus.DISCONNECTED,
    ServerEnablement.DISABLED: ServerStatus.DISABLED,
}
_RESTING = (ServerStatus.PENDING, ServerStatus.IDLE)


@dataclass(frozen=True, slots=True)
class VisibleServer:
    """One server. `record` is None for a server of the operator's file; `state` is None until this process has loaded
    the server.
    """

    config: ServerConfig
    record: ServerRecord | None = None
    state: ServerSnapshot | None = None

    @property
    def id(self) -> str:
        """Id in stores and connections."""
        return self.config.id

    @property
    def name(self) -> str:
        """Slug of the server."""
        return self.config.name

    @property
    def status(self) -> ServerStatus:
        """Status: the last change by an admin comes before this process's state."""
        wanted = self.record.standing if self.record is not None else ServerEnablement.ON
        if wanted is not ServerEnablement.ON or self.state is None:
            return _STANDING[wanted]
        late = self.record is not None and self.state.status in (ServerStatus.DISABLED, ServerStatus.DISCONNECTED)
        return ServerStatus.PENDING if late else self.state.status

    @property
    def problem(self) -> str:
        """Description of the current problem; empty if there is none."""
        return self.state.problem if self.state is not None else ""

    @property
    def sync(self) -> SyncStatus:
        """Status of the last sync."""
        return self.state.sync if self.state is not None else SyncStatus.NEVER_SYNCED


class ServerDirectory:
    """Lookup of servers by name among the workspace's own and the global ones."""

    def __init__(self, parts: CommandDependencies) -> None:
        self._parts = parts
        self._servers = parts.servers

    async def all(self, conversation: ConversationKey) -> list[VisibleServer]:
        """Return all visible servers, sorted by name."""
        templates = self._parts.templates()
        records = [
            replace(record, config=expand_template(record.config, templates))
            for record in await self._parts.server_store.records()
            if _visible(record.config, conversation)
        ]
        states = self._states()
        if self._servers.enabled and any(record.id not in states for record in records):
            # Another process has added it, and this one has not polled yet.
            await self._parts.administration.refresh()
            states = self._states()
        seen = [VisibleServer(record.config, record, states.get(record.id)) for record in records]
        seen += [
            VisibleServer(state.config, None, state)
            for state in states.values()
            if state.config.from_file and _visible(state.config, conversation)
        ]
        return sorted(seen, key=lambda each: (each.name, each.id))

    def _states(self) -> dict[str, ServerSnapshot]:
        return {state.config.id: state for state in self._servers.servers()}

    async def find(self, name: str, conversation: ConversationKey) -> VisibleServer:
        """Return the server by its slug, id or title. The workspace's own come first. Raises NotFoundRejection."""
        servers = await self.all(conversation)
        wanted = name.strip().lower()
        for fits in (_is_id, _is_slug, _is_title):
            found = [server for server in servers if fits(server.config, wanted)]
            if found:
                # If the file and the database define the same server, the file's runs.
                return min(found, key=lambda each: (not each.config.from_file, each.config.workspace == EVERYWHERE))
        hint = did_you_mean(name, (each.name for each in servers))
        raise NotFoundRejection(f"There is no server of that name.{hint} `/mcp list` lists them.")

    async def get_editable(self, name: str, request: CommandContext) -> tuple[VisibleServer, ServerRecord]:
        """Return a server that the user may change, and its record. Raises NotFoundRejection, or ForbiddenRejection
        with the admins' names.
        """
        seen = await self.find(name, request.conversation)
        return seen, self.record_of(seen, request.member)

    def record_of(self, server: VisibleServer, member: Member) -> ServerRecord:
        """Return the record of a server that the member may change. Raises ForbiddenRejection."""
        if server.record is None:
            raise ForbiddenRejection(
                f"{server_label(server.config)} is managed in the operator's file `{self._parts.file}` and is "
                "read-only here. Change it there, then use `/mcp reload`."
            )
        if server.config.workspace == EVERYWHERE and not self._parts.rights.everywhere(member):
            raise ForbiddenRejection(
                f"{server_label(server.config)} belongs to every workspace. Only the operator can change it: "
                "`countersign servers` on the machine that runs the bot."
            )
        return server.record

    async def connect(self, servers: Sequence[VisibleServer]) -> bool:
        """Connect the enabled idle servers that were never synced. Return True if there were any. Failures do not
        affect other servers.
        """
        asleep = [
            server
            for server in servers
            if server.status in _RESTING and not server.problem and not self.capabilities(server).tools
        ]
        await asyncio.gather(*(self._connect(each.id) for each in asleep))
        if any(each.status is ServerStatus.CONNECTING for each in servers):
            await self._servers.wait_ready()
            return True
        return bool(asleep)

    async def _connect(self, server_id: str) -> None:
        with suppress(NotFound, ServerTrouble):
            await self._servers.connect(server_id)

    def capabilities(self, server: VisibleServer) -> ServerCapabilities:
        """Return a server's capabilities from memory."""
        return capabilities(self._servers, server.id)

    def names(self, conversation: ConversationKey) -> list[str]:
        """Return the slugs of all loaded servers, from memory."""
        states: Sequence[ServerSnapshot] = self._servers.servers()
        return sorted({state.config.name for state in states if _visible(state.config, conversation)})

    def known(self, name: str, conversation: ConversationKey) -> ServerCapabilities:
        """Return a server's capabilities by slug, from memory."""
        for state in self._servers.servers():
            if state.config.name == name and _visible(state.config, conversation):
                return capabilities(self._servers, state.config.id)
        return ServerCapabilities()


def capabilities(servers: ServerAdmin, server_id: str) -> ServerCapabilities:
    """Return a server's capabilities, empty if the server is not loaded."""
    try:
        return servers.capabilities(server_id)
    except NotFound:
        return ServerCapabilities()


def name_in_use(servers: Iterable[VisibleServer], name: str, *, excluded_tools: str = "") -> VisibleServer | None:
    """Return the server other than `excluded_tools` (an id) with this slug or title, None if the name is free."""
    wanted = name.lower()
    fits = (server for server in servers if server.id != excluded_tools)
    return next((each for each in fits if wanted in (each.name.lower(), each.config.title.lower())), None)


def _visible(config: ServerConfig, conversation: ConversationKey) -> bool:
    return config.workspace in (EVERYWHERE, conversation.workspace_key)


def _is_id(config: ServerConfig, wanted: str) -> bool:
    return config.id.lower() == wanted


def _is_slug(config: ServerConfig, wanted: str) -> bool:
    return config.name.lower() == wanted


def _is_title(config: ServerConfig, wanted: str) -> bool:
    return bool(config.title) and config.title.lower() == wanted
