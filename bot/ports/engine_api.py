"""The engine and the commands, as platforms and the HTTP API use them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from bot.domain.agents import AgentRef, Agents
from bot.domain.approvals import WHOLE, Decision, DecisionResult, Portion
from bot.domain.argument_edits import EditableCall, EditResult, NotEditable
from bot.domain.commands import Form, FormSubmission, Invocation, Reply, Verb
from bot.domain.conversations import Author, ConversationKey, InboundMessage, Member
from bot.domain.elicitation_answers import AnswerRejected, AnswerResult, OpenElicitation
from bot.domain.elicitations import ElicitationResult
from bot.domain.grants import GrantRequest
from bot.domain.turns import EditedQuestion, Receipt, ToolStep, TurnView


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

    async def receive(self, message: InboundMessage) -> Receipt:
        """Store a message and return. The platform's acknowledgement waits only for this. Raises NotFound for an agent
        that is not one of the conversation.
        """

    async def is_followed(self, conversation: ConversationKey, at: float) -> bool:
        """Return True if a message of this time continues the conversation without a mention: the conversation has a
        turn, and the last message that addressed anybody addressed the bot. False for a message older than that one.
        """

    async def save_addressee(self, conversation: ConversationKey, *, is_bot: bool, at: float) -> None:
        """Record that a message of a conversation with a turn addresses the bot or another user. `at` is the time of
        the message: an older one than the last changes nothing.
        """

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

    async def ask_again(self, turn_id: str, by: Author) -> Receipt:
        """Ask the edited text of a turn's message, and stop that turn. Repeated requests return the same turn. Raises
        NotFound.
        """

    async def continue_turn(self, turn_id: str, by: Author) -> Receipt:
        """Ask the model to go on where a turn was stopped. Raises NotFound."""

    async def view(self, turn_id: str) -> TurnView:
        """Return the stored view of a turn. Raises NotFound."""

    async def recent_turns(self, conversation: ConversationKey, limit: int) -> Sequence[TurnView]:
        """Return the stored views of the last `limit` turns of a conversation, oldest first."""
