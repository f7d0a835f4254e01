"""Rows about users: their languages and time zones, their feedback, and the data of one person, for its export, and for
the deletion of identifying data and of messages.

A person is found by their principal (`slack:U123`). What other people wrote about them, or quoted, is not found. The
audit is not changed: it holds ids and no texts.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import Author
from bot.domain.locales import Locale, UserLocale
from bot.errors import NotFound
from bot.storage import audit
from bot.storage.database import StorableText, Store, insert_or_update, now, report, transaction
from bot.storage.tables import (
    approval_views,
    approvals,
    browser_sessions,
    decisions,
    elicitations,
    feedback,
    files,
    grants,
    is_live,
    one_time_links,
    pending_sign_ins,
    sign_ins,
    steps,
    this_approval,
    this_turn,
    turns,
    usage,
    user_locales,
)
from bot.storage.tables import audit as audit_rows
from bot.storage.turn_log.retention import delete_content

BATCH = 100
FORGOTTEN = "(deleted)"
"""In place of a principal in the usage of models, which is still counted for its channel and model."""

Row = dict[str, Any]

# -------------------- languages and time zones

_of_user = sa.select(user_locales).where(user_locales.c.principal == bindparam("who"))
_choose = insert_or_update(user_locales, "language", "time_zone", updated_at=now())
_remember = insert_or_update(user_locales, "told_language", updated_at=now())
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


class SqlLocaleStore(Store):
    """Languages and time zones by user. See `bot.ports.LocaleStore`."""

    @transaction(rank="arrival")
    def find(self, connection: sa.Connection, principal: str) -> UserLocale:
        """Return the stored values of a user."""
        row = connection.execute(_of_user, {"who": principal}).first()
        if row is None:
            return UserLocale()
        return UserLocale(Locale(row.language, row.time_zone), row.told_language)

    @transaction
    def choose(self, connection: sa.Connection, principal: str, locale: Locale) -> None:
        """Store a user's choice; empty values choose nothing."""
        chosen = {"principal": principal, "language": locale.language, "time_zone": locale.time_zone}
        connection.execute(_choose.on(connection), chosen)
        connection.execute(_delete_empty, {"who": principal})

    @transaction
    def remember(self, connection: sa.Connection, principal: str, language: str) -> None:
        """Store the language that a user's client has told."""
        connection.execute(_remember.on(connection), {"principal": principal, "told_language": language})

    @transaction
    def delete_old(self, connection: sa.Connection, seconds: float, limit: int) -> int:
        """Delete values that clients reported more than `seconds` ago for users without a choice. Return the number."""
        return connection.execute(_delete_old, {"seconds": seconds, "limit": limit}).rowcount


# -------------------- feedback

# Locked, so that the turn is not deleted in between.
_turn = sa.select(turns.c.id).where(this_turn).with_for_update(read=True, key_share=True)
_save = insert_or_update(feedback, "good", at=now())


class SqlFeedbackStore(Store):
    """Feedback by turn and user. It is deleted with its turn and leaves no audit entry."""

    @transaction
    def save(self, connection: sa.Connection, turn_id: str, good: bool, by: Author) -> None:
        """Save a user's current feedback."""
        if connection.execute(_turn, {"t": turn_id}).first() is None:
            raise NotFound("That answer was deleted.")
        connection.execute(_save.on(connection), {"turn_id": turn_id, "principal": by.principal, "good": good})


# -------------------- one person

