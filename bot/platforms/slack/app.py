"""The Slack app in its workspaces: its surface, which every process has, and its listener.

Enter it before use, and leave it after the last delivery.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from time import time
from weakref import WeakKeyDictionary, WeakSet

from bot.chat.approval_inbox import post_call_notice
from bot.chat.card_messages import NO_MEMBER, OPEN_CARD, card_slots, remote_approvals
from bot.chat.context import Lookups
from bot.chat.delivery import ChannelMessages, ChannelSender, MessageOwner, RemoteMessage, TurnDelivery
from bot.chat.listener_leases import ListenerLease
from bot.chat.message_model import Message
from bot.chat.users import AudiencePolicy
from bot.domain.approvals import ChannelTarget, Destination, DirectTarget
from bot.domain.conversations import Attachment, Author, ConversationKey, Member
from bot.domain.installations import Installation
from bot.domain.locales import UNKNOWN, Locale
from bot.domain.metrics import MetricSink, null_sink
from bot.domain.turns import MessageRefs, Notice, NoticeTarget, PostedMessage, Turn, TurnStatus, TurnView
from bot.engine.locales import LocaleResolver
from bot.errors import DeliveryFailed, SettingsError
from bot.i18n import gettext_lazy
from bot.platforms.slack.blocks import OutgoingMessage, defuse_mentions, escape
from bot.platforms.slack.listener import SlackListener
from bot.platforms.slack.message_blocks import CALLS_A_CARD, SentCards, outgoing_message, remote_cards, turn_messages
from bot.platforms.slack.messages import NameResolver, read_conversation
from bot.platforms.slack.rate_limits import RateLimiter
from bot.platforms.slack.sending import (
    SlackActivity,
    SlackMessages,
    Stream,
    Streaming,
    StreamManager,
    streams,
)
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import (
    API_URL,
    LOCKED_OUT,
    PLATFORM,
    MessageRef,
    SlackWebApiError,
    WebApi,
    conversation,
    direct_channel,
    fetch_file,
)
from bot.platforms.slack.workspaces import (
    AppCredentials,
    InstalledWorkspaces,
    SlackWorkspace,
    SlackWorkspaces,
    TokenRenewal,
)
from bot.ports import InstallationStore, Leases, Quotas
from bot.ports.platform import DirectoryEntry, PostedText
from bot.rendering.timeline import ToolFile

LARGEST_FILE = 20 * 1024 * 1024
"""In bytes."""
FASTEST = 1.0
SLOWEST = 2.0
"""Seconds between two deliveries of an unfinished turn. The end of a turn must not wait for long while many turns are
active.
"""
RECENTLY = 60.0
"""A turn that was delivered unfinished within this many seconds counts as active."""


class SlackTurnMessages:
    """Messages of turns in their threads. Unfinished replies are edited only while the rate limits have headroom for
    required calls: ends of turns and cards.
    """

    largest_file = LARGEST_FILE

    def __init__(
        self,
        api: WebApi,
        people: UserDirectory,
        activity: SlackActivity,
        streaming: Streaming,
        clock: Callable[[], float] = time,
    ) -> None:
        self._api = api
        self._activity = activity
        self._people = people
        self._clock = clock
        self._live = StreamManager(api, streaming)
        self._active: dict[str, float] = {}
        self._changed: dict[tuple[str, str], float] = {}

    async def render(self, view: TurnView, now: float, refs: MessageRefs) -> Sequence[OutgoingMessage]:
        """Return the messages of a turn in its thread, in order."""
        posted = SentCards((await self._api.identity()).url, dict(refs)) if remote_approvals(view) else SentCards()
        return turn_messages(view, now, posted, refs, streams=self._live.may_stream(view.turn.conversation))

    async def render_remote(self, view: TurnView, now: float) -> Sequence[RemoteMessage[OutgoingMessage]]:
        """Return the cards of a turn in other channels."""
        if not remote_approvals(view):
            return ()
        cards = remote_cards(view, now, (await self._api.identity()).url)
        return [RemoteMessage(card.card, card.place, outgoing_message(card.message)) for card in cards]

    async def locate_remote(self, turn: Turn, remote: RemoteMessage[OutgoingMessage], ref: str) -> OutgoingMessage:  # noqa: ARG002
        """Return a card with its channel. Raises DeliveryFailed, permanent for guests and external users."""
        posted = MessageRef.parse(ref)
        channel = await self._channel_of(remote.place) if posted is None else posted.channel
        return replace(remote.message, place=channel)

    async def show_growing(
        self, view: TurnView, message: OutgoingMessage, ref: str, *, refs: MessageRefs, is_last: bool
    ) -> str:
        """Stream a message, or let an unfinished one wait for its share of the rate limit."""
        posted = MessageRef.parse(ref)
        growing = next((stream for stream in streams(view, refs) if stream.open), None) if is_last else None
        streamed = await self._stream_message(view, message, growing, posted)
        is_active = view.turn.status is TurnStatus.RUNNING and not (view.awaiting or view.asks)
        if streamed is None and posted is not None:
            if is_active and is_last and self._may_wait(view, message):
                return ref
            self._record_change(view, message)
        return str(streamed or "")

    async def stop_growing(self, turn: Turn, name: str) -> None:
        """Stop the stream of a message."""
        await self._live.stop(turn.id, name)

    async def share(
        self,
        turn: Turn,
        file: ToolFile,
        *,
        search: bool,  # noqa: ARG002 - Slack has no lookup of files
        taken: Collection[str],  # noqa: ARG002
    ) -> str:
        """Upload a file of a tool. Its ref is Slack's id."""
        thread = turn.conversation
        return await self._api.upload(thread.channel, thread.thread, file.name, await file.read())

    async def finish(self, view: TurnView) -> None:
        """Set the state of the agent session, and record which turns are active."""
        turn, now = view.turn, self._clock()
        await self._activity.show_session(view)
        self._active = {turn_id: at for turn_id, at in self._active.items() if at > now - RECENTLY}
        self._changed = {key: at for key, at in self._changed.items() if at > now - RECENTLY}
        if turn.status is TurnStatus.RUNNING:
            self._active[turn.id] = now
        else:
            self._active.pop(turn.id, None)

    def is_token_rejected(self, error: DeliveryFailed) -> bool:
        """Return True if Slack rejected the bot's token."""
        return isinstance(error, SlackWebApiError) and error.code in LOCKED_OUT

    def interval(self, method: str = "chat.update") -> float:
        """Return the seconds between two edits of one unfinished message, so that all active turns together stay below
        Slack's limit. A single active turn may go faster for a short time.
        """
        now = self._clock()
        active = sum(at > now - RECENTLY for at in self._active.values())
        return active * 60 / self._api.pacing.remaining(method) if active > 1 else 0.0

    async def _stream_message(
        self, view: TurnView, message: OutgoingMessage, stream: Stream | None, posted: MessageRef | None
    ) -> MessageRef | None:
        """Return the ref of a message that is being streamed, or None if it must be sent as a whole."""
        turn = view.turn
        if self._live.has(turn.id, message.name):
            if posted is not None and stream is not None:
                if self._may_wait(view, message, "chat.appendStream"):
                    return posted
                if await self._live.append(turn.id, stream):
                    self._record_change(view, message)
                    return posted
            await self._live.stop(turn.id, message.name)
            return None
        if posted is None and stream is not None and (stream.text or stream.tasks):
            return await self._live.start(turn, stream)
        return None

    def _may_wait(self, view: TurnView, message: OutgoingMessage, method: str = "chat.update") -> bool:
        last = self._changed.get((view.turn.id, message.name), float("-inf"))
        return self._clock() - last < self.interval(method) or not self._api.pacing.has_headroom(method)

    def _record_change(self, view: TurnView, message: OutgoingMessage) -> None:
        self._changed[view.turn.id, message.name] = self._clock()

    async def _channel_of(self, place: Destination) -> str:
        """Return the channel of a remote card. Raises DeliveryFailed, permanent for guests and external users."""
        match place:
            case ChannelTarget(channel):
                return channel
            case DirectTarget(user):
                member = await self._people.member(user)
                if member.guest or member.external:
                    raise DeliveryFailed(NO_MEMBER, permanent=True)
                return await direct_channel(self._api, user)


