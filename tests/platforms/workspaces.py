"""Chat workspaces for the contract of all platforms: the fake service, its real client library, and the bot."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from bot.chat.actions import Action, encode
from bot.chat.context import Lookups
from bot.chat.message_handler import ASK_AGAIN
from bot.chat.users import AudiencePolicy
from bot.domain.conversations import Author, ConversationKey
from bot.domain.turns import MessageRefs, ToolStep, Turn, TurnView
from bot.platforms.discord.app import DiscordSurface
from bot.platforms.discord.app_commands import ASK_ABOUT_THIS
from bot.platforms.slack.app import SlackSurface
from bot.ports import Surface
from tests.fakes import discord as discord_fake
from tests.fakes import plain as plain_fake
from tests.fakes import slack as slack_fake
from tests.platforms import sample_views
from tests.platforms.discord import connected_bot as discord_bot
from tests.platforms.plain import connected_bot as plain_bot
from tests.platforms.plain.app import PlainSurface
from tests.platforms.slack import connected_bot as slack_bot


@dataclass(frozen=True)
class Posted:
    """A message of the bot. `content` holds its text and components, in the platform's format."""

    id: str
    content: str
    files: tuple[tuple[str, bytes], ...]
    native: Any


Approvals = dict[str, tuple[Turn, ToolStep]]


