"""Transactions on sign-ins by OAuth. Bodies come in encrypted and go out so; of a link's state only a hash is kept.

Changes of sign-ins take their turn by the revision's lock, as those of servers do: every process follows them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import Author
from bot.domain.sign_ins import SignInKey
from bot.storage import audit
from bot.storage.clock import now
from bot.storage.config_version import bump, lock, read_version
from bot.storage.tables import mcp_servers, sign_ins, sign_ins_under_way

_kept = sign_ins.c
_begun = sign_ins_under_way.c
_mine = (_kept.server_id == bindparam("i"), _kept.person == bindparam("whose"))
_find = sa.select(sign_ins).where(*_mine)
_versions = sa.select(_kept.server_id, _kept.person, _kept.version)
_everything = (
    sa.select(sign_ins, mcp_servers.c.slug)
    .select_from(sign_ins.outerjoin(mcp_servers, mcp_servers.c.id == _kept.server_id))
    .order_by(_kept.server_id, _kept.person)
)
_add = sign_ins.insert().values(updated_at=now())
_change = sign_ins.update().where(*_mine).values(updated_at=now())
_reseal = sign_ins.update().where(*_mine, _kept.body == bindparam("was")).values(body=bindparam("to"))
_delete = sign_ins.delete().where(*_mine)
_delete_of_server = sign_ins.delete().where(_kept.server_id == bindparam("i"))
_slug = sa.select(mcp_servers.c.slug).where(mcp_servers.c.id == bindparam("i"))

_begin = sign_ins_under_way.insert().values(created_at=now(), expires_at=now() + bindparam("seconds"))
_delete_old = sign_ins_under_way.delete().where(_begun.expires_at <= now())
_delete_same = sign_ins_under_way.delete().where(
    _begun.server_id == bindparam("i"), _begun.person == bindparam("whose")
)
_delete_begun = sign_ins_under_way.delete().where(_begun.server_id == bindparam("i"))
# One and the same question for a state that never was, one that was used and one whose time is over.
_take = (
    sign_ins_under_way.delete()
    .where(_begun.hash == bindparam("h"), _begun.expires_at > now())
    .returning(*sign_ins_under_way.c)
)


@dataclass(frozen=True, slots=True)
class EncryptedSignIn:
    """A sign-in that is kept, still encrypted. `slug` is what people call its server."""

    key: SignInKey
    body: str
    version: int
    slug: str = ""

    @property
    def place(self) -> str:
        """What its body is bound to."""
        return sign_in_context(self.key)


def sign_in_context(key: SignInKey) -> str:
    """What the body of a sign-in is bound to."""
    return json.dumps(["sign-in", key.server_id, key.person])


def hash_of(state: str) -> str:
    """What is kept of a link's state. A plain hash is enough: nobody finds 256 random bits by trying."""
    return hashlib.sha256(state.encode()).hexdigest()


def find(connection: sa.Connection, key: SignInKey) -> EncryptedSignIn | None:
    """What is kept."""
    row = connection.execute(_find, _of(key)).first()
    return None if row is None else EncryptedSignIn(key, row.body, row.version)


def versions(connection: sa.Connection) -> Mapping[SignInKey, int]:
    """Which version everything is."""
    return {SignInKey(row.server_id, row.person): row.version for row in connection.execute(_versions)}


def replace(connection: sa.Connection, sealed: EncryptedSignIn) -> int | None:
    """Keep a body in place of the one of this version (0: none), under the next; None if another one is there."""
    lock(connection)
    there = connection.execute(_find, _of(sealed.key)).first()
    if there is not None and there.body == sealed.body:
        # The same transaction before, whose COMMIT's answer was lost: no two bodies are alike.
        return int(there.version)
    if (there.version if there else 0) != sealed.version:
        return None
    return _write(connection, sealed, audit.NOBODY)


