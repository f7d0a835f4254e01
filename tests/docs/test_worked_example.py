"""The worked example of the guide to approvals happens as it is told there, from the card to the audit."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.blocks import Kind, blocks
from tests.fakes.llm import Call, FakeLanguageModel, Reply, Request, Say
from tests.stories.installation import a_tool, says, scripted_server
from tests.stories.slack_program import Company, a_company

QUESTION = "please file the checkout 502s in Jira, with high priority"
ISSUE = {"project": "OPS", "summary": "Checkout 502s after the 14:05 deploy", "priority": "High"}
SAM = "slack:U067GHIJKL"
OTHERWISE = (
    (r" {2,}C0\w+:[\d.]+", ""),
    (r"slack:U\w+", "slack:U"),
    (r"<@U\w+>|@\u2060?\w+", "@"),
    (r"\b([Pp])riya|\b([Ss])am\b", "user"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "then"),
    (r"\d\d:\d\d( Europe/Lisbon)?", "then"),
    (r"approval: [-\w]+", "approval: id"),
    (r"[0-9a-f]{12}…", "fingerprint"),
    (r"seconds: [\d.]+", "seconds"),
    (r"· [-\w]{8}$", "· id"),
    (r" +", " "),
)
"""Values that differ each time: people, times, ids."""


def agent(request: Request) -> Reply:
    if request.results:
        return Say("Filed as OPS-512.")
    return Say("The 502s began with the 14:05 deploy.", calls=(Call("jira__create_issue", ISSUE),))


def alike(text: str) -> list[str]:
    """Return the lines of a text without the values that differ each time."""
    lines = text.splitlines()
    for pattern, instead in OTHERWISE:
        lines = [re.sub(pattern, instead, line) for line in lines]
    return [line.strip() for line in lines if line.strip()]


async def test_the_worked_example_happens_as_written(tmp_path: Path) -> None:
    tool = a_tool("create_issue", project="string", summary="string", priority="string")
    tool["annotations"] = {"readOnlyHint": False, "destructiveHint": False}
    jira = scripted_server(tmp_path, "jira", tool, calls={"create_issue": says("OPS-512")}, trusted=True)
    [rule] = [block.text for block in blocks(Kind.TOML) if block.document == "docs/approvals.md"]
    with FakeLanguageModel("openai", rule=agent) as model:
        async with a_company(tmp_path, model, {"jira": jira.entry}) as company:
            assert SAM in rule
            company.place.rule(f'default = "ASK_USER"\n{rule.replace(SAM, f"slack:{company.sam.id}")}')
            async with company.bot():
                seen = await what_is_seen(company)
            seen += company.place.countersign("servers", "audit", "jira").out
    happened = alike(seen)
    shown = [block.text for block in blocks(Kind.OUTPUT) if block.document == "docs/approvals.md"]
    told = [line for text in shown for line in alike(text)]
    assert len(told) > 15
    assert [line for line in told if line not in happened and not line.startswith("no. ")] == [], happened


async def what_is_seen(company: Company) -> str:
    """Act as Priya and Sam, and return everything that they read."""
    slack, priya, sam = company.slack, company.priya, company.sam
    asked = company.ask(QUESTION)
    card = await company.draws(asked.ts, "cs.approve")
    seen = company.public_texts(asked.ts)
    await slack.press(priya, card, "Approve: Create issue")
    refused = await company.hears(priya, "You may not approve this. It needs")
    assert alike(refused.text) == alike("You may not approve this. It needs Sam.")
    await slack.press(sam, card, "Edit…")
    await slack.until(lambda: slack.modals(sam))
    await slack.submit(sam, {"priority": "Highest"})
    card = await company.draws(asked.ts, "Changed by")
    seen += company.public_texts(asked.ts)
    await slack.press(sam, card, "Approve: Create issue")
    await company.draws(asked.ts, "Filed as OPS-512")
    return "\n".join((*seen, *company.public_texts(asked.ts)))
