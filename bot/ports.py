"""The seams between the parts: what the engine asks of the world, and what the world may ask of the engine.

Values in, values out. Whoever implements a port translates its vendor's errors into `bot.errors`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bot.domain.answering import Answered, Answering, Inquiry, NotAnswerable
from bot.domain.approvals import (
    ALONE,
    NOBODY_ELSE,
    Decision,
    Following,
    Revision,
    Settlement,
    Signing,
)
from bot.domain.capabilities import Piece, ServerCapabilities
from bot.domain.checks import Check
from bot.domain.commands import Form, Invocation, Reply, Submission, Verb
from bot.domain.completions import Capabilities, ModelEvent, ModelRequest, Usage
from bot.domain.conversations import Attachment, Author, ConversationKey, InboundMessage, Member
from bot.domain.edits import Draft, Editing, NotNow
from bot.domain.elicitations import Elicit, Elicited, Replies, ServerQuestion, nobody_to_ask
from bot.domain.grants import Grant, Permission
from bot.domain.health import Listening
from bot.domain.messages import ToolCall, ToolResult
from bot.domain.past import Past, Replay, Summary
from bot.domain.pins import ReviewPolicy
from bot.domain.rings import Ring
from bot.domain.servers import EVERYWHERE, ServerEntry, ServerState
from bot.domain.tools import AsksBack, Misfit, Tool, ToolOutcome, ToolSet
from bot.domain.turns import Claim, ModelStep, Receipt, Step, StepStatus, ToolStep, Turn, TurnRecord, TurnStatus
from bot.domain.usage import UsageKind
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


class LanguageModel(Protocol):
    """A provider of replies."""

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield text as it is written and a Completion last. Raises ModelUnavailable and ModelRejected; a stream that
        ends without a Completion is an error of the adapter.
        """

    async def close(self) -> None:
        """Let go of connections."""


class LanguageModels(Protocol):
    """Every model that profiles may name."""

    async def named(self, name: str) -> LanguageModel:
        """The model called `provider:name`; the bot's own if the name is empty. Raises ModelRejected if it cannot be
        used.
        """


@dataclass(frozen=True, slots=True)
class CallContext:
    """What goes along with a call. `key` is stable over repeats of the same call; `deadline` is seconds from now.
    `replies` answer what the server has asked back before; `elicit` asks a person while the call is under way, for
    servers of the protocol before 2026, whose time then stands still.
    """

    author: Author
    key: str
    deadline: float | None = None
    on_progress: Callable[[str], None] = lambda _text: None
    replies: Replies | None = None
    elicit: Elicit = nobody_to_ask


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Who signs the bot in to which server, by id, and where they had asked for it."""

    server: str
    by: Author
    conversation: ConversationKey


@dataclass(frozen=True, slots=True)
class KeptSignIn:
    """A sign-in as people may see it: the principal who has signed the bot in, since when (epoch seconds), and the
    issuer of its tokens.
    """

    by: str
    since: float
    issuer: str


class Toolbox(Protocol):
    """The tools of all servers."""

    async def offer(self, workspace: str = EVERYWHERE) -> ToolSet:
        """What may be used now in a workspace: its own servers' tools and everybody's. Waits, within a limit, for
        servers that are connecting for the first time.
        """

    async def call(self, tool: Tool, call: ToolCall, context: CallContext) -> ToolOutcome:
        """Run a tool. A tool's failure is a result; this raises for nothing but cancellation, which reaches the
        server.
        """

    def misfits(self, schema: Mapping[str, Any], values: Mapping[str, Any]) -> Sequence[Misfit]:
        """What of these values does not fit a schema of a server's, a tool's or a form's; nothing if all fit or nobody
        can tell.
        """


class ServerAdmin(Protocol):
    """The connections to all servers, as whoever administers them uses them. Servers are named by id; methods that
    take one raise NotFound.
    """

    @property
    def enabled(self) -> bool:
        """False if MCP is switched off altogether."""

    async def settled(self) -> None:
        """Wait, within a limit, for servers that are connecting for the first time."""

    async def follow(self, entries: Sequence[ServerEntry]) -> None:
        """Keep these servers and no others: what is new is connected to if it should be, what has changed is connected
        to anew, what is gone is closed. Calls to servers that stay as they are go on undisturbed.
        """

    @property
    def review(self) -> ReviewPolicy:
        """What happens to tools whose definition is not pinned."""

    def unpinned(self, server: str) -> Sequence[Tool]:
        """The tools of a server whose definition is not the one that is pinned, in its own order: new ones, changed
        ones, and those of a first sync that an admin should see. They are not offered unless `review` says so.
        """

    def servers(self) -> Sequence[ServerState]:
        """Every server, by name, as it may be shown: without secrets."""

    def capabilities(self, server: str) -> ServerCapabilities:
        """What a server offers, as far as it is known."""

    async def connect(self, server: str) -> ServerState:
        """Connect now, or find that it is; how it stands then."""

    async def sync(self, server: str) -> ServerCapabilities:
        """Ask the server for everything it offers, and keep that. Raises ServerTrouble."""

    async def sync_all(self) -> None:
        """The same for every connected server, one's trouble not keeping it from the others."""

    def verify(self, entry: ServerEntry) -> AsyncGenerator[Check, None]:
        """Look whether a server that need not be kept could be used: from its address to its tools, one after the
        other. Starts a process only if the entry is the operator's or an admin's who may.
        """

    def examine(self, server: str) -> AsyncGenerator[Check, None]:
        """The same for a kept one, and how its tools and last calls stand."""

    async def read(self, server: str, uri: str) -> Sequence[Piece]:
        """Read a resource. Raises ServerTrouble."""

    async def prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> Sequence[Piece]:
        """Have a prompt written out. Raises ServerTrouble."""


