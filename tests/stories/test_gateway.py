"""Other agents ask for approvals of their calls: the real program, and people in Slack."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.fakes.llm import FakeLanguageModel, Reply, Request, Say
from tests.fakes.slack import Message
from tests.stories.installation import becomes
from tests.stories.slack_program import Company, a_company

ADMIN_TOKEN = "the-operators-own-token-of-the-tests"
PUSH = {"tool": "Bash", "arguments": {"command": "git push origin main"}, "client": "claude-code 2.1"}


def clerk(request: Request) -> Reply:
    """Is never asked."""
    return Say(f"You said: {request.question}.")


@dataclass(frozen=True)
class Office:
    """The company and an agent's connection to its bot."""

    company: Company
    address: str
    agent: httpx2.AsyncClient

    async def card(self, text: str) -> Message:
        """Wait for a message of the bot in #incidents that has this text."""
        slack, channel = self.company.slack, self.company.incidents

        def cards() -> list[Message]:
            return [each for each in slack.bot_messages(channel) if text in f"{each.text} {each.blocks}"]

        await becomes(lambda: bool(cards()), f"a card with {text!r}")
        return cards()[-1]

    async def wait(self, approval_id: str) -> Any:
        """Wait for the decision of a call."""
        return (await self.agent.get(f"/api/approvals/{approval_id}", params={"wait": 50})).json()


@asynccontextmanager
async def an_office(folder: Path, model: FakeLanguageModel) -> AsyncIterator[Office]:
    """Open the company with its bot running. Cards of the agent `claude-code` go to #incidents, where Sam approves."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    async with a_company(folder, model, PORT=port, ADMIN_API_TOKEN=ADMIN_TOKEN) as company:
        team, sam = company.sam.team.id, company.sam.id
        company.place.rule(
            f"""
            [[rules]]
            policy = "ASK_USER"
            server = "claude-code"
            approvers = ["slack:{sam}"]
            deliver = "slack:{team}:{company.incidents.id}"
            """
        )
        made = company.place.run(
            "bot", "tokens", "create", "claude-code", "--role", "member", "--workspace", f"slack:{team}"
        )
        token = made.out.strip()
        address = f"http://127.0.0.1:{port}"
        headers = {"Authorization": f"Bearer {token}"}
        async with company.bot() as bot, httpx2.AsyncClient(base_url=address, headers=headers, timeout=90) as agent:
            await bot.logs("listening for requests")
            yield Office(company, address, agent)
            assert "Traceback" not in bot.log


async def test_a_card_of_an_agents_call_is_posted_and_approved_in_slack(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with an_office(tmp_path, model) as office:
        asked = (await office.agent.post("/api/approvals", json=PUSH)).json()
        assert asked["status"] == "pending"
        card = await office.card("git push origin main")
        assert "Asked in claude-code" in f"{card.text} {card.blocks}"
        waiting = asyncio.create_task(office.wait(asked["approvalId"]))
        await office.company.slack.press(office.company.sam, card, "cs.approve")
        answer = await waiting
        assert (answer["status"], answer["deciders"]) == ("approved", ["sam"])
        await office.card("Approved by")


async def test_a_permission_prompt_of_an_agent_is_answered_in_slack_by_the_approver_alone(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with an_office(tmp_path, model) as office:
        prompt = {"tool_name": "Bash", "input": {"command": "rm -rf build"}}
        async with Client(
            streamable_http_client(f"{office.address}/mcp/approvals", http_client=office.agent), mode="legacy"
        ) as client:
            calling = asyncio.create_task(client.call_tool("approve", prompt))
            card = await office.card("rm -rf build")
            await office.company.slack.press(office.company.priya, card, "cs.approve")
            await office.company.hears(office.company.priya, "approve")
            assert not calling.done()
            await office.company.slack.press(office.company.sam, card, "cs.approve")
            (block,) = (await calling).content
            assert json.loads(getattr(block, "text", "")) == {"behavior": "allow", "updatedInput": prompt["input"]}
