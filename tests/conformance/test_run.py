from __future__ import annotations

from collections import Counter

import pytest

from tests.conformance.run import Outcome, read

LISTED = """
Required for 2025-11-25 (3 scenarios, frozen; run at the 2025-11-25 wire):

Server scenarios (test against a server):
  - ping

Client scenarios (test against a client):
  - initialize
  - auth/basic-cimd

Run and reported, but never scored:
  extension (1):
    - auth/dpop [client]
  added-after-release (2):
    - server-session-lifecycle [server]
    - json-schema-2020-12-preservation [client]
  pending (1):
    - server-sse-polling [server]
"""


def test_required_and_later_scenarios_of_clients_are_run() -> None:
    assert read(LISTED) == ["initialize", "auth/basic-cimd", "json-schema-2020-12-preservation"]


@pytest.mark.parametrize(
    ("passed", "reason", "as_expected"),
    [(True, "", True), (False, "", False), (False, "not there yet", True), (True, "not there yet", False)],
)
def test_a_scenario_expected_to_fail_must_fail(passed: bool, reason: str, as_expected: bool) -> None:
    outcome = Outcome("2025-11-25", "initialize", passed, Counter(), (), 1.0, reason)
    assert outcome.as_expected is as_expected
