"""Where people are: what platforms may ask of the engine and of the commands, and what they do for the engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from bot.domain.answering import Answering, Inquiry, NotAnswerable
from bot.domain.approvals import WHOLE, Decision, Portion, Settlement
from bot.domain.commands import Form, Invocation, Reply, Submission, Verb
from bot.domain.conversations import Attachment, Author, ConversationKey, InboundMessage, Member
from bot.domain.edits import Draft, Editing, NotNow
from bot.domain.elicitations import Elicited
from bot.domain.grants import Permission
from bot.domain.health import Listening
from bot.domain.turns import Receipt, ToolStep
from bot.domain.views import Audience, Drawn, Notice, Refs, TurnView


class FrontDoor(Protocol):
    """What a platform may ask of the engine."""

    async def receive(self, message: InboundMessage) -> Receipt:
        """Put a message on disk and return: the platform's acknowledgement waits for this and for nothing else."""

    async def decide(self, decision: Decision, member: Member) -> Settlement:
        """Settle an approval, if this member may and nobody was faster."""

    async def grant(self, decision: Decision, permission: Permission, member: Member) -> Settlement:
        """Approve a call and allow the next ones like it, if this member may do both and nobody was faster."""

    async def draft(self, approval_id: str, revision: int, member: Member) -> Draft | NotNow:
        """A call that waits for a signature, for this member to change; or why they cannot."""

    async def open_call(
        self, approval_id: str, revision: int, member: Member, portion: Portion = WHOLE
    ) -> ToolStep | NotNow:
        """Return a call that waits, for this member to see every character of it in private, if they may approve it.
        The page they are shown is on record before they see it.
        """

    async def revise(self, approval_id: str, revision: int, arguments: Mapping[str, Any], member: Member) -> Editing:
        """Ask for a signature on other arguments instead, if this member may and nobody was faster."""

    async def inquiry(self, elicitation_id: str, member: Member) -> Inquiry | NotAnswerable:
        """What a server has asked back and this member may answer now; or why they cannot."""

    async def answer(self, elicitation_id: str, reply: Elicited, member: Member) -> Answering:
        """Answer it, if this member may, nobody was faster, and the values fit what was asked."""

    async def stop(self, turn_id: str, by: Author) -> bool:
        """Stop a turn at whatever it is doing. False if it had ended."""

    async def again(self, turn_id: str, n: int, by: Author) -> Receipt:
        """Run a call once more whose outcome is unknown, or that came to nothing, with a fresh signature. Raises
        NotFound.
        """

    async def check(self, turn_id: str, n: int, by: Author) -> Receipt:
        """Ask the model to find out whether a call of unknown outcome has happened. Raises NotFound."""

    async def view(self, turn_id: str) -> TurnView:
        """A turn as it stands on disk. Raises NotFound."""

    async def recent(self, conversation: ConversationKey, limit: int) -> Sequence[TurnView]:
        """The last turns of a conversation as they stand on disk, oldest first."""


class Listener(Protocol):
    """Inbound: one per platform, only in the process where that platform is received."""

    async def run(self, engine: FrontDoor, commands: Commands) -> None:
        """Listen until cancelled or until the platform says goodbye."""

    async def listening(self) -> Listening:
        """Whether messages arrive now: from memory, at once. Never raises."""
        ...


class Surface(Protocol):
    """Outbound: one per platform, in every process that draws."""

    @property
    def reach(self) -> str:
        """The beginning that the text of a conversation's key, with a colon behind it, must have for this surface to
        draw it: one that ends with the colon takes in one conversation alone. It may change.
        """

    @property
    def pace(self) -> float:
        """Seconds that must pass between two drawings of one turn."""

    def show(self, view: TurnView, refs: Refs) -> AsyncGenerator[Drawn, None]:
        """Draw the whole state of a turn, reusing what `refs` names, and yield every slot as soon as it is out.
        Idempotent. Raises DeliveryFailed.
        """

    async def tell(self, audience: Audience, notice: Notice) -> None:
        """Say something outside a turn. Raises DeliveryFailed."""

    async def member(self, author: Author, where: ConversationKey) -> Member:
        """Who this person is there, fresh enough to decide by."""

    async def fetch(self, attachment: Attachment) -> bytes:
        """The bytes of something a person uploaded."""


class Commands(Protocol):
    """Slash commands, written once for all platforms."""

    @property
    def verbs(self) -> Mapping[str, Sequence[Verb]]:
        """Every verb by its command, for a platform that registers them."""

    def handle(self, request: Invocation | Submission) -> AsyncIterator[Reply | Form]:
        """Answer a command, possibly several times while it works: each reply replaces the one before."""

    def complete(self, text: str, conversation: ConversationKey) -> Sequence[str]:
        """Whole command lines, without the slash, that begin with `text`, with the names that are known where the
        person stands: from memory, at once.
        """
