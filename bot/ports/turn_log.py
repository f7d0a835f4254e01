"""Durable storage of turns, one port for each kind of use. Another process can continue a turn after a crash of its
owner. Every method is one transaction, committed when the method returns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from bot.domain.agents import AgentRef
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
from bot.domain.elicitations import ElicitationRequest, ElicitationResult
from bot.domain.grants import Grant
from bot.domain.messages import ToolResult
from bot.domain.tools import CallNeedsInput
from bot.domain.turns import (
    NO_CALLS,
    Claim,
    EditedQuestion,
    History,
    HistorySummary,
    MessageRefs,
    ModelStep,
    PostedMessage,
    Receipt,
    Step,
    StepStatus,
    ToolStep,
    Turn,
    TurnRecord,
    TurnStatus,
    TurnView,
    Wakeup,
)
from bot.domain.usage import UsageEntry
from bot.ports.platform import AnswerRejected, ElicitationAnswered, OpenElicitation


class TurnViews(Protocol):
    """Stored turns as people see them."""

    async def get_view(self, turn_id: str) -> TurnView:
        """Return the stored view of a turn. Raises NotFound."""

    async def get_message_refs(self, turn_id: str) -> MessageRefs:
        """Return the references of the posted messages of a turn."""

    async def get_file(self, turn_id: str, file_id: str) -> bytes:
        """Return the bytes of a file that a tool returned in a turn (`StoredFile.id`). Raises NotFound."""

    async def latest_turn(self, conversation: ConversationKey) -> Turn | None:
        """Return the last turn of a conversation in any status, None if it has none."""

    async def recent_turns(self, conversation: ConversationKey, limit: int) -> Sequence[TurnView]:
        """Return the last `limit` turns of a conversation in any status, oldest first."""

    async def latest_conversation(self, reach: str, ignored: str) -> ConversationKey | None:
        """Return the conversation with the key prefix `reach` that has the latest message, or None. Messages with a key
        that begins with `ignored` do not count.
        """

    async def unanswered_conversations(self, reach: str, limit: int) -> Sequence[ConversationKey]:
        """Return conversations with the key prefix `reach` in which a turn has not ended or its end is not delivered,
        the latest first.
        """

    async def abandoned_turns(self, reach: str, limit: int) -> Sequence[str]:
        """Return the ids of turns in conversations with the key prefix `reach` that have begun and whose process has
        ended, the latest first.
        """


class TurnQueue(Protocol):
    """Messages that become turns, and claims of processes on these."""

    async def enqueue(self, message: InboundMessage) -> Receipt:
        """Create a turn for a message, unless one of its keys is known. Raises QueueFull if its author has reached the
        limit of queued turns.
        """

    async def enqueue_and_claim(self, message: InboundMessage) -> tuple[Receipt, Claim | None]:
        """As `enqueue`, and claim the turn in the same transaction. The claim is None if the turn has to wait for
        others of its conversation, or is known already. For a process that can display the turn and has capacity for
        it.
        """

    async def is_stored(self, keys: Sequence[str]) -> bool:
        """See `EngineApi.is_stored`."""

    async def edit_question(
        self, keys: Sequence[str], text: str, by: Author, agent: AgentRef | None = None
    ) -> EditedQuestion | None:
        """See `EngineApi.edit_question`. A turn that ended some time ago, or of another user, is not changed."""

    async def delete_question(self, keys: Sequence[str]) -> str | None:
        """See `EngineApi.delete_question`. Return the turn's id, or None if no turn is known."""

    async def move_keys(self, turn_id: str, to: str) -> None:
        """Let the keys of a turn's message belong to another turn, so that a further edit of the message finds it."""

    async def is_followed(self, conversation: ConversationKey, at: float, by: str = "") -> bool:
        """See `EngineApi.is_followed`."""

    async def rename(self, conversation: ConversationKey, title: str) -> None:
        """See `EngineApi.rename`."""

    async def save_addressee(self, conversation: ConversationKey, *, is_bot: bool, at: float) -> None:
        """See `EngineApi.save_addressee`."""

    async def stop(self, turn_id: str, by: Author) -> bool:
        """Stop a turn: end it if no process runs it, or request its owner to. Return False if it had ended."""

    @property
    def shares_turns(self) -> bool:
        """True if several processes claim turns of the same conversations."""

    async def claim(self, limit: int, holding: Collection[str] = (), reaches: Sequence[str] = ("",)) -> Sequence[Claim]:
        """Claim up to `limit` runnable turns: first those of lost processes, then by the users and workspaces with the
        fewest running turns, oldest first. At most one turn of each conversation is claimed, none in `holding` (those
        of this process), and only in conversations with a prefix in `reaches` (`Surface.key_prefixes`).
        """

    async def renew(self, claims: Sequence[Claim]) -> frozenset[str]:
        """Renew leases. Return the ids of the turns that are still owned and not to be stopped."""

    async def listen(self, on_wakeup: Callable[[Wakeup], None]) -> None:
        """Pass notifications of other processes to `on_wakeup`, until cancelled. They are hints: polling finds the same
        changes later.
        """

    async def release(self, claims: Sequence[Claim]) -> None:
        """Release claimed turns, so that any process can continue them at once."""

    async def release_delivery(self, turn_id: str) -> None:
        """Release the delivery lease of a turn."""

    async def fail(self, claim: Claim, failure: str) -> None:
        """End a turn as failed without reading its rows, which may be unreadable."""


