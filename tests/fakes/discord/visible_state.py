"""A channel as one user sees it, and the links that Discord fetches for previews."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.fakes.discord.components import BUTTON, SELECT, TEXT, walk
from tests.fakes.discord.mentions import CODE
from tests.fakes.discord.messages import Flag, Message
from tests.fakes.discord.people import User
from tests.fakes.discord.permissions import Permission
from tests.fakes.discord.refusals import Json
from tests.fakes.discord.state import DiscordState

LINK = re.compile(r"(?<!<)\bhttps?://[^\s<>)\]]+")


@dataclass(frozen=True)
class VisibleState:
    """A message as one user sees it now.

    `words` are all visible texts, one a line. `thinking` is True if the app has deferred its answer. `buttons` are the
    labels of its buttons. `files` are the visible ones; a message of display components shows only those that it names.
    """

    id: str
    user: str
    content: str
    words: str
    components: list[Json]
    buttons: list[str]
    ephemeral: bool
    thinking: bool
    edited: bool
    pings: frozenset[str]
    previews: frozenset[str]
    files: list[str]
    reactions: dict[str, list[str]]
    thread: str | None
    reply_to: str | None


def sights(world: DiscordState, user: User, channel: str) -> list[VisibleState]:
    """Return the messages that the user sees in a channel or thread, in order; empty if the channel is hidden."""
    place = world.channels[channel]
    granted = place.permissions(user, world.now())
    if not granted & Permission.VIEW_CHANNEL or not granted & Permission.READ_MESSAGE_HISTORY:
        return []
    kept = world.messages.get(channel, {}).values()
    seen = [message for message in kept if not message.deleted and message.ephemeral_to in {"", user.id}]
    return [sight_of(message, world) for message in sorted(seen, key=lambda message: int(message.id))]


def sight_of(message: Message, world: DiscordState) -> VisibleState:
    """Return one message as a user sees it."""
    return VisibleState(
        id=message.id,
        user=message.author.id,
        content=message.content,
        words="\n".join(visible_texts(message)),
        components=message.components,
        buttons=[node.get("label", "") for node in walk(message.components) if node["type"] == BUTTON],
        ephemeral=bool(message.ephemeral_to),
        thinking=message.loading,
        edited=message.edited_at is not None,
        pings=frozenset(message.pings),
        previews=frozenset(previews(message, world)),
        files=[] if message.is_v2 else [stored.name for stored in message.files],
        reactions={name: list(users) for name, users in message.reactions.items()},
        thread=message.thread.id if message.thread else None,
        reply_to=message.reply_to.id if message.reply_to else None,
    )


def visible_texts(message: Message) -> Iterator[str]:
    """Yield every text of a message, in order."""
    if message.content:
        yield message.content
    for embed in message.embeds:
        yield from (embed[name] for name in ("title", "description") if embed.get(name))
        for each in embed.get("fields", []):
            yield f"{each['name']}: {each['value']}"
    for component in walk(message.components):
        if component["type"] == TEXT:
            yield component["content"]
        elif component["type"] == BUTTON and component.get("label"):
            yield component["label"]
        elif component["type"] == SELECT:
            yield component.get("placeholder") or ""


def previews(message: Message, world: DiscordState) -> set[str]:
    """Return the addresses that Discord fetches for previews below a message in its present state."""
    if message.flags & (Flag.SUPPRESS_EMBEDS | Flag.IS_COMPONENTS_V2):
        return set()
    if not message.channel.permissions(message.author, world.now()) & Permission.EMBED_LINKS:
        return set()
    return set(LINK.findall(CODE.sub(" ", message.content)))
