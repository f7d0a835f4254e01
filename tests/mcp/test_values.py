"""Small pure functions: arguments, characters, redaction, pauses, repairs."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import types
from mcp_types import methods

from bot.domain.characters import visible
from bot.domain.servers import DesiredServer, HttpTransport, ServerConfig
from bot.mcp.argument_validation import group_by_argument, validate
from bot.mcp.calls import progress_text
from bot.mcp.redaction import PassingTokens, Redaction, Secret, public_address, secrets_of
from bot.mcp.results import clean_schema
from bot.mcp.transports.messages import repair_response

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "maximum": 7}},
    "required": ["city"],
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=3),
    max_leaves=6,
)
BLOCKS = st.dictionaries(st.sampled_from(["type", "text", "data", "mimeType", "uri", "name"]), JSON | st.just("text"))
TOOLS = st.dictionaries(
    st.sampled_from(["name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "_meta"]),
    JSON | st.just({"type": "object"}) | st.just({"type": "string", "required": 5, "properties": []}),
)


# arguments


def test_a_misfit_says_which_argument_it_is_about() -> None:
    schema = {**SCHEMA, "properties": {**SCHEMA["properties"], "deep": {"items": {"type": "integer"}}}}
    found = group_by_argument(schema, {"city": 1, "deep": [1, "x"]})
    assert [each.argument for each in found] == ["city", "deep"]
    assert found[1].problem.startswith("deep[1]: ")
    assert [each.argument for each in group_by_argument(SCHEMA, {})] == [""]
    assert group_by_argument(SCHEMA, {"city": "Bern"}) == ()


def test_arguments_that_fit_have_no_misfits() -> None:
    assert validate(SCHEMA, {"city": "Bern", "days": 3}) == ()


def test_each_misfit_says_which_argument_and_how() -> None:
    said = validate(SCHEMA, {"days": 9})
    assert any("'city' is a required property" in each for each in said)
    assert any(each.startswith("days: 9 is greater than") for each in said)


def test_the_phrases_are_few_and_short() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    said = validate(schema, {f"k{n}": "x" * 5000 for n in range(50)})
    assert len(said) == 5
    assert all(len(each) < 400 for each in said)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"type": "object", "properties": {"city": {"$ref": "http://127.0.0.1:9/schema.json"}}},
        {"type": "object", "properties": {"city": {"$ref": "#/$defs/none"}}},
        {"type": "object", "properties": {"city": {"type": "string", "pattern": "("}}},
        {"type": "object", "$ref": "#"},
    ],
)
def test_a_schema_that_is_broken_or_far_away_proves_nothing(schema: dict[str, Any]) -> None:
    assert validate(schema, {"city": "Bern"}) == ()


def slow_schemas() -> dict[str, dict[str, Any]]:
    forest: dict[str, Any] = {"d0": {"type": "object"}}
    forest |= {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n - 1}"}] * 2} for n in range(1, 60)}
    return {
        "a pattern": {"properties": {"city": {"pattern": "^(a+)+$"}}},
        "a pattern for names": {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
        "a pattern by another draft": {"properties": {"city": {"$schema": DRAFT_7, "pattern": "^(a+)+$"}}},
        "a forest of references": {"$ref": "#/$defs/d59", "$defs": forest},
    }


DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize("kind", slow_schemas())
def test_a_schema_that_would_take_years_proves_nothing(kind: str) -> None:
    tough = "a" * 60 + "!"
    assert validate({"type": "object", **slow_schemas()[kind]}, {"city": tough, tough: 1}) == ()


def test_the_rules_are_those_of_the_draft_that_the_schema_names() -> None:
    properties = {"city": {"$ref": "#/definitions/any", "type": "string"}}
    schema = {"type": "object", "properties": properties, "definitions": {"any": {}}}
    assert validate({**schema, "$schema": DRAFT_7}, {"city": 5}) == ()
    assert validate(schema, {"city": 5}) == ('city: 5 is not of type "string"',)


def test_a_number_beyond_all_bounds_is_left_to_the_server() -> None:
    assert validate({"type": "object", "properties": {"days": {"multipleOf": 0.1}}}, {"days": 10**400}) == ()


# characters


def test_invisible_characters_are_left_out() -> None:
    assert visible("Add\u200b \u202etwo\u2066 numbers\U000e0041\U000e0100\ufeff\0\n") == "Add two numbers\n"


def test_the_colours_of_a_terminal_go_as_a_whole() -> None:
    assert (
        visible("\x1b[1;31mError:\x1b[0m \x1b]0;title\x07no \x1b[K\x1b]8;;http://x\x1b\\disk\x1b]8;;\x1b\\")
        == "Error: no disk"
    )


def test_a_schema_is_made_visible_where_it_describes_and_nowhere_else() -> None:
    schema = {"properties": {"description": {"description": "a\u200b", "enum": ["x\u200b"], "title": "t\u200b"}}}
    assert clean_schema(schema, visible) == {
        "properties": {"description": {"description": "a", "enum": ["x\u200b"], "title": "t"}}
    }


# redaction


def test_secrets_read_as_stars_and_short_values_stay() -> None:
    redact = Redaction(map(Secret, ["hunter2!", "hunter2!-long", "true", ""]))
    assert redact("hunter2!-long hunter2! true") == "*** *** true"


def test_a_secret_is_found_in_every_spelling() -> None:
    secret = 'p"a\\ss/w\u00f6rd 1'
    redact = Redaction([Secret(f" {secret}\n")])
    for spelled in (
        secret,
        json.dumps(secret),
        json.dumps(secret, ensure_ascii=False),
        quote(secret),
        quote_plus(secret),
    ):
        assert "rd 1" not in redact(f"<{spelled}>").replace("+", " ").replace("%20", " "), spelled


def test_each_line_of_a_long_secret_is_one() -> None:
    lines = ["-----BEGIN KEY-----", "MIIEvQIBADANBgkqhkiG", "tail==", "-----END KEY-----"]
    redact = Redaction([Secret("\n".join(lines))])
    assert redact("\n".join(lines)) == "***"
    assert redact("it said MIIEvQIBADANBgkqhkiG") == "it said ***"
    assert redact("-----BEGIN KEY-----") == "-----BEGIN KEY-----"


@given(st.text(min_size=6).filter(lambda each: len(each.strip()) >= 6 and "*" not in each), st.text())
def test_no_text_shows_a_secret_after_redaction(secret: str, around: str) -> None:
    assert secret.strip() not in Redaction([Secret(secret)])(f"{around}{secret}{around}")


def test_secrets_that_come_and_go_are_hidden_for_some_time_and_lasting_ones_for_ever() -> None:
    tokens = PassingTokens()
    redact = Redaction([Secret("lasting-secret")], tokens)
    for number in range(20):
        tokens.add_generation((f"token-{number:02}-9kT4wQ2x",))
    assert redact("token-19-9kT4wQ2x token-12-9kT4wQ2x lasting-secret") == "*** *** ***"
    assert redact("token-00-9kT4wQ2x") == "token-00-9kT4wQ2x"
    tokens.clear()
    assert redact("token-19-9kT4wQ2x lasting-secret") == "token-19-9kT4wQ2x ***"


@pytest.mark.parametrize(
    "word", ["properties", "create_issue_v2", "additionalProperties", "permission denied", "draft-07"]
)
def test_others_cannot_have_words_hidden_by_calling_them_a_token(word: str) -> None:
    tokens = PassingTokens()
    tokens.add_generation((word,))
    assert Redaction((), tokens).json({"type": "object", word: word}) == {"type": "object", word: word}


@pytest.mark.parametrize(
    "token",
    [
        "gho_16C7e42F292c6912E7710c838347Ae178B4a",
        "5f0c9a3e-7d41-4b8e-9c55-0a1b2c3d4e5f",
        "mfzxgylsmvxgc43tnfxw4z3jnzsxe2lo",
        "ya29.a0AfH6SMBx-9kT4wQ2xLm",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    ],
)
def test_tokens_as_services_give_them_are_hidden(token: str) -> None:
    tokens = PassingTokens()
    tokens.add_generation((token,))
    assert Redaction((), tokens)(f"got {token}.") == "got ***."


def test_common_headers_of_clients_are_no_secrets() -> None:
    transport = HttpTransport("https://example.org", {"Accept": "application/json", "user-agent": "countersign"})
    assert (
        Redaction(secrets_of(DesiredServer(ServerConfig("s", transport))))("application/json countersign").count("***")
        == 0
    )


def test_a_password_in_an_address_is_secret_in_the_form_in_which_it_is_sent() -> None:
    redact = Redaction(
        secrets_of(DesiredServer(ServerConfig("s", HttpTransport("https://ana:p%40ssw0rd@example.org/mcp"))))
    )
    for shown in ("p@ssw0rd", "p%40ssw0rd", "Basic YW5hOnBAc3N3MHJk"):
        assert redact(shown) in ("***", "Basic ***")


def test_the_secrets_of_a_definition_are_its_headers_and_the_hidden_parts_of_its_address() -> None:
    transport = HttpTransport("https://ana:passw0rd@example.org/mcp?key=abcdef", {"Authorization": "Bearer tok-en-1"})
    redact = Redaction(secrets_of(DesiredServer(ServerConfig("s", transport))))
    assert redact("passw0rd, key=abcdef, tok-en-1") == "***, ***, ***"
    assert public_address(transport.url) == "https://example.org/mcp"


# pacing


# progress


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((2.0, 5.0, "copying"), "2/5 copying"),
        ((2.0, None, "copying"), "copying"),
        ((2.0, None, None), "2"),
        ((0.5, 1.0, None), "0.5/1"),
        ((1.0, None, "a\n\u202eb"), "a b"),
        ((1.0, None, "x" * 195 + "top-\u200bsecret"), "x" * 195 + "***"),
    ],
)
def test_progress_is_one_line(arguments: tuple[float, float | None, str | None], expected: str) -> None:
    assert progress_text(*arguments, Redaction([Secret("top-secret")])) == expected


# repairs


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@given(tools=st.lists(TOOLS | JSON, max_size=4), content=st.lists(BLOCKS | JSON, max_size=4) | JSON, extra=JSON)
def test_any_json_of_a_server_is_acceptable_after_the_repair(
    version: str, tools: list[Any], content: Any, extra: Any
) -> None:
    stamp = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    listing = repair_response("tools/list", {**stamp, "tools": tools, "nextCursor": extra})
    methods.validate_server_result("tools/list", version, listing)
    types.ListToolsResult.model_validate(listing, by_name=False)
    outcome = repair_response("tools/call", {**stamp, "content": content, "structuredContent": extra, "isError": extra})
    methods.validate_server_result("tools/call", version, outcome)
    types.CallToolResult.model_validate(outcome, by_name=False)
