"""An operator edits the files of a bot that runs: each change counts from the next question on, in every process."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

from tests.fakes.llm import Call, FakeLanguageModel, Reply, Request, Say
from tests.stories.installation import PROJECT, Installation, a_tool, becomes, says, scripted_server
from tests.stories.program import PATIENCE
from tests.stories.slack_program import a_company

README = (PROJECT / "README.md").read_text(encoding="utf-8")
ALLOWED = '[servers.dice.tools]\nroll = "ALWAYS_ALLOW"\n'
ROLLS = "roll"


def block(language: str, containing: str) -> str:
    """A block of the README."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    (text,) = [text for text in blocks if containing in text]
    return str(text)


def clerk(request: Request) -> Reply:
    """Rolls when told to, if there is a die."""
    if request.results:
        return Say(f"It said: {request.results[0].strip()}.")
    if request.question == ROLLS and "dice__roll" in request.tool_names:
        return Say(calls=(Call("dice__roll"),))
    return Say(f"You said: {request.question}.")


async def test_the_own_tool_of_the_readme_takes_no_restart(tmp_path: Path) -> None:
    place = Installation(tmp_path)
    place.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{place.environment['PATH']}"
    servers = tmp_path / "config" / "mcp_servers.json"
    async with place.terminal(columns=250) as terminal:
        await terminal.asks("Show my notes")  # the README's own question: words of others are in the conversation
        await terminal.shows("✓ notes.list")
        await terminal.prompts()
        (tmp_path / "dice.py").write_text(block("python", 'MCPServer("dice")'))
        before = json.loads(servers.read_text())
        entry = json.loads("{" + block("json", '"dice":').strip().rstrip(",") + "}")
        servers.write_text(json.dumps({"mcpServers": {**before["mcpServers"], **entry}}, indent=2))
        await terminal.asks("Roll a die", "[y] once")
        assert "mcp_servers.json changed: server dice added, 1 tool." in terminal.text
        await terminal.presses("y", "You rolled")
        policy = tmp_path / "config" / "policy.toml"
        await terminal.prompts()
        policy.write_text(policy.read_text() + block("toml", "[servers.dice.tools]"))
        terminal.type("Roll a die")  # at once, before anything is told
        await terminal.until(lambda: place.log.count("policy.toml changed") == 1, "the change in the log")
        await terminal.shows("policy.toml changed: dice.roll now runs without a card, except after words of strangers.")
        await terminal.until(lambda: terminal.text.count("✓ dice.roll") == 2, "the second roll")
        await terminal.prompts()
        assert "[y] once" not in terminal.lines[-1]


async def test_a_card_of_an_allowed_call_names_the_words_that_it_asks_for_and_the_way_out(tmp_path: Path) -> None:
    place = Installation(tmp_path)
    place.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{place.environment['PATH']}"
    (tmp_path / "dice.py").write_text(block("python", 'MCPServer("dice")'))
    servers = tmp_path / "config" / "mcp_servers.json"
    content = json.loads(servers.read_text())
    content["mcpServers"]["dice"] = {"command": "python", "args": ["dice.py"]}
    servers.write_text(json.dumps(content))
    policy = tmp_path / "config" / "policy.toml"
    policy.write_text(policy.read_text() + block("toml", "[servers.dice.tools]"))
    async with place.terminal(columns=250) as terminal:
        await terminal.asks("Show my notes", "✓ notes.list")
        await terminal.asks("Roll a die")
        await terminal.shows(
            "A rule allows this, but the model has read words of others (notes) · "
            "/new starts a conversation without them · can be approved by owner"
        )
        assert "may delete data" not in terminal.text
        await terminal.shows("[y] once")
        await terminal.presses("y", "You rolled")
        await terminal.prompts()
        await terminal.asks("/mcp policy explain dice roll", "runs, except after words of others")
        await terminal.asks("/new")
        await terminal.asks("Roll a die")
        await terminal.until(lambda: terminal.text.count("You rolled") == 2, "the roll without a card")


