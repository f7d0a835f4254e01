"""The official conformance suite of MCP against our client layer, one scenario after the other.

    python -m tests.conformance.run [--revision REVISION] [--scenario NAME]

Runs what each revision of the specification asks of a client, at that revision's own protocol, and prints a table.
Exit code 1 if anything is other than expected; `expected` says what is.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.conformance.expected import EXPECTED, Expected
from tests.fakes import programs
from tests.node import COMPILED, NODE, program

PROJECT = Path(__file__).parents[2]
LIMIT = 90.0
"""Seconds for one scenario, the suite's own start included."""
_CLIENT_LIMIT = 60.0
_GAVE_UP = "Client exited with code"
_LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one scenario: its checks, the messages of failed ones, and its duration. `reason` is the cause of
    an expected failure, empty without one.
    """

    revision: str
    scenario: str
    passed: bool
    checks: Counter[str]
    objections: tuple[str, ...]
    seconds: float
    reason: str = ""

    @property
    def as_expected(self) -> bool:
        """Return True if it passes, or if it fails as expected. An expected failure must not pass."""
        return self.passed is not bool(self.reason)


def scenarios(revision: str, kind: str = "client") -> list[str]:
    """Return the scenarios that a revision requires of a client or a server, from the suite itself."""
    command = (NODE, program("conformance"), "list", f"--{kind}", "--requirements", revision)
    listed = subprocess.run(command, env=_environment(), check=True, capture_output=True, text=True, timeout=LIMIT)
    return read(listed.stdout, kind)


def read(listed: str, kind: str = "client") -> list[str]:
    """Return the scenarios of the suite: those required of this kind of program, in its order, and those added later.
    Extensions are left out.
    """
    required, _, unscored = listed.partition(f"{kind.capitalize()} scenarios")[2].partition("never scored")
    required = required.partition(" scenarios (test against")[0]
    later = (line for line in unscored.partition("added-after-release")[2].splitlines() if line.endswith(f"[{kind}]"))
    return [line.split()[1] for line in (*required.splitlines(), *later) if line.lstrip().startswith("- ")]


def run_scenario(revision: str, scenario: str, *tried: str, expected: Expected = EXPECTED) -> Outcome:
    """Run one scenario within its limit; `tried` are the options that name the program to try. Nothing of the suite is
    left running.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command: tuple[str | Path, ...] = (
            NODE,
            *("--no-deprecation", str(program("conformance")), *tried, "--scenario", scenario),
            *("--spec-version", revision, "--timeout", f"{_CLIENT_LIMIT * 1000:.0f}", "--output-dir", folder),
        )
        with subprocess.Popen(
            command,
            cwd=PROJECT,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as suite:
            try:
                said, _ = suite.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                said = f"It did not end within {LIMIT:g} s."
            finally:
                if suite.poll() is None:
                    os.killpg(suite.pid, signal.SIGKILL)
        checks = [each for file in Path(folder).rglob("checks.json") for each in json.loads(file.read_text())]
    counted = Counter(check["status"] for check in checks)
    # A scenario that does not apply to the revision, or was not run at all, has not passed.
    passed = suite.returncode == 0 and counted["SUCCESS"] > 0
    objections = [_objection(check) for check in checks if check["status"] in ("FAILURE", "WARNING")]
    if not passed and (_GAVE_UP in said or not objections):
        objections += _last_words(said)
    seconds, reason = time.monotonic() - began, expected[revision].get(scenario, "")
    return Outcome(revision, scenario, passed, counted, tuple(objections), seconds, reason)


def _environment() -> dict[str, str]:
    """The suite is one large script: with a cache it starts in half the time."""
    return {**os.environ, "NODE_COMPILE_CACHE": str(COMPILED)}


def _last_words(said: str) -> list[str]:
    """Output of the client before its failure, or of the suite if it did not come that far."""
    words = "".join(said.partition(_GAVE_UP)[1:]).partition("Checks:")[0] or said
    return [line for line in words.splitlines() if line.strip()][-_LAST_LINES:]


def _objection(check: dict[str, str]) -> str:
    return f"{check['id']}: {check.get('errorMessage') or check['description']}"


def report(outcomes: Sequence[Outcome], console: Console) -> None:
    """Return a table of all scenarios, and the suite's messages of unexpected failures."""
    table = Table("Revision", "Scenario", "Passed", "Failed", "Seconds", "Verdict")
    for outcome in outcomes:
        counts = (str(outcome.checks["SUCCESS"]), str(outcome.checks["FAILURE"] + outcome.checks["WARNING"]))
        table.add_row(outcome.revision, outcome.scenario, *counts, f"{outcome.seconds:.1f}", _verdict(outcome))
    console.print(table)
    for outcome in outcomes:
        if not outcome.passed and not outcome.as_expected:
            console.print(f"\n{outcome.revision} {outcome.scenario}:", *outcome.objections, sep="\n  ", markup=False)
    passed = sum(outcome.passed for outcome in outcomes)
    expected = sum(not outcome.passed and outcome.as_expected for outcome in outcomes)
    wrong = sum(not outcome.as_expected for outcome in outcomes)
    console.print(f"\n{passed} of {len(outcomes)} scenarios pass, {expected} fail as expected, {wrong} are unexpected")


def _verdict(outcome: Outcome) -> str:
    match outcome.passed, outcome.reason:
        case True, "":
            return "passed"
        case True, _:
            return "passes, and is expected to fail: take it off the list"
        case False, "":
            return "FAILED"
        case _, reason:
            return f"expected: {reason}"


def _selected_scenarios() -> Iterator[tuple[str, str]]:
    parser = argparse.ArgumentParser(description="Run the conformance suite of MCP against our client layer.")
    parser.add_argument("--revision", choices=EXPECTED, action="append", help="of the specification; both by default")
    parser.add_argument("--scenario", action="append", help="only this one")
    options = parser.parse_args()
    for revision in options.revision or EXPECTED:
        listed = scenarios(revision)
        if gone := EXPECTED[revision].keys() - set(listed):
            parser.error(
                f"{revision} has no scenario {', '.join(sorted(gone))}. Fix: take it off the list in expected.py"
            )
        for scenario in listed:
            if not options.scenario or scenario in options.scenario:
                yield revision, scenario


def main() -> int:
    """Run the requested scenarios, and return the exit code."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    wanted = list(_selected_scenarios())
    client = f"exec {programs.python()} -m tests.conformance.client"
    outcomes = []
    for revision, scenario in wanted:
        outcomes.append(run_scenario(revision, scenario, "client", "--command", client))
        console.print(f"{revision} {scenario}: {_verdict(outcomes[-1])}", markup=False, highlight=False)
    report(outcomes, console)
    return 0 if outcomes and all(outcome.as_expected for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
