"""Teams, users, user groups, and their JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Team:
    """A workspace as others name it."""

    id: str = "T0ACME"
    name: str = "Acme"
    domain: str = "acme"
    enterprise: str | None = None


@dataclass
class User:
    """A user or a bot. `guest` is '' for members, 'multi' (is_restricted) or 'single' (also is_ultra_restricted)."""

    id: str
    name: str
    team: Team
    admin: bool = False
    owner: bool = False
    primary_owner: bool = False
    guest: str = ""
    bot_id: str = ""
    app_id: str = ""
    stranger: bool = False
    deleted: bool = False
    workflow: bool = False
    email: str = ""
    locale: str = "en-US"
    time_zone: str = "Europe/Lisbon"

    @property
    def mention(self) -> str:
        """The text that Slack inserts for a typed @name."""
        return f"<@{self.id}>"

    def to_json(self) -> dict[str, Any]:
        """Return the `user` object of users.info."""
        real_name = self.name
        handle = self.name.lower().replace(" ", ".")
        profile: dict[str, Any] = {
            "real_name": real_name,
            "real_name_normalized": real_name,
            "display_name": handle,
            "display_name_normalized": handle,
            "team": self.team.id,
            "image_48": f"https://avatars.slack-edge.com/{self.id}_48.png",
        }
        if self.bot_id:
            profile |= {"bot_id": self.bot_id, "api_app_id": self.app_id, "always_active": True}
        described: dict[str, Any] = {
            "id": self.id,
            "team_id": self.team.id,
            "name": handle,
            "deleted": self.deleted,
            "profile": profile,
            "is_bot": bool(self.bot_id),
            "is_app_user": False,
            "updated": 1700000000,
        }
        if self.deleted:
            return described
        described |= {
            "real_name": real_name,
            "tz": self.time_zone,
            "tz_label": self.time_zone.replace("_", " "),
            "tz_offset": 0,
            "is_admin": self.admin or self.owner or self.primary_owner,
            "is_owner": self.owner or self.primary_owner,
            "is_primary_owner": self.primary_owner,
            "is_restricted": bool(self.guest),
            "is_ultra_restricted": self.guest == "single",
            "is_workflow_bot": self.workflow,
        }
        if self.stranger:
            described["is_stranger"] = True
        if self.team.enterprise:
            described["enterprise_user"] = {
                "id": self.id.replace("U", "W", 1),
                "enterprise_id": self.team.enterprise,
                "is_admin": False,
                "is_owner": False,
                "teams": [self.team.id],
            }
        return described


@dataclass
class UserGroup:
    """Users who can be mentioned together, such as @ops-approvers."""

    id: str
    handle: str
    team: Team
    users: list[str] = field(default_factory=list)
    disabled: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return one of the `usergroups` of usergroups.list."""
        return {
            "id": self.id,
            "team_id": self.team.id,
            "is_usergroup": True,
            "name": self.handle,
            "handle": self.handle,
            "description": "",
            "is_external": False,
            "date_create": 1700000000,
            "date_update": 1700000000,
            "date_delete": 1700000000 if self.disabled else 0,
            "user_count": len(self.users),
        }
