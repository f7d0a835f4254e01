"""Cost of a start: `countersign run` until it is ready, `countersign chat` until its prompt, a question from a shell.

Each is a new Python process whose modules are compiled already. Beside them stand processes that load the same
libraries and hardly more.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

import httpx2

from benchmarks.load_accounts import Usage
from benchmarks.turn_services import MODEL, START_SECONDS, Services, program, served, wait_for_end
from tests.platforms.console.terminal import PseudoTerminal
from tests.stories.installation import Installation

BARE_SERVICE = """
import asyncio, sys
from mcp import Client
from openai import AsyncOpenAI
async def main(model, tools):
    async with AsyncOpenAI(api_key="sk-bench", base_url=model), Client(tools) as client:
        await client.list_tools()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(main(*sys.argv[1:]))
"""
"""A process that loads the vendors' clients and connects, as `countersign run` does."""
ADMIN_TOKEN = "admin-token-of-the-benchmark"  # noqa: S105 - of a service on loopback
BARE_TERMINAL = "import sqlalchemy, prompt_toolkit"
"""What a terminal on a database cannot do without."""


@dataclass(frozen=True, slots=True)
class Service:
    """A process that is ready: its CPU seconds until then, and its resident megabytes."""

    cpu: float
    memory: float

    @staticmethod
    def of(pid: int) -> Service:
        usage = Usage.of(pid)
        return Service(usage.cpu, usage.memory / 2**20)


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that ran to its end: its CPU seconds, and the seconds that it took."""

    cpu: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Starts:
    """Medians of the starts of the product, and of the processes beside them."""

    service: Service
    bare_service: Service
    question: Ended
    bare_terminal: Ended
    prompt: float


T = TypeVar("T", Service, Ended)


async def starts(folder: Path, rounds: int) -> Starts:
    """Start everything alternately, once in each round, on databases that exist already."""
    async with served() as services:
        ready = service_installation(folder / "service", services)
        terminal = Installation(folder / "terminal", {})
        found = [
            (
                await _service(ready),
                await _bare_service(services),
                _ended((*_BOT, "chat", "-m", "hello"), terminal),
                _ended(("-c", BARE_TERMINAL), terminal),
                await _prompt(terminal),
            )
            for _ in range(rounds)
        ]
    service, bare_service, question, bare_terminal, prompt = zip(*found, strict=True)
    return Starts(_middle(service), _middle(bare_service), _middle(question), _middle(bare_terminal), median(prompt))


_BOT = ("-m", "bot")


def _middle(several: Sequence[T]) -> T:
    return type(several[0])(*(median(figures) for figures in zip(*map(astuple, several), strict=True)))


def service_installation(folder: Path, services: Services) -> Installation:
    """Return an installation with the HTTP API, on SQLite, with one MCP server at an address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    return Installation(
        folder,
        {"bench": {"url": services.tools}},
        BOT_MODEL=f"openai:{MODEL}",
        OPENAI_API_KEY="sk-bench",
        OPENAI_BASE_URL=services.model,
        ADMIN_API_TOKEN=ADMIN_TOKEN,
        WEB_HOST="127.0.0.1",
        PORT=port,
    )


async def _service(place: Installation) -> Service:
    async with running_service(place) as pid, httpx2.AsyncClient() as client, asyncio.timeout(START_SECONDS):
        address = f"http://127.0.0.1:{place.environment['PORT']}/readyz"
        while True:
            with contextlib.suppress(httpx2.TransportError):
                if (await client.get(address)).status_code == 200:
                    return Service.of(pid)
            await asyncio.sleep(0.02)


@asynccontextmanager
async def running_service(place: Installation) -> AsyncIterator[int]:
    """Run `countersign run` within the block, and yield its process id."""
    with (place.folder / "run.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *_BOT, "run", cwd=place.folder, env=_environment(place), stdout=log, stderr=log
        )
    try:
        yield process.pid
    finally:
        process.terminate()
        await wait_for_end(process)


async def _bare_service(services: Services) -> Service:
    async with program("-c", BARE_SERVICE, services.model, services.tools) as (process, line):
        assert line == "ready"
        return Service.of(process.pid)


def _ended(arguments: Sequence[str], place: Installation) -> Ended:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = (sys.executable, *arguments)
    subprocess.run(  # noqa: S603 - ours
        command, cwd=place.folder, env=_environment(place), stdout=subprocess.DEVNULL, check=True, timeout=START_SECONDS
    )
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
    return Ended(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, seconds)


async def _prompt(place: Installation) -> float:
    """Return the seconds until `countersign chat` has drawn its prompt on a terminal."""
    async with PseudoTerminal(100, 40) as terminal:
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *_BOT,
            "chat",
            cwd=place.folder,
            env={**_environment(place), "TERM": "xterm-256color"},
            stdin=terminal.stdin,
            stdout=terminal.stdout,
            stderr=terminal.stdout,
            start_new_session=True,
        )
        try:
            await terminal.prompts()
            return time.perf_counter() - began
        finally:
            process.kill()
            await process.wait()


def _environment(place: Installation) -> dict[str, str]:
    return {**place.environment, "PYTHONDONTWRITEBYTECODE": ""}
