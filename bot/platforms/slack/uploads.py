"""Upload of files: replies of commands and results of tools.

An upload has three steps: request a URL, send the bytes, share the file in a channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiohttp

from bot.domain.commands import ReplyFile
from bot.errors import DeliveryFailed
from bot.platforms.slack.ephemeral import ChannelRef
from bot.platforms.slack.errors import SlackConnectionError
from bot.platforms.slack.web_api import WebApi
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


async def direct_channel(api: WebApi, user: str) -> str:
    """Return the direct conversation with a user. Raises DeliveryFailed."""
    answer = await api.edit("conversations.open", users=user)
    channel = answer.get("channel")
    found = str(channel.get("id") or "") if isinstance(channel, dict) else ""
    if not found:
        raise DeliveryFailed("Slack opened no direct conversation with that person.", permanent=True)
    return found


async def _send(api: WebApi, url: str, data: bytes) -> None:
    try:
        # The address is the permission: the bot's token does not go along.
        async with api.session.post(url, data=data, allow_redirects=False) as response:
            if response.status != 200:
                raise DeliveryFailed(f"Slack took no file (HTTP {response.status}).")
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise SlackConnectionError(f"Slack took no file ({type(error).__name__}).") from error