def _in_channel(message: Message, channel: str) -> OutgoingMessage:
    return replace(outgoing_message(message), place=channel)


class SlackSurface:
    """Surface of a Slack workspace."""

    def __init__(
        self,
        api: WebApi,
        people: UserDirectory,
        *,
        streaming: Streaming = Streaming.DIRECT,
        clock: Callable[[], float] = time,
    ) -> None:
        self._api = api
        self._people = people
        self._names = NameResolver(api, people)
        activity = SlackActivity(api)
        self._messages = SlackTurnMessages(api, people, activity, streaming, clock)
        self._delivery = TurnDelivery(
            self._messages,
            SlackMessages(api),
            growing=self._messages,
            activity=activity,
            acknowledgement=activity,
            users=self,
            clock=clock,
        )
        self._channel_messages = ChannelSender(SlackMessages(api), _in_channel)

    @property
    def channel_messages(self) -> ChannelMessages:
        """Messages that the bot posts by itself."""
        return self._channel_messages

    @property
    def key_prefixes(self) -> tuple[str, ...]:
        """Key prefix of all Slack conversations."""
        return (f"{PLATFORM}:",)

    @property
    def min_interval(self) -> float:
        """Seconds between two deliveries of one turn."""
        return min(max(FASTEST, self._messages.interval() / 2), SLOWEST)

    def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Deliver a turn. Raises DeliveryFailed."""
        return self._delivery.deliver(view, refs)

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        """Post a notice: an ephemeral message, a direct message, or a message in the channel. Raises DeliveryFailed."""
        where = ConversationKey.parse(audience.conversation)
        if where.platform != PLATFORM:
            raise DeliveryFailed(gettext_lazy("That conversation is not in Slack."), permanent=True)
        text = escape(defuse_mentions(notice.text))
        if notice.card_url:
            text = f"{text} <{notice.card_url}|{OPEN_CARD}>"
        quiet = {"unfurl_links": False, "unfurl_media": False}
        thread = where.thread or None
        if audience.person and audience.private:
            channel = await direct_channel(self._api, audience.person)
            if not await post_call_notice(self._channel_messages, notice, replace(where, channel=channel, thread="")):
                await self._api.post("chat.postMessage", channel=channel, text=text, **quiet)
        elif audience.person:
            await self._api.post(
                "chat.postEphemeral", channel=where.channel, user=audience.person, thread_ts=thread, text=text
            )
        else:
            await self._api.post("chat.postMessage", channel=where.channel, thread_ts=thread, text=text, **quiet)

    async def member(self, author: Author, conversation: ConversationKey) -> Member:
        """Return the user with current rights and groups. Raises DeliveryFailed."""
        if author.platform != PLATFORM or conversation.platform != PLATFORM:
            return Member(author, external=True)
        return await self._people.member(author.id)

    def resolve_locales(self, locales: LocaleResolver) -> None:
        """Resolve the languages and time zones of cards by these settings and profiles."""
        self._delivery.locales = locales

    async def user_locale(self, user: str, conversation: ConversationKey) -> Locale:  # noqa: ARG002 - one workspace
        """Return the language and time zone of a user's account. Never raises."""
        return await self._people.locale(user)

    async def find_approver(self, principal: str, conversation: ConversationKey) -> DirectoryEntry | None:  # noqa: ARG002 - one workspace
        """Return a user or group by its principal; None if it may approve nothing. Raises DeliveryFailed."""
        return await self._people.find_approver(principal)

    async def card_url(self, view: TurnView, approval_id: str, refs: MessageRefs) -> str:
        """Return the permalink of a call's card; empty if it is not posted. Raises DeliveryFailed."""
        sent = SentCards((await self._api.identity()).url, dict(refs))
        return next(filter(None, map(sent.address, card_slots(view, approval_id, CALLS_A_CARD))), "")

    async def read_thread(
        self, conversation: ConversationKey, posted: Mapping[str, MessageRefs]
    ) -> Sequence[PostedText]:
        """Return the messages of a conversation. Raises DeliveryFailed."""
        return await read_conversation(self._api, self._names, conversation, posted)

    async def fetch(self, attachment: Attachment) -> bytes:
        """Download an attached file. Raises NotFound and DeliveryFailed."""
        return await fetch_file(self._api, attachment)


