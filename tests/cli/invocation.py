"""Runs of the command line, and their results."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from bot.cli import main


class Ended(NamedTuple):
    """Exit status and output of a program."""

    code: int
    out: str
    err: str

    @property
    def json_output(self) -> dict[str, Any]:
        """The only JSON object of the output."""
        [line] = self.out.splitlines()
        told: dict[str, Any] = json.loads(line)
        return told

    @property
    def complaint(self) -> str:
        """The only line of the error output, without the program's name."""
        assert self.out == ""
        [line] = self.err.splitlines()
        assert line.startswith("countersign: ")
        return line.removeprefix("countersign: ")


Countersign = Callable[..., Ended]


def in_this_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Countersign:
    """Return a function that runs `countersign WORDS` in this process. `typed` is its standard input."""

    def run(*words: str, typed: str = "", **variables: str) -> Ended:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode()), encoding="utf-8"))
        monkeypatch.setattr(sys, "argv", ["countersign", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        written = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return Ended(caught.value.code, written.out, written.err)

    return run
