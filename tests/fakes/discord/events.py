"""Gateway events to the app: each function sends one, if the app may see the place."""

from __future__ import annotations

from tests.fakes.discord.intents import Intent, content_is_hidden
from tests.fakes.discord.messages import Message
from tests.fakes.discord.people import Member, Role, User
from tests.fakes.discord.permissions import Permission
from tests.fakes.discord.places import Channel, Guild
from tests.fakes.discord.refusals import Json
from tests.fakes.discord.state import DiscordState


def sees(world: DiscordState, channel: Channel) -> bool:
    """Does the app see this channel?"""
    if channel.guild is None and len(channel.recipients) != 1:
        return False
    if channel.guild is not None and not channel.guild.with_bot:
        return False
    return world.may(channel, Permission.VIEW_CHANNEL)


def announce_message(world: DiscordState, message: Message) -> None:
    """MESSAGE_CREATE."""
    _message(world, "MESSAGE_CREATE", message)


def announce_edit(world: DiscordState, message: Message) -> None:
    """MESSAGE_UPDATE."""
    _message(world, "MESSAGE_UPDATE", message)


def announce_deletion(world: DiscordState, message: Message) -> None:
    """MESSAGE_DELETE."""
    if message.ephemeral_to or not sees(world, message.channel):
        return
    data: Json = {"id": message.id, "channel_id": message.channel.id}
    world.tell("MESSAGE_DELETE", data | _guild(message.channel), _messages(message.channel), None)


def thread_created(world: DiscordState, thread: Channel) -> None:
    """THREAD_CREATE of a new thread."""
    if sees(world, thread):
        world.tell("THREAD_CREATE", thread.to_json(world.bot) | {"newly_created": True}, Intent.GUILDS, None)


def thread_changed(world: DiscordState, thread: Channel) -> None:
    """THREAD_UPDATE."""
    if sees(world, thread):
        world.tell("THREAD_UPDATE", thread.to_json(world.bot), Intent.GUILDS, None)


def channel_told(world: DiscordState, event: str, channel: Channel) -> None:
    """CHANNEL_CREATE, CHANNEL_UPDATE, CHANNEL_DELETE, or THREAD_DELETE."""
    if channel.guild is not None and channel.guild.with_bot:
        world.tell(event, channel.to_json(), Intent.GUILDS, None)


def member_told(world: DiscordState, event: str, guild: Guild, member: Member) -> None:
    """GUILD_MEMBER_ADD, GUILD_MEMBER_UPDATE or GUILD_MEMBER_REMOVE, for which an intent is needed."""
    data: Json = {"guild_id": guild.id, "user": member.user.to_json()}
    if event != "GUILD_MEMBER_REMOVE":
        data |= member.to_json()
    intent = None if member.user is world.bot and event == "GUILD_MEMBER_UPDATE" else Intent.GUILD_MEMBERS
    if guild.with_bot:
        world.tell(event, data, intent, None)


def role_told(world: DiscordState, event: str, guild: Guild, role: Role) -> None:
    """GUILD_ROLE_CREATE, GUILD_ROLE_UPDATE or GUILD_ROLE_DELETE."""
    data: Json = {"guild_id": guild.id}
    data |= {"role_id": role.id} if event == "GUILD_ROLE_DELETE" else {"role": role.to_json()}
    if guild.with_bot:
        world.tell(event, data, Intent.GUILDS, None)


def guild_left(world: DiscordState, guild: Guild) -> None:
    """GUILD_DELETE: the app was removed."""
    world.tell("GUILD_DELETE", {"id": guild.id}, Intent.GUILDS, None)


def guild_joined(world: DiscordState, guild: Guild) -> None:
    """GUILD_CREATE: the app was added."""
    world.tell("GUILD_CREATE", described_guild(world, guild, with_members=False), Intent.GUILDS, None)


def typing(world: DiscordState, channel: Channel, user: User) -> None:
    """TYPING_START."""
    if not sees(world, channel):
        return
    data: Json = {"channel_id": channel.id, "user_id": user.id, "timestamp": int(world.now())} | _guild(channel)
    if channel.guild is not None and user.id in channel.guild.members:
        data["member"] = channel.guild.members[user.id].to_json()
    intent = Intent.GUILD_MESSAGE_TYPING if channel.guild else Intent.DIRECT_MESSAGE_TYPING
    world.tell("TYPING_START", data, intent, None)


def announce_reaction(world: DiscordState, message: Message, user: User, emoji: str) -> None:
    """MESSAGE_REACTION_ADD."""
    channel = message.channel
    if not sees(world, channel):
        return
    data: Json = {
        "user_id": user.id,
        "channel_id": channel.id,
        "message_id": message.id,
        "message_author_id": message.author.id,
        "emoji": {"id": None, "name": emoji},
        "burst": False,
        "type": 0,
    }
    if channel.guild is not None and user.id in channel.guild.members:
        data["member"] = channel.guild.members[user.id].to_json()
    intent = Intent.GUILD_MESSAGE_REACTIONS if channel.guild else Intent.DIRECT_MESSAGE_REACTIONS
    world.tell("MESSAGE_REACTION_ADD", data | _guild(channel), intent, None)


def described_guild(world: DiscordState, guild: Guild, *, with_members: bool) -> Json:
    """Return the guild object of GUILD_CREATE. Without the Guild Members intent, its only member is the app."""
    members = guild.members.values() if with_members else [guild.members[world.bot.id]]
    seen = [channel for channel in world.channels.values() if channel.guild is guild and sees(world, channel)]
    return guild.to_json() | {
        "joined_at": members and guild.members[world.bot.id].to_json()["joined_at"],
        "large": False,
        "unavailable": False,
        "member_count": len(guild.members),
        "members": [member.to_json() for member in members],
        "channels": [c.to_json() for c in world.channels.values() if c.guild is guild and not c.is_thread],
        "threads": [c.to_json(world.bot) for c in seen if c.is_thread and not c.archived and not c.deleted],
        "presences": [],
        "voice_states": [],
        "stage_instances": [],
        "guild_scheduled_events": [],
        "soundboard_sounds": [],
    }


def _message(world: DiscordState, event: str, message: Message) -> None:
    if message.ephemeral_to or not sees(world, message.channel):
        return
    hidden = content_is_hidden(message, world.app)
    bare = message.event(bare=True) if hidden else None
    world.tell(event, message.event(), _messages(message.channel), bare)


def _messages(channel: Channel) -> Intent:
    return Intent.GUILD_MESSAGES if channel.guild else Intent.DIRECT_MESSAGES


def _guild(channel: Channel) -> Json:
    return {"guild_id": channel.guild.id} if channel.guild else {}
