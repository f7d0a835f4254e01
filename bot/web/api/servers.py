"""MCP servers: list, add, read, change and remove.

`/api/mcp/servers` is for all workspaces, or for the token's own; `/api/workspaces/{workspace}/mcp-servers` is for one.
A server in a request is converted to the fields of `/mcp add` and `/mcp edit`, which `bot.commands.server_definition`
validates. A secret is given in clear text, to be encrypted, or as a reference `env:NAME` or `file:/path`; `***` keeps
the stored one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from pydantic import AliasChoices, Field, SecretStr

from bot.commands.server_checks import ServerRequest
from bot.commands.server_control import InvalidServer, VersionConflict
from bot.commands.server_definition import KEEP, NO, YES, ParsedDefinition
from bot.commands.server_directory import VisibleServer, name_in_use
from bot.commands.server_fields import is_slug
from bot.commands.server_templates import MISSING_SECRET as UNNAMED_SECRET
from bot.commands.server_templates import SLOT
from bot.commands.text_format import POLICY_CHOICES, parse_policy
from bot.domain.approvals import ApprovalPolicy
from bot.domain.secret_detection import is_plain_header
from bot.domain.secrets import SecretReference
from bot.domain.servers import USER_SLOT, AuthenticationKind, ServerEnablement, ServerRecord
from bot.web.problems import Problem
from bot.web.routes import RequestModel, WebDependencies, api_router
from bot.web.server_responses import (
    AskedManner,
    ResponseOptions,
    ServerAnswer,
    ServerDetails,
    ServerSerializer,
    wanted_standing,
)
from bot.web.server_scope import AtHere, IfMatch, RequestScope, ServerScope, Services, check, overtaken, tag

_REFERENCES = ("env:", "file:")
MISSING_SECRET = "It is missing: the secret itself, or env:NAME or file:/path, where it is."  # noqa: S105 - a sentence
AUTH_OF = {
    "apiKey": AuthenticationKind.API_KEY,
    "config.headerValue": AuthenticationKind.HEADER,
    "config.password": AuthenticationKind.BASIC,
    "config.clientSecret": AuthenticationKind.OAUTH,
}
"""Authentication type by its secret field."""


class ConfigBody(RequestModel):
    """Connection and authentication settings."""

    url: str | None = None
    headers: dict[str, SecretStr] | None = Field(
        default=None,
        description="Further headers. A value is a secret if the header has the name of a credential or the value is "
        "hard to guess; all others are shown.",
    )
    header_name: str | None = Field(
        default=None,
        description="The header that carries the secret.",
        validation_alias=AliasChoices("headerName", "apiKeyHeader"),
    )
    header_value: SecretStr | None = Field(default=None, description="For `header`: sent as it is.")
    username: SecretStr | None = Field(default=None, description="For `basic`; kept and shown like the password.")
    password: SecretStr | None = Field(default=None, description="For `basic`.")
    client_id: str | None = Field(
        default=None,
        description="For `oauth` and `client_credentials`: what the authorization server knows the bot by.",
    )
    client_secret: SecretStr | None = Field(default=None, description="That client's, if it has one.")
    scope: str | None = Field(default=None, description="For both: what to ask for, with blanks between.")
    template: str | None = Field(default=None, description="The launch template that it is started by.")
    slots: dict[str, str] | None = Field(default=None, description="What fills the template's slots.")
    command: str | None = None
    args: list[str] | None = None
    env: dict[str, SecretStr] | None = None
    cwd: str | None = None


class ServerBody(RequestModel):
    """A server. For a change, only the changed fields are needed."""

    name: str | None = Field(default=None, description="What people call it.")
    server_id: str | None = Field(default=None, description="Its slug, which its tools' names begin with.")
    description: str | None = None
    url: str | None = Field(default=None, validation_alias=AliasChoices("url", "baseUrl"))
    transport_type: str | None = Field(
        default=None,
        description="`STREAMABLE_HTTP` (or `HTTP`), `SSE`, `AUTO`, `JSONRPC_HTTP` or `STDIO`.",
        validation_alias=AliasChoices("transportType", "transport"),
    )
    auth_type: str | None = Field(
        default=None, description="`none`, `header`, `basic`, `api_key`, `oauth` or `client_credentials`."
    )
    api_key: SecretStr | None = Field(
        default=None, description="For `api_key`: sent as a bearer's token, or as it is in `config.headerName`."
    )
    config: ConfigBody | None = None
    auto_connect: bool | None = None
    enabled: bool | None = None
    trusted: bool | None = Field(default=None, description="Whether its word counts on which tools only read.")
    policy: str | None = Field(
        default=None, description="For a new one: what holds for its tools from the first moment."
    )
    system_instruction: str | None = Field(
        default=None, validation_alias=AliasChoices("systemInstruction", "system_instruction")
    )
    response_instruction: str | None = Field(
        default=None, validation_alias=AliasChoices("responseInstruction", "response_instruction")
    )
    auto_context_tool: str | None = Field(
        default=None, validation_alias=AliasChoices("autoContextTool", "auto_context_tool")
    )
    connect_timeout: float | None = Field(default=None, description="Seconds.")
    list_timeout: float | None = Field(default=None, description="Seconds.")
    tool_timeout: float | None = Field(default=None, description="Seconds.")
    tool_timeout_max: float | None = Field(default=None, description="Seconds, while it tells of progress.")
    tool_timeouts: dict[str, float] | None = Field(default=None, description="Seconds of single tools, by name.")
    words: str | None = Field(default=None, description="Whose words its tools return: `own`, `shared`, `strangers`.")
    sends: str | None = Field(default=None, description="Who reads what calls carry: `closed`, `team` or `world`.")
    tool_words: dict[str, str] | None = Field(default=None, description="`words` of single tools, by name.")
    tool_sends: dict[str, str] | None = Field(default=None, description="`sends` of single tools, by name.")
    tool_recipients: dict[str, list[str]] | None = Field(
        default=None, description="The arguments of single tools that name who gets what a call carries."
    )
    version: int | None = Field(default=None, ge=0, description="Nothing is done if it has another by now.")


@dataclass(slots=True)
class ParsedServer:
    """A parsed server. `called` maps a field of a definition to its name in the request, for error messages."""

    fields: dict[str, str] = field(default_factory=dict)
    hidden: str = ""
    values: dict[str, str] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    errors: dict[str, str] = field(default_factory=dict)
    called: dict[str, str] = field(default_factory=dict)

    def wrong(self, errors: Mapping[str, str]) -> dict[str, str]:
        """Return errors by the field names of the request."""
        found = dict(self.errors)
        for name, error in errors.items():
            said = MISSING_SECRET if name == "secret" and error.startswith("Its secret is missing.") else error
            place = f"config.slots.{name.removeprefix(SLOT)}" if name.startswith(SLOT) else _CALLED.get(name, name)
            if error == UNNAMED_SECRET:
                said, place = f"{MISSING_SECRET} It is for the slot {name.removeprefix(SLOT)}.", "config.env"
            found.setdefault(self.called.get(name, place), said)
        return found


_CALLED = {
    "title": "name",
    "transport": "transportType",
    "auth": "authType",
    "auth_header": "config.headerName",
    "username": "config.username",
    "client_id": "config.clientId",
    "scope": "config.scope",
    "headers": "config.headers",
    "env": "config.env",
    "template": "config.template",
    "command": "config.command",
    "cwd": "config.cwd",
    "secret": "apiKey",
    "hidden": "apiKey",
    "system_instruction": "systemInstruction",
    "response_instruction": "responseInstruction",
    "auto_context_tool": "autoContextTool",
    "connect_timeout": "connectTimeout",
    "list_timeout": "listTimeout",
    "tool_timeout": "toolTimeout",
    "tool_timeout_max": "toolTimeoutMax",
    "tool_timeouts": "toolTimeouts",
    "tool_words": "toolWords",
    "tool_sends": "toolSends",
    "tool_recipients": "toolRecipients",
    "auto_connect": "autoConnect",
}
_SECRET_FIELD = {
    "header": "config.headerValue",
    "basic": "config.password",
    "oauth": "config.clientSecret",
    "client_credentials": "config.clientSecret",
}


def given(body: ServerBody) -> ParsedServer:
    """Parse a server."""
    read = ParsedServer()
    config = body.config or ConfigBody()
    url = body.url if body.url is not None else config.url
    plain: Mapping[str, object] = {
        "title": body.name,
        "description": body.description,
        "url": url,
        "transport": body.transport_type,
        "auth": body.auth_type,
        "auth_header": config.header_name,
        "client_id": config.client_id,
        "scope": config.scope,
        "cwd": config.cwd,
        "template": config.template,
        "auto_connect": body.auto_connect,
        "trusted": body.trusted,
        "system_instruction": body.system_instruction,
        "response_instruction": body.response_instruction,
        "auto_context_tool": body.auto_context_tool,
        "connect_timeout": body.connect_timeout,
        "list_timeout": body.list_timeout,
        "tool_timeout": body.tool_timeout,
        "tool_timeout_max": body.tool_timeout_max,
        "tool_timeouts": None
        if body.tool_timeouts is None
        else "\n".join(f"{tool}={seconds:g}" for tool, seconds in body.tool_timeouts.items()),
        "words": body.words,
        "sends": body.sends,
        "tool_words": _by_tool(body.tool_words),
        "tool_sends": _by_tool(body.tool_sends),
        "tool_recipients": None
        if body.tool_recipients is None
        else _by_tool({tool: ",".join(names) for tool, names in body.tool_recipients.items()}),
    }
    read.fields.update({name: _text(value) for name, value in plain.items() if value is not None})
    read.fields.update({f"{SLOT}{name}": value for name, value in (config.slots or {}).items()})
    if body.url is None and config.url is not None:
        read.called["url"] = "config.url"
    if body.name is None:
        read.called["name"] = "serverId"
    if config.command is not None:
        read.argv = (config.command, *(config.args or ()))
        read.fields.setdefault("transport", "stdio")
    elif config.args:
        read.errors["config.args"] = "These are arguments of a program: config.command is missing."
    _read_secret(read, body, config)
    _read_user(read, config)
    for name, prefix, values in (("headers", "header:", config.headers), ("env", "env:", config.env)):
        if values is not None:
            read.fields[name] = "\n".join(_lines(read, prefix, values))
    return read


def _by_tool(values: Mapping[str, str] | None) -> str | None:
    """Return a mapping as the lines of a form, one tool per line."""
    return None if values is None else "\n".join(f"{tool}={value}" for tool, value in values.items())


def _read_secret(read: ParsedServer, body: ServerBody, config: ConfigBody) -> None:
    sent = {
        "apiKey": body.api_key,
        "config.headerValue": config.header_value,
        "config.password": config.password,
        "config.clientSecret": config.client_secret,
    }
    values = {name: value.get_secret_value() for name, value in sent.items() if value is not None}
    kind = read.fields.get("auth", "").lower().replace("-", "_")
    name = _SECRET_FIELD.get(kind, "apiKey") if kind else next(iter(values), "apiKey")
    for other in values.keys() - {name}:
        read.errors[other] = f"It goes with authType {AUTH_OF[other].value}."
    read.called |= {"secret": name, "hidden": name}
    if name not in values:
        return
    if not values[name]:
        # Removed: authentication ends unless the request sets another type.
        read.fields.setdefault("auth", AuthenticationKind.NONE.value)
        return
    read.fields.setdefault("auth", AUTH_OF[name].value)
    if values[name].startswith(_REFERENCES):
        read.fields["secret"] = values[name]
    elif values[name] != KEEP:
        read.hidden = values[name]


def _read_user(read: ParsedServer, config: ConfigBody) -> None:
    """Parse the user name of basic authentication: plain text, a reference, or `***` for the stored one."""
    if config.username is None:
        return
    value = config.username.get_secret_value()
    if value in ("", KEEP) or _is_reference(value):
        read.fields["username"] = value
    else:
        read.fields["username"] = KEEP
        read.values[USER_SLOT] = value


def _lines(read: ParsedServer, prefix: str, values: Mapping[str, SecretStr]) -> Iterator[str]:
    """Yield secrets by name and plain headers as lines of a definition. Clear-text secrets are collected separately."""
    for name, secret in values.items():
        value = secret.get_secret_value()
        if "=" in name or name != name.strip() or not name.isprintable():
            read.errors["config.headers" if prefix == "header:" else "config.env"] = "One of the names cannot be used."
        elif value == KEEP or _is_reference(value) or (prefix == "header:" and is_plain_header(name, value)):
            yield f"{name}={value}"
        else:
            read.values[f"{prefix}{name}"] = value
            yield f"{name}={KEEP}"


def _is_reference(text: str) -> bool:
    try:
        SecretReference.parse(text)
    except ValueError:
        return False
    return True


def _text(value: object) -> str:
    match value:
        case bool():
            return YES if value else NO
        case float():
            return f"{value:g}"
        case _:
            return str(value)


CONNECTING_SECONDS = 45.0
"""Seconds that a response waits for a connection attempt, which continues after that."""
_INVALID = "Some fields cannot be used. Nothing was saved."


class ServerRoutes:
    """The routes, over the services of `/mcp`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._parts = services.parts

    async def listed(self, manner: AskedManner, here: AtHere) -> list[ServerAnswer]:
        """List the servers of this scope and the global ones."""
        writer = self._writer(manner)
        return [writer.listed(seen) for seen in await self._services.directory.all(here.conversation)]

    async def added(
        self,
        body: ServerBody,
        response: Response,
        manner: AskedManner,
        here: AtHere,
        *,
        upsert: Annotated[bool, Query(description="Change the one of that name, if there is one.")] = False,
        connect: Annotated[bool, Query(description="Connect to it before answering.")] = True,
    ) -> ServerAnswer:
        """Add a server: 201; with `upsert`, change an existing one: 200. Waits up to 45 seconds for the connection."""
        present = await self._existing(body, here)
        if present is not None and not upsert:
            raise Problem(
                409,
                "conflict",
                "There is a server of that name.",
                "choose another name, or send ?upsert=true to change that one",
                {"serverId" if body.server_id else "name": "It is taken."},
            )
        if present is not None:
            await self._change(present, body, here, None)
            response.status_code, ref = 200, present.id
        else:
            record = await self._add(body, here)
            if connect and record.standing is ServerEnablement.ON:
                await self._connected(record)
            ref = record.id
        seen = await self._find(ref, here)
        _tell_version(response, seen)
        response.headers["Location"] = f"{here.servers}/{seen.id}"
        return self._writer(manner).listed(seen)

    async def shown(self, ref: str, response: Response, manner: AskedManner, here: AtHere) -> ServerDetails:
        """Return one server by its id, slug or name, with its definition; `***` stands for secrets."""
        seen = await self._find(ref, here)
        _tell_version(response, seen)
        return self._writer(manner).details(seen)

    async def changed(
        self,
        ref: str,
        body: ServerBody,
        response: Response,
        manner: AskedManner,
        here: AtHere,
        *,
        if_match: IfMatch = None,
    ) -> ServerDetails:
        """Change the fields in the body; `***` keeps a secret."""
        seen = await self._find(ref, here)
        await self._change(seen, body, here, if_match)
        present = await self._find(seen.id, here)
        _tell_version(response, present)
        return self._writer(manner).details(present)

    async def removed(self, ref: str, here: AtHere, if_match: IfMatch = None) -> None:
        """Delete a server with its secrets and rules."""
        await self._remove(await self._find(ref, here), here, if_match)

    def _writer(self, manner: ResponseOptions) -> ServerSerializer:
        return ServerSerializer(self._parts, self._services.directory, manner)

    async def _find(self, ref: str, here: RequestScope) -> VisibleServer:
        return await self._services.directory.find(ref, here.conversation)

    async def _existing(self, body: ServerBody, here: RequestScope) -> VisibleServer | None:
        servers = await self._services.directory.all(here.conversation)
        for name in filter(None, (body.server_id, body.name)):
            found = name_in_use(servers, name)
            if found is not None:
                return found
        return None

    async def _add(self, body: ServerBody, here: RequestScope) -> ServerRecord:
        read = given(body)
        name = body.server_id or body.name or ""
        if body.server_id and not is_slug(body.server_id):
            read.errors["serverId"] = "Lower-case letters, digits and dashes, at most 64 of them."
        if is_slug(name) and body.name == name:
            read.fields.pop("title", None)
        policy = _policy(body, read)
        draft = await self._services.drafting.new(_wish(read, here, name))
        self._admit(draft)
        _check(read, draft)
        kept = await self._services.keeping.add(draft, policy, here.author)
        if isinstance(kept, InvalidServer):
            raise _taken(read, kept)
        record = kept.record
        if body.enabled is False:
            record = await self._services.keeping.set_enablement(record, ServerEnablement.DISABLED, here.author)
        return record

    async def _change(self, server: VisibleServer, body: ServerBody, here: RequestScope, if_match: str | None) -> None:
        record = self._services.directory.record_of(server, here.member)
        check(record, body.version, if_match)
        read = given(body)
        if body.policy is not None:
            read.errors["policy"] = "It is for new servers: PUT /api/mcp/approval-policies changes what holds."
        if body.server_id is not None:
            read.fields["name"] = body.server_id
        if body.name == record.config.name and not record.config.title:
            read.fields.pop("title", None)
        draft = await self._services.drafting.changed(record, _wish(read, here))
        self._admit(draft)
        _check(read, draft)
        kept = await self._services.keeping.change(record, draft, here.author)
        match kept:
            case InvalidServer():
                raise _taken(read, kept)
            case VersionConflict(present):
                raise overtaken(present, 409 if if_match is None else 412)
        standing = wanted_standing(enabled=body.enabled, record=kept.record)
        if standing is not None:
            await self._services.keeping.set_enablement(kept.record, standing, here.author)

    async def _remove(self, server: VisibleServer, here: RequestScope, if_match: str | None) -> None:
        record = self._services.directory.record_of(server, here.member)
        check(record, None, if_match)
        late = await self._services.keeping.remove(record, here.author)
        if late is not None:
            raise overtaken(late.record, 409 if if_match is None else 412)

    async def _connected(self, record: ServerRecord) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(CONNECTING_SECONDS):
                await self._parts.servers.connect(record.id)

    def _admit(self, draft: ParsedDefinition) -> None:
        if not self._services.drafting.is_name_allowed(draft.record.config.name):
            raise Problem(
                403, "name_not_allowed", "The operator does not allow a server of this name.", "choose an allowed name"
            )


