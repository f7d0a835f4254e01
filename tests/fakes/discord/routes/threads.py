"""Opening threads."""

from __future__ import annotations

from tests.fakes.discord.checks import choice, number, only, text
from tests.fakes.discord.messages import Message
from tests.fakes.discord.permissions import Permission
from tests.fakes.discord.places import Channel, Kind
from tests.fakes.discord.posting import open_thread
from tests.fakes.discord.refusals import Json, Refused
from tests.fakes.discord.routes.table import Answered, Request, route

DURATIONS = (60, 1440, 4320, 10080)


@route("POST /channels/{channel}/messages/{message}/threads", body="object")
def on_message(request: Request) -> Answered:
    """Open a thread on a message; it gets the id of the message."""
    world, parent = request.world, _parent(request)
    message = world.message(parent.id, request.path["message"])
    if message.thread is not None:
        raise Refused(160004)
    only("", request.body, "name", "auto_archive_duration", "rate_limit_per_user")
    return Answered(201, _create_thread(request, parent, message))


def _parent(request: Request) -> Channel:
    parent = request.world.channel(request.path["channel"])
    request.world.need(parent)
    if parent.kind not in {Kind.TEXT, Kind.ANNOUNCEMENT}:
        raise Refused(50024)
    request.world.need(parent, Permission.CREATE_PUBLIC_THREADS)
    return parent


def _create_thread(request: Request, parent: Channel, message: Message | None) -> Json:
    name = text("", request.body, "name", 100, least=1, needed=True)
    kept = request.body.get("auto_archive_duration") or 4320
    choice("auto_archive_duration", kept, DURATIONS)
    slow = number("", request.body, "rate_limit_per_user", 0, 21600)
    thread = open_thread(request.world, parent, name, request.world.bot, message, kept=kept)
    thread.slow = slow
    return thread.to_json(request.world.bot)
