"""Embeds: the older kind of card, which the app should not need but may send."""

from __future__ import annotations

from typing import Any

from tests.fakes.discord.checks import objects, only, text
from tests.fakes.discord.refusals import Json, invalid

MOST, MOST_CHARACTERS = 10, 6000
NAMES = (
    "title",
    "type",
    "description",
    "url",
    "timestamp",
    "color",
    "footer",
    "image",
    "thumbnail",
    "author",
    "fields",
)


def checked_embeds(given: Any) -> list[Json]:
    """Return the embeds of a message.

    Raises:
        Refused: 50035.
    """
    embeds = objects("embeds", given, MOST)
    total = 0
    for n, embed in enumerate(embeds):
        where = f"embeds.{n}"
        only(where, embed, *NAMES, "flags", "video", "provider")
        total += len(text(where, embed, "title", 256)) + len(text(where, embed, "description", 4096))
        total += len(text(f"{where}.footer", embed.get("footer") or {}, "text", 2048))
        total += len(text(f"{where}.author", embed.get("author") or {}, "name", 256))
        for m, each in enumerate(objects(f"{where}.fields", embed.get("fields") or [], 25)):
            total += len(text(f"{where}.fields.{m}", each, "name", 256, least=1, needed=True))
            total += len(text(f"{where}.fields.{m}", each, "value", 1024, least=1, needed=True))
    if total > MOST_CHARACTERS:
        message = f"Embed size exceeds maximum size of {MOST_CHARACTERS}"
        raise invalid("embeds", "MAX_EMBED_SIZE_EXCEEDED", message)
    return embeds
