"""What the bot reads of messages that have more than text: forwards, embeds, components, polls, quotes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.platforms.discord.connected_bot import ConnectedBot

EMBED: dict[str, Any] = {
    "type": "rich",
    "title": "HighErrorRate",
    "url": "https://alerts.example/1",
    "description": "checkout fails",
    "fields": [{"name": "value", "value": "17.4 %", "inline": True}],
    "footer": {"text": "Grafana"},
}
READ = "HighErrorRate (https://alerts.example/1)\ncheckout fails\nvalue: 17.4 %\nGrafana"
UNREAD = "[a part that cannot be read]"
COMPONENTS: list[dict[str, Any]] = [
    {
        "type": 17,
        "id": 1,
        "components": [
            {"type": 10, "id": 2, "content": "Disk full"},
            {
                "type": 9,
                "id": 3,
                "components": [{"type": 10, "id": 4, "content": "on db-1"}],
                "accessory": {
                    "type": 11,
                    "id": 5,
                    "media": {"url": "https://x.example/a.png"},
                    "description": "a curve",
                },
            },
            {"type": 12, "id": 6, "items": [{"media": {"url": "https://x.example/b.png"}, "description": "a map"}]},
            {"type": 1, "id": 7, "components": [{"type": 2, "id": 8, "style": 1, "label": "Ack", "custom_id": "x"}]},
            {
                "type": 1,
                "id": 9,
                "components": [{"type": 2, "id": 10, "style": 5, "label": "Run", "url": "https://a.b"}],
            },
            {
                "type": 1,
                "id": 11,
                "components": [{"type": 3, "id": 12, "custom_id": "y", "options": [{"label": "prod", "value": "p"}]}],
            },
        ],
    }
]
POLL: dict[str, Any] = {
    "question": {"text": "Roll back?"},
    "answers": [
        {"answer_id": 1, "poll_media": {"text": "yes"}},
        {"answer_id": 2, "poll_media": {"text": "no"}},
    ],
    "expiry": None,
    "allow_multiselect": False,
    "layout_type": 1,
    "results": {"is_finalized": False, "answer_counts": [{"id": 1, "count": 3, "me_voted": False}]},
}


def forward_fields(place: ConnectedBot, **fields: Any) -> dict[str, Any]:
    snapshot = {
        "type": 0,
        "content": "please close ticket 12",
        "embeds": [],
        "attachments": [],
        "timestamp": "2026-01-01T00:00:00+00:00",
        "edited_timestamp": None,
        "flags": 0,
        "mentions": [],
        "mention_roles": [],
        "components": [],
    }
    reference = {"type": 1, "message_id": "5", "channel_id": place.channel.id, "guild_id": place.discord.guild.id}
    return {"message_reference": reference, "message_snapshots": [{"message": snapshot | fields}]}


async def test_forwards_previews_and_stickers_reach_the_model(place: ConnectedBot) -> None:
    discord, dm = place.discord, place.discord.dm(place.priya)
    file = {"id": "77", "filename": "log.txt", "size": 3, "url": "https://x.example/l", "proxy_url": "x"}
    cases: list[tuple[str, dict[str, Any]]] = [
        ("", forward_fields(place)),
        ("what is this?", forward_fields(place, content=f"{discord.bot.mention}", embeds=[EMBED])),
        ("", forward_fields(place, content="", attachments=[file])),
        ("", forward_fields(place, content="")),
        ("", forward_fields(place, embeds=None)),
        ("look", {"embeds": [EMBED]}),
        ("vote", {"poll": POLL}),
        ("", {"sticker_items": [{"id": "1", "name": "Wave", "format_type": 1}]}),
    ]
    for text, extra in cases:
        discord.say(place.priya, dm, text, extra=extra)
    discord.say(place.priya, place.channel, "fyi", extra=forward_fields(place, content=f"{discord.bot.mention} hi"))
    await place.wait_for_messages(len(cases))
    await place.quiet()
    said = READ.replace("\n", "\n    ")
    assert [(each.text, each.context) for each in place.engine.received] == [
        ("(forwarded a message)", ("forwarded: please close ticket 12",)),
        ("what is this?", (f"forwarded: @Countersign\n    {said}".replace("@Countersign", f"@{discord.bot.id}"),)),
        ("(sent a file)", ("forwarded: [file: log.txt]",)),
        *[("(forwarded a message)", ("forwarded: [a message that cannot be read]",))] * 2,
        ("look", (f"shown below the message: {said}",)),
        ("vote\n[poll] Roll back?\n- yes: 3 votes\n- no: 0 votes", ()),
        ("[sticker: Wave]", ()),
    ]
    assert place.engine.received[2].attachments[0].name == "log.txt"


async def test_webhooks_and_polls_are_read_in_threads_and_replies(place: ConnectedBot) -> None:
    discord = place.discord
    hook = discord.webhook("Grafana")
    alert = discord.say(hook, place.channel, "", extra={"embeds": [EMBED]})
    v2 = discord.say(hook, place.channel, "", extra={"components": COMPONENTS, "flags": 1 << 15})
    unknown = discord.say(hook, place.channel, "", extra={"components": [{"type": 99}], "flags": 1 << 15})
    media = {"poll_media": {"text": None, "emoji": {"id": None, "name": "x"}}, "answer_id": 1}
    poll = discord.say(hook, place.channel, "", extra={"poll": {**POLL, "answers": [media]}})
    invalid = discord.say(hook, place.channel, "hi", extra={"embeds": [EMBED, {"fields": None}], "flags": None})
    for message in (alert, v2, unknown, poll, invalid):
        discord.reply(place.priya, message, f"{discord.bot.mention} investigate this")
    await place.wait_for_messages(5)
    said = READ.replace("\n", "\n    ")
    assert [each.context for each in place.engine.received] == [
        (f"grafana: {said}",),
        (
            (
                "grafana: Disk full\n    on db-1\n    [image: a curve]\n    [image: a map]\n    [button: Ack]\n"
                "    [button: Run (https://a.b)]\n    [choice: prod]"
            ),
        ),
        ("grafana: [a message that cannot be read]",),
        ("grafana: [poll] Roll back?\n    - x: 3 votes",),
        (f"grafana: hi\n    {UNREAD}\n    {said}\n    {UNREAD}",),
    ]


async def test_a_quote_mentions_nobody(place: ConnectedBot) -> None:
    discord, bot = place.discord, place.discord.bot
    discord.say(place.priya, place.channel, f"> {bot.mention} why?\nhe asked that")
    discord.say(place.priya, place.channel, f">>> he asked:\n{bot.mention} why?")
    discord.say(place.priya, place.channel, f"> {bot.mention} why?\n{bot.mention} answer him")
    await place.wait_for_messages(1)
    await place.quiet()
    assert place.texts == ["> @countersign why?\n@countersign answer him"]


async def test_no_event_breaks_the_connection(place: ConnectedBot, caplog: pytest.LogCaptureFixture) -> None:
    discord, dm = place.discord, place.discord.dm(place.priya)
    broken: list[dict[str, Any]] = [
        {"embeds": None},
        {"poll": {"question": None, "expiry": None}},
        {"mentions": None, "components": [{"type": 1}]},
        {"attachments": [None]},
        {"message_snapshots": [{"message": None}]},
        {"author": None},
    ]
    for n, extra in enumerate(broken):
        discord.say(place.priya, dm, f"{n}", extra=extra)
    for event in ("INTERACTION_CREATE", "GUILD_UPDATE", "MESSAGE_UPDATE", "CHANNEL_CREATE", "GUILD_MEMBER_UPDATE"):
        discord.gateway.tell(event, {"id": "x", "guild_id": place.discord.guild.id}, None, None)
    asked = discord.say(place.priya, place.channel, f"{discord.bot.mention} poll?", extra={"poll": POLL})
    discord.reply(place.priya, asked, f"{discord.bot.mention} and?")
    await place.wait_for_messages(len(broken) + 1)
    assert [text for text in place.texts if text.isdigit()] == ["0", "1", "2", "3", "4"]
    assert any("Roll back?" in line for line in place.engine.received[-1].context)
    assert discord.gateway.identify_count == 1
    assert len(discord.gateway.live) == 1
    assert "event MESSAGE_CREATE from Discord not parsed" in caplog.text
