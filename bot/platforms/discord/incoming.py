"""Parser of user messages.

Messages of the bot, other bots, webhooks and the system are skipped. Edits and deletions are other events. `messages`
decides if a message is for the bot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import discord

from bot.chat.thread_context import append_file_names
from bot.domain.conversations import Attachment
from bot.rendering.text_safety import single_line

# -------------------- markup
# The syntax is "Message Formatting" in Discord's reference. The result is untrusted data: escape it before it is
# sent to Discord.

_TOKEN = re.compile(
    r"""
      <@!?(?P<user>\d{1,20})>
    | <@&(?P<role>\d{1,20})>
    | <\#(?P<channel>\d{1,20})>
    | <a?(?P<emoji>:\w{2,32}:)\d{1,20}>
    | <t:(?P<time>-?\d{1,13})(?::[tTdDfFRsS])?>
    | <(?P<command>/[^<>:\n]{1,100}):\d{1,20}>
    """,
    re.VERBOSE | re.ASCII,
)
_CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class MentionResolver:
    """Known names of users, roles and channels, by id."""

    people: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, str] = field(default_factory=dict)


def to_plain_text(text: str, names: MentionResolver) -> str:
    """Return the text as Discord displays it. Code stays unchanged."""
    pieces = _CODE.split(text)
    return "".join(
        piece if index % 2 else _TOKEN.sub(lambda match: _token(match, names), piece)
        for index, piece in enumerate(pieces)
    )


def strip_bot_mention(text: str, calls: tuple[str, ...]) -> str:
    """Return the text without a mention at its beginning or end; `calls` are the mentions of the bot."""
    if not calls:
        return text.strip()
    mention = "|".join(map(re.escape, calls))
    text = re.sub(rf"^(?:\s*(?:{mention})[\s,:]*)+", "", text)
    return re.sub(rf"(?:\s*(?:{mention}))+\s*$", "", text).strip()


def _token(match: re.Match[str], names: MentionResolver) -> str:
    value = match.group()
    match match.lastgroup:
        case "user":
            value = f"@{names.people.get(match['user'], match['user'])}"
        case "role":
            value = f"@{names.roles.get(match['role'], match['role'])}"
        case "channel":
            value = f"#{names.channels.get(match['channel'], match['channel'])}"
        case "emoji":
            value = match["emoji"]
        case "time":
            value = _time(int(match["time"])) or value
        case "command":
            value = match["command"]
    return value


def _time(seconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return ""


MOST_FILES = 10
_SPOKEN = (discord.MessageType.default, discord.MessageType.reply)


@dataclass(frozen=True, slots=True)
class RepliedTo:
    """Original message of a reply. `user` is empty if unknown."""

    place: str
    message: str
    user: str = ""


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A user's message. `text` is displayed text without the outer mentions of the bot; `mentions` are the mentioned
    users, including those that a reply notifies. `calls_bot` is True for a mention of the bot or its role. `forwarded`
    is forwarded text of others. `source` is the author as in the message: for a live message in a guild, with the
    current roles.
    """

    id: str
    place: str
    user: str
    text: str
    source: discord.User | discord.Member = field(compare=False, repr=False)
    calls_bot: bool = False
    mentions: frozenset[str] = frozenset()
    answers: RepliedTo | None = None
    files: tuple[Attachment, ...] = ()
    forwarded: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """True if the bot can read no content: without the Message Content intent, messages that neither mention nor
        reply to the bot arrive empty.
        """
        return not (self.text or self.files or self.forwarded)


def parse_message(message: discord.Message, me: str, guild: discord.Guild | None) -> IncomingMessage | None:
    """Parse a message. Return None if it is no user's message. `me` is the bot's user id; `guild` is the gateway's
    guild, for names of roles and channels.
    """
    author = message.author
    if author.bot or author.system or message.webhook_id is not None or message.type not in _SPOKEN:
        return None
    mentions = frozenset(str(mention.id) for mention in message.mentions)
    return IncomingMessage(
        id=str(message.id),
        place=str(message.channel.id),
        user=str(author.id),
        text=words_of(message, me, guild),
        calls_bot=me in mentions or any(call in message.content for call in _calls(me, guild)),
        mentions=mentions,
        answers=answered_by(message),
        files=_attachments(message),
        forwarded=tuple(text for snapshot in message.message_snapshots if (text := _snapshot(snapshot))),
        source=author,
    )


def words_of(message: discord.Message, me: str, guild: discord.Guild | None) -> str:
    """Return the displayed text of a message without the outer mentions of the bot."""
    return to_plain_text(strip_bot_mention(message.content, _calls(me, guild)), _names(message, guild)).strip()


def _calls(me: str, guild: discord.Guild | None) -> tuple[str, ...]:
    """Return the mentions of the bot: clients offer its role under the same name."""
    role = guild.self_role if guild is not None else None
    return (f"<@{me}>", f"<@!{me}>", *((f"<@&{role.id}>",) if role is not None else ()))


def _names(message: discord.Message, guild: discord.Guild | None) -> MentionResolver:
    people = {str(mention.id): single_line(mention.display_name, 80) for mention in message.mentions}
    if guild is None:
        return MentionResolver(people)
    roles = {str(mention): role.name for mention in message.raw_role_mentions if (role := guild.get_role(mention))}
    channels = {
        str(mention): channel.name
        for mention in message.raw_channel_mentions
        if (channel := guild.get_channel_or_thread(mention)) is not None
    }
    return MentionResolver(people, roles, channels)


def _attachments(message: discord.Message) -> tuple[Attachment, ...]:
    """Return the files of a message. Their URLs expire, so the id (`CHANNEL:MESSAGE:ATTACHMENT`) locates a new one."""
    return tuple(
        Attachment(
            id=f"{message.channel.id}:{message.id}:{attachment.id}",
            name=single_line(attachment.filename or "file", 200),
            mime_type=single_line((attachment.content_type or "application/octet-stream").partition(";")[0], 100),
            size=attachment.size,
        )
        for attachment in message.attachments[:MOST_FILES]
    )


def answered_by(message: discord.Message) -> RepliedTo | None:
    """Return the original message of a reply; None for other messages."""
    reference = message.reference
    if reference is None or reference.message_id is None or reference.type is not discord.MessageReferenceType.reply:
        return None
    resolved = reference.resolved
    user = str(resolved.author.id) if isinstance(resolved, discord.Message) else ""
    return RepliedTo(str(reference.channel_id), str(reference.message_id), user)


def _snapshot(snapshot: discord.MessageSnapshot) -> str:
    text = to_plain_text(snapshot.content, MentionResolver()).strip()
    return append_file_names(text, [attachment.filename for attachment in snapshot.attachments])
