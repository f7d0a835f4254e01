"""chat.postMessage, update, delete, postEphemeral, getPermalink."""

from __future__ import annotations

from tests.fakes.slack import events
from tests.fakes.slack.arguments import Arguments
from tests.fakes.slack.blocks import check_blocks, check_weight
from tests.fakes.slack.identities import blocks_with_ids
from tests.fakes.slack.messages import Json, Message
from tests.fakes.slack.methods.metadata import metadata_of
from tests.fakes.slack.methods.table import DRESSED, POSTED, method
from tests.fakes.slack.places import Channel
from tests.fakes.slack.refusals import Refused
from tests.fakes.slack.state import Caller

MARKDOWN_LIMIT = 12_000
TEXT_LIMIT = 40_000
UPDATE_LIMIT = 4_000
"""Documented as characters; others measured that it is bytes of UTF-8."""
POST = (*POSTED, *DRESSED, "channel", "reply_broadcast", "unfurl_links", "unfurl_media", "mrkdwn", "metadata")


@method("chat.postMessage", "special", POST, "chat:write")
def post_message(caller: Caller, args: Arguments) -> Json:
    """Post a message for all; a user id as the channel means the direct message with them."""
    channel = place(caller, args, opens_dm=True)
    message = _build_message(caller, args, channel)
    message.broadcast = args.flag("reply_broadcast") and bool(message.thread_ts)
    message.subtype = "thread_broadcast" if message.broadcast else None
    message.unfurl_links, message.unfurl_media = args.flag("unfurl_links", True), args.flag("unfurl_media", True)
    message.mrkdwn = args.flag("mrkdwn", True)
    message.metadata = metadata_of(args)
    caller.workspace.keep(message)
    caller.workspace.statuses.pop((channel.id, message.root), None)
    events.announce_message(caller.world, caller.workspace, message)
    return {"channel": channel.id, "ts": message.ts, "message": message.to_json()}


EPHEMERAL = (*POSTED, *DRESSED, "channel", "user")


@method("chat.postEphemeral", "tier4", EPHEMERAL, "chat:write")
def post_ephemeral(caller: Caller, args: Arguments) -> Json:
    """Show a message to one member of a channel; it is in no history and cannot be changed by its ts."""
    channel = place(caller, args)
    user = args.required_text("user")
    if user not in channel.members:
        raise Refused("user_not_in_channel")
    message = _build_message(caller, args, channel)
    message.ephemeral_to = user
    caller.workspace.keep(message)
    return {"message_ts": message.ts}


UPDATE = (*POSTED, "channel", "ts", "reply_broadcast", "metadata", "file_ids")


@method("chat.update", "tier3", UPDATE, "chat:write")
def update(caller: Caller, args: Arguments) -> Json:
    """Change a message of one's own. Text without blocks takes the blocks away; blocks without text keep the text."""
    channel = existing_place(caller, args)
    message = caller.workspace.message(channel.id, args.required_text("ts"))
    if message.user != caller.bot.bot.id:
        raise Refused("cant_update_message")
    if message.stream is not None and message.stream.alive(caller.now(), caller.world.limits.stream_lifetime):
        raise Refused("streaming_state_conflict")
    if channel.archived:
        raise Refused("is_inactive")
    if len(args.text("text").encode()) > UPDATE_LIMIT:
        raise Refused("msg_too_long")
    text, blocks, markdown = contents(args)
    check_weight(blocks or [])
    metadata = metadata_of(args)
    before = message.remember()
    if blocks is None and (text or markdown):
        message.edited = {"user": message.user, "ts": caller.workspace.new_ts()}
    message.stream = None
    message.blocks = blocks if blocks is not None else [] if text or markdown else message.blocks
    message.text = text or markdown or message.text
    message.markdown = markdown
    message.linked_names = args.flag("link_names") or args.text("parse") == "full"
    message.metadata = metadata if metadata is not None else message.metadata
    events.announce_edit(caller.world, caller.workspace, message, before)
    return {"channel": channel.id, "ts": message.ts, "text": message.text, "message": message.to_json()}


@method("chat.delete", "tier3", ("channel", "ts", "as_user"), "chat:write")
def delete(caller: Caller, args: Arguments) -> Json:
    """Delete a message of one's own."""
    channel = existing_place(caller, args)
    message = caller.workspace.message(channel.id, args.required_text("ts"))
    if message.user != caller.bot.bot.id:
        raise Refused("cant_delete_message")
    before = message.remember()
    message.deleted = True
    events.announce_deletion(caller.world, caller.workspace, message, before)
    return {"channel": channel.id, "ts": message.ts}


