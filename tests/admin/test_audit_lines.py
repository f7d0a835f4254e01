"""Rows of the audit as lines of a file."""

from __future__ import annotations

import csv
import json

import pytest

from bot.admin.audit_search import csv_line, json_line
from bot.domain.audit import AuditEntry


def a_row(**changes: object) -> AuditEntry:
    fields = {"seq": 1, "at": 0.5, "kind": "asked", "actor": "test:ana", "facts": {"n": 1}, "conversation": ""}
    return AuditEntry(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_line_of_json_holds_the_subject_among_the_facts_as_the_hash_has_it() -> None:
    assert json.loads(json_line(a_row(subject="s-1")))["facts"] == {"n": 1, "subject": "s-1"}
    assert json.loads(json_line(a_row()))["facts"] == {"n": 1}


@pytest.mark.parametrize("at", [float("nan"), float("inf"), 1e18])
def test_a_moment_that_no_calendar_has_is_left_out_and_the_row_is_there(at: float) -> None:
    [cells] = csv.reader([csv_line(a_row(at=at))])
    assert cells[:3] == ["1", "", "asked"]
