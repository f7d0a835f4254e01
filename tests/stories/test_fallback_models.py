"""The preferred model is away: another answers, people are told, and the doctor says how each of them stands."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fakes.llm import Call, FakeLanguageModel, Models, Request, Say, Status
from tests.stories.installation import Installation

CHAIN = "anthropic:house, ollama:qwen3"


def overload_status(_request: Request) -> Status:
    return Status(529, "Overloaded", "overloaded_error")


def test_another_model_answers_and_a_line_beneath_says_so(tmp_path: Path) -> None:
    with (
        FakeLanguageModel("anthropic", rule=overload_status) as house,
        FakeLanguageModel("openai", Say("Here.")) as ollama,
    ):
        place = Installation(
            tmp_path,
            {},
            BOT_MODEL=CHAIN,
            ANTHROPIC_API_KEY="sk-ant-0123456789",
            ANTHROPIC_BASE_URL=house.base_url,
            OLLAMA_BASE_URL=ollama.base_url,
        )
        said = place.chat("-m", "are you there?")
    assert (said.code, said.out.strip()) == (0, "Here.")
    assert "Answered by ollama:qwen3 instead of anthropic:house: The model service at 127.0.0.1:" in said.err
    assert "is overloaded (529)." in said.err
    assert len(house.requests) == 1


def test_the_doctor_has_a_line_for_each_and_a_missing_key_is_told_at_the_start(tmp_path: Path) -> None:
    running = Models("ollama", {"qwen3:latest": 8_192}, running={"qwen3:latest"})
    with (
        FakeLanguageModel("anthropic", models=Models("anthropic", {"house": 1}, key="another")) as house,
        FakeLanguageModel("openai", Say(calls=(Call("note_word", {"word": "ready"}),)), models=running) as ollama,
    ):
        place = Installation(
            tmp_path, {}, BOT_MODEL=CHAIN, ANTHROPIC_BASE_URL=house.base_url, OLLAMA_BASE_URL=ollama.base_url
        )
        place.environment["ANTHROPIC_API_KEY"] = "sk-ant-0123456789"
        doctor = place.countersign("doctor", "--json")
        del place.environment["ANTHROPIC_BASE_URL"], place.environment["ANTHROPIC_API_KEY"]
        refused = place.chat("-m", "hello")
    found = {line["name"]: line for line in map(json.loads, doctor.out.splitlines()) if line["subject"] == "model"}
    assert doctor.code == 1
    assert found["anthropic:house"]["finding"] == "failed"
    assert "does not accept the key (401)" in found["anthropic:house"]["detail"]
    assert "ANTHROPIC_API_KEY" in found["anthropic:house"]["fix"]
    assert found["ollama:qwen3"]["finding"] == "ok"
    assert "Its window has 8,192 tokens." in found["ollama:qwen3"]["detail"]
    assert found["ollama:qwen3 tool call"]["finding"] == "ok"
    assert (len(house.requests), len(ollama.requests)) == (0, 1)
    assert (refused.code, refused.out) == (2, "")
    assert "The model anthropic:house needs a key. Fix: set ANTHROPIC_API_KEY" in refused.err
    assert "leave anthropic:house out of the list" in refused.err
