"""Channels, direct messages, and their JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from tests.fakes.slack.people import Team

Kind = Literal["channel", "group", "im", "mpim"]
"""Slack's `channel_type`: a public channel, a private one, a direct message, a direct message among several."""


@dataclass
class Channel:
    """One conversation. `members`: user ids in the order they came. `ext_shared`: shared by Slack Connect."""

    id: str
    name: str
    kind: Kind
    team: Team
    members: list[str] = field(default_factory=list)
    ext_shared: bool = False
    archived: bool = False
    streams: bool = True
    posting_restricted: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the `channel` object of conversations.info."""
        described: dict[str, Any] = {
            "id": self.id,
            "created": 1700000000,
            "is_channel": self.kind == "channel",
            "is_group": self.kind == "group",
            "is_im": self.kind == "im",
            "is_mpim": self.kind == "mpim",
            "is_private": self.kind != "channel",
            "is_archived": self.archived,
            "is_org_shared": False,
            "is_shared": self.ext_shared,
            "is_ext_shared": self.ext_shared,
            "context_team_id": self.team.id,
            "updated": 1700000000000,
        }
        if self.kind == "im":
            return described | {"user": self.members[0], "is_open": True}
        return described | {
            "name": self.name,
            "name_normalized": self.name,
            "is_general": False,
            "creator": self.members[0] if self.members else "",
            "topic": {"value": "", "creator": "", "last_set": 0},
            "purpose": {"value": "", "creator": "", "last_set": 0},
        }
