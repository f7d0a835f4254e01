"""Answers of many megabytes on every transport. Answers over the limit fail their own call only."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bot.mcp.errors import LARGEST_ANSWER
from tests.fakes.mcp.endpoint import Answer, FakeEndpoint, Message, tool
from tests.mcp.toolboxes import call, connected_toolbox, raw, remote, text, tool_by_name, unknown

MEGABYTE = 1024 * 1024


def make_script(**sizes: dict[str, Any]) -> dict[str, Any]:
    """Return a script with a tool for each of these long answers, and the tool `pid` for concurrent calls."""
    calls = {name: {"do": "large", **size} for name, size in sizes.items()} | {"pid": {"do": "pid"}}
    return {"listings": [[{"tools": [tool(name) for name in calls]}]], "calls": calls}


async def test_seven_megabytes_come_from_a_process() -> None:
    async with connected_toolbox(raw(script=make_script(big={"characters": 7 * MEGABYTE}))) as box:
        assert text(await call(tool_by_name(box, "big"), box)).startswith("xxx")


@pytest.mark.parametrize("streamed", [False, True])
async def test_seven_megabytes_come_over_http_and_more_than_the_limit_does_not(
    endpoint: FakeEndpoint, *, streamed: bool
) -> None:
    endpoint.speak_modern("fits", "flood")

    def answer(message: Message) -> Answer:
        characters = {"fits": 7 * MEGABYTE, "flood": 5 * LARGEST_ANSWER}[message["params"]["name"]]
        result = {"resultType": "complete", "content": [{"type": "text", "text": "x" * characters}]}
        body = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        if not streamed:
            return Answer(200, body)
        event = f"event: message\ndata: {json.dumps(body)}\n\n".encode()
        return Answer(200, event, {"content-type": "text/event-stream"})

    endpoint.on["tools/call"] = answer
    async with connected_toolbox(remote("s", endpoint.url)) as box:
        assert "more than 8 MB" in unknown(await call(tool_by_name(box, "flood"), box))
        assert text(await call(tool_by_name(box, "fits"), box)).startswith("xxx")
