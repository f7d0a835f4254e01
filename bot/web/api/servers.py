"""MCP servers: list, add, read, change and remove.

`/api/mcp/servers` is for all workspaces, or for the token's own; `/api/workspaces/{workspace}/mcp-servers` is for one.
A server in a request is converted to the fields of `/mcp add` and `/mcp edit`, which `bot.admin.servers.definition`
validates. A secret is given in clear text, to be encrypted, or as a reference `env:NAME` or `file:/path`; `***` keeps
the stored one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import AliasChoices, Field, SecretStr, create_model
from pydantic.alias_generators import to_camel

from bot.admin.servers.control import InvalidServer, VersionConflict
from bot.admin.servers.definition import KEEP, SLOT, ParsedDefinition, ServerRequest
from bot.admin.servers.definition import MISSING_SECRET as UNNAMED_SECRET
from bot.admin.servers.directory import VisibleServer, name_in_use
from bot.admin.servers.fields import is_slug
from bot.admin.text_format import POLICY_CHOICES, parse_policy
from bot.domain.approvals import ApprovalPolicy
from bot.domain.secrets import SecretReference, is_plain_header, is_plain_variable
from bot.domain.server_settings import SETTINGS, field_text
from bot.domain.servers import USER_SLOT, AuthenticationKind, ServerEnablement, ServerRecord
from bot.i18n import _, gettext_lazy
from bot.web.dependencies import WebDependencies
from bot.web.problems import Problem, invalid_fields
from bot.web.routes import RequestModel, Routes, route
from bot.web.server_responses import (
    RequestedOptions,
    ResponseOptions,
    ServerAnswer,
    ServerDetails,
    ServerSerializer,
)
from bot.web.server_scope import (
    CurrentScope,
    IfMatch,
    RequestScope,
    Services,
    check_version,
    format_etag,
    version_conflict,
)

_REFERENCES = ("env:", "file:")
MISSING_SECRET = gettext_lazy("It is missing: the secret itself, or env:NAME or file:/path, where it is.")


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
        description="For `oauth` and `client_credentials`: the id of the bot at the authorization server.",
    )
    client_secret: SecretStr | None = Field(default=None, description="That client's, if it has one.")
    scope: str | None = Field(default=None, description="For both: the requested scopes, separated by blanks.")
    issuer: str | None = Field(
        default=None, description="For both: what the authorization server calls itself, if the server names another."
    )
    template: str | None = Field(default=None, description="The launch template that it is started by.")
    slots: dict[str, str] | None = Field(default=None, description="Values of the template's slots.")
    command: str | None = None
    args: list[str] | None = None
    env: dict[str, SecretStr] | None = None
    cwd: str | None = None


_SETTING_FIELDS: Any = {
    setting.key: (setting.kind.json | None, Field(default=None, description=setting.plain_about))
    for setting in SETTINGS
}


class ServerBody(create_model("ServerSettings", __base__=RequestModel, **_SETTING_FIELDS)):  # type: ignore[misc]
    """A server. For a change, only the changed fields are needed."""

    name: str | None = Field(default=None, description="Its name for users.")
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
    enabled: bool | None = None
    policy: str | None = Field(
        default=None, description="For a new server: the policy of its tools from the first moment."
    )
    version: int | None = Field(default=None, ge=0, description="Nothing is done if it has another by now.")


@dataclass(slots=True)
class ParsedServer:
    """A parsed server. `field_names` maps a field of a definition to its name in the request, for error messages."""

    fields: dict[str, str] = field(default_factory=dict)
    hidden: str = ""
    values: dict[str, str] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    errors: dict[str, str] = field(default_factory=dict)
    field_names: dict[str, str] = field(default_factory=dict)

    def all_errors(self, errors: Mapping[str, str]) -> dict[str, str]:
        """Return errors by the field names of the request."""
        errors_by_field = dict(self.errors)
        for name, error in errors.items():
            message = MISSING_SECRET if name == "secret" and error.startswith("Its secret is missing.") else error
            field_name = (
                f"config.slots.{name.removeprefix(SLOT)}" if name.startswith(SLOT) else _FIELD_NAMES.get(name, name)
            )
            if error == UNNAMED_SECRET:
                of_slot = _("It is for the slot {slot}.", slot=name.removeprefix(SLOT))
                message, field_name = f"{MISSING_SECRET} {of_slot}", "config.env"
            errors_by_field.setdefault(self.field_names.get(name, field_name), message)
        return errors_by_field


_FIELDS = {
    "title": "name",
    "description": "description",
    "url": "url",
    "transport": "transport_type",
    "auth": "auth_type",
    "auth_header": "config.header_name",
    "client_id": "config.client_id",
    "scope": "config.scope",
    "issuer": "config.issuer",
    "cwd": "config.cwd",
    "template": "config.template",
    **{setting.key: setting.key for setting in SETTINGS},
}
"""Texts of a definition, by their place in the request."""
_SECRETS = {
    "api_key": (AuthenticationKind.API_KEY,),
    "config.header_value": (AuthenticationKind.HEADER,),
    "config.password": (AuthenticationKind.BASIC,),
    "config.client_secret": (AuthenticationKind.OAUTH, AuthenticationKind.CLIENT_CREDENTIALS),
}
"""Kinds of authentication by the place of their secret. The first one is that of a request without `authType`."""


def _json_name(place: str) -> str:
    return ".".join(map(to_camel, place.split(".")))


_FIELD_NAMES = {
    **{name: _json_name(place) for name, place in _FIELDS.items()},
    **{name: f"config.{name}" for name in ("username", "headers", "env", "command")},
    "secret": "apiKey",
    "hidden": "apiKey",
}
_AUTH_OF = {_json_name(place): kinds[0] for place, kinds in _SECRETS.items()}
"""Authentication type by its secret field."""
_SECRET_FIELD = {kind.value: _json_name(place) for place, kinds in _SECRETS.items() for kind in kinds}


def parse_server(body: ServerBody) -> ParsedServer:
    """Parse a server."""
    parsed = ParsedServer()
    config = body.config or ConfigBody()
    whole = body.model_copy(update={"config": config, "url": config.url if body.url is None else body.url})
    plain = {name: attrgetter(place)(whole) for name, place in _FIELDS.items()}
    parsed.fields.update({name: field_text(value) for name, value in plain.items() if value is not None})
    parsed.fields.update({f"{SLOT}{name}": value for name, value in (config.slots or {}).items()})
    if body.url is None and config.url is not None:
        parsed.field_names["url"] = "config.url"
    if body.name is None:
        parsed.field_names["name"] = "serverId"
    if config.command is not None:
        parsed.argv = (config.command, *(config.args or ()))
        parsed.fields.setdefault("transport", "stdio")
    elif config.args:
        parsed.errors["config.args"] = _("These are arguments of a program: config.command is missing.")
    _parse_secret(parsed, whole)
    _parse_user(parsed, config)
    for name, prefix, values in (("headers", "header:", config.headers), ("env", "env:", config.env)):
        if values is not None:
            parsed.fields[name] = "\n".join(_lines(parsed, prefix, values))
    return parsed


def _parse_secret(parsed: ParsedServer, body: ServerBody) -> None:
    sent = {_json_name(place): attrgetter(place)(body) for place in _SECRETS}
    values = {name: value.get_secret_value() for name, value in sent.items() if value is not None}
    kind = parsed.fields.get("auth", "").lower().replace("-", "_")
    name = _SECRET_FIELD.get(kind, "apiKey") if kind else next(iter(values), "apiKey")
    for other in values.keys() - {name}:
        parsed.errors[other] = _("It goes with authType {auth_type}.", auth_type=_AUTH_OF[other].value)
    parsed.field_names |= {"secret": name, "hidden": name}
    if name not in values:
        return
    if not values[name]:
        # Removed: authentication ends unless the request sets another type.
        parsed.fields.setdefault("auth", AuthenticationKind.NONE.value)
        return
    parsed.fields.setdefault("auth", _AUTH_OF[name].value)
    if values[name].startswith(_REFERENCES):
        parsed.fields["secret"] = values[name]
    elif values[name] != KEEP:
        parsed.hidden = values[name]


def _parse_user(parsed: ParsedServer, config: ConfigBody) -> None:
    """Parse the user name of basic authentication: plain text, a reference, or `***` for the stored one."""
    if config.username is None:
        return
    value = config.username.get_secret_value()
    if value in ("", KEEP) or _is_reference(value):
        parsed.fields["username"] = value
    else:
        parsed.fields["username"] = KEEP
        parsed.values[USER_SLOT] = value


def _lines(parsed: ParsedServer, prefix: str, values: Mapping[str, SecretStr]) -> Iterator[str]:
    """Yield secrets by name and plain headers as lines of a definition. Clear-text secrets are collected separately."""
    for name, secret in values.items():
        value = secret.get_secret_value()
        if "=" in name or name != name.strip() or not name.isprintable():
            parsed.errors["config.headers" if prefix == "header:" else "config.env"] = _(
                "One of the names cannot be used."
            )
        elif value == KEEP or _is_reference(value) or _PLAIN[prefix](name, value):
            yield f"{name}={value}"
        else:
            parsed.values[f"{prefix}{name}"] = value
            yield f"{name}={KEEP}"


_PLAIN = {"header:": is_plain_header, "env:": is_plain_variable}


def _is_reference(text: str) -> bool:
    try:
        SecretReference.parse(text)
    except ValueError:
        return False
    return True


CONNECTING_SECONDS = 45.0
"""Seconds that a response waits for a connection attempt, which continues after that."""
_CHANGED: Any = {200: {"model": ServerAnswer, "description": "It was there, and has been changed (`upsert`)."}}


class ServerRoutes(Routes):
    """The routes, over the services of `/mcp`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._dependencies = services.dependencies

    @route("get", "", "Every server and its status")
    async def list_servers(self, options: RequestedOptions, scope: CurrentScope) -> list[ServerAnswer]:
        """List the servers of this scope and the global ones."""
        writer = self._serializer(options)
        return [writer.summary(server) for server in await self._services.directory.all(scope.conversation)]

    @route("post", "", "A new server, connected to at once", status_code=201, responses=_CHANGED)
    async def add_server(
        self,
        body: ServerBody,
        response: Response,
        options: RequestedOptions,
        scope: CurrentScope,
        *,
        upsert: Annotated[bool, Query(description="Change the one of that name, if there is one.")] = False,
        connect: Annotated[bool, Query(description="Connect to it before answering.")] = True,
    ) -> ServerAnswer:
        """Add a server: 201; with `upsert`, change an existing one: 200. Waits up to 45 seconds for the connection."""
        existing = await self._existing(body, scope)
        if existing is not None and not upsert:
            raise Problem(
                409,
                "conflict",
                _("There is a server of that name."),
                _("choose another name, or send ?upsert=true to change that one"),
                {"serverId" if body.server_id else "name": _("It is taken.")},
            )
        if existing is not None:
            await self._change(existing, body, scope, None)
            response.status_code, ref = 200, existing.id
        else:
            record = await self._add(body, scope)
            if connect and record.enablement is ServerEnablement.ON:
                with suppress(TimeoutError):
                    async with asyncio.timeout(CONNECTING_SECONDS):
                        await self._dependencies.servers.connect(record.id)
            ref = record.id
        server = await self._find(ref, scope)
        _set_etag(response, server)
        response.headers["Location"] = f"{scope.servers}/{server.id}"
        return self._serializer(options).summary(server)

    @route("get", "/{ref}", "One server in full")
    async def show_server(
        self, ref: str, response: Response, options: RequestedOptions, scope: CurrentScope
    ) -> ServerDetails:
        """Return one server by its id, slug or name, with its definition; `***` stands for secrets."""
        server = await self._find(ref, scope)
        _set_etag(response, server)
        return self._serializer(options).details(server)

    @route("put", "/{ref}", "Change a server")
    async def change_server(
        self,
        ref: str,
        body: ServerBody,
        response: Response,
        options: RequestedOptions,
        scope: CurrentScope,
        *,
        if_match: IfMatch = None,
    ) -> ServerDetails:
        """Change the fields in the body; `***` keeps a secret."""
        server = await self._find(ref, scope)
        await self._change(server, body, scope, if_match)
        present = await self._find(server.id, scope)
        _set_etag(response, present)
        return self._serializer(options).details(present)

    @route("delete", "/{ref}", "Delete a server", status_code=204)
    async def remove_server(self, ref: str, scope: CurrentScope, if_match: IfMatch = None) -> None:
        """Delete a server with its secrets and rules."""
        await self._remove(await self._find(ref, scope), scope, if_match)

    def _serializer(self, options: ResponseOptions) -> ServerSerializer:
        return ServerSerializer(self._dependencies, self._services.directory, options)

    async def _find(self, ref: str, scope: RequestScope) -> VisibleServer:
        return await self._services.directory.find(ref, scope.conversation)

    async def _existing(self, body: ServerBody, scope: RequestScope) -> VisibleServer | None:
        servers = await self._services.directory.all(scope.conversation)
        for name in filter(None, (body.server_id, body.name)):
            server = name_in_use(servers, name)
            if server is not None:
                return server
        return None

    async def _add(self, body: ServerBody, scope: RequestScope) -> ServerRecord:
        parsed = parse_server(body)
        name = body.server_id or body.name or ""
        if body.server_id and not is_slug(body.server_id):
            parsed.errors["serverId"] = _("Lower-case letters, digits and dashes, at most 64 of them.")
        if is_slug(name) and body.name == name:
            parsed.fields.pop("title", None)
        policy = _policy(body, parsed)
        draft = await self._services.validator.draft_new(_server_request(parsed, scope, name))
        self._check_name(draft)
        _check_draft(parsed, draft)
        outcome = await self._services.servers.add(draft, policy, scope.author)
        if isinstance(outcome, InvalidServer):
            raise _name_taken(parsed, outcome)
        record = outcome.record
        if body.enabled is False:
            record = await self._services.servers.set_enablement(record, ServerEnablement.DISABLED, scope.author)
        return record

    async def _change(self, server: VisibleServer, body: ServerBody, scope: RequestScope, if_match: str | None) -> None:
        record = self._services.directory.record_of(server, scope.member)
        check_version(record, body.version, if_match)
        parsed = parse_server(body)
        if body.policy is not None:
            parsed.errors["policy"] = _("It is for new servers: PUT /api/mcp/approval-policies changes what holds.")
        if body.server_id is not None:
            parsed.fields["name"] = body.server_id
        if body.name == record.config.name and not record.config.title:
            parsed.fields.pop("title", None)
        draft = await self._services.validator.draft_change(record, _server_request(parsed, scope))
        self._check_name(draft)
        _check_draft(parsed, draft)
        outcome = await self._services.servers.change(record, draft, scope.author)
        match outcome:
            case InvalidServer():
                raise _name_taken(parsed, outcome)
            case VersionConflict(present):
                raise version_conflict(present, if_match)
        enablement = _requested_enablement(enabled=body.enabled, record=outcome.record)
        if enablement is not None:
            await self._services.servers.set_enablement(outcome.record, enablement, scope.author)

    async def _remove(self, server: VisibleServer, scope: RequestScope, if_match: str | None) -> None:
        record = self._services.directory.record_of(server, scope.member)
        check_version(record, None, if_match)
        conflict = await self._services.servers.remove(record, scope.author)
        if conflict is not None:
            raise version_conflict(conflict.record, if_match)

    def _check_name(self, draft: ParsedDefinition) -> None:
        if not self._services.validator.is_name_allowed(draft.record.config.name):
            raise Problem(
                403,
                "name_not_allowed",
                _("The operator does not allow a server of this name."),
                _("choose an allowed name"),
            )


