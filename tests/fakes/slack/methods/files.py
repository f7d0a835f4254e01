"""files.getUploadURLExternal, files.completeUploadExternal, files.info, files.delete."""

from __future__ import annotations

from tests.fakes.slack import events
from tests.fakes.slack.arguments import Arguments
from tests.fakes.slack.files import StoredFile
from tests.fakes.slack.messages import Json, Message
from tests.fakes.slack.methods.chat import existing_place, thread_root
from tests.fakes.slack.methods.table import method
from tests.fakes.slack.refusals import Refused, invalid_arguments
from tests.fakes.slack.state import Caller

UPLOAD = ("filename", "length", "alt_txt", "alt_text", "snippet_type")


@method("files.getUploadURLExternal", "tier4", UPLOAD, "files:write", json=False)
def get_upload_url(caller: Caller, args: Arguments) -> Json:
    """Return an address to send the bytes of one file to."""
    name, length = args.required_text("filename"), args.number("length", 0)
    if length <= 0:
        raise invalid_arguments("must be more than 0 [json-pointer:/length]")
    workspace = caller.workspace
    file_id = workspace.new_id("F")
    stored = StoredFile(
        file_id,
        name,
        b"",
        caller.bot.bot.id,
        f"{caller.world.base}/files-pri/{workspace.team.id}-{file_id}/{name}",
        alt_text=args.text("alt_txt") or args.text("alt_text"),
        complete=False,
    )
    workspace.files[file_id] = stored
    secret = f"{workspace.team.id}-{file_id}"
    caller.world.uploads[secret] = (stored, length)
    return {"upload_url": f"{caller.world.base}/upload/v1/{secret}", "file_id": file_id}


COMPLETE = ("files", "channel_id", "channels", "initial_comment", "thread_ts", "blocks")


@method("files.completeUploadExternal", "tier4", COMPLETE, "files:write")
def complete_upload(caller: Caller, args: Arguments) -> Json:
    """Make uploaded files real and share them, with a message that carries them."""
    listed = args.rows("files", "invalid_arguments")
    if not listed:
        raise invalid_arguments("missing required field: files")
    stored = [_uploaded_file(caller, str(row.get("id", ""))) for row in listed]
    channels = [name for name in [args.text("channel_id"), *args.text("channels").split(",")] if name]
    for file, row in zip(stored, listed, strict=True):
        file.complete, file.title = True, str(row.get("title") or file.name)
    for channel in channels:
        _share_files(caller, args, channel, stored)
    return {"files": [file.to_json() for file in stored]}


@method("files.info", "tier4", ("file", "count", "cursor", "limit", "page"), "files:read", json=False)
def file_info(caller: Caller, args: Arguments) -> Json:
    """Return a file."""
    stored = caller.workspace.files.get(args.required_text("file"))
    if stored is None or not stored.complete:
        raise Refused("file_not_found")
    return {"file": stored.to_json()}


@method("files.delete", "tier3", ("file",), "files:write")
def delete_file(caller: Caller, args: Arguments) -> Json:
    """Delete a file of the bot, and the messages without other content."""
    stored = caller.workspace.files.pop(args.required_text("file"), None)
    if stored is None:
        raise Refused("file_not_found")
    for channel_id in stored.shared_in:
        for message in caller.workspace.messages.get(channel_id, {}).values():
            if stored in message.files:
                message.files.remove(stored)
                message.deleted = not (message.files or message.text)
    return {}


def _uploaded_file(caller: Caller, file_id: str) -> StoredFile:
    stored = caller.workspace.files.get(file_id)
    if stored is None or stored.complete:
        raise Refused("file_not_found")
    if not stored.content:
        raise Refused("file_update_failed")
    return stored


def _share_files(caller: Caller, args: Arguments, channel_id: str, stored: list[StoredFile]) -> None:
    channel = existing_place(caller, Arguments({"channel": channel_id}))
    workspace, bot = caller.workspace, caller.bot.bot
    if bot.id not in channel.members:
        raise Refused("channel_not_found")
    thread_ts = args.text("thread_ts") or None
    message = Message(
        workspace.new_ts(),
        channel.id,
        bot.id,
        workspace.team.id,
        text=args.text("initial_comment"),
        files=stored,
        thread_ts=thread_root(caller, channel, thread_ts) if thread_ts else None,
        bot_id=bot.bot_id,
        app_id=caller.world.app.id,
        subtype="file_share",
    )
    workspace.keep(message)
    for file in stored:
        file.shared_in.append(channel.id)
    events.announce_message(caller.world, workspace, message)
