"""Files in a workspace: bytes with a name, and how Slack describes them."""

from __future__ import annotations

import mimetypes
from dataclasses import dataclass, field
from typing import Any


@dataclass
class StoredFile:
    """A file. `url` serves its bytes for tokens with `files:read`. `shared_in` are channel ids.

    With `check_info`, messages hold only its id, as in channels of Slack Connect; files.info returns the rest.
    """

    id: str
    name: str
    content: bytes
    user: str
    url: str
    title: str = ""
    mimetype: str = ""
    external: bool = False
    alt_text: str = ""
    complete: bool = True
    check_info: bool = False
    shared_in: list[str] = field(default_factory=list)

    def to_message_json(self) -> dict[str, Any]:
        """Return the `file` object of a message."""
        if self.check_info:
            return {"id": self.id, "mode": "file_access", "file_access": "check_file_info"}
        return self.to_json()

    def to_json(self) -> dict[str, Any]:
        """Return the `file` object of files.info."""
        mimetype = self.mimetype or mimetypes.guess_type(self.name)[0] or "application/octet-stream"
        described: dict[str, Any] = {
            "id": self.id,
            "created": 1700000000,
            "timestamp": 1700000000,
            "name": self.name,
            "title": self.title or self.name,
            "mimetype": mimetype,
            "filetype": self.name.rpartition(".")[2],
            "user": self.user,
            "size": len(self.content),
            "mode": "external" if self.external else "hosted",
            "is_external": self.external,
            "url_private": self.url,
            "url_private_download": self.url,
            "permalink": f"https://acme.slack.com/files/{self.user}/{self.id}/{self.name}",
        }
        return described | ({"alt_txt": self.alt_text} if self.alt_text else {})
