"""Servers defined by admins. See `bot.ports.ServerStore`.

Secrets are encrypted before and decrypted after the transaction, in a thread, because deriving a key takes time and no
row may be locked meanwhile. Each change takes the lock of the configuration version, so that names can be compared with
those of all other servers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.approvals import ApprovalPolicy
from bot.domain.characters import name_key
from bot.domain.conversations import Author
from bot.domain.policies import Rule
from bot.domain.secret_binding import FindGrants, SecretGrants
from bot.domain.secrets import SecretReference
from bot.domain.servers import (
    EVERYWHERE,
    Authentication,
    CachedCapabilities,
    HttpTransport,
    ServerCapabilities,
    ServerConfig,
    ServerEnablement,
    ServerRecord,
    StdioTransport,
    TemplateLaunch,
    kind_of,
)
from bot.errors import Conflict, NotFound
from bot.storage import audit
from bot.storage.admin import capabilities
from bot.storage.admin.grants import revoke_grants_of_server
from bot.storage.admin.installations import read_encrypted_installations
from bot.storage.admin.policies import rule_row
from bot.storage.admin.receipt_keys import read_encrypted_receipt_keys
from bot.storage.admin.server_secrets import (
    SecretValues,
    read_all_secrets,
    read_encrypted_secrets,
    read_secrets,
    references_of,
    with_missing,
    write_secrets,
)
from bot.storage.admin.sign_ins import delete_sign_ins, read_encrypted_sign_ins
from bot.storage.codec import UNREADABLE, decode, decode_row, encode_text, omit_fields
from bot.storage.coordination import lock_config, read_version, record_change
from bot.storage.database import Database, Store, matching, now, row_values, transaction
from bot.storage.encryption import Encrypted, SecretBox, open_regular_file
from bot.storage.tables import mcp_servers, policy_rules

log = logging.getLogger(__name__)

_ENABLEMENT_KINDS = {
    ServerEnablement.ON: "switched server on",
    ServerEnablement.DISCONNECTED: "disconnected server",
    ServerEnablement.DISABLED: "switched server off",
}

# These have columns, but for the settings of OAuth, which depend on a secret.
omit_fields(ServerConfig, "id", "name", "workspace", "title", "description", "trusted", "auto_connect", "sign_in")

servers = mcp_servers.c
_all = sa.select(mcp_servers).order_by(servers.slug, servers.workspace)

_is_this = matching(mcp_servers, id="i")
_by_id = sa.select(mcp_servers).where(_is_this)

_add = mcp_servers.insert().values(version=1, created_at=now(), updated_at=now())

_add_rule = policy_rules.insert().values(set_at=now())

_change = (
    mcp_servers.update()
    .where(_is_this)
    .values(version=servers.version + 1, updated_at=now(), updated_by=bindparam("who"))
)

_delete = mcp_servers.delete().where(_is_this)

_delete_rules = policy_rules.delete().where(matching(policy_rules, server_id="i"))

# A server without a workspace is in all of them, so its slug must be free in each.
_same_slug = sa.select(servers.id).where(
    matching(mcp_servers, slug="slug"),
    servers.id != bindparam("i"),
    sa.or_(servers.workspace.in_([bindparam("w"), EVERYWHERE]), bindparam("w", type_=sa.Text) == EVERYWHERE),
)

_same_title = sa.select(servers.slug).where(
    matching(mcp_servers, title_key="key", workspace="w"), servers.id != bindparam("i")
)


class SqlServerStore(Store):
    """Server records and their secrets. For `environment`, `open_file` and `grants` see `SecretValues`."""

    def __init__(
        self,
        database: Database,
        box: SecretBox,
        environment: Mapping[str, str],
        open_file: Callable[[str], BinaryIO] = open_regular_file,
        grants: FindGrants = SecretGrants,
    ) -> None:
        super().__init__(database)
        self._box = box
        self._secrets = SecretValues(box, environment, open_file, grants)
        self._logged: dict[str, str] = {}

    @transaction
    def revision(self, connection: sa.Connection) -> int:
        """Return the version of the configuration, which grows with every change."""
        return read_version(connection)

    @transaction
    def records(self, connection: sa.Connection) -> Sequence[ServerRecord]:
        """Return all servers by name, without unreadable rows."""
        secrets = read_all_secrets(connection)
        records = []
        for row in connection.execute(_all):
            try:
                records.append(_record(row, secrets.get(row.id, ())))
            except UNREADABLE as error:
                self._log_unreadable("The definition", row.id, error)
        return records

    async def add(
        self, record: ServerRecord, secrets: Mapping[str, str], by: Author, *, policy: ApprovalPolicy | None = None
    ) -> ServerRecord:
        """Add a server and the policy for all its tools. Raises Conflict."""
        return await self._add(record, await self._secrets.encrypt(record, secrets), by, policy)

    @transaction
    def _add(
        self,
        connection: sa.Connection,
        record: ServerRecord,
        ciphertexts: Mapping[str, str],
        by: Author,
        policy: ApprovalPolicy | None,
    ) -> ServerRecord:
        lock_config(connection)
        if connection.execute(_by_id, {"i": record.id}).first() is not None:
            # The same transaction, repeated after a lost COMMIT response: the id is unique to this record.
            return _read_server(connection, record.id)
        _check_names(connection, record)
        authors = {"created_by": by.principal, "updated_by": by.principal}
        connection.execute(_add, {"id": record.id, **encode_server(record), **authors})
        write_secrets(connection, record, ciphertexts, by.principal)
        facts = dict(_facts(record))
        if policy is not None:
            rule = Rule(policy, server_id=record.id, workspace=record.config.workspace)
            connection.execute(_add_rule, {"id": f"rule_{record.id}", **rule_row(rule), "set_by": by.principal})
            facts["policy"] = policy.value
        record_change(connection, "added server", by.principal, subject=record.id, **facts)
        return _read_server(connection, record.id)

    async def change(
        self, record: ServerRecord, secrets: Mapping[str, str], by: Author, *, changes: Mapping[str, str]
    ) -> ServerRecord:
        """Replace a record of the same version. Raises Conflict, NotFound."""
        ciphertexts = await self._secrets.encrypt(record, secrets)
        # A second check: audit facts must not contain a new secret.
        redacted = {
            field: "***" if any(value and value in text for value in secrets.values()) else text
            for field, text in changes.items()
        }
        return await self._change(record, ciphertexts, by, redacted)

    @transaction
    def _change(
        self,
        connection: sa.Connection,
        record: ServerRecord,
        ciphertexts: Mapping[str, str],
        by: Author,
        changes: Mapping[str, str],
    ) -> ServerRecord:
        lock_config(connection)
        before = _row(connection, record.id)
        # `set_enablement` changes the enablement.
        columns = {**encode_server(record), "enablement": before.enablement}
        if (before.version, before.updated_by) == (record.version + 1, by.principal):
            secrets = read_secrets(connection, record.id)
            if (
                all(getattr(before, name) == value for name, value in columns.items())
                and references_of(secrets.values()) == record.secrets
                and all(slot in secrets and secrets[slot].ciphertext == text for slot, text in ciphertexts.items())
            ):
                # The same transaction, repeated after a lost COMMIT response.
                return _read_server(connection, record.id)
        _check_version(before, record.version)
        _check_names(connection, record)
        connection.execute(_change.values(**columns), {"i": record.id, "who": by.principal})
        if _transport(before.definition) != _transport(columns["definition"]):
            # The endpoint may be another server, for which no grants were given.
            revoke_grants_of_server(connection, record.id, by)
        write_secrets(connection, record, ciphertexts, by.principal)
        facts: dict[str, Any] = {"server": record.config.name, "changes": dict(changes)}
        if ciphertexts:
            facts["secrets_set"] = sorted(ciphertexts)
        record_change(connection, "changed server", by.principal, subject=record.id, **facts)
        return _read_server(connection, record.id)

    @transaction
    def set_enablement(
        self, connection: sa.Connection, server_id: str, enablement: ServerEnablement, by: Author
    ) -> ServerRecord:
        """Change a server's enablement. Raises NotFound."""
        lock_config(connection)
        before = _row(connection, server_id)
        if before.enablement != enablement:
            connection.execute(_change.values(enablement=enablement.value), {"i": server_id, "who": by.principal})
            facts = {"server": before.slug, "changes": {"standing": f"{before.enablement} → {enablement}"}}
            record_change(connection, _ENABLEMENT_KINDS[enablement], by.principal, subject=server_id, **facts)
        return _read_server(connection, server_id)

    async def remove(self, server_id: str, version: int, by: Author) -> None:
        """Delete a server with all that belongs to it. Raises Conflict, NotFound."""
        is_removed = False

        def remove(connection: sa.Connection) -> None:
            nonlocal is_removed
            try:
                _remove(connection, server_id, version, by)
            except NotFound:
                # After a lost COMMIT response the server is gone, as requested.
                if not is_removed:
                    raise
            is_removed = True

        await self._database.run(remove)

    @transaction
    def save_capabilities(self, connection: sa.Connection, server_id: str, loaded: ServerCapabilities) -> None:
        """Save the current capabilities of a server."""
        capabilities.save_capabilities(connection, server_id, loaded)

    @transaction
    def save_sync_failure(self, connection: sa.Connection, server_id: str, problem: str) -> None:
        """Save the error of a failed sync."""
        capabilities.save_sync_failure(connection, server_id, problem)

    @transaction
    def cached_capabilities(self, connection: sa.Connection) -> Mapping[str, CachedCapabilities]:
        """Return the cached capabilities of every server."""
        cached = {}
        for row in connection.execute(capabilities.all_capabilities):
            try:
                cached[row.server_id] = capabilities.read_cached(row)
            except UNREADABLE as error:
                self._log_unreadable("What is known", row.server_id, error)
        return cached

    async def read_secrets(self, record: ServerRecord) -> Mapping[str, str]:
        """Return the values of all secrets of a server. Raises SecretUnavailable."""
        if not record.secrets:
            return {}
        rows = await self._database.run(lambda connection: read_secrets(connection, record.id))
        return await self._secrets.decrypt_all(record, rows)

    async def reseal(self, by: Author) -> tuple[int, Sequence[str]]:
        """Encrypt every stored secret, sign-in, installation and key again with the first key. Return their number, and
        those that no key decrypts, each as `server slot`: they stay as they are.
        """

        def read_all(connection: sa.Connection) -> Sequence[Encrypted]:
            servers = (read_encrypted_secrets, read_encrypted_sign_ins)
            readers = (*servers, read_encrypted_installations, read_encrypted_receipt_keys)
            return [row for read in readers for row in read(connection)]

        def replace_all(connection: sa.Connection) -> int:
            lock_config(connection)
            count = sum(row.replace_ciphertext(connection, ciphertext) for row, ciphertext in pairs)
            audit.record(connection, "re-encrypted secrets", by.principal, count=count, unopened=len(unopened))
            return count

        pairs, unopened = await asyncio.to_thread(self._box.encrypt_again, await self._database.run(read_all))
        return await self._database.run(replace_all), unopened

    def _log_unreadable(self, what: str, server_id: str, error: Exception) -> None:
        if self._logged.get(f"{what} {server_id}") != repr(error):
            self._logged[f"{what} {server_id}"] = repr(error)
            log.warning("%s of the server %s cannot be read and is left out", what, server_id)


