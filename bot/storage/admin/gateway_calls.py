"""Calls that other agents ask for. See `bot.ports.GatewayCallStore`."""

from __future__ import annotations

import dataclasses

import sqlalchemy as sa

from bot.domain.gateway import KEYED, GatewayRecord
from bot.storage.database import Store, change_once, insert_new, matching, now, transaction
from bot.storage.tables import gateway_calls

_calls = gateway_calls.c
_FIELDS = [field.name for field in dataclasses.fields(GatewayRecord)]
_add = insert_new(gateway_calls, created_at=now())
_select = sa.select(*(_calls[name] for name in _FIELDS))
_find = _select.where(matching(gateway_calls, id="of_id"))
_attached = _select.where(matching(gateway_calls, attach_key="key"))
_with_effect = _select.where(matching(gateway_calls, effect="key"))
_save_turn = gateway_calls.update().where(matching(gateway_calls, id="of_id")).values(turn_id=sa.bindparam("turn"))
_is_keyed = _calls.attach_key.startswith(KEYED, autoescape=True)
_release = (
    gateway_calls.update()
    .where(matching(gateway_calls, id="of_id"), sa.or_(_calls.effect.is_not(None), sa.not_(_is_keyed)))
    .values(effect=None, attach_key=sa.case((_is_keyed, _calls.attach_key)))
)


class SqlGatewayCallStore(Store):
    """Calls by their ids, and by the keys that recognize a repetition."""

    @transaction(rank="arrival")
    def add(self, connection: sa.Connection, call: GatewayRecord) -> GatewayRecord:
        """Add a call unless there is one with its keys, and return the stored one. Repeating it has no effect."""
        connection.execute(_add.on(connection), dataclasses.asdict(call))
        row = connection.execute(_attached, {"key": call.attach_key}).first()
        if row is None:
            row = connection.execute(_with_effect, {"key": call.effect}).one()
        return GatewayRecord(**row._asdict())

    @transaction(rank="arrival")
    def find(self, connection: sa.Connection, call_id: str) -> GatewayRecord | None:
        """Return a call, None if there is none."""
        row = connection.execute(_find, {"of_id": call_id}).first()
        return None if row is None else GatewayRecord(**row._asdict())

    @transaction(rank="arrival")
    def save_turn(self, connection: sa.Connection, call_id: str, turn_id: str) -> None:
        """Store the turn of a call."""
        connection.execute(_save_turn, {"of_id": call_id, "turn": turn_id})

    @change_once
    def release(self, connection: sa.Connection, call_id: str) -> bool:
        """Release the keys of a call, apart from an idempotency key. Return False if they were released."""
        return bool(connection.execute(_release, {"of_id": call_id}).rowcount)
