"""Languages and time zones of users. See `bot.ports.LocaleStore`."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.locales import Locale, UserLocale
from bot.storage.database import Database, report, transaction
from bot.storage.dialect import Upsert, now
from bot.storage.tables import user_locales

_of_user = sa.select(user_locales).where(user_locales.c.principal == bindparam("who"))
_choose = Upsert(
    lambda insert: (
        insert(user_locales)
        .values(principal=bindparam("who"), language=bindparam("tag"), time_zone=bindparam("zone"), updated_at=now())
        .on_conflict_do_update(
            index_elements=["principal"],
            set_={"language": bindparam("tag"), "time_zone": bindparam("zone"), "updated_at": now()},
        )
    )
)
_remember = Upsert(
    lambda insert: (
        insert(user_locales)
        .values(principal=bindparam("who"), told_language=bindparam("tag"), updated_at=now())
        .on_conflict_do_update(
            index_elements=["principal"], set_={"told_language": bindparam("tag"), "updated_at": now()}
        )
    )
)
_has_no_choice = sa.and_(user_locales.c.language == "", user_locales.c.time_zone == "")
_delete_empty = user_locales.delete().where(
    user_locales.c.principal == bindparam("who"), _has_no_choice, user_locales.c.told_language == ""
)
_old = (
    sa.select(user_locales.c.principal)
    .where(_has_no_choice, user_locales.c.updated_at < now() - bindparam("seconds", type_=sa.Double()))
    .limit(bindparam("limit"))
)
_delete_old = user_locales.delete().where(user_locales.c.principal.in_(_old))


class SqlLocaleStore:
    """Languages and time zones by user."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @report
    def find(self, connection: sa.Connection, principal: str) -> UserLocale:
        """Return the stored values of a user."""
        row = connection.execute(_of_user, {"who": principal}).first()
        if row is None:
            return UserLocale()
        return UserLocale(Locale(row.language, row.time_zone), row.told_language)

    @transaction
    def choose(self, connection: sa.Connection, principal: str, locale: Locale) -> None:
        """Store a user's choice; empty values choose nothing."""
        chosen = {"who": principal, "tag": locale.language, "zone": locale.time_zone}
        connection.execute(_choose.on(connection), chosen)
        connection.execute(_delete_empty, {"who": principal})

    @transaction
    def remember(self, connection: sa.Connection, principal: str, language: str) -> None:
        """Store the language that a user's client has told."""
        connection.execute(_remember.on(connection), {"who": principal, "tag": language})

    @transaction
    def delete_old(self, connection: sa.Connection, seconds: float, limit: int) -> int:
        """Delete values that clients reported more than `seconds` ago for users without a choice. Return the number."""
        return connection.execute(_delete_old, {"seconds": seconds, "limit": limit}).rowcount
