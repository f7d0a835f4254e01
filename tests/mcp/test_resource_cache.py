"""Resources with subscriptions are not read again until they change."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bot.domain.messages import ToolCall
from bot.domain.servers import EVERYWHERE
from bot.ports import CallContext
from tests.fakes.mcp.endpoint import Answer, FakeEndpoint, Message, result
from tests.fakes.programs import listening
from tests.mcp.test_resource_tools import make_endpoint, read
from tests.mcp.toolboxes import ANA, remote, running_toolbox, text

LIBRARY = Path(__file__).parents[1] / "fakes" / "mcp" / "library.py"
READS = "library://reads/x"
WITH_SUBSCRIPTIONS = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}}


def counting(endpoint: FakeEndpoint) -> None:
    """Script a resource with another text at each read."""

    def answer(message: Message) -> Answer:
        reads = endpoint.methods().count("resources/read")
        return result(message, {"contents": [{"uri": "note://1", "text": f"read {reads}"}]})

    endpoint.on["resources/read"] = answer
    endpoint.on["resources/subscribe"] = lambda m: result(m, {})
    endpoint.on["resources/unsubscribe"] = lambda m: result(m, {})


async def test_without_subscriptions_each_read_asks_the_server() -> None:
    async with make_endpoint() as endpoint:
        counting(endpoint)
        async with running_toolbox(remote("s", endpoint.url)) as box:
            assert [text(await read(box, "note://1")) for _ in range(3)] == ["read 1", "read 2", "read 3"]
            await asyncio.sleep(0.1)
            assert text(await read(box, "note://1")) == "read 4"
    assert "resources/subscribe" not in endpoint.methods()


async def test_a_subscribed_resource_is_kept_after_a_read_that_no_change_can_have_missed() -> None:
    async with make_endpoint(WITH_SUBSCRIPTIONS) as endpoint:
        counting(endpoint)
        async with running_toolbox(remote("s", endpoint.url)) as box:
            assert text(await read(box, "note://1")) == "read 1"
            async with asyncio.timeout(30):
                while "resources/subscribe" not in endpoint.methods():
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.1)
            assert [text(await read(box, "note://1")) for _ in range(3)] == ["read 2"] * 3


async def test_a_server_that_refuses_subscriptions_is_asked_each_time_and_not_for_ever_to_subscribe() -> None:
    async with make_endpoint(WITH_SUBSCRIPTIONS) as endpoint:
        counting(endpoint)
        endpoint.on["resources/subscribe"] = Answer(500)
        async with running_toolbox(remote("s", endpoint.url)) as box:
            for n in range(1, 6):
                assert text(await read(box, "note://1")) == f"read {n}"
                await asyncio.sleep(0.1)
    assert endpoint.methods().count("resources/subscribe") <= 3


async def test_a_real_server_that_tells_of_a_change_is_read_again() -> None:
    with listening(str(LIBRARY), "http") as (port, _):
        async with running_toolbox(remote("s", f"http://127.0.0.1:{port}/mcp")) as box:
            async with asyncio.timeout(30):  # until it is subscribed to
                while (kept := text(await read(box, READS))) != text(await read(box, READS)):
                    await asyncio.sleep(0.05)
            assert [text(await read(box, READS)) for _ in range(2)] == [kept] * 2
            (tool,) = [tool for tool in (await box.offer(EVERYWHERE)).tools if tool.original_name == "announce"]
            await box.call(tool, ToolCall("c", tool.name, {"uri": READS}), CallContext(ANA, "t:2"))
            async with asyncio.timeout(30):
                while (changed := text(await read(box, READS))) == kept:
                    await asyncio.sleep(0.05)
            assert [text(await read(box, READS)) for _ in range(2)] == [changed] * 2
