"""A server in a response: definition, status and capabilities. No secret is included.

The query of a request chooses the vocabulary of the status and the format of times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Any

from fastapi import Depends, Query
from pydantic import Field, create_model

from bot.admin.dependencies import CommandDependencies
from bot.admin.servers.definition import KEEP, command_line, plain_values_of
from bot.admin.servers.directory import ServerDirectory, VisibleServer
from bot.admin.servers.sign_in import kind_of_sign_in
from bot.domain.conversations import ConversationKey
from bot.domain.secrets import SecretReference, SecretSource
from bot.domain.server_settings import SETTINGS, Setting
from bot.domain.servers import (
    AUTH_SECRET,
    OAUTH_KINDS,
    USER_SLOT,
    AuthenticationKind,
    HttpTransport,
    ServerConfig,
    ServerRecord,
    ServerStatus,
    StdioTransport,
    TemplateLaunch,
    kind_of,
)
from bot.domain.tools import Risk, Tool
from bot.rendering.response_models import ResponseModel, format_time

Moment = str | int | None
"""A point in time: ISO 8601 in UTC, or epoch milliseconds; null for never."""


class StatusVocabulary(StrEnum):
    """Vocabularies of the server status."""

    OURS = "countersign"
    IDLE_OR_ERROR = "idle-error"
    """IDLE, CONNECTING, CONNECTED, ERROR."""
    PENDING_OR_FAILED = "pending-failed"
    """PENDING, CONNECTING, CONNECTED, DISCONNECTED, FAILED, DISABLED."""


class Times(StrEnum):
    """Formats of times."""

    ISO = "iso"
    EPOCH_MS = "epoch_ms"


_STATUS_NAMES = {
    StatusVocabulary.OURS: {},
    StatusVocabulary.IDLE_OR_ERROR: {
        ServerStatus.PENDING: "IDLE",
        ServerStatus.FAILED: "ERROR",
        ServerStatus.AUTH_REQUIRED: "ERROR",
        ServerStatus.DISCONNECTED: "IDLE",
        ServerStatus.DISABLED: "IDLE",
    },
    StatusVocabulary.PENDING_OR_FAILED: {
        ServerStatus.IDLE: "PENDING",
        ServerStatus.AUTH_REQUIRED: "FAILED",
    },
}


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """Response options of a request."""

    vocabulary: StatusVocabulary = StatusVocabulary.OURS
    times: Times = Times.ISO

    def status(self, status: ServerStatus) -> str:
        """Return a server's status in the chosen vocabulary."""
        return _STATUS_NAMES[self.vocabulary].get(status, status.name)

    def moment(self, seconds: float | None) -> Moment:
        """Format epoch seconds; zero and None are never."""
        if not seconds:
            return None
        if self.times is Times.EPOCH_MS:
            return int(seconds * 1000)
        return format_time(seconds)


async def _options(
    vocab: Annotated[StatusVocabulary, Query(description="Vocabulary of the server status.")] = StatusVocabulary.OURS,
    time: Annotated[Times, Query(description="Format of times.")] = Times.ISO,
) -> ResponseOptions:
    return ResponseOptions(vocab, time)


RequestedOptions = Annotated[ResponseOptions, Depends(_options)]
"""Response options from the query."""


_SESSIONS = {
    ServerStatus.PENDING: "IDLE",
    ServerStatus.CONNECTING: "INITIALIZING",
    ServerStatus.CONNECTED: "ACTIVE",
    ServerStatus.IDLE: "IDLE",
    ServerStatus.FAILED: "ERROR",
    ServerStatus.AUTH_REQUIRED: "ERROR",
    ServerStatus.DISCONNECTED: "CLOSED",
    ServerStatus.DISABLED: "CLOSED",
}
_SECRET_KEYS = {
    AuthenticationKind.HEADER: "headerValue",
    AuthenticationKind.BASIC: "password",
    AuthenticationKind.API_KEY: "apiKey",
    AuthenticationKind.OAUTH: "clientSecret",
    AuthenticationKind.CLIENT_CREDENTIALS: "clientSecret",
}


class ServerAnswer(ResponseModel):
    """One server in a list."""

    id: str
    server_id: str = Field(description="Its slug.")
    name: str
    description: str
    url: str | None
    transport_type: str
    auth_type: str
    api_key_set: bool = Field(description="True if it has a secret for authentication.")
    missing_secrets: list[str] = Field(
        description="Secrets that are still to be entered: `auth`, `header:NAME` or `env:NAME`. A stored secret is "
        "cleared if the server moves to another address."
    )
    status: str
    session_state: str = Field(description="INITIALIZING, ACTIVE, IDLE, ERROR or CLOSED.")
    last_error: str | None
    sync_status: str = Field(description="NEVER_SYNCED, SYNCING, SYNCED or SYNC_FAILED.")
    last_synced_at: Moment
    auto_connect: bool
    enabled: bool
    trusted: bool
    tool_count: int
    workspace: str | None = Field(description="Its workspace; null for every workspace.")
    managed_in: str = Field(description="`file` for the operator's own, which are read-only here, or `database`.")
    version: int | None = Field(description="Grows with every change; null for the operator's own.")
    server_version: str | None = Field(description="As reported by the server.")
    protocol_version: str | None
    created_at: Moment
    created_by: str | None
    updated_at: Moment
    updated_by: str | None
    last_updated: Moment


