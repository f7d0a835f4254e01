"""HTTP as a Surface: conversations of API clients, `api:WORKSPACE:TOKEN:THREAD`.

Delivery succeeds without a connected client: stored rows are the truth, and a view is delivered once it was published
to the subscribers. A pending call can be read and approved over HTTP from then on.

Views of turns that this process delivers reach subscribers at once. Turns of other processes are read from the
database, at most once per poll interval for all subscribers. A slow subscriber gets only the newest view and delays no
others.

Images of requests are in memory until the model has read them. If another process runs the turn, the model is told that
the image could not be read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from bot.domain.api_clients import EVERYWHERE_ROLE, ApiClient
from bot.domain.conversations import HTTP, OIDC, Attachment, Author, ConversationKey, Member
from bot.domain.turns import MessageRefs, Notice, NoticeTarget, PostedMessage, TurnStatus, TurnView
from bot.errors import DatabaseUnavailable, NotFound
from bot.i18n import gettext_lazy
from bot.rendering.text_safety import single_line

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0

Read = Callable[[str], Awaitable[TurnView]]
"""Reads the stored view of a turn (`EngineApi.view`)."""


@dataclass(slots=True, eq=False)
class _Mailbox:
    """The newest unread view of a subscriber."""

    newest: TurnView | None = None
    filled: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, view: TurnView) -> None:
        if self.newest is None or view.revision >= self.newest.revision:
            self.newest = view
            self.filled.set()

    def take(self) -> TurnView | None:
        view, self.newest = self.newest, None
        self.filled.clear()
        return view


@dataclass(slots=True, eq=False)
class _Topic:
    """A turn with subscribers, and its last stored view; `read_at` is in the loop's seconds."""

    mailboxes: set[_Mailbox] = field(default_factory=set)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    stored: TurnView | None = None
    read_at: float = 0.0


class Subscriptions:
    """Subscribers to the views of turns in this process. `poll` is in seconds."""

    def __init__(self, poll: float = POLL_SECONDS) -> None:
        self._poll = poll
        self._topics: dict[str, _Topic] = {}

    @property
    def subscriber_count(self) -> int:
        """Number of subscribers."""
        return sum(len(topic.mailboxes) for topic in self._topics.values())

    def publish(self, view: TurnView) -> None:
        """Publish a view to the subscribers of its turn. Slow subscribers skip views."""
        topic = self._topics.get(view.turn.id)
        for mailbox in topic.mailboxes if topic is not None else ():
            mailbox.put(view)

    async def views(self, turn_id: str, read: Read) -> AsyncGenerator[TurnView, None]:
        """Yield the current view, then newer ones until the turn has ended. Unreadable rows are read again later. Close
        the generator if you stop earlier. Raises NotFound, also if the turn is deleted meanwhile.
        """
        with self._subscribe(turn_id) as (topic, mailbox):
            last = await read(turn_id)
            yield last
            while not last.turn.status.ended:
                view = await self._next(topic, mailbox, turn_id, read)
                if view is not None and _is_newer(last, view):
                    last = view
                    yield view

    async def wait(self, turn_id: str, read: Read, seconds: float, is_enough: Callable[[TurnView], bool]) -> TurnView:
        """Return the first view that is enough, or the newest after `seconds`. Raises NotFound."""
        if seconds <= 0:
            return await read(turn_id)
        view: TurnView | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), contextlib.aclosing(self.views(turn_id, read)) as views:
                async for view in views:
                    if is_enough(view):
                        break
        # Only the stored view of an ended turn has its times.
        return await read(turn_id) if view is None or view.turn.status.ended else view

    @contextlib.contextmanager
    def _subscribe(self, turn_id: str) -> Iterator[tuple[_Topic, _Mailbox]]:
        topic, mailbox = self._topics.setdefault(turn_id, _Topic()), _Mailbox()
        topic.mailboxes.add(mailbox)
        try:
            yield topic, mailbox
        finally:
            topic.mailboxes.discard(mailbox)
            if not topic.mailboxes and self._topics.get(turn_id) is topic:
                del self._topics[turn_id]

    async def _next(self, topic: _Topic, mailbox: _Mailbox, turn_id: str, read: Read) -> TurnView | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._poll):
                await mailbox.filled.wait()
        if (published := mailbox.take()) is not None:
            return published
        try:
            loop = asyncio.get_running_loop()
            # Another subscriber may have just read it.
            async with topic.reading:
                if topic.stored is None or loop.time() - topic.read_at >= self._poll / 2:
                    topic.stored = await read(turn_id)
                    topic.read_at = loop.time()
                stored = topic.stored
        except DatabaseUnavailable:
            return None  # the database logs its own outages
        # A live view received meanwhile is newer than rows of the same revision.
        published = mailbox.take()
        return published if published is not None and published.revision >= stored.revision else stored