async def test_an_invalid_policy_is_told_above_the_prompt_and_changes_nothing(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    dice = scripted_server(tmp_path, "dice", a_tool("roll"), calls={"roll": says("a six")})
    place = Installation(tmp_path, {"dice": dice.entry}, model=model, policy=ALLOWED)
    async with place.terminal(columns=250) as terminal:
        await terminal.asks(ROLLS, "It said: a six.")
        await terminal.prompts()
        place.rule(ALLOWED.replace("ALWAYS_ALLOW", "ALWAYS_DENNY"))
        await terminal.shows(
            "config/policy.toml, line 2: servers.dice.tools.roll is 'ALWAYS_DENNY'. Fix: use one of",
            "AUTO. Nothing has changed: the previous files stay in use.",
        )
        await terminal.asks(ROLLS)
        await terminal.until(lambda: terminal.text.count("It said: a six.") == 2, "the second roll")
        await terminal.asks("/mcp list", "older files in use", "line 2")
        await terminal.asks("/mcp reload", "The operator's files cannot be used as they are saved.")
        await terminal.prompts()
        place.rule(ALLOWED.replace("ALWAYS_ALLOW", "ALWAYS_DENY"))
        await terminal.shows(
            "The operator's files can be used again.", "policy.toml changed: dice.roll is now forbidden."
        )
        await terminal.asks(ROLLS, "⊘ dice.roll")
    assert [name for name, _ in dice.calls] == ["roll", "roll"]


async def test_a_bot_in_slack_follows_its_files_and_operators_are_told_of_an_invalid_one(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    dice = scripted_server(tmp_path, "dice", a_tool("roll"), calls={"roll": says("a six")})
    async with a_company(tmp_path, model, {}) as company:
        slack = company.slack
        operations = slack.channel("operations", company.sam)
        company.place.environment["OPS_CHANNEL"] = f"slack:{operations.id}"
        servers = tmp_path / "config" / "mcp_servers.json"
        async with company.bot() as bot:
            asked = company.ask(ROLLS)
            await company.draws(asked.ts, "You said: roll.")
            servers.write_text(json.dumps({"mcpServers": {"dice": dice.entry}}))
            company.ask(ROLLS, asked.ts)
            card = await company.draws(asked.ts, "cs.approve")
            # A stricter policy holds for what has been asked already.
            company.place.rule(ALLOWED.replace("ALLOW", "DENY"))
            await slack.press(company.sam, card, "Approve: Roll")
            await company.draws(asked.ts, "policy")
            assert dice.calls == []
            company.place.rule(ALLOWED)
            third = company.ask(ROLLS)
            await company.draws(third.ts, "It said: a six.")
            await bot.logs(r"mcp_servers\.json changed: server dice added, 1 tool\.")
            await bot.logs(r"policy\.toml changed: dice\.roll is now forbidden\.")
            await bot.logs(r"policy\.toml changed: dice\.roll now runs without a card, except after words of others\.")

            company.place.rule("nonsense")
            await slack.until(lambda: slack.bot_messages(operations), PATIENCE)
            (message,) = slack.bot_messages(operations)
            for text in ("A changed file of the operator cannot be used", "policy.toml", "at line 1"):
                assert text in str(message.blocks)
            fourth = company.ask(ROLLS)
            await company.draws(fourth.ts, "It said: a six.")
            company.place.rule(ALLOWED)
            await slack.until(lambda: "files are in use as they are saved" in str(message.blocks), PATIENCE)
            assert bot.log.count("Nothing has changed: the previous files stay in use.") == 1
            assert "Traceback" not in bot.log


async def test_a_server_that_is_taken_out_of_the_file_ends_and_one_that_is_added_is_started(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    dice, cards = (scripted_server(tmp_path, name, a_tool("roll")) for name in ("dice", "cards"))
    place = Installation(tmp_path, {"dice": dice.entry}, model=model)
    async with place.terminal() as terminal:
        await terminal.asks("/mcp list", "● dice")
        (tmp_path / "config" / "mcp_servers.json").write_text(json.dumps({"mcpServers": {"cards": cards.entry}}))
        await terminal.shows("mcp_servers.json changed: server cards added, 1 tool; server dice removed.")
        await becomes(lambda: not any(Path(f"/proc/{pid}").exists() for pid in dice.pids), "the old one has ended")
        assert len(cards.pids) == 1


async def test_every_process_on_one_database_follows_the_files_and_leaves_its_row_in_the_audit(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    dice = scripted_server(tmp_path, "dice", a_tool("roll"), calls={"roll": says("a six")})
    place = Installation(tmp_path, {"dice": dice.entry}, model=model)
    async with place.terminal() as first, place.terminal("--new") as second:
        for terminal in (first, second):
            await terminal.asks("hello", "You said: hello.")
            await terminal.prompts()
        place.rule(ALLOWED)
        for terminal in (first, second):
            terminal.type(ROLLS)
        for terminal in (first, second):
            await terminal.shows("policy.toml changed: dice.roll now runs without a card", "It said: a six.")
        await second.asks("/mcp audit --kind files", "Audit · 2")
