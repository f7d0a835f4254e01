"""A server lists its tools as its library happened to write them, and the model's service is particular about that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.llm import Api, Call, FakeLanguageModel, Reply, Request, Say, Status
from tests.fakes.llm_openai import refused_parameters
from tests.stories.installation import Installation, a_tool, scripted_server

SEARCH = {
    "name": "search",
    "description": "Finds orders.",
    "inputSchema": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "$filter": {"type": "string", "pattern": "^(?!drop)"},
            "fields": {"type": "array"},
            "page": {"$ref": "#/definitions/page"},
        },
        "oneOf": [{"required": ["$filter"]}, {"required": ["fields"]}],
        "definitions": {"page": {"type": "object", "properties": {"next": {"$ref": "#/definitions/page"}}}},
    },
}
"""Everything about this schema is refused by one vendor or the other."""


class Particular:
    """A service that refuses the tool `shop__odd` with any schema."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)

    def __call__(self, request: Request) -> Reply:
        if "shop__odd" not in request.tool_names:
            return self._replies.pop(0)
        n = request.tool_names.index("shop__odd")
        if request.api == "openai":
            return refused_parameters(n, "Invalid schema for function 'shop__odd': In context=(), no.")
        return Status(400, f"tools.{n}.custom.input_schema: no.", "invalid_request_error")


@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_an_awkward_tool_works_and_an_impossible_one_is_left_out(tmp_path: Path, api: Api) -> None:
    shop = scripted_server(tmp_path, "shop", SEARCH, a_tool("odd", item="string"))
    service = Particular(Say(calls=(Call("shop__search", {"$filter": "open"}),)), Say("Two orders are open."))
    with FakeLanguageModel(api, rule=service) as model:
        place = Installation(tmp_path, {"shop": shop.entry}, model=model, MCP_APPROVAL_DEFAULT_POLICY="ALWAYS_ALLOW")
        async with place.terminal() as terminal:
            await terminal.asks("which orders are open?")
            await terminal.shows("does not accept the definition of shop__odd", "Two orders are open.")
    assert shop.calls == [("search", {"$filter": "open"})]
    assert model.refusals == []
    assert [request.tool_names for request in model.requests] == [
        ("shop__odd", "shop__search"),
        ("shop__search",),
        ("shop__search",),
    ]