class Workspace(ABC):
    """A workspace with Priya in #incidents, whose turns are in threads and delivered by one process at a time."""

    platform: ClassVar[str]
    post: ClassVar[str]
    edit: ClassVar[str]
    """Names of calls, for faults."""
    permanent: ClassVar[Mapping[str, Any]]
    """Permanent faults, by the text of their cause."""
    token_rejected: ClassVar[Sequence[Any]]
    history: ClassVar[str]
    """Name of the call that reads a thread."""
    layout_rejected: ClassVar[Any]
    layouts: ClassVar[int] = 1
    """Number of attempted layouts before plain text."""
    token_setting: ClassVar[str]

    def __init__(self, bot: Any, fake: Any) -> None:
        self.bot, self.fake = bot, fake
        self.engine = bot.engine
        self.priya, self.channel = bot.priya, bot.channel
        self.approvals: Approvals = {}
        self.refs: dict[str, dict[str, str]] = {}
        self.surface: Surface = self.another_process()

    @abstractmethod
    def another_process(self) -> Surface:
        """Return a new surface with an empty cache."""

    @abstractmethod
    def open_thread(self, channel: Any = None) -> ConversationKey:
        """Let Priya ask in a channel, and return the thread. The channel defaults to #incidents."""

    @abstractmethod
    def public_messages(self, where: Any) -> list[Posted]:
        """Return the bot's public messages in a conversation or a channel."""

    @abstractmethod
    def private_texts(self, user: Any, where: ConversationKey) -> list[str]:
        """Return the texts of ephemeral messages to this user in a conversation."""

    @abstractmethod
    def address(self, channel: Any) -> str:
        """Return a channel's name in approval rules."""

    @abstractmethod
    def administrator(self) -> Any:
        """Return an admin of the workspace who is in the channel."""

    @abstractmethod
    def outsider(self) -> Any:
        """Return an external user with access to the channel."""

    @abstractmethod
    def unreachable_user(self) -> Any:
        """Return a user without access to the approval."""

    @abstractmethod
    def close(self, channel: Any) -> None:
        """Make posts in a channel fail."""

    @abstractmethod
    def forbid_files(self) -> None:
        """Remove the bot's permission to share files."""

    @abstractmethod
    async def forge(self, where: ConversationKey, text: str) -> Posted:
        """Post a message of the bot with a button that carries this text."""

    @abstractmethod
    def write(self, user: Any, text: str, where: Any = None, files: Sequence[tuple[str, bytes]] = ()) -> Any:
        """Let a user write, in #incidents, a channel or a thread."""

    @abstractmethod
    def notices(self, user: Any) -> list[str]:
        """Return the bot's notices to a user in #incidents, for example about a rejected message."""

    def offers(self, user: Any, where: ConversationKey) -> list[Posted]:
        """Return the ephemeral offers to ask an edited question again."""
        return [message for message in self.private(user, where) if ASK_AGAIN in message.content]

    async def ask_again(self, user: Any, offer: Posted) -> None:
        """Accept the offer to ask an edited question again."""
        await self.fake.press(user, offer.native, ASK_AGAIN)

    @abstractmethod
    def private(self, user: Any, where: ConversationKey) -> list[Posted]:
        """Return the ephemeral and direct messages to this user."""

    @abstractmethod
    async def wait_until_handled(self, where: Any = None) -> None:
        """Wait until the bot has handled the messages in #incidents or in a thread."""

    @property
    def mention(self) -> str:
        """Mention of the bot."""
        return str(self.fake.bot.mention)

    @property
    def questions(self) -> list[str]:
        """Texts of the messages for the engine."""
        return [message.text for message in self.engine.received]

    async def question(self, text: str = "why?") -> ConversationKey:
        """Let Priya ask the bot in #incidents. Return the conversation of the answer."""
        self.write(self.priya, f"{self.mention} {text}")
        await self.fake.until(lambda: text in self.questions)
        conversation = self.engine.received[-1].conversation
        assert isinstance(conversation, ConversationKey)
        return conversation

    @abstractmethod
    def private_content(self, user: Any, where: ConversationKey) -> str:
        """Return the ephemeral messages to this user with their components, and the open form."""

    @abstractmethod
    def form(self, user: Any) -> str:
        """Return the text of a user's open form; empty if no form is open."""

    @abstractmethod
    def private_files(self, user: Any) -> list[tuple[str, bytes]]:
        """Return the files that the bot shares only with this user."""

    @abstractmethod
    async def ask_about(self, user: Any, message: Any) -> None:
        """Choose *Ask about this* for a message of a user, which opens a form."""

    @abstractmethod
    async def reopen_form(self, user: Any, where: ConversationKey) -> None:
        """Open the next or the rejected step of a form, on platforms that need a click for it."""

    @property
    def here(self) -> ConversationKey:
        """Key of #incidents outside of threads, for `shown` and `see`."""
        return ConversationKey(self.platform, "", self.channel.id, self.channel.id)

    async def open_form(self, user: Any, message: Posted, action: Action | str) -> str:
        """Press a button that opens a form, and return the form's text."""
        await self.press(user, message, action)
        await self.fake.until(lambda: self.form(user))
        return self.form(user)

    async def submit(self, user: Any, **values: str) -> None:
        """Submit a user's open form with values by label."""
        await self.fake.submit(user, {name.replace("_", " "): value for name, value in values.items()})

    async def see(self, user: Any, where: ConversationKey, text: str) -> None:
        """Wait until an ephemeral message or form of this user contains a text."""
        await self.fake.until(lambda: text in self.private_content(user, where))

    def store(self, view: TurnView) -> None:
        """Store a turn and its approvals."""
        self.engine.views.append(view)
        for step in view.steps:
            if isinstance(step, ToolStep) and step.approval is not None:
                self.approvals[step.approval.id] = (view.turn, step)

    def button(self, action: Action | str) -> str:
        """Return the fake's name for the button of an action."""
        return action if isinstance(action, str) else encode(action)

    def fail(self, call: str, fault: Any, times: int = 1) -> None:
        """Let the next `times` calls with this name fail."""
        self.fake.fail(call, fault, times)

    def ask(self, view: TurnView, where: ConversationKey | None = None, turn: str = "") -> TurnView:
        """Return the view as a turn that Priya begins now."""
        author = Author(self.platform, self.priya.id, "Priya")
        view = sample_views.at(view, where or self.open_thread(), author)
        return replace(view, turn=replace(view.turn, id=turn or view.turn.id, created_at=self.fake.clock.now()))

    async def deliver(self, view: TurnView) -> MessageRefs:
        """Deliver a view as the engine does, and keep its refs."""
        refs = self.refs.setdefault(view.turn.id, {})
        async for message in self.surface.deliver(view, refs):
            refs[message.slot] = message.ref
        return refs

    def take_over(self, *, after: float = 60.0, refs: bool = True) -> None:
        """Continue in another process, with the stored refs or without refs."""
        self.fake.clock.advance(after)
        self.surface = self.another_process()
        if not refs:
            self.refs.clear()

    async def press(self, user: Any, message: Posted, action: Action | str, *, late: bool = False) -> bool:
        """Press a button. Return True if the service got an acknowledgement.

        `late`: the message has lost the button since.
        """
        screen = self.old_screen(message) if late else {}
        return self.is_acknowledged(await self.fake.press(user, message.native, self.button(action), **screen))

    @abstractmethod
    def old_screen(self, message: Posted) -> dict[str, Any]:
        """Return the options of a fake's press for a client that still shows the message before its edit."""

    @abstractmethod
    def is_acknowledged(self, pressed: Any) -> bool:
        """Return True if the service got an acknowledgement within three seconds."""


