"""Parse the body of a post or an edit, and write it into the message.

Routes for channels and for interactions both come here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.fakes.discord.checks import choice, number, objects, only, text
from tests.fakes.discord.components import checked_components
from tests.fakes.discord.embeds import checked_embeds
from tests.fakes.discord.files import StoredFile
from tests.fakes.discord.mentions import Allowed, parse_allowed_mentions, settle
from tests.fakes.discord.messages import SYSTEM, Flag, Message
from tests.fakes.discord.refusals import Json, Refused, invalid
from tests.fakes.discord.state import DiscordState

MOST_CHARACTERS = 2000
WRITTEN = ("content", "embeds", "components", "allowed_mentions", "attachments", "flags", "tts")
"""Fields of both posts and edits; `tts` is ignored in an edit, but discord.py sends it."""
ON_POST = Flag.SUPPRESS_EMBEDS | Flag.SUPPRESS_NOTIFICATIONS | Flag.IS_COMPONENTS_V2
ON_EDIT = Flag.SUPPRESS_EMBEDS | Flag.IS_COMPONENTS_V2


@dataclass(frozen=True)
class Upload:
    """A file that came with the body, under `files[index]`."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Draft:
    """The body of a post or an edit with the files beside it."""

    body: Json
    uploads: dict[str, Upload] = field(default_factory=dict)

    def post(self, world: DiscordState, message: Message, unsaid: Allowed, flags: Flag = ON_POST) -> None:
        """Write a new message. `unsaid` are the mentions that notify by default; `flags` those that may be set.

        Raises:
            Refused: the body is invalid. The caller must then discard the message.
        """
        only("", self.body, *WRITTEN, "nonce", "enforce_nonce", "message_reference", "sticker_ids")
        message.flags = self._flags(message.flags, flags)
        self._write(world, message)
        reference = self.body.get("message_reference")
        if reference is not None:
            message.reply_to = _replied_to(world, message, reference)
        settle(message, world.users, parse_allowed_mentions(self.body.get("allowed_mentions"), unsaid), world.now())

    def edit(self, world: DiscordState, message: Message, unsaid: Allowed) -> None:
        """Change a message; fields that the body does not name stay.

        Raises:
            Refused: the body is invalid. The message is unchanged.
        """
        only("", self.body, *WRITTEN)
        changed = Message(message.id, message.channel, message.author, **_kept_fields(message))
        changed.flags &= ~Flag.LOADING
        changed.flags = self._flags(changed.flags, ON_EDIT, message)
        self._write(world, changed)
        settle(changed, world.users, parse_allowed_mentions(self.body.get("allowed_mentions"), unsaid), world.now())
        message.remember()
        for name, value in _kept_fields(changed).items():
            setattr(message, name, value)
        message.mentions, message.mentioned_roles = changed.mentions, changed.mentioned_roles
        message.mentions_everyone = changed.mentions_everyone
        message.pings |= changed.pings

    def _flags(self, before: Flag, settable: Flag, message: Message | None = None) -> Flag:
        given = self.body.get("flags")
        if given is None:
            return before
        number("", self.body, "flags", 0, 2**31)
        if given & ~int(settable | before):
            raise invalid("flags", "FAKE_FLAGS", f"Only {settable!r} may be set here.")
        flags = before & ~settable | Flag(given)
        if message is not None and message.is_v2 and Flag.IS_COMPONENTS_V2 not in flags:
            what = "The IS_COMPONENTS_V2 flag cannot be removed from a message."
            raise invalid("flags", "MESSAGE_CANNOT_REMOVE_COMPONENTS_V2_FLAG", what)
        return flags

    def _write(self, world: DiscordState, message: Message) -> None:
        body, v2 = self.body, message.is_v2
        if v2:
            _nothing_beside(body, message)
        if "content" in body:
            message.content = text("", body, "content", MOST_CHARACTERS).strip()
        if "embeds" in body:
            message.embeds = checked_embeds(body["embeds"] or [])
        message.files = self._attached_files(world, message)
        if body.get("components") is not None or "components" in body:
            message.components = checked_components(body["components"] or [], v2=v2)
        if not (message.content or message.embeds or message.files or (v2 and message.components)):
            raise Refused(50006)

    def _attached_files(self, world: DiscordState, message: Message) -> list[StoredFile]:
        """Return the message's files after the change: the listed ones of its earlier files, and the uploaded ones."""
        listed = self.body.get("attachments")
        entries = objects("attachments", listed, 10) if listed is not None else []
        kept = list(message.files) if listed is None else []
        described: dict[str, Json] = {}
        for n, entry in enumerate(entries):
            only(f"attachments.{n}", entry, *_ENTRY)
            before = next((stored for stored in message.files if stored.id == str(entry.get("id"))), None)
            if before is not None:
                kept.append(before)
            elif str(entry.get("id")) in self.uploads:
                described[str(entry["id"])] = entry
            else:
                raise invalid(f"attachments.{n}.id", "ATTACHMENT_NOT_FOUND", "No file was uploaded under this id.")
        for index, upload in self.uploads.items():
            if len(upload.content) > world.limits.attachment_size:
                raise Refused(40005)
            stored = world.store(upload.name, upload.content, message.channel.id)
            entry = described.get(index, {})
            stored.name = str(entry.get("filename") or stored.name)
            stored.description = entry.get("description")
            kept.append(stored)
        if len(kept) > 10:
            raise invalid("attachments", "BASE_TYPE_MAX_LENGTH", "Must be 10 or fewer in length.")
        return kept


_ENTRY = ("id", "filename", "description", "size", "url", "proxy_url", "content_type", "width", "height", "spoiler")


def _kept_fields(message: Message) -> Json:
    names = ("content", "type", "components", "embeds", "files", "flags", "reply_to", "ephemeral_to", "webhook_id")
    return {name: getattr(message, name) for name in names}


def _nothing_beside(body: Json, message: Message) -> None:
    for name, there in (("content", message.content), ("embeds", message.embeds)):
        given = body.get(name) if name in body else there
        if given:
            what = f"The '{name}' field cannot be used when using MessageFlags.IS_COMPONENTS_V2"
            raise invalid(name, "MESSAGE_CANNOT_USE_LEGACY_FIELDS_WITH_COMPONENTS_V2", what)


def _replied_to(world: DiscordState, message: Message, reference: Json) -> Message | None:
    only("message_reference", reference, "type", "message_id", "channel_id", "guild_id", "fail_if_not_exists")
    choice("message_reference.type", reference.get("type", 0), (0,))
    found = world.messages.get(message.channel.id, {}).get(str(reference.get("message_id")))
    if found is None or found.deleted or found.ephemeral_to:
        if reference.get("fail_if_not_exists", True):
            raise invalid("message_reference", "MESSAGE_REFERENCE_UNKNOWN_MESSAGE", "Unknown message")
        return None
    if found.type in SYSTEM:
        raise invalid("message_reference", "REPLIES_CANNOT_REPLY_TO_SYSTEM_MESSAGE", "Cannot reply to a system message")
    return found