class SignIns(Protocol):
    """Signing in to servers by OAuth, as whoever administers them and the page they come back to use it. Only where
    the operator has said under which address people reach the bot.
    """

    async def offered(self, server: str) -> bool:
        """Whether a server, by id, takes a sign-in that a person can do in a browser: it is defined so, or has asked
        for one itself when it was connected to last.
        """

    async def begin(self, server: str, by: Author, conversation: ConversationKey) -> str:
        """The address at which this person signs the bot in: for them alone, good for `SIGN_IN_SECONDS`. Finds the
        authorization server and registers with it, within a limit. Raises NotFound and ServerTrouble.
        """

    async def back(
        self,
        state: str,
        code: str,
        issuer: str | None,
        error: str,
        allowed: Callable[[SignedIn], Awaitable[None]],
    ) -> SignedIn:
        """Somebody has come back with a code or an error (RFC 6749 4.1.2, RFC 9207): tokens are fetched and kept, and
        the server is connected. `allowed` is asked first whether whoever had begun may still do so; what it raises is
        raised. Raises NotFound if the state is no good: it never was one, was used, or its time is over; ServerTrouble,
        with cause and fix for people.
        """

    async def kept(self, server: str) -> KeptSignIn | None:
        """The sign-in there is, if there are tokens. Raises DatabaseError."""

    async def forget(self, server: str, by: Author) -> bool:
        """Sign out: the tokens are revoked where the server can do that, and forgotten. False if there were none."""


