"""Discord's errors, as DeliveryFailed with a cause and a fix.

The codes are those of docs.discord.com, "Opcodes and Status Codes". `map_errors` also maps the errors of discord.py. No
error contains a token or the text that was sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import aiohttp
import discord

from bot.errors import DeliveryFailed

UNKNOWN_MESSAGE = 10008
UNKNOWN_MEMBER = 10007
UNKNOWN_CHANNEL = 10003
MISSING_ACCESS = 50001
MISSING_PERMISSIONS = 50013
TOO_OLD_TO_EDIT = 30046
"""The message is older than an hour, and was edited too often since."""
TOO_LARGE = 40005
INVALID_BODY = 50035
NO_REPLIES = 160002
"""Code for a reply without the permission to read the original message."""
ARCHIVED = 50083

NEW_TOKEN = "make a new token on the Bot page of the application and set DISCORD_TOKEN"  # noqa: S105
LET_IT_IN = (
    "give the bot the permissions to see the channel and write there (countersign doctor names the missing ones)"
)
ASK_AN_ADMIN = "ask an administrator of the server"
PAUSE = "Discord asks for a pause before it lets the bot {}."
STATUS_PAGE = "check the network and discordstatus.com"

_FOR_GOOD: Mapping[int, tuple[str, str]] = {
    UNKNOWN_CHANNEL: ("Discord has no such channel any more.", ""),
    10004: ("Discord has no such server, or the bot is not in it.", "invite the bot to the server"),
    UNKNOWN_MEMBER: ("That person is not in the server.", ""),
    UNKNOWN_MESSAGE: ("The message is gone.", ""),
    10013: ("Discord knows no such person.", ""),
    10062: ("It took too long to answer.", "try once more"),
    TOO_OLD_TO_EDIT: ("Discord does not let an old message be edited so often.", ""),
    TOO_LARGE: ("Discord finds the file too large.", ""),
    50027: ("It took too long to answer.", "try once more"),
    MISSING_ACCESS: ("The bot cannot see the channel.", LET_IT_IN),
    50007: ("That person takes no direct messages from the bot.", "allow direct messages from members of the server"),
    MISSING_PERMISSIONS: ("The bot lacks a permission there.", LET_IT_IN),
    INVALID_BODY: ("Discord does not take the message's layout.", ""),
    ARCHIVED: ("The thread is archived.", "unarchive it, or ask somewhere else"),
    160005: ("The thread is locked.", ASK_AN_ADMIN),
    NO_REPLIES: ("The bot cannot read earlier messages there.", LET_IT_IN),
    240000: ("Discord finds something in the message harmful.", ""),
    200000: ("AutoMod of the server does not let the message through.", ASK_AN_ADMIN),
    200001: ("AutoMod of the server does not let the title through.", ASK_AN_ADMIN),
}
_BY_STATUS: Mapping[int, tuple[str, str]] = {
    401: ("Discord does not know the token.", NEW_TOKEN),
    403: ("Discord does not allow the bot to do that.", LET_IT_IN),
    404: ("That is gone.", ""),
}
_SECRETS = re.compile(r"((?:webhooks|interactions)/\d+/)[\w.-]{20,}")


class DiscordApiError(DeliveryFailed):
    """Discord rejected the request. `code` is Discord's error code, 0 if missing."""

    def __init__(
        self,
        code: int,
        cause: str,
        fix: str = "",
        *,
        status: int = 400,
        retry_after: float | None = None,
        permanent: bool = False,
    ) -> None:
        super().__init__(cause, fix, retry_after=retry_after, permanent=permanent)
        self.code = code
        self.status = status


class DiscordConnectionError(DeliveryFailed):
    """Connection error: the request may or may not have been processed."""


@contextmanager
def map_errors(what: str) -> Iterator[None]:
    """Map the errors of discord.py to DeliveryFailed. `what` completes "the request to …"."""
    try:
        yield
    except discord.LoginFailure as error:
        raise DiscordApiError(0, *_BY_STATUS[401], status=401, permanent=True) from error
    except discord.HTTPException as error:
        raise _refused(what, error) from error
    except discord.RateLimited as error:
        raise DiscordApiError(0, PAUSE.format(what), status=429, retry_after=error.retry_after) from error
    except (discord.DiscordException, aiohttp.ClientError, TimeoutError, OSError) as error:
        raise DiscordConnectionError(
            f"Discord did not answer the request to {what} ({type(error).__name__}).", STATUS_PAGE
        ) from error


def redact(line: str) -> str:
    """Remove the interaction tokens in URLs from a log line."""
    return _SECRETS.sub(r"\1…", line)


def _refused(what: str, error: discord.HTTPException) -> DeliveryFailed:
    status, code = error.status, error.code
    if status >= 500:
        return DiscordConnectionError(f"Discord answered the request to {what} with HTTP {status}.", STATUS_PAGE)
    if status == 429:
        # What discord.py has not waited for by itself: a ban of the whole address, or five refusals in a row.
        cause = f"Discord does not let the bot {what} for now ({code})." if code else PAUSE.format(what)
        return DiscordApiError(code, cause, status=status, retry_after=_pause(error))
    cause, fix = _FOR_GOOD.get(code) or _BY_STATUS.get(status, ("Discord does not take the request.", ""))
    return DiscordApiError(code, f"{cause} (to {what}: {code or status})", fix, status=status, permanent=True)


def _pause(error: discord.HTTPException) -> float | None:
    named = error.response.headers.get("Retry-After")
    try:
        return None if named is None else max(float(named), 0.0)
    except ValueError:
        return None
