from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.app import runtime
from bot.mcp.server.retry import ConnectionTiming
from bot.settings import Settings
from tests.app.program import bare
from tests.fakes.mcp.endpoint import FakeEndpoint
from tests.fakes.parts import ScriptedModel
from tests.web.api_server import Api, opened_api
from tests.web.local_server import ON_THIS_MACHINE, opened_jira


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture(autouse=True)
def _quick_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect to a server without a delay. In production, a connection attempt starts up to a second after the last
    one.
    """
    timing = runtime.connection_timing

    def quick(settings: Settings) -> ConnectionTiming:
        given = timing(settings)
        return replace(given, retries=replace(given.retries, minimum_pause=0.02))

    monkeypatch.setattr(runtime, "connection_timing", quick)


@pytest.fixture
def rare_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the poll interval of bots that start after this fixture to one hour."""
    monkeypatch.setattr("bot.app.config_reload.POLL_SECONDS", 3600.0)


@pytest.fixture
async def api(folder: Path) -> AsyncIterator[Api]:
    """Yield the API of a whole bot on the demo model, which may connect to servers on this machine."""
    async with opened_api(folder, mcp_allowed_hosts=ON_THIS_MACHINE) as api:
        yield api


@pytest.fixture
async def jira() -> AsyncIterator[FakeEndpoint]:
    """Yield a server on this machine that is not in the operator's file."""
    async with opened_jira() as endpoint:
        yield endpoint


@pytest.fixture
def model() -> ScriptedModel:
    """Return a model without a script."""
    return ScriptedModel()
