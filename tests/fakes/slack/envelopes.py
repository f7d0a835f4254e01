"""The envelope of an event."""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass, field

from tests.fakes.slack.deliveries import Delivery, Kind, Post
from tests.fakes.slack.messages import Json
from tests.fakes.slack.state import SlackState
from tests.fakes.slack.workspace import Workspace


@dataclass
class Envelopes:
    """Wraps events and interactions and hands them to the post."""

    world: SlackState
    post: Post
    _events: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def event(self, workspace: Workspace, subscription: str, event: Json) -> None:
        """Send an event of the Events API."""
        app, installation = self.world.app, self.world.app.installations[workspace.team.id]
        place = event.get("channel")
        channel = workspace.channels.get(place) if isinstance(place, str) else None
        payload: Json = {
            "token": app.verification_token,
            "team_id": workspace.team.id,
            "context_team_id": workspace.team.id,
            "context_enterprise_id": workspace.team.enterprise,
            "api_app_id": app.id,
            "event": event,
            "type": "event_callback",
            "event_id": f"Ev{next(self._events):08d}",
            "event_time": int(self.world.clock.now()),
            "authorizations": [
                {
                    "enterprise_id": workspace.team.enterprise,
                    "team_id": None if installation.organization else workspace.team.id,
                    "user_id": installation.bot.id,
                    "is_bot": True,
                    "is_enterprise_install": bool(installation.organization),
                }
            ],
            "is_ext_shared_channel": bool(channel and channel.ext_shared),
            "event_context": f"4-{subscription}-{next(self._events)}",
        }
        self._send("events_api", payload)

    def interaction(self, payload: Json) -> Delivery:
        """Send the act of a user with a button, a modal or a shortcut."""
        return self._send("interactive", payload)

    def command(self, payload: Json) -> Delivery:
        """Send a slash command."""
        return self._send("slash_commands", payload)

    def _send(self, kind: Kind, payload: Json) -> Delivery:
        return self.post.send(Delivery(str(uuid.uuid4()), kind, payload))
