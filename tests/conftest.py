from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

# The same examples each time: a new one that fails is found by whoever raises their number, not by a stranger's build.
hypothesis.settings.register_profile("countersign", derandomize=True, deadline=None)
hypothesis.settings.load_profile("countersign")

MEASURED = ("commands", "contracts", "engine", "storage", "tools", "web/test_links.py")
"""Where the tests are of the parts whose coverage `make check` asks for, and of their ports. Measuring makes a test
twice as slow, so the others run without.
"""

LONGEST = ("stories/test_storm.py", "stories/test_every_verb.py", "contracts/test_turn_log_machine.py")
"""Modules with tests that take longest. They begin, so that no worker is left alone with one of them in the end."""

if TYPE_CHECKING:
    from tests.postgres import Server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest first, and measure what is to be measured: to a run without `--cov` the mark is nothing."""
    here = Path(__file__).parent
    longest, measured = [here / each for each in LONGEST], [here / each for each in MEASURED]
    items.sort(key=lambda item: item.path not in longest)
    for item in items:
        again = "contracts" in item.path.parts and "[postgresql" in item.name  # the same code as on SQLite
        if again or not any(each in (item.path, *item.path.parents) for each in measured):
            item.add_marker("no_cover")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The PostgreSQL server of this test run."""
    from tests.postgres import running_server  # noqa: PLC0415 - most tests need no server

    with running_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """The program sets up logging for its whole process; one test's set-up must not reach another's."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    known = root.manager.loggerDict.items()
    levels = {name: logger.level for name, logger in known if isinstance(logger, logging.Logger)}
    yield
    for handler in root.handlers[:]:
        if handler not in handlers:
            root.removeHandler(handler)
            handler.close()
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
