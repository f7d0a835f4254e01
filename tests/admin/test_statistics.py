"""`/mcp stats` and `/mcp health`: their numbers, the users who see them, and the report of failures."""

from __future__ import annotations

from dataclasses import replace

from bot.admin.statistics import DAY
from bot.domain.commands import Reply
from bot.domain.health import Health, ListenerStatus
from bot.domain.metrics import ProcessCounters
from bot.domain.servers import ServerStatus
from bot.ports import Activity, ApprovalActivity, Backlog, ServerActivity
from tests.admin.memory_stores import NOW
from tests.admin.servers import OPERATOR, config_of, with_jira
from tests.fakes.parts import HALL

BUSY = Activity(
    turns={"done": 7, "failed": 1},
    servers=(ServerActivity("jira", 20, 18, 0.25, 4.0), ServerActivity("notes", 1, 0, None, None)),
    approvals=ApprovalActivity(requested=8, approved=4, denied=2, expired=1, median=12.0),
)


def facts(reply: Reply) -> dict[str, str]:
    return dict(reply.details)


async def test_calls_are_counted_by_server_with_how_they_went_and_how_long_they_took() -> None:
    harness = await with_jira()
    harness.archive.activities = BUSY
    reply = await harness.ask("mcp stats")
    assert reply.text.startswith("Calls · 21 · since ")
    assert reply.table is not None
    assert reply.table.rows == (
        ("jira", "20", "18", "2", "90 %", "250 ms", "4.0 s"),
        ("notes", "1", "0", "1", "0 %", "", ""),
    )
    assert facts(reply) == {
        "turns": "7 done, 1 failed",
        "approvals requested": "8: 4 approved (50 %), 2 denied (25 %), 1 expired (12 %), 1 waiting or stopped (12 %)",
        "time to decide": "half within 12.0 s",
    }


async def test_an_admin_sees_the_last_day_of_the_workspace_and_the_operator_of_all() -> None:
    harness = await with_jira()
    await harness.ask("mcp stats")
    await harness.ask("mcp stats jira --since 2h")
    await harness.ask("mcp stats", OPERATOR)
    assert harness.archive.looks == [
        (NOW - DAY, HALL.workspace_key, ""),
        (NOW - 7200, HALL.workspace_key, config_of(harness, "jira").id),
        (NOW - DAY, "", ""),
    ]


async def test_an_invalid_period_is_refused() -> None:
    harness = await with_jira()
    for text in ("yesterday", "2026-13-01"):
        reply = await harness.ask(f"mcp stats --since {text}")
        assert reply.failed
        assert "`--since` is a point in time" in reply.text
    assert harness.archive.looks == []


async def test_of_one_server_no_turns_are_told_since_they_are_not_its_own() -> None:
    harness = await with_jira()
    harness.archive.activities = BUSY
    reply = await harness.ask("mcp stats jira")
    assert reply.text.startswith("Calls of `jira` · ")
    assert "turns" not in facts(reply)


async def test_sessions_and_tools_are_counted_since_the_start_of_the_process() -> None:
    harness = await with_jira()
    harness.counted = ProcessCounters({"created": 3, "closed": 1, "error": 1}, {"hit": 20, "miss": 1, "refresh": 4})
    for line in ("mcp stats", "mcp stats jira"):
        told = facts(await harness.ask(line))
        assert told["sessions since the start"].startswith("3 created, 1 closed, 1 error; ")
        assert told["known tools since the start"] == "20 hits, 1 miss, 4 refreshes"
    assert "sessions since the start" not in facts(await harness.ask("mcp stats notes"))


async def test_it_is_told_that_not_everything_was_counted() -> None:
    harness = await with_jira()
    many = tuple(ServerActivity(f"s-{number}", 1, 1, 1.0, 1.0) for number in range(30))
    harness.archive.activities = Activity({"done": 1}, many, ApprovalActivity(), whole=False)
    reply = await harness.ask("mcp stats")
    assert reply.table is not None
    assert len(reply.table.rows) == 25
    assert facts(reply)["left out"] == "5 servers"
    assert "only the latest" in facts(reply)["counted"]


async def test_a_house_in_good_order_is_ready_and_has_nothing_to_do() -> None:
    harness = await with_jira()
    harness.servers.states = [state for state in harness.servers.states if state.status is ServerStatus.CONNECTED]
    harness.health = Health(
        database=True, platforms={"slack": ListenerStatus.CONNECTED, "discord": ListenerStatus.STANDBY}
    )
    reply = await harness.ask("mcp health")
    assert reply.text == "● Countersign is ready"
    assert reply.table is None
    told = facts(reply)
    assert (told["database"], told["slack"]) == ("answers", "connected")
    assert told["discord"] == "received by another process, this one stands by"
    assert told["running turns, all workspaces"] == "none"


async def test_failing_servers_are_named_with_their_problem_and_waiting_tools_are_counted() -> None:
    harness = await with_jira()
    harness.servers.states = [
        replace(state, status=ServerStatus.FAILED, problem="It refuses.") if state.config.name == "jira" else state
        for state in harness.servers.states
    ]
    harness.archive.unfinished = Backlog({"queued": 3, "running": 2, "waiting": 0}, 42.4, 1, 5)
    reply = await harness.ask("mcp health")
    assert facts(reply)["jira"] == "failed: It refuses."
    assert facts(reply)["web-search"] == "failed: Server web-search cannot be reached. Fix: start it."
    assert facts(reply)["running turns, all workspaces"] == "3 queued, 2 running, the oldest that could begin for 42 s"
    assert facts(reply)["waiting for an approval"] == "1 call"
    assert facts(reply)["still to be drawn"] == "5 turns"
    assert [action.words for action in reply.actions] == [("mcp", "doctor", "jira"), ("mcp", "doctor", "web-search")]


async def test_while_the_database_is_away_nothing_is_asked_of_it() -> None:
    harness = await with_jira()
    harness.health = Health(database=False, platforms={"slack": ListenerStatus.CONNECTING})
    reply = await harness.ask("mcp health")
    assert reply.text == "✗ Countersign is unready"
    assert facts(reply)["database"] == "does not answer"
    assert facts(reply)["slack"] == "not connected, trying"
    assert "still to be drawn" not in facts(reply)


async def test_files_of_the_operator_that_cannot_be_used_are_said() -> None:
    harness = await with_jira()
    harness.health = Health(database=True, files_are_older=True)
    harness.older_files = "policy.toml, line 3: x means nothing here. Fix: use y"
    reply = await harness.ask("mcp health")
    assert reply.text == "! Countersign is degraded"
    assert facts(reply)["older files in use"] == harness.older_files


async def test_checkpoints_of_the_audit_that_cannot_be_written_are_said() -> None:
    harness = await with_jira()
    harness.health = Health(database=True, checkpoints_fail=True)
    reply = await harness.ask("mcp health")
    assert reply.text == "! Countersign is degraded"
    assert facts(reply)["database"] == "answers; checkpoints of the audit cannot be written, see the log"
