"""Files: the bytes of what people attach, and what tools returned, shared below the turn that asked for it.

An attachment is known by its channel, its message and its own id, because the addresses Discord gives out expire. Bytes
come only from Discord's own hosts or from the one the API is at, never beyond the limit and never by way of a redirect
to somewhere else; the bot's token does not go along.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

import aiohttp

from bot.domain.conversations import Attachment
from bot.domain.views import MessageRefs, PostedMessage, TurnView
from bot.errors import DeliveryFailed, NotFound
from bot.platforms.discord.errors import DiscordApiError, DiscordConnectionError
from bot.platforms.discord.escaping import escape_to_limit
from bot.platforms.discord.limits import FILE
from bot.platforms.discord.outgoing import FileUpload, OutgoingMessage
from bot.platforms.discord.rest import Rest
from bot.platforms.discord.sending import Sender
from bot.rendering.text_safety import single_line
from bot.rendering.tool_files import LEFT_OUT, returned_files

log = logging.getLogger(__name__)

LARGEST_READ = 10 * 1024 * 1024
"""In bytes."""
NAME = 200
_ID = re.compile(r"([0-9]{1,20}):([0-9]{1,20}):([0-9]{1,20})")
_HOSTS = ("cdn.discordapp.com", "media.discordapp.net")


def attachment_id(channel: str, message: str, attachment: str) -> str:
    """How an attachment is known to whoever fetches it later."""
    return f"{channel}:{message}:{attachment}"


async def fetch_file(rest: Rest, attachment: Attachment) -> bytes:
    """The bytes of a file. Raises NotFound if it is gone or must not be read, DeliveryFailed if Discord gave none."""
    if attachment.size > LARGEST_READ:
        raise NotFound(f"{_name(attachment)} is larger than {LARGEST_READ // 2**20} MB.", "share a smaller file")
    url = await _address(rest, attachment)
    if not _discords(url, rest.url):
        raise NotFound(f"{_name(attachment)} is not kept by Discord.", "upload the file itself")
    return await _download(rest, url, attachment)


async def share_tool_files(
    sender: Sender, view: TurnView, refs: MessageRefs, *, search: bool, taken: set[str]
) -> AsyncGenerator[PostedMessage, None]:
    """Share what tools returned and was not shared yet, each file below a line with its name; the messages that show
    something are added to those `taken`. Raises DeliveryFailed.
    """
    for file in returned_files(view, FILE):
        if file.slot in refs:
            yield PostedMessage(file.slot, refs[file.slot])
            continue
        name = _file_name(file.name)
        try:
            slot = OutgoingMessage(
                file.slot, f"-# {escape_to_limit(name, NAME)}", file=FileUpload(name, await file.read())
            )
            shown = str(await sender.post(view.turn, slot, search=search, taken=taken))
        except NotFound:
            shown = LEFT_OUT
        except DeliveryFailed as failure:
            if not failure.permanent:
                raise
            log.warning("a file of turn %s could not be shared: %s", view.turn.id, failure)
            shown = LEFT_OUT
        taken.add(shown)
        yield PostedMessage(file.slot, shown)


async def _address(rest: Rest, attachment: Attachment) -> str:
    """Where the bytes are now."""
    found = _ID.fullmatch(attachment.id)
    if found is None:
        raise NotFound(f"{_name(attachment)} is none of Discord's.")
    channel, message, own = found.groups()
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
    url = next((str(each.get("url") or "") for each in files if str(each.get("id")) == own), "")
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
    """Whether the address is Discord's own, or at the host that stands in for it."""
    place, home = urlsplit(url), urlsplit(api_url)
    if (place.scheme, place.netloc) == (home.scheme, home.netloc):
        return True
    return place.scheme == "https" and place.port in (None, 443) and place.hostname in _HOSTS


def _file_name(name: str) -> str:
    """A name that Discord takes as it is, without a way to another folder."""
    return single_line(name.replace("/", "_").replace("\\", "_"), NAME) or "file"


def _name(attachment: Attachment) -> str:
    return f"The file {single_line(attachment.name, 80)!r}"
