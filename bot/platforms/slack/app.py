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
from bot.chat.card_messages import NO_MEMBER, OPEN_CARD, RemoteMessage, card_slots, remote_approvals
from bot.chat.delivery import MessageOwner, MessageSender, TurnDelivery, TurnMessages
from bot.chat.message_model import Message
from bot.domain.approvals import ChannelTarget, DirectTarget
from bot.domain.conversations import Attachment, Author, ConversationKey, Member
from bot.domain.installations import Installation
from bot.domain.locales import UNKNOWN, Locale
from bot.domain.metrics import MetricSink, null_sink
from bot.domain.openid import Identity
from bot.domain.turns import MessageRefs, Notice, NoticeTarget, PostedMessage, Turn, TurnStatus, TurnView
from bot.engine.locales import LocaleResolver
from bot.errors import DeliveryFailed, SettingsError
from bot.i18n import gettext_lazy
from bot.platforms.slack.blocks import OutgoingMessage, defuse_mentions, escape
from bot.platforms.slack.message_blocks import CALLS_A_CARD, address_of, outgoing_message, remote_cards, turn_messages
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
from bot.ports.platform import DirectoryEntry, PostedText, UserLocales
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


class SlackTurnMessages(SlackActivity, TurnMessages[OutgoingMessage]):
    """Messages of the turns of one workspace, and their activity. Unfinished replies are edited only while the rate
    limits have headroom for required calls: ends of turns and cards.
    """

    largest_file = LARGEST_FILE
    acknowledges = True

    def __init__(
        self, workspace: SlackWorkspace, streaming: Streaming, users: UserLocales, clock: Callable[[], float]
    ) -> None:
        super().__init__(workspace.api)
        self.api, self.people = api, people = workspace.api, workspace.people
        self.names = NameResolver(api, people)
        self._clock = clock
        self._live = StreamManager(api, streaming)
        self._active: dict[str, float] = {}
        self._changed: dict[tuple[str, str], float] = {}
        self.delivery = TurnDelivery(self, SlackMessages(api), users=users, clock=clock)
        self.sender = MessageSender(SlackMessages(api))

    async def render(self, view: TurnView, now: float, refs: MessageRefs) -> Sequence[OutgoingMessage]:
        """Return the messages of a turn in its thread, in order."""
        url = (await self.api.identity()).url if remote_approvals(view) else ""
        return turn_messages(view, now, url, refs, streams=self._live.may_stream(view.turn.conversation))

    async def render_remote(self, view: TurnView, now: float) -> Sequence[RemoteMessage[OutgoingMessage]]:
        """Return the cards of a turn in other channels."""
        if not remote_approvals(view):
            return ()
        return list(remote_cards(view, now, (await self.api.identity()).url))

    async def locate_remote(self, turn: Turn, remote: RemoteMessage[OutgoingMessage], ref: str) -> OutgoingMessage:  # noqa: ARG002
        """Return a card with its channel. Raises DeliveryFailed, permanent for guests and external users."""
        if (posted := MessageRef.parse(ref)) is not None:
            return replace(remote.message, place=posted.channel)
        match remote.place:
            case ChannelTarget(channel):
                pass
            case DirectTarget(user):
                member = await self.people.member(user)
                if member.guest or member.external:
                    raise DeliveryFailed(NO_MEMBER, permanent=True)
                channel = await direct_channel(self.api, user)
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
        return await self.api.upload(thread.channel, thread.thread, file.name, await file.read())

    async def finish(self, view: TurnView) -> None:
        """Set the state of the agent session, and record which turns are active."""
        turn, now = view.turn, self._clock()
        await self.show_session(view)
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
        return active * 60 / self.api.pacing.remaining(method) if active > 1 else 0.0

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
        return self._clock() - last < self.interval(method) or not self.api.pacing.has_headroom(method)

    def _record_change(self, view: TurnView, message: OutgoingMessage) -> None:
        self._changed[view.turn.id, message.name] = self._clock()


