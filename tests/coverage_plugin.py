"""Coverage of lines and branches of the product's inner packages, with a minimum.

`make check` switches the measurement on with MEASURE in the environment. Code is instrumented when it is loaded, and a
probe is removed after its first hit. A trace function, as `coverage` uses on Python 3.11, would make tests twice as
slow. Each worker measures itself, and the main process merges the results.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import slipcover

PROJECT = Path(__file__).parents[1]
PARTS = [str(PROJECT / part) for part in ("bot/admin", "bot/engine", "bot/storage", "bot/mcp")]
"""Packages with measured coverage."""
MINIMUM_PERCENT = 95.0
"""Per cent of all lines and branches."""
NOT_MEANT_TO_RUN = ["if TYPE_CHECKING:", "raise NotImplementedError", "@abstractmethod"]
MEASURED = "measured"
"""Key of a worker's report, a JSON object of `slipcover`."""


class Measurement:
    """Plugin that measures coverage. Create it before a module of the product is imported."""

    def __init__(self) -> None:
        self._probes = slipcover.Slipcover(branch=True, source=PARTS, exclude_also=NOT_MEANT_TO_RUN)
        of_the_parts = slipcover.FileMatcher(sources=PARTS)
        slipcover.ImportManager(self._probes, of_the_parts).__enter__()  # active until the process ends
        slipcover.wrap_spec_from_file_location(self._probes, of_the_parts)  # migrations are loaded like this
        self._of_workers: list[dict[str, Any]] = []
        self._together: dict[str, Any] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Collect the report of a worker. A worker that has crashed has no report."""
        if MEASURED in getattr(node, "workeroutput", {}):
            self._of_workers.append(json.loads(node.workeroutput[MEASURED]))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        os.chdir(PROJECT)
        measured = self._probes.get_coverage()
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[MEASURED] = json.dumps(measured)
            return
        for worker in self._of_workers:
            slipcover.merge_coverage(measured, worker)
        self._together = measured
        if self._coverage_percent < MINIMUM_PERCENT and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        if exitstatus != pytest.ExitCode.OK and self._coverage_percent >= MINIMUM_PERCENT:
            return  # a long table would hide which test failed, and how
        slipcover.print_coverage(self._together, outfile=terminalreporter, missing_width=80, skip_covered=True)
        said = "as is asked for" if self._coverage_percent >= MINIMUM_PERCENT else "FAILED"
        terminalreporter.line(
            f"Run of lines and branches: {self._coverage_percent:.2f} % of at least {MINIMUM_PERCENT:g} %, {said}"
        )

    @property
    def _coverage_percent(self) -> float:
        return float(self._together["summary"]["percent_covered"])
