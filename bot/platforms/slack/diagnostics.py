"""Checks of the Slack setup for `countersign doctor`, and Slack's part of the checks on a live workspace
(`bot.chat.live_check`).

`diagnose` posts nothing. The socket is not opened, because a second connection would take events from a running bot.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Collection, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import monotonic, time

from bot.chat.live_check import MARK, LivePlatform
from bot.chat.message_model import Heading, Markdown
from bot.domain.conversations import ConversationKey
from bot.domain.installations import Installation
from bot.errors import CountersignError, DeliveryFailed, NotFound
from bot.examination import Check, CheckDoubtful, CheckSkipped, CheckStatus
from bot.i18n import LazyFields, _, gettext_lazy
from bot.platforms.slack.listener import socket_url
from bot.platforms.slack.manifest import scopes_without
from bot.platforms.slack.message_blocks import outgoing_message
from bot.platforms.slack.sending import EYES, LATEST, NOT_AVAILABLE, SET_STATUS, SlackMessages
from bot.platforms.slack.web_api import (
    Identity,
    MessageRef,
    SlackWebApiError,
    WebApi,
    conversation,
    direct_channel,
    object_in,
    objects_in,
)
from bot.rendering.text_safety import single_line

WITHOUT_SCOPE = frozenset(
    {
        "auth.test",
        "auth.revoke",
        "auth.teams.list",
        "apps.connections.open",
        "oauth.v2.access",
        "views.open",
        "views.push",
        "views.update",
        "views.publish",
    }
)
"""Methods that need no scope of the bot's token. `apps.connections.open` takes the app's token, with
`connections:write`.
"""
OPTIONAL_SCOPES = {"conversations.join": "channels:join"}
"""Methods that the setup uses if the app has their scopes, which the manifest does not request."""
EVENTS_WITHOUT_SCOPE = ("app_home_opened", "app_uninstalled", "tokens_revoked")
WAYS = gettext_lazy(
    "set SLACK_APP_TOKEN (Socket Mode) or SLACK_SIGNING_SECRET (HTTP), or run this process with --only worker"
)
OPS_CHANNEL = gettext_lazy("ops channel")
_TOKEN = gettext_lazy("token")
INVITE = gettext_lazy("type /invite and the bot's name in the channel")
UNSAID = gettext_lazy("Slack did not say what the token may do, so its scopes were not looked at.")
SECRET = gettext_lazy(
    "Requests are taken at /slack/events. Whether the secret is the app's shows when the first one comes."
)
_TABLE = "| pool | before | after |\n|---|---:|---:|\n| payments | 200 | 20 |\n| sessions | 50 | 50 |"

# -------------------- scopes
# `config/slack_manifest.yaml` requests exactly these.


@dataclass(frozen=True, slots=True)
class Scope(LazyFields):
    """One OAuth scope of the bot's token: its purpose, which completes "without it …", and the methods and events that
    need it.
    """

    TEXTS = ("without",)
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
        events=("agent_session_stopped", "agent_session_title_changed", "app_context_changed"),
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
    Scope("commands", "there is no /mcp, /profile, /ask or other command, and no shortcut"),
    Scope(
        "channels:history",
        "threads of public channels need a mention each time, and earlier messages are unknown",
        ("conversations.replies", "conversations.history"),
        ("message.channels",),
    ),
    Scope(
        "channels:read",
        "mentioned public channels have no name",
        ("conversations.info", "conversations.list", "users.conversations"),
    ),
    Scope(
        "groups:history",
        "threads of private channels need a mention each time, and earlier messages are unknown",
        ("conversations.replies", "conversations.history"),
        ("message.groups",),
    ),
    Scope("groups:read", "mentioned private channels have no name", ("conversations.info", "users.conversations")),
    Scope(
        "im:history",
        "direct messages do not arrive",
        ("conversations.replies", "conversations.history"),
        ("message.im",),
    ),
    Scope("im:read", "direct conversations cannot be looked up", ("conversations.info",)),
    Scope("im:write", "the bot cannot start a direct message", ("conversations.open",)),
    Scope(
        "mpim:history",
        "group messages do not arrive",
        ("conversations.replies", "conversations.history"),
        ("message.mpim",),
    ),
    Scope("mpim:read", "group conversations cannot be looked up", ("conversations.info",)),
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
    Scope(
        "users:read",
        "names are missing, and administrators and guests are not recognized",
        ("bots.info", "users.info", "users.list"),
    ),
    Scope(
        "users:read.email",
        "users who sign in to the console at another service are not recognized by their e-mail address",
        ("users.lookupByEmail",),
    ),
    Scope(
        "usergroups:read",
        "user groups cannot be admins or approvers",
        ("usergroups.list",),
        ("subteam_created", "subteam_members_changed", "subteam_updated"),
    ),
)
"""Every scope of the bot's token."""