class TurnLog(Protocol):
    """Turns on disk. Every method is one transaction: when it returns, it is committed.

    Methods that take a Claim prove ownership first and renew the lease; they raise LostLease when another process
    owns the turn, and Stopped when a person has stopped it (except `end` and `finish`, which may still record what
    has happened).
    """

    async def enqueue(self, message: InboundMessage) -> Receipt:
        """Make a turn of a message, unless one of its keys was seen before."""

    async def decide(self, decision: Decision, signing: Signing = ALONE) -> Settlement:
        """Compare-and-set on the approval's id and revision; `signing` is what the engine has found out about whoever
        decides. Counted, if more people have to sign, by these terms or by those the call was asked on.
        """

    async def take_reminders(self, reaches: Sequence[str], limit: int) -> Sequence[tuple[Turn, ToolStep]]:
        """Calls that wait for a signature and whose approvers are to be reminded now, in conversations that one of
        `reaches` takes in: each is handed out once, to one process.
        """

    async def grant(
        self, decision: Decision, grant: Grant, signing: Signing = ALONE, following: Following = NOBODY_ELSE
    ) -> Settlement:
        """The same, and keep the grant if this approval is the one that counts. With it those of `following` are
        approved that wait in the turn for the same, on their own grounds.
        """

    async def approval(self, approval_id: str) -> tuple[Turn, ToolStep] | None:
        """The turn and the step an approval belongs to."""

    async def inquiry(self, elicitation_id: str) -> Inquiry | None:
        """What a server has asked back, answered or not, and the call it is about."""

    async def answer(self, elicitation_id: str, reply: Elicited, by: Author) -> Answered | NotAnswerable:
        """Compare-and-set: the first answer counts. A call that waits for no other goes on."""

    async def stop(self, turn_id: str, by: Author) -> bool:
        """End a turn that nobody drives, or ask its owner to. False if it had ended."""

    async def revise(self, revision: Revision) -> bool:
        """Ask for a signature on other arguments. False if the approval is settled or was revised by somebody else."""

    async def claim(self, limit: int, holding: Collection[str] = (), reaches: Sequence[str] = ("",)) -> Sequence[Claim]:
        """Take up to `limit` turns that can go on now, oldest first, one at most of each conversation, none of those
        that this process is `holding`, and only of conversations that one of `reaches` takes in (`Surface.reach`).
        """

    async def renew(self, claims: Sequence[Claim]) -> frozenset[str]:
        """Renew leases; the ids of those turns that are still ours and not to be stopped."""

    @property
    def lease_seconds(self) -> float | None:
        """How long turns stay ours without a renewal; None where no other process could take them."""

    async def listen(self, hear: Callable[[Ring], None]) -> None:
        """Hear what other processes call, until cancelled. Hints only: everything is found without them, later."""

    async def release(self, claims: Sequence[Claim]) -> None:
        """Give turns back so that anybody can go on with them at once."""

    async def resume(self, claim: Claim) -> TurnRecord:
        """Settle what the previous owner left behind and what has expired, and read the turn."""

    async def append(self, claim: Claim, reply: ModelStep | None, calls: Sequence[ToolStep]) -> TurnRecord:
        """Record a reply of the model and the calls it asks for, or calls alone."""

    async def begin(self, claim: Claim, n: int) -> TurnRecord:
        """Record the intent to send a call, before it is sent."""

    async def ask(self, claim: Claim, n: int, asked: AsksBack, expires_in: float | None) -> TurnRecord:
        """Record that a server has asked back and wants the call sent again: it waits for a person, or goes on at once
        where nobody may be asked (`elicitations.forbidden`). Each question is good for so many seconds.
        """

    async def ask_meanwhile(
        self, claim: Claim, n: int, question: ServerQuestion, expires_in: float | None
    ) -> tuple[TurnRecord, str]:
        """Record that a server asks while a call is under way; the question's id. It is withdrawn when the call ends or
        its process dies.
        """

    async def withdraw(self, claim: Claim, elicitation_id: str, reason: str) -> TurnRecord:
        """Wait no more for an answer: the server is told that nobody has chosen anything, unless somebody had."""

    async def end(
        self, claim: Claim, n: int, status: StepStatus, result: ToolResult, seconds: float | None = None
    ) -> TurnRecord:
        """Record how a call ended, and how many seconds it was under way; None if it was not sent. After a lost lease
        the result is kept beside the step for the audit.
        """

    async def refuse(self, approval_id: str, by: Author, reason: str) -> None:
        """Put on record that somebody tried to decide who may not, once for each person, approval and reason."""

    async def park(self, claim: Claim) -> TurnRecord | None:
        """Give the turn back while people think; None if it is parked, the record if there is work after all."""

    async def finish(self, claim: Claim, status: TurnStatus, last: Sequence[Step], failure: str) -> TurnRecord:
        """End the turn, with its last steps in the same transaction. Open calls become cancelled or unknown."""

    async def charge(self, claim: Claim, n: int, kind: UsageKind, model: str, usage: Usage) -> None:
        """Count what was asked of a model beside the replies, which are counted where they are kept; `n` is the step
        that it was for. Also in a turn that is another process's by now: it was paid for.
        """

    async def fail(self, claim: Claim, failure: str) -> None:
        """End a turn as failed without reading it: its rows may be of no use."""

    async def history(
        self, conversation: ConversationKey, before: int, limit: int, replay: Replay = Replay.NONE
    ) -> Past:
        """The turns of a conversation that have ended, before a sequence number, the last `limit` that the summary does
        not speak of, and that summary. Of their steps only the last, the answer if there is one, and calls run by hand
        whole; all of them where `replay` tells them again.
        """
        ...

    async def sum_up(self, claim: Claim, summary: Summary) -> None:
        """Keep a summary of the conversation's oldest turns in place of the one there was. It goes with any of them."""

    async def result_of(self, conversation: ConversationKey, seq: int, n: int) -> ToolResult | None:
        """What the step `n` of a conversation's turn `seq` gave back; None if there is no such thing there."""

    async def recent(self, conversation: ConversationKey, limit: int) -> Sequence[TurnView]:
        """The last `limit` turns of a conversation, however they stand, oldest first."""

    async def latest(self, reach: str) -> ConversationKey | None:
        """The conversation whose key begins with `reach` in which something was said last."""

    async def view(self, turn_id: str) -> TurnView:
        """The turn as it should be drawn from disk alone. Raises NotFound."""

    async def file(self, turn_id: str, file_id: str) -> bytes:
        """The bytes of a file that a tool returned in a turn (`KeptFile.id`). Raises NotFound."""

    async def undrawn(self, reach: str, limit: int) -> Sequence[str]:
        """Turns whose drawing is behind, that nobody drives and no other process draws, oldest first."""

    async def take(self, turn_id: str, revision: int) -> Refs:
        """Take the drawing of a turn in hand, and learn where it has been drawn. Raises LostLease if another process
        draws it or drives it, or if more than `revision` has been drawn: nothing older must come after that.
        """

    async def hold(self, turn_ids: Collection[str]) -> frozenset[str]:
        """Renew the leases on drawings in hand; those that are still ours."""

    async def put_down(self, turn_id: str) -> None:
        """Let go of a drawing."""

    async def keep(self, turn_id: str, drawn: Drawn) -> None:
        """Remember a slot's reference at once. Raises LostLease."""

    async def drawn(self, turn_id: str, revision: int) -> bool:
        """Everything up to `revision` is out. From now on the approvals in it can expire. Whether the drawing is still
        in hand: if nobody drives the turn and nothing is left to draw, it is put down. Raises LostLease.
        """

    async def postpone(self, turn_id: str, seconds: float) -> None:
        """Try the drawing again after that time."""

    async def abandon(self, turn_id: str, revision: int, reason: str) -> bool:
        """Give up drawing what is wanted up to `revision`; later changes are tried again. Calls that wait for a
        signature and whose card was to be posted with it are turned down, `reason` being the cause that people and the
        model are told; whether there were any. A card that was out before still waits. Raises LostLease.
        """

    async def take_job(self, name: str, seconds: float) -> bool:
        """Whether this process is the one to do a scheduled job now; it is due again `seconds` from now."""

    async def delete_old(self, seconds: float, limit: int) -> int:
        """Delete up to `limit` turns that ended longer ago than that and whose end was seen; how many there were."""

    async def delete_conversation(self, conversation: ConversationKey, by: Author) -> bool:
        """Delete a conversation with everything of it but the audit. False if there is none or it is not at rest."""
