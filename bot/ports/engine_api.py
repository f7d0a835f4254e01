"""Engine interface for platforms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bot.domain.approvals import WHOLE, Decision, DecisionResult, Portion
from bot.domain.argument_edits import EditableCall, EditResult, NotEditable
from bot.domain.conversations import Author, ConversationKey, InboundMessage, Member
from bot.domain.elicitation_answers import AnswerRejected, AnswerResult, OpenElicitation
from bot.domain.elicitations import ElicitationResult
from bot.domain.grants import GrantRequest
from bot.domain.turns import Receipt, ToolStep
from bot.domain.views import TurnView


class EngineApi(Protocol):
    """Engine interface for platforms."""

    async def receive(self, message: InboundMessage) -> Receipt:
        """Put a message on disk and return: the platform's acknowledgement waits for this and for nothing else."""

    async def decide(self, decision: Decision, member: Member) -> DecisionResult:
        """Settle an approval, if this member may and nobody was faster."""

    async def grant(self, decision: Decision, permission: GrantRequest, member: Member) -> DecisionResult:
        """Approve a call and allow the next ones like it, if this member may do both and nobody was faster."""

    async def get_editable_call(self, approval_id: str, revision: int, member: Member) -> EditableCall | NotEditable:
        """A call that waits for a signature, for this member to change; or why they cannot."""

    async def open_call(
        self, approval_id: str, revision: int, member: Member, portion: Portion = WHOLE
    ) -> ToolStep | NotEditable:
        """Return a call that waits, for this member to see every character of it in private, if they may approve it.
        The page they are shown is on record before they see it.
        """

    async def revise(self, approval_id: str, revision: int, arguments: Mapping[str, Any], member: Member) -> EditResult:
        """Ask for a signature on other arguments instead, if this member may and nobody was faster."""

    async def get_elicitation(self, elicitation_id: str, member: Member) -> OpenElicitation | AnswerRejected:
        """Return an elicitation that this member may answer now, or the rejection."""

    async def answer_elicitation(self, elicitation_id: str, reply: ElicitationResult, member: Member) -> AnswerResult:
        """Answer it, if this member may, nobody was faster, and the values fit what was asked."""

    async def stop(self, turn_id: str, by: Author) -> bool:
        """Stop a turn at whatever it is doing. False if it had ended."""

    async def run_again(self, turn_id: str, n: int, by: Author) -> Receipt:
        """Run a call once more whose outcome is unknown, or that came to nothing, with a fresh signature. Raises
        NotFound.
        """

    async def check_outcome(self, turn_id: str, n: int, by: Author) -> Receipt:
        """Ask the model to find out whether a call of unknown outcome has happened. Raises NotFound."""

    async def view(self, turn_id: str) -> TurnView:
        """A turn as it stands on disk. Raises NotFound."""

    async def recent_turns(self, conversation: ConversationKey, limit: int) -> Sequence[TurnView]:
        """The last turns of a conversation as they stand on disk, oldest first."""
