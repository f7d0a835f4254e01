"""From a server's answer to what the model reads."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import MCPError, types

from bot.domain.messages import TextPart, ToolResult
from bot.tools.redaction import Redaction
from bot.tools.results import TEXT_LIMIT, error_text, failed_result, tool_result


def result(*content: Any, structured: Any = None, is_error: bool = False) -> ToolResult:
    answer = types.CallToolResult(content=list(content), structured_content=structured, is_error=is_error)
    return tool_result("c1", answer, Redaction(["top-secret"]))


def words(value: str) -> types.TextContent:
    return types.TextContent(type="text", text=value)


def resource(**fields: Any) -> types.EmbeddedResource:
    kind = types.TextResourceContents if "text" in fields else types.BlobResourceContents
    return types.EmbeddedResource(type="resource", resource=kind(uri="note://1", **fields))


def test_each_text_is_a_part_of_its_own() -> None:
    assert result(words("a"), words("b")) == ToolResult("c1", (TextPart("a"), TextPart("b")))


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (types.ImageContent(type="image", data="AA==", mime_type="image/png"), "[Image: image/png]"),
        (types.AudioContent(type="audio", data="AA==", mime_type="audio/wav"), "[Audio: audio/wav]"),
        (resource(text="the note"), "the note"),
        (resource(text="x" * 20_000), "[Resource: note://1]"),
        (resource(blob="AA=="), "[Resource: note://1]"),
        (types.ResourceLink(type="resource_link", name="plan", uri="file:///plan"), "[Link: plan file:///plan]"),
    ],
)
def test_other_content_has_a_text_that_stands_for_it(block: Any, expected: str) -> None:
    assert result(block).text == expected


def test_structured_content_is_kept_and_is_the_text_where_there_is_none() -> None:
    alone = result(structured={"käse": 1})
    assert (alone.text, alone.structured) == ('{"käse": 1}', {"käse": 1})
    both = result(words("one"), structured={"n": 1})
    assert (both.text, both.structured) == ("one", {"n": 1})


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    long = "".join(f"{n:06d}" for n in range(20_000))
    shown = result(words(long[:60_000]), words(long[60_000:])).text
    assert len(shown) <= TEXT_LIMIT
    head, _, rest = shown.partition("\n... ")
    left_out, _, tail = rest.partition(" characters left out ...\n")
    assert long.startswith(head)
    assert long.endswith(tail)
    assert len(head) == pytest.approx(0.75 * TEXT_LIMIT, rel=0.01)
    assert int(left_out) == len(long) + 1 - len(head) - len(tail)


def test_structured_content_over_the_limit_is_text_alone() -> None:
    huge = result(structured={"rows": ["x" * 100] * 1000})
    assert huge.structured is None
    assert "characters left out" in huge.text


def test_a_failure_keeps_its_text_without_secrets() -> None:
    failure = result(words("bad token top-secret"), is_error=True)
    assert (failure.text, failure.is_error) == ("bad token ***", True)


def test_a_failure_without_words_gets_some() -> None:
    assert result(is_error=True).text


def test_what_no_database_takes_is_left_out() -> None:
    nul = result(words("a\0b"), structured={"k\0": ["\0v"]})
    assert (nul.text, nul.structured) == ("ab", {"k": ["v"]})
    assert failed_result("c1", "a\0b").text == "ab"


def test_a_protocol_error_reads_message_and_data() -> None:
    prefix = "Error calling MCP server: Internal error"
    assert error_text(MCPError(-32603, "Internal error", "Location not found")) == f"{prefix} - Location not found"
    assert error_text(MCPError(-32603, "Internal error", {"a": 1})) == prefix
    assert error_text(MCPError(-32603, "Internal error")) == prefix
