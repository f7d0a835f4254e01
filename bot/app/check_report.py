"""Results of checks on the output of a command: a line each, for people or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import asdict

from bot.errors import CountersignError
from bot.examination import Check, CheckStatus, failed_check
from bot.folders import in_shell
from bot.rendering.text_safety import single_line

log = logging.getLogger(__name__)

_LONGEST = 600
"""Longest finding and longest fix in characters."""


def format_fix(check: Check, longest: int = _LONGEST) -> str:
    """Return the remedy on one line, empty without one."""
    return f"Fix: {single_line(check.fix, longest)}" if check.fix else ""


def format_check(name: str, check: Check, longest: int = _LONGEST) -> str:
    """Return a check on one line: its mark, this name, its finding and its fix."""
    took = f" ({check.seconds * 1000:.0f} ms)" if check.seconds is not None else ""
    return (
        f"{check.finding.mark} {name}  {single_line(check.detail, longest)}{took} {format_fix(check, longest)}".rstrip()
    )


def write_check_json(check: Check, **place: str) -> None:
    """Print a check as one JSON object, behind what it was run for."""
    sys.stdout.write(f"{json.dumps({**place, **asdict(check)})}\n")
    sys.stdout.flush()


class Report:
    """Prints checks as they come, each on its line behind `prefix`, or as JSON. `worst` is the worst result so far."""

    def __init__(self, *, as_json: bool, prefix: str = "") -> None:
        self._as_json = as_json
        self._prefix = prefix
        self.worst = CheckStatus.WELL
        self._is_writing = False

    def add(self, subject: str, check: Check) -> None:
        """Print a check of a subject."""
        if CheckStatus.BROKEN in (self.worst, check.finding):
            self.worst = CheckStatus.BROKEN
        elif check.finding is CheckStatus.DOUBTFUL:
            self.worst = CheckStatus.DOUBTFUL
        self._is_writing = True
        if self._as_json:
            write_check_json(check, subject=subject)
        else:
            sys.stdout.write(f"{self._prefix}{in_shell(format_check(f'{subject} · {check.name}', check))}\n")
            sys.stdout.flush()
        self._is_writing = False

    async def add_all(self, subject: str, checks: AsyncGenerator[Check, None]) -> None:
        """Print the checks of a subject."""
        with self.guard(subject):
            async with aclosing(checks):
                async for check in checks:
                    self.add(subject, check)

    @contextmanager
    def guard(self, subject: str) -> Iterator[None]:
        """Make an error within the block a failed check of the subject, after which the others go on. An output that
        cannot be written ends them all.
        """
        try:
            yield
        except CountersignError as error:
            self.add(subject, failed_check("check", error))
        except Exception as error:
            if self._is_writing:
                raise
            log.exception("a check failed")
            detail = f"{type(error).__name__}: {error}"
            self.add(subject, Check("check", CheckStatus.BROKEN, detail, "see the log, or run it with --debug"))
