"""Parsing of Discord's data by discord.py, which raises errors for values that it does not expect. One such value must
neither end a connection nor make a message unreadable.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import discord

log = logging.getLogger(__name__)
_OPTIONAL = re.findall(
    r"\w+",
    "poll embeds components message_snapshots sticker_items reactions call application interaction thread mentions "
    "interaction_metadata referenced_message message_reference attachments member threads emojis stickers members",
)
"""Parts of messages and guilds that are left out if they cannot be parsed."""
_NEEDED: Mapping[str, Any] = {"content": "", "mentions": [], "mention_roles": [], "components": []}
"""Parts of a message that discord.py needs to be there."""
T = TypeVar("T")


def contain_errors(client: discord.Client) -> None:
    """Make a client drop the events that it cannot parse, except for READY: without it there is no session."""
    state: Any = client._connection  # noqa: SLF001 - an object of this client; the library's classes stay as they are
    state.parsers = {event: _contained(event, parse) for event, parse in state.parsers.items()}
    create = state.create_message
    state.create_message = lambda *, channel, data: parse_tolerantly(
        lambda parts: create(channel=channel, data=parts), data
    )


def _contained(event: str, parse: Callable[[Any], None]) -> Callable[[Any], None]:
    def parse_contained(data: Any) -> None:
        try:
            parse_tolerantly(parse, data)
        except Exception as error:  # noqa: BLE001 - of any kind
            log.error("event %s from Discord not parsed, dropped: %r", event, error)

    return parse if event == "READY" else parse_contained


def parse_tolerantly(parse: Callable[[Any], T], data: Any) -> T:
    """Return what `parse` returns for the data; if it raises an error, for the data without null values, or without an
    optional part. Raises the first error if all fail.
    """
    try:
        return parse(data)
    except Exception as error:
        for omitted in ([], *([name] for name in _OPTIONAL if name in data), _OPTIONAL):
            parts = {name: value for name, value in _repair(data).items() if name not in omitted}
            kept = {name: value for name, value in parts.items() if value is not None or name == "author"}
            with suppress(Exception):
                parsed = parse({**_NEEDED, **kept} if "author" in data else kept)
                log.warning("unexpected data from Discord read without %s: %r", omitted or "null values", error)
                return parsed
        raise


def _repair(data: Any) -> Any:
    """Return data with values in place of nulls that discord.py needs: texts and the end of a poll."""
    if isinstance(data, list):
        return [_repair(item) for item in data]
    if not isinstance(data, dict):
        return data
    repaired = {name: _repair(value) for name, value in data.items()}
    for name in ("question", "poll_media"):
        if isinstance(media := repaired.get(name), dict):
            media["text"] = media.get("text") or ""
    if isinstance(poll := repaired.get("poll"), dict):
        poll["expiry"] = poll.get("expiry") or repaired.get("timestamp")
    return repaired
