"""Platforms: the interface of the engine and of the commands that they use, and the two halves that each implements,
the inbound Listener and the outbound Surface. The HTTP API is a platform, too.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from bot.domain.agents import AgentRef, Agents
from bot.domain.approvals import (
    WHOLE,
    AlreadyDecided,
    ApprovalNotFound,
    Decision,
    DecisionResult,
    NotAllowed,
    Portion,
    StaleRevision,
)
from bot.domain.arrivals import Arrivals
from bot.domain.commands import Form, FormSubmission, Invocation, Reply, Verb
from bot.domain.conversations import Attachment, Author, ConversationKey, InboundMessage, Member
from bot.domain.elicitations import Elicitation, ElicitationAction, ElicitationResult
from bot.domain.grants import GrantRequest
from bot.domain.health import ListenerStatus
from bot.domain.locales import Locale
from bot.domain.tools import ArgumentError
from bot.domain.turns import (
    EditedQuestion,
    MessageRefs,
    Notice,
    NoticeTarget,
    PostedMessage,
    Receipt,
    ToolStep,
    Turn,
    TurnView,
)


@dataclass(frozen=True, slots=True)
class OpenElicitation:
    """Elicitation and its call."""

    turn: Turn
    step: ToolStep
    elicitation: Elicitation


@dataclass(frozen=True, slots=True)
class ElicitationAnswered:
    """The answer was accepted as the result of the elicitation."""

    action: ElicitationAction


@dataclass(frozen=True, slots=True)
class InvalidValues:
    """The values of an answer or a call do not match its schema. A problem without a name is about all of them."""

    problems: tuple[ArgumentError, ...]


AnswerRejected = AlreadyDecided | NotAllowed | ApprovalNotFound
"""Reasons for rejecting an answer: already answered, not permitted or not found."""
AnswerResult = ElicitationAnswered | InvalidValues | AnswerRejected


@dataclass(frozen=True, slots=True)
class EditableCall:
    """Editable call: its current arguments in `step`, and the schema for new ones. `whole` is True if this user may
    approve the call and so may see parts that look like a secret.
    """

    turn: Turn
    step: ToolStep
    schema: Mapping[str, Any]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class RevisionAccepted:
    """The new arguments wait for an approval under this revision."""

    revision: int


NotEditable = AlreadyDecided | StaleRevision | NotAllowed | ApprovalNotFound
"""Reasons for not editing a call: decided, changed meanwhile, not permitted or not found."""
EditResult = RevisionAccepted | InvalidValues | NotEditable


class Commands(Protocol):
    """Slash commands, written once for all platforms."""

    @property
    def verbs(self) -> Mapping[str, Sequence[Verb]]:
        """All verbs by command, for platforms that register them."""

    def handle(self, request: Invocation | FormSubmission) -> AsyncIterator[Reply | Form]:
        """Answer a command, possibly several times during its work: each reply replaces the one before."""

    def complete(self, text: str, conversation: ConversationKey) -> Sequence[str]:
        """Return whole command lines, without the slash, that begin with `text`. Names are those known in the
        conversation, from memory, so that this returns at once.
        """


class Approvals(Protocol):
    """Calls that await approval."""

    async def decide(self, decision: Decision, member: Member) -> DecisionResult:
        """Decide an approval, if the member may and it still waits."""

    async def rejection(self, decision: Decision, member: Member) -> DecisionResult | None:
        """Return the reason why the member may not decide so now, None if they may. Nothing is decided."""

    async def grant(self, decision: Decision, request: GrantRequest, member: Member) -> DecisionResult:
        """Approve a call and grant later ones like it, if the member may do both and the call still waits."""

    async def get_editable_call(self, approval_id: str, revision: int, member: Member) -> EditableCall | NotEditable:
        """Return a waiting call for this member to edit, or the reason against it."""

    async def open_call(
        self, approval_id: str, revision: int, member: Member, portion: Portion = WHOLE
    ) -> ToolStep | NotEditable:
        """Return a waiting call for this member to read as a whole in private, if the member may approve it. The page
        is recorded before it is returned.
        """

    async def revise(self, approval_id: str, revision: int, arguments: Mapping[str, Any], member: Member) -> EditResult:
        """Replace the arguments of a waiting call, if the member may and the revision is current."""


class Elicitations(Protocol):
    """Answers to elicitations."""

    async def get(self, elicitation_id: str, member: Member) -> OpenElicitation | AnswerRejected:
        """Return an elicitation that this member may answer now, or the rejection."""

    async def answer(self, elicitation_id: str, result: ElicitationResult, member: Member) -> AnswerResult:
        """Answer an elicitation, if the member may, it still waits, and the values are valid."""


class EngineApi(Protocol):
    """Engine interface for platforms."""

    @property
    def approvals(self) -> Approvals:
        """Approvals of all turns."""

    @property
    def elicitations(self) -> Elicitations:
        """Elicitations of all turns."""

    @property
    def arrivals(self) -> Arrivals:
        """Messages that are being taken in, for whose end their platform waits."""

    async def receive(self, message: InboundMessage) -> Receipt:
        """Store a message and return. The platform's acknowledgement waits only for this. Raises NotFound for an agent
        that is not one of the conversation.
        """

    async def is_followed(self, conversation: ConversationKey, at: float, by: str = "") -> bool:
        """Return True if a message of this time continues the conversation without a mention: the conversation has a
        turn, and the last message with an addressee addressed the bot. False for a message older than that one, and if
        the user `by` has no turn there: what bystanders write is not for the bot.
        """

    async def save_addressee(self, conversation: ConversationKey, *, is_bot: bool, at: float) -> None:
        """Record that a message of a conversation with a turn addresses the bot or another user. `at` is the time of
        the message: an older one than the last changes nothing.
        """

    async def rename(self, conversation: ConversationKey, title: str) -> None:
        """Give a conversation another title, if it has a turn."""

    async def stop(self, turn_id: str, by: Author) -> bool:
        """Stop a turn. Return False if it had ended."""

    async def run_again(self, turn_id: str, n: int, by: Author) -> Receipt:
        """Run a call again that has an unknown outcome, or that was denied, expired or failed, with a new approval.
        Raises NotFound.
        """

    async def check_outcome(self, turn_id: str, n: int, by: Author) -> Receipt:
        """Ask the model to check if a call of unknown outcome has run. Raises NotFound."""

    async def is_stored(self, keys: Sequence[str]) -> bool:
        """Return True if a message with one of these keys is a turn."""

    def agents(self, conversation: ConversationKey) -> Agents:
        """Return the agents that users of a conversation may ask by name."""

    async def edit_question(
        self, keys: Sequence[str], text: str, by: Author, agent: AgentRef | None = None
    ) -> EditedQuestion | None:
        """Take the edited text of a message with one of these keys from its author, and the agent that it names. Return
        None if no turn is known.
        """

    async def delete_question(self, keys: Sequence[str]) -> bool:
        """Stop the turn of a deleted message with one of these keys, and remove the message from later prompts. Return
        False if no turn is known.
        """

    async def ask_again(self, turn_id: str, by: Author) -> Receipt:
        """Ask the edited text of a turn's message, and stop that turn. Repeated requests return the same turn. Raises
        NotFound.
        """

    async def continue_turn(self, turn_id: str, by: Author) -> Receipt:
        """Ask the model to go on where a turn was stopped. Raises NotFound."""

    async def view(self, turn_id: str) -> TurnView:
        """Return the stored view of a turn. Raises NotFound."""

    async def latest_turn(self, conversation: ConversationKey) -> Turn | None:
        """Return the last turn of a conversation, None if it has none."""

    async def recent_turns(self, conversation: ConversationKey, limit: int) -> Sequence[TurnView]:
        """Return the stored views of the last `limit` turns of a conversation, oldest first."""


class Listener(Protocol):
    """Inbound half. One per platform, only in the process that receives its messages."""

    async def run(self, engine: EngineApi, commands: Commands) -> None:
        """Listen until cancelled or until the platform ends the connection."""

    async def listening(self) -> ListenerStatus:
        """Return the listener's status at once, from memory. Never raises."""
        ...