EVENTS = tuple(dict.fromkeys((*(event for scope in SCOPES for event in scope.events), *EVENTS_WITHOUT_SCOPE)))
"""Every event that is subscribed to."""


def missing(granted: Iterable[str], without: Collection[str] = ()) -> tuple[Scope, ...]:
    """Return the scopes that a token lacks, for an app `without` these features. Slack lists the granted ones in the
    header `x-oauth-scopes`.
    """
    names = scopes_without(without).union(scope.strip() for scope in granted)
    return tuple(scope for scope in SCOPES if scope.name not in names)


async def diagnose(
    api: WebApi, *, app_token: str = "", signing_secret: str = "", without: Collection[str] = ()
) -> AsyncGenerator[Check, None]:
    """Check the bot's token, its scopes, and the transports by which Slack can reach the bot. The app is made `without`
    these features.
    """
    began = monotonic()
    try:
        identity = await api.identity()
    except CountersignError as error:
        yield Check(_TOKEN, CheckStatus.BROKEN, error.detailed_cause, error.fix)
    else:
        yield _of_token(identity, monotonic() - began)
        for check in _of_scopes(identity, without):
            yield check
    async with aclosing(diagnose_transports(api, app_token=app_token, signing_secret=signing_secret)) as checks:
        async for check in checks:
            yield check


async def diagnose_transports(
    api: WebApi, *, app_token: str = "", signing_secret: str = ""
) -> AsyncGenerator[Check, None]:
    """Check the transports by which Slack can reach the bot."""
    if app_token:
        name, began = gettext_lazy("Socket Mode"), monotonic()
        try:
            await socket_url(api, app_token)
        except CountersignError as error:
            yield Check(name, CheckStatus.BROKEN, error.detailed_cause, error.fix)
        else:
            detail = gettext_lazy("Slack offers a connection.")
            yield Check(name, CheckStatus.WELL, detail, seconds=monotonic() - began)
    if signing_secret:
        yield Check("HTTP", CheckStatus.SKIPPED, SECRET)
    if not (app_token or signing_secret):
        cause = gettext_lazy("Slack has no way to reach the bot: it can draw, but hears nothing.")
        yield Check(gettext_lazy("way in"), CheckStatus.BROKEN, cause, WAYS)


async def diagnose_installation(api: WebApi, installation: Installation, again: str) -> AsyncGenerator[Check, None]:
    """Check an installation by its token; `again` is the address that installs it again. Nothing is posted, and the
    token is not renewed.
    """
    name = gettext_lazy("workspace {workspace}", workspace=_label(installation))
    if installation.expires_at is not None and installation.expires_at < time():
        workspace = installation.workspace
        text = gettext_lazy("The token of workspace {id} has expired; a running bot renews it.", id=workspace)
        if installation.is_organization:
            text = gettext_lazy("The token of organization {id} has expired; a running bot renews it.", id=workspace)
        yield Check(name, CheckStatus.DOUBTFUL, text, gettext_lazy("start the bot, or look into its log"))
        return
    began = monotonic()
    try:
        identity = await api.identity()
    except CountersignError as error:
        fix = gettext_lazy("install the app again: {path}", path=again)
        yield Check(name, CheckStatus.BROKEN, error.detailed_cause, fix)
        return
    sentences = [_served_text(installation, identity)]
    if installation.expires_at is not None:
        sentences.append(_("Its token is renewed every few hours."))
    yield Check(name, CheckStatus.WELL, " ".join(sentences), seconds=monotonic() - began)
    for scope in missing(identity.scopes) if identity.scopes else ():
        name = gettext_lazy("workspace {workspace}: scope {scope}", workspace=_label(installation), scope=scope.name)
        fix = gettext_lazy(
            "add {scope} under OAuth & Permissions of the app, and install it again: {path}",
            scope=scope.name,
            path=again,
        )
        yield Check(name, CheckStatus.BROKEN, _missing_text(scope), fix)


def _served_text(installation: Installation, identity: Identity) -> str:
    values = {
        "id": installation.workspace,
        "bot": identity.name,
        "url": identity.url,
        "day": _day(installation.installed_at),
        "user": installation.installed_by,
    }
    if installation.is_organization:
        return _("Organization {id} is served as {bot} ({url}), installed on {day} by {user}.", **values)
    return _("Workspace {id} is served as {bot} ({url}), installed on {day} by {user}.", **values)


