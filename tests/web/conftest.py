from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.app.surroundings import bare
from tests.web.house import Api, opened_api


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
async def api(folder: Path) -> AsyncIterator[Api]:
    """A whole house on the demo model, with its API."""
    async with opened_api(folder) as api:
        yield api
