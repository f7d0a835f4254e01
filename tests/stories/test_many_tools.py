"""A server has more tools than a model should be given: it finds the one it needs, and a person signs for that one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.llm import Api, Call, FakeLanguageModel, Request, Say
from tests.stories.installation import Installation, a_tool, scripted_server
from tests.stories.test_approvals import card

OWN = ("countersign__search_tools", "countersign__call_tool", "countersign__read_result")
TRANSFER = {**a_tool("transfer", account="string", euros="integer"), "description": "Wire money to an account."}


def paying(request: Request) -> Say:
    """A model that knows no tool but those it finds."""
    if request.question != "pay the rent":
        return Say("You are welcome.")
    if not request.results:
        return Say(calls=(Call(OWN[0], {"query": "wire money to an account"}),))
    if "Tools for" not in request.results[-1]:
        return Say(f"The bank says: {request.results[-1]}.")
    hit = json.loads(request.results[-1].splitlines()[2])
    assert hit["arguments"]["required"] == ["account", "euros"]
    return Say(calls=(Call(OWN[1], {"name": hit["name"], "arguments": {"account": "DE12", "euros": 700}}),))


@pytest.mark.parametrize("api", ["openai", "responses", "anthropic"])
async def test_a_tool_that_was_found_is_approved_by_its_own_name_also_after_a_restart(tmp_path: Path, api: Api) -> None:
    others = (a_tool(f"report_{n}", reads=True, year="integer") for n in range(60))
    bank = scripted_server(tmp_path, "bank", *others, TRANSFER)
    with FakeLanguageModel(api, rule=paying) as model:
        place = Installation(tmp_path, {"bank": bank.entry}, model=model, HISTORY_TOOL_STEPS="full")
        async with place.terminal("--new", "--conversation", "rent") as terminal:
            await terminal.asks("pay the rent")
            screen = await card(
                terminal, "▌ Transfer (bank)?", "▌ Server bank   Tool transfer", "▌ account  DE12", "▌ euros    700"
            )
            assert '✓ countersign.search_tools  Tools for "wire money to an account": bank__tra' in screen
            assert "call_tool" not in screen
            assert bank.calls == []

        async with place.terminal("--conversation", "rent") as terminal:
            await card(terminal, "▌ Transfer (bank)?", "▌ account  DE12", "▌ euros    700")
            assert bank.calls == []
            await terminal.presses("y", "▌ Approved.", "✓ bank.transfer", "The bank says: done.")
            await terminal.asks("thank you", "You are welcome.")
    assert bank.calls == [("transfer", {"account": "DE12", "euros": 700})]
    assert [request.tool_names for request in model.requests] == [OWN] * 4
    assert OWN[1] in json.dumps(model.requests[-1].body["input" if api == "responses" else "messages"])
    assert model.refusals == []


def listed_names(request: Request) -> str:
    """Return the texts about names of tools that the model's service received."""
    (schema,) = (
        function.get("parameters") or function.get("input_schema")
        for function in (each.get("function", each) for each in request.body["tools"])
        if function["name"] == OWN[0]
    )
    description: str = schema["properties"]["names"]["description"]
    return description


def picking(request: Request) -> Say:
    """A model that picks the tool by its name in the list."""
    if not request.results:
        assert "bank: report_0, " in listed_names(request)
        assert ", transfer" in listed_names(request)
        return Say(calls=(Call(OWN[0], {"names": ["bank__transfer", "bank__transmit"]}),))
    if "Tools by name" not in request.results[-1]:
        return Say(f"The bank says: {request.results[-1]}.")
    first, missing, _, hit = request.results[-1].splitlines()
    assert (first, json.loads(hit)["name"]) == ("Tools by name: bank__transfer", "bank__transfer")
    assert missing.startswith("There is no tool called 'bank__transmit'.")
    return Say(calls=(Call(OWN[1], {"name": "bank__transfer", "arguments": {"account": "DE12", "euros": 700}}),))


@pytest.mark.parametrize("api", ["openai", "responses", "anthropic"])
def test_a_model_picks_a_tool_by_its_name_in_the_list_and_needs_no_search(tmp_path: Path, api: Api) -> None:
    others = (a_tool(f"report_{n}_of_the_branches_of_the_bank_in_all_countries", reads=True) for n in range(100))
    bank = scripted_server(tmp_path, "bank", *others, a_tool("report_0", reads=True), TRANSFER)
    with FakeLanguageModel(api, rule=picking) as model:
        place = Installation(tmp_path, {"bank": bank.entry}, model=model)
        said = place.chat("-m", "pay the rent", "--approve", "all")
    assert (said.code, bank.calls) == (0, [("transfer", {"account": "DE12", "euros": 700})]), said.err
    assert "The bank says: done." in said.out
    assert model.refusals == []


def test_a_folder_without_a_model_for_the_search_is_told_before_the_first_message(tmp_path: Path) -> None:
    place = Installation(tmp_path, {}, TOOL_SEARCH_EMBEDDINGS=str(tmp_path / "nowhere"))
    said = place.chat("-m", "hello")
    assert said.code != 0
    assert "TOOL_SEARCH_EMBEDDINGS: " in said.err
    assert "Fix: name the folder of a model2vec model on this machine" in said.err
    examined = place.countersign("doctor")
    assert examined.code != 0
    assert "TOOL_SEARCH_EMBEDDINGS: " in examined.out


def test_without_search_the_model_gets_as_many_tools_as_its_service_takes_and_users_read_it(tmp_path: Path) -> None:
    bank = scripted_server(tmp_path, "bank", *(a_tool(f"report_{n}", reads=True) for n in range(130)))
    with FakeLanguageModel("openai", Say("Hello.")) as model:
        place = Installation(tmp_path, {"bank": bank.entry}, model=model, TOOL_SEARCH="off")
        said = place.chat("-m", "hello")
    assert said.code == 0
    assert len(model.requests[0].tool_names) == 128
    assert "2 of the 130 tools of server bank are left out" in said.err


def test_the_demo_model_which_searches_nothing_still_finds_its_tool_among_many(tmp_path: Path) -> None:
    others = (a_tool(f"report_{n}", reads=True) for n in range(60))
    bank = scripted_server(tmp_path, "bank", *others, a_tool("ring_the_bell"))
    place = Installation(tmp_path, {"bank": bank.entry})
    said = place.chat("-m", "ring the bell", "--approve", "all")
    assert (said.code, bank.calls) == (0, [("ring_the_bell", {})]), said.err


def test_the_tools_of_a_server_that_is_called_like_the_bot_are_approved_like_all_others(tmp_path: Path) -> None:
    tools = (a_tool(name.partition("__")[2], query="string") for name in OWN)
    server = scripted_server(tmp_path, "countersign", *tools)

    def asking(request: Request) -> Say:
        if request.results:
            return Say("I see.")
        return Say(calls=tuple(Call(name, {"query": "all"}) for name in (*OWN, *request.tool_names)))

    with FakeLanguageModel("openai", rule=asking) as model:
        place = Installation(tmp_path, {"countersign": server.entry}, model=model)
        place.chat("-m", "go", "--approve", "none")
        assert server.calls == []
        place.chat("-m", "go", "--approve", "all")
    assert not set(OWN) & set(model.requests[0].tool_names)
    assert sorted(server.calls) == sorted((name.partition("__")[2], {"query": "all"}) for name in OWN)