class SlackWorkspace(Workspace):
    """Slack: the real slack_sdk and Bolt."""

    platform = "slack"
    post, edit = "chat.postMessage", "chat.update"
    history = "conversations.replies"
    permanent: ClassVar[Mapping[str, Any]] = {
        code: slack_fake.Fails(code)
        for code in ("is_archived", "not_in_channel", "restricted_action", "channel_not_found")
    }
    token_rejected: ClassVar[Sequence[Any]] = [
        slack_fake.Fails(code) for code in ("account_inactive", "token_revoked", "invalid_auth")
    ]
    layout_rejected: ClassVar[Any] = slack_fake.Fails("invalid_blocks")
    layouts: ClassVar[int] = 3
    token_setting = "SLACK_BOT_TOKEN"

    def another_process(self) -> SlackSurface:
        return SlackSurface(self.bot.workspaces, clock=self.fake.clock.now)

    def open_thread(self, channel: Any = None) -> ConversationKey:
        place = channel or self.channel
        root = self.fake.say(self.priya, place, "a question")
        return ConversationKey("slack", self.fake.workspace.team.id, place.id, root.ts)

    def public_messages(self, where: Any) -> list[Posted]:
        in_thread = isinstance(where, ConversationKey)
        messages = (
            self.fake.bot_messages(self._channel(where), where.thread) if in_thread else self.fake.bot_messages(where)
        )
        return [_slack_message(message) for message in messages if not message.ephemeral_to]

    def private_texts(self, user: Any, where: ConversationKey) -> list[str]:
        return list(self.bot.whispers(user, self._channel(where)))

    def address(self, channel: Any) -> str:
        return f"slack:{self.fake.workspace.team.id}:{channel.id}"

    def administrator(self) -> Any:
        user = self.fake.user("Sam", admin=True)
        self.channel.members.append(user.id)
        return user

    def outsider(self) -> Any:
        user = self.fake.user("Stella", team=slack_fake.Team("T0OTHER001", "other"), stranger=True)
        self.channel.members.append(user.id)
        return user

    def unreachable_user(self) -> Any:
        return self.fake.user("Gus", guest="multi")

    def close(self, channel: Any) -> None:
        channel.archived = True

    def write(self, user: Any, text: str, where: Any = None, files: Sequence[tuple[str, bytes]] = ()) -> Any:
        in_thread = isinstance(where, ConversationKey)
        channel = self._channel(where) if in_thread else where or self.channel
        if user.id not in channel.members:
            channel.members.append(user.id)
        return self.fake.say(user, channel, text, thread_ts=where.thread if in_thread else None, files=files)

    def notices(self, user: Any) -> list[str]:
        return list(self.bot.whispers(user))

    def private(self, user: Any, where: ConversationKey) -> list[Posted]:
        posted = self.fake.bot_messages(self._channel(where))
        return [_slack_message(message) for message in posted if message.ephemeral_to == user.id]

    async def wait_until_handled(self, where: Any = None) -> None:
        await self.bot.wait_for_responses()

    def forbid_files(self) -> None:
        self.fake.installation.scopes.discard("files:write")

    def old_screen(self, message: Posted) -> dict[str, Any]:
        return {"as_of": message.native.past[-1]}

    def is_acknowledged(self, pressed: Any) -> bool:
        return bool(pressed.is_acknowledged)

    def private_content(self, user: Any, where: ConversationKey) -> str:
        posted = self.fake.bot_messages(self._channel(where))
        messages = [f"{message.text} {message.blocks}" for message in posted if message.ephemeral_to == user.id]
        return "\n".join([*messages, self.form(user)])

    def form(self, user: Any) -> str:
        return "".join(f"{modal.drawn} {modal.words}" for modal in self.fake.modals(user)[-1:])

    def private_files(self, user: Any) -> list[tuple[str, bytes]]:
        posted = self.fake.bot_messages(self.fake.dm(user))
        return [(file.name, file.content) for message in posted for file in message.files]

    async def ask_about(self, user: Any, message: Any) -> None:
        await self.fake.shortcut(user, "cs.ask", message)
        await self.fake.until(lambda: self.form(user))

    async def reopen_form(self, user: Any, where: ConversationKey) -> None:
        """Do nothing: Slack shows the step in the same modal."""

    async def forge(self, where: ConversationKey, text: str) -> Posted:
        button = {
            "type": "button",
            "text": {"type": "plain_text", "text": "Forged"},
            "action_id": f"cs.{text.partition(':')[0]}",
            "value": text,
        }
        blocks = [{"type": "actions", "elements": [button]}]
        await self.bot.api.post(
            "chat.postMessage", channel=where.channel, thread_ts=where.thread, text="x", blocks=blocks
        )
        return self.public_messages(where)[-1]

    def _channel(self, where: ConversationKey) -> Any:
        return self.fake.workspace.channels[where.channel]