@method("chat.getPermalink", "special", ("channel", "message_ts"), json=False)
def get_permalink(caller: Caller, args: Arguments) -> Json:
    """Return a link to a message."""
    channel = caller.workspace.channel(args.required_text("channel"))
    message = caller.workspace.message(channel.id, args.required_text("message_ts"))
    link = f"https://{caller.bot.team.domain}.slack.com/archives/{channel.id}/p{message.ts.replace('.', '')}"
    if message.thread_ts:
        link += f"?thread_ts={message.thread_ts}&cid={channel.id}"
    return {"channel": channel.id, "permalink": link}


def existing_place(caller: Caller, args: Arguments, name: str = "channel") -> Channel:
    """Return the channel of a call.

    Raises:
        Refused: channel_not_found, also for a private one the bot is not in.
    """
    channel = caller.workspace.channel(args.required_text(name))
    if channel.kind != "channel" and caller.bot.bot.id not in channel.members:
        raise Refused("channel_not_found")
    return channel


def place(caller: Caller, args: Arguments, *, opens_dm: bool = False) -> Channel:
    """The channel something is posted to.

    Raises:
        Refused: channel_not_found, not_in_channel, is_archived, restricted_action.
    """
    given = args.required_text("channel")
    user = caller.workspace.users.get(given) if opens_dm else None
    if user is not None and user.id != caller.bot.bot.id:
        return caller.workspace.dm(user.id, caller.bot.bot.id)
    channel = existing_place(caller, args)
    if caller.bot.bot.id not in channel.members and "chat:write.public" not in caller.bot.scopes:
        raise Refused("not_in_channel")
    if channel.archived:
        raise Refused("is_archived")
    if channel.posting_restricted:
        raise Refused("restricted_action")
    return channel


def contents(args: Arguments) -> tuple[str, list[Json] | None, str]:
    """Return the text, the blocks (None if not given) and the Markdown of a message.

    Raises:
        Refused: no_text, markdown_text_conflict, msg_too_long, invalid_blocks, invalid_blocks_format.
    """
    text, markdown = args.text("text"), args.text("markdown_text")
    blocks = args.rows("blocks", "invalid_blocks_format")
    if markdown and (text or blocks):
        raise Refused("markdown_text_conflict")
    if len(markdown) > MARKDOWN_LIMIT:
        raise Refused("msg_too_long")
    if blocks is not None:
        check_blocks(blocks, "message")
        blocks = blocks_with_ids(blocks)
    if not text.strip() and not markdown.strip() and not blocks and not args.rows("attachments", "invalid_attachments"):
        raise Refused("no_text")
    return text, blocks, markdown


def dress_allowed(caller: Caller, args: Arguments) -> None:
    """Require a scope for a custom name or picture.

    Raises:
        Refused: missing_scope.
    """
    if any(args.has(name) for name in DRESSED) and "chat:write.customize" not in caller.bot.scopes:
        raise Refused("missing_scope", needed="chat:write.customize", provided=",".join(sorted(caller.bot.scopes)))


def _build_message(caller: Caller, args: Arguments, channel: Channel) -> Message:
    dress_allowed(caller, args)
    text, blocks, markdown = contents(args)
    check_weight(blocks or [])
    thread_ts = args.text("thread_ts") or None
    if thread_ts is not None:
        thread_ts = thread_root(caller, channel, thread_ts)
    workspace, bot = caller.workspace, caller.bot.bot
    return Message(
        ts=workspace.new_ts(),
        channel=channel.id,
        user=bot.id,
        team=workspace.team.id,
        text=(text or markdown)[:TEXT_LIMIT],
        markdown=markdown,
        blocks=blocks or [],
        attachments=args.rows("attachments", "invalid_attachments") or [],
        thread_ts=thread_ts,
        bot_id=bot.bot_id,
        app_id=caller.world.app.id,
        username=args.text("username"),
        linked_names=args.flag("link_names") or args.text("parse") == "full",
    )


def thread_root(caller: Caller, channel: Channel, thread_ts: str) -> str:
    """Return the root of a reply's thread; a reply to a reply goes to the same thread.

    Raises:
        Refused: thread_not_found.
    """
    parent = caller.workspace.messages.get(channel.id, {}).get(thread_ts)
    if parent is None or parent.ephemeral_to:
        raise Refused("thread_not_found")
    return parent.root
