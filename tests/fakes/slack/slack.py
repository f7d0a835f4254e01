"""The fake Slack as a test drives it. The package's docstring shows how."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from tests.fakes.clock import Clock
from tests.fakes.slack import events
from tests.fakes.slack.apps import App
from tests.fakes.slack.calls import CallLog
from tests.fakes.slack.deliveries import Delivery, Post
from tests.fakes.slack.envelopes import Envelopes
from tests.fakes.slack.faults import Fault
from tests.fakes.slack.limits import Limits
from tests.fakes.slack.manifest import Manifest, shipped_manifest
from tests.fakes.slack.messages import Json, Message
from tests.fakes.slack.modals import Modals, View
from tests.fakes.slack.notifications import fetched_addresses, notified_ids
from tests.fakes.slack.oauth import OAuth
from tests.fakes.slack.pace import Pace
from tests.fakes.slack.people import Team, User, UserGroup
from tests.fakes.slack.places import Channel
from tests.fakes.slack.responses import ResponseUrls
from tests.fakes.slack.server import Server
from tests.fakes.slack.signed_posts import SignedPosts
from tests.fakes.slack.sockets import Sockets
from tests.fakes.slack.state import SlackState
from tests.fakes.slack.user_actions import UserActions
from tests.fakes.slack.web_api import WebApi
from tests.fakes.slack.workspace import Sight


class FakeSlack(UserActions):
    """`async with FakeSlack() as slack`: one app, installed in one workspace until `install` adds another."""

    def __init__(self, team: Team | None = None, manifest: Manifest | None = None) -> None:
        clock, app, limits = Clock(), App(manifest or shipped_manifest()), Limits()
        world = SlackState(clock, app, Modals(clock, limits), ResponseUrls(clock), Pace(clock), limits)
        sockets = Sockets(app.id, lambda: limits.connections)
        self.post = Post(clock, sockets)
        envelopes = Envelopes(world, self.post)
        super().__init__(world, team or Team(), envelopes)
        self.sockets = sockets
        self.posts: SignedPosts | None = None
        self._api = WebApi(world)
        self._server = Server(world, self._api, sockets)
        world.emit = envelopes.event
        world.socket_url = lambda: f"ws://127.0.0.1:{self._server.port}/link?ticket={sockets.ticket()}"

    async def __aenter__(self) -> FakeSlack:
        await self._server.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.post.close()
        if self.posts is not None:
            await self.posts.close()
        await self._server.close()
        if error is None and self.world.broken:
            raise self.world.broken[0]

    @property
    def url(self) -> str:
        """Value of SLACK_API_URL; ends with /api/."""
        return f"{self.world.base}/api/"

    @property
    def calls(self) -> CallLog:
        """Every call of the Web API, of response URLs ('response_url') and of file addresses ('upload', 'download')."""
        return self.world.calls

    @property
    def sent_deliveries(self) -> list[Delivery]:
        """All deliveries to the app, finished or not."""
        return self.post.sent

    @property
    def pace(self) -> Pace:
        """The rate limits."""
        return self.world.pace

    @property
    def limits(self) -> Limits:
        """Lifetimes and sizes a test may make smaller."""
        return self.world.limits

    @property
    def absent(self) -> set[str]:
        """Methods that this workspace answers with unknown_method."""
        return self.world.absent

    @property
    def oauth(self) -> OAuth:
        """The consent page, and the tokens that codes become."""
        return self._api.oauth

    def uninstall(self, team: Team) -> None:
        """Remove the app from a workspace, as its administrators do: revoke its token and send the events."""
        workspace, installation = self.world.workspaces[team.id], self.app.installations[team.id]
        installation.revoked = True
        self.world.emit(
            workspace, "tokens_revoked", {"type": "tokens_revoked", "tokens": {"bot": [installation.bot.id]}}
        )
        self.world.emit(workspace, "app_uninstalled", {"type": "app_uninstalled"})

    def revoke_access(self, team: Team) -> None:
        """Take one workspace out of an organization's installation. The app gets the event in another of its
        workspaces.
        """
        installations = self.app.installations
        installations[team.id].access_revoked = True
        other = next(each for each in installations.values() if each.organization and not each.access_revoked)
        event = {"type": "team_access_revoked", "team_ids": [team.id]}
        self.world.emit(self.world.workspaces[other.team.id], "team_access_revoked", event)

    def open_home(self, user: User, tab: str = "home") -> None:
        """Open the app's Home tab, or with 'messages' its direct message."""
        workspace = self.world.workspaces[user.team.id]
        event: Json = {
            "type": "app_home_opened",
            "user": user.id,
            "channel": self.dm(user).id,
            "tab": tab,
            "event_ts": workspace.new_ts(),
        }
        home = workspace.homes.get(user.id)
        if tab == "home" and home is not None:
            event["view"] = home.to_json()
        events.tell(self.world, workspace, "app_home_opened", event)

    def change_group(self, group: UserGroup, *users: User) -> None:
        """Set the users of a user group."""
        workspace = self.world.workspaces[group.team.id]
        before, group.users = set(group.users), [user.id for user in users]
        event: Json = {
            "type": "subteam_members_changed",
            "subteam_id": group.id,
            "team_id": group.team.id,
            "date_previous_update": 1700000000,
            "date_update": 1700000001,
            "added_users": [user for user in group.users if user not in before],
            "added_users_count": len(set(group.users) - before),
            "removed_users": sorted(before - set(group.users)),
            "removed_users_count": len(before - set(group.users)),
        }
        events.tell(self.world, workspace, "subteam_members_changed", event)

    def change_context(self, user: User) -> None:
        """Look at something else while the app's pane is open."""
        workspace = self.world.workspaces[user.team.id]
        event: Json = {"type": "app_context_changed", "user": user.id, "event_ts": workspace.new_ts()}
        events.tell(self.world, workspace, "app_context_changed", event)

    def stop(self, user: User, channel: Channel, thread_ts: str) -> None:
        """Press Slack's own Stop button of a session. Slack ends the streams in the thread itself.

        Raises:
            LookupError: no session is processing there, or the app did not subscribe to the event.
        """
        workspace = self.world.workspaces[channel.team.id]
        state = workspace.sessions.get((channel.id, thread_ts), {}).get("status")
        if state != "processing" or "agent_session_stopped" not in self.app.events:
            raise LookupError("there is no Stop button")
        stopped = [m for m in workspace.thread(channel.id, thread_ts) if m.stream is not None and m.stream.open]
        for message in stopped:
            assert message.stream is not None
            message.stream.open = False
        event: Json = {
            "type": "agent_session_stopped",
            "channel": channel.id,
            "user": user.id,
            "thread_ts": thread_ts,
            "streaming_message_ts": [m.ts for m in stopped],
            "event_ts": workspace.new_ts(),
        }
        events.tell(self.world, workspace, "agent_session_stopped", event)

    def tell(self, subscription: str, event: Json) -> None:
        """Send any other event as it is."""
        events.tell(self.world, self.workspace, subscription, event)

    # Visible state

    def what_user_sees(self, user: User, channel: Channel, thread_ts: str | None = None) -> list[Sight]:
        """Return the messages that the user sees now, including their ephemeral ones."""
        return self.world.workspaces[channel.team.id].sights(user.id, channel.id, thread_ts)

    def reload(self, user: User) -> None:
        """Restart the client of a user, without its ephemeral messages."""
        self.world.workspaces[user.team.id].reload(user.id)

    def modals(self, user: User) -> list[View]:
        """Return the stack of modals that a user has open."""
        return list(self.world.modals.stacks.get(user.id, []))

    def home(self, user: User) -> View | None:
        """Return a user's last published Home tab."""
        return self.world.workspaces[user.team.id].homes.get(user.id)

    def status(self, channel: Channel, thread_ts: str) -> str:
        """Return the status shown below a thread, '' without one."""
        shown = self.world.workspaces[channel.team.id].statuses.get((channel.id, thread_ts))
        if shown is None or self.clock.now() > shown["at"] + self.limits.status_lifetime:
            return ""
        return str(shown["status"])

    def trigger(self, user: User, from_view: str = "") -> str:
        """Return a fresh trigger_id, as after an interaction of the user, in a modal with `from_view`."""
        return self.world.modals.trigger(user.id, user.team.id, from_view)

    def bot_messages(self, channel: Channel, thread_ts: str | None = None) -> list[Message]:
        """Return the app's own messages in a channel or thread, ephemeral ones included, in order."""
        workspace = self.world.workspaces[channel.team.id]
        bot = self.app.installations[channel.team.id].bot.id
        kept = [m for m in workspace.messages.get(channel.id, {}).values() if m.user == bot and not m.deleted]
        return sorted((m for m in kept if thread_ts is None or m.root == thread_ts), key=lambda m: m.ts)

    def notified_ids(self, message: Message) -> set[str]:
        """Ids of users and groups, 'channel', 'here' and 'everyone' that a message notifies."""
        return notified_ids(message)

    def fetched_addresses(self, message: Message) -> set[str]:
        """Which addresses a message makes Slack fetch for a preview."""
        return fetched_addresses(message)

    async def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait until something is so.

        Raises:
            TimeoutError: it was not within these seconds of real time.
        """
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)

    # Trouble and transport

    def fail(self, method: str, fault: Fault, times: int = 1) -> None:
        """Let the next calls of a method meet a fault."""
        self.world.faults.plan(method, fault, times)

    async def go_down(self) -> None:
        """Close the port and every connection; `come_back` opens the same port again. Posts to apps go on."""
        await self._server.close()

    async def come_back(self) -> None:
        """Open the port again after `go_down`."""
        await self._server.open()

    def deliver_by_http(self, url: str) -> SignedPosts:
        """From now on send events, commands and interactions to this URL, not to sockets."""
        self.posts = SignedPosts(url, self.app.signing_secret)
        self.post.transport = self.posts
        return self.posts