class SlackSurface:
    """Surface of all workspaces of the app: each conversation has that of its workspace."""

    key_prefixes = (f"{PLATFORM}:",)

    def __init__(
        self,
        workspaces: SlackWorkspaces,
        *,
        streaming: Streaming = Streaming.DIRECT,
        clock: Callable[[], float] = time,
    ) -> None:
        self._workspaces = workspaces
        self._streaming = streaming
        self._clock = clock
        self._turn_messages: WeakKeyDictionary[SlackWorkspace, SlackTurnMessages] = WeakKeyDictionary()
        self._locales = LocaleResolver()

    @property
    def min_interval(self) -> float:
        """Seconds between two deliveries of one turn."""
        intervals = (messages.interval() / 2 for messages in self._turn_messages.values())
        return min(max([FASTEST, *intervals]), SLOWEST)

    async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Deliver a turn. Raises DeliveryFailed."""
        workspace = await self._of(view.turn.conversation)
        async with aclosing(workspace.delivery.deliver(view, refs)) as posted:
            async for message in posted:
                yield message

    async def deliver_cards(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Deliver the cards of a turn that is elsewhere. Raises DeliveryFailed."""
        workspace = await self._of(view.turn.conversation)
        async with aclosing(workspace.delivery.deliver_cards(view, refs)) as posted:
            async for message in posted:
                yield message

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        """Post a notice: an ephemeral message, a direct message, or a message in the channel. Raises DeliveryFailed."""
        where = ConversationKey.parse(audience.conversation)
        api = (await self._of(where)).api
        text = escape(defuse_mentions(notice.text))
        if notice.card_url:
            text = f"{text} <{notice.card_url}|{OPEN_CARD}>"
        if audience.person and audience.private:
            channel = await direct_channel(api, audience.person)
            if not await post_call_notice(self, notice, replace(where, channel=channel, thread="")):
                await api.post_message(channel, text=text)
        elif audience.person:
            thread = where.thread or None
            await api.post(
                "chat.postEphemeral", channel=where.channel, user=audience.person, thread_ts=thread, text=text
            )
        else:
            await api.post_message(where.channel, where.thread, text=text)

    async def show_in_channel(self, owner: MessageOwner, message: Message, ref: str, *, search: bool = False) -> str:
        """Post a message in the channel of its owner, or edit it. Return its ref. Raises DeliveryFailed."""
        sender = (await self._of(owner.conversation)).sender
        return await sender.show(owner, outgoing_message(message, owner.conversation.channel), ref, search=search)

    async def member(self, author: Author, conversation: ConversationKey) -> Member:
        """Return the user with current rights and groups. Raises DeliveryFailed."""
        if author.platform != PLATFORM or conversation.platform != PLATFORM:
            return Member(author, external=True)
        return await (await self._of(conversation)).people.member(author.id)

    async def find_people(self, identity: Identity) -> Sequence[tuple[Member, ConversationKey]]:
        """Return the member that a user of an issuer is, with their direct conversation, for each workspace. Raises
        DeliveryFailed.
        """
        people = []
        for workspace in self._workspaces.known():
            team = (await workspace.api.identity()).team
            user = identity.slack_user if identity.slack_team == team else ""
            if not identity.slack_team and identity.email:
                user = await workspace.people.find_by_email(identity.email)
            if user and not (member := await workspace.people.member(user, team)).external:
                people.append((member, conversation(team, await direct_channel(workspace.api, user), "")))
        return people

    def resolve_locales(self, locales: LocaleResolver) -> None:
        """Resolve the languages and time zones of cards by these settings and profiles."""
        self._locales = locales
        for messages in self._turn_messages.values():
            messages.delivery.locales = locales

    async def user_locale(self, user: str, conversation: ConversationKey) -> Locale:
        """Return the language and time zone of a user's account. Never raises."""
        try:
            return await (await self._of(conversation)).people.locale(user)
        except DeliveryFailed:
            return UNKNOWN

    async def find_approver(self, principal: str, conversation: ConversationKey) -> DirectoryEntry | None:
        """Return a user or group by its principal; None if it may approve nothing. Raises DeliveryFailed."""
        return await (await self._of(conversation)).people.find_approver(principal)

    async def card_url(self, view: TurnView, approval_id: str, refs: MessageRefs) -> str:
        """Return the permalink of a call's card; empty if it is not posted. Raises DeliveryFailed."""
        url = (await (await self._of(view.turn.conversation)).api.identity()).url
        slots = card_slots(view, approval_id, CALLS_A_CARD)
        return next(filter(None, (address_of(url, refs, slot) for slot in slots)), "")

    async def read_thread(
        self, conversation: ConversationKey, posted: Mapping[str, MessageRefs]
    ) -> Sequence[PostedText]:
        """Return the messages of a conversation. Raises DeliveryFailed."""
        workspace = await self._of(conversation)
        return await read_conversation(workspace.api, workspace.names, conversation, posted)

    async def fetch(self, attachment: Attachment) -> bytes:
        """Download an attached file. Raises NotFound and DeliveryFailed."""
        team, _, _file = attachment.id.rpartition("/")
        return await fetch_file((await self._of(conversation(team, "", ""))).api, attachment)

    async def _of(self, conversation: ConversationKey) -> SlackTurnMessages:
        """Return the messages of a conversation's workspace. Raises DeliveryFailed."""
        if conversation.platform != PLATFORM:
            raise DeliveryFailed(gettext_lazy("That conversation is not in Slack."), permanent=True)
        workspace = await self._workspaces.of(conversation)
        if workspace not in self._turn_messages:
            messages = SlackTurnMessages(workspace, self._streaming, self, self._clock)
            messages.delivery.locales = self._locales
            self._turn_messages[workspace] = messages
        return self._turn_messages[workspace]


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
        self, installation: Installation, team: str, another_token: Callable[[str], Awaitable[str]] | None = None
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
    surface: SlackSurface
    factory: WorkspaceFactory

    @property
    def own(self) -> SlackWorkspace:
        """Workspace of SLACK_BOT_TOKEN. Raises SettingsError without one."""
        if self.workspaces.own is None:
            raise SettingsError(
                gettext_lazy("There is no SLACK_BOT_TOKEN."), gettext_lazy("set SLACK_BOT_TOKEN (xoxb-…)")
            )
        return self.workspaces.own

    def use_installations(self, store: InstallationStore, credentials: AppCredentials, leases: Leases) -> None:
        """Serve the workspaces of installations from now on."""
        if self.workspaces.installed is not None:
            self.workspaces.installed.attach(store, TokenRenewal(self.factory.app_api, credentials, store, leases))


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
        yield SlackApp(workspaces, SlackSurface(workspaces, streaming=streaming), factory)


def _account(owner: str) -> str:
    return f"slack:{hashlib.sha256(owner.encode()).hexdigest()[:16]}"
