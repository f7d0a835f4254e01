"""Content of the workspaces: users, channels and groups."""

from __future__ import annotations

from tests.fakes.slack.apps import Installation
from tests.fakes.slack.people import Team, User, UserGroup
from tests.fakes.slack.places import Channel, Kind
from tests.fakes.slack.state import SlackState
from tests.fakes.slack.workspace import Workspace


class Factories:
    """The app's workspaces and their users. The first workspace is the default."""

    def __init__(self, world: SlackState, team: Team) -> None:
        self.world, self.clock, self.app = world, world.clock, world.app
        self.installation = self.install(team)
        self.workspace = world.workspaces[team.id]

    @property
    def bot(self) -> User:
        """The app's bot user in the first workspace."""
        return self.installation.bot

    @property
    def bot_token(self) -> str:
        """The bot token of the first workspace."""
        return self.installation.token

    def prepare(self, team: Team) -> Workspace:
        """Add a workspace in which the app is not installed."""
        self.install(team).revoked = True
        return self.world.workspaces[team.id]

    def install(self, team: Team) -> Installation:
        """Install the app in a (further) workspace."""
        workspace = Workspace(team, self.clock)
        number = len(self.world.workspaces) + 1
        bot = User(f"U0BOT{number:04d}", "Countersign", team, bot_id=f"B0BOT{number:04d}", app_id=self.app.id)
        workspace.users[bot.id] = bot
        self.world.workspaces[team.id] = workspace
        installation = Installation(team, bot, f"xoxb-{number}-fake-{team.id.lower()}", set(self.app.manifest.scopes))
        self.app.installations[team.id] = installation
        return installation

    def user(
        self,
        name: str,
        *,
        team: Team | None = None,
        workspace: Workspace | None = None,
        user_id: str = "",
        admin: bool = False,
        owner: bool = False,
        guest: str = "",
        stranger: bool = False,
        deleted: bool = False,
        email: str = "",
    ) -> User:
        """Add a user. A `stranger` with a separate `team` comes by Slack Connect; `guest` is 'multi' or 'single'."""
        home = workspace or self.workspace
        user = User(
            user_id or home.new_id("U"),
            name,
            team or home.team,
            admin=admin,
            owner=owner,
            guest=guest,
            stranger=stranger,
            deleted=deleted,
            email=email,
        )
        home.users[user.id] = user
        return user

    def other_bot(self, name: str) -> User:
        """Another app's bot."""
        bot = User(self.workspace.new_id("U"), name, self.workspace.team, bot_id=self.workspace.new_id("B"))
        bot.app_id = self.workspace.new_id("A")
        self.workspace.users[bot.id] = bot
        return bot

    def group(self, handle: str, *users: User) -> UserGroup:
        """Add a user group."""
        group = UserGroup(self.workspace.new_id("S"), handle, self.workspace.team, [user.id for user in users])
        self.workspace.groups[group.id] = group
        return group

    def channel(
        self,
        name: str,
        *members: User,
        kind: Kind = "channel",
        ext_shared: bool = False,
        workspace: Workspace | None = None,
        channel_id: str = "",
        with_bot: bool = True,
    ) -> Channel:
        """Add a channel with these members, and with the app's bot by default."""
        home = workspace or self.workspace
        bots = [self.app.installations[home.team.id].bot.id] if with_bot else []
        ids = list(dict.fromkeys([*(member.id for member in members), *bots]))
        channel = Channel(channel_id or home.new_id("C"), name, kind, home.team, ids, ext_shared)
        home.channels[channel.id] = channel
        return channel

    def dm(self, user: User) -> Channel:
        """Return the direct message between a user and the app."""
        workspace = self.world.workspaces[user.team.id]
        return workspace.dm(user.id, self.app.installations[user.team.id].bot.id)