_person = bindparam("person", type_=StorableText)
_author = bindparam("author", type_=StorableText)
# By the id first, which has an index.
_is_author = sa.and_(turns.c.author_id == _author, turns.c.principal == _person)
_ids = sa.select(turns.c.id).where(_is_author)
_links = one_time_links.c
EXPORTED: Mapping[str, sa.Select[Any]] = {
    "turns": sa.select(turns).where(_is_author).order_by(turns.c.created_at, turns.c.seq),
    "steps": sa.select(steps).where(steps.c.turn_id.in_(_ids)).order_by(steps.c.created_at, steps.c.turn_id, steps.c.n),
    "files": sa.select(files).where(files.c.turn_id.in_(_ids)),
    "approvals": sa.select(approvals).where(approvals.c.turn_id.in_(_ids)),
    "elicitations": sa.select(elicitations).where(elicitations.c.turn_id.in_(_ids)),
    "decisions": sa.select(decisions).where(decisions.c.principal == _person),
    "viewed_calls": sa.select(approval_views).where(approval_views.c.principal == _person),
    "preferences": sa.select(user_locales).where(user_locales.c.principal == _person),
    "feedback": sa.select(feedback).where(feedback.c.principal == _person),
    "grants": sa.select(grants).where(sa.or_(grants.c.principal == _person, grants.c.granted_by == _person)),
    # Without the encrypted bodies.
    "sign_ins": sa.select(sign_ins.c.server_id, sign_ins.c.updated_at).where(sign_ins.c.principal == _person),
    "links": sa.select(*_links["server_id", "slot", "created_at", "used_at"]).where(_links.principal == _person),
    "sessions": sa.select(*browser_sessions.c["id", "created_at", "used_at", "expires_at"]).where(
        browser_sessions.c.principal == _person
    ),
    "usage": sa.select(usage).where(usage.c.principal == _person).order_by(usage.c.at),
    "audit": sa.select(audit_rows).where(audit_rows.c.actor == _person).order_by(audit_rows.c.seq),
}
"""Rows about a person, by subject."""
_unfinished = sa.select(sa.func.count()).select_from(turns).where(is_live(turns), _is_author)
_with_content = (
    sa.select(turns.c.id, turns.c.conversation)
    .where(_is_author, turns.c.content_deleted_at.is_(None), turns.c.ended_at.is_not(None))
    .order_by(turns.c.ended_at)
    .limit(bindparam("limit"))
)
_decided_calls = (
    sa.select(approvals.c.id, approvals.c.decided_by, approvals.c.approver_names, decisions.c.name)
    .join(decisions, decisions.c.approval_id == approvals.c.id)
    .where(decisions.c.principal == _person)
)
_rename_approver = (
    approvals.update()
    .where(this_approval)
    .values(decided_by=bindparam("by"), approver_names=bindparam("names", type_=approvals.c.approver_names.type))
)
_names = (
    turns.update().where(_is_author, ~is_live(turns)).values(author_name="", stop_by=None),
    approvals.update().where(approvals.c.turn_id.in_(_ids)).values(requested_for_name=""),
    decisions.update().where(decisions.c.principal == _person).values(name="", reason=""),
    grants.update().where(grants.c.granted_by == _person).values(granted_by_name=""),
)
_deletions = [
    table.delete().where(table.c.principal == _person)
    for table in (user_locales, feedback, grants, sign_ins, pending_sign_ins, one_time_links, browser_sessions)
]
_anonymize_usage = usage.update().where(usage.c.principal == _person).values(principal=FORGOTTEN)


class SqlPersonData(Store):
    """The data of one person in a database."""

    @report
    def export(self, connection: sa.Connection, principal: str) -> Mapping[str, Sequence[Row]]:
        """Return every row about a person, by subject. Bytes are in base64, secrets and tokens left out."""
        values = _parameters(principal)
        return {
            subject: [_as_json(row) for row in connection.execute(query, values).mappings()]
            for subject, query in EXPORTED.items()
        }

    async def forget(self, principal: str, by: str) -> tuple[int, int]:
        """Delete a person's messages, the answers and results for them, their names, feedback and sign-ins, and
        the grants for their calls. Usage is counted on without them. Return the number of these turns, and of those
        that run or wait and stay as they are. Safe to repeat; `by` is the principal that asks for it.
        """
        count = 0
        while deleted := await self._forget_content(principal):
            count += deleted
        return count, await self._forget_rest(principal, by, count)

    @transaction
    def _forget_content(self, connection: sa.Connection, principal: str) -> int:
        rows = connection.execute(_with_content, {**_parameters(principal), "limit": BATCH})
        return len(delete_content(connection, {row.id: row.conversation for row in rows}))

    @transaction
    def _forget_rest(self, connection: sa.Connection, principal: str, by: str, count: int) -> int:
        values = _parameters(principal)
        for row in connection.execute(_decided_calls, values).all():
            if row.name:
                names = [principal if name == row.name else name for name in row.approver_names or ()]
                decided_by = " and ".join(
                    principal if name == row.name else name for name in row.decided_by.split(" and ")
                )
                connection.execute(_rename_approver, {"a": row.id, "by": decided_by, "names": names})
        for statement in (*_names, *_deletions, _anonymize_usage):
            connection.execute(statement, values)
        audit.record(connection, "forgot person", by, person=principal, count=count)
        return connection.execute(_unfinished, values).scalar_one()


def _parameters(principal: str) -> dict[str, str]:
    return {"person": principal, "author": principal.partition(":")[2]}


def _as_json(row: Mapping[Any, Any]) -> Row:
    return {
        str(name): base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in row.items()
    }
