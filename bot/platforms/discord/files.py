"""Files of users, downloaded when the model needs them.

URLs of Discord expire, so an attachment is identified by its channel, its message and its own id. Bytes are loaded
without the bot's token, only from Discord's hosts or the host of the API, within the size limit and without redirects.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import aiohttp

from bot.domain.conversations import Attachment
from bot.errors import DeliveryFailed, NotFound
from bot.platforms.discord.rest import DiscordApiError, DiscordConnectionError, Rest
from bot.rendering.text_safety import single_line

LARGEST_READ = 10 * 1024 * 1024
"""In bytes."""
_ID = re.compile(r"([0-9]{1,20}):([0-9]{1,20}):([0-9]{1,20})")
_HOSTS = ("cdn.discordapp.com", "media.discordapp.net")


def attachment_id(channel: str, message: str, attachment: str) -> str:
    """Return the id by which an attachment is downloaded later."""
    return f"{channel}:{message}:{attachment}"


async def fetch_file(rest: Rest, attachment: Attachment) -> bytes:
    """Download a file. Raises NotFound if it is missing or not readable, DeliveryFailed if the download failed."""
    if attachment.size > LARGEST_READ:
        raise NotFound(f"{_name(attachment)} is larger than {LARGEST_READ // 2**20} MB.", "share a smaller file")
    url = await _address(rest, attachment)
    if not _discords(url, rest.url):
        raise NotFound(f"{_name(attachment)} is not kept by Discord.", "upload the file itself")
    return await _download(rest, url, attachment)


async def _address(rest: Rest, attachment: Attachment) -> str:
    """Return the current URL of an attachment."""
    match = _ID.fullmatch(attachment.id)
    if match is None:
        raise NotFound(f"{_name(attachment)} is none of Discord's.")
    channel, message, own = match.groups()
    try:
        answer = await rest.call(
            "GET",
            "/channels/{channel_id}/messages/{message_id}",
            "look for a file",
            channel_id=channel,
            message_id=message,
        )
    except DiscordApiError as error:
        if error.status == 404:
            raise NotFound(f"{_name(attachment)} is gone.") from error
        raise
    files = [each for each in answer.get("attachments") or () if isinstance(each, dict)]
    url = next((str(file.get("url") or "") for file in files if str(file.get("id")) == own), "")
    if not url:
        raise NotFound(f"{_name(attachment)} is gone.")
    return url


async def _download(rest: Rest, url: str, attachment: Attachment) -> bytes:
    try:
        async with rest.session.get(url, allow_redirects=False) as response:
            if response.status in (403, 404):
                raise NotFound(f"{_name(attachment)} is gone.")
            if response.status != 200:
                raise DeliveryFailed(f"Discord did not hand out {_name(attachment)} (HTTP {response.status}).")
            body = bytearray()
            async for part in response.content.iter_chunked(65_536):
                body += part
                if len(body) > LARGEST_READ:
                    raise NotFound(f"{_name(attachment)} is larger than {LARGEST_READ // 2**20} MB.")
            return bytes(body)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise DiscordConnectionError(
            f"Discord did not hand out {_name(attachment)} ({type(error).__name__})."
        ) from error


def _discords(url: str, api_url: str) -> bool:
    """Return True if the URL is on Discord's hosts or the host of the API."""
    place, home = urlsplit(url), urlsplit(api_url)
    if (place.scheme, place.netloc) == (home.scheme, home.netloc):
        return True
    return place.scheme == "https" and place.port in (None, 443) and place.hostname in _HOSTS


def _name(attachment: Attachment) -> str:
    return f"The file {single_line(attachment.name, 80)!r}"
