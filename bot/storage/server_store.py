"""Servers defined by admins, on a database: every method is one transaction, see `bot.ports.ServerStore`.

Secrets are encrypted before and decrypted after the transaction, in a thread, because deriving a key takes time and no
row may be locked meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from bot.domain.approvals import ApprovalPolicy
from bot.domain.capabilities import ServerCapabilities
from bot.domain.conversations import Author
from bot.domain.secret_binding import FindGrants, binding_of, no_grants
from bot.domain.secrets import SecretSource
from bot.domain.servers import CachedCapabilities, ServerEnablement, ServerRecord
from bot.errors import NotFound, SecretUnavailable
from bot.storage import audit, capability_rows, secret_rows, server_rows, sign_in_rows
from bot.storage.config_version import lock, read_version
from bot.storage.database import Database
from bot.storage.secret_box import SecretBox
from bot.storage.secret_rows import secret_context
from bot.storage.secret_sources import from_environment, from_file, open_regular_file

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_READING_SECONDS = 20.0
"""Limit of reading one secret in seconds, because a file may be on an unavailable disk."""


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
        records, unreadable = await self._database.run(server_rows.read_servers)
        self._log_unreadable("The definition", unreadable)
        return records

    async def add(
        self, record: ServerRecord, secrets: Mapping[str, str], by: Author, *, policy: ApprovalPolicy | None = None
    ) -> ServerRecord:
        """Add a server."""
        sealed = await self._sealed(record, secrets)
        return await self._run(server_rows.add, record, sealed, by, policy)

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
        return await self._run(server_rows.change, record, sealed, by, said)

    async def set_enablement(self, server_id: str, standing: ServerEnablement, by: Author) -> ServerRecord:
        """Change a server's enablement."""
        return await self._run(server_rows.set_enablement, server_id, standing, by)

    async def remove(self, server_id: str, version: int, by: Author) -> None:
        """Delete a server with all that belongs to it."""
        reached_its_end = False

        def transaction(connection: sa.Connection) -> None:
            nonlocal reached_its_end
            try:
                server_rows.remove(connection, server_id, version, by)
            except NotFound:
                # After a lost COMMIT response the server is gone, as requested.
                if not reached_its_end:
                    raise
            reached_its_end = True

        await self._database.run(transaction)
        self._complained.pop(server_id, None)

    async def save_capabilities(self, server_id: str, capabilities: ServerCapabilities) -> None:
        """Save the current capabilities of a server."""
        await self._run(capability_rows.save_capabilities, server_id, capabilities)

    async def save_sync_failure(self, server_id: str, problem: str) -> None:
        """Save the error of a failed sync."""
        await self._run(capability_rows.save_sync_failure, server_id, problem)

    async def cached_capabilities(self) -> Mapping[str, CachedCapabilities]:
        """Return the cached capabilities of every server."""
        cached = await self._database.run(capability_rows.read_known)
        self._log_unreadable("What is known", cached.unreadable)
        return cached.readable

    async def read_secrets(self, record: ServerRecord) -> Mapping[str, str]:
        """Return the values of all secrets of a server."""
        if not record.secrets:
            return {}
        stored = await self._run(secret_rows.read_bound, record.id)
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
        stored_secrets = await self._database.run(secret_rows.read_all_sealed)
        sign_ins = await self._database.run(sign_in_rows.read_all_sealed)
        pairs, unopened = await asyncio.to_thread(self._reseal, stored_secrets)
        signed, ended = await asyncio.to_thread(self._reseal_sign_ins, sign_ins)
        unopened = [*unopened, *ended]

        def transaction(connection: sa.Connection) -> int:
            lock(connection)
            count = secret_rows.replace_sealed(connection, pairs) + sign_in_rows.replace_sealed(connection, signed)
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
        self, stored_secrets: Sequence[secret_rows.EncryptedSecret]
    ) -> tuple[Sequence[tuple[secret_rows.EncryptedSecret, str]], Sequence[str]]:
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
        self, sign_ins: Sequence[sign_in_rows.EncryptedSignIn]
    ) -> tuple[Sequence[tuple[sign_in_rows.EncryptedSignIn, str]], Sequence[str]]:
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
