"""Two agents in one Slack channel, set up and asked with the real program, on a server that one of them may use."""

from __future__ import annotations

import re
from pathlib import Path

from tests.fakes.llm import FakeLanguageModel, Request, Say
from tests.fakes.programs import python
from tests.stories.program import PATIENCE
from tests.stories.slack_program import Company, a_company

WAREHOUSE = Path(__file__).parents[1] / "fakes" / "mcp" / "warehouse.py"
PERSONA = re.compile(r"You are the agent (\w+)\.")


def answer(request: Request) -> Say:
    """An answering agent, and its tools of the warehouse."""
    persona = PERSONA.search(str(request.messages[0]))
    names = [tool["function"]["name"] for tool in request.body.get("tools", ())]
    tools = ", ".join(name for name in names if name.startswith("w__")) or "nothing"
    return Say(f"{persona[1] if persona else 'nobody'} has {tools}")


async def profile(company: Company, words: str, reply: str) -> None:
    """Sam gives a command about profiles, and reads this reply."""
    before = len(company.whispers(company.sam))
    await company.slack.command(company.sam, "/profile", words, company.incidents)
    # The list of servers may be posted again meanwhile.
    await company.slack.until(lambda: any(reply in text for text in company.whispers(company.sam)[before:]), PATIENCE)


async def test_agents_are_set_up_in_slack_and_each_has_its_own_servers(tmp_path: Path) -> None:
    entry = {"command": python(), "args": [str(WAREHOUSE)], "trusted": True}
    with FakeLanguageModel("openai", rule=answer) as model:
        async with (
            a_company(tmp_path, model, {"w": entry}, MCP_SERVERS_ENABLED="per_profile") as company,
            company.bot(),
        ):
            slack, sam, priya, here = company.slack, company.sam, company.priya, company.incidents
            await slack.command(sam, "/mcp", "list", here)
            listed = await company.hears(sam, "off for default: /profile enable w", "Enable w here", seconds=PATIENCE)
            for words, reply in (
                ('set support --persona "You are the agent support." --about "Orders"', "Profile saved"),
                ('set データ --persona "You are the agent データ."', "Profile saved"),
                ("bind support channel --agent", "can be asked by name in this channel"),
                ("bind データ channel --agent", "can be asked by name in this channel"),
                ("enable w --profile データ", "is enabled from the next answer on"),
            ):
                await profile(company, words, reply)

            first = company.ask("as Support what do you have?")
            message = await company.draws(first.ts, "support has nothing")
            assert "Agent: support" in str(message.blocks)
            company.ask("データとして、何がありますか", thread=first.ts)
            await company.draws(first.ts, "データ has w__")
            slack.say(priya, here, "and again?", thread_ts=first.ts)
            await slack.until(lambda: len(model.requests) == 3, PATIENCE)

            await slack.command(priya, "/ask", 'データ what is "in stock"?', here)
            await slack.until(lambda: len(model.requests) == 4, PATIENCE)
            assert 'what is "in stock"?' in str(model.requests[3].messages[-1])
            assert "データ" in str(model.requests[3].messages[0])

            await slack.press(sam, listed, "Enable w here")
            await company.hears(sam, "is enabled from the next answer on", "this workspace", seconds=PATIENCE)
            other = company.ask("what do you have?")
            await company.draws(other.ts, "nobody has w__")
    assert model.refusals == []
