"""Files of users and of the bot.

The bytes of an attached file are loaded with the bot's token, only from Slack's hosts or the host of the API, within
the size limit and without redirects. An upload has three steps: request a URL, send the bytes, share the file in a
channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from bot.domain.commands import ReplyFile
from bot.domain.conversations import Attachment
from bot.errors import DeliveryFailed, NotFound
from bot.platforms.slack.channels import ChannelRef, direct_channel
from bot.platforms.slack.web_api import SlackConnectionError, SlackWebApiError, WebApi
from bot.rendering.text_safety import single_line


async def upload(api: WebApi, spot: ChannelRef, document: ReplyFile, *, private: bool) -> None:
    """Upload a reply file to the command's conversation; a private one to the user alone. Raises DeliveryFailed."""
    channel, thread = spot.channel, spot.thread
    if private and not spot.direct:
        channel, thread = await direct_channel(api, spot.user), ""
    await share_file(api, channel, thread, document.name, document.text.encode())


async def share_file(api: WebApi, channel: str, thread: str, name: str, data: bytes) -> str:
    """Share a file in a channel or a thread and return its id. Raises DeliveryFailed."""
    name = single_line(name, 200) or "file"
    place = await api.read("files.getUploadURLExternal", filename=name, length=max(len(data), 1))
    await _send(api, str(place.get("upload_url") or ""), data)
    file = str(place.get("file_id") or "")
    given: Mapping[str, Any] = {"files": [{"id": file, "title": name}], "channel_id": channel}
    await api.post("files.completeUploadExternal", **given, thread_ts=thread or None)
    return file


async def _send(api: WebApi, url: str, data: bytes) -> None:
    try:
        # The address is the permission: the bot's token does not go along.
        async with api.session.post(url, data=data, allow_redirects=False) as response:
            if response.status != 200:
                raise DeliveryFailed(f"Slack took no file (HTTP {response.status}).")
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise SlackConnectionError(f"Slack took no file ({type(error).__name__}).") from error


MOST_FILES = 10
LARGEST_FILE = 10 * 1024 * 1024
"""In bytes."""
_HOSTS = ("files.slack.com", "slack-files.com", "files-origin.slack.com")


def attachments(event: Mapping[str, Any]) -> tuple[Attachment, ...]:
    """Return the readable files of a message."""
    files = event.get("files")
    found = [file for file in files if isinstance(file, dict)] if isinstance(files, list) else []
    return tuple(_attachment(each) for each in found if each.get("id") and each.get("mode") != "tombstone")[:MOST_FILES]


async def fetch_file(api: WebApi, attachment: Attachment) -> bytes:
    """Download a file. Raises NotFound if it is missing or not readable, DeliveryFailed if the download failed."""
    if attachment.size > LARGEST_FILE:
        raise NotFound(f"{_name(attachment)} is larger than {LARGEST_FILE // 2**20} MB.", "share a smaller file")
    try:
        answer = await api.read("files.info", file=attachment.id)
    except SlackWebApiError as error:
        if error.code in ("file_not_found", "file_deleted"):
            raise NotFound(f"{_name(attachment)} is gone.") from error
        raise
    file = answer.get("file")
    url = str(file.get("url_private_download") or file.get("url_private") or "") if isinstance(file, dict) else ""
    if not _ours(url, api.url):
        raise NotFound(f"{_name(attachment)} is not kept by Slack.", "upload the file itself")
    return await _download(api, url, attachment)


async def _download(api: WebApi, url: str, attachment: Attachment) -> bytes:
    try:
        async with api.session.get(url, headers=api.bearer, allow_redirects=False) as response:
            if response.status != 200:
                raise DeliveryFailed(f"Slack did not hand out {_name(attachment)} (HTTP {response.status}).")
            if response.content_type == "text/html" and attachment.mime_type != "text/html":
                # Slack's sign-in page: the app may not read files.
                raise DeliveryFailed(
                    f"Slack did not hand out {_name(attachment)}.", "add the scope files:read", permanent=True
                )
            body = bytearray()
            async for part in response.content.iter_chunked(65_536):
                body += part
                if len(body) > LARGEST_FILE:
                    raise NotFound(f"{_name(attachment)} is larger than {LARGEST_FILE // 2**20} MB.")
            return bytes(body)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise SlackConnectionError(f"Slack did not hand out {_name(attachment)} ({type(error).__name__}).") from error


def _ours(url: str, api_url: str) -> bool:
    """Return True if the bot's token may be sent to this URL."""
    place, home = urlsplit(url), urlsplit(api_url)
    if (place.scheme, place.netloc) == (home.scheme, home.netloc):
        return True
    return place.scheme == "https" and place.port in (None, 443) and place.hostname in _HOSTS


def _attachment(file: Mapping[str, Any]) -> Attachment:
    size = file.get("size")
    return Attachment(
        id=str(file["id"]),
        name=single_line(str(file.get("name") or file.get("title") or "file"), 200),
        mime_type=single_line(str(file.get("mimetype") or "application/octet-stream"), 100),
        size=size if isinstance(size, int) else 0,
    )


def _name(attachment: Attachment) -> str:
    return f"The file {single_line(attachment.name, 80)!r}"
