"""Installations of the app. See `bot.ports.InstallationStore`.

Bodies are encrypted before and decrypted after the transaction, in a thread. Of a used state only a hash is stored.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import Author
from bot.domain.installations import Installation
from bot.storage import audit
from bot.storage.codec import UNREADABLE, decode_text, encode_text, omit_fields
from bot.storage.database import Database, Store, Upsert, insert_new, now, transaction
from bot.storage.encryption import SecretBox, hash_token
from bot.storage.tables import installations, used_install_states

log = logging.getLogger(__name__)

omit_fields(Installation, "platform", "workspace", "removed_at", "version")

_columns = installations.c
_of_workspace = (_columns.platform == bindparam("p"), _columns.workspace == bindparam("w"))
_find = sa.select(installations).where(*_of_workspace)
_lock = _find.with_for_update()
_versions = sa.select(_columns.workspace, _columns.version).where(_columns.platform == bindparam("p"))
_all = sa.select(installations).order_by(_columns.platform, _columns.workspace)
_put = Upsert(
    lambda insert: (statement := insert(installations).values(removed_at=None, updated_at=now())).on_conflict_do_update(
        index_elements=["platform", "workspace"],
        set_={
            "body": statement.excluded.body,
            "version": _columns.version + 1,
            "removed_at": None,
            "updated_at": now(),
        },
    )
)
_change = (
    installations.update()
    .where(*_of_workspace, _columns.version == bindparam("was"), _columns.removed_at.is_(None))
    .values(body=bindparam("to"), version=_columns.version + 1, updated_at=now())
)
_remove = _change.values(removed_at=now())
_reencrypt = (
    installations.update().where(*_of_workspace, _columns.body == bindparam("was")).values(body=bindparam("to"))
)
_forget_old_states = used_install_states.delete().where(used_install_states.c.expires_at <= now())
_use_state = insert_new(used_install_states, expires_at=now() + bindparam("seconds"))


@dataclass(frozen=True, slots=True)
class EncryptedInstallation:
    """A stored installation, still encrypted."""

    platform: str
    workspace: str
    ciphertext: str

    @property
    def context(self) -> str:
        """Encryption context of the ciphertext."""
        return json.dumps(["installation", self.platform, self.workspace])

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{self.platform}:{self.workspace} installation"

    def replace_ciphertext(self, connection: sa.Connection, ciphertext: str) -> int:
        """Replace the ciphertext unless it has changed meanwhile. Return 1 if it was replaced, else 0."""
        values = {**_params(self), "was": self.ciphertext, "to": ciphertext}
        return connection.execute(_reencrypt, values).rowcount


class SqlInstallationStore(Store):
    """Installations by platform and workspace."""

    def __init__(self, database: Database, box: SecretBox) -> None:
        super().__init__(database)
        self._box = box

    @transaction
    def versions(self, connection: sa.Connection, platform: str) -> Mapping[str, int]:
        """Return the version of every installation by workspace."""
        return {row.workspace: row.version for row in connection.execute(_versions, {"p": platform})}

    async def find(self, platform: str, workspace: str) -> Installation | None:
        """Return an installation, also a removed one."""
        row = await self._find(platform, workspace)
        if row is None:
            return None
        encrypted = EncryptedInstallation(platform, workspace, row.body)
        body = await asyncio.to_thread(self._box.open, encrypted.ciphertext, encrypted.context)
        try:
            columns = {"platform": platform, "workspace": workspace, "removed_at": row.removed_at}
            return decode_text(Installation, body, **columns, version=row.version)
        except UNREADABLE:
            log.warning("installation in %s:%s is unreadable, ignored", platform, workspace)
            return None

    @transaction
    def _find(self, connection: sa.Connection, platform: str, workspace: str) -> Any:
        return connection.execute(_find, {"p": platform, "w": workspace}).first()

    async def save(self, installation: Installation, by: Author) -> Installation:
        """Store an installation, regardless of the stored version."""
        version = await self._save(await self._encrypt(installation), installation, by)
        return dataclasses.replace(installation, version=version, removed_at=None)

    @transaction
    def _save(
        self, connection: sa.Connection, encrypted: EncryptedInstallation, installation: Installation, by: Author
    ) -> int:
        row = _locked(connection, encrypted)
        if row is not None and row.body == encrypted.ciphertext:
            # The same transaction, repeated after a lost COMMIT response: no two ciphertexts are alike.
            return int(row.version)
        key = {"platform": encrypted.platform, "workspace": encrypted.workspace}
        connection.execute(_put.on(connection), {**key, "body": encrypted.ciphertext, "version": 1})
        _record(connection, "installed app", installation, by.principal)
        return int(_locked(connection, encrypted).version)

    async def renew(self, installation: Installation) -> Installation | None:
        """Store renewed tokens, replacing the version they were read at."""
        encrypted = await self._encrypt(installation)
        version = await self._renew(encrypted, installation.version)
        return None if version is None else dataclasses.replace(installation, version=version)

    @transaction
    def _renew(self, connection: sa.Connection, encrypted: EncryptedInstallation, version: int) -> int | None:
        changed = connection.execute(_change, _change_params(encrypted, version)).rowcount
        row = connection.execute(_find, _params(encrypted)).first()
        return int(row.version) if row is not None and (changed or row.body == encrypted.ciphertext) else None

    async def remove(self, installation: Installation) -> bool:
        """Delete the tokens of this version of an installation."""
        return await self._remove(await self._encrypt(installation.without_tokens), installation)

    @transaction
    def _remove(self, connection: sa.Connection, encrypted: EncryptedInstallation, installation: Installation) -> bool:
        if connection.execute(_remove, _change_params(encrypted, installation.version)).rowcount:
            _record(connection, "uninstalled app", installation, audit.NOBODY)
            return True
        row = connection.execute(_find, _params(encrypted)).first()
        return row is not None and bool(row.body == encrypted.ciphertext)

    @transaction
    def use_state(self, connection: sa.Connection, state: str, seconds: float) -> bool:
        """Use up a state. After a lost COMMIT response it is used and False is returned."""
        connection.execute(_forget_old_states)
        used = connection.execute(_use_state.on(connection), {"hash": hash_token(state), "seconds": seconds})
        return used.first() is not None

    async def _encrypt(self, installation: Installation) -> EncryptedInstallation:
        plain = EncryptedInstallation(installation.platform, installation.workspace, "")
        ciphertext = await asyncio.to_thread(self._box.seal, encode_text(installation), plain.context)
        return dataclasses.replace(plain, ciphertext=ciphertext)


def read_encrypted_installations(connection: sa.Connection) -> Sequence[EncryptedInstallation]:
    """Return all stored installations."""
    return [EncryptedInstallation(row.platform, row.workspace, row.body) for row in connection.execute(_all)]


def _locked(connection: sa.Connection, encrypted: EncryptedInstallation) -> Any:
    return connection.execute(_lock, _params(encrypted)).first()


def _params(encrypted: EncryptedInstallation) -> dict[str, str]:
    return {"p": encrypted.platform, "w": encrypted.workspace}


def _change_params(encrypted: EncryptedInstallation, version: int) -> dict[str, Any]:
    return {**_params(encrypted), "was": version, "to": encrypted.ciphertext}


def _record(connection: sa.Connection, kind: str, installation: Installation, actor: str) -> None:
    where = installation.workspace_key
    audit.record(connection, kind, actor, subject=where, workspace=where, name=installation.name)
