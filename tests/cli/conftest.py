from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from bot.cli import main
from tests.app.program import bare
from tests.cli.invocation import Countersign, Ended


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def countersign(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Countersign:
    """`countersign WORDS`, in this process; `typed` is what a pipe holds for it."""

    def run(*words: str, typed: str = "", **variables: str) -> Ended:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        monkeypatch.setattr(sys, "argv", ["countersign", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        written = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return Ended(caught.value.code, written.out, written.err)

    return run
