"""Fixtures of the stories."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.stories.team import Team


@pytest.fixture(params=["slack", "discord", "plain"])
async def team(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Team]:
    """People with the bot on each of the platforms: a story that asks for them is told once for each."""
    module = import_module(f"tests.stories.{request.param}_team")  # most stories need no platform's library
    open_team: Callable[[Path], AbstractAsyncContextManager[Team]] = getattr(module, f"a_{request.param}_team")
    async with open_team(tmp_path) as team:
        yield team
