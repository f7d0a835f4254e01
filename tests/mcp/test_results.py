"""Conversion of a server's answer to the text for the model."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest
from mcp import MCPError, types

from bot.domain.messages import FilePart, ImageAudience, ImagePart, TextPart, ToolResult
from bot.domain.servers import TextContents
from bot.domain.tools import Tool
from bot.mcp.redaction import Redaction, Secret
from bot.mcp.results import (
    FOR_THE_PERSON,
    MOST_FILES,
    TEXT_LIMIT,
    error_text,
    failed_result,
    resource_pieces,
    tool_result,
)

PNG = b"\x89PNG\r\n\x1a\n cat"
WAV = b"RIFF\x04\0\0\0WAVE"
TOOL = Tool("s__t", "s", "t")
COUNTING = Tool(
    "s__t", "s", "t", output_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
)


def result(*content: Any, structured: Any = None, is_error: bool = False, tool: Tool = TOOL) -> ToolResult:
    answer = types.CallToolResult(content=list(content), structured_content=structured, is_error=is_error)
    return tool_result("c1", tool, answer, Redaction([Secret("top-secret")]))


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def image(data: bytes = PNG, mime_type: str = "image/png", **fields: Any) -> types.ImageContent:
    return types.ImageContent(type="image", data=base64_text(data), mime_type=mime_type, **fields)


def for_(*audience: str) -> dict[str, Any]:
    return {"annotations": types.Annotations(audience=list(audience))}  # type: ignore[arg-type]


def words(value: str) -> types.TextContent:
    return types.TextContent(type="text", text=value)


def resource(**fields: Any) -> types.EmbeddedResource:
    kind = types.TextResourceContents if "text" in fields else types.BlobResourceContents
    return types.EmbeddedResource(type="resource", resource=kind(**{"uri": "note://1", **fields}))


def test_each_text_is_a_part_of_its_own() -> None:
    assert result(words("a"), words("b")) == ToolResult("c1", (TextPart("a"), TextPart("b")))


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (types.ImageContent(type="image", data="AA==", mime_type="image/png"), "[Image: image/png]"),
        (types.AudioContent(type="audio", data="AA==", mime_type="audio/wav"), "[Audio: audio/wav]"),
        (resource(text="the note"), "the note"),
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
    assert (both.text, both.structured) == ('one\n{"n": 1}', {"n": 1})


@pytest.mark.parametrize(("number", "name"), [(1e400, "Infinity"), (-1e400, "-Infinity"), (float("nan"), "NaN")])
def test_structured_content_without_a_json_number_stays_valid_json(number: float, name: str) -> None:
    found = result(structured={"n": [number, 1.5]})
    assert (found.text, found.structured) == (f'{{"n": ["{name}", 1.5]}}', {"n": [name, 1.5]})


@pytest.mark.parametrize(
    ("texts", "structured"),
    [
        (['{ "n" : 1 }'], {"n": 1}),
        (["about it", '{"n": 1}'], {"n": 1}),
        (["5"], {"result": 5}),
        (["5"], {"result": "5"}),
        (["in a file"], {"content": "in a file"}),
        (["[1, 2]"], {"result": [1, 2]}),
        (["a", "2"], {"result": ["a", 2]}),
    ],
)
def test_data_that_equals_the_texts_is_not_repeated(texts: list[str], structured: Any) -> None:
    found = result(*map(words, texts), structured=structured)
    assert (found.parts, found.structured) == (tuple(map(TextPart, texts)), structured)


def test_a_result_that_does_not_fit_its_tools_schema_is_kept_and_said_to_be_so() -> None:
    odd = result(words("one"), structured={"n": "top-secret"}, tool=COUNTING)
    assert odd.structured == {"n": "***"}
    assert odd.parts[0] == TextPart("one")
    assert 'does not fit what the tool says it returns: n: "***" is not of type "integer"' in odd.text
    assert not odd.is_error
    for fits in ({"n": 1}, {"n": 1, "m": 2}):
        assert "does not fit" not in result(structured=fits, tool=COUNTING).text
    assert "does not fit" not in result(words("no"), structured={"n": "x"}, is_error=True, tool=COUNTING).text


def test_an_image_is_an_image_of_the_type_that_its_bytes_are() -> None:
    assert result(image(mime_type="image/jpeg")).parts == (ImagePart(PNG, "image/png"),)


@pytest.mark.parametrize("data", [b"\x7fELF\1", b"<svg/>", b"MZ\x90", b"%PDF-1.7"])
def test_content_that_only_calls_itself_an_image_is_a_file(data: bytes) -> None:
    placeholder, file = result(image(data)).parts
    assert placeholder == TextPart("[Image: image/png]")
    assert isinstance(file, FilePart)
    assert file.mime_type == ("application/pdf" if data.startswith(b"%PDF") else "application/octet-stream")


def test_sound_and_files_are_for_people_and_a_text_stands_for_them() -> None:
    sound = types.AudioContent(type="audio", data=base64_text(WAV), mime_type="audio/x-wav")
    assert result(sound).parts == (TextPart("[Audio: audio/x-wav]"), FilePart(WAV, "audio/wav", ""))
    report = resource(uri="file:///tmp/q3%20report.pdf", blob=base64_text(b"%PDF-1.7 x"), mime_type="application/pdf")
    assert result(report).parts == (
        TextPart("[Resource: file:///tmp/q3%20report.pdf]"),
        FilePart(b"%PDF-1.7 x", "application/pdf", "q3_report.pdf"),
    )
    picture = resource(uri="shot://1/shot", blob=base64_text(PNG))
    assert result(picture).parts == (ImagePart(PNG, "image/png", "shot.png"),)


@pytest.mark.parametrize(
    "uri", ["x:/../../etc/passwd", "x://h/a%2f..%2f..%2fetc", "x://h/a\\b", "x://h/..", "http://["]
)
def test_no_address_makes_a_name_that_leads_elsewhere(uri: str) -> None:
    files = [part for part in result(resource(uri=uri, blob=base64_text(b"\0\1"))).parts if isinstance(part, FilePart)]
    assert len(files) == 1
    assert not set("/\\:") & set(files[0].name)
    assert not files[0].name.startswith(".")


def test_a_file_does_not_keep_an_ending_that_its_bytes_do_not_have() -> None:
    (_, file) = result(resource(uri="x://h/cat.png", blob=base64_text(b"#!/bin/sh\n"), mime_type="image/png")).parts
    assert isinstance(file, FilePart)
    assert file.name == "cat.png.bin"


@pytest.mark.parametrize("data", ["!!!", "AA", "data:image/png;base64,***"])
def test_bytes_that_cannot_be_read_leave_a_text(data: str) -> None:
    block = types.ImageContent(type="image", data=data, mime_type="image/png")
    assert result(block).parts == (TextPart("[Image: image/png]"),)


def test_line_breaks_and_data_urls_are_decoded() -> None:
    wrapped = types.ImageContent(
        type="image", data=base64_text(PNG)[:8] + "\n" + base64_text(PNG)[8:], mime_type="image/png"
    )
    addressed = types.ImageContent(
        type="image", data="data:image/png;base64," + base64_text(PNG), mime_type="image/png"
    )
    assert result(wrapped, addressed).parts == (ImagePart(PNG, "image/png"),) * 2


def test_content_for_one_audience_goes_to_that_one() -> None:
    told = result(words("both"), types.TextContent(type="text", text="psst top-secret", **for_("user")))
    assert told.parts == (TextPart("both"), TextPart(FOR_THE_PERSON), FilePart(b"psst ***", "text/plain", ""))
    assert result(image(**for_("user"))).parts == (
        TextPart("[Image: image/png]"),
        ImagePart(PNG, "image/png", "", ImageAudience.PEOPLE),
    )
    assert result(image(**for_("assistant"))).parts == (ImagePart(PNG, "image/png", "", ImageAudience.MODEL),)
    sound = types.AudioContent(type="audio", data=base64_text(WAV), mime_type="audio/wav", **for_("assistant"))
    assert result(sound).parts == (TextPart("[Audio: audio/wav]"),)
    everybody = for_("user", "assistant")
    assert result(image(**everybody), image(**for_())).parts == (ImagePart(PNG, "image/png"),) * 2


def test_a_flood_of_files_is_bounded_and_says_so() -> None:
    flood = result(*(image(PNG + bytes([n])) for n in range(MOST_FILES + 3)))
    assert sum(isinstance(part, ImagePart) for part in flood.parts) == MOST_FILES
    assert flood.text == "(3 more files were left out.)"


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    long = "".join(f"{n:06d}" for n in range(20_000))
    found = result(words(long[:60_000]), image(), words(long[60_000:]))
    text = found.text
    assert len(text) <= TEXT_LIMIT
    head, _, rest = text.partition("\n... ")
    left_out, _, tail = rest.partition(" characters left out, the user has the full text in a file ...\n")
    assert long.startswith(head)
    assert long.endswith(tail)
    assert len(head) == pytest.approx(0.75 * TEXT_LIMIT, rel=0.01)
    assert int(left_out) == len(long) + 1 - len(head) - len(tail)
    whole = f"{long[:60_000]}\n{long[60_000:]}"
    assert found.parts[1:] == (ImagePart(PNG, "image/png"), FilePart(whole.encode(), "text/plain", ""))


def test_structured_content_over_the_limit_is_text_alone() -> None:
    huge = result(structured={"rows": ["x" * 100] * 1000})
    assert huge.structured is None
    assert "characters left out" in huge.text


def test_a_failure_keeps_its_text_without_secrets() -> None:
    failure = result(words("bad token top-secret"), is_error=True)
    assert (failure.text, failure.is_error) == ("bad token ***", True)


def test_a_failure_without_words_gets_some() -> None:
    assert result(is_error=True).text


def test_text_that_no_database_takes_is_left_out() -> None:
    nul = result(words("a\0b"), structured={"k\0": ["\0v"]})
    assert (nul.parts[0], nul.structured) == (TextPart("ab"), {"k": ["v"]})
    assert failed_result("c1", "a\0b").text == "ab"


def test_a_protocol_error_reads_message_and_data() -> None:
    prefix = "Error calling MCP server: Internal error"
    assert error_text(MCPError(-32603, "Internal error", "Location not found")) == f"{prefix} - Location not found"
    assert error_text(MCPError(-32603, "Internal error", {"a": 1})) == f'{prefix} - {{"a": 1}}'
    assert error_text(MCPError(-32603, "Internal error", {})) == prefix
    secret = Redaction([Secret("zq7-hidden-Zk29vT4x")])
    quota = {"retryAfter": 30, "key": "zq7-hidden-Zk29vT4x", "note": "a\u200bb"}
    told = f'{prefix} - {{"retryAfter": 30, "key": "***", "note": "ab"}}'
    assert error_text(MCPError(-32603, "Internal error", quota), secret) == told
    long = error_text(MCPError(-32603, "Internal error", "x" * 1990 + "zq7-hidden-Zk29vT4x" + "y" * 100), secret)
    assert "zq7" not in long
    assert len(long) < 2100
    assert error_text(MCPError(-32603, "Internal error")) == prefix


LARGE = PNG + bytes(range(256)) * 8
PDF = b"%PDF-1.7 " + bytes(range(256)) * 8
NOISE = bytes(range(256)) * 8
LINES = base64.encodebytes(NOISE).decode()


def structured_blocks(*blocks: Any) -> dict[str, Any]:
    """Return blocks as structured content, as the FastMCP library sends them."""
    items = [block.model_dump(by_alias=True) for block in blocks]
    return {"result": items[0] if len(items) == 1 else items}


@pytest.mark.parametrize(
    "answer",
    [
        result(image(LARGE), structured=structured_blocks(image(LARGE))),
        result(words("Here:"), image(LARGE), structured=structured_blocks(words("Here:"), image(LARGE))),
        result(image(LARGE), structured={"format": "png", "data": base64_text(LARGE)}),
        result(structured={"shots": [{"url": f"data:image/png;base64,{base64_text(LARGE)}"}]}),
        result(words(f"![cat](data:image/png;base64,{base64_text(LARGE)})")),
        result(image(LARGE), words(json.dumps({"png": base64_text(LARGE)}).replace("/", "\\/"))),
        result(words(base64_text(LARGE))),
        result(words(base64.urlsafe_b64encode(LARGE).decode().rstrip("="))),
        result(image(LARGE).model_copy(update={"data": base64.urlsafe_b64encode(LARGE).decode().rstrip("=")})),
        result(image(LARGE).model_copy(update={"data": f"DATA:image/png;base64,{base64_text(LARGE)}"})),
        result(words(json.dumps(json.dumps({"png": base64.encodebytes(LARGE).decode()})))),
        result(words(json.dumps({"png": base64_text(LARGE)}).replace("/", "\\u002F").replace("=", "\\u003d"))),
        result(words(f"DATA:image/png;name=cat.png;base64,{quote(base64_text(LARGE), safe='')}")),
        result(words(base64.encodebytes(LARGE).decode().replace("\n", "\r\n    "))),
        result(words("> " + base64.encodebytes(LARGE).decode().strip().replace("\n", "\n> "))),
    ],
)
def test_an_image_in_base64_is_shown_once_and_never_as_a_text(answer: ToolResult) -> None:
    assert [part.data for part in answer.parts if isinstance(part, ImagePart)] == [LARGE]
    assert not [part for part in answer.parts if isinstance(part, FilePart)]
    assert all(len(word) <= 76 for word in answer.text_or_json.split()), answer.text_or_json
    assert len(json.dumps(answer.structured)) < 300


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"a {base64_text(NOISE)} b", "a [base64 left out: data, 2048 bytes] b"),
        (f"a\n{LINES}b", "a\n[base64 left out: data, 2048 bytes]\nb"),
        (json.dumps({"content": LINES, "n": 1}), '{"content": "[base64 left out: data, 2048 bytes]\\n", "n": 1}'),
        (f"data:;base64,{base64_text(NOISE)}", "[base64 left out: data, 2048 bytes]"),
        (f"data:text/csv;charset=utf-8;base64,{base64_text(b'a,b;' * 30)}", "[base64 left out: text/csv, 120 bytes]"),
        (base64_text(PDF), "[base64 left out: application/pdf, 2057 bytes]"),
        (LINES.strip().replace("\n", " "), "[base64 left out: data, 2048 bytes]"),
        (f"{LINES}name=x", "[base64 left out: data, 2048 bytes]\nname=x"),
        (base64_text(b"a,b,c\n1,2,3\n" * 40), "[base64 left out: data, 480 bytes]"),
        (base64_text(NOISE)[:2001], "[base64 left out: data, 1500 bytes]"),
    ],
)
def test_base64_in_a_text_becomes_a_note_with_its_size_and_type(text: str, left: str) -> None:
    assert result(words(text)).text == left
    assert failed_result("c1", text).text == left
    read = types.ReadResourceResult(contents=[types.TextResourceContents(uri="note://1", text=text)])
    [piece] = resource_pieces(read, Redaction([]))
    assert isinstance(piece, TextContents)
    assert piece.text == left


def test_a_known_file_in_base64_is_given_to_people() -> None:
    assert result(structured={"report": base64_text(PDF)}).parts[1:] == (FilePart(PDF, "application/pdf", ""),)


@pytest.mark.parametrize(
    "text",
    [
        "x" * 5_000,
        "0123456789abcdef" * 60,
        "AAMkAGI2TG93AAA" * 10 + "=",
        "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ" * 3,
        "https://example.com/" + "one-long/path_of/Words/" * 12,
        "ThisIsOneVeryLongIdentifier" * 30,
        "\n".join(f"/home/Alice/projects/project{n}/src/components/Button{n}" for n in range(10)),
    ],
)
def test_ids_addresses_and_words_of_any_length_stay(text: str) -> None:
    assert result(words(text), structured={"id": text}).text.startswith(text)
