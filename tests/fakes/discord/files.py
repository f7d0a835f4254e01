"""Attachments: uploads of users and the app, and their addresses."""

from __future__ import annotations

import mimetypes
from dataclasses import dataclass

from tests.fakes.discord.refusals import Json


@dataclass
class StoredFile:
    """One attachment with its bytes; `url` is the fake's own address."""

    id: str
    name: str
    content: bytes
    url: str
    description: str | None = None
    spoiler: bool = False

    @property
    def kind(self) -> str:
        """The content type, guessed from the name as Discord does."""
        guessed = mimetypes.guess_type(self.name)[0] or "application/octet-stream"
        return f"{guessed}; charset=utf-8" if guessed.startswith("text/") else guessed

    def to_json(self) -> Json:
        """Return the attachment object."""
        described: Json = {
            "id": self.id,
            "filename": self.name,
            "size": len(self.content),
            "url": self.url,
            "proxy_url": self.url,
            "content_type": self.kind,
        }
        if self.kind.startswith("image/"):
            described |= {"width": 1, "height": 1}
        return described | ({"description": self.description} if self.description else {})
