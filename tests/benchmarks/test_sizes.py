"""Every benchmark at a tiny size, so that none stops working unseen."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import benchmarks
from benchmarks import console, history, mcp_calls, reports, rows, tool_search, turn

NOWHERE = ("--json", os.devnull)
TINY: dict[str, Callable[[], object]] = {
    "console": lambda: console.main(
        ["--sessions", "2", "--conversations", "1", "--turns", "2", "--rounds", "1", "--rows", "20"]
    ),
    "history": lambda: asyncio.run(history.main(1)),
    "mcp_calls": lambda: mcp_calls.main(["--rounds", "1", "--calls", "2", "--at-once", "3", "--servers", "0"]),
    "mcp_calls memory": lambda: mcp_calls.main(
        ["--memory", "the toolbox, connected", "streamable HTTP", "--servers", "1"]
    ),
    "reports": lambda: asyncio.run(reports.main(50, 20)),
    "rows turn": lambda: rows.main(["turn", *NOWHERE, "--rounds", "1", "--turns", "2", "--at-once", "2"]),
    "rows processes": lambda: rows.main(["processes", *NOWHERE, "--rounds", "1", "--turns", "2", "--approvals", "1"]),
    "rows start": lambda: rows.main(["start", *NOWHERE, "--rounds", "1"]),
    "rows memory": lambda: rows.main(["memory", *NOWHERE, "--conversations", "3"]),
    "rows soak": lambda: rows.main(["soak", *NOWHERE, "--soak", "20"]),
    "rows burst": lambda: rows.main(["burst", *NOWHERE, "--messages", "30"]),
    "tool_search": lambda: tool_search.main([]),
    "turn": lambda: turn.main(["--rounds", "1", "--turns", "2", "--only", "2"]),
    "turn soak": lambda: turn.main(["--soak", "20"]),
}
NEEDS_A_MODEL = ("local_model.__main__", "local_model.serve")
"""Runs a real model of several hundred megabytes."""
TESTED_ELSEWHERE = {"injection.__main__": "test_injection.py", "load": "test_load.py"}
OWN_LINE = 'if __name__ == "__main__":'
PROGRAMS = ("load_program", "processes", "turn_services")
"""Programs that the benchmarks begin."""


@pytest.mark.parametrize("name", TINY)
def test_every_benchmark_runs_at_a_tiny_size(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not TINY[name]()
    assert capsys.readouterr().out.strip()


def test_no_benchmark_is_without_a_tiny_size() -> None:
    folder = Path(benchmarks.__file__).parent
    begun = {
        ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in folder.rglob("*.py")
        if OWN_LINE in path.read_text(encoding="utf-8") and path.stem != "extract"
    }
    assert begun == {name.partition(" ")[0] for name in TINY} | {*TESTED_ELSEWHERE, *NEEDS_A_MODEL, *PROGRAMS}