def changed_meanwhile(what: str, row: Any) -> Conflict:
    """Return the error of a concurrent change, with its author and time. `what` is the changed thing in the message."""
    at = datetime.fromtimestamp(row.updated_at, UTC)
    return Conflict(
        f"{what} was changed meanwhile by {row.updated_by} ({at:%Y-%m-%d %H:%M:%S} UTC).",
        "look at it as it is now, and change it again",
    )


def _remove(connection: sa.Connection, server_id: str, version: int, by: Author) -> None:
    lock_config(connection)
    before = _row(connection, server_id)
    _check_version(before, version)
    connection.execute(_delete, {"i": server_id})
    connection.execute(_delete_rules, {"i": server_id})
    capabilities.delete_capabilities(connection, server_id)
    capabilities.delete_pins(connection, server_id)
    delete_sign_ins(connection, server_id)
    revoke_grants_of_server(connection, server_id, by)
    facts = {"server": before.slug, "workspace": before.workspace}
    record_change(connection, "removed server", by.principal, subject=server_id, **facts)


def _row(connection: sa.Connection, server_id: str) -> Any:
    row = connection.execute(_by_id, {"i": server_id}).first()
    if row is None:
        raise NotFound("That server does not exist.", "list the servers")
    return row


def _read_server(connection: sa.Connection, server_id: str) -> ServerRecord:
    return _record(_row(connection, server_id), read_secrets(connection, server_id).values())


