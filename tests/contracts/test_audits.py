"""Audit entries of calls, their search and their export, on each database."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bot.domain.agents import AgentRef
from bot.domain.approvals import Approval, ApprovalPolicy, Decision, DecisionType, Revision, fingerprint
from bot.domain.audit import NO_HASH, SEALED, AuditEntry, AuditHead, AuditQuery, AuditScope, Fault
from bot.domain.completions import StopReason
from bot.domain.conversations import Author, ConversationKey
from bot.domain.messages import TextPart, ToolCall, ToolResult, assistant
from bot.domain.policies import StoredPolicyResult
from bot.domain.tools import Tool
from bot.domain.turns import CallOrigin, ModelStep, StepStatus, ToolRef, ToolStep, TurnStatus
from bot.ports import DirectCall
from bot.storage import audit, audit_verification
from bot.storage.audit_chain import AuditKeys
from bot.storage.audit_verification import ExternalRecords, SqlAuditTrail
from bot.storage.checkpoints import CheckpointLines
from bot.storage.reporting import SqlReporting
from bot.storage.turn_log.log import SqlTurnLog
from tests.audit_check import audit_findings, audit_rows
from tests.contracts.test_stores import Forgetful
from tests.fakes.parts import ANA, BEN, HALL, message
from tests.turn_log_harness import Harness, running, sqlite_harness

SAM = Author("test", "sam", "Sam")
TOOL = Tool("s__write", "s", "write", server_id="id-of-s", place="here")
REF = ToolRef("s", "write", definition=TOOL.definition, server_id="id-of-s", place="here")
SECRET = "what nobody else should read"
ARGUMENTS = {"text": SECRET}
PRINT = fingerprint(TOOL, ARGUMENTS)
FILE = Path("a.checkpoints")
ELSEWHERE = ConversationKey("test", "v", "hall", "1")


def make_call(n: int, status: StepStatus, card: str = "", *, repeatable: bool = False) -> ToolStep:
    approval = Approval(card, 1, PRINT, ANA, None) if card else None
    denied = ToolResult(f"c{n}", (TextPart("no"),), is_error=True) if status is StepStatus.DENIED else None
    return ToolStep(
        n, ToolCall(f"c{n}", "s__write", ARGUMENTS), REF, status, repeatable, result=denied, approval=approval
    )


def wants(*steps: ToolStep) -> ModelStep:
    return ModelStep(1, assistant(SECRET, *(step.call for step in steps)), StopReason.TOOLS)


def result(n: int) -> ToolResult:
    return ToolResult(f"c{n}", (TextPart(SECRET),))


async def entries(harness: Harness, query: AuditQuery | None = None) -> Sequence[AuditEntry]:
    """Return the audit entries, oldest first."""
    page, count = await SqlReporting(harness.database).audit(query or AuditQuery(), 1000, 0)
    assert count == len(page)
    return list(reversed(page))


async def kinds(harness: Harness, query: AuditQuery | None = None) -> list[tuple[str, str]]:
    return [(entry.kind, entry.actor) for entry in await entries(harness, query)]


async def store_waiting_turn(
    harness: Harness, conversation: ConversationKey = HALL, card: str = "card-1", holding: Collection[str] = ()
) -> str:
    """Store a turn that awaits approval. Return its id."""
    claim = await running(harness, f"hi {card}", conversation, holding)
    step = make_call(2, StepStatus.AWAITING, card)
    await harness.log.append(claim, wants(step), [step])
    return claim.turn_id


# ---------------------------------------------------------------------- content


async def test_a_call_of_an_agent_names_it(harness: Harness) -> None:
    support = AgentRef("p1", "サポート")
    _, claim = await harness.log.enqueue_and_claim(replace(message("hi"), agent=support))
    assert claim is not None
    judged = StoredPolicyResult(ApprovalPolicy.ASK_USER, "policy.toml:7")
    step = replace(make_call(2, StepStatus.AWAITING, "card-1"), policy_result=judged)
    await harness.log.append(claim, wants(step), [step])
    (entry,) = await entries(harness)
    assert (entry.kind, entry.facts["agent"], entry.facts["agent_id"]) == ("asked", "サポート", "p1")
    assert entry.facts["rule"] == "policy.toml:7"


async def test_a_preview_is_recorded_with_its_card_and_once_though_the_commit_gave_no_answer(harness: Harness) -> None:
    claim = await running(harness)
    card = make_call(2, StepStatus.AWAITING, "card-1")
    preview = replace(make_call(3, StepStatus.DONE), origin=CallOrigin.PREVIEW)
    forgetful: Any = Forgetful(harness.database)
    await SqlTurnLog(forgetful).append(claim, wants(card, preview), [card, preview])
    recorded = [(entry.kind, entry.actor, entry.facts["step"], entry.facts["tool"]) for entry in await entries(harness)]
    assert recorded == [("asked", ANA.principal, 2, "write"), ("ran", ANA.principal, 3, "write")]


async def test_a_denial_because_no_user_could_be_asked_has_no_decider(harness: Harness) -> None:
    await store_waiting_turn(harness)
    await harness.log.decide(Decision("card-1", 1, DecisionType.DENY, BEN, "No terminal.", is_automatic=True))
    entry = (await entries(harness))[-1]
    assert (entry.kind, entry.actor, entry.facts["reason"]) == ("decided", "countersign", "No terminal.")
    pending = await harness.log.get_approval("card-1")
    assert pending is not None
    assert pending[1].approval is not None
    assert pending[1].approval.decided_by == ""


async def test_an_approved_call_is_followed_from_the_question_to_its_end_by_one_fingerprint(harness: Harness) -> None:
    claim = await running(harness)
    step = make_call(2, StepStatus.AWAITING, "card-1")
    await harness.log.append(claim, wants(step), [step])
    await harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, BEN))
    await harness.log.start_call(claim, 2)
    harness.time += 1.5
    await harness.log.finish_call(claim, 2, StepStatus.DONE, result(2))
    assert await kinds(harness) == [("asked", "test:ana"), ("decided", "test:ben"), ("ran", "test:ana")]
    found = await entries(harness)
    assert [entry.facts["fingerprint"] for entry in found] == [PRINT] * 3
    assert {(entry.facts["approval"], entry.facts["step"]) for entry in found} == {("card-1", 2)}
    assert {(entry.subject, entry.turn_id, entry.conversation) for entry in found} == {
        ("id-of-s", claim.turn_id, str(HALL))
    }
    assert found[1].facts["needed"] == 0
    ran = found[-1].facts
    assert (ran["server"], ran["tool"], ran["status"], ran["seconds"]) == ("s", "write", "done", 1.5)


async def test_a_call_that_needed_no_approval_is_there_with_how_long_it_took(harness: Harness) -> None:
    claim = await running(harness)
    step = make_call(2, StepStatus.READY, repeatable=True)
    await harness.log.append(claim, wants(step), [step])
    await harness.log.finish_call(claim, 2, StepStatus.FAILED, result(2), 0.25)
    (ran,) = await entries(harness)
    assert (ran.kind, ran.actor, ran.facts["status"], ran.facts["seconds"]) == ("ran", "test:ana", "failed", 0.25)
    assert ran.facts["fingerprint"] == PRINT


async def test_a_call_that_was_not_sent_after_all_did_not_run(harness: Harness) -> None:
    claim = await running(harness)
    step = make_call(2, StepStatus.READY)
    await harness.log.append(claim, wants(step), [step])
    await harness.log.finish_call(claim, 2, StepStatus.FAILED, result(2))
    assert await kinds(harness) == [("not run", "test:ana")]


async def test_a_revised_call_runs_under_the_fingerprint_of_its_new_arguments(harness: Harness) -> None:
    claim = await running(harness)
    step = make_call(2, StepStatus.AWAITING, "card-1")
    await harness.log.append(claim, wants(step), [step])
    other = fingerprint(TOOL, {"text": "less"})
    await harness.log.revise(Revision("card-1", 1, {"text": "less"}, other, BEN))
    await harness.log.decide(Decision("card-1", 2, DecisionType.APPROVE, ANA))
    await harness.log.start_call(claim, 2)
    await harness.log.finish_call(claim, 2, StepStatus.DONE, result(2))
    prints = [entry.facts["fingerprint"] for entry in await entries(harness)]
    assert prints == [PRINT, other, other, other]


async def test_a_call_that_a_policy_forbids_is_there_once(harness: Harness) -> None:
    claim = await running(harness)
    step = make_call(2, StepStatus.DENIED)
    for _ in range(2):
        await harness.log.append(claim, wants(step), [step])
    (row,) = await entries(harness)
    assert (row.kind, row.actor, row.facts["fingerprint"]) == ("forbidden", "test:ana", PRINT)


async def test_a_call_of_unknown_outcome_is_in_the_audit_by_name(harness: Harness) -> None:
    claim = await running(harness)
    step = make_call(2, StepStatus.READY)
    await harness.log.append(claim, wants(step), [step])
    await harness.log.start_call(claim, 2)
    log = await harness.restart()
    (again,) = await log.claim(8)
    await log.resume(again)
    (row,) = await entries(harness)
    assert (row.kind, row.actor, row.facts["status"], row.facts["tool"]) == ("ran", "test:ana", "unknown", "write")


async def test_a_step_that_cannot_be_read_does_not_keep_its_turn_from_ending(harness: Harness) -> None:
    claim = await running(harness)
    step = make_call(2, StepStatus.READY)
    await harness.log.append(claim, wants(step), [step])
    await harness.log.start_call(claim, 2)
    spoil = sa.text("update steps set body = '{\"v\": 9}' where n = 2")
    await harness.database.run(lambda connection: connection.execute(spoil))
    await harness.log.fail(claim, "It cannot be read.")
    assert await kinds(harness) == [("ran", "test:ana")]


async def test_nothing_that_was_said_or_returned_is_in_it(harness: Harness) -> None:
    claim = await running(harness, SECRET)
    steps = [
        make_call(2, StepStatus.AWAITING, "card-1"),
        make_call(3, StepStatus.READY),
        make_call(4, StepStatus.DENIED),
    ]
    await harness.log.append(claim, wants(*steps), steps)
    await harness.log.record_rejection("card-1", SAM, "You may not approve this.")
    await harness.log.decide(Decision("card-1", 1, DecisionType.DENY, BEN, SECRET))
    await harness.log.start_call(claim, 3)
    await harness.log.finish_call(claim, 3, StepStatus.DONE, result(3))
    await harness.log.finish(claim, TurnStatus.DONE, [ModelStep(5, assistant(SECRET))], "")
    rows = await harness.database.run(audit_rows)
    assert len(rows) == 5
    assert SECRET not in str(rows)


# ---------------------------------------------------------------------- rejections


async def test_a_refused_user_is_in_the_audit_once_for_each_reason(harness: Harness) -> None:
    turn_id = await store_waiting_turn(harness)
    for _ in range(300):
        await harness.log.record_rejection("card-1", SAM, "You may not approve this.")
    await harness.log.record_rejection("card-1", SAM, "Not your own.")
    await harness.log.record_rejection("card-1", BEN, "You may not approve this.")
    found = await entries(harness, AuditQuery(kinds=("refused",)))
    assert [(entry.actor, entry.facts["reason"]) for entry in found] == [
        ("test:sam", "You may not approve this."),
        ("test:sam", "Not your own."),
        ("test:ben", "You may not approve this."),
    ]
    assert {(entry.turn_id, entry.facts["approval"], entry.subject) for entry in found} == {
        (turn_id, "card-1", "id-of-s")
    }


async def test_many_tries_at_once_in_many_processes_are_one_row(harness: Harness) -> None:
    await store_waiting_turn(harness)
    logs = [SqlTurnLog(harness.database) for _ in range(4)]
    await asyncio.gather(*(log.record_rejection("card-1", SAM, "You may not.") for log in logs for _ in range(10)))
    assert len(await entries(harness, AuditQuery(kinds=("refused",)))) == 1


async def test_tries_at_approvals_that_do_not_exist_leave_nothing(harness: Harness) -> None:
    await harness.log.record_rejection("made-up", SAM, "You may not approve this.")
    assert await entries(harness) == []


# ---------------------------------------------------------------------- searching


async def test_rows_are_found_by_person_time_kind_and_server_all_at_once(harness: Harness) -> None:
    await store_waiting_turn(harness)
    harness.time += 100
    await harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, BEN))
    since = harness.time
    assert await kinds(harness, AuditQuery(person="test:ana")) == [("asked", "test:ana")]
    assert await kinds(harness, AuditQuery(since=since)) == [("decided", "test:ben")]
    assert await kinds(harness, AuditQuery(until=since)) == [("asked", "test:ana")]
    assert await kinds(harness, AuditQuery(kinds=("decided", "refused"))) == [("decided", "test:ben")]
    assert len(await entries(harness, AuditQuery("id-of-s"))) == 2
    assert await entries(harness, AuditQuery("id-of-s", "test:ana", ("decided",))) == []


async def test_a_horizon_hides_other_workspaces_and_other_peoples_servers(harness: Harness) -> None:
    first = await store_waiting_turn(harness)
    await store_waiting_turn(harness, ELSEWHERE, "card-2", (first,))

    def administer(connection: sa.Connection) -> None:
        for server in ("id-of-s", "theirs"):
            audit.record(connection, "changed server", "test:ben", subject=server)

    await harness.database.run(administer)
    here = AuditScope(HALL.workspace_key, frozenset({"id-of-s"}))
    found = await entries(harness, AuditQuery(scope=here))
    assert [(entry.kind, entry.conversation, entry.subject) for entry in found] == [
        ("asked", str(HALL), "id-of-s"),
        ("changed server", "", "id-of-s"),
    ]
    assert len(await entries(harness, AuditQuery("id-of-s", scope=here))) == 2, "not of the other workspace"
    assert await entries(harness, AuditQuery(scope=AuditScope("test:nowhere"))) == []
    assert len(await entries(harness)) == 4


async def test_names_no_database_can_store_are_looked_for_without_harm(harness: Harness) -> None:
    assert await entries(harness, AuditQuery("a\0b\ud83d", "c\0d\ud83d")) == []


# ---------------------------------------------------------------------- batches


async def many(harness: Harness, count: int) -> None:
    def write(connection: sa.Connection) -> None:
        for n in range(count):
            audit.record(connection, "x", "test:ana", n=n)

    await harness.database.run(write)


@pytest.mark.parametrize("count", [0, 1, 6, 7, 8, 14, 15])
async def test_every_row_is_read_once_wherever_the_pieces_end(harness: Harness, count: int) -> None:
    trail = SqlAuditTrail(harness.database, batch_size=7)
    await many(harness, count)
    assert [entry.seq async for entry in trail.entries(AuditQuery())] == list(range(1, count + 1))
    report = await trail.verify()
    assert (report.head, report.rows, report.findings) == (await trail.head(), count, ())
    assert (await trail.head()).seq == count


async def test_rows_that_are_added_while_others_are_read_are_read_too(harness: Harness) -> None:
    trail = SqlAuditTrail(harness.database, batch_size=2)
    await many(harness, 4)
    seen = []
    async for entry in trail.entries(AuditQuery()):
        seen.append(entry.seq)
        if len(seen) == 2:
            await many(harness, 2)
    assert seen == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("twice", [1, 3, 4, 5])
async def test_a_second_row_of_the_same_number_shows_wherever_the_pieces_end(harness: Harness, twice: int) -> None:
    await many(harness, 6)

    def double(connection: sa.Connection) -> None:
        """Insert a copy of the row. The primary key that forbids it is dropped first."""
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("create table copy as select * from audit")
            connection.exec_driver_sql("drop table audit")
            connection.exec_driver_sql("alter table copy rename to audit")
        else:
            connection.exec_driver_sql("alter table audit drop constraint audit_pkey")
        connection.exec_driver_sql(f"insert into audit select * from audit where seq = {twice}")

    await harness.database.run(double)
    for piece in (1, 2, 3, 4, 100):
        report = await SqlAuditTrail(harness.database, piece).verify()
        rows = [finding.what for finding in report.findings if finding.fault is not Fault.TRIGGERS]
        assert rows == [f"Row {twice} was put in: it has no place there."], piece


@pytest.mark.parametrize(
    "change",
    [
        "seq = 'x'", "seq = 2.5", "at = 'noon'", "body = x'00'", "body = '[]'", "body = 7", "kind = x'ff'", "hash = 3"
    ],
)  # fmt: skip
async def test_an_entry_that_no_row_can_hold_is_left_out_without_an_error(tmp_path: Path, change: str) -> None:
    """SQLite accepts any type in any column."""
    harness = await sqlite_harness(tmp_path)
    await many(harness, 3)

    def force(connection: sa.Connection) -> None:
        connection.exec_driver_sql("drop trigger audit_is_never_changed")
        connection.exec_driver_sql(f"update audit set {change} where seq = 2")

    await harness.database.run(force)
    report = await SqlAuditTrail(harness.database).verify()
    await harness.close()
    assert 2 in {finding.first for finding in report.findings}


async def test_a_head_that_is_remembered_is_found_again_among_later_rows(harness: Harness) -> None:
    trail = SqlAuditTrail(harness.database, batch_size=2)
    await many(harness, 3)
    known = await trail.head()
    assert AuditHead.parse(str(known)) == known
    await many(harness, 3)
    for head, faults in (
        (known, []),
        (AuditHead(3, "f" * 64), [Fault.REWRITTEN]),
        (AuditHead(7, "f" * 64), [Fault.MISSING]),
    ):
        report = await trail.verify(ExternalRecords(head=head))
        assert [finding.fault for finding in report.findings] == faults


# ---------------------------------------------------------------------- verified


async def test_turns_that_retention_or_a_person_deleted_are_no_finding_and_turns_that_are_gone_otherwise_are_one(
    harness: Harness,
) -> None:
    for thread in ("1", "2", "3"):
        claim = await running(harness, f"hi {thread}", ConversationKey("test", "w", "hall", thread))
        denied = make_call(2, StepStatus.DENIED)
        await harness.log.append(claim, wants(denied), [denied])
        await harness.log.finish(claim, TurnStatus.DONE, [ModelStep(3, assistant("no"))], "")
        harness.time += 1000
    assert await SqlReporting(harness.database).delete(ConversationKey("test", "w", "hall", "1"), BEN)
    await harness.database.run(lambda c: c.execute(sa.text("update deliveries set delivered_revision = revision")))
    assert await harness.log.delete_old(1500, 10) == 1
    assert await audit_findings(harness.database) == []
    await harness.database.run(lambda c: c.execute(sa.text("delete from turns")))
    assert await audit_findings(harness.database) == [
        "1 turn is gone that the audit has rows of, and no row says that they were deleted."
    ]


async def test_rows_from_before_there_was_a_key_are_a_finding_until_the_operator_seals_them(harness: Harness) -> None:
    await many(harness, 3)
    harness.database.audit_keys = AuditKeys(lambda: (b"k" * 32,))
    await many(harness, 2)
    assert await audit_findings(harness.database) == ["Rows 1 to 3 have no MAC."]
    await harness.database.run(lambda c: audit.record(c, SEALED, "test:ana", reason="upgraded"))
    report = await SqlAuditTrail(harness.database).verify()
    assert (report.findings, report.unsigned) == ((), 3)
    assert report.seal is not None
    assert (report.seal.seq, report.seal.reason) == (6, "upgraded")


async def test_rows_of_a_process_without_the_key_are_a_finding(harness: Harness) -> None:
    harness.database.audit_keys = AuditKeys(lambda: (b"k" * 32,))
    await many(harness, 2)
    harness.database.audit_keys, keys = AuditKeys(), harness.database.audit_keys
    await many(harness, 1)
    harness.database.audit_keys = keys
    assert await audit_findings(harness.database) == ["Row 3 has no MAC."]


async def test_a_quick_verification_reads_the_latest_rows_and_compares_older_checkpoints_one_by_one(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_verification, "LATEST_ROWS", 5)
    harness.database.audit_keys = keys = AuditKeys(lambda: (b"k" * 32,))
    await many(harness, 4)
    head = await SqlAuditTrail(harness.database).head()
    await many(harness, 8)
    for row_hash, faults in ((head.hash, []), ("ab" * 32, [Fault.REWRITTEN])):
        external = ExternalRecords((CheckpointLines(FILE, [keys.sign_checkpoint(4, row_hash, 1.5)]),))
        report = await SqlAuditTrail(harness.database).verify(external, quick=True)
        assert (report.rows, report.whole) == (5, False)
        assert [finding.fault for finding in report.findings] == faults


async def test_rows_without_a_checkpoint_limit_the_verdict(harness: Harness) -> None:
    harness.database.audit_keys = keys = AuditKeys(lambda: (b"k" * 32,))
    await many(harness, 2)
    head = await SqlAuditTrail(harness.database).head()
    places = (CheckpointLines(FILE, [keys.sign_checkpoint(0, NO_HASH, 1.5), keys.sign_checkpoint(2, head.hash, 2.5)]),)
    await many(harness, 3)
    for seconds, told in ((59, []), (2, ["No checkpoint covers rows 3 to 5, which began on 1970-01-12 13:46:40."])):
        harness.time += seconds
        report = await SqlAuditTrail(harness.database).verify(ExternalRecords(places, expected=FILE, stale_after=60))
        assert [finding.what for finding in report.findings] == told
        assert report.fits


async def test_a_direct_call_whose_commit_gave_no_answer_is_recorded_once(harness: Harness) -> None:
    forgetful: Any = Forgetful(harness.database)
    calls = audit.SqlCallAudit(forgetful)
    read = Tool("jira__read", "jira", "read", input_schema={}, server_id="s1")
    for call in (DirectCall(read, {"uri": "x:1"}, HALL, ANA), DirectCall(read, {"uri": "x:1"}, HALL, ANA)):
        await calls.record_call(call, StepStatus.DONE, 0.5)
        await calls.record_forbidden(call, "rule")
    rows = await harness.database.run(audit_rows)
    assert [row["kind"] for row in rows] == ["ran", "forbidden", "ran", "forbidden"]
