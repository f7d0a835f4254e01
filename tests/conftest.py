from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import hypothesis
import pytest

# The same examples each time: a new one that fails is found by whoever raises their number, not by a stranger's build.
hypothesis.settings.register_profile("countersign", derandomize=True, deadline=None)
hypothesis.settings.load_profile("countersign")

if TYPE_CHECKING:
    from tests.postgres import Server


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
