"""Transactions on one-time links. Of what is in a link only a hash is kept: whoever reads the table can use none."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import Author, ConversationKey
from bot.domain.links import SecretLink
from bot.storage.clock import now
from bot.storage.tables import one_time_links
from bot.storage.turn_reader import UNREADABLE

_links = one_time_links.c
_delete_old = one_time_links.delete().where(_links.expires_at <= now())
_delete_same = one_time_links.delete().where(
    _links.server_id == bindparam("i"), _links.slot == bindparam("s"), _links.person == bindparam("who")
)
_add = (
    one_time_links.insert()
    .values(created_at=now(), expires_at=now() + bindparam("seconds"))
    .returning(_links.expires_at)
)
# One and the same question for a link that never was, one that was used and one whose time is over: whoever guesses
# learns nothing from the answer, nor from how long it takes.
_good = (_links.hash == bindparam("h"), _links.used_at.is_(None), _links.expires_at > now())
_find = sa.select(one_time_links).where(*_good)
_take = one_time_links.update().where(*_good).values(used_at=now()).returning(*one_time_links.c)


def hash_of(token: str) -> str:
    """What is kept of a link. A plain hash is enough: nobody finds 256 random bits by trying."""
    return hashlib.sha256(token.encode()).hexdigest()


def add(connection: sa.Connection, token: str, link: SecretLink, seconds: float) -> SecretLink:
    """Keep a new link, good for so long from now on, instead of those that the person has for the same; forget all
    whose time is over.
    """
    by = link.person
    connection.execute(_delete_old)
    connection.execute(_delete_same, {"i": link.server_id, "s": link.slot, "who": by.principal})
    row = {
        "hash": hash_of(token),
        "server_id": link.server_id,
        "slot": link.slot,
        "person": by.principal,
        "person_name": by.name,
        "conversation": str(link.conversation),
        "seconds": seconds,
    }
    return replace(link, expires_at=connection.execute(_add, row).scalar_one())


def find(connection: sa.Connection, token: str) -> SecretLink | None:
    """The link that is good now."""
    return _read(connection.execute(_find, {"h": hash_of(token)}).first())


def take(connection: sa.Connection, token: str) -> SecretLink | None:
    """The same, which is good no more from now on: of two who come at once one has it."""
    return _read(connection.execute(_take, {"h": hash_of(token)}).first())


def _read(row: Any) -> SecretLink | None:
    if row is None:
        return None
    try:
        platform, _, person = row.person.partition(":")
        author = Author(platform, person, row.person_name)
        return SecretLink(row.server_id, row.slot, author, ConversationKey.parse(row.conversation), row.expires_at)
    except UNREADABLE:
        return None