class ApprovalLog(TurnViews, Protocol):
    """Approvals of stored turns, as users decide them."""

    async def get_approval(self, approval_id: str) -> tuple[Turn, ToolStep] | None:
        """Return the turn and the step of an approval, or None."""

    async def decide(self, decision: Decision, signing: ApproverEvidence = NO_EVIDENCE) -> DecisionResult:
        """Record a decision if the approval still has this revision and waits. `signing` is the engine's evidence about
        the user. With a quorum, earlier approvals are counted by these requirements or by those of the request.
        """

    async def grant(
        self,
        decision: Decision,
        grant: Grant,
        signing: ApproverEvidence = NO_EVIDENCE,
        following: ApprovedTogether = NOBODY_ELSE,
    ) -> DecisionResult:
        """As `decide`, and store the grant if this approval settles the call. Waiting calls of the turn in `following`
        that the grant covers are approved too, each with its own evidence.
        """

    async def delegations(self, workspace: str) -> Sequence[Grant]:
        """Return the active delegations of a workspace, newest first."""

    async def record_view(self, approval_id: str, revision: int, portion: Portion, by: Author) -> bool:
        """Record in the audit, once, that a user opens a page of the whole call of an approval. Return False if the
        call does not wait at this revision. A decision with `ApproverEvidence.must_view` needs every page.
        """

    async def revise(self, revision: Revision) -> bool:
        """Replace the arguments of a waiting approval. Return False if it is settled or was revised meanwhile."""

    async def record_rejection(self, approval_id: str, by: Author, reason: str) -> None:
        """Record in the audit a decision by an unauthorized user, once for each user, approval and reason."""

    async def take_reminders(self, reaches: Sequence[str], limit: int) -> Sequence[tuple[Turn, ToolStep]]:
        """Return calls that are due for a reminder, in conversations with a prefix in `reaches`. Each call
        is returned once, to one process.
        """

    async def take_private_notices(self, reaches: Sequence[str], limit: int) -> Sequence[tuple[Turn, ToolStep]]:
        """Return calls with a posted card and approvers to notify in private, as above."""


class ElicitationLog(Protocol):
    """Elicitations of stored calls. Methods that take a Claim raise LostLease and Stopped; see `TurnExecution`."""

    async def suspend_for_elicitation(
        self, claim: Claim, n: int, needed: CallNeedsInput, expires_in: float | None
    ) -> TurnRecord:
        """Record that a server needs answers before the call is sent again. The call waits for the user, or continues
        at once if all elicitations are forbidden. Each elicitation expires after `expires_in` seconds.
        """

    async def open_elicitation(
        self, claim: Claim, n: int, question: ElicitationRequest, expires_in: float | None
    ) -> tuple[TurnRecord, str]:
        """Record an elicitation during a running call, and return its id with the record. It is withdrawn when the call
        ends or its process dies.
        """

    async def cancel_elicitation(self, claim: Claim, elicitation_id: str, reason: str) -> TurnRecord:
        """Withdraw an elicitation. The server gets the result `cancel`, or the answer if there is one."""

    async def get_elicitation(self, elicitation_id: str) -> OpenElicitation | None:
        """Return an elicitation, answered or not, with its call."""

    async def answer_elicitation(
        self, elicitation_id: str, reply: ElicitationResult, by: Author
    ) -> ElicitationAnswered | AnswerRejected:
        """Record an answer; the first one counts. A call that waits for no other answer continues."""


class TurnHistory(TurnViews, Protocol):
    """Earlier turns of a conversation, for the prompt."""

    async def history(self, conversation: ConversationKey, before: int, limit: int) -> History:
        """Return the last `limit` ended turns of a conversation before a sequence number and after the summary, and the
        summary.
        """
        ...

    async def save_summary(self, claim: Claim, summary: HistorySummary, past: History) -> None:
        """Store a summary of the oldest turns in `past`, replacing the summary in `past`. It is deleted with any turn
        that it covers, and not stored if one of them is already deleted.
        """

    async def message_refs(self, turn_ids: Collection[str]) -> Mapping[str, MessageRefs]:
        """Return the references of the posted messages of these turns, by turn."""

    async def get_call(self, conversation: ConversationKey, seq: int, n: int) -> ToolStep | None:
        """Return the call in step `n` of a conversation's turn `seq`, or None."""


