"""The real program in Slack and in Discord: an admin has a program started by one of the operator's templates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.llm import FakeLanguageModel, Reply, Request, Say
from tests.stories import discord_program, slack_program

RAW = Path(__file__).parent.parent / "fakes/mcp/raw.py"
SCRIPT = {"listings": [[{"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}]]}


def clerk(request: Request) -> Reply:
    return Say(f"You said: {request.question}.")


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """The scripted server, told a folder and a team."""
    (tmp_path / "below/docs").mkdir(parents=True)
    script = json.dumps(SCRIPT).replace("{", "{{").replace("}", "}}")
    file = tmp_path / "templates.toml"
    file.write_text(
        f"""
[templates.scripted]
title = "Scripted"
command = "python"
args = ["-S", "-E", '{RAW}', '{script}', "{{path}}", "--team={{team}}"]
[templates.scripted.slots.path]
type = "path"
below = "{tmp_path / "below"}"
title = "Folder"
[templates.scripted.slots.team]
type = "choice"
choices = ["red", "blue"]
default = "red"
title = "Team"
""",
        encoding="utf-8",
    )
    return file


async def test_in_slack_the_modal_asks_for_template_slots_and_consent_to_the_exact_command(
    tmp_path: Path, model: FakeLanguageModel, template: Path
) -> None:
    settings = {"MCP_LAUNCH_TEMPLATES_FILE": str(template)}
    async with slack_program.a_company(tmp_path, model, {}, **settings) as company, company.bot() as bot:
        slack, sam = company.slack, company.sam
        await slack.command(sam, "/mcp", "add", company.incidents)
        await slack.until(lambda: slack.modals(sam))
        await slack.submit(sam, {"Name": "docs", "Transport": "template", "Policy": "allow"})
        await slack.submit(sam, {"Launch template": "scripted"})
        await slack.submit(sam, {"Folder": "../..", "Team": "blue"})
        assert set(slack.modal(sam).errors) == {"field.slot_path"}
        await slack.submit(sam, {"Folder": "docs"})
        assert f"{tmp_path / 'below/docs'} --team=blue" in str(slack.modal(sam))
        await slack.submit(sam, {"Confirm": "docs"})
        await company.hears(sam, "docs is added.", "1 tool")
        assert slack.modals(sam) == []
        await slack.command(sam, "/mcp", "add other template=scripted path=none", company.incidents)
        await company.hears(sam, "Nothing was added.", "There is no ")
        assert not slack.calls.failed_calls()
        assert "Traceback" not in bot.log


async def test_in_discord_one_line_asks_for_consent_to_the_exact_command(
    tmp_path: Path, model: FakeLanguageModel, template: Path
) -> None:
    settings = {"MCP_LAUNCH_TEMPLATES_FILE": str(template)}
    async with discord_program.a_company(tmp_path, model, {}, **settings) as company, company.bot() as bot:
        discord, sam, incidents = company.discord, company.sam, company.incidents
        given = {"name": "docs", "slots": "template=scripted path=docs"}
        await discord.command(sam, "mcp add", incidents, given)
        await discord.submit(sam, {"Confirm": "docs"})
        await company.reads(incidents, "`docs` is added.", "1 tool", "below/docs --team=red", user=sam)
        assert not discord.calls.failed_calls()
        assert "Traceback" not in bot.log
