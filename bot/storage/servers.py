"""Servers defined by admins. See `bot.ports.ServerStore`.

Secrets are encrypted before and decrypted after the transaction, in a thread, because deriving a key takes time and no
row may be locked meanwhile. Each change takes the lock of the configuration version, so that names can be compared with
those of all other servers.
"""

from __future__ import annotations

import asyncio
import json
import logging
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlsplit

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.approvals import ApprovalPolicy
from bot.domain.capabilities import ServerCapabilities
from bot.domain.conversations import Author
from bot.domain.flows import Sends, ServerFlows, Words
from bot.domain.policies import Rule
from bot.domain.secret_binding import FindGrants, binding_of, no_grants
from bot.domain.secrets import SecretReference, SecretSource
from bot.domain.servers import (
    EVERYWHERE,
    Authentication,
    AuthenticationKind,
    CachedCapabilities,
    HttpKind,
    HttpTransport,
    ServerConfig,
    ServerEnablement,
    ServerRecord,
    StdioTransport,
    TemplateLaunch,
    Transport,
)
from bot.errors import Conflict, NotFound, SecretUnavailable
from bot.storage import audit, grant_rows, server_secrets, sign_ins
from bot.storage.capabilities import delete_capabilities, delete_pins, read_known, save_capabilities, save_sync_failure
from bot.storage.clock import now
from bot.storage.codec import VERSION, Body
from bot.storage.config_version import bump, lock, read_version
from bot.storage.database import Database, json_text
from bot.storage.encryption import SecretBox
from bot.storage.policies import rule_row
from bot.storage.server_secrets import (
    from_environment,
    from_file,
    open_regular_file,
    read_all,
    read_ciphertexts,
    read_of,
    read_references,
    references_of,
    secret_context,
    with_missing,
    write_secrets,
)
from bot.storage.tables import mcp_servers, policy_rules
from bot.storage.turn_reader import UNREADABLE

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
_TEXTS = ("system_instruction", "response_instruction", "auto_context_tool")
_TIMES = ("connect_timeout", "list_timeout", "tool_timeout", "tool_timeout_max", "tool_timeouts")
_READING_SECONDS = 20.0
"""Limit of reading one secret in seconds, because a file may be on an unavailable disk."""
_STOOD = {
    ServerEnablement.ON: "switched server on",
    ServerEnablement.DISCONNECTED: "disconnected server",
    ServerEnablement.DISABLED: "switched server off",
}


servers = mcp_servers.c


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
    delete_capabilities(connection, server_id)
    delete_pins(connection, server_id)
    sign_ins.end_of_server(connection, server_id)
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


@dataclass(frozen=True, slots=True)
class Resealed:
    """The number of re-encrypted secrets, and those that no key decrypts, each as `server slot`."""

    count: int
    unopened: tuple[str, ...] = ()