def _record(row: Any, secrets: Collection[Any]) -> ServerRecord:
    return with_missing(decode_server(row, references_of(secrets)), secrets)


def _transport(definition: str) -> Any:
    """Return the transport of a row, `None` if it is unreadable."""
    try:
        return json.loads(definition)["transport"]
    except UNREADABLE:
        return None


def _check_version(row: Any, version: int) -> None:
    if row.version != version:
        raise changed_meanwhile(f"The server {row.slug}", row)


def _check_names(connection: sa.Connection, record: ServerRecord) -> None:
    config = record.config
    others = {"i": record.id, "w": config.workspace}
    if connection.execute(_same_slug, {**others, "slug": config.name}).first() is not None:
        raise Conflict(f"A server named {config.name} already exists.", "choose another name", field="name")
    key = name_key(config.title or config.name)
    slug = connection.execute(_same_title, {**others, "key": key}).scalar()
    if slug is not None:
        raise Conflict(f"The server {slug} has this title already.", "choose another title", field="title")


def _facts(record: ServerRecord) -> Mapping[str, Any]:
    """Return the audit facts of a new server, without any value that could hold a secret."""
    config = record.config
    match config.transport:
        case StdioTransport(launch=TemplateLaunch(template, values)):
            endpoint = {"transport": "stdio", "template": template, **{f"slot {name}": values[name] for name in values}}
        case StdioTransport(command):
            endpoint = {"transport": "stdio", "command": command}
        case HttpTransport(url, _, kind):
            endpoint = {"transport": kind.value, "host": _host(url)}
    return {
        "server": config.name,
        "workspace": config.workspace,
        **endpoint,
        "authentication": record.authentication.kind.value,
        "secrets": {slot: reference.source.value for slot, reference in sorted(record.secrets.items())},
        "trusted": config.trusted,
        "auto_connect": config.auto_connect,
        "standing": record.enablement.value,
    }


