"""Files of users, downloaded when the model needs them.

URLs of Discord expire, so an attachment is identified by its channel, its message and its own id. Bytes are loaded
without the bot's token.
"""

from __future__ import annotations

import re

from bot.chat.http import FileSource, check_size, download, file_name
from bot.domain.conversations import Attachment
from bot.errors import NotFound
from bot.i18n import gettext_lazy
from bot.platforms.discord.rest import DiscordApiError, Rest

_ID = re.compile(r"([0-9]{1,20}):([0-9]{1,20}):([0-9]{1,20})")
_HOSTS = ("cdn.discordapp.com", "media.discordapp.net")


def attachment_id(channel: str, message: str, attachment: str) -> str:
    """Return the id by which an attachment is downloaded later."""
    return f"{channel}:{message}:{attachment}"


async def fetch_file(rest: Rest, attachment: Attachment) -> bytes:
    """Download a file. Raises NotFound if it is missing or not readable, DeliveryFailed if the download failed."""
    check_size(attachment)
    url = await _find_url(rest, attachment)
    return await download(rest.session, url, attachment, FileSource("Discord", _HOSTS, rest.url))


async def _find_url(rest: Rest, attachment: Attachment) -> str:
    """Return the current URL of an attachment."""
    match = _ID.fullmatch(attachment.id)
    if match is None:
        raise NotFound(gettext_lazy("{file} is none of Discord's.", file=file_name(attachment)))
    channel, message, own = match.groups()
    try:
        async with rest.request(gettext_lazy("look for a file")) as client:
            found = await client.get_partial_messageable(int(channel)).fetch_message(int(message))
    except DiscordApiError as error:
        if error.status == 404:
            raise NotFound(gettext_lazy("{file} is gone.", file=file_name(attachment))) from error
        raise
    url = next((file.url for file in found.attachments if str(file.id) == own), "")
    if not url:
        raise NotFound(gettext_lazy("{file} is gone.", file=file_name(attachment)))
    return url