def diagnose_absence(workspace: str, installation: Installation | None, allowed: Collection[str], again: str) -> Check:
    """Return the check of a workspace that is not served; `again` is the address that installs it."""
    if installation is None:
        detail = gettext_lazy("It is not installed yet: open {path}.", path=again)
        return Check(gettext_lazy("workspace {workspace}", workspace=workspace), CheckStatus.SKIPPED, detail)
    name = gettext_lazy("workspace {workspace}", workspace=_label(installation))
    if installation.removed_at is not None:
        detail = gettext_lazy(
            "The app was removed from {workspace} on {day}. To serve it again, open {path}.",
            workspace=workspace,
            day=_day(installation.removed_at),
            path=again,
        )
        return Check(name, CheckStatus.SKIPPED, detail)
    fix = gettext_lazy(
        "add {workspace} to SLACK_WORKSPACES ({workspaces}), or remove the app there",
        workspace=workspace,
        workspaces=", ".join(sorted(allowed)) or gettext_lazy("empty"),
    )
    detail = gettext_lazy("The app is installed in {workspace}, which is not served.", workspace=workspace)
    return Check(name, CheckStatus.DOUBTFUL, detail, fix)


def _label(installation: Installation) -> str:
    return single_line(installation.name, 60) or installation.workspace


