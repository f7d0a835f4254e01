"""The application under test, as the developer portal has it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.fakes.discord.people import User
from tests.fakes.discord.refusals import Json

GUILD_INSTALL, USER_INSTALL = 0, 1
PRESENCE, MEMBERS, CONTENT = 1 << 12, 1 << 14, 1 << 18
"""The application's flags for privileged intents; of an app in fewer than a hundred servers each is the next bit."""


@dataclass
class App:
    """The application. The three booleans are the switches for privileged intents in the portal."""

    id: str
    bot: User
    token: str
    name: str = "Countersign"
    message_content: bool = True
    guild_members: bool = False
    presences: bool = False
    large: bool = False
    """Is it in a hundred servers or more?"""
    public: bool = True
    endpoint: str | None = None
    """The Interactions Endpoint URL of the portal. Nothing is posted to it."""
    owner: User | None = None
    user_install: bool = False
    """The portal's switch for installations by users, beside those in guilds."""
    installed_by: set[str] = field(default_factory=set)
    """Ids of the users who have installed the app for their account."""
    commands: dict[str, list[Json]] = field(default_factory=dict)
    """Registered commands, under ''."""

    @property
    def flags(self) -> int:
        """The application's flags."""
        switches = ((self.presences, PRESENCE), (self.guild_members, MEMBERS), (self.message_content, CONTENT))
        return sum(flag if self.large else flag << 1 for on, flag in switches if on)

    @property
    def installations(self) -> tuple[int, ...]:
        """Kinds of installation that the portal allows."""
        return (GUILD_INSTALL, USER_INSTALL) if self.user_install else (GUILD_INSTALL,)

    def to_json(self) -> Json:
        """Return the application object."""
        owner = self.owner or User("1", "Owner")
        return {
            "id": self.id,
            "name": self.name,
            "icon": None,
            "description": "",
            "summary": "",
            "bot_public": self.public,
            "bot_require_code_grant": False,
            "verify_key": "0" * 64,
            "owner": owner.to_json(),
            "team": None,
            "flags": self.flags,
            "bot": self.bot.to_json(),
            "interactions_endpoint_url": self.endpoint,
            "integration_types_config": {str(kind): {} for kind in self.installations},
        }
