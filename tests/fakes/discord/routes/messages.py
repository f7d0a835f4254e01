"""Messages of channels: reading, posting, changing and deleting them with the bot's token."""

from __future__ import annotations

from tests.fakes.discord import events
from tests.fakes.discord.drafts import Draft
from tests.fakes.discord.intents import content_is_hidden
from tests.fakes.discord.mentions import UNSAID
from tests.fakes.discord.messages import EDITABLE, Message, Type
from tests.fakes.discord.permissions import Permission
from tests.fakes.discord.places import HOLDS_MESSAGES, Channel
from tests.fakes.discord.posting import keep
from tests.fakes.discord.refusals import Json, Refused, invalid
from tests.fakes.discord.routes.table import Request, route
from tests.fakes.discord.state import DiscordState

LONGEST_NONCE = 25


@route("GET /channels/{channel}/messages", query=("before", "after", "around", "limit"))
def history(request: Request) -> list[Json]:
    """Messages, newest first."""
    world, channel = request.world, _readable(request)
    limit = int(request.query.get("limit", "50"))
    if not 1 <= limit <= 100:
        raise invalid("limit", "NUMBER_TYPE_MAX", "int value should be less than or equal to 100.")
    if not world.may(channel, Permission.READ_MESSAGE_HISTORY):
        return []
    kept = world.history(channel.id)
    match {name: int(request.query[name]) for name in ("before", "after", "around") if name in request.query}:
        case {"after": after}:
            page = [message for message in kept if int(message.id) > after][:limit]
        case {"around": around}:
            older = sum(int(message.id) < around for message in kept)
            page = kept[max(0, older - limit // 2) :][:limit]
        case {"before": before}:
            page = [message for message in kept if int(message.id) < before][-limit:]
        case _:
            page = kept[-limit:]
    return [_visible_message(world, message) for message in reversed(page)]


@route("GET /channels/{channel}/messages/{message}")
def one(request: Request) -> Json:
    """Return one message."""
    channel = _readable(request)
    request.world.need(channel, Permission.READ_MESSAGE_HISTORY)
    return _visible_message(request.world, request.world.message(channel.id, request.path["message"]))


@route("POST /channels/{channel}/messages", body="object")
def post(request: Request) -> Json:
    """Post a message. The same nonce with `enforce_nonce` gives the message posted before, if that was lately."""
    world, channel, body = request.world, _writable(request), request.body
    nonce = _nonce(body)
    again = world.nonces.get((channel.id, nonce)) if nonce and body.get("enforce_nonce") else None
    if again is not None and world.now() <= again.at + world.limits.nonce_lifetime:
        return _visible_message(world, again)
    if request.uploads:
        world.need(channel, Permission.ATTACH_FILES)
    message = Message(world.ids.new(), channel, world.bot, nonce=nonce or None)
    if body.get("message_reference") is not None:
        message.type = Type.REPLY
        if not world.may(channel, Permission.READ_MESSAGE_HISTORY):
            raise Refused(160002)
    Draft(body, request.uploads).post(world, message, UNSAID)
    if message.reply_to is None:
        message.type = Type.DEFAULT
    _see_that_they_take_it(world, channel)
    if nonce:
        world.nonces[channel.id, nonce] = message
    world.typing.pop(channel.id, None)
    return keep(world, message).to_json()


@route("PATCH /channels/{channel}/messages/{message}", body="object")
def edit(request: Request) -> Json:
    """Change one of the app's own messages."""
    world, channel, message = request.world, *_own(request)
    if channel.archived:
        raise Refused(50083)
    if message.type not in EDITABLE:
        raise Refused(50021)
    if world.now() > message.at + world.limits.old_after:
        wait = world.pace.old_edit(channel.id, world.limits.old_edits, world.limits.old_edit_window)
        if wait:
            raise Refused(30046, retry_after=round(wait, 3))
    request.draft.edit(world, message, UNSAID)
    message.edited_at = world.now()
    events.announce_edit(world, message)
    return message.to_json()


@route("DELETE /channels/{channel}/messages/{message}")
def delete(request: Request) -> None:
    """Delete a message: one's own, or any with the permission."""
    world, channel = request.world, request.world.channel(request.path["channel"])
    world.need(channel)
    message = world.message(channel.id, request.path["message"])
    if channel.archived:
        raise Refused(50083)
    if message.author is not world.bot:
        if channel.guild is None:
            raise Refused(50003)
        world.need(channel, Permission.MANAGE_MESSAGES)
    message.deleted = True
    events.announce_deletion(world, message)


def _visible_message(world: DiscordState, message: Message) -> Json:
    """Return the message as the app may see it; the portal's switch for the intent counts here, too."""
    return message.to_json(bare=content_is_hidden(message, world.app) and not world.app.message_content)


def _nonce(body: Json) -> str:
    nonce = body.get("nonce")
    if nonce is not None and (not isinstance(nonce, str | int) or len(str(nonce)) > LONGEST_NONCE):
        raise invalid("nonce", "NONCE_TYPE_TOO_LONG", f"Must be {LONGEST_NONCE} or fewer in length.")
    return "" if nonce is None else str(nonce)


def _readable(request: Request) -> Channel:
    channel = request.world.channel(request.path["channel"])
    request.world.need(channel)
    if channel.kind not in HOLDS_MESSAGES:
        raise Refused(50008)
    return channel


def _writable(request: Request) -> Channel:
    channel = _readable(request)
    request.world.need(channel, Permission.SEND_MESSAGES_IN_THREADS if channel.is_thread else Permission.SEND_MESSAGES)
    if channel.locked and not request.world.may(channel, Permission.MANAGE_THREADS):
        raise Refused(50083)
    return channel


def _see_that_they_take_it(world: DiscordState, channel: Channel) -> None:
    """Refuse a message to a user who rejects direct messages or shares no guild with the app."""
    for user in channel.recipients if channel.guild is None else []:
        if not user.takes_dms or not any(g.with_bot and user.id in g.members for g in world.guilds.values()):
            raise Refused(50007)


def _own(request: Request) -> tuple[Channel, Message]:
    channel = request.world.channel(request.path["channel"])
    request.world.need(channel)
    message = request.world.message(channel.id, request.path["message"])
    if message.author is not request.world.bot:
        raise Refused(50005)
    return channel, message
