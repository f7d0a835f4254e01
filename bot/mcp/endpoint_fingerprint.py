"""Where a server is, as a digest: what else an approval is bound to beside the tool itself.

An admin may change a server's address while a call to it waits for a signature; whoever signed meant the server that
was there. The digest is the same in every process that reads the same definition, and no secret is in it.
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
    """A digest of a server's address without its credentials, or of the program that is started for it. Headers and
    environment are not in it: they say who asks, not who answers.
    """
    match config.transport:
        case HttpTransport(url):
            return digest(["http", *_shown(_without_credentials(url))])
        case StdioTransport(command, args, _, cwd):
            return _program(command, tuple(args), cwd or "")


@functools.lru_cache(64)  # every tool of a server asks, and a long argument takes milliseconds to look through
def _program(command: str, args: tuple[str, ...], folder: str) -> str:
    return digest(["stdio", command, [redact(each) for each in args], folder])


def _shown(url: str) -> tuple[str, ...]:
    """An address without what looks like a secret. Its host is none, whatever it looks like."""
    found = _HOST.match(url)
    host = found[0] if found else ""
    return (host, redact(url[len(host) :]))


def _without_credentials(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
