"""Threads that begin with a question.

A thread opened at a message has that message's id, and there is never a second one (160004): opening twice, in two
processes or after a crash, ends in the same conversation.
"""

from __future__ import annotations

import re

from bot.errors import DeliveryFailed
from bot.platforms.discord.errors import UNKNOWN_MESSAGE, DiscordApiError
from bot.platforms.discord.escaping import utf16_length
from bot.platforms.discord.rest import Rest
from bot.rendering.text_safety import ELLIPSIS, single_line

EXISTS = 160004
ARCHIVE_MINUTES = 1_440


async def open_thread(rest: Rest, channel: str, message: str, question: str) -> str:
    """Open a thread at a message, named after its text, and return its id; empty if the bot may open none. Raises
    DeliveryFailed if the result is unknown or the message is missing.
    """
    try:
        await rest.call(
            "POST",
            "/channels/{channel_id}/messages/{message_id}/threads",
            "open a thread",
            body={"name": thread_name(question), "auto_archive_duration": ARCHIVE_MINUTES},
            channel_id=channel,
            message_id=message,
        )
    except DiscordApiError as refusal:
        if refusal.code == EXISTS:
            return message
        if refusal.permanent and refusal.status != 401 and refusal.code != UNKNOWN_MESSAGE:
            return ""
        raise
    return message


async def direct_channel(rest: Rest, user: str) -> str:
    """Return the id of the direct channel, opening it if needed. Raises DeliveryFailed."""
    answer = await rest.call("POST", "/users/@me/channels", "write to somebody", body={"recipient_id": user})
    found = str(answer.get("id") or "") if isinstance(answer, dict) else ""
    if not found:
        raise DeliveryFailed("Discord opened no direct conversation with that person.", permanent=True)
    return found


LONGEST = 100
UNNAMED = "Question"
_MARKS = re.compile(r"^(?:\s*(?:[>#*+-]|-#|\d+[.)]))+\s+|[*_~`|]{2,}|(?<!\w)[*_`](?=\w)|(?<=\w)[*_`](?!\w)")


def thread_name(question: str) -> str:
    """Return the name of a message's thread, from plain text without mentions. Never empty."""
    lines = (_MARKS.sub("", line) for line in question.splitlines())
    line = next((found for each in lines if (found := single_line(each, LONGEST * 2)).strip(" `*_~|>#-")), "")
    if utf16_length(line) <= LONGEST:
        return line or UNNAMED
    kept = line[:LONGEST]
    while utf16_length(kept) > LONGEST:
        kept = kept[:-1]
    beginning, _, _ = kept.rpartition(" ")
    return (beginning.rstrip(" ,.;:-") or kept[:-1]) + ELLIPSIS