def _is_newer(last: TurnView, view: TurnView) -> bool:
    """Return True if a view is newer than the last one. Rows lack live progress, so rows of the same revision are not
    newer.
    """
    if view.revision != last.revision:
        return view.revision > last.revision
    live = bool(view.streaming or view.running or view.progress or view.activity)
    queued = view.turn.status is TurnStatus.QUEUED and (view.ahead, view.blocker) != (last.ahead, last.blocker)
    return live or queued or view.turn.status is not last.turn.status


MOST_BYTES = 64 * 2**20
"""Bytes of all stored images. The oldest image of the token with the most bytes is dropped first."""


class Uploads:
    """Images by attachment id. `most` is in bytes."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._images: dict[str, tuple[str, bytes]] = {}
        self._sizes: Counter[str] = Counter()

    @property
    def size(self) -> int:
        """Bytes stored."""
        return self._sizes.total()

    def store(self, data: bytes, name: str, mime_type: str, owner: str = "") -> Attachment:
        """Store an image. `owner` is the name of the token."""
        attachment = Attachment(secrets.token_hex(16), name, mime_type, len(data))
        self._images[attachment.id] = owner, data
        self._sizes[owner] += len(data)
        while self.size > self._most:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            self._drop(next(image_id for image_id, (image_owner, _) in self._images.items() if image_owner == largest))
        return attachment

    def read(self, attachment: Attachment) -> bytes:
        """Return the bytes. Raises NotFound."""
        try:
            return self._images[attachment.id][1]
        except KeyError:
            raise NotFound(
                gettext_lazy("It is not in this process's memory any more."),
                gettext_lazy("ask again, with the image in the request"),
            ) from None

    def drop(self, attachment: Attachment) -> None:
        """Drop the image of an ended turn."""
        if attachment.id in self._images:
            self._drop(attachment.id)

    def _drop(self, attachment_id: str) -> None:
        owner, data = self._images.pop(attachment_id)
        self._sizes[owner] -= len(data)
        if not self._sizes[owner]:
            del self._sizes[owner]


SLOT = "stream"
OUT = "out"
"""Message reference of a delivered turn; there is no message to edit."""
PACE_SECONDS = 0.05

FindUser = Callable[[Author, ConversationKey], Awaitable[Member]]
"""Return a user of a platform with the current rights. Raises DeliveryFailed."""
FindCaller = Callable[[str], Awaitable[ApiClient | None]]
"""Return the API client with this token name and its current rights; None if the token is invalid."""
Admits = Callable[[str], bool]
"""Return True for the principal of a user of the operator's issuer who may use the bot now."""


class ApiSurface:
    """Surface that publishes views to subscribers. Call `set_client_lookup` before members are looked up."""

    key_prefixes = (f"{HTTP}:",)
    min_interval = PACE_SECONDS

    def __init__(self, subscriptions: Subscriptions, uploads: Uploads) -> None:
        self.subscriptions = subscriptions
        self.uploads = uploads
        self._find_caller: asyncio.Future[FindCaller] = asyncio.get_running_loop().create_future()
        self._find_user: FindUser | None = None

    def set_client_lookup(self, find_caller: FindCaller, admits: Admits = lambda _principal: False) -> None:
        """Set the lookup of API clients, and of users of the operator's issuer."""
        self._admits = admits
        self._find_caller.set_result(find_caller)

    def set_user_lookup(self, find_user: FindUser) -> None:
        """Set the lookup of users of other platforms, who ask in the console."""
        self._find_user = find_user

    async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Publish a view, with or without subscribers."""
        self.subscriptions.publish(view)
        if view.turn.status.ended:
            for attachment in view.turn.question.attachments:
                self.uploads.drop(attachment)
        yield PostedMessage(SLOT, refs.get(SLOT, OUT))

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        """Log the notice: API clients have no messages outside turns; `GET /api/responses/approvals` lists pending
        calls.
        """
        log.info("%s: %s", audience.conversation, single_line(notice.text, 200))

    async def member(self, author: Author, conversation: ConversationKey) -> Member:
        """Return the token's current member. A revoked or expired token, or one of another workspace, counts as a user
        from outside, without rights. So does a user of the issuer who is not admitted; others are of all workspaces. A
        user of another platform is a member of the workspace there.
        """
        workspace_key = conversation.workspace_key
        if author.platform != HTTP and self._find_user is not None and workspace_key.startswith(f"{author.platform}:"):
            platform, _colon, workspace = workspace_key.partition(":")
            return await self._find_user(author, ConversationKey(platform, workspace, "", ""))
        if author.platform in (HTTP, OIDC):
            find_caller = await asyncio.shield(self._find_caller)
            if author.platform == OIDC:
                is_admitted = self._admits(author.principal)
                return Member(
                    author, frozenset({EVERYWHERE_ROLE}) if is_admitted else frozenset(), external=not is_admitted
                )
            caller = await find_caller(author.id)
            if caller is not None and caller.covers_workspace(conversation.workspace_key):
                return caller.member
        return Member(author, external=True)

    async def fetch(self, attachment: Attachment) -> bytes:
        """Return an image that this process received with the input. Raises NotFound."""
        return self.uploads.read(attachment)
