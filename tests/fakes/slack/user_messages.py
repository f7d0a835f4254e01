"""User messages: post, edit, delete, join, react."""

from __future__ import annotations

import html
import uuid
from collections.abc import Iterable

from tests.fakes.slack import events
from tests.fakes.slack.messages import Json, Message
from tests.fakes.slack.people import User
from tests.fakes.slack.places import Channel
from tests.fakes.slack.state import SlackState
from tests.fakes.slack.workspace import Workspace


class UserMessages:
    """Messages of users in all workspaces. Methods return before the app has received the events."""

    def __init__(self, world: SlackState) -> None:
        self._world = world

    def say(
        self,
        user: User,
        channel: Channel,
        text: str,
        *,
        thread_ts: str | None,
        files: Iterable[tuple[str, bytes]],
        broadcast: bool,
        subtype: str | None,
        client_msg_id: str,
        extra: Json,
    ) -> Message:
        """Post a message as a user or as another bot."""
        workspace = self._world.workspaces[channel.team.id]
        assert user.id in channel.members, f"{user.name} is not in {channel.name}"
        stored = [workspace.store(name, content, user.id, self._world.base) for name, content in files]
        message = Message(
            workspace.new_ts(),
            channel.id,
            user.id,
            user.team.id,
            text=text,
            thread_ts=thread_ts,
            files=stored,
            blocks=typed(text),
            bot_id=user.bot_id,
            app_id=user.app_id,
            broadcast=broadcast,
            subtype=subtype or ("file_share" if stored else "thread_broadcast" if broadcast else None),
            client_msg_id="" if user.bot_id else client_msg_id or str(uuid.uuid4()),
            extra=extra,
        )
        workspace.keep(message)
        events.posted(self._world, workspace, message)
        return message

    def edit(self, message: Message, text: str) -> None:
        """Change the text of a message as its author."""
        workspace = self._workspace(message)
        before = message.remember()
        message.text, message.blocks = text, typed(text)
        message.edited = {"user": message.user, "ts": workspace.new_ts()}
        events.changed(self._world, workspace, message, before)

    def delete(self, message: Message) -> None:
        """Delete a message as its author; one with replies leaves a tombstone."""
        workspace = self._workspace(message)
        before = message.remember()
        if len(workspace.thread(message.channel, message.ts)) > 1:
            message.subtype, message.text, message.blocks = "tombstone", "This message was deleted.", []
            message.user, message.files, message.extra = "USLACKBOT", [], {}
        else:
            message.deleted = True
        events.deleted(self._world, workspace, message, before)

    def unfurl(self, message: Message, attachment: Json) -> None:
        """Add the preview of a link to a message, which changes it without an edit."""
        workspace = self._workspace(message)
        before = message.remember()
        message.attachments = [*message.attachments, attachment]
        events.changed(self._world, workspace, message, before)

    def join(self, user: User, channel: Channel) -> Message:
        """Come into a channel."""
        workspace = self._world.workspaces[channel.team.id]
        if user.id not in channel.members:
            channel.members.append(user.id)
        text = f"<@{user.id}> has joined the channel"
        message = Message(workspace.new_ts(), channel.id, user.id, user.team.id, text=text, subtype="channel_join")
        workspace.keep(message)
        events.posted(self._world, workspace, message)
        joined = {
            "type": "member_joined_channel",
            "user": user.id,
            "channel": channel.id,
            "team": channel.team.id,
            "channel_type": "C" if channel.kind == "channel" else "G",
            "event_ts": message.ts,
        }
        events.tell(self._world, workspace, "member_joined_channel", joined)
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
        events.tell(self._world, workspace, "reaction_added", event)

    def _workspace(self, message: Message) -> Workspace:
        return next(w for w in self._world.workspaces.values() if w.messages.get(message.channel, {}).get(message.ts))


def typed(text: str) -> list[Json]:
    """Return the rich text of a typed text, simplified: one section with the text."""
    if not text:
        return []
    section = {"type": "rich_text_section", "elements": [{"type": "text", "text": html.unescape(text)}]}
    return [{"type": "rich_text", "block_id": "typed", "elements": [section]}]
