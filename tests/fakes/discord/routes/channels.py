"""Channels: reading, changing and leaving them, typing in them."""

from __future__ import annotations

from tests.fakes.discord import events
from tests.fakes.discord.checks import choice, number, only, text
from tests.fakes.discord.permissions import Permission
from tests.fakes.discord.places import HOLDS_MESSAGES
from tests.fakes.discord.refusals import Json, Refused
from tests.fakes.discord.routes.table import Request, route

CHANGES = ("name", "topic", "rate_limit_per_user")
THREAD_CHANGES = ("name", "archived", "locked", "auto_archive_duration", "rate_limit_per_user", "flags")


@route("GET /channels/{channel}")
def channel(request: Request) -> Json:
    """Return one channel or thread."""
    found = request.world.channel(request.path["channel"])
    request.world.need(found)
    return found.to_json(request.world.bot)


@route("PATCH /channels/{channel}", body="object")
def change(request: Request) -> Json:
    """Rename a channel, or archive, lock or rename a thread.

    The owner of a thread may do all of this except locking it. Users who may post in an archived thread may reopen it
    unless it is locked.
    """
    found, body, world = request.world.channel(request.path["channel"]), request.body, request.world
    if found.guild is None:
        raise Refused(50003)
    only("", body, *(THREAD_CHANGES if found.is_thread else CHANGES))
    mine = found.is_thread and found.owner_id == world.bot.id and "locked" not in body
    mine = mine or (found.is_thread and body == {"archived": False} and not found.locked)
    opened = found.is_thread and not found.locked and body == {"archived": False}
    manage = Permission.MANAGE_THREADS if found.is_thread else Permission.MANAGE_CHANNELS
    world.need(found, *([Permission.SEND_MESSAGES_IN_THREADS] if mine or opened else [manage]))
    if found.archived and body.keys() - {"archived", "locked"} and body.get("archived") is not False:
        raise Refused(50083)
    found.name = text("", body, "name", 100, least=1, needed=True) if "name" in body else found.name
    found.slow = number("", body, "rate_limit_per_user", 0, 21600, otherwise=found.slow)
    found.topic = text("", body, "topic", 1024) if "topic" in body else found.topic
    if found.is_thread:
        choice("auto_archive_duration", body.get("auto_archive_duration", 60), (60, 1440, 4320, 10080))
        found.auto_archive = body.get("auto_archive_duration", found.auto_archive)
        found.locked = body.get("locked", found.locked)
        if body.get("archived", found.archived) != found.archived:
            found.archived, found.archived_at = body["archived"], world.now()
        events.thread_changed(world, found)
    else:
        events.channel_told(world, "CHANNEL_UPDATE", found)
    return found.to_json(world.bot)


@route("DELETE /channels/{channel}")
def delete(request: Request) -> Json:
    """Delete a channel or thread."""
    found, world = request.world.channel(request.path["channel"]), request.world
    if found.guild is not None:
        world.need(found, Permission.MANAGE_THREADS if found.is_thread else Permission.MANAGE_CHANNELS)
        found.deleted = True
        events.channel_told(world, "THREAD_DELETE" if found.is_thread else "CHANNEL_DELETE", found)
    return found.to_json()


@route("POST /channels/{channel}/typing")
def typing(request: Request) -> None:
    """Show that the app types, for ten seconds or until it posts."""
    world, found = request.world, request.world.channel(request.path["channel"])
    speak = Permission.SEND_MESSAGES_IN_THREADS if found.is_thread else Permission.SEND_MESSAGES
    world.need(found, speak)
    if found.kind not in HOLDS_MESSAGES:
        raise Refused(50008)
    world.typing[found.id] = world.now()
