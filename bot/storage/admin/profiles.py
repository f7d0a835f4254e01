"""Profiles and the places they are bound to. See `bot.ports.ProfileStore`."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.characters import name_key
from bot.domain.conversations import Author
from bot.domain.policies import Rule, parse_rule, rule_to_table
from bot.domain.profiles import Binding, Profile, name_error
from bot.domain.servers import EVERYWHERE
from bot.errors import Conflict, NotFound
from bot.i18n import gettext_lazy
from bot.storage.admin.servers import changed_meanwhile
from bot.storage.codec import UNREADABLE, converter, decode_row, encode_text, omit_fields
from bot.storage.coordination import lock_config, record_change
from bot.storage.database import Database, Store, change_once, insert_or_update, matching, now, transaction
from bot.storage.tables import agent_bindings, profile_bindings, profiles

log = logging.getLogger(__name__)

_LONGEST_VALUE = 200
"""Largest number of characters of a value in the audit."""


# As admins write it, with its author and time. Registered before the fields of a profile, which have rules.
converter.register_unstructure_hook(Rule, lambda rule: {**rule_to_table(rule), "by": rule.by, "at": rule.at})
converter.register_structure_hook(
    Rule,
    lambda body, _: replace(
        parse_rule({name: value for name, value in body.items() if name not in ("by", "at")}),
        by=body["by"],
        at=body["at"],
    ),
)
omit_fields(Profile, "id", "name", "workspace", "version", "updated_at", "updated_by")

_all = sa.select(profiles).order_by(profiles.c.name_key, profiles.c.workspace)
_is_this = matching(profiles, id="i")
_by_id = sa.select(profiles).where(_is_this)
_add = profiles.insert().values(version=1, updated_at=now())
_change = profiles.update().where(_is_this).values(version=profiles.c.version + 1)
_delete = profiles.delete().where(_is_this)
_other_names = sa.select(profiles.c.name).where(
    profiles.c.id != bindparam("i"),
    sa.or_(profiles.c.workspace.in_([bindparam("w"), EVERYWHERE]), bindparam("w", type_=sa.Text) == EVERYWHERE),
)
_bindings = sa.select(profile_bindings).order_by(profile_bindings.c.scope)
_is_bound_here = matching(profile_bindings, scope="p")
_bound = sa.select(profile_bindings.c.profile_id).where(_is_bound_here)
_bind = insert_or_update(profile_bindings, "profile_id", "set_by", set_at=now())
_agent_bindings = sa.select(agent_bindings).order_by(agent_bindings.c.scope, agent_bindings.c.set_at)
_this_agent = matching(agent_bindings, scope="p", profile_id="i")
_answers_to_name = sa.select(agent_bindings.c.scope).where(_this_agent)
_is_agent = sa.select(agent_bindings.c.scope).where(matching(agent_bindings, profile_id="i"))
_bind_by_name = agent_bindings.insert().values(set_at=now())
_unbind_by_name = agent_bindings.delete().where(_this_agent)
_unbind = profile_bindings.delete().where(_is_bound_here)


class SqlProfileStore(Store):
    """Profiles and their bindings to places."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._logged: set[str] = set()

    @transaction
    def profiles(self, connection: sa.Connection) -> Sequence[Profile]:
        """Return all profiles by name. An unreadable profile enables no tools."""
        return [self._read(row) for row in connection.execute(_all)]

    @transaction
    def save(self, connection: sa.Connection, profile: Profile, by: Author) -> Profile:
        """Add a profile or replace one of the same version. Raises Conflict, NotFound."""
        lock_config(connection)
        row = connection.execute(_by_id, {"i": profile.id}).first()
        columns = {
            "workspace": profile.workspace,
            "name": profile.name,
            "name_key": name_key(profile.name),
            "body": encode_text(replace(profile, tools=dict(sorted(profile.tools.items())))),
            "updated_by": by.principal,
        }
        is_equal = row is not None and all(getattr(row, name) == value for name, value in columns.items())
        if row is not None and row.version == profile.version + 1 and is_equal:
            # The same transaction, repeated after a lost COMMIT response.
            return _read(row)
        if row is None and profile.version:
            raise _missing()
        if row is not None and row.version != profile.version:
            raise changed_meanwhile("The profile", row)
        _check_name(connection, profile)
        facts: Mapping[str, Any]
        if row is None:
            connection.execute(_add, {"id": profile.id, **columns})
            kind, facts = "added profile", {"workspace": profile.workspace}
        else:
            connection.execute(_change.values(**columns, updated_at=now()), {"i": profile.id})
            kind, facts = "changed profile", {"changes": _differences(row, columns)}
        record_change(connection, kind, by.principal, subject=profile.id, profile=profile.name, **facts)
        return _read(connection.execute(_by_id, {"i": profile.id}).one())

    @change_once
    def delete(self, connection: sa.Connection, profile_id: str, by: Author) -> bool:
        """Delete a profile and its bindings. Return False if it does not exist."""
        lock_config(connection)
        row = connection.execute(_by_id, {"i": profile_id}).first()
        if row is None:
            return False
        connection.execute(_delete, {"i": profile_id})
        facts = {"profile": row.name, "workspace": row.workspace}
        record_change(connection, "deleted profile", by.principal, subject=profile_id, **facts)
        return True

    @transaction
    def bindings(self, connection: sa.Connection) -> Sequence[Binding]:
        """Return the bindings of profiles to places."""
        return [
            *(Binding(row.scope, row.profile_id) for row in connection.execute(_bindings)),
            *(Binding(row.scope, row.profile_id, by_name=True) for row in connection.execute(_agent_bindings)),
        ]

    @transaction
    def bind(self, connection: sa.Connection, place: str, profile_id: str, by: Author) -> None:
        """Bind a profile to a place. Raises NotFound."""
        lock_config(connection)
        row = connection.execute(_by_id, {"i": profile_id}).first()
        if row is None:
            raise _missing()
        if connection.execute(_bound, {"p": place}).scalar() == profile_id:
            return
        binding = {"scope": place, "profile_id": profile_id, "set_by": by.principal}
        connection.execute(_bind.on(connection), binding)
        record_change(connection, "bound profile", by.principal, subject=profile_id, profile=row.name, place=place)

    @change_once
    def unbind(self, connection: sa.Connection, place: str, by: Author) -> bool:
        """Remove a place's binding. Return False if there was none."""
        lock_config(connection)
        profile_id = connection.execute(_bound, {"p": place}).scalar()
        if profile_id is None:
            return False
        connection.execute(_unbind, {"p": place})
        name = connection.execute(_by_id, {"i": profile_id}).one().name
        record_change(connection, "unbound profile", by.principal, subject=profile_id, profile=name, place=place)
        return True

    @change_once
    def bind_by_name(self, connection: sa.Connection, place: str, profile_id: str, by: Author) -> bool:
        """Let a profile answer to its name in a place. Return False if it does already. Raises Conflict, NotFound."""
        lock_config(connection)
        row = connection.execute(_by_id, {"i": profile_id}).first()
        if row is None:
            raise _missing()
        if connection.execute(_answers_to_name, {"p": place, "i": profile_id}).first() is not None:
            return False
        _check_name(connection, self._read(row), is_agent=True)
        connection.execute(_bind_by_name, {"scope": place, "profile_id": profile_id, "set_by": by.principal})
        record_change(connection, "bound agent", by.principal, subject=profile_id, profile=row.name, place=place)
        return True

    @change_once
    def unbind_by_name(self, connection: sa.Connection, place: str, profile_id: str, by: Author) -> bool:
        """Let a profile not answer to its name in a place. Return False if it does not."""
        lock_config(connection)
        if connection.execute(_unbind_by_name, {"p": place, "i": profile_id}).rowcount == 0:
            return False
        name = connection.execute(_by_id, {"i": profile_id}).one().name
        record_change(connection, "unbound agent", by.principal, subject=profile_id, profile=name, place=place)
        return True

    def _read(self, row: Any) -> Profile:
        try:
            return _read(row)
        except UNREADABLE:
            if row.id not in self._logged:
                self._logged.add(row.id)
                log.warning("profile %s: unreadable, enables no tools", row.id)
            # Skipping the profile would enable all tools in its places.
            return Profile(row.id, row.name, row.workspace, servers=frozenset(), version=row.version)


