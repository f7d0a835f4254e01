"""Surface and listener of the plain chat service.

The listener handles messages, and the commands that users type for buttons. A form is a private message with a command
to type. Its fields follow in lines such as `reason: too early`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from time import time
from typing import Any
from uuid import uuid4

import aiohttp

from bot.chat import turn_messages as chat_turns
from bot.chat.actions import (
    Action,
    InteractionRejected,
    OpenConfirmation,
    OpenDenyForm,
    OpenForm,
    PendingActions,
    RunPending,
    decode,
)
from bot.chat.backfill import conversation_texts
from bot.chat.background_tasks import BackgroundTasks
from bot.chat.card_messages import (
    NO_MEMBER,
    RemoteMessage,
    card_slots,
    decision_buttons,
    pending_call,
    remote_cards,
    without_address,
)
from bot.chat.command_runner import CommandRunner
from bot.chat.context import ChatContext, Lookups, with_card_forms
from bot.chat.delivery import MessageOwner, MessageSender, TurnDelivery, TurnMessages
from bot.chat.interactions import ELSEWHERE, Actor, InteractionHandler, ModalAction
from bot.chat.message_handler import (
    Location,
    MessageContent,
    MessageHandler,
    PlatformMessage,
    ThreadMessage,
)
from bot.chat.message_model import ChannelLink, Message
from bot.chat.users import AudiencePolicy
from bot.domain.approvals import WHOLE, ChannelTarget, DirectTarget, Portion
from bot.domain.commands import Field, Form, Reply, ReplyFile
from bot.domain.conversations import Attachment, Author, ConversationKey, InboundMessage, Member
from bot.domain.health import ListenerStatus
from bot.domain.locales import UNKNOWN, Locale
from bot.domain.turns import MessageRefs, Notice, NoticeTarget, PostedMessage, StepStatus, ToolStep, Turn, TurnView
from bot.engine.locales import LocaleResolver
from bot.errors import CountersignError, DeliveryFailed
from bot.ports import Commands, EngineApi
from bot.ports.platform import DirectoryEntry, PostedText
from bot.rendering.approval_card import approval_card, whole_card
from bot.rendering.markdown import SizeLimit
from bot.rendering.timeline import ToolFile
from tests.platforms.plain.api import GROUP, PLATFORM, PlainApi, PlainApiError
from tests.platforms.plain.rendering import LONGEST_TEXT, PlainMessage, command, escape, plain_message

ANSWER_LIMITS = chat_turns.AnswerLimits(SizeLimit(good=2_500, most=3_400, weigh=len), weigh_line=len)
CALLS_A_CARD = 4
SUBMIT = "!submit "
BOT = "u1"
MENTION = f"@<{BOT}>"


class PlainMessages(TurnMessages[PlainMessage]):
    """Messages of turns. A ref is a channel and the id of a message there."""

    largest_file = 1024 * 1024

    def __init__(self, api: PlainApi) -> None:
        self._api = api

    async def render(self, view: TurnView, now: float, refs: MessageRefs) -> Sequence[PlainMessage]:
        messages = chat_turns.turn_messages(view, now, ANSWER_LIMITS, CALLS_A_CARD, without_address, refs=refs)
        return [plain_message(_as_message(message)) for message in messages]

    async def render_remote(self, view: TurnView, now: float) -> Sequence[RemoteMessage[PlainMessage]]:
        origin = ChannelLink(view.turn.conversation.channel)
        return list(remote_cards(view, now, origin, plain_message, calls_a_card=CALLS_A_CARD))

    async def locate_remote(self, _turn: Turn, remote: RemoteMessage[PlainMessage], ref: str) -> PlainMessage:
        match remote.place:
            case _ if ref:
                channel = ref.partition(":")[0]
            case ChannelTarget(channel):
                pass
            case DirectTarget(user):
                if (await self._api.member(user)).external:
                    raise DeliveryFailed(NO_MEMBER, permanent=True)
                channel = await self._api.direct_channel(user)
        return replace(remote.message, channel=channel)

    async def share(self, turn: Turn, file: ToolFile, **_lookup: Any) -> str:
        where = turn.conversation
        return await self._api.share(where.channel, file.name, await file.read(), thread=where.thread)

    def is_token_rejected(self, error: DeliveryFailed) -> bool:
        return isinstance(error, PlainApiError) and error.status == 401

    async def create(self, owner: MessageOwner, message: PlainMessage, replaced: str) -> str:
        """Post a message. The service keeps each nonce, and returns its first message for a repeated nonce."""
        where, nonce = owner.conversation, hashlib.sha256(f"{owner.id} {message.name} {replaced}".encode()).hexdigest()
        channel, thread = (message.channel, "") if message.channel else (where.channel, where.thread)
        path = f"/channels/{channel}/messages"
        posted = await self._api.call("POST", path, thread=thread, nonce=nonce, **message.body)
        ref = f"{channel}:{posted['id']}"
        if posted.get("existed"):
            await self.update(owner, message, ref)
        return ref

    async def update(self, _owner: MessageOwner, message: PlainMessage, ref: str) -> None:
        await self._api.call("PATCH", f"/messages/{ref.partition(':')[2]}", **message.body)

    async def remove(self, ref: str) -> None:
        try:
            await self._api.call("DELETE", f"/messages/{ref.partition(':')[2]}")
        except PlainApiError as error:
            if not self.is_gone(error, ref):
                raise

    async def find(self, _owner: MessageOwner, _message: PlainMessage, _taken: Collection[str]) -> str:
        return ""  # a repeated post returns the message by its nonce

    def digest(self, message: PlainMessage) -> str:
        return str(message.body)

    def fallback(self, message: PlainMessage, error: DeliveryFailed) -> PlainMessage | None:
        is_rejected = isinstance(error, PlainApiError) and error.code == "invalid_commands" and not message.asks
        return replace(message, commands=()) if is_rejected else None

    def is_gone(self, error: DeliveryFailed, _ref: str) -> bool:
        return isinstance(error, PlainApiError) and error.code == "unknown_message"

    def is_unclear(self, _error: DeliveryFailed) -> bool:
        return False


def _as_message(message: Message | chat_turns.Answer) -> Message:
    return message if isinstance(message, Message) else Message(message.name, (*message.body, *message.ending))


class PlainSurface:
    """The surface of the workspace."""

    key_prefixes = (f"{PLATFORM}:",)
    min_interval = 0.05

    def __init__(self, api: PlainApi) -> None:
        self._api, messages = api, PlainMessages(api)
        self._sender = MessageSender(messages)
        self._delivery = TurnDelivery(messages, messages, users=self, clock=time)

    def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        return self._delivery.deliver(view, refs)

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        where = ConversationKey.parse(audience.conversation)
        if audience.person:
            where = replace(where, channel=await self._api.direct_channel(audience.person), thread="")
        await self._api.call(
            "POST", f"/channels/{where.channel}/messages", text=escape(_notice_text(notice)), thread=where.thread
        )

    async def show_in_channel(self, owner: MessageOwner, message: Message, ref: str, *, search: bool = False) -> str:
        native = replace(plain_message(message), channel=owner.conversation.channel)
        return await self._sender.show(owner, native, ref, search=search)

    async def member(self, author: Author, conversation: ConversationKey) -> Member:
        is_here = author.platform == conversation.platform == PLATFORM
        return await self._api.member(author.id) if is_here else Member(author, external=True)

    def resolve_locales(self, locales: LocaleResolver) -> None:
        self._delivery.locales = locales

    async def user_locale(self, user: str, _conversation: ConversationKey) -> Locale:
        try:
            return (await self._api.member(user)).locale
        except DeliveryFailed:
            return UNKNOWN

    async def find_approver(self, principal: str, _conversation: ConversationKey) -> DirectoryEntry | None:
        if principal.startswith(GROUP):
            return await self._api.group(principal.removeprefix(GROUP))
        member = await self._api.member(principal.partition(":")[2])
        return None if member.external else DirectoryEntry(member.author.name)

    async def card_url(self, view: TurnView, approval_id: str, refs: MessageRefs) -> str:
        posted = (refs.get(slot, "") for slot in card_slots(view, approval_id, CALLS_A_CARD))
        return next((f"https://plain.example/{ref}" for ref in posted if ":" in ref), "")

    async def read_thread(
        self, conversation: ConversationKey, posted: Mapping[str, MessageRefs]
    ) -> Sequence[PostedText]:
        messages = await read_messages(self._api, conversation)
        return conversation_texts(
            messages,
            posted,
            ref_of=lambda message: f"{conversation.channel}:{message.id}",
            id_of=lambda message: message.id,
        )

    async def fetch(self, attachment: Attachment) -> bytes:
        return bytes(await self._api.call("GET", f"/files/{attachment.id}"))


@dataclass(frozen=True, slots=True)
class TypedCommand:
    """A command that a user typed: the interaction and its responder."""

    api: PlainApi
    conversation: ConversationKey
    user: str
    pending: PendingActions
    direct: bool = False

    is_awaited = True

    def responding(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def acknowledge(self) -> None:
        return

    async def find_viewer(self) -> tuple[Locale, ConversationKey | None, Locale]:
        try:
            return (await self.api.member(self.user)).locale, self.conversation, UNKNOWN
        except DeliveryFailed:
            return UNKNOWN, self.conversation, UNKNOWN

    async def find_actor(self, about: ConversationKey | None) -> Actor:
        if about is not None and about.workspace_key != self.conversation.workspace_key:
            raise InteractionRejected(ELSEWHERE)
        direct = self.direct and about in (None, self.conversation)
        return Actor(await self.api.member(self.user), about or self.conversation, direct)

    async def tell(self, text: str, about: ConversationKey | None = None) -> None:
        await self._post(escape(text))

    async def show(self, message: Message) -> None:
        shown = plain_message(message)
        await self._post(shown.text, shown.commands)

    show_in_place = show

    async def open_modal(self, action: ModalAction, about: ConversationKey | None) -> bool:
        opened: Action
        match action:
            case OpenForm(form):
                lines = [form.title, form.intro, *map(_field_text, form.fields)]
                opened = self.pending.store(action, about or self.conversation, self.user)
            case OpenConfirmation(_, text):
                opened, lines = action, [f"Type the command, and below it: typed: {text}"]
            case OpenDenyForm():
                opened, lines = action, ["Type the command, and below it: reason: …"]
        await self._post(escape("\n".join(lines)), (("Submit", f"{SUBMIT}{command(opened)[1:]}"),))
        return True

    def responder(self, actor: Actor, *, in_new_message: bool) -> TypedCommand:
        return self

    def portion_of(self, step: ToolStep, page: int) -> Portion:
        return WHOLE

    async def show_call(self, step: ToolStep, page: int, *, whole: bool) -> None:
        card = whole_card(step) if whole else approval_card(step)
        if card is not None:
            buttons = (decision_buttons(step, card),) if step.status is StepStatus.AWAITING else ()
            await self.show(Message("call", (*pending_call(step, card, time()), *buttons)))

    async def update_call(self, approval_id: str) -> None:
        return

    async def progress(self, reply: Message) -> None:
        return

    async def finish(self, reply: Message) -> bool:
        shown = plain_message(reply)
        await self._post(shown.text, shown.commands)
        return len(shown.text) < LONGEST_TEXT

    async def open_form(self, form: Form) -> bool:
        return await self.open_modal(OpenForm(form), None)

    async def offer_form(self, form: Form, words: tuple[str, ...]) -> None:
        await self.open_form(form)

    async def share(self, file: ReplyFile, *, private: bool) -> None:
        await self.api.share(self.conversation.channel, file.name, file.text.encode(), only_for=self.user)

    async def start_thread(self, message: InboundMessage) -> str:
        return ""

    async def _post(self, text: str, commands: Sequence[tuple[str, str]] = ()) -> None:
        body = PlainMessage("", text[:LONGEST_TEXT], tuple(commands)).body
        path = f"/channels/{self.conversation.channel}/messages"
        await self.api.call("POST", path, thread=self.conversation.thread, only_for=self.user, **body)


class PlainListener:
    """Listener that polls for events and acknowledges each handled event.

    It is also the `MessagePlatform` of its messages.
    """

    name, redelivers, reading_seconds = PLATFORM, True, 3.0

    def __init__(self, api: PlainApi, lookups: Lookups, audience: AudiencePolicy) -> None:
        self._api, self._lookups, self._audience = api, lookups, audience
        self._pending = PendingActions(limit=1_000)

    async def listening(self) -> ListenerStatus:
        return ListenerStatus.CONNECTED

    async def run(self, engine: EngineApi, commands: Commands) -> None:
        tasks, commands = BackgroundTasks(), with_card_forms(engine, commands, self._lookups)
        context = ChatContext(
            engine=engine, commands=commands, audience=self._audience, background_tasks=tasks, records=self._lookups
        )
        runner = CommandRunner(commands, engine, _with_names, self._lookups.locales)
        self._interactions = InteractionHandler(context, platform=PLATFORM, commands=runner, pending=self._pending)
        messages = MessageHandler[PlatformMessage](self, context)
        session, done = str(uuid4()), list[int]()
        try:
            while True:
                events = (await self._api.call("POST", "/events", session=session, done=done))["events"]
                done = [event["number"] for event in events if await self._handle(event, messages)]
        finally:
            await messages.close()
            await tasks.close()

    async def _handle(self, event: dict[str, Any], messages: MessageHandler[PlatformMessage]) -> bool:
        """Handle an event. Return False if the service has to send it again."""
        if event["bot"]:
            return True
        message = parse_message(event)
        if event["text"].startswith("!"):
            first, *lines = event["text"].split("\n")
            if first.startswith(SUBMIT):
                opened, values = decode(first.removeprefix(SUBMIT)), dict(line.split(": ", 1) for line in lines)
                self._interactions.on_modal(
                    opened, self._by_name(opened, values, message.user), self._make_command(message)
                )
            else:
                self._interactions.on_action(decode(first[1:]), self._make_command(message))
            return True
        try:
            await (messages.handle_edit(message) if event["edited"] else messages.handle(message))
        except CountersignError:
            return False
        return True

    def _by_name(self, opened: Action | None, values: dict[str, str], user: str) -> dict[str, str]:
        """Return the values of a form by field name. Users type the labels."""
        pending = self._pending.find(opened.token, user) if isinstance(opened, RunPending) else None
        fields = pending[0].form.fields if pending is not None and isinstance(pending[0], OpenForm) else ()
        names = {field.label: field.name for field in fields}
        return {names.get(label, label.casefold()): value for label, value in values.items()}

    def _make_command(self, message: PlatformMessage) -> TypedCommand:
        return TypedCommand(self._api, _conversation(message), message.user, self._pending, message.direct)

    async def locate(self, message: PlatformMessage) -> Location:
        async def open_thread(_name: str) -> str:
            return message.id

        where = _conversation(message)
        if message.direct or message.may_be_in_thread:
            return Location(where, in_thread=message.may_be_in_thread)
        return Location(replace(where, thread=""), open_thread=open_thread)

    async def find_author(self, message: PlatformMessage, _conversation: ConversationKey) -> Member:
        return await self._api.member(message.user)

    async def resolve_names(self, messages: Sequence[ThreadMessage]) -> Sequence[ThreadMessage]:
        mentioned = {user for message in messages for user in re.findall(r"@<(\w+)>", message.text)}
        names = {user: (await self._api.member(user)).author.name for user in mentioned}
        return [
            replace(message, text=re.sub(r"@<(\w+)>", lambda match: f"@{names[match[1]]}", message.text))
            for message in messages
        ]

    async def read_earlier(
        self, message: PlatformMessage, *, in_thread: bool
    ) -> tuple[Sequence[ThreadMessage], Sequence[ThreadMessage]]:
        read = await read_messages(self._api, _conversation(message))
        return [earlier for earlier in read if earlier.id != message.id] if in_thread else (), ()

    async def run_command(
        self, message: PlatformMessage, _conversation: ConversationKey, words: tuple[str, ...]
    ) -> None:
        self._interactions.on_command(words, self._make_command(message))

    async def notify_author(self, message: PlatformMessage, text: str) -> None:
        await self._make_command(message).tell(text)

    post_hint = notify_author

    async def show_to_author(self, message: PlatformMessage, conversation: ConversationKey, shown: Message) -> None:
        await TypedCommand(self._api, conversation, message.user, self._pending).show(shown)


async def read_messages(api: PlainApi, where: ConversationKey) -> Sequence[ThreadMessage]:
    """Return the messages of a conversation, oldest first."""
    answer = await api.call("GET", f"/channels/{where.channel}/messages", {"thread": where.thread})
    return [
        ThreadMessage(
            entry["id"],
            entry["author"],
            entry["name"],
            _without_mention(entry["text"]),
            tuple(file["name"] for file in entry["files"]),
            own=entry["author"] == BOT,
        )
        for entry in answer["messages"]
    ]


def parse_message(event: dict[str, Any]) -> PlatformMessage:
    """Parse an event. The thread key of a message is its channel and the id of the thread's first message."""
    text = event["text"]
    return PlatformMessage(
        id=event["id"],
        keys=(f"{PLATFORM}:{event['id']}",),
        thread_key=f"{event['channel']}:" + ("" if event["direct"] else event["thread"] or event["id"]),
        user=event["author"],
        content=MessageContent(
            _without_mention(text),
            files=tuple(Attachment(file["id"], file["name"], "text/plain", file["size"]) for file in event["files"]),
        ),
        sent_at=event["sent_at"],
        mentions_bot=MENTION in text,
        direct=event["direct"],
        may_be_in_thread=bool(event["thread"]),
        mentions=frozenset(re.findall(r"@<(\w+)>", text)) - {BOT},
    )


def _notice_text(notice: Notice) -> str:
    return f"{notice.text} {notice.card_url}".rstrip()


def _field_text(field: Field) -> str:
    choices = f" ({', '.join(field.choices)})" if field.choices else ""
    return f"{field.label}{choices}: {field.error or field.value}"


def _without_mention(text: str) -> str:
    return text.replace(MENTION, "").strip()


def _conversation(message: PlatformMessage) -> ConversationKey:
    channel, _, thread = message.thread_key.partition(":")
    return ConversationKey(PLATFORM, "W1", channel, thread)


async def _with_names(_conversation: ConversationKey, reply: Reply) -> Reply:
    return reply


@dataclass(frozen=True, slots=True)
class PlainApp:
    """The app: `surface` delivers turns."""

    api: PlainApi
    surface: PlainSurface

    def listener(self, lookups: Lookups) -> PlainListener:
        return PlainListener(self.api, lookups, AudiencePolicy())


@asynccontextmanager
async def open_plain(token: str, url: str) -> AsyncIterator[PlainApp]:
    """Open the app of a bot token."""
    async with aiohttp.ClientSession() as session:
        api = PlainApi(session, token, url)
        yield PlainApp(api, PlainSurface(api))
