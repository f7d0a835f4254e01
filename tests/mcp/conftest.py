"""A scripted endpoint for the tests of MCP servers over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fakes.mcp.endpoint import FakeEndpoint


@pytest.fixture
async def endpoint() -> AsyncIterator[FakeEndpoint]:
    async with FakeEndpoint() as running:
        yield running
