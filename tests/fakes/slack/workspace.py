"""One workspace: its users, channels, messages and files, and their visibility.

It has no network. Methods of the Web API and the test's users both change it.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field

from tests.fakes.clock import Clock
from tests.fakes.slack.files import StoredFile
from tests.fakes.slack.messages import Json, Message
from tests.fakes.slack.modals import View
from tests.fakes.slack.people import Team, User, UserGroup
from tests.fakes.slack.places import Channel
from tests.fakes.slack.refusals import Refused
from tests.fakes.slack.words import words_of

MENTION = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^>]*)?>")


@dataclass(frozen=True)
class Sight:
    """A message as one user sees it now. `words` are all visible texts, one a line."""

    ts: str
    user: str
    text: str
    words: str
    blocks: list[Json]
    thread_ts: str | None
    ephemeral: bool
    streaming: bool
    edited: bool
    reactions: dict[str, list[str]]
    files: list[str]


@dataclass
class Workspace:
    """The state of one workspace. Ids are unique in it, not across workspaces."""

    team: Team
    clock: Clock
    users: dict[str, User] = field(default_factory=dict)
    groups: dict[str, UserGroup] = field(default_factory=dict)
    channels: dict[str, Channel] = field(default_factory=dict)
    messages: dict[str, dict[str, Message]] = field(default_factory=dict)
    files: dict[str, StoredFile] = field(default_factory=dict)
    statuses: dict[tuple[str, str], Json] = field(default_factory=dict)
    sessions: dict[tuple[str, str], Json] = field(default_factory=dict)
    titles: dict[tuple[str, str], str] = field(default_factory=dict)
    prompts: dict[tuple[str, str], list[Json]] = field(default_factory=dict)
    homes: dict[str, View] = field(default_factory=dict)
    _made: int = 0
    _last_ts: int = 0

    def new_id(self, letter: str) -> str:
        """Return an unused id, such as U00000001."""
        self._made += 1
        return f"{letter}{self._made:08d}"

    def new_ts(self) -> str:
        """Return a timestamp later than every one before: seconds, a dot, six digits."""
        self._last_ts = max(int(self.clock.now() * 1_000_000), self._last_ts + 1)
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06d}"

    def channel(self, channel: str) -> Channel:
        """Return the conversation with this id.

        Raises:
            Refused: channel_not_found.
        """
        found = self.channels.get(channel)
        if found is None:
            raise Refused("channel_not_found")
        return found

    def person(self, user: str) -> User:
        """Return the user with this id.

        Raises:
            Refused: user_not_found.
        """
        found = self.users.get(user)
        if found is None:
            raise Refused("user_not_found")
        return found

    def message(self, channel: str, ts: str) -> Message:
        """A message that is there for all, by its ts; no ephemeral one has a place in a history.

        Raises:
            Refused: message_not_found.
        """
        found = self.messages.get(channel, {}).get(ts)
        if found is None or found.deleted or found.ephemeral_to:
            raise Refused("message_not_found")
        return found

    def keep(self, message: Message) -> Message:
        """Put a new message where it belongs."""
        self.messages.setdefault(message.channel, {})[message.ts] = message
        return message

    def store(self, name: str, content: bytes, user: str, base: str) -> StoredFile:
        """Store an uploaded file."""
        file_id = self.new_id("F")
        stored = StoredFile(file_id, name, content, user, f"{base}/files-pri/{self.team.id}-{file_id}/{name}")
        self.files[file_id] = stored
        return stored

    def dm(self, user: str, bot: str) -> Channel:
        """Return the direct message between a user and a bot; open it if it is missing."""
        for channel in self.channels.values():
            if channel.kind == "im" and set(channel.members) == {user, bot}:
                return channel
        opened = Channel(self.new_id("D"), "", "im", self.team, [user, bot])
        self.channels[opened.id] = opened
        return opened

    def thread(self, channel: str, root: str) -> list[Message]:
        """Return the messages of a thread for all, its first included, in order."""
        kept = self.messages.get(channel, {}).values()
        return sorted((m for m in kept if m.root == root and not m.deleted and not m.ephemeral_to), key=lambda m: m.ts)

    def top_level(self, channel: str) -> list[Message]:
        """Return the messages of a channel outside threads, with those that started one, in order."""
        kept = self.messages.get(channel, {}).values()
        here = (m for m in kept if m.thread_ts in {None, m.ts} or m.broadcast)
        return sorted((m for m in here if not m.deleted and not m.ephemeral_to), key=lambda m: m.ts)

    def reload(self, user: str) -> None:
        """Restart the user's client, which loses ephemeral messages."""
        for kept in self.messages.values():
            for message in kept.values():
                message.deleted = message.deleted or message.ephemeral_to == user

    def sights(self, user: str, channel: str, thread_ts: str | None = None) -> list[Sight]:
        """Messages that this user sees in a conversation, or in one thread of it, in order."""
        if user not in self.channel(channel).members:
            return []
        seen = [m for m in self.messages.get(channel, {}).values() if not m.deleted and self._reaches(m, user)]
        if thread_ts is not None:
            seen = [m for m in seen if m.root == thread_ts]
        return [self._sight(m, user) for m in sorted(seen, key=lambda m: m.ts)]

    def _reaches(self, message: Message, user: str) -> bool:
        """Return True if the user sees the message.

        An ephemeral message reaches one user, and in a thread only if the thread has an earlier reply.
        """
        if not message.ephemeral_to:
            return True
        begun = not message.thread_ts or any(m.ts < message.ts for m in self.thread(message.channel, message.root)[1:])
        return message.ephemeral_to == user and begun

    def _sight(self, message: Message, user: str) -> Sight:
        stream = message.stream
        shown = message
        if stream is not None and stream.open and stream.recipient not in {"", user}:
            # As reported from the field: others see the first piece alone until the stream has ended.
            shown = dataclasses.replace(message, text=stream.first_text, blocks=[], markdown="", stream=None)
        return Sight(
            ts=message.ts,
            user=message.user,
            text=shown.text,
            words=words_of(shown, user),
            blocks=shown.blocks,
            thread_ts=message.thread_ts,
            ephemeral=bool(message.ephemeral_to),
            streaming=stream is not None and stream.open,
            edited=bool(message.past),
            reactions={name: list(users) for name, users in message.reactions.items()},
            files=[stored.name for stored in message.files],
        )


def mentioned_users(text: str) -> list[str]:
    """Return the ids of the users a text mentions, in order."""
    return MENTION.findall(text)
