"""Codec between server records and rows. The sources of secrets are stored by `secret_rows`."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from typing import Any

from bot.domain.flows import Sends, ServerFlows, Words
from bot.domain.secrets import SecretReference
from bot.domain.servers import (
    Authentication,
    AuthenticationKind,
    HttpKind,
    HttpTransport,
    ServerConfig,
    ServerEnablement,
    ServerRecord,
    StdioTransport,
    TemplateLaunch,
    Transport,
)
from bot.storage.codec import VERSION, Body
from bot.storage.database import json_text

_TEXTS = ("system_instruction", "response_instruction", "auto_context_tool")
_TIMES = ("connect_timeout", "list_timeout", "tool_timeout", "tool_timeout_max", "tool_timeouts")


def name_key(name: str) -> str:
    """Return the key under which names that users would confuse are equal."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def encode_server(record: ServerRecord) -> dict[str, Any]:
    """Return the columns of a server's definition."""
    config = record.config
    transport = _transport_body(config.transport)
    return {
        "workspace": config.workspace,
        "slug": config.name,
        "title": config.title,
        "title_key": name_key(config.title or config.name),
        "description": config.description,
        "transport": transport["kind"],
        "definition": json_text(
            {
                "v": VERSION,
                "transport": transport,
                **{name: getattr(config, name) for name in (*_TEXTS, *_TIMES)},
                "flows": _flows_body(config.flows),
            }
        ),
        "authentication": json_text(
            {
                "v": VERSION,
                "kind": record.authentication.kind.value,
                "header": record.authentication.header,
                "client_id": record.authentication.client_id,
                "scope": record.authentication.scope,
            }
        ),
        "trusted": config.trusted,
        "auto_connect": config.auto_connect,
        "standing": record.standing.value,
    }


def decode_server(row: Any, secrets: Mapping[str, SecretReference]) -> ServerRecord:
    """Return the record of a row. Raises `turn_reader.UNREADABLE`."""
    definition, authentication = json.loads(row.definition), json.loads(row.authentication)
    return ServerRecord(
        config=ServerConfig(
            name=row.slug,
            transport=_read_transport(definition["transport"]),
            trusted=row.trusted,
            id=row.id,
            workspace=row.workspace,
            title=row.title,
            description=row.description,
            auto_connect=row.auto_connect,
            flows=_read_flows(definition["flows"]),
            **{name: definition[name] for name in (*_TEXTS, *_TIMES)},
        ),
        authentication=Authentication(
            AuthenticationKind(authentication["kind"]),
            authentication["header"],
            authentication["client_id"],
            authentication["scope"],
        ),
        secrets=secrets,
        standing=ServerEnablement(row.standing),
        version=row.version,
        created_at=row.created_at,
        created_by=row.created_by,
        updated_at=row.updated_at,
        updated_by=row.updated_by,
    )


def _flows_body(flows: ServerFlows) -> Body:
    return {
        "words": flows.words,
        "sends": flows.sends,
        "tool_words": dict(flows.tool_words),
        "tool_sends": dict(flows.tool_sends),
        "tool_recipients": {tool: list(names) for tool, names in flows.tool_recipients.items()},
    }


def _read_flows(body: Body) -> ServerFlows:
    return ServerFlows(
        body["words"] and Words(body["words"]),
        body["sends"] and Sends(body["sends"]),
        {tool: Words(words) for tool, words in body["tool_words"].items()},
        {tool: Sends(sends) for tool, sends in body["tool_sends"].items()},
        {tool: tuple(names) for tool, names in body["tool_recipients"].items()},
    )


def _transport_body(transport: Transport) -> Body:
    match transport:
        case StdioTransport(launch=TemplateLaunch(template, values)):
            return {"kind": "stdio", "template": template, "values": dict(values)}
        case StdioTransport(command, args, env, cwd):
            return {"kind": "stdio", "command": command, "args": list(args), "env": dict(env), "cwd": cwd}
        case HttpTransport(url, headers, kind):
            return {"kind": kind.value, "url": url, "headers": dict(headers)}


def _read_transport(body: Body) -> Transport:
    match body["kind"]:
        case "stdio" if "template" in body:
            return StdioTransport("", launch=TemplateLaunch(body["template"], body["values"]))
        case "stdio":
            return StdioTransport(body["command"], tuple(body["args"]), body["env"], body["cwd"])
        case word if word in list(HttpKind):
            return HttpTransport(body["url"], body["headers"], HttpKind(word))
        case other:
            raise ValueError(f"a transport of kind {other!r} was written by a later release")
