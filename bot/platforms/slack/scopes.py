"""What the app may do in a workspace, and what for.

Read by `countersign doctor`, which names what is missing; `config/slack_manifest.yaml` asks for exactly this. It is
data only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scope:
    """One permission of the bot's token: what it is for, in words that finish "without it …", the methods that need
    it, and the events that come only with it.
    """

    name: str
    without: str
    methods: tuple[str, ...] = ()
    events: tuple[str, ...] = ()


SCOPES = (
    Scope("app_mentions:read", "nobody can ask the bot in a channel", events=("app_mention",)),
    Scope(
        "assistant:write",
        "the Messages tab has no agent view, and Slack's own Stop button is missing",
        ("agents.sessions.setStatus",),
        events=("agent_session_stopped",),
    ),
    Scope(
        "chat:write",
        "the bot cannot answer, and cannot ask for an approval",
        (
            "chat.postMessage",
            "chat.update",
            "chat.delete",
            "chat.postEphemeral",
            "chat.startStream",
            "chat.appendStream",
            "chat.stopStream",
        ),
    ),
    Scope("commands", "there is no /mcp, /profile, /conversations or /usage, and no shortcut"),
    Scope(
        "channels:history",
        "threads of public channels do not go on without a mention, and what was said before is unknown",
        ("conversations.replies", "conversations.history"),
        ("message.channels",),
    ),
    Scope("channels:read", "public channels that a message names have no name", ("conversations.info",)),
    Scope(
        "groups:history",
        "threads of private channels do not go on without a mention, and what was said before is unknown",
        ("conversations.replies", "conversations.history"),
        ("message.groups",),
    ),
    Scope("groups:read", "private channels that a message names have no name", ("conversations.info",)),
    Scope(
        "im:history",
        "direct messages do not arrive",
        ("conversations.replies", "conversations.history"),
        ("message.im",),
    ),
    Scope("im:write", "the bot cannot write to a person first", ("conversations.open",)),
    Scope(
        "mpim:history",
        "group messages do not arrive",
        ("conversations.replies", "conversations.history"),
        ("message.mpim",),
    ),
    Scope("files:read", "files that people attach cannot be read", ("files.info",)),
    Scope(
        "files:write",
        "images and files of tools cannot be shown",
        ("files.getUploadURLExternal", "files.completeUploadExternal"),
    ),
    Scope("users:read", "nobody has a name, and nobody is known as an administrator or a guest", ("users.info",)),
    Scope("usergroups:read", "user groups cannot be admins or approvers", ("usergroups.list",)),
)
"""Every scope of the bot's token."""

WITHOUT_SCOPE = frozenset(
    {"auth.test", "apps.connections.open", "views.open", "views.push", "views.update", "views.publish"}
)
"""Methods that need no scope of the bot's token. `apps.connections.open` takes the app's token, with
`connections:write`.
"""
EVENTS_WITHOUT_SCOPE = ("app_home_opened", "app_uninstalled", "tokens_revoked")
EVENTS = tuple(dict.fromkeys((*(event for scope in SCOPES for event in scope.events), *EVENTS_WITHOUT_SCOPE)))
"""Every event that is subscribed to."""


def missing(granted: Iterable[str]) -> tuple[Scope, ...]:
    """The scopes that a token has not got. Slack names what it has in the header `x-oauth-scopes` of every answer."""
    names = frozenset(each.strip() for each in granted)
    return tuple(scope for scope in SCOPES if scope.name not in names)
