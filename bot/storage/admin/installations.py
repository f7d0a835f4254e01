"""Installations of the app. See `bot.ports.InstallationStore`.

Bodies are encrypted before and decrypted after the transaction, in a thread. Of a used state only a hash is stored.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import Author
from bot.domain.installations import Installation
from bot.storage import audit
from bot.storage.codec import UNREADABLE, decode_text, encode_text, omit_fields
from bot.storage.database import Database, Store, insert_new, insert_or_update, matching, now, transaction
from bot.storage.encryption import Encrypted, SecretBox, hash_token
from bot.storage.tables import installations, used_install_states

log = logging.getLogger(__name__)

omit_fields(Installation, "platform", "workspace", "removed_at", "version")

_columns = installations.c
_is_this = matching(installations, platform="p", workspace="w")
_find = sa.select(installations).where(_is_this)
_lock = _find.with_for_update()
_versions = sa.select(_columns.workspace, _columns.version).where(matching(installations, platform="p"))
_all = sa.select(installations).order_by(_columns.platform, _columns.workspace)
_put = insert_or_update(
    installations, "body", removed_at=None, updated_at=now(), set_={"version": _columns.version + 1}
)
_change = (
    installations.update()
    .where(_is_this, matching(installations, version="was"), _columns.removed_at.is_(None))
    .values(body=bindparam("to"), version=_columns.version + 1, updated_at=now())
)
_remove = _change.values(removed_at=now())
_forget_old_states = used_install_states.delete().where(used_install_states.c.expires_at <= now())
_use_state = insert_new(used_install_states, expires_at=now() + bindparam("seconds"))


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
        key = {"p": platform, "w": workspace}
        row = await self._database.run(lambda connection: connection.execute(_find, key).first())
        if row is None:
            return None
        body = await asyncio.to_thread(self._box.open, row.body, _context(platform, workspace))
        try:
            columns = {"platform": platform, "workspace": workspace, "removed_at": row.removed_at}
            return decode_text(Installation, body, **columns, version=row.version)
        except UNREADABLE:
            log.warning("installation in %s:%s is unreadable, ignored", platform, workspace)
            return None

    async def save(self, installation: Installation, by: Author) -> Installation:
        """Store an installation, regardless of the stored version."""
        version = await self._save(installation, await self._encrypt(installation), by)
        return dataclasses.replace(installation, version=version, removed_at=None)

    @transaction
    def _save(self, connection: sa.Connection, installation: Installation, ciphertext: str, by: Author) -> int:
        params = _params(installation)
        row = connection.execute(_lock, params).first()
        if row is not None and row.body == ciphertext:
            # The same transaction, repeated after a lost COMMIT response: no two ciphertexts are alike.
            return int(row.version)
        key = {"platform": installation.platform, "workspace": installation.workspace}
        connection.execute(_put.on(connection), {**key, "body": ciphertext, "version": 1})
        _record(connection, "installed app", installation, by.principal)
        return int(connection.execute(_lock, params).one().version)

    async def renew(self, installation: Installation) -> Installation | None:
        """Store renewed tokens, replacing the version they were read at."""
        version = await self._renew(installation, await self._encrypt(installation))
        return None if version is None else dataclasses.replace(installation, version=version)

    @transaction
    def _renew(self, connection: sa.Connection, installation: Installation, ciphertext: str) -> int | None:
        params = _params(installation)
        changed = connection.execute(_change, {**params, "was": installation.version, "to": ciphertext}).rowcount
        row = connection.execute(_find, params).first()
        return int(row.version) if row is not None and (changed or row.body == ciphertext) else None

    async def remove(self, installation: Installation, by: Author | None = None) -> bool:
        """Delete the tokens of this version of an installation."""
        actor = by.principal if by is not None else audit.NOBODY
        return await self._remove(installation, await self._encrypt(installation.without_tokens), actor)

    @transaction
    def _remove(self, connection: sa.Connection, installation: Installation, ciphertext: str, actor: str) -> bool:
        params = _params(installation)
        if connection.execute(_remove, {**params, "was": installation.version, "to": ciphertext}).rowcount:
            _record(connection, "uninstalled app", installation, actor)
            return True
        row = connection.execute(_find, params).first()
        return row is not None and bool(row.body == ciphertext)

    @transaction
    def use_state(self, connection: sa.Connection, state: str, seconds: float) -> bool:
        """Use up a state. After a lost COMMIT response it is used and False is returned."""
        connection.execute(_forget_old_states)
        used = connection.execute(_use_state.on(connection), {"hash": hash_token(state), "seconds": seconds})
        return used.first() is not None

    async def _encrypt(self, installation: Installation) -> str:
        context = _context(installation.platform, installation.workspace)
        return await asyncio.to_thread(self._box.seal, encode_text(installation), context)


def read_encrypted_installations(connection: sa.Connection) -> Sequence[Encrypted]:
    """Return all stored installations, still encrypted."""
    return [
        Encrypted(
            f"{row.platform}:{row.workspace} installation",
            _context(row.platform, row.workspace),
            row.body,
            _columns.body,
            (row.platform, row.workspace),
        )
        for row in connection.execute(_all)
    ]


def _context(platform: str, workspace: str) -> str:
    """Return the encryption context of an installation."""
    return json.dumps(["installation", platform, workspace])


def _params(installation: Installation) -> dict[str, str]:
    return {"p": installation.platform, "w": installation.workspace}


def _record(connection: sa.Connection, kind: str, installation: Installation, actor: str) -> None:
    where = installation.workspace_key
    audit.record(connection, kind, actor, subject=where, workspace=where, name=installation.name)
