"""Fixtures of the stories."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fakes.llm import FakeLanguageModel
from tests.stories.japanese import speak_japanese

if TYPE_CHECKING:
    from tests.stories.team import Team


@pytest.fixture
def model(request: pytest.FixtureRequest) -> Iterator[FakeLanguageModel]:
    """The language model of a module's stories: its function `clerk` answers."""
    with FakeLanguageModel("openai", rule=request.module.clerk) as model:
        yield model
    assert model.refusals == []


@pytest.fixture
def language() -> str:
    """The language of the team. A module with stories in Japanese, too, imports `both_languages`."""
    return "en"


@pytest.fixture(params=["slack", "discord", "plain"])
async def team(request: pytest.FixtureRequest, tmp_path: Path, language: str) -> AsyncIterator[Team]:
    """People with the bot on each of the platforms: a story that asks for them is told once for each."""
    module = import_module(f"tests.stories.{request.param}_team")  # most stories need no platform's library
    open_team: Callable[[Path], AbstractAsyncContextManager[Team]] = getattr(module, f"a_{request.param}_team")
    async with open_team(tmp_path) as team:
        yield speak_japanese(team) if language == "ja" else team