class SlackAppSurface:
    """Surface of all workspaces of the app: each conversation has that of its workspace."""

    def __init__(self, workspaces: SlackWorkspaces, *, streaming: Streaming = Streaming.DIRECT) -> None:
        self._workspaces = workspaces
        self._streaming = streaming
        self._surfaces: WeakKeyDictionary[SlackWorkspace, SlackSurface] = WeakKeyDictionary()
        self._locales = LocaleResolver()

    @property
    def channel_messages(self) -> ChannelMessages:
        """Messages that the bot posts by itself."""
        return _AppChannelMessages(self._of)

    @property
    def key_prefixes(self) -> tuple[str, ...]:
        """Key prefix of all Slack conversations."""
        return (f"{PLATFORM}:",)

    @property
    def min_interval(self) -> float:
        """Seconds between two deliveries of one turn."""
        return max((surface.min_interval for surface in self._surfaces.values()), default=FASTEST)

    async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Deliver a turn. Raises DeliveryFailed."""
        surface = await self._of(view.turn.conversation)
        async with aclosing(surface.deliver(view, refs)) as posted:
            async for message in posted:
                yield message

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        """Post a notice. Raises DeliveryFailed."""
        await (await self._of(ConversationKey.parse(audience.conversation))).post_notice(audience, notice)

    async def member(self, author: Author, conversation: ConversationKey) -> Member:
        """Return the user with current rights and groups. Raises DeliveryFailed."""
        if author.platform != PLATFORM or conversation.platform != PLATFORM:
            return Member(author, external=True)
        return await (await self._of(conversation)).member(author, conversation)

    def resolve_locales(self, locales: LocaleResolver) -> None:
        """Resolve the languages and time zones of cards by these settings and profiles."""
        self._locales = locales
        for surface in self._surfaces.values():
            surface.resolve_locales(locales)

    async def user_locale(self, user: str, conversation: ConversationKey) -> Locale:
        """Return the language and time zone of a user's account. Never raises."""
        try:
            return await (await self._of(conversation)).user_locale(user, conversation)
        except DeliveryFailed:
            return UNKNOWN

    async def find_approver(self, principal: str, conversation: ConversationKey) -> DirectoryEntry | None:
        """Return a user or group by its principal; None if it may approve nothing. Raises DeliveryFailed."""
        return await (await self._of(conversation)).find_approver(principal, conversation)

    async def card_url(self, view: TurnView, approval_id: str, refs: MessageRefs) -> str:
        """Return the permalink of a call's card; empty if it is not posted. Raises DeliveryFailed."""
        return await (await self._of(view.turn.conversation)).card_url(view, approval_id, refs)

    async def fetch(self, attachment: Attachment) -> bytes:
        """Download an attached file. Raises NotFound and DeliveryFailed."""
        team, _, _file = attachment.id.rpartition("/")
        return await (await self._of(conversation(team, "", ""))).fetch(attachment)

    async def read_thread(
        self, conversation: ConversationKey, posted: Mapping[str, MessageRefs]
    ) -> Sequence[PostedText]:
        """Return the messages of a conversation. Raises DeliveryFailed."""
        return await (await self._of(conversation)).read_thread(conversation, posted)

    async def _of(self, conversation: ConversationKey) -> SlackSurface:
        """Return the surface of a conversation's workspace. Raises DeliveryFailed."""
        if conversation.platform != PLATFORM:
            raise DeliveryFailed(gettext_lazy("That conversation is not in Slack."), permanent=True)
        workspace = await self._workspaces.of(conversation)
        if workspace not in self._surfaces:
            surface = SlackSurface(workspace.api, workspace.people, streaming=self._streaming)
            surface.resolve_locales(self._locales)
            self._surfaces[workspace] = surface
        return self._surfaces[workspace]


