"""Durable storage of turns. Another process can continue a turn after a crash of its owner."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from bot.domain.approvals import (
    NO_EVIDENCE,
    NOBODY_ELSE,
    ApprovedTogether,
    ApproverEvidence,
    Decision,
    DecisionResult,
    Portion,
    Revision,
)
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.domain.elicitation_answers import AnswerRejected, ElicitationAnswered, OpenElicitation
from bot.domain.elicitations import ElicitationRequest, ElicitationResult
from bot.domain.grants import Grant
from bot.domain.history import History, HistorySummary
from bot.domain.messages import ToolResult
from bot.domain.tools import CallNeedsInput
from bot.domain.turns import Claim, ModelStep, Receipt, Step, StepStatus, ToolStep, Turn, TurnRecord, TurnStatus
from bot.domain.usage import UsageEntry
from bot.domain.views import MessageRefs, PostedMessage, TurnView
from bot.domain.wakeups import Wakeup


class TurnLog(Protocol):
    """Turns on disk. Every method is one transaction: when it returns, it is committed.

    Methods that take a Claim prove ownership first and renew the lease; they raise LostLease when another process owns
    the turn, and Stopped when a person has stopped it (except `finish_call` and `finish`, which may still record what
    has happened).
    """

    async def enqueue(self, message: InboundMessage) -> Receipt:
        """Make a turn of a message, unless one of its keys was seen before. Raises QueueFull if as many turns of its
        author are queued as one person may have.
        """

    async def enqueue_and_claim(self, message: InboundMessage) -> tuple[Receipt, Claim | None]:
        """The same, and claim the turn in the same transaction, unless it has to wait for others of its conversation
        or was seen before. For a process that can draw it and has room for it.
        """

    async def decide(self, decision: Decision, signing: ApproverEvidence = NO_EVIDENCE) -> DecisionResult:
        """Compare-and-set on the approval's id and revision; `signing` is what the engine has found out about whoever
        decides. Counted, if more people have to sign, by these terms or by those the call was asked on.
        """

    async def take_reminders(self, reaches: Sequence[str], limit: int) -> Sequence[tuple[Turn, ToolStep]]:
        """Calls that wait for a signature and whose approvers are to be reminded now, in conversations that one of
        `reaches` takes in: each is handed out once, to one process.
        """

    async def grant(
        self,
        decision: Decision,
        grant: Grant,
        signing: ApproverEvidence = NO_EVIDENCE,
        following: ApprovedTogether = NOBODY_ELSE,
    ) -> DecisionResult:
        """The same, and keep the grant if this approval is the one that counts. With it those of `following` are
        approved that wait in the turn for the same, on their own grounds.
        """

    async def record_view(self, approval_id: str, revision: int, portion: Portion, by: Author) -> bool:
        """Record that somebody opens a page of the whole call of an approval, in the audit once. False if the call does
        not wait at this revision. An approval that is decided with `ApproverEvidence.must_view` needs every page.
        """

    async def get_approval(self, approval_id: str) -> tuple[Turn, ToolStep] | None:
        """The turn and the step an approval belongs to."""

    async def get_elicitation(self, elicitation_id: str) -> OpenElicitation | None:
        """Return an elicitation, answered or not, with its call."""

    async def answer_elicitation(
        self, elicitation_id: str, reply: ElicitationResult, by: Author
    ) -> ElicitationAnswered | AnswerRejected:
        """Compare-and-set: the first answer counts. A call that waits for no other goes on."""

    async def stop(self, turn_id: str, by: Author) -> bool:
        """End a turn that nobody drives, or ask its owner to. False if it had ended."""

    async def revise(self, revision: Revision) -> bool:
        """Ask for a signature on other arguments. False if the approval is settled or was revised by somebody else."""

    async def claim(self, limit: int, holding: Collection[str] = (), reaches: Sequence[str] = ("",)) -> Sequence[Claim]:
        """Take up to `limit` turns that can go on now: those that have lost their process, then of the person who has
        the fewest running, in the workspace that has the fewest, the oldest. One at most of each conversation, none of
        those that this process is `holding`, and only of conversations that one of `reaches` takes in
        (`Surface.key_prefix`).
        """

    async def renew(self, claims: Sequence[Claim]) -> frozenset[str]:
        """Renew leases; the ids of those turns that are still ours and not to be stopped."""

    @property
    def lease_seconds(self) -> float | None:
        """Seconds that a lease on turns lasts without a renewal; None if no other process could claim them."""

    async def listen(self, hear: Callable[[Wakeup], None]) -> None:
        """Hear what other processes call, until cancelled. Hints only: everything is found without them, later."""

    async def release(self, claims: Sequence[Claim]) -> None:
        """Give turns back so that anybody can go on with them at once."""

    async def resume(self, claim: Claim) -> TurnRecord:
        """Settle what the previous owner left behind and what has expired, and read the turn."""

    async def append(self, claim: Claim, reply: ModelStep | None, calls: Sequence[ToolStep]) -> TurnRecord:
        """Record a reply of the model and the calls it asks for, or calls alone."""

    async def start_call(self, claim: Claim, n: int) -> TurnRecord:
        """Record the intent to send a call, before it is sent."""

    async def suspend_for_elicitation(
        self, claim: Claim, n: int, asked: CallNeedsInput, expires_in: float | None
    ) -> TurnRecord:
        """Record that a server has asked back and wants the call sent again: it waits for a person, or goes on at once
        where nobody may be asked (`elicitations.forbidden`). Each question is good for so many seconds.
        """

    async def open_elicitation(
        self, claim: Claim, n: int, question: ElicitationRequest, expires_in: float | None
    ) -> tuple[TurnRecord, str]:
        """Record that a server asks while a call is under way; the question's id. It is withdrawn when the call ends or
        its process dies.
        """

    async def cancel_elicitation(self, claim: Claim, elicitation_id: str, reason: str) -> TurnRecord:
        """Wait no more for an answer: the server is told that nobody has chosen anything, unless somebody had."""

    async def finish_call(
        self, claim: Claim, n: int, status: StepStatus, result: ToolResult, seconds: float | None = None
    ) -> TurnRecord:
        """Record how a call ended, and how many seconds it was under way; None if it was not sent. After a lost lease
        the result is kept beside the step for the audit.
        """

    async def record_rejection(self, approval_id: str, by: Author, reason: str) -> None:
        """Put on record that somebody tried to decide who may not, once for each person, approval and reason."""

    async def park(self, claim: Claim) -> TurnRecord | None:
        """Give the turn back while people think; None if it is parked, the record if there is work after all."""

    async def finish(self, claim: Claim, status: TurnStatus, last: Sequence[Step], failure: str) -> TurnRecord:
        """End the turn, with its last steps in the same transaction. Open calls become cancelled or unknown."""

    async def record_usage(self, uses: Sequence[tuple[Claim, UsageEntry]]) -> None:
        """Count what was asked of models beside the replies, which are counted where they are kept. Also in turns that
        are another process's by now: it was paid for. What was estimated before is made better by this, and by the
        reply; nothing is counted twice.
        """

    async def fail(self, claim: Claim, failure: str) -> None:
        """End a turn as failed without reading it: its rows may be of no use."""

    async def history(self, conversation: ConversationKey, before: int, limit: int) -> History:
        """The turns of a conversation that have ended, before a sequence number, the last `limit` that the summary does
        not speak of, and that summary.
        """
        ...

    async def save_summary(self, claim: Claim, summary: HistorySummary, past: History) -> None:
        """Keep a summary of the oldest turns of `past`, in place of the summary in there. It goes with any turn that it
        speaks of, and is not kept where one of them is gone already.
        """

    async def get_call(self, conversation: ConversationKey, seq: int, n: int) -> ToolStep | None:
        """The call that is the step `n` of a conversation's turn `seq`; None if there is no such thing there."""

    async def recent_turns(self, conversation: ConversationKey, limit: int) -> Sequence[TurnView]:
        """The last `limit` turns of a conversation, however they stand, oldest first."""

    async def latest_conversation(self, reach: str) -> ConversationKey | None:
        """The conversation whose key begins with `reach` in which something was said last."""

    async def get_view(self, turn_id: str) -> TurnView:
        """The turn as it should be drawn from disk alone. Raises NotFound."""

    async def get_file(self, turn_id: str, file_id: str) -> bytes:
        """The bytes of a file that a tool returned in a turn (`StoredFile.id`). Raises NotFound."""

    async def stale_views(self, reach: str, limit: int) -> Sequence[str]:
        """Turns whose drawing is behind, that nobody drives and no other process draws, oldest first."""

    async def acquire_delivery(self, turn_id: str, revision: int) -> MessageRefs:
        """Take the drawing of a turn in hand, and learn where it has been drawn. Raises LostLease if another process
        draws it or drives it, or if more than `revision` has been drawn: nothing older must come after that.
        """

    async def renew_deliveries(self, turn_ids: Collection[str]) -> frozenset[str]:
        """Renew the leases on drawings in hand; those that are still ours."""

    async def release_delivery(self, turn_id: str) -> None:
        """Let go of a drawing."""

    async def save_message_ref(self, turn_id: str, drawn: PostedMessage) -> None:
        """Remember a slot's reference at once. Raises LostLease."""

    async def mark_delivered(self, turn_id: str, revision: int) -> bool:
        """Everything up to `revision` is out. From now on the approvals in it can expire. Whether the drawing is still
        in hand: if nobody drives the turn and nothing is left to draw, it is put down. Raises LostLease.
        """

    async def retry_delivery_at(self, turn_id: str, seconds: float) -> None:
        """Try the drawing again after that time."""

    async def give_up_delivery(self, turn_id: str, revision: int, reason: str) -> bool:
        """Give up drawing what is wanted up to `revision`; later changes are tried again. Calls that wait for a
        signature and whose card was to be posted with it are turned down, `reason` being the cause that people and the
        model are told; whether there were any. A card that was out before still waits. Raises LostLease.
        """

    async def try_start_job(self, name: str, seconds: float) -> bool:
        """Return True if this process is to run a scheduled job now; the job is due again `seconds` from now."""

    async def delete_old(self, seconds: float, limit: int) -> int:
        """Delete up to `limit` turns that ended longer ago than that and whose end was seen; how many there were."""

    async def delete_conversation(self, conversation: ConversationKey, by: Author) -> bool:
        """Delete a conversation with everything of it but the audit. False if there is none or it is not at rest."""
