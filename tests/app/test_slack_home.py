"""The Home tab of a user: approvals to decide, own turns and, for admins, the state of the servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from bot.admin.dependencies import Rights
from bot.chat.approval_inbox import PendingCallReader
from bot.chat.home_message import SHOWN, HomeTabBuilder
from bot.domain.approvals import ASKER, MEMBERS, NO_REQUIREMENTS, Approval, ApprovalRequirements, Decision, DecisionType
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.elicitations import DECLINED, ElicitationRequest, FormMode
from bot.domain.grants import Grant
from bot.domain.messages import ToolCall
from bot.domain.profiles import Binding, Profile
from bot.domain.servers import HttpTransport, ServerConfig, ServerSnapshot, ServerStatus
from bot.domain.tools import CallNeedsInput
from bot.domain.turns import StepStatus, ToolRef, ToolStep, Turn
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.rules import Policies, RuleBook
from bot.ports import ApprovalLog, ServerAdmin
from bot.ports.platform import OpenElicitation
from bot.storage.reporting import SqlReporting
from bot.storage.sqlite import open_sqlite
from bot.storage.turn_log.log import SqlTurnLog
from tests.fakes.parts import message
from tests.migrated import create_database

PRIYA, SAM, OLGA = (Author("slack", f"U{name.upper()}", name) for name in ("priya", "sam", "olga"))
OPS = "slack-group:S1"


def at(channel: str, thread: str = "1", team: str = "T1") -> ConversationKey:
    return ConversationKey("slack", team, channel, thread)


def a_server(name: str, workspace: str = "") -> ServerSnapshot:
    config = ServerConfig(name, HttpTransport(f"https://{name}.example/mcp"), id=name, workspace=workspace)
    return ServerSnapshot(config, ServerStatus.CONNECTED)


@dataclass
class Servers:
    states: Sequence[ServerSnapshot] = ()

    def servers(self) -> Sequence[ServerSnapshot]:
        return self.states


@dataclass
class Workspace:
    """The workspace T1: Sam is its admin, members of OPS are its approvers, and Olga is the only approver in #ops."""

    log: SqlTurnLog
    archive: SqlReporting
    servers: Servers = field(default_factory=Servers)
    approvers: Approvers = Approvers(frozenset({SAM.principal}), frozenset({OPS}))
    unreadable: frozenset[str] = frozenset()

    async def asks(
        self,
        author: Author,
        where: ConversationKey,
        *cards: str,
        requirements: ApprovalRequirements = NO_REQUIREMENTS,
    ) -> str:
        """Add a turn that waits for the approvals `cards`, or a queued turn if there are no cards. Return its id."""
        receipt = await self.log.enqueue(message("please", f"{where}{cards}", conversation=where, author=author))
        if cards:
            (claim,) = [each for each in await self.log.claim(9) if each.turn_id == receipt.turn_id]
            calls = [_waiting_call(n, card, author, requirements) for n, card in enumerate(cards)]
            await self.log.append(claim, None, calls)
            await self.log.suspend(claim)
        return receipt.turn_id

    async def is_asked(self, author: Author, where: ConversationKey, *questions: str) -> list[str]:
        """Add a turn with elicitations of a server. Return the ids of the elicitations."""
        receipt = await self.log.enqueue(message("please", f"{where}{questions}", conversation=where, author=author))
        (claim,) = [each for each in await self.log.claim(9) if each.turn_id == receipt.turn_id]
        call = ToolStep(1, ToolCall("c1", "jira__run"), ToolRef("jira", "run"), StepStatus.READY)
        await self.log.append(claim, None, [call])
        asked = tuple(ElicitationRequest(question, question, FormMode({})) for question in questions)
        record = await self.log.suspend_for_elicitation(claim, 1, CallNeedsInput(asked, None), 60.0)
        await self.log.suspend(claim)
        return [elicitation.id for elicitation in record.calls[0].elicitations]

    @property
    def homes(self) -> HomeTabBuilder:
        rules = RuleBook(Policies(), self.approvers)
        rules.amend((), [Profile("p", "ops", approvers=frozenset({OLGA.principal}))], [Binding("slack:T1:OPS", "p")])
        rights = Rights(self.approvers.administers, lambda _: False, lambda _: False)
        servers = cast("ServerAdmin", self.servers)
        reader = PendingCallReader(self.archive, cast("ApprovalLog", self), rules)
        return HomeTabBuilder(self.archive, reader.read, self._inquiry, rights, servers)

    async def get_approval(self, approval_id: str) -> tuple[Turn, ToolStep] | None:
        if approval_id in self.unreadable:
            raise ValueError("a later release wrote this")
        return await self.log.get_approval(approval_id)

    async def delegations(self, workspace: str) -> Sequence[Grant]:
        return await self.log.delegations(workspace)

    async def _inquiry(self, elicitation_id: str) -> OpenElicitation | None:
        elicitation = await self.log.get_elicitation(elicitation_id)
        if elicitation is not None and elicitation.elicitation.question.message in self.unreadable:
            raise ValueError("a later release wrote this")
        return elicitation


def _waiting_call(n: int, card: str, author: Author, requirements: ApprovalRequirements) -> ToolStep:
    approval = Approval(card, 1, "print", author, 60.0, requirements=requirements)
    return ToolStep(n, ToolCall(f"c{n}", "jira__run"), ToolRef("jira", "run"), StepStatus.AWAITING, approval=approval)


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[Workspace]:
    database = open_sqlite(await create_database(tmp_path / "turns.db"))
    yield Workspace(SqlTurnLog(database), SqlReporting(database))
    await database.close()