class Surface(Protocol):
    """Outbound half. One per platform, in every process that delivers views."""

    @property
    def key_prefixes(self) -> tuple[str, ...]:
        """Prefixes of the conversation keys of this surface, compared with the key's text and a colon behind it. A
        prefix that ends with the colon may select a single conversation. The value may change.
        """

    @property
    def min_interval(self) -> float:
        """Minimum seconds between two deliveries of one turn."""

    def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Display the whole state of a turn, editing the messages in `refs`, and yield each posted slot at once.
        Idempotent. Raises DeliveryFailed.
        """

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        """Post a notice outside a turn. Raises DeliveryFailed."""

    async def member(self, author: Author, conversation: ConversationKey) -> Member:
        """Return the user as a member of the workspace, recent enough to authorize by."""

    async def fetch(self, attachment: Attachment) -> bytes:
        """Return the bytes of an attachment."""


@dataclass(frozen=True, slots=True)
class PostedText:
    """A message of a conversation as its platform has it now. `id` is as in `InboundMessage.message_id`, `name` is that
    of its author. `answer_of` is the id of the turn whose answer it belongs to; empty for a message of a user.
    """

    id: str
    name: str
    text: str
    answer_of: str = ""


@runtime_checkable
class CardSurface(Protocol):
    """Optional half of a Surface: it posts cards about calls of conversations that are elsewhere."""

    def deliver_cards(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Post and edit the cards in other places alone. The view's conversation is the workspace that they are posted
        in, without a channel. Raises DeliveryFailed.
        """
        ...


@runtime_checkable
class ThreadReader(Protocol):
    """Optional half of a Surface: it reads conversations back, for operators that store none."""

    async def read_thread(
        self, conversation: ConversationKey, posted: Mapping[str, MessageRefs]
    ) -> Sequence[PostedText]:
        """Return the messages of a conversation, oldest first: those of users, and of the bot those with text of the
        answers of turns in `posted`, by the refs of each turn. Cards and notices are left out. Raises DeliveryFailed.
        """
        ...


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """A user or group as its platform knows it now. `members` are the principals of a group's users; None for a user,
    and for a group whose members the platform does not tell.
    """

    name: str
    members: frozenset[str] | None = None


@runtime_checkable
class UserLocales(Protocol):
    """Optional half of a Surface: it knows the languages and time zones of users."""

    async def user_locale(self, user: str, conversation: ConversationKey) -> Locale:
        """Return the locale of a user in a workspace, as far as the platform knows it without delay. Never raises."""
        ...


@runtime_checkable
class ApproverDirectory(Protocol):
    """Optional half of a Surface: it knows the users and groups that rules name, and links to approval cards."""

    async def find_approver(self, principal: str, conversation: ConversationKey) -> DirectoryEntry | None:
        """Return a user or group by its principal, up to some minutes old. None if it is gone, and for users who may
        approve nothing: guests, external users and bots. Raises DeliveryFailed.
        """
        ...

    async def card_url(self, view: TurnView, approval_id: str, refs: MessageRefs) -> str:
        """Return the URL of a call's posted card; empty if it has none. Raises DeliveryFailed."""
        ...
