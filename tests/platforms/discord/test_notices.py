"""Notices are posted once: the library repeats a call without a response."""

from __future__ import annotations

from bot.domain.commands import Reply, ReplyFile
from bot.domain.turns import Notice, NoticeTarget
from bot.platforms.discord.app import DiscordSurface
from bot.platforms.discord.responders import SENT_DIRECTLY
from bot.platforms.discord.rest import Rest
from tests.platforms.discord.command_bot import command_bot

POST = "POST /channels/{channel}/messages"


async def test_every_message_says_that_it_is_to_be_there_once() -> None:
    document = ReplyFile("servers.txt", "all of them", "text/plain")
    async with command_bot([Reply("All is well.", document=document)]) as place:
        async with Rest(place.discord.token, url=place.discord.url) as rest:
            surface = DiscordSurface(rest, place.people)
            for _ in range(2):
                await surface.post_notice(
                    NoticeTarget(str(place.key()), place.priya.id, private=True), Notice("Something waits.")
                )
                await surface.post_notice(NoticeTarget(str(place.key())), Notice("Something waits."))
        place.discord.say(place.priya, place.channel, f"{place.discord.bot.mention} mcp list")
        dm = place.discord.dm(place.priya)
        await place.discord.until(lambda: any(message.files for message in place.discord.bot_messages(dm)))
        await place.discord.until(lambda: any(each.content == SENT_DIRECTLY for each in place.visible_messages()))
        posts = place.discord.calls.of(POST)
        assert len(posts) == 7
        assert all(call.body["enforce_nonce"] for call in posts)
        assert len({call.body["nonce"] for call in posts}) == len(posts)