def _check_name(connection: sa.Connection, profile: Profile, *, is_agent: bool = False) -> None:
    """Raise Conflict if the profile may not have its name, or not as an agent."""
    names = connection.execute(_other_names, {"i": profile.id, "w": profile.workspace}).scalars()
    is_agent = is_agent or connection.execute(_is_agent, {"i": profile.id}).first() is not None
    if reason := name_error(profile.name, names, is_agent=is_agent):
        raise Conflict(reason, gettext_lazy("choose another name"), field="name")


def _missing() -> NotFound:
    return NotFound("That profile does not exist.", "list the profiles")


def _read(row: Any) -> Profile:
    body = json.loads(row.body)
    # A body without a restriction is unreadable: the defaults would enable all tools.
    profile = decode_row(Profile, row, {**body, "servers": body["servers"], "tools": body["tools"]})
    # The id of a rule is its position in the profile.
    rules = (replace(rule, id=f"{row.name}:{number}") for number, rule in enumerate(profile.policies, 1))
    return replace(profile, policies=tuple(rules))


def _differences(row: Any, columns: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the changed fields for the audit, as `old → new` by name."""
    try:
        before = json.loads(row.body)
    except ValueError:
        before = {}
    after = json.loads(columns["body"])
    was = {"name": row.name, "workspace": row.workspace, **before}
    now_is = {"name": columns["name"], "workspace": columns["workspace"], **after}
    return {
        name: f"{_shorten(was.get(name))} → {_shorten(value)}"
        for name, value in now_is.items()
        if name != "v" and was.get(name) != value
    }


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
