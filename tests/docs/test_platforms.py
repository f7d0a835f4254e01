"""The table of platforms is made from one list, and a test on every platform shows each common feature."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.platforms.parity import FEATURES, YES, Feature, table

PROJECT = Path(__file__).parents[2]
SHARED = [
    *(PROJECT / "tests" / "contracts").glob("test_*.py"),
    *(PROJECT / "tests" / "stories").glob("test_team*.py"),
]
TESTS = {
    name: path
    for path in SHARED
    for name in re.findall(r"^async def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
}


def test_the_guide_has_the_table_of_the_list() -> None:
    assert table() in (PROJECT / "docs" / "platforms.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
def test_a_feature_of_both_slack_and_discord_has_a_test_on_both(feature: Feature) -> None:
    assert feature.tests or not feature.slack.startswith(YES) or feature.discord != feature.slack
    assert [test for test in feature.tests if test not in TESTS] == []
    for test in feature.tests:
        module = TESTS[test].read_text(encoding="utf-8")
        assert re.search(
            rf"def {test}\(\s*(workspace|listening|needs_mentions|with_menus|operations|team)\b", module
        ), test
