"""Servers visible in a workspace: definitions joined with their state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from bot.admin.command import CommandContext, CommandRejected, ForbiddenRejection, NotFoundRejection, Verbs
from bot.admin.dependencies import CommandDependencies
from bot.admin.servers.fields import is_slug
from bot.admin.servers.token_detection import looks_like_token
from bot.admin.text_format import code, did_you_mean, sentences, server_label, status_word
from bot.domain.conversations import CONSOLE, ConversationKey, Member
from bot.domain.launch_templates import expand_template
from bot.domain.servers import (
    EVERYWHERE,
    CompletionTarget,
    Prompt,
    ServerCapabilities,
    ServerConfig,
    ServerEnablement,
    ServerRecord,
    ServerSnapshot,
    ServerStatus,
    SyncStatus,
)
from bot.domain.tools import Tool, ToolKind
from bot.errors import NotFound, ServerTrouble
from bot.i18n import _
from bot.ports import ServerAdmin

_STATUS_WHEN = {
    ServerEnablement.ON: ServerStatus.PENDING,
    ServerEnablement.DISCONNECTED: ServerStatus.DISCONNECTED,
    ServerEnablement.DISABLED: ServerStatus.DISABLED,
}
_SWITCHED_OFF = (ServerStatus.DISABLED, ServerStatus.DISCONNECTED)
_IDLE = (ServerStatus.PENDING, ServerStatus.IDLE)


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
        wanted = self.record.enablement if self.record is not None else ServerEnablement.ON
        if wanted is not ServerEnablement.ON or self.state is None:
            return _STATUS_WHEN[wanted]
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

    def __init__(self, dependencies: CommandDependencies) -> None:
        self._dependencies = dependencies
        self._servers = dependencies.servers

    async def all(self, conversation: ConversationKey) -> list[VisibleServer]:
        """Return all visible servers, sorted by name."""
        templates = self._dependencies.operator.templates()
        records = [
            replace(record, config=expand_template(record.config, templates))
            for record in await self._dependencies.stores.servers.records()
            if _visible(record.config, conversation)
        ]
        states = self._states()
        if self._servers.enabled and any(record.id not in states for record in records):
            # Another process has added it, and this one has not polled yet.
            await self._dependencies.administration.refresh()
            states = self._states()
        visible = [VisibleServer(record.config, record, states.get(record.id)) for record in records]
        visible += [
            VisibleServer(state.config, None, state)
            for state in states.values()
            if state.config.from_file and _visible(state.config, conversation)
        ]
        return sorted(visible, key=lambda server: (server.name, server.id))

    def _states(self) -> dict[str, ServerSnapshot]:
        return {state.config.id: state for state in self._servers.servers()}

    async def find(self, name: str, conversation: ConversationKey) -> VisibleServer:
        """Return the server by its slug, id or title. The workspace's own come first. Raises NotFoundRejection, which
        names servers of other workspaces to the operator only.
        """
        servers = await self.all(conversation)
        wanted = name.strip().lower()
        for field in ("id", "name", "title"):
            matches = [server for server in servers if wanted and getattr(server.config, field).lower() == wanted]
            if matches:
                # If the file and the database define the same server, the file's runs.
                return min(
                    matches, key=lambda match: (not match.config.from_file, match.config.workspace == EVERYWHERE)
                )
        raise NotFoundRejection(await self._not_found_text(wanted, servers, conversation))

    async def _not_found_text(
        self, wanted: str, servers: Sequence[VisibleServer], conversation: ConversationKey
    ) -> str:
        hint = did_you_mean(wanted, (server.name for server in servers))
        # The seeds' ids have underscores.
        if not is_slug(wanted.replace("_", "-")) or looks_like_token(wanted):
            return sentences(_("There is no server of that name."), hint, _("`/mcp list` lists them."))
        if conversation.platform == CONSOLE:
            elsewhere = [record.config for record in await self._dependencies.stores.servers.records()]
            for config in elsewhere:
                if wanted in (config.name.lower(), config.id.lower()):
                    return _(
                        "MCP server {server} does not belong to this workspace. Use {command}.",
                        server=code(wanted),
                        command=f"`countersign servers --workspace {config.workspace}`",
                    )
        return sentences(_("MCP server {server} not found.", server=code(wanted)), hint, _("`/mcp list` lists them."))

    async def get_editable(self, name: str, request: CommandContext) -> tuple[VisibleServer, ServerRecord]:
        """Return a server that the user may change, and its record. Raises NotFoundRejection, or ForbiddenRejection
        with the admins' names.
        """
        server = await self.find(name, request.conversation)
        return server, self.record_of(server, request.member)

    def record_of(self, server: VisibleServer, member: Member) -> ServerRecord:
        """Return the record of a server that the member may change. Raises ForbiddenRejection."""
        if server.record is None:
            raise ForbiddenRejection(
                _(
                    "{server} is managed in the operator's file `{file}` and is "
                    "read-only here. Change it there: it counts from the next question on.",
                    server=server_label(server.config),
                    file=self._dependencies.operator.file,
                )
            )
        if server.config.workspace == EVERYWHERE and not self._dependencies.rights.administers_everywhere(member):
            raise ForbiddenRejection(
                _(
                    "{server} belongs to every workspace. Only the operator can change it: "
                    "`countersign servers` on the machine that runs the bot.",
                    server=server_label(server.config),
                )
            )
        return server.record

    async def connect(self, servers: Sequence[VisibleServer]) -> bool:
        """Connect the enabled idle servers that were never synced. Return True if there were any. Failures do not
        affect other servers.
        """
        unsynced = [
            server
            for server in servers
            if server.status in _IDLE and not server.problem and not self.capabilities(server).tools
        ]
        await asyncio.gather(*(_ignore_failure(self._servers.connect(server.id)) for server in unsynced))
        if any(server.status is ServerStatus.CONNECTING for server in servers):
            await self._servers.wait_ready()
            return True
        return bool(unsynced)

    async def find_synced(self, name: str, conversation: ConversationKey) -> VisibleServer:
        """Return a server like `find`, with its capabilities synced if there are none yet. Raises NotFoundRejection."""
        server = await self.find(name, conversation)
        await self.connect([server])
        return server

    def find_tool(self, server: VisibleServer, name: str) -> Tool:
        """Return a tool by its original or its offered name. Raises NotFoundRejection."""
        tools = self.callable_tools(server)
        tool = next((tool for tool in tools if name in (tool.original_name, tool.name)), None)
        if tool is None:
            hint = did_you_mean(name, (tool.original_name for tool in tools))
            raise NotFoundRejection(
                sentences(
                    _("{server} has no tool of that name.", server=server_label(server.config)),
                    hint,
                    _("`/mcp tools` lists them."),
                )
            )
        return tool

    def by_server(self, tool: Tool) -> Tool:
        """Return a tool under a name that reaches it at its own server, for a call by hand."""
        return self._servers.by_server(tool)

    def callable_tools(self, server: VisibleServer) -> tuple[Tool, ...]:
        """Return the tools of a server, and its resources and prompts as tools, from memory."""
        try:
            requests = self._servers.requests(server.id)
        except NotFound:
            return ()
        return (*self.capabilities(server).tools, *requests)

    async def find_with(self, kind: ToolKind, name: str, conversation: ConversationKey) -> tuple[VisibleServer, Tool]:
        """Return a server of that name with its resources or prompts as a tool. Raises CommandRejected if it has none,
        or the profile of the place does not enable them.
        """
        await self.find_synced(name, conversation)
        await self.sync_unknown([await self.find(name, conversation)])
        server = await self.find(name, conversation)
        tool = self.request_tool(server, kind)
        what = _("prompts") if kind is ToolKind.GET_PROMPT else _("resources")
        texts = {"server": server_label(server.config), "capabilities": what, "status": status_word(server.status)}
        if server.status in _SWITCHED_OFF:
            raise NotFoundRejection(_("{server} is {status}, so its {capabilities} cannot be used now.", **texts))
        if tool is None and server.status is not ServerStatus.CONNECTED:
            cause = _("{server} is not connected, and its {capabilities} are not known.", **texts)
            raise NotFoundRejection(sentences(cause, _("`/mcp show {server}` says why.", server=server.name)))
        if tool is None:
            raise NotFoundRejection(_("{server} has no {capabilities}.", **texts))
        if not self._dependencies.administration.rules(conversation).profile.enables(tool):
            raise ForbiddenRejection(
                _("{server} is not enabled in the profile of this place, so its {capabilities} are not.", **texts)
            )
        return server, tool

    async def all_synced(self, conversation: ConversationKey) -> list[VisibleServer]:
        """Return all visible servers, after the connected ones have listed their capabilities."""
        await self.connect(await self.all(conversation))
        await self.sync_unknown(await self.all(conversation))
        return await self.all(conversation)

    async def sync_unknown(self, servers: Sequence[VisibleServer]) -> None:
        """Sync the connected servers with unknown resources and prompts. Failures are ignored."""
        unknown = (
            server
            for server in servers
            if server.status is ServerStatus.CONNECTED and server.sync in (SyncStatus.NEVER_SYNCED, SyncStatus.SYNCING)
        )
        await asyncio.gather(*(_ignore_failure(self._servers.sync(server.id)) for server in unknown))

    def request_tool(self, server: VisibleServer, kind: ToolKind) -> Tool | None:
        """Return the resources or prompts of a server as a tool, None if it has none."""
        return next((tool for tool in self.callable_tools(server) if tool.kind is kind), None)

    def is_usable(self, server: VisibleServer, kind: ToolKind, conversation: ConversationKey) -> bool:
        """Return True if the server is on and has resources or prompts, and the profile of the place enables them."""
        tool = None if server.status in _SWITCHED_OFF else self.request_tool(server, kind)
        return tool is not None and self._dependencies.administration.rules(conversation).profile.enables(tool)

    def find_prompt(self, server: VisibleServer, name: str) -> Prompt:
        """Return a prompt by its name. Raises NotFoundRejection."""
        prompts = self.capabilities(server).prompts
        prompt = next((prompt for prompt in prompts if prompt.name == name), None)
        if prompt is None:
            hint = did_you_mean(name, (prompt.name for prompt in prompts))
            cause = _("{server} has no prompt of that name.", server=server_label(server.config))
            raise NotFoundRejection(sentences(cause, hint, _("`/mcp prompt list` lists them.")))
        return prompt

    async def suggestions(
        self, server: VisibleServer, targets: Sequence[CompletionTarget], given: Mapping[str, str]
    ) -> Mapping[str, Sequence[str]]:
        """Return the server's suggestions by argument, for the arguments that have some. `given` are other values."""
        suggestions = await asyncio.gather(*(self._servers.complete(server.id, target, given) for target in targets))
        return {target.argument: values for target, values in zip(targets, suggestions, strict=True) if values}

    def capabilities(self, server: VisibleServer) -> ServerCapabilities:
        """Return a server's capabilities from memory."""
        return capabilities(self._servers, server.id)

    def names(self, conversation: ConversationKey) -> list[str]:
        """Return the slugs of all loaded servers, from memory."""
        states: Sequence[ServerSnapshot] = self._servers.servers()
        return sorted({state.config.name for state in states if _visible(state.config, conversation)})

    def known_capabilities(
        self, name: str, conversation: ConversationKey, kind: ToolKind = ToolKind.CALL
    ) -> ServerCapabilities:
        """Return a server's capabilities by slug, from memory; none if the profile does not enable that kind."""
        for state in self._servers.servers():
            if state.config.name == name and _visible(state.config, conversation):
                server = VisibleServer(state.config, None, state)
                if kind is not ToolKind.CALL and not self.is_usable(server, kind, conversation):
                    break
                return capabilities(self._servers, state.config.id)
        return ServerCapabilities()


