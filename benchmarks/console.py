"""Pages of the console beside running turns: pages a second, and how long a page takes, for many sessions at once.
And the CPU of first pages over many servers, waiting calls and rows of the audit, on each database.

    make bench-console

Beside it stands the same load of turns without anybody at the console. A session opens a page, reads for a second,
and opens the next. Turns are asked over HTTP, each conversation one after the other. On two cores the program, its
model service and its MCP server share the processors, as on the smallest machine that the product is for.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from statistics import median, quantiles

import httpx2
from rich.console import Console
from rich.table import Table

from benchmarks.console_rows import fill
from benchmarks.load_accounts import Usage
from benchmarks.start import ADMIN_TOKEN, running_service, service_installation
from benchmarks.turn_services import START_SECONDS, served
from benchmarks.turn_ways import LIMIT, QUESTION
from bot.storage.migrate import open_database
from tests.postgres import running_server

PAGES = ("servers", "servers/bench", "approvals", "conversations", "audit", "usage", "policies", "profiles", "health")
FIRST_PAGES = (
    "approvals", "servers", "run/mcp?w=list&w=server-77", "audit", "audit?w=--tool&w=delete_issue",
    "audit?w=--outcome&w=failed", "audit?w=--person&w=slack:U7", "audit?w=--tool&w=no_such_tool", "usage", "health",
)  # fmt: skip
READING_SECONDS = 1.0
_FORM_TOKEN = re.compile(r'name="(form-token|[\w-]*token)" value="([^"]+)"')
_MANY = {
    "MCP_APPROVAL_DEFAULT_POLICY": "ALWAYS_ALLOW",
    "MAX_RUNNING_TURNS_PER_USER": "1000",
    "MAX_QUEUED_TURNS_PER_USER": "100000",
    "API_REQUESTS_PER_TOKEN": "100000",
    "API_STREAMS_PER_TOKEN": "1000",
}
"""No cards, and limits for a token that stands for many users."""


@dataclass(slots=True)
class Load:
    """One measured run: turns a second, CPU seconds of the program a turn, and the seconds of each page."""

    turns: float
    cpu: float
    seconds: float
    pages: list[float] = field(default_factory=list)


async def measure(sessions: int, conversations: int, turns: int, rounds: int) -> tuple[Load, Load]:
    """Return the run without sessions and the one with them, each the median of its rounds by turns a second."""
    with tempfile.TemporaryDirectory() as name:
        async with AsyncExitStack() as stack:
            services = await stack.enter_async_context(served())
            place = service_installation(Path(name), services)
            place.environment.update(_MANY)
            pid = await stack.enter_async_context(running_service(place))
            address = f"http://127.0.0.1:{place.environment['PORT']}"
            client = await stack.enter_async_context(httpx2.AsyncClient(base_url=address, timeout=LIMIT))
            await _until_ready(client)
            readers = []
            for _ in range(sessions):
                readers.append(await _sign_in(address))
                stack.push_async_callback(readers[-1].aclose)
            await _run(pid, client, conversations, conversations, [])
            alone, beside = [], []
            for _ in range(rounds):
                alone.append(await _run(pid, client, conversations, turns, []))
                beside.append(await _run(pid, client, conversations, turns, readers))
            pages = [each for load in beside for each in load.pages]
            return _middle(alone), replace(_middle(beside), pages=pages, seconds=sum(load.seconds for load in beside))


async def first_pages(count: int, audit_rows: int, database_url: str = "") -> dict[str, float]:
    """Return the milliseconds of CPU that the program takes for the first page of each list, the least of three, over
    `count` servers and waiting calls, and rows of the audit.
    """
    with tempfile.TemporaryDirectory() as name:
        async with AsyncExitStack() as stack:
            place = service_installation(Path(name), await stack.enter_async_context(served()))
            place.environment.update(_MANY | ({"DATABASE_URL": database_url} if database_url else {}))
            database = open_database(database_url or f"sqlite:///{place.data / 'countersign.db'}")
            await fill(database, count, audit_rows)
            await database.close()
            pid = await stack.enter_async_context(running_service(place))
            address = f"http://127.0.0.1:{place.environment['PORT']}"
            async with httpx2.AsyncClient(base_url=address, timeout=LIMIT) as client:
                await _until_ready(client)
            reader = await _sign_in(address)
            stack.push_async_callback(reader.aclose)
            return {page: min([await _page_cpu(pid, reader, page) for _ in range(3)]) for page in FIRST_PAGES}


async def _page_cpu(pid: int, reader: httpx2.AsyncClient, page: str) -> float:
    before = Usage.of(pid).cpu
    answer = await reader.get(f"/console/{page}")
    assert answer.status_code == 200, answer.text
    return 1000 * (Usage.of(pid).cpu - before)


def _middle(loads: Sequence[Load]) -> Load:
    return sorted(loads, key=lambda load: load.turns)[len(loads) // 2]


async def _until_ready(client: httpx2.AsyncClient) -> None:
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                if (await client.get("/readyz")).status_code == 200:
                    return
            except httpx2.TransportError:
                pass
            await asyncio.sleep(0.05)


async def _sign_in(address: str) -> httpx2.AsyncClient:
    """Return a new client, signed in with the token on its page."""
    client = httpx2.AsyncClient(base_url=address, timeout=LIMIT, follow_redirects=True)
    page = await client.get("/console/sign-in")
    found = _FORM_TOKEN.search(page.text)
    assert found is not None, page.text
    await client.post("/console/sign-in", data={found[1]: found[2], "token": ADMIN_TOKEN})
    assert (await client.get("/console/servers")).status_code == 200
    return client


async def _run(
    pid: int, client: httpx2.AsyncClient, conversations: int, turns: int, readers: Sequence[httpx2.AsyncClient]
) -> Load:
    before, began = Usage.of(pid).cpu, time.perf_counter()
    pages: list[float] = []
    reading = [asyncio.create_task(_read(reader, n, pages), name=f"reader:{n}") for n, reader in enumerate(readers)]
    try:
        each = max(1, turns // conversations)
        await asyncio.gather(*(_talk(client, f"{began}-{n}", each) for n in range(conversations)))
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    seconds, done = time.perf_counter() - began, each * conversations
    return Load(done / seconds, (Usage.of(pid).cpu - before) / done, seconds, pages)


async def _talk(client: httpx2.AsyncClient, conversation: str, turns: int) -> None:
    for _ in range(turns):
        answer = await client.post(
            "/api/responses/stream",
            headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
            json={"conversationId": conversation, "payload": {"input": QUESTION}},
        )
        assert answer.status_code == 200, answer.text


async def _read(reader: httpx2.AsyncClient, number: int, pages: list[float]) -> None:
    # Not all at the same moment.
    await asyncio.sleep(READING_SECONDS * (number % 10) / 10)
    for page in cycle(PAGES[number % len(PAGES) :] + PAGES[: number % len(PAGES)]):
        began = time.perf_counter()
        answer = await reader.get(f"/console/{page}")
        pages.append(time.perf_counter() - began)
        assert answer.status_code == 200, (page, answer.status_code)
        await asyncio.sleep(READING_SECONDS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=50, help="sessions that read pages")
    parser.add_argument("--conversations", type=int, default=16, help="conversations at once")
    parser.add_argument("--turns", type=int, default=800, help="turns of a round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds with and without the console")
    parser.add_argument(
        "--rows", type=int, default=10_000, help="servers and waiting calls; ten times as many of the audit"
    )
    options = parser.parse_args(arguments)
    alone, beside = asyncio.run(measure(options.sessions, options.conversations, options.turns, options.rounds))
    table = Table("", "without console", f"{options.sessions} sessions", "ratio")
    table.add_row("turns a second", f"{alone.turns:.1f}", f"{beside.turns:.1f}", f"{beside.turns / alone.turns:.2f}")
    more = (f"{1000 * alone.cpu:.1f}", f"{1000 * beside.cpu:.1f}", f"{beside.cpu / alone.cpu:.2f}")
    table.add_row("CPU ms of the program a turn", *more)
    table.add_row("pages a second", "", f"{len(beside.pages) / beside.seconds:.1f}", "")
    if len(beside.pages) > 1:
        table.add_row("ms to a whole page, median", "", f"{1000 * median(beside.pages):.0f}", "")
        table.add_row("ms to a whole page, 95 of 100", "", f"{1000 * quantiles(beside.pages, n=20)[-1]:.0f}", "")
    Console(width=100).print(table)
    _print_first_pages(options.rows)


def _print_first_pages(count: int) -> None:
    with running_server(f"-{os.getpid()}") as server:
        databases = {"SQLite": "", "PostgreSQL": server.new()}
        found = [asyncio.run(first_pages(count, 10 * count, url)) for url in databases.values()]
    table = Table(f"CPU ms of a page over {count} rows", *databases)
    for page in FIRST_PAGES:
        table.add_row(page, *(f"{pages[page]:.0f}" for pages in found))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