def _slack_message(message: Any) -> Posted:
    files = tuple((file.name, file.content) for file in message.files)
    return Posted(message.ts, message.text + str(message.blocks), files, message)


class DiscordWorkspace(Workspace):
    """Discord: the real discord.py."""

    platform = "discord"
    post = "POST /channels/{channel}/messages"
    edit = "PATCH /channels/{channel}/messages/{message}"
    history = "GET /channels/{channel}/messages"
    permanent: ClassVar[Mapping[str, Any]] = {
        str(code): discord_fake.Fails(code) for code in (50001, 50013, 10003, 160005)
    }
    token_rejected: ClassVar[Sequence[Any]] = [discord_fake.Answers(401)]
    layout_rejected: ClassVar[Any] = discord_fake.Fails(50035)
    token_setting = "DISCORD_TOKEN"

    def another_process(self) -> DiscordSurface:
        return DiscordSurface(self.bot.rest, self.bot.people, clock=self.fake.clock.now)

    def open_thread(self, channel: Any = None) -> ConversationKey:
        place = channel or self.channel
        root = self.fake.say(self.priya, place, "a question")
        thread = self.fake.thread(self.priya, place, "a question", root)
        return ConversationKey("discord", self.fake.guild.id, place.id, thread.id)

    def public_messages(self, where: Any) -> list[Posted]:
        channel = self._channel(where) if isinstance(where, ConversationKey) else where
        return [_discord_message(message) for message in self.bot.public_messages(channel)]

    def private_texts(self, user: Any, where: ConversationKey) -> list[str]:
        return list(self.bot.whispers(user, self._channel(where)))

    def address(self, channel: Any) -> str:
        return f"discord:{self.fake.guild.id}:{channel.id}"

    def administrator(self) -> Any:
        return self.fake.user("Sam", admin=True)

    def outsider(self) -> Any:
        return self.fake.user("Stella", pending=True)

    def unreachable_user(self) -> Any:
        return self.fake.user("Gus", pending=True)

    def close(self, channel: Any) -> None:
        self.fake.remove(channel)

    def write(self, user: Any, text: str, where: Any = None, files: Sequence[tuple[str, bytes]] = ()) -> Any:
        channel = self._channel(where) if isinstance(where, ConversationKey) else where or self.channel
        return self.fake.say(user, channel, text, files=files)

    def notices(self, user: Any) -> list[str]:
        return [message.content for message in self.bot.public_messages(self.fake.dm(user))]

    def private(self, user: Any, where: ConversationKey) -> list[Posted]:
        return [_discord_message(message) for message in self.fake.bot_messages(self.fake.dm(user))]

    async def wait_until_handled(self, where: Any = None) -> None:
        await self.bot.quiet(self._channel(where) if isinstance(where, ConversationKey) else where)

    def forbid_files(self) -> None:
        self.channel.forbid(self.fake.bot, discord_fake.Permission.ATTACH_FILES)

    def button(self, action: Action | str) -> str:
        return f"cs:{super().button(action)}"

    def old_screen(self, message: Posted) -> dict[str, Any]:
        return {"hidden": True}

    def is_acknowledged(self, pressed: Any) -> bool:
        return pressed.answered is discord_fake.Answer.DEFERRED_UPDATE

    def private_content(self, user: Any, where: ConversationKey) -> str:
        messages = self._ephemeral(user, where)
        texts = [f"{message.content} {message.components}" for message in messages]
        return "\n".join([*texts, self.form(user)])

    def form(self, user: Any) -> str:
        try:
            return str(self.fake.modal(user).drawn)
        except LookupError:
            return ""

    def private_files(self, user: Any) -> list[tuple[str, bytes]]:
        posted = (
            message for channel in self.fake.world.channels.values() for message in self.fake.bot_messages(channel)
        )
        return [
            (file.name, file.content) for message in posted for file in message.files if message.ephemeral_to == user.id
        ]

    async def ask_about(self, user: Any, message: Any) -> None:
        commands = self.fake.app.commands
        await self.fake.until(lambda: ASK_ABOUT_THIS in [entry["name"] for entry in commands.get("", [])])
        await self.fake.shortcut(user, ASK_ABOUT_THIS, message)

    async def reopen_form(self, user: Any, where: ConversationKey) -> None:
        await self.fake.until(lambda: "cs:pending:" in str(self._ephemeral(user, where)[-1:]))
        message = self._ephemeral(user, where)[-1]
        (label,) = {"Correct it", "Continue"} & set(re.findall(r"'label': '([^']*)'", str(message.components)))
        await self.fake.press(user, message, label)

    def _ephemeral(self, user: Any, where: ConversationKey) -> list[Any]:
        posted = self.fake.bot_messages(self._channel(where))
        return [message for message in posted if message.ephemeral_to == user.id]

    async def forge(self, where: ConversationKey, text: str) -> Posted:
        button = {"type": 2, "style": 2, "label": "Forged", "custom_id": self.button(text)}
        body = {"content": "x", "components": [{"type": 1, "components": [button]}]}
        path = "/channels/{channel_id}/messages"
        await self.bot.rest.call("POST", path, "post", body=body, channel_id=where.thread)
        return self.public_messages(where)[-1]

    def _channel(self, where: ConversationKey) -> Any:
        return self.fake.world.channels[where.thread]


