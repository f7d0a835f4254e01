"""Tool lines: a success is cut to the width of the terminal, an error is complete."""

from __future__ import annotations

import pytest

from bot.platforms.console.lines import ConsoleTheme, cells, tool_text
from bot.rendering.timeline import StatusIcon, ToolStatus

PLAIN = ConsoleTheme(colour=False, unicode=True)
FORECAST = "SAMPLE DATA, not a real forecast, because the service did not answer (+4 lines)"


@pytest.mark.parametrize("width", [30, 60, 80])
@pytest.mark.parametrize("summary", [FORECAST, "札幌市の天気は雪のち晴れ。" * 5])
@pytest.mark.parametrize("unicode", [True, False])
def test_a_success_never_takes_a_second_line(width: int, summary: str, unicode: bool) -> None:
    text = tool_text(
        ToolStatus(StatusIcon.DONE, "weather.forecast", "", summary), ConsoleTheme(colour=False, unicode=unicode), width
    )
    assert width - 6 <= cells(text) <= width
    assert text.endswith("…" if unicode else "...")


def test_a_line_that_fits_is_left_alone() -> None:
    assert tool_text(ToolStatus(StatusIcon.DONE, "notes.add", "", "Saved"), PLAIN, 20) == "  ✓ notes.add  Saved"


def test_where_there_is_no_room_for_a_word_the_name_stands_alone() -> None:
    assert tool_text(ToolStatus(StatusIcon.DONE, "notes.add", "", "Saved as note 3"), PLAIN, 15) == "  ✓ notes.add"


def test_an_error_is_shown_in_full() -> None:
    text = tool_text(ToolStatus(StatusIcon.FAILED, "weather.forecast", "failed", FORECAST), PLAIN, 40)
    assert " ".join(text.split()) == f"✗ weather.forecast failed {FORECAST}"