def _host(url: str) -> str:
    """Return the host of an address, because the other parts may hold a password or a token."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    return f"{parts.hostname}:{port}" if port else parts.hostname or ""


def encode_server(record: ServerRecord) -> dict[str, Any]:
    """Return the columns of a server's definition."""
    config = record.config
    stored = config
    if isinstance(config.transport, StdioTransport) and config.transport.launch is not None:
        # Without the values that the launch template has.
        stored = replace(config, transport=StdioTransport("", launch=config.transport.launch))
    return row_values(
        mcp_servers,
        config,
        slug=config.name,
        title_key=name_key(config.title or config.name),
        transport=kind_of(config.transport),
        definition=encode_text(stored),
        authentication=encode_text(record.authentication),
        enablement=record.enablement.value,
    )


def decode_server(row: Any, secrets: Mapping[str, SecretReference]) -> ServerRecord:
    """Return the record of a row. Raises `codec.UNREADABLE`."""
    return ServerRecord(
        config=decode_row(ServerConfig, row, json.loads(row.definition), name=row.slug),
        authentication=decode(Authentication, json.loads(row.authentication)),
        secrets=secrets,
        enablement=ServerEnablement(row.enablement),
        version=row.version,
        created_at=row.created_at,
        created_by=row.created_by,
        updated_at=row.updated_at,
        updated_by=row.updated_by,
    )
