"""A scripted endpoint for the tests of MCP servers over HTTP, and a clock."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fakes.mcp.endpoint import FakeEndpoint
from tests.mcp.toolboxes import Clock


@pytest.fixture
async def endpoint() -> AsyncIterator[FakeEndpoint]:
    async with FakeEndpoint() as running:
        yield running


@pytest.fixture
def clock() -> Clock:
    return Clock()
