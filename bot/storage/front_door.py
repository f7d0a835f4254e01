"""Transactions that come from people: a message, a decision, a stop. Any process may run them.

The order of locks is always conversation, turn, steps, deliveries, and the audit last.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.approvals import (
    ALONE,
    AlreadySettled,
    Counted,
    Decision,
    NoSuchApproval,
    OutOfDate,
    Revision,
    Settled,
    Settlement,
    Signing,
    Verdict,
)
from bot.domain.conversations import Author, InboundMessage
from bot.domain.turns import Question, Receipt, StepStatus, TurnStatus
from bot.storage import audit
from bot.storage.bodies import question_body, read_terms
from bot.storage.call_trail import server_of
from bot.storage.clock import now
from bot.storage.endings import end_turn, go_on, show_change
from bot.storage.inserting import Insert
from bot.storage.ringing import ring_all, ring_stop, ring_turn
from bot.storage.tables import LIVE, Json, approvals, conversations, decisions, deliveries, message_keys, steps, turns

_seen = sa.select(message_keys.c.turn_id).where(message_keys.c.key.in_(bindparam("keys", expanding=True)))
_next_seq = Insert(
    lambda insert: (
        insert(conversations)
        .values(key=bindparam("k"), title=bindparam("t"), last_seq=1, created_at=now(), updated_at=now())
        .on_conflict_do_update(
            index_elements=["key"], set_={"last_seq": conversations.c.last_seq + 1, "updated_at": now()}
        )
        .returning(conversations.c.last_seq)
    )
)
_add_turn = turns.insert().values(created_at=now(), status=TurnStatus.QUEUED)
_add_key = Insert(
    lambda insert: (
        insert(message_keys)
        .values(key=bindparam("k"), turn_id=bindparam("t"))
        .on_conflict_do_nothing()
        .returning(message_keys.c.key)
    )
)
_add_delivery = deliveries.insert()
_ahead = (
    sa.select(sa.func.count())
    .select_from(turns)
    .where(turns.c.conversation == bindparam("conversation"), turns.c.status.in_(LIVE))
)
# FOR NO KEY UPDATE: whoever inserts a row that refers to the turn does not wait for it.
_lock = (
    sa.select(turns.c.status, turns.c.stop_by).where(turns.c.id == bindparam("turn_id")).with_for_update(key_share=True)
)
_asked = (
    sa.select(
        approvals.c.turn_id,
        approvals.c.n,
        approvals.c.revision,
        approvals.c.decided_by,
        sa.func.coalesce(approvals.c.revised, approvals.c.proposed, type_=Json).label("asked"),
        approvals.c.fingerprint,
        approvals.c.terms,
        approvals.c.editors,
        approvals.c.signers,
        steps.c.status,
        (approvals.c.expires_at <= now()).label("overdue"),
    )
    .join(steps, sa.and_(steps.c.turn_id == approvals.c.turn_id, steps.c.n == approvals.c.n))
    .where(approvals.c.id == bindparam("approval_id"))
)
_settle_step = (
    steps.update()
    .where(steps.c.turn_id == bindparam("t"), steps.c.n == bindparam("i"), steps.c.status == StepStatus.AWAITING)
    .values(status=bindparam("to"))
)
_settle_approval = (
    approvals.update()
    .where(approvals.c.id == bindparam("a"))
    .values(decided_by=bindparam("by"), decided_at=now(), reason=bindparam("why"), signed=bindparam("what"))
)
_count = approvals.update().where(approvals.c.id == bindparam("a")).values(signers=bindparam("who", type_=Json))
# Whoever has signed and turns it down after all has changed their mind.
_add_decision = Insert(
    lambda insert: (
        insert(decisions)
        .values(
            approval_id=bindparam("a"),
            revision=bindparam("r"),
            person=bindparam("p"),
            name=bindparam("name"),
            verdict=bindparam("verdict"),
            reason=bindparam("why"),
            key=bindparam("key"),
            evidence=bindparam("evidence"),
            at=now(),
        )
        .on_conflict_do_update(
            index_elements=["approval_id", "revision", "person"],
            set_={
                "verdict": bindparam("verdict"),
                "reason": bindparam("why"),
                "key": bindparam("key"),
                "evidence": bindparam("evidence"),
                "at": now(),
            },
        )
    )
)
_decided = sa.select(decisions.c.verdict, decisions.c.approval_id).where(decisions.c.key == bindparam("key"))
_has_signed = sa.select(decisions.c.person).where(
    decisions.c.approval_id == bindparam("a"),
    decisions.c.revision == bindparam("r"),
    decisions.c.person == bindparam("p"),
    decisions.c.verdict == Verdict.APPROVE.value,
)
_revise = (
    approvals.update()
    .where(approvals.c.id == bindparam("a"), approvals.c.revision == bindparam("was"))
    .values(
        revision=approvals.c.revision + 1,
        revised=bindparam("what"),
        revised_by=bindparam("by"),
        editors=bindparam("editors", type_=Json),
        # Nobody has signed what it would do now.
        signers=sa.null(),
        fingerprint=bindparam("print"),
    )
)
_ask_to_stop = turns.update().where(turns.c.id == bindparam("t")).values(stop_by=bindparam("by"))

_TITLE_LENGTH = 80


class SeenBefore(Exception):
    """The message is on disk already."""


def seen(connection: sa.Connection, message: InboundMessage, turn_id: str) -> Receipt | None:
    """The turn of a message that was put on disk before, under the id given (whose COMMIT's answer was lost) or not."""
    known = connection.execute(_seen, {"keys": list(message.keys)}).scalar()
    return None if known is None else Receipt(known, redelivery=known != turn_id)


def enqueue(connection: sa.Connection, message: InboundMessage, turn_id: str) -> Receipt:
    """Make a turn of a message under the id given. Raises SeenBefore if one of its keys was."""
    key = str(message.conversation)
    title = " ".join(message.text.split())[:_TITLE_LENGTH]
    seq = connection.execute(_next_seq.on(connection), {"k": key, "t": title}).scalar_one()
    # Counted under the conversation's lock: of two messages at once, one is behind the other.
    ahead = connection.execute(_ahead, {"conversation": key}).scalar_one()
    connection.execute(
        _add_turn,
        {
            "id": turn_id,
            "conversation": key,
            "seq": seq,
            "kind": "call" if message.call else "question",
            "author_id": message.author.id,
            "author_name": message.author.name,
            "question": question_body(
                Question(message.text, message.attachments, message.context, message.call, message.again)
            ),
        },
    )
    # In one order everywhere: two that insert the same keys must not wait for each other.
    for each in sorted(message.keys):
        if connection.execute(_add_key.on(connection), {"k": each, "t": turn_id}).first() is None:
            raise SeenBefore
    # A turn that has to wait is shown as waiting; one that runs at once is shown when it does.
    connection.execute(_add_delivery, {"turn_id": turn_id, "wanted": 1 if ahead else 0})
    ring_all(connection)
    return Receipt(turn_id, ahead=ahead)


def decide(connection: sa.Connection, decision: Decision, key: str, signing: Signing = ALONE) -> Settlement:
    """Settle an approval if it still waits and the decision is about what it asks now; or count one signature of
    several. `key` is this decision's own: run a second time, it is still the one that counts.
    """
    made = connection.execute(_decided, {"key": key}).first()
    if made is not None:
        return _made_before(connection, made.approval_id, Verdict(made.verdict), signing)
    asked = connection.execute(_asked, {"approval_id": decision.approval_id}).first()
    if asked is None:
        return NoSuchApproval()
    connection.execute(_lock, {"turn_id": asked.turn_id})
    # Read again under the lock: somebody may have been faster.
    asked = connection.execute(_asked, {"approval_id": decision.approval_id}).first()
    objection = _objection(asked, decision)
    if asked is None or objection is not None:
        return objection or NoSuchApproval()
    approved = decision.verdict is Verdict.APPROVE
    person = {"a": decision.approval_id, "r": decision.revision, "p": decision.by.principal}
    missing = _missing(asked, signing)
    if approved and connection.execute(_has_signed, person).first() is not None:
        return AlreadySettled(f"You have signed it already. It needs {_more(missing)}.")
    connection.execute(
        _add_decision.on(connection),
        {
            **person,
            "name": decision.by.name,
            "verdict": decision.verdict.value,
            "why": decision.reason,
            "key": key,
            "evidence": signing.evidence,
        },
    )
    signers = [*(asked.signers or ()), decision.by.name] if approved else []
    if approved:
        connection.execute(_count, {"a": decision.approval_id, "who": signers})
    counts = not approved or missing <= 1
    if counts:
        _settle(connection, asked, decision, " and ".join(signers))
    show_change(connection, asked.turn_id)
    audit.record(
        connection,
        "decided" if counts else "signed",
        decision.by.principal,
        turn_id=asked.turn_id,
        subject=server_of(connection, decision.approval_id),
        step=asked.n,
        approval=decision.approval_id,
        revision=decision.revision,
        verdict=decision.verdict.value,
        evidence=signing.evidence,
        needed=0 if counts else missing - 1,
        fingerprint=asked.fingerprint,
    )
    ring_turn(connection, asked.turn_id)
    return Settled(decision.verdict) if counts else Counted(missing - 1)


def _made_before(connection: sa.Connection, approval_id: str, verdict: Verdict, signing: Signing) -> Settlement:
    """What a decision has come to whose COMMIT's answer was lost."""
    asked = connection.execute(_asked, {"approval_id": approval_id}).one()
    waits = asked.status == StepStatus.AWAITING
    return Counted(_missing(asked, signing)) if waits else Settled(verdict)


def _settle(connection: sa.Connection, asked: Any, decision: Decision, signers: str) -> None:
    approved = decision.verdict is Verdict.APPROVE
    connection.execute(
        _settle_step,
        {"t": asked.turn_id, "i": asked.n, "to": StepStatus.READY if approved else StepStatus.DENIED},
    )
    connection.execute(
        _settle_approval,
        {
            "a": decision.approval_id,
            "by": signers or decision.by.name,
            "why": decision.reason,
            "what": asked.asked if approved else None,
        },
    )
    go_on(connection, asked.turn_id)


def _missing(asked: Any, signing: Signing) -> int:
    """How many have still to sign: what was asked for counts as well as what is asked for now."""
    quorum: int = max(signing.quorum, read_terms(asked.terms).quorum)
    return quorum - len(asked.signers or ())


def _more(count: int) -> str:
    return "1 more signature" if count == 1 else f"{max(count, 0)} more signatures"


def revise(connection: sa.Connection, revision: Revision) -> bool:
    """Ask for a signature on other arguments. False if the approval is settled or was revised by somebody else."""
    asked = connection.execute(_asked, {"approval_id": revision.approval_id}).first()
    if asked is None:
        return False
    connection.execute(_lock, {"turn_id": asked.turn_id})
    asked = connection.execute(_asked, {"approval_id": revision.approval_id}).first()
    if asked is None:
        return False
    if asked.revision == revision.of + 1 and asked.fingerprint == revision.fingerprint:
        return True
    if asked.status != StepStatus.AWAITING or asked.revision != revision.of or asked.overdue:
        return False
    connection.execute(
        _revise,
        {
            "a": revision.approval_id,
            "was": revision.of,
            "what": dict(revision.arguments),
            "by": revision.by.name,
            "editors": sorted({*(asked.editors or ()), revision.by.principal}),
            "print": revision.fingerprint,
        },
    )
    show_change(connection, asked.turn_id)
    audit.record(
        connection,
        "revised",
        revision.by.principal,
        turn_id=asked.turn_id,
        subject=server_of(connection, revision.approval_id),
        step=asked.n,
        approval=revision.approval_id,
        revision=revision.of + 1,
        fingerprint=revision.fingerprint,
    )
    ring_turn(connection, asked.turn_id)
    return True


def stop(connection: sa.Connection, turn_id: str, by: Author) -> bool:
    """End a turn that nobody drives, or ask its owner to end it. False if there is nothing to stop."""
    row = connection.execute(_lock, {"turn_id": turn_id}).first()
    if row is None or row.status not in LIVE:
        return False
    if row.stop_by is not None:
        return True
    connection.execute(_ask_to_stop, {"t": turn_id, "by": by.name})
    if row.status != TurnStatus.RUNNING:
        end_turn(connection, turn_id, TurnStatus.CANCELLED, f"Stopped by {by.name}.")
    audit.record(connection, "stopped", by.principal, turn_id=turn_id)
    ring_stop(connection, turn_id)
    return True


def _objection(asked: Any, decision: Decision) -> Settlement | None:
    """Why this decision settles nothing."""
    if asked is None:
        return NoSuchApproval()
    if asked.status != StepStatus.AWAITING:
        return AlreadySettled(_how(StepStatus(asked.status), asked.decided_by))
    if asked.revision != decision.revision:
        return OutOfDate()
    return AlreadySettled(_how(StepStatus.EXPIRED, "")) if asked.overdue else None


def _how(status: StepStatus, by: str) -> str:
    match status:
        case StepStatus.DENIED:
            return f"{by} has turned it down already." if by else "It could not be shown before that. It was not run."
        case StepStatus.EXPIRED:
            return "It timed out before that. It was not run."
        case StepStatus.CANCELLED:
            return "It was cancelled before that. It was not run."
        case _:
            return f"{by} has approved it already." if by else "It was settled before that."