def routes(dependencies: WebDependencies) -> APIRouter:
    """Return the routes, for all workspaces and for one."""
    services = Services.build(dependencies.command_dependencies)
    return services.server_routes({"": ServerRoutes(services)})


def _requested_enablement(*, enabled: bool | None, record: ServerRecord) -> ServerEnablement | None:
    match enabled, record.enablement:
        case True, ServerEnablement.DISABLED:
            return ServerEnablement.ON
        case False, ServerEnablement.ON | ServerEnablement.DISCONNECTED:
            return ServerEnablement.DISABLED
        case _:
            return None


def _set_etag(response: Response, server: VisibleServer) -> None:
    if server.record is not None:
        response.headers["ETag"] = format_etag(server.record.version)


def _server_request(parsed: ParsedServer, scope: RequestScope, name: str = "") -> ServerRequest:
    return ServerRequest(
        parsed.fields,
        scope.member,
        scope.conversation,
        name,
        scope.everywhere,
        parsed.argv,
        parsed.hidden,
        parsed.values,
    )


def _policy(body: ServerBody, parsed: ParsedServer) -> ApprovalPolicy | None:
    policy = parse_policy(body.policy or "")
    if body.policy is not None and policy is None:
        choices = ", ".join((*(policy_value.value for policy_value in ApprovalPolicy), *POLICY_CHOICES))
        parsed.errors["policy"] = _("One of {choices}.", choices=choices)
    return policy


def _check_draft(parsed: ParsedServer, draft: ParsedDefinition) -> None:
    errors = parsed.all_errors(draft.errors)
    if errors:
        raise invalid_fields(errors, _("Some fields cannot be used. Nothing was saved."))


def _name_taken(parsed: ParsedServer, invalid: InvalidServer) -> Problem:
    return Problem(
        409,
        "conflict",
        _("There is a server of that name."),
        _("choose another name"),
        parsed.all_errors(invalid.errors),
    )
