"""The real program in a Slack workspace: an admin adds a server, and enters its secret behind a one-time link."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2

from tests.fakes.llm import Call, FakeLanguageModel, Reply, Request, Say
from tests.fakes.mcp.endpoint import FakeEndpoint, result
from tests.stories.slack_program import a_company

PUBLIC = "https://bot.example.com"
SECRET = "s3cret-of-the-ticket-desk"
LOOK_UP = "look it up"
TOOL = "tickets__lookup"


def clerk(request: Request) -> Reply:
    """Calls the look-up tool as asked."""
    if request.results:
        return Say(f"It said: {request.results[0].strip()}.")
    return Say(calls=(Call(TOOL, {}),)) if TOOL in request.tool_names else Say("I cannot.")


async def test_a_secret_comes_to_its_server_by_a_link_that_its_admin_alone_sees(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with FakeEndpoint() as endpoint:
        endpoint.speak_legacy("lookup")
        found = {"content": [{"type": "text", "text": "ticket 7 is open"}]}
        endpoint.on["tools/call"] = lambda asked: result(asked, found)
        settings = {
            "MCP_ALLOWED_HOSTS": f"127.0.0.1:{endpoint.port}",
            "PUBLIC_URL": PUBLIC,
            "PORT": "0",
            "LOG_LEVEL": "debug",
        }
        async with a_company(tmp_path, model, {}, **settings) as company, company.bot() as bot:
            slack, sam = company.slack, company.sam
            listening = await bot.logs(r"listening for requests at \S+, port (\d+)")
            line = f"add tickets --url {endpoint.url} --auth api_key --policy allow"
            await slack.command(sam, "/mcp", line, company.incidents)
            offered = await company.hears(sam, "waits for the secret", "for 10 minutes")
            link = re.search(re.escape(PUBLIC) + r"(/secret/([\w-]{43}))'", str(offered.blocks))
            assert link is not None, offered.blocks
            path, token = link.groups()
            # Nobody else is shown anything of it.
            assert [message for message in slack.bot_messages(company.incidents) if not message.ephemeral_to] == []
            assert company.whispers(company.priya) == []

            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{listening[1]}", timeout=30) as browser:
                page = await browser.get(path)
                assert "on Slack. If that is not you, close this page." in page.text
                version = re.search(r'name="version" value="(\d+)"', page.text)
                assert version is not None
                sent = {"version": version[1], "secret": SECRET}
                done = await browser.post(path, data=sent)
                assert done.status_code == 200
                assert "The secret is stored" in done.text
                assert (await browser.post(path, data=sent)).status_code == 404
            await company.hears(sam, "The secret auth of tickets is set.")

            asked = company.ask(LOOK_UP)
            await company.draws(asked.ts, "It said: ticket 7 is open.")
            assert {headers.get("authorization") for headers, _ in endpoint.seen} == {f"Bearer {SECRET}"}
            assert await bot.leaves() == 0
            assert "Traceback" not in bot.log
            for hidden in (token, SECRET):
                assert hidden not in bot.log
                written = company.place.folder_files()
                assert [name for name, content in written.items() if hidden.encode() in content] == []
