"""Transactions on servers as admins define them, and the codec of their rows.

Secrets come in encrypted and never go out; `secret_rows` stores their sources. Each change takes its turn by the
revision's lock, so that names can be compared with those of all other servers.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import Author
from bot.domain.flows import Sends, ServerFlows, Words
from bot.domain.policies import Rule
from bot.domain.secrets import SecretReference
from bot.domain.servers import (
    EVERYWHERE,
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
from bot.errors import Conflict, NotFound
from bot.storage import audit, capability_rows, grant_rows, pin_rows, sign_in_rows
from bot.storage.clock import now
from bot.storage.codec import VERSION, Body
from bot.storage.config_version import bump, lock
from bot.storage.database import json_text
from bot.storage.policy_store import rule_row
from bot.storage.secret_rows import (
    read_all,
    read_ciphertexts,
    read_of,
    read_references,
    references_of,
    with_missing,
    write_secrets,
)
from bot.storage.tables import mcp_servers, policy_rules
from bot.storage.turn_reader import UNREADABLE

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


servers = mcp_servers.c
_all = sa.select(mcp_servers).order_by(servers.slug, servers.workspace)
_one = sa.select(mcp_servers).where(servers.id == bindparam("i"))
_add = mcp_servers.insert().values(version=1, created_at=now(), updated_at=now())
_add_rule = policy_rules.insert().values(set_at=now())
_change = (
    mcp_servers.update()
    .where(servers.id == bindparam("i"))
    .values(version=servers.version + 1, updated_at=now(), updated_by=bindparam("who"))
)
_remove = mcp_servers.delete().where(servers.id == bindparam("i"))
_remove_rules = policy_rules.delete().where(policy_rules.c.server_id == bindparam("i"))
# A server without a workspace is in all of them, so its slug must be free in each.
_same_slug = sa.select(servers.id).where(
    servers.slug == bindparam("slug"),
    servers.id != bindparam("i"),
    sa.or_(servers.workspace.in_([bindparam("w"), EVERYWHERE]), bindparam("w", type_=sa.Text) == EVERYWHERE),
)
_same_title = sa.select(servers.slug).where(
    servers.title_key == bindparam("key"), servers.id != bindparam("i"), servers.workspace == bindparam("w")
)
_STOOD = {
    ServerEnablement.ON: "switched server on",
    ServerEnablement.DISCONNECTED: "disconnected server",
    ServerEnablement.DISABLED: "switched server off",
}


def read_servers(connection: sa.Connection) -> tuple[Sequence[ServerRecord], Mapping[str, str]]:
    """Return all servers by name, and the errors of unreadable rows by id."""
    secrets = read_all(connection)
    records, unreadable = [], {}
    for row in connection.execute(_all):
        try:
            rows = secrets.get(row.id, ())
            records.append(with_missing(decode_server(row, references_of(rows)), rows))
        except UNREADABLE as error:
            unreadable[row.id] = repr(error)
    return records, unreadable


def add(
    connection: sa.Connection,
    record: ServerRecord,
    sealed: Mapping[str, str],
    by: Author,
    policy: ApprovalPolicy | None,
) -> ServerRecord:
    """Add a server and the policy for all its tools. Raises Conflict."""
    lock(connection)
    if _find(connection, record.id) is not None:
        # The same transaction, repeated after a lost COMMIT response: the id is unique to this record.
        return _read(connection, record.id)
    _check_names(connection, record)
    who = {"created_by": by.principal, "updated_by": by.principal}
    connection.execute(_add, {"id": record.id, **encode_server(record), **who})
    write_secrets(connection, record, sealed, by.principal)
    facts = dict(_facts(record))
    if policy is not None:
        rule = Rule(policy, server_id=record.id, workspace=record.config.workspace)
        connection.execute(_add_rule, {"id": f"rule_{record.id}", **rule_row(rule), "set_by": by.principal})
        facts["policy"] = policy.value
    audit.record(connection, "added server", by.principal, subject=record.id, **facts)
    bump(connection)
    return _read(connection, record.id)


def change(
    connection: sa.Connection,
    record: ServerRecord,
    sealed: Mapping[str, str],
    by: Author,
    changes: Mapping[str, str],
) -> ServerRecord:
    """Replace a record of the same version. Raises Conflict, NotFound."""
    lock(connection)
    before = _at(connection, record.id)
    if _is_done(connection, before, record, sealed, by):
        return _read(connection, record.id)
    _check_version(before, record.version)
    _check_names(connection, record)
    # `set_enablement` changes the enablement.
    row = {**encode_server(record), "standing": before.standing}
    connection.execute(_change.values(**row), {"i": record.id, "who": by.principal})
    if _transport(before.definition) != _transport(row["definition"]):
        # The endpoint may be another server, for which no grants were given.
        grant_rows.end_of_server(connection, record.id, by)
    write_secrets(connection, record, sealed, by.principal)
    facts: dict[str, Any] = {"server": record.config.name, "changes": dict(changes)}
    if sealed:
        facts["secrets_set"] = sorted(sealed)
    audit.record(connection, "changed server", by.principal, subject=record.id, **facts)
    bump(connection)
    return _read(connection, record.id)


def set_enablement(connection: sa.Connection, server_id: str, standing: ServerEnablement, by: Author) -> ServerRecord:
    """Change a server's enablement. Raises NotFound."""
    lock(connection)
    before = _at(connection, server_id)
    if before.standing != standing:
        connection.execute(_change.values(standing=standing.value), {"i": server_id, "who": by.principal})
        changed = {"standing": f"{before.standing} → {standing}"}
        audit.record(connection, _STOOD[standing], by.principal, subject=server_id, server=before.slug, changes=changed)
        bump(connection)
    return _read(connection, server_id)


