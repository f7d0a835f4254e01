"""A connected bot for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.platforms.discord.connected_bot import ConnectedBot, connected_bot


@pytest.fixture
async def place() -> AsyncIterator[ConnectedBot]:
    async with connected_bot() as bot:
        yield bot


@pytest.fixture
async def worker() -> AsyncIterator[ConnectedBot]:
    """Yield a bot that delivers and receives nothing."""
    async with connected_bot(listening=False) as bot:
        yield bot
