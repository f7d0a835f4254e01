"""Confirmation of a tool's definition by its server before an approved call is sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot.domain.pins import ReviewPolicy
from bot.mcp.toolbox import McpToolbox
from bot.ports import CallContext
from tests.fakes.mcp.endpoint import FakeEndpoint, error, result, tool
from tests.mcp.toolboxes import ANA, LIMIT, connected_toolbox, faster, remote, running_toolbox, tool_by_name, tools_of

PATIENT = faster(settle=60.0, apart=60.0)
"""Timing without other listings than those of confirmations."""


def lists(endpoint: FakeEndpoint, description: str = "", **fields: Any) -> None:
    listed = {**tool("look"), **({"description": description} if description else {})}
    endpoint.on["tools/list"] = lambda m: result(m, {"tools": [listed], **fields})


def listing_count(endpoint: FakeEndpoint) -> int:
    return endpoint.methods().count("tools/list")


async def confirm_server(box: McpToolbox) -> str:
    async with asyncio.timeout(LIMIT):
        return await box.confirm(box.servers()[0].config.id, CallContext(ANA, "k"))


@pytest.mark.parametrize("review", [ReviewPolicy.CHANGED, ReviewPolicy.OFF])
async def test_a_tool_that_has_changed_is_withheld_before_its_next_call_or_offered_without_review(
    endpoint: FakeEndpoint, review: ReviewPolicy
) -> None:
    endpoint.speak_modern("look")
    async with connected_toolbox(remote("s", endpoint.url), pacing=PATIENT, review=review) as box:
        before = tool_by_name(box, "look")
        lists(endpoint, description="Another one.")
        assert await confirm_server(box) == ""
        offer = await box.offer()
        is_reviewed = review is ReviewPolicy.CHANGED
        assert offer.withheld == ({"s__look"} if is_reviewed else set())
        assert len(offer.tools) == (not is_reviewed)
        assert all(tool.definition != before.definition for tool in offer.tools)


@pytest.mark.parametrize(("ttl", "taken"), [(30_000, 30.0), (86_400_000, 60.0)])
async def test_within_the_time_that_a_server_names_and_a_minute_at_most_it_is_not_asked(
    endpoint: FakeEndpoint, ttl: int, taken: float
) -> None:
    now = 1_000.0
    endpoint.speak_modern("look")
    lists(endpoint, ttlMs=ttl)
    async with connected_toolbox(remote("s", endpoint.url), pacing=PATIENT, clock=lambda: now) as box:
        before = listing_count(endpoint)
        for seconds, asked in ((taken - 1, 0), (2.0, 1)):
            now += seconds
            assert await confirm_server(box) == ""
            assert listing_count(endpoint) == before + asked


async def test_calls_that_come_together_share_a_listing(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("look")
    async with connected_toolbox(remote("s", endpoint.url), pacing=PATIENT) as box:
        before = listing_count(endpoint)
        assert await asyncio.gather(*(confirm_server(box) for _ in range(50))) == [""] * 50
        assert before < listing_count(endpoint) <= before + 2


async def test_a_server_that_does_not_answer_confirms_nothing(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("look")
    pacing = faster(settle=60.0, apart=60.0, confirm=0.2)
    async with connected_toolbox(remote("s", endpoint.url), pacing=pacing) as box:
        go = asyncio.Event()
        endpoint.hold("tools/list", go)
        assert "did not confirm in time" in await confirm_server(box)
        go.set()
        async with asyncio.timeout(LIMIT):
            # An answer may take longer than the limit, on a busy machine.
            while await confirm_server(box) != "":
                pass


async def test_a_server_that_answers_with_an_error_confirms_nothing(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("look")
    async with connected_toolbox(remote("s", endpoint.url), pacing=PATIENT) as box:
        endpoint.on["tools/list"] = lambda m: error(m, -32603, "Not now")
        assert "did not confirm in time" in await confirm_server(box)
        assert tools_of(box) != ()


async def test_a_server_that_is_not_kept_has_nothing_to_confirm() -> None:
    async with running_toolbox() as box:
        assert await box.confirm("nobody", CallContext(ANA, "k")) == ""
