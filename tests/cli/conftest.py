from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.program import bare
from tests.cli.invocation import Countersign, in_this_process


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def countersign(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Countersign:
    """Return a function that runs `countersign WORDS` in this process."""
    return in_this_process(monkeypatch, capsys)
