"""Interactions: presses, commands and submitted forms, until the app has answered and for fifteen minutes after."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from tests.fakes.discord.messages import Message
from tests.fakes.discord.people import User
from tests.fakes.discord.places import Channel
from tests.fakes.discord.refusals import Json
from tests.fakes.discord.snowflakes import moment_of


class Asked(IntEnum):
    """Discord's interaction types."""

    COMMAND = 2
    COMPONENT = 3
    AUTOCOMPLETE = 4
    MODAL_SUBMIT = 5


class Answer(IntEnum):
    """Discord's types of the first answer."""

    MESSAGE = 4
    DEFERRED_MESSAGE = 5
    DEFERRED_UPDATE = 6
    UPDATE = 7
    CHOICES = 8
    MODAL = 9


FITTING: dict[Asked, frozenset[Answer]] = {
    Asked.COMMAND: frozenset({Answer.MESSAGE, Answer.DEFERRED_MESSAGE, Answer.MODAL}),
    Asked.COMPONENT: frozenset(set(Answer) - {Answer.CHOICES}),
    Asked.AUTOCOMPLETE: frozenset({Answer.CHOICES}),
    Asked.MODAL_SUBMIT: frozenset(set(Answer) - {Answer.CHOICES, Answer.MODAL}),
}
"""Which answers belong to which interactions. Updates of a modal submitted need a message it was opened from."""


@dataclass(eq=False)
class Modal:
    """A modal that a user has open."""

    drawn: Json
    opened_by: Interaction

    @property
    def title(self) -> str:
        """The title."""
        return str(self.drawn["title"])


@dataclass(eq=False)
class Interaction:
    """One interaction. `answered` is the type of the app's first answer, None before it.

    `message` is the message with the clicked component, or from which the modal was opened. `opened_from` is the
    interaction that opened a submitted modal. `original` is the message of `@original`, `followups` are those posted
    after it. `choices` are the results of autocomplete. `failed` is True if Discord has shown that the app did not
    respond. `settled` is set once the interaction is answered or failed.
    """

    id: str
    kind: Asked
    user: User
    channel: Channel
    data: Json
    payload: Json = field(default_factory=dict)
    message: Message | None = None
    opened_from: Interaction | None = None
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    answered: Answer | None = None
    original: Message | None = None
    followups: list[Message] = field(default_factory=list)
    modal: Modal | None = None
    choices: list[Json] = field(default_factory=list)
    failed: bool = False
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def at(self) -> float:
        """Time of the interaction, in seconds since 1970."""
        return moment_of(self.id)

    @property
    def messages(self) -> list[Message]:
        """The app's replies, in order."""
        first = [self.original] if self.original is not None and self.original is not self.message else []
        return [message for message in [*first, *self.followups] if not message.deleted]

    @property
    def text(self) -> str:
        """Content of all messages posted in answer."""
        return "\n".join(message.content for message in self.messages)

    @property
    def is_outside(self) -> bool:
        """Was the app used where only its user has installed it?"""
        return list(self.payload["authorizing_integration_owners"]) == ["1"]

    def metadata(self) -> Json:
        """Return the `interaction_metadata` of messages posted in answer."""
        described: Json = {
            "id": self.id,
            "type": int(self.kind),
            "user": self.user.to_json(),
            "authorizing_integration_owners": self.payload["authorizing_integration_owners"],
        }
        if self.kind is Asked.COMPONENT and self.message is not None:
            described["interacted_message_id"] = self.message.id
        if self.kind is Asked.MODAL_SUBMIT:
            described["triggering_interaction_metadata"] = self.opened_from.metadata() if self.opened_from else {}
        return described

    def settle(self, *, failed: bool = False) -> None:
        """End the user's waiting."""
        self.failed = failed
        self.settled.set()


def options_of(data: Json) -> dict[str, Any]:
    """Return the values of a command's options by name, those of its subcommand if it has one."""
    options = data.get("options", [])
    while options and options[0]["type"] in {1, 2}:
        options = options[0].get("options", [])
    return {option["name"]: option["value"] for option in options}
