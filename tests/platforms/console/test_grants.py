"""Granting later calls with the approval of one call, at a terminal."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from bot.domain.approvals import ArgumentsScope, DecisionType, HoursScope, NotAllowed, PermanentScope, ThreadScope
from bot.domain.grants import GrantRequest
from bot.domain.turns import ToolRef
from tests.platforms.console.chat import chatting
from tests.platforms.console.scripted_engine import asking
from tests.platforms.console.test_cards import ONE_KEY_PAUSE

KNOWN = ToolRef("notes", "add_note", read_only=False, destructive=False, server_id="s-1")
KEYS = "[y] once  [t] in this conversation  [g] allow more…"


asks = asking("Done with it.", tool=KNOWN)


async def test_t_approves_and_allows_in_this_thread() -> None:
    async with chatting({"go": asks}) as chat:
        await chat.type("go", KEYS)
        await chat.press("t", "Approved, and allowed in this conversation", "/mcp grants list", "Done with it.")
        assert chat.engine.granted == [GrantRequest(ThreadScope())]
        (decision,) = chat.engine.decisions
        assert (decision.approval_id, decision.revision, decision.type) == ("apr-12345678", 1, DecisionType.APPROVE)


@pytest.mark.parametrize(
    ("key", "permission"),
    [("1", GrantRequest(ArgumentsScope())), ("2", GrantRequest(HoursScope(8))), ("3", GrantRequest(PermanentScope()))],
)
async def test_g_asks_for_the_scope_of_a_grant(key: str, permission: GrantRequest) -> None:
    async with chatting({"go": asks}) as chat:
        await chat.type("go", KEYS)
        await chat.press("g", "[1] Allow this very call  [2] Allow for 8 hours", "[Enter] back")
        await chat.press(key, "Approved, and ", "Done with it.")
        assert chat.engine.granted == [permission]


async def test_enter_leads_back_and_decides_nothing() -> None:
    async with chatting({"go": asks}) as chat:
        await chat.type("go", KEYS)
        await chat.press("g", "[Enter] back")
        await chat.press("7", "One of the numbers, or Enter to go back.")
        await asyncio.sleep(ONE_KEY_PAUSE)
        await chat.press("\r", KEYS)
        assert chat.engine.decisions == []
        await chat.press("y", "▌ Approved.")
        assert chat.engine.granted == []


async def test_no_grant_is_offered_for_a_destructive_call() -> None:
    async with chatting({"go": asking(tool=dataclasses.replace(KNOWN, destructive=True))}) as chat:
        await chat.type("go", "[y] once  [e] edit")
        await chat.press("t", "One key: y, e, n, or Enter for no.")
        assert chat.engine.decisions == []


async def test_a_user_who_may_not_grant_is_asked_again() -> None:
    async with chatting({"go": asks}) as chat:
        chat.engine.answers = [NotAllowed("Only an admin can allow that.")]
        await chat.type("go", KEYS)
        await chat.press("t", "Only an admin can allow that.", KEYS)
        await chat.press("y", "▌ Approved.")