class SessionResponse(ResponseModel):
    """A connection."""

    state: str
    connected_at: Moment
    last_used_at: Moment = Field(description="The last request; null before the first one.")


class OpenSessionResponse(ResponseModel):
    """A session of a conversation or user."""

    started_at: Moment
    idle_since: Moment = Field(description="Null while a call runs.")


def _setting_value(setting: Setting, config: ServerConfig) -> Any:
    """Return the value of a setting in a response; null for none, and for no group."""
    value = setting.of(config)
    return None if setting.kind.nullable and value == "" else value


_SETTING_FIELDS: Any = {
    setting.key: (
        setting.kind.json | None if setting.kind.nullable else setting.kind.json,
        Field(description=setting.plain_about),
    )
    for setting in SETTINGS
}


class ServerDetails(create_model("ServerSettings", __base__=ServerAnswer, **_SETTING_FIELDS)):  # type: ignore[misc]
    """One server in full."""

    command_line: str | None = Field(description="For a program: the exact command line, as a shell would take it.")

    config: dict[str, Any] = Field(description="As it was given, `***` for every secret that is kept here.")
    tools: list[str]
    open_sessions: list[OpenSessionResponse] = Field(
        description="Sessions of conversations or users in this process, without their owners."
    )
    session: SessionResponse


class ToolAnswer(ResponseModel):
    """A tool."""

    name: str
    offered_as: str = Field(description="Its name for the model.")
    title: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    annotations: dict[str, bool] = Field(description="The server's own hints; those it did not give are left out.")
    risk: Risk = Field(description="`unknown` if the server is not trusted and does not say that it destroys.")
    policy: str = Field(description="Policy here, as far as it depends on no user.")


class ResourceAnswer(ResponseModel):
    """A resource."""

    uri: str
    name: str
    title: str
    description: str
    mime_type: str
    size: int | None = Field(description="Bytes.")


class TemplateAnswer(ResponseModel):
    """Resources with one URI template."""

    uri_template: str
    name: str
    title: str
    description: str
    mime_type: str


class PromptArgumentAnswer(ResponseModel):
    """An argument of a prompt."""

    name: str
    description: str
    required: bool


class PromptAnswer(ResponseModel):
    """A prompt template."""

    name: str
    title: str
    description: str
    arguments: list[PromptArgumentAnswer]


class CapabilitiesAnswer(ResponseModel):
    """Known capabilities of a server."""

    server_id: str
    sync_status: str
    last_synced_at: Moment
    server_version: str | None
    protocol_version: str | None
    tools: list[ToolAnswer]
    resources: list[ResourceAnswer]
    resource_templates: list[TemplateAnswer]
    prompts: list[PromptAnswer]


