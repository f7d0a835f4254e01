from __future__ import annotations

import gc
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import hypothesis
import pytest

from tests import uvicorn_polling  # noqa: F401 - its import has the effect
from tests.fakes import AUTHORITY
from tests.i18n.pseudo_language import pseudo_language, pseudo_locales  # noqa: F401 - fixtures

# The same examples in each run: a new example never fails an unrelated build. To find more, raise `max_examples`.
hypothesis.settings.register_profile("local", derandomize=True, deadline=None, max_examples=20)
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")

os.environ["SSL_CERT_FILE"] = AUTHORITY
# Texts and times in tests do not depend on the settings of the machine.
for name in ("LC_ALL", "LC_MESSAGES", "LANGUAGE", "TIME_ZONE"):
    os.environ.pop(name, None)
os.environ["LANG"], os.environ["TZ"] = "C.UTF-8", "UTC"
time.tzset()

MEMORY, ENOUGH_MEMORY = Path("/dev/shm"), 4 << 30
"""A file system in memory, and the free bytes that its use requires.

Most tests write a database, and on a disk every commit would wait.
"""
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH_MEMORY:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

PLUGINS: list[object] = []
if "MEASURE" in os.environ:  # before a test imports measured modules
    from tests.coverage_plugin import Measurement

    PLUGINS.append(Measurement())

LONG = (
    "benchmarks/test_load.py",
    "benchmarks/test_sizes.py",
    "cli/test_audit.py",
    "contracts/test_turn_log_machine.py",
    "deploy/test_install.py",
    "deploy/test_packaging.py",
    "docs/test_chat_commands.py",
    "docs/test_shell_commands.py",
    "mcp/test_loop_delay.py",
    "stories/test_agents_in_slack.py",
    "stories/test_approval_storm.py",
    "stories/test_attacks_on_the_audit.py",
    "stories/test_beside.py",
    "stories/test_crashes.py",
    "stories/test_discord_program.py",
    "stories/test_elicitation.py",
    "stories/test_every_subcommand.py",
    "stories/test_fair_scheduling.py",
    "stories/test_floods.py",
    "stories/test_full_disk.py",
    "stories/test_http_api.py",
    "stories/test_interrupted_calls.py",
    "stories/test_kept_content.py",
    "stories/test_killed_test_run.py",
    "stories/test_live_doctor.py",
    "stories/test_many_tools.py",
    "stories/test_model_services.py",
    "stories/test_operations_channel.py",
    "stories/test_operator_files.py",
    "stories/test_postgresql.py",
    "stories/test_procfile.py",
    "stories/test_review.py",
    "stories/test_scripts.py",
    "stories/test_setup_discord.py",
    "stories/test_setup_slack.py",
    "stories/test_sign_in.py",
    "stories/test_slack_features.py",
    "stories/test_slack_limits.py",
    "stories/test_slack_program.py",
    "stories/test_slack_shutdown.py",
    "stories/test_unknown_calls.py",
    "stories/test_use_cases.py",
    "stories/test_workspaces.py",
    "web/test_openapi.py",
)
"""Modules with the longest tests, mostly of whole programs. They have the mark `long`: `make check` runs them, `make
test` does not. They run first, so that no worker runs one of them alone at the end.
"""
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
TESTS = Path(__file__).parent

if TYPE_CHECKING:
    from tests.postgres import Server


def pytest_configure(config: pytest.Config) -> None:
    for plugin in PLUGINS:
        config.pluginmanager.register(plugin)


def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Compile the test modules of a fresh clone in two processes. Otherwise each worker would compile all."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if not whole or sys.dont_write_bytecode or any(TESTS.glob("domain/__pycache__/*-pytest-*.pyc")):
        return
    folders = sorted(str(path) for path in TESTS.iterdir() if path.is_dir() and any(path.rglob("test_*.py")))
    collect = [sys.executable, "-m", "pytest", "-n", "0", "--collect-only", "-qq"]
    halves = [subprocess.Popen([*collect, *folders[half::2]], stdout=subprocess.DEVNULL) for half in range(2)]
    for process in halves:
        process.wait()


def pytest_collection() -> None:
    """Switch garbage collection off while modules load, because most of their objects stay."""
    gc.disable()


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the longest modules, put them first and mix the others.

    Each worker begins with an equal part of the list. Each part begins with some of the longest modules. The order of
    the others is fixed and mixes tests that wait with tests that calculate.
    """
    longest, others = dict[str, list[pytest.Item]](), dict[str, list[pytest.Item]]()
    for item in items:
        module = item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else ""
        (longest if module in LONG else others).setdefault(module, []).append(item)
        if module in LONG:
            item.add_marker("long")
    modules, count = [*longest.values()], len(items)
    mixed = list(chain(*(others[module] for module in sorted(others, key=lambda name: crc32(name.encode())))))
    items.clear()
    for worker in range(WORKERS):
        first = list(chain(*modules[worker::WORKERS]))
        size = max(0, (count - len(items)) // (WORKERS - worker) - len(first))
        items += [*first, *mixed[:size]]
        del mixed[:size]
    items += mixed


def pytest_collection_finish() -> None:
    """Exclude the loaded objects from further garbage collections, because they are many and stay."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """Yield the PostgreSQL server of this test run."""
    from tests.postgres import running_server  # noqa: PLC0415 - most tests need no server

    with running_server() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: Server) -> Iterator[Server]:
    """Yield the server for one test. Later tests reuse its databases."""
    yield postgres_server
    postgres_server.give_back()


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Restore the logging configuration after each test, because the program configures the whole process."""
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
        if (logger := logging.getLogger(name)).level != before:  # setting a level iterates over all loggers
            logger.setLevel(before)
