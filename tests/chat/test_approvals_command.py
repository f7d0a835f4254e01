"""`/approvals` as text: the list with ids, and decisions by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bot.chat.approval_inbox import NOTHING_WAITS, ApprovalsCommand, PendingCall, PendingCalls
from bot.domain.approvals import AlreadyDecided, DecisionType
from bot.domain.commands import Invocation, Reply
from bot.domain.conversations import ConversationKey, Member
from bot.domain.turns import StepStatus
from tests.platforms import sample_views
from tests.platforms.fake_engine import FakeEngine, ScriptedCommands

PRIYA = sample_views.ASKED.turn.author
WHERE = ConversationKey("slack", "T1", "C1", "1.1")
CALL = PendingCall(sample_views.ASKED.turn, sample_views.a_filing(StepStatus.AWAITING), "https://chat.example/1")


class Approvals:
    """The approvals command for a user with these pending calls."""

    def __init__(self, *calls: PendingCall) -> None:
        self.engine = FakeEngine()
        self._calls = calls
        self.commands = ApprovalsCommand(self.engine, ScriptedCommands(), self._read)

    async def _read(self, _member: Member, workspace: str, start: int, count: int) -> PendingCalls:
        assert workspace == "slack:T1"
        return PendingCalls(self._calls[start : start + count], len(self._calls))

    async def ask(self, *words: str) -> Reply:
        invocation = Invocation("approvals", words, Member(PRIYA), WHERE)
        (reply,) = [reply async for reply in self.commands.handle(invocation)]
        assert isinstance(reply, Reply)
        return reply


@pytest.mark.parametrize("words", [(), ("list",)])
async def test_the_list_has_asker_call_expiry_and_card(words: Sequence[str]) -> None:
    reply = await Approvals(CALL).ask(*words)
    assert reply.text.startswith("1 call waits for you, oldest first.")
    assert reply.table is not None
    ((approval_id, name, asked_by, place, _expires),) = reply.table.rows
    assert (approval_id, asked_by, place) == ("3a7f3c2e", "Priya", "https://chat.example/1")
    assert name.startswith("Create issue")
    assert (await Approvals().ask()).text == NOTHING_WAITS


async def test_a_call_is_decided_by_the_beginning_of_its_id() -> None:
    approvals = Approvals(CALL)
    assert (await approvals.ask("approve", "3a7f3c2e")).text == "Approved."
    assert (await approvals.ask("deny", "3a7f", "not", "now")).text == "Denied."
    decisions = [(decision.type, decision.approval_id, decision.reason) for decision, _ in approvals.engine.decisions]
    assert decisions == [
        (DecisionType.APPROVE, "3a7f3c2e9b", ""),
        (DecisionType.DENY, "3a7f3c2e9b", "not now"),
    ]


async def test_a_call_that_may_destroy_data_is_approved_once_its_id_is_typed_again() -> None:
    tool = CALL.step.tool
    assert tool is not None
    approvals = Approvals(replace(CALL, step=replace(CALL.step, tool=replace(tool, destructive=True))))
    asked = await approvals.ask("approve", "3a7f3c2e")
    assert "It may destroy data." in asked.text
    assert dict(asked.details)["id"] == "3a7f3c2e"
    assert dict(asked.details)["call"].startswith("Create issue")
    assert [(action.words, action.confirm) for action in asked.actions] == [
        (("approvals", "approve", "3a7f3c2e"), "3a7f3c2e")
    ]
    assert (await approvals.ask("approve", "3a7f3c2e", "--confirm", "other")).failed
    assert approvals.engine.decisions == []
    assert (await approvals.ask("approve", "3a7f3c2e", "--confirm", "3a7f3c2e")).text == "Approved."
    assert (await approvals.ask("deny", "3a7f3c2e")).text == "Denied."


async def test_an_id_names_the_revision_that_the_list_has_shown() -> None:
    step = CALL.step
    assert step.approval is not None
    edited = replace(CALL, step=replace(step, approval=replace(step.approval, revision=3)))
    approvals = Approvals(edited)
    table = (await approvals.ask("list")).table
    assert table is not None
    assert table.rows[0][0] == "3a7f3c2e.3"
    for written in ("3a7f3c2e", "3a7f3c2e.3"):
        await approvals.ask("approve", written)
    assert [decision.revision for decision, _ in approvals.engine.decisions] == [1, 3]


async def test_an_unknown_id_and_a_rejected_decision_are_said() -> None:
    approvals = Approvals(CALL)
    for wrong in ("3a7", "ffffffff", "3a7f3c2e.x", "3a7f3c2e.0"):
        assert "No call that waits for you has this id." in (await approvals.ask("approve", wrong)).text
    assert approvals.engine.decisions == []
    approvals.engine.settlements = [AlreadyDecided("Sam has already denied it.")]
    reply = await approvals.ask("approve", "3a7f3c2e")
    assert (reply.failed, reply.text) == (True, "Sam has already denied it.")


async def test_verbs_are_completed_and_listed_beside_those_of_the_other_commands() -> None:
    commands = Approvals().commands
    assert [verb.path for verb in commands.verbs["approvals"]] == ["list", "approve", "deny", "help"]
    assert "approvals" in commands.complete("app", WHERE)
    assert list(commands.complete("approvals a", WHERE)) == ["approvals approve"]