class _AppChannelMessages:
    """Messages in channels of all workspaces. `surface` returns that of a conversation."""

    def __init__(self, surface: Callable[[ConversationKey], Awaitable[SlackSurface]]) -> None:
        self._surface = surface

    async def show(self, owner: MessageOwner, message: Message, ref: str, *, search: bool = False) -> str:
        surface = await self._surface(owner.conversation)
        return await surface.channel_messages.show(owner, message, ref, search=search)

    async def delete(self, owner: MessageOwner, name: str, ref: str) -> None:
        await (await self._surface(owner.conversation)).channel_messages.delete(owner, name, ref)


class WorkspaceFactory:
    """Builds the clients of workspaces: with the same groups, and limits that are shared once `share` was called.
    `app_api` calls Slack without a token, for the app as a whole.
    """

    def __init__(self, app_api: WebApi, groups: frozenset[str], observe: MetricSink) -> None:
        self.app_api = app_api
        self._groups = groups
        self._observe = observe
        self._quotas: Quotas | None = None
        self._more_groups: Callable[[], Awaitable[frozenset[str]]] | None = None
        self._built: WeakSet[SlackWorkspace] = WeakSet()

    def share(self, quotas: Quotas) -> None:
        """Share the rate limits of all workspaces with other processes of the app."""
        self._quotas = quotas
        for workspace in (self.app_api, *(workspace.api for workspace in self._built)):
            workspace.pacing.share(quotas)

    def also_ask_for(self, groups: Callable[[], Awaitable[frozenset[str]]]) -> None:
        """Add groups to those of the settings."""
        self._more_groups = groups
        for workspace in self._built:
            workspace.people.also_ask_for(groups)

    def of_token(self, token: str) -> SlackWorkspace:
        """Return the workspace of SLACK_BOT_TOKEN. Enter its client before use."""
        api = WebApi(token, url=self.app_api.url, pacing=self._pacing(token))
        return self._add(SlackWorkspace(api, UserDirectory(api, self._groups)))

    def of_installation(
        self, installation: Installation, team: str, another_token: Callable[[str], Awaitable[str]]
    ) -> SlackWorkspace:
        """Return a workspace of an installation."""
        # Limits count by app and workspace, and outlive a token.
        account = f"{installation.workspace}/{team}" if installation.is_organization else team
        api = WebApi(
            installation.token,
            url=self.app_api.url,
            pacing=self._pacing(f"installation {account}"),
            team=team if installation.is_organization else "",
            shared=self.app_api,
            another_token=another_token,
        )
        return self._add(SlackWorkspace(api, UserDirectory(api, self._groups), installation.workspace))

    def _add(self, workspace: SlackWorkspace) -> SlackWorkspace:
        if self._quotas is not None:
            workspace.api.pacing.share(self._quotas)
        if self._more_groups is not None:
            workspace.people.also_ask_for(self._more_groups)
        self._built.add(workspace)
        return workspace

    def _pacing(self, account: str) -> RateLimiter:
        return RateLimiter(account=_account(account), observe=self._observe)


