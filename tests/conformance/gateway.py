"""The official conformance suite of MCP against `/mcp` of a whole bot, one scenario after the other.

    python -m tests.conformance.gateway [--scenario NAME]

The suite sends no token and calls fixed names of tools, so an adapter on loopback adds the one and maps the others; it
leaves Host and Origin as they came.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from rich.console import Console
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from bot.domain.api_clients import ApiRole
from bot.web.application import application
from bot.web.limits import TrustedProxies
from bot.web.server import serve
from tests.conformance.expected import EXPECTED_OF_GATEWAY
from tests.conformance.run import PROJECT, Outcome, report, run_scenario, scenarios
from tests.fakes import programs
from tests.web.api_server import opened_api

PREFIX = "conf__"
_POLICY = """
[[rules]]
policy = "ALWAYS_ALLOW"
server = "conf"
"""
_OWN_HEADERS = ("content-length", "transfer-encoding", "connection")


def adapter(address: str, token: str, client: httpx2.AsyncClient) -> Route:
    """Return the adapter of the endpoint at this address."""

    async def forward(request: Request) -> Response:
        body = _with_prefix(await request.body())
        headers = {name: value for name, value in request.headers.items() if name not in _OWN_HEADERS}
        headers |= {"authorization": f"Bearer {token}"} | _named(headers)
        sent = client.build_request(request.method, f"{address}/mcp", headers=headers, content=body)
        answer = await client.send(sent, stream=True)
        passed = {name: value for name, value in answer.headers.items() if name.lower() not in _OWN_HEADERS}
        return StreamingResponse(
            answer.aiter_raw(), answer.status_code, passed, background=BackgroundTask(answer.aclose)
        )

    return Route("/mcp", forward, methods=["GET", "POST", "DELETE", "PUT", "PATCH"])


def _with_prefix(body: bytes) -> bytes:
    try:
        message: Any = json.loads(body)
        name = message["params"]["name"]
    except (ValueError, KeyError, TypeError):
        return body
    return json.dumps({**message, "params": {**message["params"], "name": PREFIX + name}}).encode()


def _named(headers: dict[str, str]) -> dict[str, str]:
    """Return the header with the tool's name of the newer protocol."""
    name = headers.get("mcp-name")
    return {"mcp-name": PREFIX + name} if name else {}


@asynccontextmanager
async def a_gateway(folder: Path) -> AsyncGenerator[str]:
    """Serve a bot with the suite's tools, and yield the address of the adapter."""
    (folder / "policy.toml").write_text(_POLICY, encoding="utf-8")
    server = {"command": programs.python(), "args": ["-m", "tests.conformance.offered_tools"], "cwd": str(PROJECT)}
    async with (
        opened_api(folder, servers={"conf": server}) as api,
        httpx2.AsyncClient(timeout=60) as client,
    ):
        await api.post("/api/mcp/servers/conf/connect")
        token = await api.token("agent", ApiRole.MEMBER)
        app = application(pages=[adapter(f"http://127.0.0.1:{api.port}", token, client)])
        async with serve(app, "127.0.0.1", 0, proxies=TrustedProxies()) as port:
            yield f"http://127.0.0.1:{port}/mcp"


async def run(wanted: list[str], console: Console) -> list[Outcome]:
    """Run the scenarios."""
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        async with a_gateway(Path(folder)) as url:
            for revision in EXPECTED_OF_GATEWAY:
                for scenario in scenarios(revision, "server"):
                    if not wanted or scenario in wanted:
                        options = ("server", "--url", url)
                        outcomes.append(
                            await asyncio.to_thread(
                                run_scenario, revision, scenario, *options, expected=EXPECTED_OF_GATEWAY
                            )
                        )
                        console.print(f"{revision} {scenario}: {outcomes[-1].passed}", markup=False, highlight=False)
    return outcomes


def main() -> int:
    """Run the scenarios, and return the exit code."""
    parser = argparse.ArgumentParser(description="Run the conformance suite of MCP against /mcp.")
    parser.add_argument("--scenario", action="append", default=[], help="only this one")
    console = Console(width=None if sys.stdout.isatty() else 160)
    outcomes = asyncio.run(run(parser.parse_args().scenario, console))
    report(outcomes, console)
    return 0 if outcomes and all(outcome.as_expected for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
