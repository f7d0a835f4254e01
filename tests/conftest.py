from __future__ import annotations

import gc
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests import uvicorn_polling  # noqa: F401 - its import has the effect
from tests.fakes import AUTHORITY
from tests.i18n.pseudo_language import pseudo_language, pseudo_locales  # noqa: F401 - fixtures

# The same examples each time: a new one that fails is found by raising their number, not by an unrelated build.
hypothesis.settings.register_profile("local", derandomize=True, deadline=None, max_examples=20)
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")

os.environ["SSL_CERT_FILE"] = AUTHORITY
# Texts and times that tests read are not those of the machine.
for name in ("LC_ALL", "LC_MESSAGES", "LANGUAGE", "TIME_ZONE"):
    os.environ.pop(name, None)
os.environ["LANG"], os.environ["TZ"] = "C.UTF-8", "UTC"
time.tzset()

MEMORY, ENOUGH_MEMORY = Path("/dev/shm"), 4 << 30
"""A file system in memory, and the free bytes from which it is used: most tests write a database, and every commit
would wait for a disk.
"""
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH_MEMORY:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

PLUGINS: list[object] = []
if "MEASURE" in os.environ:  # here, before any test loads what is measured
    from tests.coverage_plugin import Measurement

    PLUGINS.append(Measurement())

LONGEST = (
    "contracts/test_turn_log_machine.py",
    "deploy/test_install.py",
    "deploy/test_packaging.py",
    "docs/test_shell_commands.py",
    "engine/test_hostile_clicks.py",
    "stories/test_approval_storm.py",
    "stories/test_beside.py",
    "stories/test_discord_program.py",
    "stories/test_every_subcommand.py",
    "stories/test_floods.py",
    "stories/test_full_disk.py",
    "stories/test_live_doctor.py",
    "stories/test_operations_channel.py",
    "stories/test_workspaces.py",
    "web/test_openapi.py",
)
"""Modules with tests that take longest. They begin, so that no worker is left alone with one of them in the end."""
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
TESTS = Path(__file__).parent

if TYPE_CHECKING:
    from tests.postgres import Server


def pytest_configure(config: pytest.Config) -> None:
    for plugin in PLUGINS:
        config.pluginmanager.register(plugin)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest first. Workers begin with equal parts of the list, so each part begins with some of them."""
    longest, others = dict[str, list[pytest.Item]](), list[pytest.Item]()
    for item in items:
        module = item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else ""
        (longest.setdefault(module, []) if module in LONGEST else others).append(item)
    modules, count = [*longest.values()], len(items)
    items.clear()
    for worker in range(WORKERS):
        first = list(chain(*modules[worker::WORKERS]))
        size = max(0, (count - len(items)) // (WORKERS - worker) - len(first))
        items += [*first, *others[:size]]
        del others[:size]
    items += others


def pytest_collection_finish() -> None:
    """What is loaded by now stays: no collection of garbage has to look at it again, and there are many."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """The PostgreSQL server of this test run."""
    from tests.postgres import running_server  # noqa: PLC0415 - most tests need no server

    with running_server() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: Server) -> Iterator[Server]:
    """The same for one test, whose databases are another's after it."""
    yield postgres_server
    postgres_server.give_back()


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
