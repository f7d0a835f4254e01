"""Metrics of sessions with servers, and of the cache of their tools."""

from __future__ import annotations

from collections import Counter

from bot.domain.metrics import CacheUsed, MetricEvent, SessionChanged
from bot.domain.servers import ServerConfig, ServerStatus, StdioTransport
from tests.mcp.toolboxes import raw, running_toolbox, until

OFFERING = {"listings": [[{"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}]]}


def sessions(found: list[MetricEvent]) -> list[tuple[str, str]]:
    return [(each.server, each.event) for each in found if isinstance(each, SessionChanged)]


def uses(found: list[MetricEvent]) -> Counter[str]:
    return Counter(each.event for each in found if isinstance(each, CacheUsed))


async def test_a_session_is_created_once_and_closed_with_the_house() -> None:
    found: list[MetricEvent] = []
    async with running_toolbox(raw(script=OFFERING), observe=found.append) as box:
        await box.wait_ready()
        await box.sync("file:s")
        assert sessions(found) == [("s", "created")]
    assert sessions(found) == [("s", "created"), ("s", "closed")]


async def test_a_session_that_cannot_be_made_is_an_error_and_no_session() -> None:
    found: list[MetricEvent] = []
    broken = ServerConfig("s", StdioTransport("false"))
    async with running_toolbox(broken, observe=found.append) as box:
        await until(lambda: box.servers()[0].status is ServerStatus.FAILED)
        assert set(sessions(found)) == {("s", "error")}
    assert ("s", "closed") not in sessions(found)


async def test_tools_that_are_known_are_a_hit_others_a_miss_and_each_asking_a_refresh() -> None:
    found: list[MetricEvent] = []
    async with running_toolbox(
        raw(script=OFFERING), ServerConfig("gone", StdioTransport("false")), observe=found.append
    ) as box:
        await until(lambda: box.servers()[0].status is ServerStatus.FAILED)
        await box.wait_ready()
        before = uses(found)
        await box.offer()
        await box.offer()
        await box.sync("file:s")
        assert uses(found) - before == Counter(hit=2, miss=2, refresh=1)
