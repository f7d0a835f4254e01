"""User messages: post, edit, delete, join, react."""

from __future__ import annotations

import html
import uuid
from collections.abc import Iterable

from tests.fakes.slack import events
from tests.fakes.slack.factories import Factories
from tests.fakes.slack.messages import Json, Message
from tests.fakes.slack.modals import View
from tests.fakes.slack.people import User
from tests.fakes.slack.places import Channel
from tests.fakes.slack.workspace import Workspace


class UserMessages(Factories):
    """Messages of users in all workspaces. Methods return before the app has received the events."""

    def say(
        self,
        user: User,
        channel: Channel,
        text: str,
        *,
        thread_ts: str | None = None,
        files: Iterable[tuple[str, bytes]] = (),
        broadcast: bool = False,
        subtype: str | None = None,
        client_msg_id: str = "",
        extra: Json | None = None,
    ) -> Message:
        """Post a message as a user or as another bot; `files` are names with bytes, `extra` more fields of its JSON.
        `slack.bot.mention` in the text mentions the app.
        """
        workspace = self.world.workspaces[channel.team.id]
        assert user.id in channel.members, f"{user.name} is not in {channel.name}"
        stored = [workspace.store(name, content, user.id, self.world.base) for name, content in files]
        message = Message(
            workspace.new_ts(),
            channel.id,
            user.id,
            user.team.id,
            text=text,
            thread_ts=thread_ts,
            files=stored,
            blocks=rich_text_blocks(text),
            bot_id=user.bot_id,
            app_id=user.app_id,
            broadcast=broadcast,
            subtype=subtype or ("file_share" if stored else "thread_broadcast" if broadcast else None),
            client_msg_id="" if user.bot_id else client_msg_id or str(uuid.uuid4()),
            extra=extra or {},
        )
        workspace.keep(message)
        events.announce_message(self.world, workspace, message)
        return message

    def edit(self, message: Message, text: str) -> None:
        """Change the text of a message as its author."""
        workspace = self._workspace(message)
        before = message.remember()
        message.text, message.blocks = text, rich_text_blocks(text)
        message.edited = {"user": message.user, "ts": workspace.new_ts()}
        events.announce_edit(self.world, workspace, message, before)

    def delete(self, message: Message) -> None:
        """Delete a message as its author; one with replies leaves a tombstone."""
        workspace = self._workspace(message)
        before = message.remember()
        if len(workspace.thread(message.channel, message.ts)) > 1:
            message.subtype, message.text, message.blocks = "tombstone", "This message was deleted.", []
            message.user, message.files, message.extra = "USLACKBOT", [], {}
        else:
            message.deleted = True
        events.announce_deletion(self.world, workspace, message, before)

    def unfurl(self, message: Message, title: str) -> None:
        """Add the preview of a link to a message, as Slack does: message_changed without an edit."""
        workspace = self._workspace(message)
        before = message.remember()
        preview = {"title": title, "fallback": title, "id": len(message.attachments) + 1}
        message.attachments = [*message.attachments, preview]
        events.announce_edit(self.world, workspace, message, before)

    def join(self, user: User, channel: Channel) -> Message:
        """Come into a channel."""
        workspace = self.world.workspaces[channel.team.id]
        if user.id not in channel.members:
            channel.members.append(user.id)
        text = f"<@{user.id}> has joined the channel"
        message = Message(workspace.new_ts(), channel.id, user.id, user.team.id, text=text, subtype="channel_join")
        workspace.keep(message)
        events.announce_message(self.world, workspace, message)
        joined = {
            "type": "member_joined_channel",
            "user": user.id,
            "channel": channel.id,
            "team": channel.team.id,
            "channel_type": "C" if channel.kind == "channel" else "G",
            "event_ts": message.ts,
        }
        events.tell(self.world, workspace, "member_joined_channel", joined)
        return message

    def react(self, user: User, message: Message, emoji: str) -> None:
        """Put an emoji on a message."""
        workspace = self._workspace(message)
        message.reactions.setdefault(emoji, []).append(user.id)
        item = {"type": "message", "channel": message.channel, "ts": message.ts}
        event = {
            "type": "reaction_added",
            "user": user.id,
            "reaction": emoji,
            "item_user": message.user,
            "item": item,
            "event_ts": workspace.new_ts(),
        }
        events.tell(self.world, workspace, "reaction_added", event)

    def _workspace(self, on: Message | View) -> Workspace:
        if isinstance(on, View):
            return self.world.workspaces[on.team]
        return next(w for w in self.world.workspaces.values() if w.messages.get(on.channel, {}).get(on.ts) is on)


def rich_text_blocks(text: str) -> list[Json]:
    """Return the rich text of a typed text, simplified: one section with the text."""
    if not text:
        return []
    section = {"type": "rich_text_section", "elements": [{"type": "text", "text": html.unescape(text)}]}
    return [{"type": "rich_text", "block_id": "typed", "elements": [section]}]