async def waiting(workspace: Workspace, member: Member) -> list[str]:
    home = await workspace.homes.home(member, "slack:T1")
    return [call.step.approval.id for call in home.waiting if call.step.approval]


async def test_a_waiting_call_is_shown_to_its_approvers_with_its_channel(workspace: Workspace) -> None:
    await workspace.asks(PRIYA, at("INC"), "card-1")
    await workspace.asks(PRIYA, at("OPS"), "card-2")
    await workspace.asks(PRIYA, at("INC", team="T2"), "card-3")
    assert await waiting(workspace, Member(PRIYA)) == []
    assert await waiting(workspace, Member(PRIYA, frozenset({OPS}))) == ["card-1"]
    assert await waiting(workspace, Member(OLGA)) == ["card-2"]
    assert await waiting(workspace, Member(SAM)) == ["card-1", "card-2"]
    assert await waiting(workspace, Member(OLGA, guest=True)) == []
    assert await waiting(workspace, Member(SAM, external=True)) == []


async def test_a_call_that_all_members_may_approve_waits_for_its_asker_and_the_named_users(
    workspace: Workspace,
) -> None:
    """The call may come from a direct conversation or a private channel."""
    anyone = ApprovalRequirements(approvers=(frozenset({MEMBERS, OPS}),))
    await workspace.asks(PRIYA, at("DM"), "card-any", requirements=anyone)
    await workspace.asks(PRIYA, at("DM", "2"), "card-both", requirements=ApprovalRequirements((frozenset({ASKER}),)))
    assert await waiting(workspace, Member(PRIYA)) == ["card-any", "card-both"]
    assert await waiting(workspace, Member(SAM)) == []
    assert await waiting(workspace, Member(OLGA, frozenset({OPS}))) == ["card-any"]


async def test_decided_calls_are_gone_and_many_are_counted(workspace: Workspace) -> None:
    cards = [f"card-{n:02}" for n in range(SHOWN + 3)]
    await workspace.asks(PRIYA, at("INC"), *cards)
    await workspace.log.decide(Decision("card-00", 1, DecisionType.DENY, SAM))
    home = await workspace.homes.home(Member(SAM), "slack:T1")
    assert (len(home.waiting), home.more_waiting) == (SHOWN, 2)
    assert "card-00" not in await waiting(workspace, Member(SAM))


async def test_a_call_that_cannot_be_read_hides_no_other(workspace: Workspace) -> None:
    await workspace.asks(PRIYA, at("INC"), "card-1", "card-2")
    workspace.unreadable = frozenset({"card-1"})
    assert await waiting(workspace, Member(SAM)) == ["card-2"]


async def test_a_question_of_a_server_waits_for_the_asker_alone(workspace: Workspace) -> None:
    older = await workspace.is_asked(PRIYA, at("INC"), "how many")
    newer = await workspace.is_asked(PRIYA, at("INC", "2"), "which", "where")
    await workspace.is_asked(PRIYA, at("INC", team="T2"), "elsewhere")
    await workspace.is_asked(SAM, at("INC", "3"), "something else")
    workspace.unreadable = frozenset({"where"})

    async def elicitation_ids() -> list[str]:
        return [inquiry.elicitation.id for inquiry in (await workspace.homes.home(Member(PRIYA), "slack:T1")).inquiries]

    assert await elicitation_ids() == [newer[0], *older]
    await workspace.log.answer_elicitation(newer[0], DECLINED, PRIYA)
    assert await elicitation_ids() == older


async def test_questions_of_a_user_are_shown_to_that_user_alone(workspace: Workspace) -> None:
    older = await workspace.asks(PRIYA, at("INC"))
    await workspace.asks(SAM, at("INC", "2"))
    await workspace.asks(PRIYA, at("INC", "3", team="T2"))
    newer = await workspace.asks(PRIYA, at("DM", "4"))
    asked = (await workspace.homes.home(Member(PRIYA), "slack:T1")).asked
    assert [turn.id for turn in asked] == [newer, older]


async def test_servers_are_shown_to_admins_and_only_those_of_their_workspace(workspace: Workspace) -> None:
    workspace.servers.states = [a_server("everybodys"), a_server("ours", "slack:T1"), a_server("theirs", "slack:T2")]
    admins = (await workspace.homes.home(Member(SAM), "slack:T1")).servers
    assert admins is not None
    assert [state.config.name for state in admins] == ["everybodys", "ours"]
    assert (await workspace.homes.home(Member(PRIYA), "slack:T1")).servers is None
    # If no admin is named at all, the platform's own admins administer.
    workspace.approvers = replace(workspace.approvers, admins=frozenset())
    assert (await workspace.homes.home(Member(PRIYA, platform_admin=True), "slack:T1")).servers is not None


async def test_calls_that_wait_for_others_hide_none_however_many_they_are(workspace: Workspace) -> None:
    await workspace.asks(PRIYA, at("OPS"), "card-old")
    for n in range(6):
        await workspace.asks(PRIYA, at("INC", str(n)), *(f"card-{n}-{i}" for i in range(100)))
    assert await waiting(workspace, Member(OLGA)) == ["card-old"]
    home = await workspace.homes.home(Member(SAM), "slack:T1")
    assert home.waiting[0].step.approval.id == "card-old"  # type: ignore[union-attr]
    assert home.more_waiting > 0
    assert not home.all_counted
