"""Checks, and the one runner of them: `countersign doctor`, `doctor --live`, `setup`, `/mcp doctor` and `verify` select
from the same checks.

A check has a name and a probe. The probe returns a sentence, or raises the cause and its fix: CheckSkipped,
CheckDoubtful, CheckFailed or any CountersignError. What can also be repaired is a step of the setup
(`bot.app.setup.steps`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from time import monotonic
from typing import ClassVar

from bot.errors import CountersignError
from bot.i18n import _, gettext_lazy

log = logging.getLogger(__name__)


class CheckStatus(StrEnum):
    """Result of one check."""

    WELL = "ok"
    DOUBTFUL = "warning"
    BROKEN = "failed"
    SKIPPED = "skipped"

    @property
    def mark(self) -> str:
        """One character for it."""
        return {"ok": "✓", "warning": "!", "failed": "✗", "skipped": "-"}[self]


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, its result, a sentence on it, a remedy, and the duration in seconds (None if unknown)."""

    name: str
    finding: CheckStatus
    detail: str = ""
    fix: str = ""
    seconds: float | None = None

    @property
    def is_broken(self) -> bool:
        """True if what was checked does not work."""
        return self.finding is CheckStatus.BROKEN


class CheckOutcome(Exception):
    """Finding of a probe that is no sound state, and the remedy."""

    finding: ClassVar[CheckStatus]

    def __init__(self, detail: str = "", fix: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.fix = fix


class CheckSkipped(CheckOutcome):
    """The check does not apply."""

    finding = CheckStatus.SKIPPED


class CheckDoubtful(CheckOutcome):
    """Something optional does not work, or something may be wrong."""

    finding = CheckStatus.DOUBTFUL


class CheckFailed(CheckOutcome):
    """Something does not work."""

    finding = CheckStatus.BROKEN


Probe = Callable[[], Awaitable[str]]
"""Returns a sentence about the result. Raises CheckOutcome or CountersignError."""
NamedProbe = tuple[str, Probe]


async def run_check(name: str, probe: Probe, limit: float | None = None, *, timed: bool = True) -> Check:
    """Run one check, for at most `limit` seconds. A `timed` one has its duration, unless it was skipped."""
    began = monotonic()
    finding, fix = CheckStatus.BROKEN, ""
    try:
        async with asyncio.timeout(limit):
            detail = await probe()
        finding = CheckStatus.WELL
    except CheckOutcome as outcome:
        finding, detail, fix = outcome.finding, outcome.detail, outcome.fix
    except CountersignError as error:
        detail, fix = error.cause, error.fix
    except TimeoutError:
        detail, fix = gettext_lazy("It took too long."), gettext_lazy("check the network")
        if limit is not None:
            detail = _("No answer within {seconds} s.", seconds=f"{limit:g}")
            fix = _("check the server, and the network and firewall between")
    except Exception as error:  # one broken check must not end the others
        log.exception("check %s", name)
        detail = gettext_lazy("The check itself failed ({error}).", error=type(error).__name__)
        fix = gettext_lazy("see the log")
    is_timed = timed and finding is not CheckStatus.SKIPPED
    return Check(name, finding, str(detail), str(fix), monotonic() - began if is_timed else None)


async def run_in_order(checks: Iterable[tuple[str, Probe, float | None]]) -> AsyncGenerator[Check, None]:
    """Run checks, each with its limit in seconds, until one is broken. Those behind it are skipped."""
    whole = True
    for name, probe, limit in checks:
        if not whole:
            yield Check(name, CheckStatus.SKIPPED, _("Skipped, because an earlier check failed."))
            continue
        began = monotonic()
        check = await run_check(name, probe, limit)
        whole = not check.is_broken
        yield replace(check, seconds=monotonic() - began)


def failed_check(name: str, error: CountersignError) -> Check:
    """Return the check that an error is the result of."""
    return Check(name, CheckStatus.BROKEN, error.cause, error.fix)
