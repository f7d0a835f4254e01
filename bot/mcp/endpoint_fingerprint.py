"""Fingerprint of a server's endpoint, which approvals are bound to.

An admin may change a server's address while a call waits for approval. The digest is the same in every process with the
same definition and contains no secret.
"""

from __future__ import annotations

import functools
import re
from urllib.parse import urlsplit

from bot.domain.secret_detection import redact
from bot.domain.servers import HttpTransport, ServerConfig, StdioTransport
from bot.domain.tools import digest

_HOST = re.compile(r"\w+://[^/?#]*")


def endpoint_fingerprint(config: ServerConfig) -> str:
    """Return a digest of a server's address without credentials, or of its program. Headers and environment are left
    out: they authenticate the bot, they do not identify the server.
    """
    match config.transport:
        case HttpTransport(url):
            return digest(["http", *_shown(_without_credentials(url))])
        case StdioTransport(command, args, _, cwd):
            return _program(command, tuple(args), cwd or "")


@functools.lru_cache(64)  # Needed by each tool, and a long argument takes milliseconds to scan.
def _program(command: str, args: tuple[str, ...], folder: str) -> str:
    return digest(["stdio", command, [redact(each) for each in args], folder])


def _shown(url: str) -> tuple[str, ...]:
    """Return an address without parts that look like secrets. The host is kept in any case."""
    match = _HOST.match(url)
    host = match[0] if match else ""
    return (host, redact(url[len(host) :]))


def _without_credentials(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
