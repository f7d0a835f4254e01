"""Content of a received message: all that Discord displays of it.

Embeds, components, polls, stickers and forwarded messages have text that `content` lacks. Parts without text are
named in brackets, so that the model knows of them. The result is untrusted data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import discord

from bot.chat.message_handler import (
    LONGEST_FORWARDED,
    PREVIEW_LABEL,
    MessageContent,
    ThreadMessage,
    append_file_names,
    forwarded_label,
)

DEEPEST = 6
UNREADABLE = "[a message that cannot be read]"
T = TypeVar("T")
_QUOTE = re.compile(r"^[^\S\n]*>(?:>> .*\Z| [^\n]*)", re.MULTILINE | re.DOTALL)


def without_quotes(content: str) -> str:
    """Return the part of a message's text that mentions count in."""
    return _QUOTE.sub("", content)


def message_content(
    message: discord.Message, text: str, guild: discord.Guild | None, to_plain: Callable[[str], str]
) -> MessageContent:
    """Return the content of a message. `text` is its text without the mentions of the bot; `to_plain` returns other
    markup as displayed. Embeds of a bot or webhook are its own text, those of a user are previews of links.
    """
    embeds, is_app = _read(_embeds, message), message.author.bot or message.webhook_id is not None
    own = [*_read(_poll, message), *_read(_parts, message), *(embeds if is_app else ())]
    place = guild.get_channel_or_thread(message.reference.channel_id) if guild and message.reference else None
    label = forwarded_label("", place.name if place is not None else "")
    others = [(label, _snapshot(snapshot)) for snapshot in message.message_snapshots]
    if not others and message.reference and message.reference.type is discord.MessageReferenceType.forward:
        others = [(label, UNREADABLE)]
    others += [(PREVIEW_LABEL, embed) for embed in embeds if not is_app]
    forwarded = (ThreadMessage("", "", label, to_plain(text)[:LONGEST_FORWARDED]) for label, text in others)
    return MessageContent("\n".join(filter(None, (text, *map(to_plain, own)))), tuple(forwarded))


def _snapshot(snapshot: discord.MessageSnapshot) -> str:
    lines = filter(None, (snapshot.content, *_read(_parts, snapshot), *_read(_embeds, snapshot)))
    text = append_file_names("\n".join(lines), [attachment.filename for attachment in snapshot.attachments])
    return text or UNREADABLE


def _read(parts: Callable[[T], Iterator[str]], message: T) -> list[str]:
    """Return the texts of parts, which discord.py may find invalid only now."""
    texts: list[str] = []
    with suppress(AttributeError, KeyError, TypeError, ValueError):
        for text in parts(message):
            texts.append(text)  # noqa: PERF402 - keeps those before an error
        return texts
    return [*texts, "[a part that cannot be read]"]


def _parts(message: discord.Message | discord.MessageSnapshot) -> Iterator[str]:
    yield from (f"[sticker: {sticker.name}]" for sticker in message.stickers)
    shown = [line for component in message.components for line in _component(component, 1)]
    yield from shown
    if message.flags.components_v2 and not shown:
        yield UNREADABLE


def _poll(message: discord.Message) -> Iterator[str]:
    if (poll := message.poll) is not None:
        yield f"[poll{', ended' if poll.is_finalised() else ''}] {poll.question}"
        yield from (f"- {answer.text or answer.emoji}: {answer.vote_count} votes" for answer in poll.answers)


def _embeds(message: discord.Message | discord.MessageSnapshot) -> Iterator[str]:
    yield from map(_embed, message.embeds)


def _embed(embed: discord.Embed) -> str:
    fields = [": ".join(filter(None, (field.name, field.value))) for field in embed.fields]
    title = f"{embed.title} ({embed.url})" if embed.title and embed.url else embed.title or embed.url
    image = "[image]" if embed.image.url or embed.thumbnail.url else ""
    lines = (embed.provider.name, embed.author.name, title, embed.description, *fields, image, embed.footer.text)
    return "\n".join(filter(None, lines)) or "[an embed without text]"


def _component(component: Any, depth: int) -> Iterator[str]:
    match component:
        case discord.TextDisplay(content=text):
            yield text
        case discord.Button(label=str(label)):
            yield f"[button: {label} ({component.url})]" if component.url else f"[button: {label}]"
        case discord.SelectMenu(options=options):
            choices = filter(None, (component.placeholder, *(option.label for option in options)))
            yield f"[choice: {', '.join(choices)}]"
        case discord.components.FileComponent(name=name):
            yield f"[file: {name or 'without a name'}]"
        case discord.MediaGalleryItem(description=text) | discord.components.ThumbnailComponent(description=text):
            yield f"[image: {text or ''}]"
        case _ if depth < DEEPEST:
            inner = [*getattr(component, "children", getattr(component, "items", ()))]
            for each in (*inner, getattr(component, "accessory", None)):
                yield from _component(each, depth + 1)
        case _:
            return