def signed_in(connection: sa.Connection, sealed: EncryptedSignIn, by: Author) -> int:
    """Keep a body in place of whatever is there."""
    lock(connection)
    there = connection.execute(_find, _of(sealed.key)).first()
    if there is not None and there.body == sealed.body:
        return int(there.version)
    version = there.version if there else 0
    _record(connection, "signed in", by.principal, sealed.key)
    return _write(connection, EncryptedSignIn(sealed.key, sealed.body, version), by.principal)


def ended(connection: sa.Connection, sealed: EncryptedSignIn) -> int | None:
    """Keep a body without tokens in place of the one of this version."""
    version = replace(connection, sealed)
    if version is not None:
        _record(connection, "sign-in ended", audit.NOBODY, sealed.key)
    return version


def forget(connection: sa.Connection, key: SignInKey, by: Author) -> bool:
    """Keep nothing of it."""
    lock(connection)
    if not connection.execute(_delete, _of(key)).rowcount:
        return False
    _record(connection, "signed out", by.principal, key)
    bump(connection)
    return True


def end_of_server(connection: sa.Connection, server_id: str) -> None:
    """A server is gone: so is everything that was kept or begun for it. The caller bumps."""
    connection.execute(_delete_of_server, {"i": server_id})
    connection.execute(_delete_begun, {"i": server_id})


@dataclass(frozen=True, slots=True)
class SealedLink:
    """What is needed when somebody, a principal, comes back, encrypted and bound to its place."""

    server_id: str
    person: str
    body: str = ""

    @property
    def place(self) -> str:
        """What its body is bound to."""
        return json.dumps(["sign-in under way", self.server_id, self.person])


def begin(connection: sa.Connection, state: str, link: SealedLink, seconds: float) -> None:
    """Keep what somebody's link is for, so long from now on, instead of what they had begun for the same server; forget
    all whose time is over.
    """
    connection.execute(_delete_old)
    connection.execute(_delete_same, {"i": link.server_id, "whose": link.person})
    row = {"server_id": link.server_id, "person": link.person, "body": link.body}
    connection.execute(_begin, {"hash": hash_of(state), **row, "seconds": seconds})


def take(connection: sa.Connection, state: str) -> Any:
    """The row that was begun, which is gone from now on: of two who come at once one has it."""
    return connection.execute(_take, {"h": hash_of(state)}).first()


def read_all_sealed(connection: sa.Connection) -> Sequence[EncryptedSignIn]:
    """Everything that is kept."""
    return [
        EncryptedSignIn(SignInKey(row.server_id, row.person), row.body, row.version, row.slug or row.server_id)
        for row in connection.execute(_everything)
    ]


def replace_sealed(connection: sa.Connection, pairs: Iterable[tuple[EncryptedSignIn, str]]) -> int:
    """Put other ciphertexts of the same in their places, where nobody has changed them meanwhile; how many."""
    return sum(connection.execute(_reseal, {**_of(old.key), "was": old.body, "to": new}).rowcount for old, new in pairs)


def _write(connection: sa.Connection, sealed: EncryptedSignIn, by: str) -> int:
    """In place of the version that is there, which the caller has looked at. The number of the revision is a version
    that no other one has, nor one that was forgotten.
    """
    bump(connection)
    version = read_version(connection)
    values = {"body": sealed.body, "version": version, "updated_by": by}
    if sealed.version:
        connection.execute(_change.values(**values), _of(sealed.key))
    else:
        connection.execute(_add, {"server_id": sealed.key.server_id, "person": sealed.key.person, **values})
    return version


def _record(connection: sa.Connection, kind: str, actor: str, key: SignInKey) -> None:
    slug = connection.execute(_slug, {"i": key.server_id}).scalar() or key.server_id
    whose = {"person": key.person} if key.person else {}
    audit.record(connection, kind, actor, subject=key.server_id, server=slug, **whose)


def _of(key: SignInKey) -> dict[str, str]:
    return {"i": key.server_id, "whose": key.person}
