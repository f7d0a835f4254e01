"""Threads that begin with a question.

A thread opened at a message has that message's id, and there is never a second one (160004): opening twice, in two
processes or after a crash, ends in the same conversation.
"""

from __future__ import annotations

from bot.platforms.discord.faults import UNKNOWN_MESSAGE, DiscordRefusal
from bot.platforms.discord.rest import Rest
from bot.platforms.discord.thread_names import thread_name

EXISTS = 160004
ARCHIVE_MINUTES = 1_440


async def open_thread(rest: Rest, channel: str, message: str, question: str) -> str:
    """The id of the thread at a message, named after the question; empty where Discord lets the bot open none. Raises
    DeliveryFailed if that cannot be found out now, or if the message is gone.
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
    except DiscordRefusal as refusal:
        if refusal.code == EXISTS:
            return message
        if refusal.permanent and refusal.status != 401 and refusal.code != UNKNOWN_MESSAGE:
            return ""
        raise
    return message
