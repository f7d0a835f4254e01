"""State of the fake: the app, its workspaces, modals, files, deliveries, the log."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.fakes.clock import Clock
from tests.fakes.slack.apps import App, Installation
from tests.fakes.slack.calls import CallLog
from tests.fakes.slack.faults import Faults
from tests.fakes.slack.limits import Limits
from tests.fakes.slack.messages import Json
from tests.fakes.slack.pace import Pace
from tests.fakes.slack.refusals import Refused
from tests.fakes.slack.workspace import Workspace

if TYPE_CHECKING:
    from tests.fakes.slack.modals import Modals
    from tests.fakes.slack.responses import ResponseUrls


@dataclass
class SlackState:
    """The state that methods, sockets and the driver share."""

    clock: Clock
    app: App
    modals: Modals
    response_urls: ResponseUrls
    pace: Pace
    limits: Limits
    workspaces: dict[str, Workspace] = field(default_factory=dict)
    calls: CallLog = field(default_factory=CallLog)
    faults: Faults = field(default_factory=Faults)
    absent: set[str] = field(default_factory=set)
    """Methods this workspace does not have, as older plans and GovSlack do not."""
    unsupported_blocks: set[str] = field(default_factory=set)
    """Kinds of blocks that this workspace does not take."""
    broken: list[Exception] = field(default_factory=list)
    """Errors of the fake itself; they end the test."""
    uploads: dict[str, Any] = field(default_factory=dict)
    base: str = ""
    socket_url: Callable[[], str] = lambda: ""
    emit: Callable[[Workspace, str, Json], None] = lambda workspace, subscription, event: None
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def installation_of(self, token: str, arguments: Json | None = None) -> Installation | None:
        """Return the installation with this bot token.

        With an organization's token, it is the installation in the workspace of the call's arguments.
        """
        known = [each for each in self.app.installations.values() if token in {each.token, *each.earlier}]
        known.sort(key=lambda installation: installation.access_revoked)
        if len(known) < 2:
            return known[0] if known else None
        ids = {value for value in (arguments or {}).values() if isinstance(value, str)}
        for installation in known:
            workspace = self.workspaces[installation.team.id]
            if ids & {installation.team.id, *workspace.channels, *workspace.users, *workspace.files}:
                return installation
        return known[0]


@dataclass(frozen=True)
class Caller:
    """Caller of a method: the world, and for a bot token the installation and its workspace."""

    world: SlackState
    token: str
    installation: Installation | None

    @property
    def bot(self) -> Installation:
        """The installation.

        Raises:
            Refused: not_allowed_token_type, for an app-level token.
        """
        if self.installation is None:
            raise Refused("not_allowed_token_type")
        return self.installation

    @property
    def workspace(self) -> Workspace:
        """The workspace the token is for."""
        return self.world.workspaces[self.bot.team.id]

    def now(self) -> float:
        """Return the time."""
        return self.world.clock.now()