def routes(parts: WebDependencies) -> APIRouter:
    """Return the routes, for all workspaces and for one."""
    services = Services.of(parts.command_parts)
    router = api_router()
    for scope in services.server_scopes():
        router.routes.extend(_routes_in(scope, services).routes)
    return router


def _routes_in(scope: ServerScope, services: Services) -> APIRouter:
    router = api_router(scope.path, tags=["servers"], dependencies=[Depends(scope.dependency)])
    servers = ServerRoutes(services)
    changed: dict[int | str, dict[str, Any]] = {
        200: {"model": ServerAnswer, "description": "It was there, and has been changed (`upsert`)."}
    }
    router.get("", name=f"{scope.name}list_servers", summary="Every server and how it stands")(servers.listed)
    router.post(
        "",
        name=f"{scope.name}add_server",
        summary="A new server, connected to at once",
        status_code=201,
        responses=changed,
    )(servers.added)
    router.get("/{ref}", name=f"{scope.name}show_server", summary="One server in full")(servers.shown)
    router.put("/{ref}", name=f"{scope.name}change_server", summary="Change a server")(servers.changed)
    router.delete("/{ref}", name=f"{scope.name}remove_server", summary="Delete a server", status_code=204)(
        servers.removed
    )
    return router


def _tell_version(response: Response, server: VisibleServer) -> None:
    if server.record is not None:
        response.headers["ETag"] = tag(server.record.version)


def _wish(read: ParsedServer, here: RequestScope, name: str = "") -> ServerRequest:
    return ServerRequest(
        read.fields,
        here.member,
        here.conversation,
        name,
        here.everywhere,
        read.argv,
        read.hidden,
        read.values,
    )


def _policy(body: ServerBody, read: ParsedServer) -> ApprovalPolicy | None:
    policy = parse_policy(body.policy or "")
    if body.policy is not None and policy is None:
        words = ", ".join((*(each.value for each in ApprovalPolicy), *POLICY_CHOICES))
        read.errors["policy"] = f"One of {words}."
    return policy


def _check(read: ParsedServer, draft: ParsedDefinition) -> None:
    wrong = read.wrong(draft.errors)
    if wrong:
        raise Problem(422, "invalid", _INVALID, "correct the fields that are named", wrong)


def _taken(read: ParsedServer, faulty: InvalidServer) -> Problem:
    return Problem(409, "conflict", "There is a server of that name.", "choose another name", read.wrong(faulty.errors))
