"""The loop serves others while large answers are read: the longest time between two ticks of a task is bounded."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest

from tests.fakes.mcp.endpoint import Answer, FakeEndpoint, Message, tool
from tests.mcp.toolboxes import call, connected_toolbox, remote, running_toolbox, tool_by_name

T = TypeVar("T")
WORST = 1.0
"""Seconds of this process: others do not count. A listing of 10,000 tools once took more than three."""
TICK = 0.002
ANSWERS: dict[str, dict[str, Any]] = {
    "pieces": {"content": [{"type": "text", "text": "x"}] * 200_000},
    "keys": {"content": [], "structuredContent": {f"k{n}": n for n in range(100_000)}},
    "long": {"content": [{"type": "text", "text": "ab c d " * 150_000}]},
}


async def longest_delay(work: Awaitable[T]) -> tuple[T, float]:
    """Return the result, and the longest work of this process between two ticks of another task."""
    worst = 0.0

    async def tick() -> None:
        nonlocal worst
        while True:
            before = time.process_time()
            await asyncio.sleep(TICK)
            worst = max(worst, time.process_time() - before)

    ticking = asyncio.create_task(tick())
    try:
        return await work, worst
    finally:
        ticking.cancel()


def raw_answer(message: Message, result: str) -> Answer:
    """Return a result that was dumped before, so that the endpoint does not hold the loop itself."""
    body = f'{{"jsonrpc": "2.0", "id": {json.dumps(message["id"])}, "result": {result}}}'
    return Answer(200, body.encode(), {"content-type": "application/json"})


async def test_ten_thousand_tools_of_one_page_are_read_within_the_time_to_connect(endpoint: FakeEndpoint) -> None:
    tools = [tool(f"t{n}") for n in range(10_000)]
    listing = json.dumps({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": tools})
    endpoint.speak_modern("x")
    endpoint.on["tools/list"] = lambda message: raw_answer(message, listing)
    async with running_toolbox(remote("s", endpoint.url)) as box:
        offer, worst = await longest_delay(box.offer())
    assert len(offer.tools) == 5_000
    assert worst < WORST


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_large_result_is_read_beside_others(endpoint: FakeEndpoint, name: str) -> None:
    result = json.dumps({"resultType": "complete", **ANSWERS[name]})
    endpoint.speak_modern(*ANSWERS)
    endpoint.on["tools/call"] = lambda message: raw_answer(message, result)
    async with connected_toolbox(remote("s", endpoint.url)) as box:
        _outcome, worst = await longest_delay(call(tool_by_name(box, name), box))
    assert worst < WORST
