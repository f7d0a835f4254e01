"""Checks of the Slack setup for `countersign doctor`.

Nothing is posted. The socket is not opened, because a second connection would take events from a running bot.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from time import monotonic

from bot.domain.conversations import ConversationKey
from bot.domain.health import Check, CheckStatus
from bot.errors import CountersignError
from bot.platforms.slack.listener import socket_url
from bot.platforms.slack.web_api import Identity, WebApi

# -------------------- scopes
# `config/slack_manifest.yaml` requests exactly these.


@dataclass(frozen=True, slots=True)
class Scope:
    """One OAuth scope of the bot's token: its purpose, which completes "without it …", and the methods and events that
    need it.
    """

    name: str
    without: str
    methods: tuple[str, ...] = ()
    events: tuple[str, ...] = ()


SCOPES = (
    Scope("app_mentions:read", "no user can ask the bot in a channel", events=("app_mention",)),
    Scope(
        "assistant:write",
        "the Messages tab has no agent view, no titles and suggestions, and Slack's own Stop button is missing",
        ("agents.sessions.setStatus", "agents.sessions.rename", "assistant.threads.setSuggestedPrompts"),
        events=("agent_session_stopped", "app_context_changed"),
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
            "assistant.threads.setStatus",
        ),
    ),
    Scope("commands", "there is no /mcp, /profile, /conversations, /usage or /approvals, and no shortcut"),
    Scope(
        "channels:history",
        "threads of public channels need a mention each time, and earlier messages are unknown",
        ("conversations.replies", "conversations.history"),
        ("message.channels",),
    ),
    Scope("channels:read", "mentioned public channels have no name", ("conversations.info",)),
    Scope(
        "groups:history",
        "threads of private channels need a mention each time, and earlier messages are unknown",
        ("conversations.replies", "conversations.history"),
        ("message.groups",),
    ),
    Scope("groups:read", "mentioned private channels have no name", ("conversations.info",)),
    Scope(
        "im:history",
        "direct messages do not arrive",
        ("conversations.replies", "conversations.history"),
        ("message.im",),
    ),
    Scope("im:write", "the bot cannot start a direct message", ("conversations.open",)),
    Scope(
        "mpim:history",
        "group messages do not arrive",
        ("conversations.replies", "conversations.history"),
        ("message.mpim",),
    ),
    Scope("files:read", "attached files cannot be read", ("files.info",)),
    Scope(
        "files:write",
        "images and files of tools cannot be shown",
        ("files.getUploadURLExternal", "files.completeUploadExternal", "files.delete"),
    ),
    Scope(
        "reactions:write",
        "a question has no 👀 while Slack shows no status of the bot",
        ("reactions.add", "reactions.remove"),
    ),
    Scope("users:read", "names are missing, and administrators and guests are not recognized", ("users.info",)),
    Scope(
        "usergroups:read",
        "user groups cannot be admins or approvers",
        ("usergroups.list",),
        ("subteam_created", "subteam_members_changed", "subteam_updated"),
    ),
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
    """Return the scopes that a token lacks. Slack lists the granted ones in the header `x-oauth-scopes`."""
    names = frozenset(each.strip() for each in granted)
    return tuple(scope for scope in SCOPES if scope.name not in names)


WAYS = "set SLACK_APP_TOKEN (Socket Mode) or SLACK_SIGNING_SECRET (HTTP), or run this process with --only worker"
OPS_CHANNEL = "ops channel"
INVITE = "type /invite and the bot's name in the channel"
UNSAID = "Slack did not say what the token may do, so its scopes were not looked at."
SECRET = "Requests are taken at /slack/events. Whether the secret is the app's shows when the first one comes."  # noqa: S105


async def diagnose(api: WebApi, *, app_token: str = "", signing_secret: str = "") -> AsyncGenerator[Check, None]:
    """Check the bot's token, its scopes, and the transports by which Slack can reach the bot."""
    began = monotonic()
    try:
        identity = await api.identity()
    except CountersignError as error:
        yield Check("token", CheckStatus.BROKEN, error.detailed_cause, error.fix)
    else:
        yield _of_token(identity, monotonic() - began)
        for check in _of_scopes(identity):
            yield check
    if app_token:
        yield await _of_socket(api, app_token)
    if signing_secret:
        yield Check("HTTP", CheckStatus.SKIPPED, SECRET)
    if not (app_token or signing_secret):
        yield Check(
            "way in", CheckStatus.BROKEN, "Slack has no way to reach the bot: it can draw, but hears nothing.", WAYS
        )


async def diagnose_channel(api: WebApi, channel: ConversationKey, named_by: str = "OPS_CHANNEL") -> Check:
    """Check that the bot may post in a channel, which `named_by` names. Nothing is posted."""
    began = monotonic()
    try:
        identity = await api.identity()
        answer = await api.read("conversations.info", channel=channel.channel)
    except CountersignError as error:
        return Check(OPS_CHANNEL, CheckStatus.BROKEN, error.cause, f"correct {named_by}, or {error.fix or INVITE}")
    info, fault, fix = answer.get("channel"), "", ""
    facts = info if isinstance(info, dict) else {}
    if channel.workspace and channel.workspace != identity.team:
        fault, fix = f"It is in workspace {channel.workspace}, the bot is in {identity.team}.", f"correct {named_by}"
    elif facts.get("is_archived"):
        fault, fix = "It is archived.", f"name another channel in {named_by}"
    elif not (facts.get("is_member") or facts.get("is_im")):
        fault, fix = "The bot is not in it.", INVITE
    if fault:
        return Check(OPS_CHANNEL, CheckStatus.BROKEN, fault, fix)
    return Check(OPS_CHANNEL, CheckStatus.WELL, "The bot may post in it.", seconds=monotonic() - began)


def _of_token(identity: Identity, seconds: float) -> Check:
    where = f"{identity.name} in {identity.url or identity.team} ({identity.team})"
    if not identity.bot:
        fix = "set SLACK_BOT_TOKEN to the app's Bot User OAuth Token (xoxb-…)"
        return Check("token", CheckStatus.BROKEN, f"It is a person's, not a bot's: {where}.", fix, seconds)
    return Check("token", CheckStatus.WELL, f"It is {where}.", seconds=seconds)


def _of_scopes(identity: Identity) -> list[Check]:
    if not identity.scopes:
        return [Check("scopes", CheckStatus.DOUBTFUL, UNSAID)]
    lacking = missing(identity.scopes)
    return [
        Check(
            f"scope {scope.name}",
            CheckStatus.BROKEN,
            f"It is missing: without it {scope.without}.",
            f"add {scope.name} under OAuth & Permissions of the app, install it again, and set the new SLACK_BOT_TOKEN",
        )
        for scope in lacking
    ] or [Check("scopes", CheckStatus.WELL, "All that are used are there.")]


async def _of_socket(api: WebApi, app_token: str) -> Check:
    began = monotonic()
    try:
        await socket_url(api, app_token)
    except CountersignError as error:
        return Check("Socket Mode", CheckStatus.BROKEN, error.detailed_cause, error.fix)
    return Check("Socket Mode", CheckStatus.WELL, "Slack offers a connection.", seconds=monotonic() - began)
