"""Putting messages where they belong: into the world, with the events that follow."""

from __future__ import annotations

from tests.fakes.discord import events
from tests.fakes.discord.messages import Flag, Message, Type
from tests.fakes.discord.people import User
from tests.fakes.discord.places import Channel, Kind
from tests.fakes.discord.state import DiscordState


def keep(world: DiscordState, message: Message) -> Message:
    """Store a new message and send its events. An archived thread is reopened, and its author joins the thread."""
    channel = message.channel
    world.messages.setdefault(channel.id, {})[message.id] = message
    if not message.ephemeral_to:
        channel.last_message_id = message.id
        if channel.is_thread:
            _in_thread(world, channel, message)
    events.announce_message(world, message)
    return message


def open_thread(
    world: DiscordState, parent: Channel, name: str, owner: User, on: Message | None, *, kept: int = 4320
) -> Channel:
    """Open a thread, on a message or beside all. `kept`: minutes without a message until it is archived."""
    kind = Kind.ANNOUNCEMENT_THREAD if parent.kind is Kind.ANNOUNCEMENT else Kind.PUBLIC_THREAD
    thread = Channel(on.id if on else world.ids.new(), name, kind, parent.guild, parent, owner_id=owner.id)
    thread.auto_archive, thread.members = kept, [owner.id]
    world.channels[thread.id] = thread
    events.thread_created(world, thread)
    if on is not None:
        on.thread, on.flags = thread, on.flags | Flag.HAS_THREAD
        events.announce_edit(world, on)
        starter = Message(world.ids.new(), thread, owner, type=Type.THREAD_STARTER_MESSAGE, reply_to=on)
        world.messages.setdefault(thread.id, {})[starter.id] = starter
    else:
        keep(world, Message(world.ids.new(), parent, owner, content=name, type=Type.THREAD_CREATED))
    return thread


def open_post(world: DiscordState, forum: Channel, title: str, message: Message) -> Message:
    """Post in a forum: create a thread that begins with this message and has its id. The forum gets no message."""
    author = message.author
    thread = Channel(message.id, title, Kind.PUBLIC_THREAD, forum.guild, forum, owner_id=author.id, members=[author.id])
    world.channels[thread.id] = message.channel = thread
    forum.last_message_id = thread.id
    events.thread_created(world, thread)
    return keep(world, message)


def _in_thread(world: DiscordState, thread: Channel, message: Message) -> None:
    thread.message_count += 1
    if message.author.id not in thread.members:
        thread.members.append(message.author.id)
    for user in message.mentions:
        if user.id not in thread.members:
            thread.members.append(user.id)
    if thread.archived:
        thread.archived, thread.archived_at = False, world.now()
        events.thread_changed(world, thread)
