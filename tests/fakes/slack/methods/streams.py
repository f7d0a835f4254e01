"""chat.startStream, appendStream, stopStream: a message that grows, for a few minutes and up to a size."""

from __future__ import annotations

from typing import Literal

from tests.fakes.slack import events
from tests.fakes.slack.arguments import Arguments
from tests.fakes.slack.blocks import check_blocks
from tests.fakes.slack.chunks import checked_chunks
from tests.fakes.slack.identities import blocks_with_ids
from tests.fakes.slack.messages import Json, Message, Stream
from tests.fakes.slack.methods.agents import STATES
from tests.fakes.slack.methods.chat import MARKDOWN_LIMIT, dress_allowed, existing_place, place, thread_root
from tests.fakes.slack.methods.metadata import metadata_of
from tests.fakes.slack.methods.table import DRESSED, method
from tests.fakes.slack.refusals import Refused, invalid_arguments
from tests.fakes.slack.state import Caller

Mode = Literal["timeline", "plan", "dense"]
MODES: dict[str, Mode] = {"timeline": "timeline", "plan": "plan", "dense": "dense"}
START = (
    "channel",
    "thread_ts",
    "markdown_text",
    "chunks",
    "recipient_team_id",
    "recipient_user_id",
    "task_display_mode",
    *DRESSED,
)


@method("chat.startStream", "tier2", START, "chat:write")
def start(caller: Caller, args: Arguments) -> Json:
    """Begin a message that can be appended to; in channels it needs the one it is for."""
    channel = place(caller, args)
    if not channel.streams:
        raise Refused("channel_type_not_supported")
    thread_ts = thread_root(caller, channel, args.required_text("thread_ts"))
    dress_allowed(caller, args)
    recipient = args.text("recipient_user_id")
    if channel.kind != "im":
        if not recipient:
            raise Refused("missing_recipient_user_id")
        if not args.text("recipient_team_id"):
            raise Refused("missing_recipient_team_id")
    if recipient:
        caller.workspace.person(recipient)
    mode = MODES.get(args.text("task_display_mode", "timeline"))
    if mode is None:
        raise invalid_arguments("must be one of timeline, plan, dense [json-pointer:/task_display_mode]")
    workspace, bot = caller.workspace, caller.bot.bot
    message = Message(
        workspace.new_ts(),
        channel.id,
        bot.id,
        workspace.team.id,
        thread_ts=thread_ts,
        bot_id=bot.bot_id,
        app_id=caller.world.app.id,
        username=args.text("username"),
        stream=Stream(caller.now(), mode, recipient),
    )
    _grow(caller, message, args)
    assert message.stream is not None
    message.stream.first_text = message.text
    workspace.keep(message)
    workspace.statuses.pop((channel.id, message.root), None)
    workspace.sessions.setdefault((channel.id, message.root), {})["status"] = "processing"
    events.announce_message(caller.world, workspace, message)
    return {"channel": channel.id, "ts": message.ts}


@method("chat.appendStream", "tier4", ("channel", "ts", "markdown_text", "chunks"), "chat:write")
def append(caller: Caller, args: Arguments) -> Json:
    """Append to a message that is still streaming."""
    message = _streaming(caller, args)
    if not args.has("markdown_text") and not args.has("chunks"):
        raise Refused("no_text")
    _grow(caller, message, args)
    return {"channel": message.channel, "ts": message.ts}


STOP = ("channel", "ts", "markdown_text", "chunks", "blocks", "metadata", "session_status")


@method("chat.stopStream", "tier2", STOP, "chat:write")
def stop(caller: Caller, args: Arguments) -> Json:
    """End a stream: a last piece, blocks below it, and the final state."""
    message = _streaming(caller, args)
    blocks = args.rows("blocks", "invalid_blocks_format") or []
    check_blocks(blocks, "message")
    state = args.text("session_status", "active")
    if state not in STATES:
        raise invalid_arguments(f"must be one of {', '.join(STATES)} [json-pointer:/session_status]")
    metadata = metadata_of(args)
    before = message.to_json()
    _grow(caller, message, args)
    assert message.stream is not None
    message.stream.open = False
    message.blocks = blocks_with_ids([*message.stream.blocks, *blocks])
    message.metadata = metadata
    caller.workspace.sessions.setdefault((message.channel, message.root), {})["status"] = state
    events.announce_edit(caller.world, caller.workspace, message, before)
    return {"channel": message.channel, "ts": message.ts, "message": message.to_json()}


def _streaming(caller: Caller, args: Arguments) -> Message:
    channel = existing_place(caller, args)
    message = caller.workspace.message(channel.id, args.required_text("ts"))
    if message.user != caller.bot.bot.id:
        raise Refused("message_not_owned_by_app")
    stream = message.stream
    if stream is None or not stream.alive(caller.now(), caller.world.limits.stream_lifetime):
        raise Refused("message_not_in_streaming_state")
    return message


def _grow(caller: Caller, message: Message, args: Arguments) -> None:
    stream = message.stream
    assert stream is not None
    markdown = args.text("markdown_text")
    chunks = args.rows("chunks", "invalid_chunks") or []
    if markdown and chunks:
        raise Refused("cannot_provide_both_markdown_text_and_chunks")
    if len(markdown) > MARKDOWN_LIMIT:
        raise Refused("msg_too_long")
    way = "markdown_text" if markdown else "chunks" if chunks else ""
    if way and stream.way and way != stream.way:
        raise Refused("streaming_mode_mismatch")
    checked = checked_chunks(chunks)
    grown = stream.extended_copy(markdown, checked)
    limits = caller.world.limits
    if grown.size > (limits.stream_size if grown.tasks else limits.stream_text_size):
        raise Refused("msg_too_long")
    if len(grown.blocks) > 50:
        raise Refused("msg_blocks_too_many")
    grown.way = stream.way or way
    message.stream = grown
    message.text = message.markdown = grown.text
