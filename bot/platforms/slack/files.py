"""Files of users and of the bot.

The bytes of an attached file are loaded with the bot's token.
"""

from __future__ import annotations

from bot.chat.http import FileSource, check_size, download, file_name
from bot.domain.commands import ReplyFile
from bot.domain.conversations import Attachment
from bot.errors import NotFound
from bot.i18n import gettext_lazy
from bot.platforms.slack.channels import ChannelRef, direct_channel
from bot.platforms.slack.web_api import SlackWebApiError, WebApi
from bot.rendering.text_safety import single_line


async def upload(api: WebApi, spot: ChannelRef, document: ReplyFile, *, private: bool) -> None:
    """Upload a reply file to the command's conversation; a private one to the user alone. Raises DeliveryFailed."""
    channel, thread = spot.channel, spot.thread
    if private and not spot.direct:
        channel, thread = await direct_channel(api, spot.user), ""
    await share_file(api, channel, thread, document.name, document.text.encode())


async def share_file(api: WebApi, channel: str, thread: str, name: str, data: bytes) -> str:
    """Share a file in a channel or a thread and return its id. Raises DeliveryFailed."""
    return await api.upload(channel, thread, single_line(name, 200) or "file", data)


_HOSTS = ("files.slack.com", "slack-files.com", "files-origin.slack.com")


async def fetch_file(api: WebApi, attachment: Attachment) -> bytes:
    """Download a file. Raises NotFound if it is missing or not readable, DeliveryFailed if the download failed."""
    check_size(attachment)
    try:
        answer = await api.read("files.info", file=attachment.id.rpartition("/")[2])
    except SlackWebApiError as error:
        if error.code in ("file_not_found", "file_deleted"):
            raise NotFound(gettext_lazy("{file} is gone.", file=file_name(attachment))) from error
        raise
    file = answer.get("file")
    url = str(file.get("url_private_download") or file.get("url_private") or "") if isinstance(file, dict) else ""
    source = FileSource("Slack", _HOSTS, api.url, api.bearer, gettext_lazy("add the scope files:read"))
    return await download(api.session, url, attachment, source)
