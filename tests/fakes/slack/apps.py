"""The app under test: its tokens, the scopes they carry, the events it subscribed to."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.fakes.slack.manifest import Manifest
from tests.fakes.slack.people import Team, User

EVENT_SCOPES = {
    "app_mention": "app_mentions:read",
    "message.im": "im:history",
    "message.mpim": "mpim:history",
    "message.channels": "channels:history",
    "message.groups": "groups:history",
}
"""An event without its scope is never sent, subscribed or not."""


@dataclass
class Installation:
    """The app in one workspace: its bot user and its bot token."""

    team: Team
    bot: User
    token: str
    scopes: set[str]
    revoked: bool = False
    organization: str = ""
    """The organization for which the app was installed; all of its workspaces have the same token."""
    access_revoked: bool = False
    """The token of the organization is for this workspace no more."""
    refresh_token: str = ""
    expires_at: float | None = None
    earlier: dict[str, float | None] = field(default_factory=dict)
    """Tokens that were renewed, and when each expires."""


@dataclass
class App:
    """The app as its manifest registers it with Slack, and where it is installed."""

    manifest: Manifest

    id: str = "A0COUNTER"
    app_token: str = "xapp-1-A0COUNTER-1-fake"
    client_id: str = "1111.2222"
    client_secret: str = "c11e57-s3cr37-0f-th3-4pp"
    rotation: bool = False
    """True if the app has token rotation: tokens live for twelve hours."""
    app_scopes: set[str] = field(default_factory=lambda: {"connections:write"})
    signing_secret: str = "8f742231b10e8888abcd99yyyzzz85a5"
    verification_token: str = "Jhj5dZrVaK7ZwHHjRyZWjbDl"
    installations: dict[str, Installation] = field(default_factory=dict)
    mention_first: bool = True
    """Of the two events of a mention, `app_mention` is sent first. Slack promises no order."""
    events: set[str] = field(init=False)
    commands: set[str] = field(init=False)
    shortcuts: set[str] = field(init=False)
    agent: bool = field(init=False)
    """True if the app has `features.agent_view`."""

    def __post_init__(self) -> None:
        self.events, self.commands = set(self.manifest.events), set(self.manifest.commands)
        self.shortcuts, self.agent = set(self.manifest.shortcuts), self.manifest.agent

    def hears(self, event: str, team: str) -> bool:
        """Is this event sent to the app for this workspace?"""
        installation = self.installations.get(team)
        if installation is None or installation.revoked or installation.access_revoked or event not in self.events:
            return False
        scope = EVENT_SCOPES.get(event)
        return scope is None or scope in installation.scopes
