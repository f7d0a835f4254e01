"""Notices outside of turns: hints, rejections, results of actions.

Only an interaction allows an ephemeral answer. For a message, a hint is posted below it, and a rejection is a direct
message or omitted.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from typing import Any

import discord

from bot.errors import DeliveryFailed
from bot.platforms.discord.errors import NO_REPLIES, DiscordApiError
from bot.platforms.discord.escaping import NONCE, escape, truncate
from bot.platforms.discord.outgoing import FileUpload
from bot.platforms.discord.rest import Rest
from bot.platforms.discord.threads import direct_channel

log = logging.getLogger(__name__)

SUPPRESS_EMBEDS = 1 << 2
EPHEMERAL = 1 << 6
SILENT = 1 << 12
LONGEST = 1_900
NOBODY: dict[str, Any] = {"parse": []}


def nonce_fields() -> dict[str, Any]:
    """Return fields that make a post idempotent while the library retries it ("Create Message", `enforce_nonce`)."""
    return {"nonce": secrets.token_hex(NONCE // 2), "enforce_nonce": True}


async def post_notice(rest: Rest, place: str, text: str, *, answering: str = "", once: str = "") -> None:
    """Post a sentence in a channel or thread, without a notification, as a reply to the message `answering` if the bot
    may read it. A notice with the same reason (`once`, else `answering`) is posted once, by any process. Raises
    DeliveryFailed.
    """
    body: dict[str, Any] = {
        "content": truncate(escape(text), LONGEST),
        "allowed_mentions": NOBODY,
        "flags": SUPPRESS_EMBEDS | SILENT,
    }
    if answering:
        body["message_reference"] = {"message_id": answering, "fail_if_not_exists": False}
    reason = once or answering
    body |= {"nonce": f"s{reason}"[:NONCE], "enforce_nonce": True} if reason else nonce_fields()
    try:
        await _say(rest, place, body)
    except DiscordApiError as refusal:
        if refusal.code != NO_REPLIES:
            raise
        await _say(rest, place, {name: value for name, value in body.items() if name != "message_reference"})


async def _say(rest: Rest, place: str, body: dict[str, Any]) -> None:
    await rest.call("POST", "/channels/{channel_id}/messages", "post a message", body=body, channel_id=place)


async def send_direct_message(rest: Rest, user: str, text: str) -> None:
    """Send a sentence to a user who accepts direct messages."""
    try:
        await post_notice(rest, await direct_channel(rest, user), text)
    except DeliveryFailed as failure:
        log.info("direct message not sent: %s", failure)


async def send_ephemeral(rest: Rest, interaction: discord.Interaction[Any], text: str) -> None:
    """Send an ephemeral sentence after the interaction was acknowledged. Raises DeliveryFailed."""
    body = {
        "content": truncate(escape(text), LONGEST),
        "allowed_mentions": NOBODY,
        "flags": SUPPRESS_EMBEDS | EPHEMERAL,
    }
    await follow_up(rest, interaction, body)


async def follow_up(
    rest: Rest, interaction: discord.Interaction[Any], body: dict[str, Any], files: Sequence[FileUpload] = ()
) -> None:
    """Send a further response to an interaction; works after the gateway was closed. Raises DeliveryFailed."""
    await rest.call(
        "POST",
        "/webhooks/{webhook_id}/{webhook_token}",
        "answer a press",
        body=body,
        files=files,
        webhook_id=str(interaction.application_id),
        webhook_token=interaction.token,
    )
