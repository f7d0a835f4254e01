"""The doctor's look at the web part: the operator's token, the address it is served at, and the one people see."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import ipaddress
from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

from bot.app.web import check_settings, is_configured
from bot.domain.checks import Check, CheckStatus
from bot.errors import SettingsError
from bot.settings import Settings

_SECONDS = 3.0


async def examine_web(settings: Settings) -> AsyncGenerator[Check, None]:
    """Look at everything of the web part that is set; at nothing if nothing is."""
    if not is_configured(settings):
        return
    yield _of_token(settings)
    yield await _of_port(settings)
    yield _of_public_url(settings)


def _of_token(settings: Settings) -> Check:
    try:
        check_settings(settings)
    except SettingsError as error:
        return Check("token", CheckStatus.BROKEN, error.cause, error.fix)
    if settings.admin_api_token is None:
        return Check(
            "token", CheckStatus.WELL, "No ADMIN_API_TOKEN: programs use tokens from `countersign tokens create`."
        )
    return Check("token", CheckStatus.WELL, "ADMIN_API_TOKEN is hard to guess.")


async def _of_port(settings: Settings) -> Check:
    """Whether it can be served there, or is: the doctor works beside a running bot."""
    where = f"{settings.web_host}, port {settings.port}"
    if await _is_alive(settings):
        return Check("address", CheckStatus.WELL, f"A running bot answers at {where}.")
    server = await asyncio.to_thread(importlib.import_module, "bot.web.server")
    try:
        server.bind_socket(settings.web_host, settings.port).close()
    except SettingsError as error:
        return Check("address", CheckStatus.BROKEN, error.cause, error.fix)
    return Check("address", CheckStatus.WELL, f"{where}, is free.")


async def _is_alive(settings: Settings) -> bool:
    """Whether `/healthz` answers as ours does."""
    host = "127.0.0.1" if settings.web_host in ("0.0.0.0", "") else settings.web_host  # noqa: S104 - compared, not bound
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_connection(host, settings.port)
            try:
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = await reader.read(65_536)
            finally:
                writer.close()
            return answer.startswith(b"HTTP/1.1 200 ") and b"x-request-id:" in answer.lower()
    return False


def _of_public_url(settings: Settings) -> Check:
    if settings.public_url is None:
        return Check(
            "public address", CheckStatus.SKIPPED, "No PUBLIC_URL: no links for entering secrets or signing in."
        )
    parts = urlsplit(settings.public_url)
    if parts.scheme == "https" or _is_loopback(parts.hostname or ""):
        return Check(
            "public address", CheckStatus.WELL, f"Links begin with {parts.scheme}://{parts.netloc.rpartition('@')[2]}."
        )
    return Check(
        "public address",
        CheckStatus.DOUBTFUL,
        "PUBLIC_URL is not https: what is typed on its pages could be read on the way.",
        "put a proxy with a certificate before it, and set PUBLIC_URL to its https address",
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