class PlainWorkspace(Workspace):
    """The plain chat service: a minimal platform."""

    platform = "plain"
    post, edit = plain_fake.POST, plain_fake.EDIT
    history = "GET /channels/{channel}/messages"
    permanent: ClassVar[Mapping[str, Any]] = {
        code: plain_fake.Fails(code) for code in ("channel_closed", "read_only", "unknown_channel")
    }
    token_rejected: ClassVar[Sequence[Any]] = [plain_fake.Fails("invalid_token")]
    layout_rejected: ClassVar[Any] = plain_fake.Fails("invalid_commands")
    token_setting = "PLAIN_TOKEN"

    def another_process(self) -> PlainSurface:
        return PlainSurface(self.bot.api)

    def open_thread(self, channel: Any = None) -> ConversationKey:
        root = self.fake.say(self.priya, channel or self.channel, "a question")
        return ConversationKey("plain", self.fake.workspace, root.channel.id, root.id)

    def public_messages(self, where: Any) -> list[Posted]:
        in_thread = isinstance(where, ConversationKey)
        messages = (
            self.fake.bot_messages(self._channel(where), where.thread)
            if in_thread
            else self.fake.bot_messages(where, "")
        )
        return [_plain_message(message) for message in messages if not message.only_for]

    def private_texts(self, user: Any, where: ConversationKey) -> list[str]:
        messages = self.fake.bot_messages(self._channel(where))
        return [message.text for message in messages if message.only_for == user.id]

    def address(self, channel: Any) -> str:
        return f"plain:{self.fake.workspace}:{channel.id}"

    def administrator(self) -> Any:
        return self.fake.user("Sam", admin=True)

    def outsider(self) -> Any:
        return self.fake.user("Stella", external=True)

    def unreachable_user(self) -> Any:
        return self.fake.user("Gus", external=True)

    def close(self, channel: Any) -> None:
        channel.closed = True

    def forbid_files(self) -> None:
        self.channel.files_forbidden = True

    def button(self, action: Action | str) -> str:
        return f"!{super().button(action)}"

    def write(self, user: Any, text: str, where: Any = None, files: Sequence[tuple[str, bytes]] = ()) -> Any:
        if isinstance(where, ConversationKey):
            return self.fake.say(user, self._channel(where), text, where.thread, files=files)
        return self.fake.say(user, where or self.channel, text, files=files)

    def notices(self, user: Any) -> list[str]:
        return [message.text for message in self.fake.messages.values() if message.only_for == user.id]

    async def ask_again(self, user: Any, offer: Posted) -> None:
        (command,) = (command for label, command in offer.native.commands if label == ASK_AGAIN)
        await self.fake.press(user, offer.native, command)

    def private(self, user: Any, where: ConversationKey) -> list[Posted]:
        messages = self.fake.bot_messages(self._channel(where))
        return [_plain_message(message) for message in messages if message.only_for == user.id]

    async def wait_until_handled(self, where: Any = None) -> None:
        await self.fake.until(lambda: all(event.acknowledged.is_set() for event in self.fake.events))

    def private_content(self, user: Any, where: ConversationKey) -> str:
        private = (message for message in self.fake.messages.values() if message.only_for == user.id)
        return "\n".join(f"{message.text} {message.commands}" for message in private)

    def form(self, user: Any) -> str:
        form = self.fake.form(user)
        return f"{form.text} {form.commands}" if form is not None else ""

    def private_files(self, user: Any) -> list[tuple[str, bytes]]:
        return [
            file for message in self.fake.messages.values() if message.only_for == user.id for file in message.files
        ]

    async def ask_about(self, user: Any, message: Any) -> None:
        raise NotImplementedError("the service has no menu of messages")

    async def reopen_form(self, user: Any, where: ConversationKey) -> None:
        await self.fake.until(lambda: self.form(user))

    def old_screen(self, message: Posted) -> dict[str, Any]:
        return {}

    def is_acknowledged(self, pressed: Any) -> bool:
        return bool(pressed)

    async def forge(self, where: ConversationKey, text: str) -> Posted:
        return self.public_messages(where)[-1]  # users may type any command

    def _channel(self, where: ConversationKey) -> Any:
        return self.fake.channels[where.channel]


