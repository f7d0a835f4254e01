"""A one-time link comes out whole on both platforms: as a link that is pressed, and of which nothing is fetched."""

from __future__ import annotations

import pytest

from bot.domain.commands import Reply
from bot.platforms.discord.markdown import dialect
from bot.platforms.slack.replies import reply_sheet

TOKEN = "-_Ab" * 10 + "x-_"


@pytest.mark.parametrize(
    "address", ["https://bot.example.com", "http://localhost:8080", "https://[::1]:8443/under_score"]
)
def test_the_link_of_a_reply_leads_where_it_should(address: str) -> None:
    url = f"{address}/secret/{TOKEN}"
    reply = Reply(f"`jira` waits for its secret. [Enter the secret]({url}). The link works once.")
    blocks = reply_sheet(reply).blocks
    assert {"type": "link", "url": url, "text": "Enter the secret"} in blocks[0]["elements"][0]["elements"]
    # What stands in angle brackets is not unfurled by Discord.
    assert f"[Enter the secret](<{url}>)" in dialect(reply.text)
