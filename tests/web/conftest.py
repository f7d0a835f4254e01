from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.app import runtime
from bot.mcp.server.retry import ConnectionTiming
from bot.settings import Settings
from tests.app.program import bare
from tests.web.api_server import Api, opened_api


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture(autouse=True)
def _quick_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each use connect to a server at once. In service a use waits up to a second since the last attempt."""
    timing = runtime.connection_timing

    def quick(settings: Settings) -> ConnectionTiming:
        return replace(timing(settings), minimum_pause=0.02)

    monkeypatch.setattr(runtime, "connection_timing", quick)


@pytest.fixture
def rare_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bots that start after this poll once an hour."""
    monkeypatch.setattr("bot.app.config_reload.POLL_SECONDS", 3600.0)


@pytest.fixture
async def api(folder: Path) -> AsyncIterator[Api]:
    """A whole bot on the demo model, with its API."""
    async with opened_api(folder) as api:
        yield api
