"""The real program in a Slack workspace: an admin adds a server that wants a sign-in, signs the bot in in a browser,
and everybody's calls run; after a restart, too.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode, urlsplit

import httpx2

from tests.fakes.llm import Call, FakeLanguageModel, Reply, Request, Say
from tests.fakes.oauth import FakeOAuth
from tests.stories.slack_program import a_company

PUBLIC = "https://bot.example.com"
TOOL = "guarded__echo"


def clerk(request: Request) -> Reply:
    """Has everything said again by the tool."""
    if request.results:
        return Say(f"It said: {request.results[0].strip()}.")
    return Say(calls=(Call(TOOL, {"text": "hello"}),)) if TOOL in request.tool_names else Say("I cannot.")


async def test_an_admin_signs_the_bot_in_and_everybody_uses_the_server_also_after_a_restart(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with FakeOAuth() as oauth:
        settings = {
            "MCP_ALLOWED_HOSTS": ",".join(urlsplit(each).netloc for each in (oauth.url, oauth.issuer)),
            "PUBLIC_URL": PUBLIC,
            "PORT": "0",
            "LOG_LEVEL": "debug",
        }
        async with a_company(tmp_path, model, {}, **settings) as company:
            slack, sam = company.slack, company.sam
            async with company.bot() as bot:
                listening = await bot.logs(r"listening for requests at \S+, port (\d+)")
                await slack.command(sam, "/mcp", f"add guarded --url {oauth.url} --policy allow", company.incidents)
                added = await company.hears(sam, "does not work yet", "Sign in to guarded")
                await slack.press(sam, added, "Sign in to guarded")
                offered = await company.hears(sam, "lets the bot in once somebody has signed in", "for 10 minutes")
                # Nobody else is shown anything of it.
                assert [message for message in slack.bot_messages(company.incidents) if not message.ephemeral_to] == []
                assert company.whispers(company.priya) == []

                address = link_of(offered.blocks, oauth.issuer)
                brought = await oauth.browser(address)
                async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{listening[1]}", timeout=30) as browser:
                    page = await browser.get(f"{brought.pop('to')}?{urlencode(brought)}")
                assert page.status_code == 200, page.text
                assert "The bot is signed in to guarded" in page.text
                await company.hears(sam, "The bot is signed in to guarded: 2 tools.")

                asked = company.ask("say hello")
                await company.draws(asked.ts, "It said: hello.")
                assert await bot.leaves() == 0
                first = bot.log
            async with company.bot() as bot:
                again = company.ask("say hello once more")
                await company.draws(again.ts, "It said: hello.")
                assert await bot.leaves() == 0
                second = bot.log
            assert oauth.grants("authorization_code") == 1
            written = company.place.folder_files()
            hidden = [*oauth.tokens, brought["code"], brought["state"], oauth.forms("/token")[0]["code_verifier"]]
            for secret in hidden:
                assert secret not in first + second
                assert [name for name, content in written.items() if secret.encode() in content] == []
            assert "Traceback" not in first + second


def link_of(blocks: object, issuer: str) -> str:
    """The link to the authorization server, as Slack has it."""
    match blocks:
        case {"type": "link", "url": str(url)} if url.startswith(f"{issuer}/authorize?"):
            return url
        case dict():
            found = (link_of(block, issuer) for block in blocks.values())
        case list() | tuple():
            found = (link_of(block, issuer) for block in blocks)
        case _:
            return ""
    return next(filter(None, found), "")
