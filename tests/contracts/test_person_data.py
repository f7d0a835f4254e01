"""Stored data of one user: export and deletion, on each database."""

from __future__ import annotations

import json

from bot.domain.approvals import Approval, Decision, DecisionType
from bot.domain.completions import StopReason, Usage
from bot.domain.conversations import Author
from bot.domain.locales import Locale
from bot.domain.messages import FilePart, TextPart, ToolCall, ToolResult, assistant
from bot.domain.turns import Claim, ModelStep, StepStatus, ToolRef, ToolStep, TurnStatus
from bot.domain.usage import UsageGrouping, UsageQuery
from bot.storage.tables import metadata
from bot.storage.usage import SqlUsageStore
from bot.storage.user_data import EXPORTED, FORGOTTEN, SqlFeedbackStore, SqlLocaleStore, SqlPersonData
from tests.audit_check import audit_findings, audit_rows
from tests.fakes.parts import ANA, BEN, NEWEST, message
from tests.stored_content import columns_with
from tests.turn_log_harness import Harness

QUESTION, RESULT, OTHER, REASON = "Apfelmus", "Kirschkuchen", "Birnensaft", "Dattelbrot"
SAM = Author("test", "sam", "Samantha")
REF = ToolRef("s", "write", definition="d1g3st", server_id="id-of-s", place="here")


async def store_approved_turn(harness: Harness, text: str, author: Author, approver: Author) -> Claim:
    """Store a turn with an approved call that returned a file. Return its claim."""
    await harness.log.enqueue(message(text, f"key of {author.id}", author=author))
    (claim,) = await harness.log.claim(1)
    card = f"card-{author.id}"
    step = ToolStep(
        2,
        ToolCall("c2", "s__write", {"text": text}),
        REF,
        StepStatus.AWAITING,
        approval=Approval(card, 1, "print", author, None),
    )
    reply = ModelStep(1, assistant(text, step.call), StopReason.TOOLS, Usage(7, 5), model="m")
    await harness.log.append(claim, reply, [step])
    await harness.log.decide(Decision(card, 1, DecisionType.APPROVE, approver, reason=REASON))
    await harness.log.start_call(claim, 2)
    returned = ToolResult("c2", (TextPart(RESULT), FilePart(b"\x00 bytes", "a/b", "n")))
    await harness.log.finish_call(claim, 2, StepStatus.DONE, returned, 0.5)
    record = await harness.log.finish(claim, TurnStatus.DONE, [ModelStep(3, assistant(f"on {text}"))], "")
    await harness.log.acquire_delivery(claim.turn_id, NEWEST)
    await harness.log.mark_delivered(claim.turn_id, record.revision)
    return claim


async def two_people(harness: Harness) -> tuple[Claim, Claim]:
    """Store two turns: Ana asks and Sam approves, then Sam asks and Ana approves."""
    first, second = (
        await store_approved_turn(harness, QUESTION, ANA, SAM),
        await store_approved_turn(harness, OTHER, SAM, ANA),
    )
    await SqlFeedbackStore(harness.database).save(second.turn_id, True, ANA)
    return first, second


async def test_an_export_has_messages_answers_decisions_and_usage_of_one_person(harness: Harness) -> None:
    first, _ = await two_people(harness)
    data = await SqlPersonData(harness.database).export("test:ana")
    text = json.dumps(data)
    assert QUESTION in text
    assert RESULT in text
    assert OTHER not in text
    assert [row["id"] for row in data["turns"]] == [first.turn_id]
    assert [row["data"] for row in data["files"]] == ["ACBieXRlcw=="]
    assert [(row["decision"], row["reason"]) for row in data["decisions"]] == [("approve", REASON)]
    assert [row["good"] for row in data["feedback"]] == [True]
    assert len(data["usage"]) == 2
    assert {row["actor"] for row in data["audit"]} == {"test:ana"}
    assert not any((await SqlPersonData(harness.database).export("other:ana")).values())


async def test_a_forgotten_person_leaves_ids_and_numbers_and_others_lose_nothing(harness: Harness) -> None:
    _, second = await two_people(harness)
    before = await harness.database.run(audit_rows)
    data = SqlPersonData(harness.database)
    assert await data.forget("test:sam", "console:op") == (1, 0)
    for gone in (OTHER, "Samantha"):
        assert await columns_with(harness.database, gone) == []
    assert await columns_with(harness.database, QUESTION) == [
        "approvals.approved_arguments", "approvals.proposed_arguments", "steps.body", "turns.input"
    ]  # fmt: skip
    (_, bare) = await harness.log.recent_turns(second.conversation, 5)
    assert (bare.turn.content_deleted, bare.turn.author) == (True, Author("test", "sam", ""))
    approved = await harness.log.get_approval("card-ana")
    assert approved is not None
    assert approved[1].approval is not None
    assert approved[1].approval.decided_by == "test:sam"
    rows = await harness.database.run(audit_rows)
    assert rows[: len(before)] == before
    assert [(row["kind"], row["actor"]) for row in rows[len(before) :]] == [("forgot person", "console:op")]
    assert await audit_findings(harness.database) == []
    totals = await SqlUsageStore(harness.database).totals_by(UsageQuery(0.0), UsageGrouping.PERSON)
    assert {name: total.requests for name, total in totals} == {"test:ana": 2, FORGOTTEN: 2}
    assert await data.forget("test:sam", "console:op") == (0, 0)


async def test_feedback_and_reasons_go_too_and_a_turn_that_runs_is_left(harness: Harness) -> None:
    await two_people(harness)
    await SqlLocaleStore(harness.database).choose("test:ana", Locale("ja", "Asia/Tokyo"))
    exported = await SqlPersonData(harness.database).export("test:ana")
    assert [(row["language"], row["time_zone"]) for row in exported["preferences"]] == [("ja", "Asia/Tokyo")]
    await harness.log.enqueue(message("goes on", author=ANA))
    (claim,) = await harness.log.claim(1)
    assert await SqlPersonData(harness.database).forget("test:ana", "console:op") == (1, 1)
    assert await columns_with(harness.database, QUESTION) == []
    data = await SqlPersonData(harness.database).export("test:ana")
    assert (data["feedback"], data["usage"], data["preferences"]) == ([], [], [])
    assert [row["reason"] for row in data["decisions"]] == [""]
    assert (await harness.log.get_view(claim.turn_id)).turn.author == ANA
    await harness.log.finish(claim, TurnStatus.DONE, [], "")
    assert await SqlPersonData(harness.database).forget("test:ana", "console:op") == (1, 0)
    assert await columns_with(harness.database, "goes on") == ["message_keys.key"]


async def test_grants_of_others_stay(harness: Harness) -> None:
    await two_people(harness)
    await SqlPersonData(harness.database).forget("test:ben", "console:op")
    assert QUESTION in json.dumps(await SqlPersonData(harness.database).export("test:ana"))
    assert not (await SqlPersonData(harness.database).export(BEN.principal))["turns"]


def test_every_table_with_a_person_is_exported() -> None:
    exported = {table.name for query in EXPORTED.values() for table in query.get_final_froms()}  # type: ignore[attr-defined]
    with_person = {table.name for table in metadata.tables.values() if {"principal", "actor"} & {*table.c.keys()}}
    assert with_person - exported == {"pending_sign_ins"}, "which last minutes, and hold a secret"
