"""The commands of the guide to the HTTP API, run as they are written there."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.app.program import PROJECT, bare
from tests.fakes.programs import python
from tests.web.api_server import ADMIN_TOKEN, Api, opened_api

GUIDE = (PROJECT / "docs" / "http-api.md").read_text(encoding="utf-8")
CURLS = [block for block in re.findall(r"^```sh\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL) if "curl " in block]
REFUSALS = ('"error":{', '"failed":true')
"""Parts of a rejecting response; curl itself ends well with any status."""


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
async def test_the_calls_of_the_guide_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare(tmp_path, monkeypatch)
    assert CURLS
    (tmp_path / "policy.toml").write_text('[servers.weather.tools]\nforecast = "ALWAYS_ALLOW"\n', encoding="utf-8")
    async with opened_api(tmp_path, servers={name: _bundled_server(name) for name in ("weather", "notes")}) as api:
        variables = {"PATH": os.environ["PATH"], "ADMIN_API_TOKEN": ADMIN_TOKEN, "APPROVAL": await _waiting(api)}
        for block in CURLS:
            program = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-euc",
                block.replace("http://127.0.0.1:8080", f"http://127.0.0.1:{api.port}"),
                env=variables,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            async with asyncio.timeout(60):
                said, complained = await program.communicate()
            assert program.returncode == 0, (block, said, complained)
            assert said, block
            assert not any(refusal in said.decode() for refusal in REFUSALS), (block, said)


def _bundled_server(name: str) -> dict[str, Any]:
    variables = {"PYTHONPATH": str(PROJECT), "WEATHER_SAMPLE": "always"}
    return {"command": python(), "args": ["-m", f"mcp_servers.{name}"], "env": variables, "trusted": True}


async def _waiting(api: Api) -> str:
    """The id of a call that waits for a signature."""
    asked = await api.client.post(
        "/api/responses/stream",
        json={"payload": {"input": "Please note: the office closes early", "stream": False}},
        headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
    )
    approval_id: str = asked.json()["approvals"][0]["approvalRequestId"]
    return approval_id
