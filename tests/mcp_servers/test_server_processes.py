from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from tests.fakes.jma import FakeJma, Slow
from tests.mcp_servers.processes import HELLO, PATIENCE, begun, shake_hands, start_process

SERVERS = ("weather", "notes", "knowledge")


def harmless(folder: Path) -> dict[str, str]:
    return {"NOTES_FILE": str(folder / "notes.json"), "WEATHER_SAMPLE": "always"}


async def test_a_server_ends_quietly_when_its_input_ends(tmp_path: Path) -> None:
    # The other two are shown to end while they are at work, below and in `test_knowledge_server`.
    child = await start_process("notes", harmless(tmp_path))
    assert (await shake_hands(child))["result"]["serverInfo"]["name"] == "notes"
    output, errors = await asyncio.wait_for(child.communicate(b""), PATIENCE)
    assert (child.returncode, output, errors) == (0, b"", b"")


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_a_server_without_a_traceback(by: signal.Signals, tmp_path: Path) -> None:
    for child in [await begun(server, harmless(tmp_path)) for server in SERVERS]:
        await shake_hands(child)
        child.send_signal(by)
        # Not `communicate()`: it closes the input, and a server also ends with its input.
        await asyncio.wait_for(child.wait(), PATIENCE)
        _, errors = await asyncio.wait_for(child.communicate(), PATIENCE)
        assert (child.returncode, errors) == (-by, b"")


async def test_a_server_ends_quietly_when_its_output_is_closed(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    children = [await start_process(server, harmless(tmp_path), writing) for server in SERVERS]
    os.close(writing)
    for child in children:
        _, errors = await asyncio.wait_for(child.communicate(HELLO), PATIENCE)
        assert (child.returncode, errors) == (0, b"")


async def test_input_that_ends_during_a_call_ends_the_server_without_waiting_for_the_service() -> None:
    with FakeJma({"": Slow(60)}) as jma:
        child = await start_process("weather", {"WEATHER_BASE_URL": jma.base_url, "WEATHER_SAMPLE": "never"})
        await shake_hands(child)
        assert child.stdin is not None
        params = {"name": "forecast", "arguments": {"area": "Tokyo"}}
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        child.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        child.stdin.write(json.dumps(call).encode() + b"\n")
        while not jma.count("forecast/130000"):
            await asyncio.sleep(0.01)
        _, errors = await asyncio.wait_for(child.communicate(b""), PATIENCE)
    assert (child.returncode, errors) == (0, b"")


async def test_a_setting_that_means_nothing_is_told_in_one_line_and_ends_with_two() -> None:
    child = await begun("weather", {"WEATHER_SAMPLE": "sometimes"})
    output, errors = await asyncio.wait_for(child.communicate(), PATIENCE)
    assert (child.returncode, output) == (2, b"")
    assert errors.decode() == (
        "weather: WEATHER_SAMPLE is 'sometimes'; "
        "use auto (sample data when the service does not answer), never or always.\n"
    )