class TurnExecution(TurnHistory, ElicitationLog, Protocol):
    """Turns that this process runs, and their steps.

    Methods that take a Claim prove ownership first and renew the lease. They raise LostLease if another process owns
    the turn, and Stopped if a user has stopped it (except `finish_call` and `finish`, which may still record a result).
    """

    @property
    def lease_seconds(self) -> float:
        """Seconds that a lease lasts without a renewal."""

    async def resume(self, claim: Claim) -> TurnRecord:
        """Settle calls of the previous owner and expired approvals, and return the turn."""

    async def finish(
        self,
        claim: Claim,
        status: TurnStatus,
        last: Sequence[Step],
        failure: str,
        *,
        unanswered: Mapping[int, float] = NO_CALLS,
    ) -> TurnRecord:
        """End the turn and store its last steps in the same transaction. Open calls become cancelled or unknown.
        `unanswered` are calls that were sent and have not ended: the seconds since then, by step number.
        """

    async def append(self, claim: Claim, reply: ModelStep | None, calls: Sequence[ToolStep]) -> TurnRecord:
        """Record a reply of the model and its requested calls, or calls without a reply."""

    async def start_call(self, claim: Claim, n: int) -> TurnRecord:
        """Record the intent to send a call, before it is sent."""

    async def finish_call(
        self, claim: Claim, n: int, status: StepStatus, result: ToolResult, seconds: float | None = None
    ) -> TurnRecord:
        """Record the result of a call and its duration in seconds; None if it was not sent. After a lost lease the
        result is stored beside the step for the audit.
        """

    async def suspend(self, claim: Claim) -> TurnRecord | None:
        """Release the turn while it waits for users. Return None, or the record if it can continue."""

    async def record_usage(self, uses: Sequence[tuple[Claim, UsageEntry]]) -> None:
        """Record usage of model requests other than stored replies, which count with their step. Turns of other
        processes are included, because their requests were paid for. Later counts replace estimates; no entry counts
        twice.
        """


class DeliveryQueue(TurnViews, Protocol):
    """Views that wait for their delivery to platforms."""

    async def stale_views(self, reach: str, limit: int) -> Sequence[str]:
        """Return up to `limit` turns with a stale view that no process runs and no other process delivers, oldest
        first.
        """

    @property
    def lease_seconds(self) -> float:
        """Seconds that a lease lasts without a renewal."""

    async def acquire_delivery(self, turn_id: str, revision: int) -> MessageRefs:
        """Acquire the delivery lease of a turn. Return the references of its posted messages. Raises LostLease if
        another process delivers or runs the turn, or if a later revision than `revision` was delivered.
        """

    async def renew_deliveries(self, turn_ids: Collection[str]) -> frozenset[str]:
        """Renew delivery leases. Return the ids of the turns with a lease that is still owned."""

    async def release_delivery(self, turn_id: str) -> None:
        """Release the delivery lease of a turn."""

    async def save_message_ref(self, turn_id: str, drawn: PostedMessage) -> None:
        """Store the reference of a posted message at once. Raises LostLease."""

    async def mark_delivered(self, turn_id: str, revision: int) -> bool:
        """Mark the view as delivered up to `revision`, and start the expiry of its approvals. Return True if the lease
        is still owned: it is released if no process runs the turn and no newer revision waits. Raises LostLease.
        """

    async def retry_delivery_at(self, turn_id: str, seconds: float) -> None:
        """Retry the delivery after `seconds`."""

    async def approvers_by_call(self, turn_id: str) -> Mapping[int, Sequence[str]]:
        """Return the principals that approved calls of a turn, by the numbers of the calls."""

    async def give_up_delivery(self, turn_id: str, revision: int, reason: str) -> bool:
        """Give up the delivery up to `revision`; later changes are delivered again. Approvals and elicitations whose
        card was not posted before are denied or cancelled with `reason`, a text for users and the model. Return True if
        there were any. Raises LostLease.
        """


class TurnRetention(Protocol):
    """Deletion of old turns, and jobs that run in one process at a time."""

    async def try_start_job(self, name: str, seconds: float) -> bool:
        """Return True if this process is to run a scheduled job now; the job is due again `seconds` from now."""

    async def delete_old(self, seconds: float, limit: int) -> int:
        """Delete up to `limit` turns that ended more than `seconds` ago and whose end was delivered. Return their
        number.
        """

    async def delete_content(self, limit: int, *, fetch_seconds: float, undelivered_seconds: float) -> int:
        """Delete questions, answers and results of up to `limit` ended turns whose answer is out: their end was
        delivered, over HTTP `fetch_seconds` ago, or they ended `undelivered_seconds` ago. Return their number. Rows
        without content stay until `delete_old`.
        """

    async def purge_files(self, *, whole: bool) -> bool:
        """Remove what was deleted from the files of a SQLite database: from its write-ahead log, and from the whole
        file if `whole` is True, which takes longer. Return False if a reader prevented it for now.
        """


class TurnLog(TurnQueue, ApprovalLog, TurnExecution, DeliveryQueue, TurnRetention, Protocol):
    """All ports of stored turns, as one database implements them."""