@dataclass(frozen=True, slots=True)
class SlackApp:
    """Slack app in its workspaces. `surface` delivers turns."""

    workspaces: SlackWorkspaces
    surface: SlackAppSurface
    factory: WorkspaceFactory

    @property
    def api(self) -> WebApi:
        """Client of the workspace of SLACK_BOT_TOKEN. Raises SettingsError without one."""
        return self._own.api

    @property
    def people(self) -> UserDirectory:
        """Users of the workspace of SLACK_BOT_TOKEN. Raises SettingsError without one."""
        return self._own.people

    @property
    def _own(self) -> SlackWorkspace:
        if self.workspaces.own is None:
            raise SettingsError(
                gettext_lazy("There is no SLACK_BOT_TOKEN."), gettext_lazy("set SLACK_BOT_TOKEN (xoxb-…)")
            )
        return self.workspaces.own

    def share(self, quotas: Quotas) -> None:
        """Share the rate limits with other processes of the app."""
        self.factory.share(quotas)

    def use_installations(self, store: InstallationStore, credentials: AppCredentials, leases: Leases) -> None:
        """Serve the workspaces of installations from now on."""
        if self.workspaces.installed is not None:
            self.workspaces.installed.attach(store, TokenRenewal(self.factory.app_api, credentials, store, leases))

    def listener(
        self,
        *,
        app_token: str = "",
        signing_secret: str = "",
        audience: AudiencePolicy | None = None,
        records: Lookups | None = None,
        backfill_lease: Callable[[str], ListenerLease] | None = None,
    ) -> SlackListener:
        """Return the listener: Socket Mode with an app token, HTTP (`SlackListener.hook`) with a signing secret.
        `backfill_lease` returns the lease of this name on reading missed messages. Raises SettingsError if both secrets
        are missing.
        """
        return SlackListener(
            self.workspaces,
            self.factory.app_api,
            app_token=app_token,
            signing_secret=signing_secret,
            audience=audience,
            records=records,
            backfill_lease=backfill_lease,
        )


@asynccontextmanager
async def open_slack(
    token: str = "",
    *,
    url: str = API_URL,
    groups: frozenset[str] = frozenset(),
    streaming: Streaming = Streaming.DIRECT,
    observe: MetricSink = null_sink,
    allowed: frozenset[str] | None = None,
) -> AsyncIterator[SlackApp]:
    """Open the workspace of a bot token, and those of installations in `allowed`, None for none at all. `groups` are
    the user groups in the settings (`slack-group:S…`). `observe` receives the seconds that rate limits delay calls. No
    request is sent before the first use.
    """
    async with AsyncExitStack() as stack:
        # Calls for the app as a whole count with those of its own workspace.
        pacing = RateLimiter(account=_account(token or "app"), observe=observe)
        app_api = await stack.enter_async_context(WebApi("", url=url, pacing=pacing))
        factory = WorkspaceFactory(app_api, groups, observe)
        own = factory.of_token(token) if token else None
        if own is not None:
            await stack.enter_async_context(own.api)
        installed = None if allowed is None else InstalledWorkspaces(factory.of_installation, allowed)
        if installed is not None:
            await stack.enter_async_context(installed.running())
        workspaces = SlackWorkspaces(own, installed)
        yield SlackApp(workspaces, SlackAppSurface(workspaces, streaming=streaming), factory)


def _account(owner: str) -> str:
    return f"slack:{hashlib.sha256(owner.encode()).hexdigest()[:16]}"
