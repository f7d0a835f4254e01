"""`countersign setup model` and `countersign setup`: the language model, and the menu of all parts."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.llm import Call, FakeLanguageModel, Say
from tests.fakes.llm_models import Models
from tests.stories.setup_program import SetupFolder, answers, expect_refusal

CALLED = Say(calls=(Call("note_word", {"word": "ready"}),))
AS_TEXT = '{"name": "note_word", "arguments": {"word": "ready"}}'
KEY = "sk-ant-5f0c1e77aa93b6d2"


async def test_a_person_connects_a_provider(tmp_path: Path) -> None:
    with FakeLanguageModel("anthropic", rule=lambda _request: CALLED) as service:
        service.models = Models("anthropic", {"claude-sonnet-5-5": 200_000, "claude-haiku-5": 200_000}, key=KEY)
        setup = SetupFolder(tmp_path, ANTHROPIC_BASE_URL=service.base_url)
        async with setup.at_terminal("model") as terminal:
            await answers(terminal, "Which provider do you use?")
            await expect_refusal(terminal, "Anthropic key", "", "Nothing was entered.", "copy the key")
            await answers(terminal, "Which provider do you use?")
            await expect_refusal(
                terminal, "Anthropic key", "xoxb-1-2", "That is a token of Slack", "the key of the provider"
            )
            await answers(terminal, "Which provider do you use?")
            await expect_refusal(terminal, "Anthropic key", "sk-wrong", "does not accept the key", "ANTHROPIC_API_KEY")
            assert not setup.env.exists()
            await answers(terminal, "Which provider do you use?")
            await answers(terminal, "Anthropic key", KEY)
            await answers(terminal, "Which model?")
            assert await terminal.wait_for_exit() == 0
            assert "✓ model · anthropic:claude-sonnet-5-5 tool call  It called the tool" in terminal.text
            assert "Next: countersign chat" in terminal.text
            assert KEY.encode() not in terminal.raw
        assert setup.values["BOT_MODEL"] == "anthropic:claude-sonnet-5-5"
        assert setup.values["ANTHROPIC_API_KEY"] == KEY
        assert setup.mode == 0o600
        # Again it is ticked; with --redo the key is offered.
        async with setup.at_terminal("model") as terminal:
            assert await terminal.wait_for_exit() == 0
            assert "✓ anthropic:claude-sonnet-5-5" in terminal.text
        async with setup.at_terminal("model", "--redo", "model") as terminal:
            await answers(terminal, "Which provider do you use?")
            await answers(terminal, "Use the ANTHROPIC_API_KEY in .env?")
            await answers(terminal, "Which model?", "1", last=True)
            assert await terminal.wait_for_exit() == 0
        assert setup.values["BOT_MODEL"] == "anthropic:claude-haiku-5"


async def test_a_server_of_ones_own_needs_an_address_and_perhaps_no_key(tmp_path: Path) -> None:
    with FakeLanguageModel("openai", Say(AS_TEXT)) as service:
        service.models = Models("vllm", {f"model-{n}": 32_000 for n in range(20)})
        setup = SetupFolder(tmp_path)
        async with setup.at_terminal("model") as terminal:
            await answers(terminal, "Which provider do you use?", "5")
            await expect_refusal(terminal, "Address of the server", "localhost", "not the address of a server", "whole")
            await answers(terminal, "Which provider do you use?", "5")
            await answers(terminal, "Address of the server", service.base_url)
            await answers(terminal, "Key; Enter if the server needs none")
            await terminal.shows("The service has 20 models.")
            await answers(terminal, "Name of the model", "model-99")
            await terminal.shows("The service does not list 'model-99'", "such as model-")
            await answers(terminal, "Use it anyway?")
            await answers(terminal, "Name of the model", "model-7", last=True)
            assert await terminal.wait_for_exit() == 0
            assert "It wrote a trial call as text" in terminal.text
            assert "--tool-call-parser NAME" in terminal.text
        assert setup.values == {"BOT_MODEL": "openai:model-7", "OPENAI_BASE_URL": service.base_url}


async def test_a_script_connects_a_model(tmp_path: Path) -> None:
    with FakeLanguageModel("openai", CALLED) as service:
        service.models = Models("openrouter", {"some/model": 32_000}, key=KEY)
        setup = SetupFolder(tmp_path, OPENROUTER_BASE_URL=service.base_url)
        outcome = await setup.prints("model", "--print")
        assert (outcome.code, "BOT_MODEL=openrouter:NAME" in outcome.out) == (4, True)
        words = ("model", "--print", "--write", "--stdin", "--model", "openrouter:some/model")
        outcome = await setup.prints(*words, typed="OPENROUTER_API_KEY=wrong")
        assert outcome.code == 1
        assert "does not accept the key" in outcome.out
        assert not setup.env.exists()
        outcome = await setup.prints(*words, typed=f"OPENROUTER_API_KEY={KEY}")
        assert outcome.code == 0, outcome.out
        assert setup.values == {"BOT_MODEL": "openrouter:some/model", "OPENROUTER_API_KEY": KEY}
        assert KEY not in outcome.out + outcome.err


async def test_without_arguments_it_asks_for_a_choice(tmp_path: Path) -> None:
    setup = SetupFolder(tmp_path)
    async with setup.at_terminal() as terminal:
        await terminal.shows("1. Slack", "2. Discord", "3. Language model", "the demo model", "4. Nothing else")
        await answers(terminal, "What do you want to set up?", "3")
        await answers(terminal, "Which provider do you use?", "6")
        await answers(terminal, "What do you want to set up?", "4", last=True)
        assert await terminal.wait_for_exit() == 0
        assert "No platform is set up" in terminal.text
    assert setup.values == {"BOT_MODEL": "demo"}
    outcome = await setup.prints("--print")
    assert outcome.code == 4
    assert "Slack: not set up. Its steps: countersign setup slack --print" in outcome.out
    assert "The demo model answers." in outcome.out