class SqlServerStore:
    """Server records and their secrets. `environment` holds the variables of `env:NAME`, `open_file` opens the file of
    `file:PATH`. `grants` are the operator's: a reference set by another user for the server's endpoint needs one.
    """

    def __init__(
        self,
        database: Database,
        box: SecretBox,
        environment: Mapping[str, str],
        open_file: Callable[[str], BinaryIO] = open_regular_file,
        grants: FindGrants = no_grants,
    ) -> None:
        self._database = database
        self._box = box
        self._environment = environment
        self._open_file = open_file
        self._grants = grants
        self._complained: dict[str, str] = {}

    async def revision(self) -> int:
        """Return the version of the configuration, which grows with every change."""
        return await self._database.run(read_version)

    async def records(self) -> Sequence[ServerRecord]:
        """Return all servers by name, without unreadable rows."""
        records, unreadable = await self._database.run(read_servers)
        self._log_unreadable("The definition", unreadable)
        return records

    async def add(
        self, record: ServerRecord, secrets: Mapping[str, str], by: Author, *, policy: ApprovalPolicy | None = None
    ) -> ServerRecord:
        """Add a server."""
        sealed = await self._sealed(record, secrets)
        return await self._run(add, record, sealed, by, policy)

    async def change(
        self, record: ServerRecord, secrets: Mapping[str, str], by: Author, *, changes: Mapping[str, str]
    ) -> ServerRecord:
        """Replace a record of the same version."""
        sealed = await self._sealed(record, secrets)
        # A second check: audit facts must not contain a new secret.
        said = {
            key: "***" if any(value and value in text for value in secrets.values()) else text
            for key, text in changes.items()
        }
        return await self._run(change, record, sealed, by, said)

    async def set_enablement(self, server_id: str, standing: ServerEnablement, by: Author) -> ServerRecord:
        """Change a server's enablement."""
        return await self._run(set_enablement, server_id, standing, by)

    async def remove(self, server_id: str, version: int, by: Author) -> None:
        """Delete a server with all that belongs to it."""
        reached_its_end = False

        def transaction(connection: sa.Connection) -> None:
            nonlocal reached_its_end
            try:
                remove(connection, server_id, version, by)
            except NotFound:
                # After a lost COMMIT response the server is gone, as requested.
                if not reached_its_end:
                    raise
            reached_its_end = True

        await self._database.run(transaction)
        self._complained.pop(server_id, None)

    async def save_capabilities(self, server_id: str, capabilities: ServerCapabilities) -> None:
        """Save the current capabilities of a server."""
        await self._run(save_capabilities, server_id, capabilities)

    async def save_sync_failure(self, server_id: str, problem: str) -> None:
        """Save the error of a failed sync."""
        await self._run(save_sync_failure, server_id, problem)

    async def cached_capabilities(self) -> Mapping[str, CachedCapabilities]:
        """Return the cached capabilities of every server."""
        cached = await self._database.run(read_known)
        self._log_unreadable("What is known", cached.unreadable)
        return cached.readable

    async def read_secrets(self, record: ServerRecord) -> Mapping[str, str]:
        """Return the values of all secrets of a server."""
        if not record.secrets:
            return {}
        stored = await self._run(server_secrets.read_bound, record.id)
        try:
            async with asyncio.timeout(_READING_SECONDS):
                return await asyncio.to_thread(self._reveal, record, stored)
        except TimeoutError:
            raise SecretUnavailable(
                f"The secrets of {record.config.name} could not be read within {_READING_SECONDS:g} seconds.",
                "see that the disks of the files they are in answer",
            ) from None

    async def reseal(self, by: Author) -> Resealed:
        """Encrypt every stored secret and sign-in again with the first key. Those that no key decrypts stay as they
        are.
        """
        stored_secrets = await self._database.run(server_secrets.read_all_sealed)
        stored_sign_ins = await self._database.run(sign_ins.read_all_sealed)
        pairs, unopened = await asyncio.to_thread(self._reseal, stored_secrets)
        signed, ended = await asyncio.to_thread(self._reseal_sign_ins, stored_sign_ins)
        unopened = [*unopened, *ended]

        def transaction(connection: sa.Connection) -> int:
            lock(connection)
            count = server_secrets.replace_sealed(connection, pairs) + sign_ins.replace_sealed(connection, signed)
            audit.record(connection, "re-encrypted secrets", by.principal, count=count, unopened=len(unopened))
            return count

        return Resealed(await self._database.run(transaction), tuple(unopened))

    # ------------------------------------------------------------------ in a thread

    def _seal(self, record: ServerRecord, secrets: Mapping[str, str]) -> Mapping[str, str]:
        return {
            slot: self._box.seal(value, secret_context(record.id, slot, binding_of(record, slot)))
            for slot, value in secrets.items()
        }

    def _reveal(self, record: ServerRecord, stored: Mapping[str, Any]) -> Mapping[str, str]:
        values = {}
        for slot in record.secrets:
            try:
                values[slot] = self._value(record, slot, stored.get(slot))
            except SecretUnavailable as error:
                cause = f"The secret {slot} of {record.config.name} is not available: {_inside(error.cause)}"
                raise SecretUnavailable(cause, error.fix) from error
        return values

    def _value(self, record: ServerRecord, slot: str, row: Any) -> str:
        reference = record.secrets[slot]
        match reference.source:
            case SecretSource.ENVIRONMENT:
                self._check_reference(record, slot, row)
                return from_environment(reference.place, self._environment)
            case SecretSource.FILE:
                self._check_reference(record, slot, row)
                with self._open_file(reference.place) as file:
                    return from_file(reference.place, file)
            case SecretSource.STORED:
                return self._stored(record, slot, row)

    def _check_reference(self, record: ServerRecord, slot: str, row: Any) -> None:
        """Raise SecretUnavailable unless the operator set this reference for this endpoint, or granted it."""
        reference = record.secrets[slot]
        bound_here = row is not None and row.bound_to == binding_of(record, slot)
        if reference.vouched and bound_here and (row.source, row.place) == (reference.source, reference.place):
            return
        cause, fix = self._grants().objection(reference, record.config)
        if cause:
            raise SecretUnavailable(cause, fix)

    def _stored(self, record: ServerRecord, slot: str, row: Any) -> str:
        set_again = f"say /mcp secret set {record.config.name} {slot}"
        if row is None or row.ciphertext is None:
            raise SecretUnavailable("It is not set.", set_again)
        place = binding_of(record, slot)
        if row.bound_to != place:
            raise SecretUnavailable(f"It was entered for {row.bound_to}, and the server is {place} now.", set_again)
        return self._box.open(row.ciphertext, secret_context(record.id, slot, place))

    def _reseal(
        self, stored_secrets: Sequence[server_secrets.EncryptedSecret]
    ) -> tuple[Sequence[tuple[server_secrets.EncryptedSecret, str]], Sequence[str]]:
        pairs, unopened = [], []
        for secret in stored_secrets:
            try:
                plain = self._box.open(secret.ciphertext, secret.place)
            except SecretUnavailable:
                unopened.append(f"{secret.slug} {secret.slot}")
            else:
                pairs.append((secret, self._box.seal(plain, secret.place)))
        return pairs, unopened

    def _reseal_sign_ins(
        self, sign_ins: Sequence[sign_ins.EncryptedSignIn]
    ) -> tuple[Sequence[tuple[sign_ins.EncryptedSignIn, str]], Sequence[str]]:
        pairs, unopened = [], []
        for sign_in in sign_ins:
            try:
                plain = self._box.open(sign_in.body, sign_in.place)
            except SecretUnavailable:
                unopened.append(f"{sign_in.slug} sign-in")
            else:
                pairs.append((sign_in, self._box.seal(plain, sign_in.place)))
        return pairs, unopened

    # ------------------------------------------------------------------ everywhere

    async def _sealed(self, record: ServerRecord, secrets: Mapping[str, str]) -> Mapping[str, str]:
        for slot in secrets:
            if slot not in record.secrets or record.secrets[slot].source is not SecretSource.STORED:
                raise ValueError(f"a value for {slot!r}, which the record does not say is stored")
        return await asyncio.to_thread(self._seal, record, secrets) if secrets else {}

    async def _run(
        self, transaction: Callable[Concatenate[sa.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._database.run(lambda connection: transaction(connection, *args, **kwargs))

    def _log_unreadable(self, what: str, unreadable: Mapping[str, str]) -> None:
        """Log one line for each unreadable row, not one for each read."""
        for server_id, problem in unreadable.items():
            if self._complained.get(f"{what} {server_id}") != problem:
                self._complained[f"{what} {server_id}"] = problem
                log.warning("%s of the server %s cannot be read and is left out", what, server_id)


def _inside(cause: str) -> str:
    """Return a sentence for use after a colon."""
    return cause[:1].lower() + cause[1:]
