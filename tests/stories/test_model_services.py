"""The model is a service on the network: it streams, it stumbles, it refuses, and it must never leak its key."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fakes.llm import Api, Call, Cut, FakeLanguageModel, Gate, Reply, Request, Say, Status
from tests.stories.installation import KEY, Installation, a_tool, scripted_server
from tests.turn_events import check_event

APIS: tuple[Api, ...] = ("openai", "responses", "anthropic")
VARIABLES = {"openai": "OPENAI", "responses": "OPENAI", "anthropic": "ANTHROPIC"}
RETRY_AFTER = 3


class Script:
    """The replies in their order, and when each was asked for."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)
        self.times: list[float] = []

    def __call__(self, request: Request) -> Reply:
        self.times.append(time.monotonic())
        return self._replies.pop(0)


async def test_calls_come_in_fragments_and_a_stumbling_service_is_asked_again(tmp_path: Path) -> None:
    shop = scripted_server(tmp_path, "shop", a_tool("price", item="string"))
    half = Say("The first half was fine.\n\nThe second half was", pieces=9)
    first_cut, second_cut = Gate(), Gate()
    script = Script(
        # fragments, and several at once
        Say("Looking.", calls=tuple(Call("shop__price", {"item": item}) for item in ("cup", "tea pot")), pieces=9),
        Say("Both cost the same."),
        # arguments that are no JSON
        Say(calls=(Call("shop__price", '{"item": "cu'), Call("shop__price", {"item": 5}))),
        Say("I wrote that badly."),
        # a stream that is cut, then a failure, then a request to wait
        Cut(half, gate=first_cut),
        Status(500, "out of order"),
        Status(429, "slow down", headers={"retry-after": str(RETRY_AFTER)}),
        Say("Whole again."),
        # a stream that is cut, and no second chance
        Cut(half, gate=second_cut),
        Status(400, "no more of this", "invalid_request_error"),
    )
    with FakeLanguageModel("openai", rule=script) as model:
        place = Installation(tmp_path, {"shop": shop.entry}, model=model, MCP_APPROVAL_DEFAULT_POLICY="ALWAYS_ALLOW")
        async with place.terminal() as terminal:
            await terminal.asks("what do a cup and a tea pot cost?", "Looking.", "Both cost the same.")
            assert sorted(shop.calls, key=str) == [("price", {"item": "cup"}), ("price", {"item": "tea pot"})]
            assert model.requests[-1].results == ("done", "done")
            assert terminal.text.count("✓ shop.price") == 2

            await terminal.asks("and badly?", "I wrote that badly.")
            assert len(shop.calls) == 2
            unreadable, misfit = model.requests[-1].results
            assert "the arguments are not a JSON object" in unreadable
            assert "item" in misfit
            assert terminal.text.count("✗ shop.price") == 2

            await terminal.asks("tell me something whole", "The first half was fine.", "The second half was")
            first_cut.open()
            await terminal.shows(f"Trying again in {RETRY_AFTER} s. The model service at 127.0.0.1", "Whole again.")
            await terminal.hides("The second half")
            assert "The second half" not in terminal.text
            assert script.times[7] - script.times[6] >= RETRY_AFTER

            await terminal.asks("and once more")
            await terminal.until(lambda: terminal.text.count("The second half was") == 1, "the second half")
            second_cut.open()
            await terminal.shows("no more of this")
            await terminal.until(lambda: terminal.lines[-3].endswith("no more of this."), "the failure at the end")
            assert "The second half" not in terminal.text
    assert model.refusals == []


def test_a_program_is_told_when_a_busy_model_is_asked_again(tmp_path: Path) -> None:
    busy = Status(429, "slow down", headers={"retry-after": "1"})
    with FakeLanguageModel("openai", rule=Script(busy, Say("There it is."))) as model:
        said = Installation(tmp_path, {}, model=model).chat("--json", "-m", "hello")
    assert said.code == 0, said.err
    (paused,) = [check_event(event)["data"] for event in said.events if event["event"] == "model_retry"]
    assert (paused["seconds"], "slow down" in paused["reason"]) == (1, True)
    assert said.events[-1]["data"]["text"] == "There it is."


@pytest.mark.parametrize("api", APIS)
def test_a_wrong_key_is_told_with_its_fix_and_shown_nowhere(tmp_path: Path, api: Api) -> None:
    refusal = Status(401, f"Incorrect API key provided: {KEY}.", "invalid_request_error", code="invalid_api_key")
    with FakeLanguageModel(api, refusal) as model:
        place = Installation(tmp_path, {}, model=model, LOG_LEVEL="debug")
        said = place.chat("-m", "hello")
    assert (said.code, said.out) == (1, "")
    assert "does not accept the key (401)" in said.err
    assert (
        f"The operator has to check {VARIABLES[api]}_API_KEY: it needs a valid key that may use test-model." in said.err
    )
    assert KEY not in said.err
    written = place.folder_files()
    assert {"data/countersign.db", "data/countersign.log"} <= written.keys()
    assert [name for name, content in written.items() if KEY.encode() in content] == []
    assert KEY in str(model.requests[0].headers), "it was used"
