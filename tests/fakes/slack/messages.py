"""Messages with their earlier versions, and their JSON in histories and events."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.fakes.slack.files import StoredFile

Json = dict[str, Any]


@dataclass
class Stream:
    """A message that is being streamed. `way`: with which argument it grows; `recipient`: '' in direct messages."""

    started_at: float
    mode: Literal["timeline", "plan", "dense"]
    recipient: str
    open: bool = True
    way: str = ""
    first_text: str = ""
    text: str = ""
    plan_title: str = ""
    tasks: dict[str, Json] = field(default_factory=dict)
    blocks: list[Json] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of all that was streamed into it."""
        tasks = "".join(str(value) for task in self.tasks.values() for value in task.values())
        return len((self.text + self.plan_title + tasks).encode())

    def alive(self, now: float, lifetime: float) -> bool:
        """Can it still grow? Ends it if it has lived too long."""
        self.open = self.open and now < self.started_at + lifetime
        return self.open

    def extended_copy(self, markdown: str, chunks: list[Json]) -> Stream:
        """Return a copy with more in it. `details` and `output` of a task are appended, its other fields replaced.

        Appending is reported for `details`; `output` is taken to do the same.
        """
        grown = dataclasses.replace(self, tasks={k: dict(v) for k, v in self.tasks.items()}, blocks=[*self.blocks])
        grown.text += markdown
        for chunk in chunks:
            match chunk["type"]:
                case "markdown_text":
                    grown.text += chunk["text"]
                case "plan_update":
                    grown.plan_title = chunk["title"]
                case "blocks":
                    grown.blocks += chunk["blocks"]
                case _:
                    before = grown.tasks.get(chunk["id"], {})
                    task = before | {key: value for key, value in chunk.items() if key != "type" and value is not None}
                    for name in ("details", "output"):
                        if before.get(name) and chunk.get(name):
                            task[name] = before[name] + chunk[name]
                    grown.tasks[chunk["id"]] = task
        return grown


@dataclass
class Message:
    """One message. `ephemeral_to` is the id of its only reader. `past` holds its states before each change."""

    ts: str
    channel: str
    user: str
    team: str
    text: str = ""
    blocks: list[Json] = field(default_factory=list)
    attachments: list[Json] = field(default_factory=list)
    files: list[StoredFile] = field(default_factory=list)
    thread_ts: str | None = None
    subtype: str | None = None
    bot_id: str = ""
    app_id: str = ""
    client_msg_id: str = ""
    metadata: Json | None = None
    edited: Json | None = None
    deleted: bool = False
    broadcast: bool = False
    ephemeral_to: str = ""
    unfurl_links: bool = True
    unfurl_media: bool = True
    username: str = ""
    markdown: str = ""
    mrkdwn: bool = True
    linked_names: bool = False
    stream: Stream | None = None
    reactions: dict[str, list[str]] = field(default_factory=dict)
    past: list[Json] = field(default_factory=list)
    extra: Json = field(default_factory=dict)
    """More fields of the message's JSON."""

    @property
    def root(self) -> str:
        """The ts of the thread it is in or could start."""
        return self.thread_ts or self.ts

    def to_json(self) -> Json:
        """Return the message as histories and events carry it."""
        written: Json = {"type": "message", "user": self.user, "ts": self.ts, "text": self.text, "team": self.team}
        optional = {
            "subtype": self.subtype,
            "bot_id": self.bot_id,
            "app_id": self.app_id,
            "client_msg_id": self.client_msg_id,
            "thread_ts": self.thread_ts,
            "blocks": self.blocks,
            "attachments": self.attachments,
            "edited": self.edited,
            "metadata": self.metadata,
            "username": self.username,
            "files": [stored.to_message_json() for stored in self.files],
            "reactions": [
                {"name": name, "users": list(users), "count": len(users)} for name, users in self.reactions.items()
            ],
        }
        written |= {name: value for name, value in optional.items() if value} | self.extra
        if self.stream is not None and self.stream.open:
            written["streaming_state"] = "in_progress"
        return written

    def remember(self) -> Json:
        """Record the present state as its past before a change, and return it."""
        before = self.to_json()
        self.past.append(before)
        return before
