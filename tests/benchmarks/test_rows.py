"""The rows of a release: what is written, and the comparison with the last release."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import rows
from benchmarks.rows import Machine, Row, Sizes, kept_rows, lines, main, table

HERE = Machine("0.2.0", "abc1234", "3.12.1", 2, 0.5, 0.1)
EARLIER = Machine("0.1.0", "def5678", "3.12.1", 8, 0.0, 0.05)


def row(value: float) -> Row:
    return Row("CPU of a turn, 1 at once", "ms", value, 20.0, "loop on the clients", 1.0)


def shown(*found: Row, kept: str = "") -> str:
    console = Console(width=140, record=True, file=StringIO())
    console.print(table(found, kept_rows(kept), HERE))
    return console.export_text()


def test_a_line_has_the_row_its_ratio_and_the_machine() -> None:
    (line,) = map(json.loads, lines(HERE, [row(10.0)]).splitlines())
    assert (line["name"], line["ratio"], line["floor"]) == ("CPU of a turn, 1 at once", 0.5, 1.0)
    assert (line["version"], line["commit"], line["calibration"]) == ("0.2.0", "abc1234", 0.1)


def test_the_change_is_that_of_the_ratio_since_the_newest_kept_run() -> None:
    kept = lines(EARLIER, [row(5.0)]) + lines(EARLIER, [row(8.0)])
    text = shown(row(10.0), kept=kept)
    assert "+25 %" in text
    assert "since 0.1.0 (def5678)" in text


def test_a_row_without_an_earlier_one_or_without_a_ratio_has_no_change() -> None:
    text = shown(row(10.0), Row("messages lost", "", 0))
    assert "%" not in text
    assert "no earlier run" in text


@pytest.mark.parametrize(("lost", "code"), [(0, 0), (1, 1)])
def test_a_run_writes_its_rows_keeps_them_on_request_and_fails_if_messages_were_lost(
    lost: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def burst(_sizes: Sizes, _machine: Machine) -> Iterator[Row]:
        yield Row(rows.WRONG, "", lost)

    kept, file = tmp_path / "results.jsonl", tmp_path / "build" / "bench.jsonl"
    monkeypatch.setattr(rows, "PARTS", {"burst": burst})
    monkeypatch.setattr(rows, "KEPT", kept)
    assert main(["--json", str(file)]) == code
    assert not kept.exists()
    assert main(["--json", str(file), "--keep"]) == code
    assert kept.read_text() == file.read_text()
    assert json.loads(kept.read_text())["value"] == lost


def test_the_rows_of_releases_can_be_compared() -> None:
    kept = kept_rows(rows.KEPT.read_text(encoding="utf-8"))
    assert kept
    assert all(line["version"] and line["commit"] and line["calibration"] for line in kept.values())
