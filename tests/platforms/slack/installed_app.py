"""One app in several workspaces of the fake Slack, with browser installation and the real listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from urllib.parse import parse_qsl, urlsplit

from bot.chat.context import Lookups
from bot.domain.installations import InstallResult, InstallStarted
from bot.platforms.slack.app import SlackApp, open_slack
from bot.platforms.slack.diagnostics import SCOPES
from bot.platforms.slack.installer import REDIRECT_PATH, SlackInstaller
from bot.platforms.slack.listener import SlackListener
from bot.platforms.slack.workspaces import AppCredentials
from bot.storage.admin.installations import SqlInstallationStore
from bot.storage.encryption import SecretBox
from bot.storage.sqlite import open_sqlite
from tests.fakes.slack import Channel, FakeSlack, Team, User
from tests.migrated import create_database
from tests.platforms.fake_engine import FakeEngine, ScriptedCommands, SharedLeases

ADDRESS = "https://bot.example.com"
ACME, GLOBEX = Team(), Team("T0GLOBEX", "Globex", "globex")


@dataclass
class InstalledApp:
    """The app, first without installations. Ana is in Acme, Ben in Globex. Both users have the same id."""

    slack: FakeSlack
    store: SqlInstallationStore
    app: SlackApp
    installer: SlackInstaller
    ana: User
    ben: User
    rooms: dict[str, Channel]
    engine: FakeEngine = field(default_factory=FakeEngine)
    commands: ScriptedCommands = field(default_factory=ScriptedCommands)
    listening: asyncio.Task[None] | None = None

    async def install(self, user: User, *, allow: bool = True, organization: str = "", team: str = "") -> InstallResult:
        """Install the app as this user, through all pages in a browser."""
        started = self.installer.start(team)
        assert isinstance(started, InstallStarted)
        back = self.slack.oauth.consent(started.url, user, allow=allow, organization=organization)
        return await self.come_back(back, started.browser_secret)

    async def come_back(self, address: str, browser_secret: str) -> InstallResult:
        """Open Slack's redirect in the browser."""
        return await self.installer.finish(dict(parse_qsl(urlsplit(address).query)), browser_secret)

    def ask(self, user: User, text: str) -> None:
        """Mention the bot in the channel of a user's workspace."""
        bot = self.slack.app.installations[user.team.id].bot
        self.slack.say(user, self.rooms[user.team.id], f"{bot.mention} {text}")

    async def hears(self, *texts: str) -> None:
        """Wait until the engine has received these messages."""
        await self.slack.until(lambda: {*texts} <= {message.text for message in self.engine.received}, 20)

    def heard(self) -> set[tuple[str, str]]:
        """Return the workspace and text of each received message."""
        return {(message.conversation.workspace, message.text) for message in self.engine.received}


@asynccontextmanager
async def an_installed_app(
    folder: Path,
    *allowed: str,
    own: bool = False,
    teams: tuple[Team, Team] = (ACME, GLOBEX),
    rotation: bool = False,
    groups: frozenset[str] = frozenset(),
    clock: Callable[[], float] = time,
    listening: bool = True,
    records: Lookups | None = None,
) -> AsyncIterator[InstalledApp]:
    """The app. The workspaces in `allowed` may install it. `own`: SLACK_BOT_TOKEN belongs to the first workspace."""
    async with AsyncExitStack() as stack:
        slack = await stack.enter_async_context(FakeSlack(teams[0]))
        slack.pace.strict, slack.app.rotation = False, rotation
        slack.installation.revoked = not own
        slack.oauth.redirect_uris.add(f"{ADDRESS}{REDIRECT_PATH}")
        other = slack.prepare(teams[1])
        ana = slack.user("Ana", user_id="U0SAME001", admin=True)
        ben = slack.user("Ben", user_id="U0SAME001", workspace=other)
        rooms = {
            teams[0].id: slack.channel("incidents", ana, channel_id="C0FIRST01"),
            teams[1].id: slack.channel("incidents", ben, workspace=other, channel_id="C0OTHER01"),
        }
        database = open_sqlite(await create_database(folder / "turns.db"))
        stack.push_async_callback(database.close)
        store = SqlInstallationStore(database, SecretBox((b"k" * 32,)))
        credentials = AppCredentials(slack.app.client_id, slack.app.client_secret)
        app = await stack.enter_async_context(
            open_slack(slack.bot_token if own else "", url=slack.url, groups=groups, allowed=frozenset(allowed))
        )
        app.use_installations(store, credentials, SharedLeases())
        installer = SlackInstaller(
            credentials,
            store,
            app.workspaces,
            app.factory.app_api,
            address=ADDRESS,
            allowed=frozenset(allowed),
            scopes=[scope.name for scope in SCOPES],
            clock=clock,
        )
        place = InstalledApp(slack, store, app, installer, ana, ben, rooms)
        if listening:
            listener = SlackListener(
                app.workspaces, app.factory.app_api, app_token=slack.app.app_token, records=records
            )
            place.listening = asyncio.create_task(listener.run(place.engine, place.commands))
            stack.push_async_callback(_cancel_task, place.listening)
            await slack.sockets.wait_for_connections()
        yield place


async def _cancel_task(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
