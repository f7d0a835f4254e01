"""HTTP session for requests to a platform, and download of users' files: only from the platform's own hosts, within a
size limit, without redirects.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import aiohttp

from bot.domain.conversations import Attachment
from bot.errors import DeliveryFailed, NotFound
from bot.i18n import gettext_lazy
from bot.machine import check_certificates, find_proxy
from bot.rendering.text_safety import single_line

LARGEST_FILE = 10 * 1024 * 1024
"""In bytes."""
_CHUNK = 65_536
_CONNECT_SECONDS = 10.0
_OF_THE_PROXY = (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError, aiohttp.ClientConnectorDNSError)


class HttpSession:
    """One session for all requests to a platform, open within `async with`. A request takes at most `seconds`. `url` is
    the API, whose `proxy` is that of all the platform's hosts. Raises SettingsError for a variable of this machine that
    cannot be used.
    """

    def __init__(self, seconds: float, url: str) -> None:
        proxy = find_proxy(url)
        if url.startswith("https:"):
            check_certificates()
        self.proxy = proxy.url if proxy else None
        self._timeout = aiohttp.ClientTimeout(total=seconds, connect=_CONNECT_SECONDS)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=self._timeout, proxy=self.proxy)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session."""
        if self._session is None:
            raise RuntimeError("the session was not entered")
        return self._session


def unreachable(platform: str, status_page: str, error: Exception) -> tuple[str, str]:
    """Return cause and fix of a request without a response."""
    proxy = find_proxy(f"https://{status_page}")  # as that of the API, which the proxy is asked for by name
    if proxy is not None and isinstance(error, _OF_THE_PROXY):
        return gettext_lazy("{platform} cannot be reached through the proxy.", platform=platform), proxy.fix
    cause = gettext_lazy("{platform} does not answer.", platform=platform)
    return cause, gettext_lazy("check the network and {status_page}", status_page=status_page)


@dataclass(frozen=True, slots=True)
class FileSource:
    """Place of a platform's files: https on `hosts`, or the host of `api_url`. `headers` go with each request. `fix`
    says how to let the app read files.
    """

    platform: str
    hosts: tuple[str, ...]
    api_url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    fix: str = ""


def check_size(attachment: Attachment) -> None:
    """Raise NotFound for a file that is larger than LARGEST_FILE, before it is looked up."""
    if attachment.size > LARGEST_FILE:
        raise _too_large(attachment)


class DiscreetFilter(logging.Filter):
    """A library's own lines without payloads, tracebacks, or the secrets that `redact` removes."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True, with a shortened record."""
        record.msg = self._redact(record.getMessage())[:300]
        record.args = None
        record.exc_info = None
        return True


def make_discreet(log: logging.Logger, redact: Callable[[str], str], level: int = logging.WARNING) -> None:
    """Let a library log from this level on, by a filter without payloads and secrets."""
    log.setLevel(level)
    if not any(isinstance(existing, DiscreetFilter) for existing in log.filters):
        log.addFilter(DiscreetFilter(redact))


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a response asks to wait; None if it does not say."""
    named = next((value for name, value in headers.items() if name.lower() == "retry-after"), None)
    try:
        return None if named is None else max(float(named), 0.0)
    except ValueError:
        return None


async def download(session: aiohttp.ClientSession, url: str, attachment: Attachment, source: FileSource) -> bytes:
    """Return the bytes of a file. Raises NotFound if it is missing, too large or on another host, DeliveryFailed if the
    download failed.
    """
    name, platform = file_name(attachment), source.platform
    if not is_trusted_url(url, source.hosts, source.api_url):
        cause = gettext_lazy("{file} is not kept by {platform}.", file=name, platform=platform)
        raise NotFound(cause, gettext_lazy("upload the file itself"))
    not_handed_out = gettext_lazy("{platform} did not hand out {file}.", platform=platform, file=name)
    try:
        async with session.get(url, headers=source.headers, allow_redirects=False) as response:
            if response.status in (403, 404):
                raise NotFound(gettext_lazy("{file} is gone.", file=name))
            if response.status != 200:
                raise DeliveryFailed(not_handed_out, details=f"HTTP {response.status}")
            if response.content_type == "text/html" and attachment.mime_type != "text/html":
                # A sign-in page instead of the file, as Slack sends it to an app without the scope.
                raise DeliveryFailed(not_handed_out, source.fix, permanent=True)
            body = bytearray()
            async for chunk in response.content.iter_chunked(_CHUNK):
                body += chunk
                if len(body) > LARGEST_FILE:
                    raise _too_large(attachment)
            return bytes(body)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise DeliveryFailed(not_handed_out, details=type(error).__name__) from error


def is_trusted_url(url: str, hosts: tuple[str, ...], api_url: str) -> bool:
    """Return True for an https URL on one of the hosts, and for a URL with the scheme and host of `api_url`."""
    parts, api = urlsplit(url), urlsplit(api_url)
    if (parts.scheme, parts.netloc) == (api.scheme, api.netloc):
        return True
    return parts.scheme == "https" and parts.port in (None, 443) and parts.hostname in hosts


def file_name(attachment: Attachment) -> str:
    """Return the name of a file for messages."""
    return gettext_lazy("The file {name}", name=repr(single_line(attachment.name, 80)))


def _too_large(attachment: Attachment) -> NotFound:
    megabytes = LARGEST_FILE // 2**20
    cause = gettext_lazy("{file} is larger than {megabytes} MB.", file=file_name(attachment), megabytes=megabytes)
    return NotFound(cause, gettext_lazy("share a smaller file"))
