"""User messages: post, edit, delete, react, open threads, type."""

from __future__ import annotations

from collections.abc import Iterable

from tests.fakes.discord import events
from tests.fakes.discord.factories import Factories
from tests.fakes.discord.mentions import UNSAID, settle
from tests.fakes.discord.messages import Message, Type
from tests.fakes.discord.people import User
from tests.fakes.discord.permissions import Permission
from tests.fakes.discord.places import HOLDS_MESSAGES, Channel, Kind
from tests.fakes.discord.posting import keep, open_post, open_thread
from tests.fakes.discord.refusals import Json


class UserMessages(Factories):
    """Messages of users. Methods return before the app has received the events."""

    def say(
        self,
        user: User,
        channel: Channel,
        text: str,
        *,
        files: Iterable[tuple[str, bytes]] = (),
        reply_to: Message | None = None,
        ping: bool = True,
        extra: Json | None = None,
    ) -> Message:
        """Post a message as a user, another bot or a webhook; `files` are names with bytes, `extra` more fields of its
        JSON. `discord.bot.mention` in the text mentions the app.

        `ping` is True if a reply notifies the author of the original message, which users can switch off.
        """
        world = self.world
        assert channel.kind in HOLDS_MESSAGES, f"nobody can speak in {channel.name}"
        need = Permission.SEND_MESSAGES_IN_THREADS if channel.is_thread else Permission.SEND_MESSAGES
        may = user.webhook or channel.permissions(user, world.now()) & need
        assert may, f"{user.name} may not speak in {channel.name}"
        message = Message(world.ids.new(), channel, user, content=text, reply_to=reply_to, extra=extra or {})
        message.type = Type.REPLY if reply_to is not None else Type.DEFAULT
        message.webhook_id = user.id if user.webhook else ""
        message.files = [world.store(name, content, channel.id) for name, content in files]
        settle(message, world.users, UNSAID, world.now(), ping=ping)
        return keep(world, message)

    def reply(self, user: User, message: Message, text: str, *, ping: bool = True) -> Message:
        """Reply to a message."""
        return self.say(user, message.channel, text, reply_to=message, ping=ping)

    def edit(self, message: Message, text: str) -> None:
        """Change the text of a message as its author."""
        message.remember()
        message.content, message.edited_at = text, self.world.now()
        settle(message, self.world.users, UNSAID, self.world.now())
        events.announce_edit(self.world, message)

    def unfurl(self, message: Message, title: str) -> None:
        """Add the preview of a link to a message, as Discord does: MESSAGE_UPDATE without an edit."""
        message.remember()
        message.embeds = [*message.embeds, {"type": "link", "title": title}]
        events.announce_edit(self.world, message)

    def again(self, message: Message) -> None:
        """Deliver a message once more, as a resumed session may."""
        events.announce_message(self.world, message)

    def delete(self, message: Message) -> None:
        """Delete a message."""
        message.deleted = True
        events.announce_deletion(self.world, message)

    def react(self, user: User, message: Message, emoji: str) -> None:
        """Put an emoji on a message."""
        message.reactions.setdefault(emoji, []).append(user.id)
        events.announce_reaction(self.world, message, user, emoji)

    def thread(self, user: User, parent: Channel, name: str, on: Message | None = None) -> Channel:
        """Open a thread, on a message or beside all."""
        return open_thread(self.world, parent, name, user, on)

    def post(self, user: User, forum: Channel, title: str, text: str) -> Message:
        """Post in a forum: a thread with a title; its first message, which has the thread's id."""
        world = self.world
        assert forum.kind is Kind.FORUM, f"{forum.name} is no forum"
        assert forum.permissions(user, world.now()) & Permission.SEND_MESSAGES, f"{user.name} may not post there"
        message = Message(world.ids.new(), forum, user, content=text)
        settle(message, world.users, UNSAID, world.now())
        return open_post(world, forum, title, message)

    def archive(self, thread: Channel, *, locked: bool = False) -> None:
        """Archive a thread, as a user or the timeout does."""
        thread.archived, thread.locked, thread.archived_at = True, locked, self.world.now()
        events.thread_changed(self.world, thread)

    def type(self, user: User, channel: Channel) -> None:
        """Begin to type."""
        events.typing(self.world, channel, user)

    def remove(self, channel: Channel) -> None:
        """Delete a channel or thread."""
        channel.deleted = True
        events.channel_told(self.world, "THREAD_DELETE" if channel.is_thread else "CHANNEL_DELETE", channel)