def _day(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


async def diagnose_channel(api: WebApi, channel: ConversationKey, named_by: str = "OPS_CHANNEL") -> Check:
    """Check that the bot may post in a channel, which `named_by` names. Nothing is posted."""
    began = monotonic()
    try:
        identity = await api.identity()
        answer = await api.read("conversations.info", channel=channel.channel)
    except CountersignError as error:
        fix = gettext_lazy("correct {setting}, or {fix}", setting=named_by, fix=error.fix or INVITE)
        return Check(OPS_CHANNEL, CheckStatus.BROKEN, error.cause, fix)
    facts = object_in(answer, "channel")
    if channel.workspace and channel.workspace != identity.team:
        places = {"workspace": channel.workspace, "own": identity.team}
        fault = gettext_lazy("It is in workspace {workspace}, the bot is in {own}.", **places)
        fix = gettext_lazy("correct {setting}", setting=named_by)
    elif facts.get("is_archived"):
        fault = gettext_lazy("It is archived.")
        fix = gettext_lazy("name another channel in {setting}", setting=named_by)
    elif not (facts.get("is_member") or facts.get("is_im")):
        fault, fix = gettext_lazy("The bot is not in it."), INVITE
    else:
        detail = gettext_lazy("The bot may post in it.")
        return Check(OPS_CHANNEL, CheckStatus.WELL, detail, seconds=monotonic() - began)
    return Check(OPS_CHANNEL, CheckStatus.BROKEN, fault, fix)


def _missing_text(scope: Scope) -> str:
    return gettext_lazy("It is missing: without it {consequence}.", consequence=scope.without)


def _of_token(identity: Identity, seconds: float) -> Check:
    where = gettext_lazy(
        "{bot} in {url} ({workspace})",
        bot=identity.name,
        url=identity.url or identity.team,
        workspace=identity.team,
    )
    if identity.bot:
        return Check(_TOKEN, CheckStatus.WELL, gettext_lazy("It is {bot}.", bot=where), seconds=seconds)
    cause = gettext_lazy("It is a person's, not a bot's: {user}.", user=where)
    fix = gettext_lazy("set SLACK_BOT_TOKEN to the app's Bot User OAuth Token (xoxb-…)")
    return Check(_TOKEN, CheckStatus.BROKEN, cause, fix, seconds)


def _of_scopes(identity: Identity, without: Collection[str]) -> list[Check]:
    if not identity.scopes:
        return [Check(gettext_lazy("scopes"), CheckStatus.DOUBTFUL, UNSAID)]
    checks = []
    for scope in missing(identity.scopes, without):
        fix = gettext_lazy(
            "add {scope} under OAuth & Permissions of the app, install it again, and set the new SLACK_BOT_TOKEN",
            scope=scope.name,
        )
        name = gettext_lazy("scope {scope}", scope=scope.name)
        checks.append(Check(name, CheckStatus.BROKEN, _missing_text(scope), fix))
    return checks or [Check(gettext_lazy("scopes"), CheckStatus.WELL, gettext_lazy("All that are used are there."))]


class SlackLiveCheck(LivePlatform):
    """A Slack workspace to be checked."""

    longest = 8_500
    layouts = ((gettext_lazy("table"), (Heading(gettext_lazy("{test}: a table", test=MARK)), Markdown(_TABLE))),)

    def __init__(self, api: WebApi, *, app_token: str = "", signing_secret: str = "") -> None:
        super().__init__(SlackMessages(api), outgoing_message)
        self._api = api
        self._app_token = app_token
        self._signing_secret = signing_secret
        self.extras = (
            (gettext_lazy("kinds of blocks"), self._blocks),
            (gettext_lazy("thread status"), self._status),
            (gettext_lazy("reaction"), self._reaction),
        )

    async def examine(self, channel: ConversationKey) -> AsyncGenerator[Check, None]:
        """Check the token, its scopes, the transports and the channel."""
        found = diagnose(self._api, app_token=self._app_token, signing_secret=self._signing_secret)
        async with aclosing(found) as checks:
            async for check in checks:
                yield check
        yield replace(await diagnose_channel(self._api, channel, "--channel"), name=gettext_lazy("channel"))

    async def mention(self) -> str:
        """Return the mention of the bot."""
        return f"@{(await self._api.identity()).name}"

    async def locate(self, channel: ConversationKey) -> ConversationKey:
        """Return the channel with its workspace."""
        return conversation((await self._api.identity()).team, channel.channel, "")

    async def thread(self, channel: ConversationKey, ref: str) -> ConversationKey:
        """Return the thread of a message."""
        posted = MessageRef.parse(ref)
        if posted is None:
            raise DeliveryFailed(gettext_lazy("Slack returned no reference of the message."), permanent=True)
        return replace(channel, channel=posted.channel, thread=posted.ts)

    async def share(self, thread: ConversationKey, name: str, content: bytes) -> str:
        """Share a file in a thread, and return its id."""
        return await self._api.upload(thread.channel, thread.thread, name, content)

    async def unshare(self, file: str) -> None:
        """Delete a file. Raises NotFound if it is gone."""
        try:
            await self._api.edit("files.delete", file=file)
        except SlackWebApiError as error:
            if error.code in ("file_not_found", "file_deleted"):
                raise NotFound(gettext_lazy("The file is gone.")) from error
            raise

    async def direct_channel(self, user: str) -> str:
        """Return the direct channel with a user."""
        return await direct_channel(self._api, user)

    async def own_messages(self, conversation: ConversationKey, since: str) -> Sequence[str]:
        """Return the refs of the bot's messages in a channel or thread, from a message on."""
        first, user = MessageRef.parse(since), (await self._api.identity()).user
        method, thread = "conversations.history", {}
        if conversation.thread:
            method, thread = "conversations.replies", {"ts": conversation.thread}
        oldest = first.ts if first is not None else None
        answer = await self._api.read(
            method, channel=conversation.channel, oldest=oldest, inclusive="true", limit=LATEST, **thread
        )
        return [
            str(MessageRef(conversation.channel, str(message.get("ts", ""))))
            for message in objects_in(answer, "messages")
            if message.get("user") == user
        ]

    async def rate_limits(self, channel: ConversationKey) -> str:  # noqa: ARG002
        """Slack names a limit only once it is exceeded."""
        raise CheckSkipped(gettext_lazy("Slack names its limits only to those who exceed them."))

    async def _blocks(self, _thread: ConversationKey, _root: str) -> str:
        """Return the fate of the blocks of the earlier checks."""
        if refused := sorted(self._api.blocks.refused):
            kinds = ", ".join(refused)
            text = gettext_lazy("Slack takes no {kinds} blocks here. The bot sends older ones instead.", kinds=kinds)
            raise CheckDoubtful(text)
        return gettext_lazy("Slack takes all kinds of blocks that the bot sends.")

    async def _status(self, thread: ConversationKey, _root: str) -> str:
        """Show the status of a thread, and clear it."""
        where = {"channel_id": thread.channel, "thread_ts": thread.thread}
        await _optional(self._api.edit(SET_STATUS, **where, status=_("is being tested…")))
        await _optional(self._api.edit(SET_STATUS, **where, status=""))
        return gettext_lazy("A thread can show what the bot does.")

    async def _reaction(self, thread: ConversationKey, _root: str) -> str:
        """Add a reaction, and remove it."""
        where = {"channel": thread.channel, "timestamp": thread.thread, "name": EYES}
        await _optional(self._api.edit("reactions.add", **where))
        await _optional(self._api.edit("reactions.remove", **where))
        return gettext_lazy("The bot can acknowledge a question by a reaction.")


async def _optional(call: Awaitable[object]) -> None:
    """Await a call that the bot can do without. Raises CheckDoubtful if the workspace does not allow it."""
    try:
        await call
    except SlackWebApiError as error:
        if error.code not in NOT_AVAILABLE:
            raise
        text = gettext_lazy("Slack does not allow it here ({code}). The bot works without.", code=error.code)
        raise CheckDoubtful(text, error.fix) from error