def _plain_message(message: Any) -> Posted:
    return Posted(message.id, message.text + str(message.commands), tuple(message.files), message)


def _discord_message(message: Any) -> Posted:
    files = tuple((file.name, file.content) for file in message.files)
    return Posted(message.id, message.content + str(message.components), files, message)


@asynccontextmanager
async def open_workspace(
    platform: str, *, listening: bool = False, audience: AudiencePolicy | None = None
) -> AsyncIterator[Workspace]:
    """Open a workspace of a platform. `listening`: the bot receives interactions and messages."""
    approvals: Approvals = {}

    async def approval(approval_id: str) -> tuple[Turn, ToolStep] | None:
        return approvals.get(approval_id)

    workspace: Workspace
    async with AsyncExitStack() as stack:
        if platform == "slack":
            records = Lookups(approval=approval)
            bot = slack_bot.connected_bot(listening=listening, audience=audience, records=records)
            connected = await stack.enter_async_context(bot)
            workspace = SlackWorkspace(connected, connected.slack)
        elif platform == "plain":
            plain_lookups = Lookups(approval=approval)
            service = plain_bot.connected_bot(listening=listening, audience=audience, records=plain_lookups)
            plain = await stack.enter_async_context(service)
            workspace = PlainWorkspace(plain, plain.plain)
        else:
            lookups = Lookups(approval=approval)
            guild_bot = discord_bot.connected_bot(listening=listening, audience=audience, records=lookups)
            guild = await stack.enter_async_context(guild_bot)
            workspace = DiscordWorkspace(guild, guild.discord)
        workspace.approvals = approvals
        yield workspace