@dataclass(frozen=True, slots=True)
class ServerSerializer:
    """Serializer of servers with the response options of a request."""

    dependencies: CommandDependencies
    directory: ServerDirectory
    options: ResponseOptions

    def summary(self, server: VisibleServer) -> ServerAnswer:
        """Return a server for a list."""
        return ServerAnswer(**self._common_fields(server))

    def details(self, server: VisibleServer) -> ServerDetails:
        """Return a server with all details."""
        config = server.config
        shared = self._common_fields(server)
        return ServerDetails(
            **{**shared, **{setting.key: _setting_value(setting, config) for setting in SETTINGS}},
            command_line=command_line(config) or None,
            config=_config(server),
            tools=[tool.original_name for tool in self.directory.capabilities(server).tools],
            open_sessions=[
                OpenSessionResponse(
                    started_at=self.options.moment(session.started_at),
                    idle_since=self.options.moment(session.idle_since),
                )
                for session in (server.state.sessions if server.state else ())
            ],
            session=SessionResponse(
                state=shared["session_state"],
                connected_at=self.options.moment(server.state.connected_at if server.state else None),
                last_used_at=self.options.moment(server.state.last_used_at if server.state else None),
            ),
        )

    def capabilities(self, server: VisibleServer, conversation: ConversationKey) -> CapabilitiesAnswer:
        """Return a server's capabilities, and the policy of each tool in this conversation."""
        capabilities = self.directory.capabilities(server)
        return CapabilitiesAnswer(
            server_id=server.name,
            sync_status=server.sync.name,
            last_synced_at=self.options.moment(server.state.synced_at if server.state else None),
            server_version=capabilities.server_version or None,
            protocol_version=capabilities.protocol or None,
            tools=[self.tool(tool, conversation) for tool in capabilities.tools],
            resources=[ResourceAnswer(**asdict(resource)) for resource in capabilities.resources],
            resource_templates=[
                TemplateAnswer(uri_template=template.pattern, **asdict(template)) for template in capabilities.templates
            ],
            prompts=[PromptAnswer(**asdict(prompt)) for prompt in capabilities.prompts],
        )

    def tool(self, tool: Tool, conversation: ConversationKey) -> ToolAnswer:
        """Return one tool."""
        hints = {
            "readOnlyHint": tool.annotations.read_only,
            "destructiveHint": tool.annotations.destructive,
            "idempotentHint": tool.annotations.idempotent,
            "openWorldHint": tool.annotations.open_world,
        }
        return ToolAnswer(
            name=tool.original_name,
            offered_as=tool.name,
            title=tool.title,
            description=tool.description,
            input_schema=dict(tool.input_schema),
            output_schema=None if tool.output_schema is None else dict(tool.output_schema),
            annotations={name: value for name, value in hints.items() if value is not None},
            risk=tool.risk,
            policy=self.dependencies.administration.rules(conversation).policy_of(tool).value,
        )

    def _common_fields(self, server: VisibleServer) -> dict[str, Any]:
        config, record, state = server.config, server.record, server.state
        format_time = self.options.moment
        updated = format_time(record.updated_at if record else None)
        tools = len(self.directory.capabilities(server).tools)
        return {
            "id": server.id,
            "server_id": server.name,
            "name": config.title or server.name,
            "description": config.description,
            "url": config.transport.url if isinstance(config.transport, HttpTransport) else None,
            "transport_type": kind_of(config.transport).upper(),
            "auth_type": kind_of_sign_in(server).value,
            "api_key_set": record is not None and AUTH_SECRET in record.secrets.keys() - record.missing,
            "missing_secrets": sorted(record.missing) if record is not None else [],
            "status": self.options.status(server.status),
            "session_state": _SESSIONS[server.status],
            "last_error": server.problem or None,
            "sync_status": server.sync.name,
            "last_synced_at": format_time(state.synced_at if state else None),
            "auto_connect": config.auto_connect,
            "enabled": server.status is not ServerStatus.DISABLED,
            "trusted": config.trusted,
            "tool_count": max(tools, state.tool_count if state else 0),
            "workspace": config.workspace or None,
            "managed_in": "file" if record is None else "database",
            "version": record.version if record else None,
            "server_version": (state.server_version if state else "") or None,
            "protocol_version": (state.protocol if state else "") or None,
            "created_at": format_time(record.created_at if record else None),
            "created_by": (record.created_by if record else "") or None,
            "updated_at": updated,
            "updated_by": (record.updated_by if record else "") or None,
            "last_updated": updated,
        }


def _config(server: VisibleServer) -> dict[str, Any]:
    """Return the `config` of a server. Sent back unchanged, it changes nothing."""
    record = server.record
    match server.config.transport:
        case StdioTransport(launch=TemplateLaunch(template, values)):
            slots: dict[str, Any] = {"template": template, "slots": dict(values)}
            secrets = _secret_slots(record, "env:")
            return {**slots, **({"env": secrets} if secrets else {})}
        case StdioTransport(command, args, env, cwd):
            config: dict[str, Any] = {"command": command, "args": list(args)}
            config |= {"cwd": cwd} if cwd else {}
            plain = plain_values_of(record.config.transport) if record else ()
            names = {**dict.fromkeys(env, KEEP), **dict(plain), **_secret_slots(record, "env:")}
            return {**config, **({"env": names} if names else {})}
        case HttpTransport(url, headers):
            config = {"url": url}
            plain = plain_values_of(record.config.transport) if record else ()
            names = {**dict.fromkeys(headers, KEEP), **dict(plain), **_secret_slots(record, "header:")}
            config |= {"headers": names} if names else {}
            return {**config, **(_authentication_fields(record) if record else {})}


def _authentication_fields(record: ServerRecord) -> Mapping[str, str]:
    authentication = record.authentication
    if authentication.kind is AuthenticationKind.NONE:
        return {}
    fields = {"headerName": authentication.header}
    if authentication.kind is AuthenticationKind.BASIC:
        fields = {"username": _reference_text(record.secrets[USER_SLOT])} if USER_SLOT in record.secrets else {}
    if authentication.kind in OAUTH_KINDS:
        oauth_fields = {
            "clientId": authentication.client_id,
            "scope": authentication.scope,
            "issuer": authentication.issuer,
        }
        fields = {name: value for name, value in oauth_fields.items() if value}
    if AUTH_SECRET in record.secrets and authentication.kind is not AuthenticationKind.API_KEY:
        fields[_SECRET_KEYS[authentication.kind]] = _reference_text(record.secrets[AUTH_SECRET])
    return fields


def _secret_slots(record: ServerRecord | None, prefix: str) -> dict[str, str]:
    if record is None:
        return {}
    return {
        slot.removeprefix(prefix): _reference_text(reference)
        for slot, reference in sorted(record.secrets.items())
        if slot.startswith(prefix)
    }


def _reference_text(reference: SecretReference) -> str:
    return KEEP if reference.source is SecretSource.STORED else str(reference)
