from __future__ import annotations

from bot.domain.messages import TextPart, ToolResult
from bot.storage.codec import read_result, result_body


def test_a_result_that_the_bot_has_written_is_one_when_it_is_read() -> None:
    refusal = ToolResult("c", (TextPart("Not run."),), is_error=True, own=True)
    assert read_result(result_body(refusal)) == refusal