async def _ignore_failure(operation: Awaitable[object]) -> None:
    with suppress(NotFound, ServerTrouble):
        await operation


def capabilities(servers: ServerAdmin, server_id: str) -> ServerCapabilities:
    """Return a server's capabilities, empty if the server is not loaded."""
    try:
        return servers.capabilities(server_id)
    except NotFound:
        return ServerCapabilities()


def name_in_use(servers: Iterable[VisibleServer], name: str, *, except_id: str = "") -> VisibleServer | None:
    """Return the server other than `except_id` with this slug or title, None if the name is free."""
    wanted = name.lower()
    others = (server for server in servers if server.id != except_id)
    return next((other for other in others if wanted in (other.name.lower(), other.config.title.lower())), None)


def check_arguments(prompt: Prompt, arguments: Mapping[str, str]) -> None:
    """Check the arguments of a prompt. Raises CommandRejected."""
    missing = [
        code(argument.name, _("one"))
        for argument in prompt.arguments
        if argument.required and argument.name not in arguments
    ]
    if missing:
        names = ", ".join(missing)
        raise CommandRejected(_("The prompt needs more: {arguments}, each as `KEY=VALUE`.", arguments=names))

    known = {argument.name for argument in prompt.arguments}
    unknown = next((name for name in arguments if name not in known), None)
    if unknown is not None:
        raise CommandRejected(sentences(_("The prompt takes no such argument."), did_you_mean(unknown, known)))


def _visible(config: ServerConfig, conversation: ConversationKey) -> bool:
    return config.workspace in (EVERYWHERE, conversation.workspace_key)


class ServerVerbs(Verbs):
    """Verbs that find servers by their names."""

    def __init__(self, dependencies: CommandDependencies, directory: ServerDirectory) -> None:
        super().__init__(dependencies)
        self._directory = directory
