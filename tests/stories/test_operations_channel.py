"""The operations channel of the real program: servers that fail and come back, the doctor's check of the channel."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from bot.platforms.discord.diagnostics import PERMISSIONS
from tests.fakes.discord.permissions import NOTHING
from tests.fakes.fork_server import SHORTER_WAITS
from tests.fakes.llm import FakeLanguageModel, Reply, Request, Say
from tests.stories import discord_program, slack_program
from tests.stories.installation import a_tool, scripted_server
from tests.stories.program import PATIENCE

QUICK = {
    SHORTER_WAITS: json.dumps({"bot.engine.faults.POLL_SECONDS": 0.2, "bot.chat.operations_channel.CYCLE_SECONDS": 0.2})
}
ONE_ATTEMPT = {"MCP_RECONNECTION_MAX_ATTEMPTS": "1", "MCP_RECONNECTION_INITIAL_DELAY_MS": "100"}


def clerk(request: Request) -> Reply:
    return Say(f"You said: {request.question}.")


async def test_operators_read_in_slack_that_a_server_failed_and_that_it_recovered(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    shop = scripted_server(tmp_path, "shop", a_tool("price"))
    program = tmp_path / "server.py"
    entry = {**shop.entry, "args": [str(program), *shop.entry["args"][1:]]}
    async with slack_program.a_company(tmp_path, model, {"shop": entry}, **ONE_ATTEMPT, **QUICK) as company:
        slack = company.slack
        operations = slack.channel("operations", company.sam)
        company.place.environment["OPS_CHANNEL"] = f"slack:{operations.id}"
        async with company.bot() as bot:
            await slack.until(lambda: slack.bot_messages(operations), PATIENCE)
            (message,) = slack.bot_messages(operations)
            for text in ("MCP server shop has failed", "/mcp show shop", "docs/server-repair.md"):
                assert text in str(message.blocks)
            shutil.copy(shop.entry["args"][0], program)
            await slack.command(company.sam, "/mcp", "connect shop", operations)
            await slack.until(lambda: "MCP server shop recovered" in str(message.blocks), PATIENCE)
            assert "After " in str(message.blocks)
            assert len([each for each in slack.bot_messages(operations) if not each.ephemeral_to]) == 1
            assert "Traceback" not in bot.log
        assert not slack.calls.failed_calls()


async def test_operators_read_in_discord_that_entries_of_the_configuration_are_ignored(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    policy = '[servers.no-such-server.tools]\nadd = "ASK_USER"\n'
    async with discord_program.a_company(tmp_path, model, {}, **QUICK) as company:
        servers = {"mcpServers": {"notes": {"command": "x", "no-such-key": 1, "disabled": True}}}
        (tmp_path / "config" / "mcp_servers.json").write_text(json.dumps(servers))
        company.place.rule(policy)
        operations = company.discord.channel("operations")
        company.place.environment["OPS_CHANNEL"] = f"discord:{company.discord.guild.id}:{operations.id}"
        async with company.bot() as bot:
            message = await company.reads(operations, "ignored", "no-such-server", "countersign doctor")
            assert len(company.discord.bot_messages(operations)) == 1
            assert message
            assert "Traceback" not in bot.log


async def test_the_doctor_says_whether_the_channel_can_be_written_to(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with slack_program.a_company(tmp_path / "slack", model, {}) as company:
        operations = company.slack.channel("operations", company.sam)

        async def check(channel: str) -> str:
            company.place.environment["OPS_CHANNEL"] = channel
            outcome = await asyncio.to_thread(company.place.countersign, "doctor")
            (line,) = [line for line in outcome.out.splitlines() if "operations · ops channel" in line]
            return line

        assert (await check(f"slack:{operations.id}")).startswith("✓")
        assert "the bot is in" in await check(f"slack:T0OTHER:{operations.id}")
        assert "Fix: correct OPS_CHANNEL, or invite the bot" in await check("slack:C0NOWHERE")
        operations.archived = True
        assert "It is archived." in await check(f"slack:{operations.id}")
        assert "which is not configured" in await check("discord:1:2")

    async with discord_program.a_company(tmp_path / "discord", model, {}) as guild:
        place = guild.discord.channel("operations")

        async def check_discord(channel: str) -> str:
            guild.place.environment["OPS_CHANNEL"] = channel
            outcome = await asyncio.to_thread(guild.place.countersign, "doctor")
            (line,) = [line for line in outcome.out.splitlines() if "operations · ops channel" in line]
            return line

        assert (await check_discord(f"discord:{guild.discord.guild.id}:{place.id}")).startswith("✓")
        assert "It is no channel of server 7." in await check_discord(f"discord:7:{place.id}")
        guild.discord.guild.everyone.permissions = NOTHING
        line = await check_discord(f"discord:{place.id}")
        assert line.startswith("✗")
        assert PERMISSIONS[0].name in line or "cannot see the channel" in line


async def test_operators_read_that_a_limit_is_reached_and_that_the_audit_does_not_verify(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with slack_program.a_company(tmp_path, model, {}, **QUICK) as company:
        slack, place = company.slack, company.place
        operations = slack.channel("operations", company.sam)
        limit = '[[limits]]\nper = "person"\nevery = "day"\ntokens = 1\n'
        (tmp_path / "config" / "limits.toml").write_text(limit)
        place.environment["OPS_CHANNEL"] = f"slack:{slack.workspace.team.id}:{operations.id}"
        async with company.bot() as bot:
            for number in (1, 2):
                asked = company.ask(f"question {number}")
                await company.draws(asked.ts, f"question {number}." if number == 1 else "is used up")
            await slack.until(lambda: slack.bot_messages(operations), PATIENCE)
            (message,) = slack.bot_messages(operations)
            assert f"Usage limit reached: person slack:{company.priya.id}" in str(message.blocks)
            assert "Further messages are rejected." in str(message.blocks)
            # One that is killed keeps the channel's lease until it expires.
            assert await bot.leaves() == 0
        with closing(sqlite3.connect(place.data / "countersign.db")) as database:
            database.execute("drop trigger audit_is_never_changed")
            database.execute("update audit set actor = 'somebody' where seq = 1")
            database.commit()
        async with company.bot():
            await slack.until(lambda: len(slack.bot_messages(operations)) == 2, PATIENCE)
            assert "The audit does not verify" in str(slack.bot_messages(operations)[-1].blocks)
            assert "countersign audit verify" in str(slack.bot_messages(operations)[-1].blocks)
