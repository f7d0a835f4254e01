"""Reports to the operators about errors of platforms, models and files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest

from bot.app.operations import DISCONNECTED_SECONDS, HealthFaults, OccasionalSource, configuration_faults
from bot.app.operator_files import OperatorFiles
from bot.domain.health import Fault, FaultKind, Health, ListenerStatus
from bot.engine.faults import Suspicion
from bot.engine.policy.rules import Policies
from bot.mcp.config.file import ServersFile

MODEL = Fault("model:paid", FaultKind.MODEL, "Model paid cannot be used", "Model paid can be used again")


def titles(faults: Iterable[Fault | Suspicion]) -> list[str]:
    return [fault.title for fault in faults if isinstance(fault, Fault)]


async def test_a_platform_has_failed_when_it_is_not_connected_for_two_minutes() -> None:
    health, now = Health(database=True, platforms={"slack": ListenerStatus.CONNECTING}), 0.0

    async def look() -> Health:
        return health

    source = HealthFaults(look, clock=lambda: now)
    assert list(await source()) == [Suspicion("platform:slack")]
    now = DISCONNECTED_SECONDS
    assert titles(await source()) == ["Slack is not connected"]
    health = replace(health, platforms={"slack": ListenerStatus.CONNECTED})
    assert list(await source()) == []
    health = replace(health, platforms={"slack": ListenerStatus.CONNECTING})
    assert titles(await source()) == []


async def test_checkpoints_that_cannot_be_written_are_a_fault_at_once() -> None:
    async def look() -> Health:
        return Health(database=True, checkpoints_fail=True)

    assert titles(await HealthFaults(look)()) == ["Checkpoints of the audit cannot be written"]


@pytest.mark.parametrize(("second", "told"), [([MODEL], [MODEL.title]), ([], [])])
async def test_a_model_that_fails_for_a_moment_is_not_reported(second: list[Fault], told: list[str]) -> None:
    answers, pauses = [[MODEL], second], list[float]()
    finished = asyncio.Event()

    async def check() -> list[Fault]:
        return answers.pop(0)

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > 1:
            finished.set()
            await asyncio.Event().wait()

    source = OccasionalSource(check, 600, confirmed_after=30, pause=pause)
    running = asyncio.create_task(source.run())
    await finished.wait()
    assert titles(await source()) == told
    assert pauses == [30, 600]
    running.cancel()


def test_ignored_entries_are_one_fault_with_the_first_of_them() -> None:
    warnings = tuple(f"entry {number} is ignored" for number in range(5))
    files = OperatorFiles(Policies(), "", ServersFile(warnings=warnings))
    (fault,) = configuration_faults(files)
    assert fault.title == "5 entries are ignored in the configuration"
    assert fault.cause == "entry 0 is ignored\nentry 1 is ignored\nentry 2 is ignored And 2 more."
    assert configuration_faults(OperatorFiles(Policies(), "", ServersFile())) == []