def remove(connection: sa.Connection, server_id: str, version: int, by: Author) -> None:
    """Delete a server with its secrets, policies and capabilities. Raises Conflict, NotFound."""
    lock(connection)
    before = _at(connection, server_id)
    _check_version(before, version)
    connection.execute(_remove, {"i": server_id})
    connection.execute(_remove_rules, {"i": server_id})
    capability_rows.forget(connection, server_id)
    pin_rows.forget(connection, server_id)
    sign_in_rows.end_of_server(connection, server_id)
    grant_rows.end_of_server(connection, server_id, by)
    audit.record(
        connection, "removed server", by.principal, subject=server_id, server=before.slug, workspace=before.workspace
    )
    bump(connection)


def changed_meanwhile(what: str, row: Any) -> Conflict:
    """Return the error of a concurrent change, with its author and time. `what` is the changed thing in the message."""
    at = datetime.fromtimestamp(row.updated_at, UTC)
    return Conflict(
        f"{what} was changed meanwhile by {row.updated_by} ({at:%Y-%m-%d %H:%M:%S} UTC).",
        "look at it as it is now, and change it again",
    )


def _find(connection: sa.Connection, server_id: str) -> Any:
    return connection.execute(_one, {"i": server_id}).first()


def _at(connection: sa.Connection, server_id: str) -> Any:
    row = _find(connection, server_id)
    if row is None:
        raise NotFound("That server does not exist.", "list the servers")
    return row


def _read(connection: sa.Connection, server_id: str) -> ServerRecord:
    rows = read_of(connection, server_id)
    return with_missing(decode_server(_at(connection, server_id), references_of(rows)), rows)


def _transport(definition: str) -> Any:
    """Return the transport of a row, `None` if it is unreadable."""
    try:
        return json.loads(definition)["transport"]
    except UNREADABLE:
        return None


def _is_done(connection: sa.Connection, row: Any, record: ServerRecord, sealed: Mapping[str, str], by: Author) -> bool:
    """Return True if the row is already changed: this transaction is repeated after a lost COMMIT response."""
    if row.version != record.version + 1 or row.updated_by != by.principal:
        return False
    server = encode_server(record)
    return (
        all(getattr(row, name) == server[name] for name in server if name != "standing")
        and read_references(connection, record.id) == record.secrets
        and sealed.items() <= read_ciphertexts(connection, record.id).items()
    )


def _check_version(row: Any, version: int) -> None:
    if row.version != version:
        raise changed_meanwhile(f"The server {row.slug}", row)


def _check_names(connection: sa.Connection, record: ServerRecord) -> None:
    config = record.config
    theirs = {"i": record.id, "w": config.workspace}
    if connection.execute(_same_slug, {**theirs, "slug": config.name}).first() is not None:
        raise Conflict(f"A server named {config.name} already exists.", "choose another name", field="name")
    key = name_key(config.title or config.name)
    slug = connection.execute(_same_title, {**theirs, "key": key}).scalar()
    if slug is not None:
        raise Conflict(f"The server {slug} has this title already.", "choose another title", field="title")


def _facts(record: ServerRecord) -> Mapping[str, Any]:
    """Return the audit facts of a new server, without any value that could hold a secret."""
    config = record.config
    match config.transport:
        case StdioTransport(launch=TemplateLaunch(template, values)):
            runs = {"transport": "stdio", "template": template, **{f"slot {name}": values[name] for name in values}}
        case StdioTransport(command):
            runs = {"transport": "stdio", "command": command}
        case HttpTransport(url, _, kind):
            runs = {"transport": kind.value, "host": _host(url)}
    return {
        "server": config.name,
        "workspace": config.workspace,
        **runs,
        "authentication": record.authentication.kind.value,
        "secrets": {slot: reference.source.value for slot, reference in sorted(record.secrets.items())},
        "trusted": config.trusted,
        "auto_connect": config.auto_connect,
        "standing": record.standing.value,
    }


def _host(url: str) -> str:
    """Return the host of an address, because the other parts may hold a password or a token."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    return f"{parts.hostname}:{port}" if port else parts.hostname or ""
