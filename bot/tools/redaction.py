"""Known secrets, and text without them.

Built once by the toolbox from what the operator configured; used on everything that is shown, stored or logged about
a server that is not a tool's own answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from urllib.parse import urlsplit

from bot.domain.servers import HttpTransport, ServerConfig, StdioTransport, Transport

_SHORTEST = 6
"""Shorter values (`true`, `8080`) are settings rather than secrets, and hiding them would garble every sentence."""


class Redaction:
    """A function from text to text in which every known secret reads `***`."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = sorted({each for each in secrets if len(each) >= _SHORTEST}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def secrets_of(config: ServerConfig) -> Iterator[str]:
    """What is secret in a server's definition itself: header values, with and without their scheme, and the parts of
    the address that are never shown.
    """
    match config.transport:
        case HttpTransport(url=url, headers=headers):
            for value in headers.values():
                yield value
                yield value.rpartition(" ")[2]
            parts = urlsplit(url)
            yield parts.query
            yield parts.password or ""
        case _:
            return


def address(url: str) -> str:
    """An address without what may be secret in it: credentials, query and fragment."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def shown(config: ServerConfig, redact: Redaction) -> ServerConfig:
    """A server's definition as people may see it: no header, no environment, no secret in command or address."""
    transport: Transport
    match config.transport:
        case StdioTransport(command=command, args=args, cwd=cwd):
            transport = StdioTransport(redact(command), tuple(map(redact, args)), cwd=cwd)
        case HttpTransport(url=url):
            transport = HttpTransport(redact(address(url)))
    return replace(config, transport=transport)
