"""A small chat service over plain HTTP, for the smallest example of a platform.

    async with FakePlain() as plain:
        priya = plain.user("Priya")
        incidents = plain.channel("incidents", priya)
        asked = plain.say(priya, incidents, f"{plain.bot.mention} why 502?")
        await plain.until(lambda: plain.bot_messages(incidents, asked.id))

Messages are literal text of at most 4,000 characters, apart from mentions (`@<id>`, `@<&group>`). They have at most 24
commands, which are texts that the client offers to send. A thread is named by its first message. A nonce is accepted
once in a channel, without expiry. Events wait until a poll acknowledges them, and are delivered again after a timeout.
`fail(route, Fails("code") | TooMany(3) | Answers(500) | Cut() | Lost(), times)` injects errors.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from aiohttp import web

from tests.fakes.clock import Clock
from tests.fakes.faults import Answers, Cut, Lost, Plans
from tests.fakes.http_server import LoopbackServer

TOKEN = "plain-token"
MOST_CHARACTERS = 4_000
MOST_COMMANDS = 24
REDELIVERY_SECONDS = 0.2
POLL_SECONDS = 1.0
POST = "POST /channels/{channel}/messages"
EDIT = "PATCH /messages/{message}"
SHARE = "POST /channels/{channel}/files"
Json = Mapping[str, Any]


@dataclass(frozen=True)
class Fails:
    """A refusal with this code."""

    code: str


@dataclass(frozen=True)
class TooMany:
    """HTTP 429 for a channel, for some seconds."""

    retry_after: float


@dataclass
class User:
    """A user; `external` ones belong to another organization."""

    id: str
    name: str
    admin: bool = False
    external: bool = False
    is_bot: bool = False
    groups: set[str] = field(default_factory=set)
    left: bool = False
    language: str | None = None
    time_zone: str | None = None

    @property
    def mention(self) -> str:
        """The text that mentions and notifies the user."""
        return f"@<{self.id}>"


@dataclass(eq=False)
class Channel:
    """A channel, or the direct conversation of the bot with one user."""

    id: str
    name: str
    direct_with: User | None = None
    closed: bool = False
    read_only: bool = False
    """True if the bot may edit its messages but not post."""
    files_forbidden: bool = False


@dataclass(eq=False)
class Message:
    """A message. `commands` are pairs of a label and a text to type. Only the user `only_for`, if any, sees it."""

    id: str
    channel: Channel
    author: User
    text: str
    thread: str = ""
    commands: list[list[str]] = field(default_factory=list)
    nonce: str = ""
    only_for: str = ""
    sent_at: float = 0.0
    edited: int = 0
    """Number of edits."""
    files: list[tuple[str, bytes]] = field(default_factory=list)
    is_deleted: bool = False

    @property
    def content(self) -> str:
        """Text of the message."""
        return self.text


@dataclass(eq=False)
class Event:
    """A message on its way to the bot."""

    number: int
    message: Message
    sent_at: float | None = None
    acknowledged: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Call:
    """One call of the API."""

    route: str
    body: Json
    outcome: str = ""


class CallLog(list[Call]):
    """Calls in the order of their arrival."""

    def of(self, route: str) -> list[Call]:
        """Return the calls of a route."""
        return [call for call in self if call.route == route]

    def failed_calls(self) -> list[Call]:
        """Return the failed calls."""
        return [call for call in self if call.outcome not in {"ok", "lost"}]


class Refused(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, code: str, retry_after: float = 0.0) -> None:
        super().__init__(code)
        self.status, self.code, self.retry_after = status, code, retry_after


_STATUS = {"invalid_token": 401, "unknown_message": 404, "unknown_channel": 404, "unknown_user": 404}


class FakePlain:
    """The service with one workspace, `W1`, and the bot."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.calls = CallLog()
        self.workspace = "W1"
        self.sessions: set[str] = set()
        """The pollers so far."""
        self.events: list[Event] = []
        self.users: dict[str, User] = {}
        self.channels: dict[str, Channel] = {}
        self.messages: dict[str, Message] = {}
        self.bot = self.other_bot("Countersign")
        self._plans: Plans[Any] = Plans()
        self._blocked: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._server = LoopbackServer([])
        self.url = ""

    async def __aenter__(self) -> FakePlain:
        host = await self._server.listen(
            [
                web.post("/channels/{channel}/messages", self._route(POST, self._post)),
                web.patch("/messages/{message}", self._route(EDIT, self._edit)),
                web.delete("/messages/{message}", self._route("DELETE /messages/{message}", self._delete)),
                web.post("/channels/{channel}/files", self._route(SHARE, self._share)),
                web.get("/channels/{channel}/messages", self._route("GET /channels/{channel}/messages", self._history)),
                web.get("/users/{user}", self._route("GET /users/{user}", self._user)),
                web.get("/groups/{group}", self._route("GET /groups/{group}", self._group)),
                web.post("/users/{user}/direct", self._route("POST /users/{user}/direct", self._direct)),
                web.get("/files/{file}", self._route("GET /files/{file}", self._file)),
                web.post("/events", self._poll),
            ]
        )
        self.url = f"http://{host}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._notify()
        await self._server.close()

    # People and channels

    def user(self, name: str, *, admin: bool = False, external: bool = False) -> User:
        """Add a user."""
        user = User(f"u{len(self.users) + 1}", name, admin, external)
        self.users[user.id] = user
        return user

    def other_bot(self, name: str) -> User:
        """Add another bot."""
        user = self.user(name)
        user.is_bot = True
        return user

    def channel(self, name: str, *_members: User) -> Channel:
        """Add a channel, which everybody reads."""
        channel = Channel(f"c{len(self.channels) + 1}", name)
        self.channels[channel.id] = channel
        return channel

    def dm(self, user: User) -> Channel:
        """Return the direct conversation of the bot with a user."""
        for channel in self.channels.values():
            if channel.direct_with is user:
                return channel
        channel = self.channel(f"direct-{user.name}")
        channel.direct_with = user
        return channel

    # Actions of users

    def say(
        self, user: User, channel: Channel, text: str, thread: str = "", files: Iterable[tuple[str, bytes]] = ()
    ) -> Message:
        """Post a message as a user."""
        message = self._add(Message("", channel, user, text, thread, files=list(files)))
        self.again(message)
        return message

    def again(self, message: Message) -> Event:
        """Deliver a message, once more if it was delivered before."""
        event = Event(len(self.events) + 1, message)
        self.events.append(event)
        self._notify()
        return event

    def edit(self, message: Message, text: str) -> None:
        """Edit a message as its author."""
        message.text, message.edited = text, message.edited + 1
        self.again(message)

    def delete(self, message: Message) -> None:
        """Delete a message."""
        message.is_deleted = True

    async def press(self, user: User, message: Message, command: str) -> bool:
        """Type a command where a message stands. Return True once the bot has acknowledged it."""
        self.say(user, message.channel, command, message.thread)
        event = self.events[-1]
        async with asyncio.timeout(10):
            await event.acknowledged.wait()
        return True

    def form(self, user: User) -> Message | None:
        """Return the last message of the bot that asks a user for fields, until they are sent."""
        forms = [
            message
            for message in self.messages.values()
            if message.only_for == user.id and message.commands and message.commands[0][0] == "Submit"
        ]
        return forms[-1] if forms else None

    async def submit(self, user: User, values: Mapping[str, str]) -> None:
        """Type the command of a form, with its fields below it."""
        form = self.form(user)
        if form is None:
            raise LookupError("no form is open")
        lines = "".join(f"\n{name}: {value}" for name, value in values.items())
        command, form.commands = form.commands[0][1], []
        await self.press(user, form, f"{command}{lines}")

    def fail(self, route: str, fault: Any, times: int = 1) -> None:
        """Let the next calls of a route fail."""
        self._plans.plan(route, fault, times)

    # Visible state

    def bot_messages(self, channel: Channel, thread: str | None = None) -> list[Message]:
        """Return the messages of the bot in a channel, of one thread if it is given, oldest first."""
        return [
            message
            for message in self.messages.values()
            if message.channel is channel
            and message.author is self.bot
            and not message.is_deleted
            and (thread is None or message.thread == thread)
        ]

    async def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait until a condition holds."""
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.005)

    # The API

    def _route(
        self, route: str, handle: Callable[[web.Request, Json], object]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def respond(request: web.Request) -> web.Response:
            body: Json = await request.json() if request.can_read_body else {}
            call = Call(route, body)
            self.calls.append(call)
            channel, fault = request.match_info.get("channel", ""), self._plans.next(route)
            try:
                self._check(request, channel, fault)
                if isinstance(fault, Cut):
                    call.outcome = "cut"
                    assert request.transport is not None
                    request.transport.abort()
                    return web.Response()
                answer = handle(request, body)
            except Refused as refusal:
                call.outcome = refusal.code
                return web.json_response(
                    {"error": refusal.code, "retry_after": refusal.retry_after}, status=refusal.status
                )
            call.outcome = "ok"
            if isinstance(fault, Lost):
                call.outcome = "lost"
                assert request.transport is not None
                request.transport.abort()
            return web.Response(body=answer) if isinstance(answer, bytes) else web.json_response(answer)

        return respond

    def _check(self, request: web.Request, channel: str, fault: object) -> None:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise Refused(401, "invalid_token")
        if isinstance(fault, Answers):
            raise Refused(fault.status, f"http {fault.status}")
        if isinstance(fault, Fails):
            raise Refused(_STATUS.get(fault.code, 403), fault.code)
        if isinstance(fault, TooMany):
            self._blocked[channel] = self.clock.now() + fault.retry_after
        if (seconds := self._blocked.get(channel, 0.0) - self.clock.now()) > 0:
            raise Refused(429, "too_many_requests", seconds)

    def _post(self, request: web.Request, body: Json) -> Json:
        channel = self._writable(request)
        _check_content(body)
        for message in self.messages.values():
            if body.get("nonce") and message.channel is channel and message.nonce == body["nonce"]:
                return {"id": message.id, "existed": True}
        message = Message("", channel, self.bot, body["text"], body.get("thread", ""), body.get("commands", []))
        message.nonce, message.only_for = body.get("nonce", ""), body.get("only_for", "")
        return {"id": self._add(message).id}

    def _share(self, request: web.Request, body: Json) -> Json:
        channel = self._writable(request)
        if channel.files_forbidden:
            raise Refused(403, "files_forbidden")
        file = (str(body["name"]), base64.b64decode(body["content"]))
        message = Message("", channel, self.bot, "", body.get("thread", ""), files=[file])
        message.only_for = body.get("only_for", "")
        return {"id": self._add(message).id}

    def _edit(self, request: web.Request, body: Json) -> Json:
        message = self._message(request)
        _check_content(body)
        message.text, message.commands = body["text"], body.get("commands", [])
        return {"id": message.id}

    def _delete(self, request: web.Request, _body: Json) -> Json:
        self._message(request).is_deleted = True
        return {}

    def _history(self, request: web.Request, _body: Json) -> Json:
        channel, thread = self._channel(request), request.query.get("thread", "")
        messages = [
            _message_json(message)
            for message in self.messages.values()
            if message.channel is channel
            and not message.only_for
            and not message.is_deleted
            and thread in (message.thread, message.id)
        ]
        return {"messages": messages}

    def _user(self, request: web.Request, _body: Json) -> Json:
        user = self.users.get(request.match_info["user"])
        if user is None or user.left:
            raise Refused(404, "unknown_user")
        return {
            "id": user.id,
            "name": user.name,
            "admin": user.admin,
            "external": user.external,
            "bot": user.is_bot,
            "groups": sorted(user.groups),
            "language": user.language,
            "time_zone": user.time_zone,
        }

    def _group(self, request: web.Request, _body: Json) -> Json:
        name = request.match_info["group"]
        return {"name": name, "members": [user.id for user in self.users.values() if name in user.groups]}

    def _direct(self, request: web.Request, _body: Json) -> Json:
        user = self.users.get(request.match_info["user"])
        if user is None or user.left:
            raise Refused(404, "unknown_user")
        return {"id": self.dm(user).id}

    def _file(self, request: web.Request, _body: Json) -> bytes:
        message, _, number = request.match_info["file"].partition("-")
        return self.messages[message].files[int(number)][1]

    async def _poll(self, request: web.Request) -> web.Response:
        """Return the next events, after a second at most. `done` are the numbers of events to acknowledge."""
        try:
            self._check(request, "", None)
        except Refused as refusal:
            return web.json_response({"error": refusal.code}, status=refusal.status)
        body = await request.json()
        self.sessions.add(body["session"])
        for number in body["done"]:
            self.events[number - 1].acknowledged.set()
        until = asyncio.get_running_loop().time() + POLL_SECONDS
        while not (waiting := self._waiting()) and asyncio.get_running_loop().time() < until:
            with suppress(TimeoutError):
                async with asyncio.timeout(REDELIVERY_SECONDS / 4):
                    await self._changed.wait()
        for event in waiting:
            event.sent_at = self.clock.now()
        return web.json_response(
            {"events": [{"number": event.number, **_message_json(event.message)} for event in waiting]}
        )

    def _waiting(self) -> list[Event]:
        now = self.clock.now()
        return [
            event
            for event in self.events
            if not event.acknowledged.is_set() and (event.sent_at is None or event.sent_at < now - REDELIVERY_SECONDS)
        ]

    def _channel(self, request: web.Request) -> Channel:
        channel = self.channels.get(request.match_info["channel"])
        if channel is None:
            raise Refused(404, "unknown_channel")
        return channel

    def _writable(self, request: web.Request) -> Channel:
        channel = self._channel(request)
        if channel.closed or channel.read_only:
            raise Refused(403, "channel_closed" if channel.closed else "read_only")
        return channel

    def _message(self, request: web.Request) -> Message:
        message = self.messages.get(request.match_info["message"])
        if message is None or message.is_deleted or message.author is not self.bot:
            raise Refused(404, "unknown_message")
        if message.channel.closed:
            raise Refused(403, "channel_closed")
        return message

    def _add(self, message: Message) -> Message:
        message.id, message.sent_at = f"m{len(self.messages) + 1}", self.clock.now()
        self.messages[message.id] = message
        return message

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _check_content(body: Json) -> None:
    text, commands = body["text"], body.get("commands", [])
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        raise Refused(400, "text_too_long")
    if not text.strip():
        raise Refused(400, "no_text")
    if len(commands) > MOST_COMMANDS or not all(label and command for label, command in commands):
        raise Refused(400, "invalid_commands")


def _message_json(message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "channel": message.channel.id,
        "direct": message.channel.direct_with is not None,
        "thread": message.thread,
        "sent_at": message.sent_at,
        "edited": bool(message.edited),
        "author": message.author.id,
        "name": message.author.name,
        "bot": message.author.is_bot,
        "text": message.text,
        "files": [
            {"id": f"{message.id}-{number}", "name": name, "size": len(content)}
            for number, (name, content) in enumerate(message.files)
        ],
    }
