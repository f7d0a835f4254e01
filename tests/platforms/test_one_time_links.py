"""A one-time link stays complete on both platforms: the user can click it, and the platform does not fetch it."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from bot.chat.command_runner import reply_message
from bot.domain.commands import Reply
from bot.domain.servers import ServerSnapshot, ServerStatus
from bot.platforms.console.plain_output import reply_text
from bot.platforms.discord.markdown import dialect
from bot.platforms.discord.message_layout import command_reply as discord_sheet
from bot.platforms.slack.message_blocks import command_reply
from tests.admin.servers import OPERATOR, WEB, two_servers
from tests.admin.sign_ins import LOGIN, SigningOffice

TOKEN = "-_Ab" * 10 + "x-_"


@pytest.mark.parametrize(
    "address", ["https://bot.example.com", "http://localhost:8080", "https://[::1]:8443/under_score"]
)
def test_the_link_of_a_reply_leads_where_it_should(address: str) -> None:
    url = f"{address}/secret/{TOKEN}"
    reply = Reply(f"`jira` waits for its secret. [Enter the secret]({url}). The link works once.")
    blocks = command_reply(reply_message(reply)).blocks
    assert {"type": "link", "url": url, "text": "Enter the secret"} in blocks[0]["elements"][0]["elements"]
    # Discord does not unfurl links in angle brackets.
    assert f"[Enter the secret](<{url}>)" in dialect(reply.text)


async def test_the_link_to_a_sign_in_leads_where_it_should_and_its_address_stands_beside_it() -> None:
    held = SigningOffice(two_servers())
    held.sign_ins.takes.add(WEB.id)
    held.servers.states = [ServerSnapshot(WEB, ServerStatus.AUTH_REQUIRED)]
    resource, callback = quote("https://search.example/mcp", safe=""), quote("https://bot.example.com/oauth", safe="")
    held.sign_ins.address = (
        f"{LOGIN}/oauth2/v2.0/authorize?response_type=code&client_id={'0oa8' * 10}&redirect_uri={callback}"
        f"&code_challenge={TOKEN}&code_challenge_method=S256&resource={resource}&scope={'mcp%3Aread_all+' * 20}"
    )
    reply = await held.ask("mcp connect web-search", OPERATOR)
    url = f"{held.sign_ins.address}&state={1:043d}"
    blocks = command_reply(reply_message(reply)).blocks
    assert {"type": "link", "url": url, "text": "Sign in to web-search"} in blocks[0]["elements"][0]["elements"]
    assert url in "".join(each["text"] for each in blocks[-2]["elements"][0]["elements"])
    sheet = discord_sheet(reply_message(reply))
    assert f"[Sign in to web-search](<{url}>)" in sheet.text
    assert url in sheet.text.replace("\\", "").partition("whole address")[2]
    assert sheet.is_whole
    assert url in reply_text(reply).partition("whole address: ")[2]
