from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.fakes import AUTHORITY

# The same examples each time: a new one that fails is found by whoever raises their number, not by a stranger's build.
hypothesis.settings.register_profile("countersign", derandomize=True, deadline=None)
hypothesis.settings.load_profile("countersign")

os.environ["SSL_CERT_FILE"] = AUTHORITY

MEASURED = ("commands/", "contracts/", "engine/", "storage/", "tools/", "web/test_links.py")
"""Where the tests are of the parts whose coverage `make check` asks for, and of their ports. Measuring makes a test
twice as slow, so the others run without.
"""
OF_OTHERS = ("language_model", "model_services", "prompt_caches")
"""What names the contracts of the parts that it does not ask for."""

LONGEST = ("stories/test_storm.py", "stories/test_every_verb.py", "contracts/test_turn_log_machine.py")
"""Modules with tests that take longest. They begin, so that no worker is left alone with one of them in the end."""

IS_MEASURED = pytest.StashKey[bool]()

if TYPE_CHECKING:
    from tests.postgres import Server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest first, and mark what is to be measured."""
    here = Path(__file__).parent
    places = {path: path.relative_to(here).as_posix() for path in {item.path for item in items}}
    items.sort(key=lambda item: places[item.path] not in LONGEST)
    measured = {
        path
        for path, place in places.items()
        if place.startswith(MEASURED) and not any(each in place for each in OF_OTHERS)
    }
    for item in items:
        again = "[postgresql" in item.name and places[item.path].startswith("contracts/")  # the same code as on SQLite
        item.stash[IS_MEASURED] = item.path in measured and not again


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure only what is marked, if anything is: of the others not even the fixtures, which are most of their work.
    The mark `no_cover` would leave those measured.
    """
    coverage = getattr(item.config.pluginmanager.get_plugin("_cov"), "cov_controller", None)
    if coverage is None or item.stash[IS_MEASURED]:
        return (yield)
    coverage.pause()
    try:
        return (yield)
    finally:
        coverage.resume()


def pytest_collection_finish() -> None:
    """What is loaded by now stays: no collection of garbage has to look at it again, and there are many."""
    gc.collect()
    gc.freeze()


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
    if root.level != level:
        root.setLevel(level)
    for name, before in levels.items():
        if (logger := logging.getLogger(name)).level != before:  # to set one is to go through all of them
            logger.setLevel(before)
