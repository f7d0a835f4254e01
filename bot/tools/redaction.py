"""Known secrets, and text without them.

One redaction is shared by everything that can show a text: the toolbox teaches it every secret before a server is
told it, and the composition root hangs it into the log.
"""

from __future__ import annotations

import base64
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, quote_plus, unquote, urlsplit

from bot.domain.servers import HttpTransport, ServerConfig, ServerState, StdioTransport, Transport

_SHORTEST = 6
"""Shorter values (`true`, `8080`) are settings rather than secrets, and hiding them would garble every sentence."""
_NOT_SECRET = frozenset(("accept", "accept-language", "content-type", "user-agent"))
_REMEMBERED = 8
"""Generations of secrets that come and go."""
_SHORTEST_LINE = 16
"""Of a secret in several lines, a key for instance, each line is one that is at least so long: logs come in lines."""

_SHORTEST_MUDDLE = 16
_PIECES = re.compile(r"[A-Za-z0-9]+")
_WORDS = re.compile(r"[A-Za-z][a-z]{3,14}|[A-Z]{4,15}")

_KEY_NAME = re.compile(r"(?i)key|token|secret|pass|auth|sig|cred")
"""What values of an address's query are secret by themselves, too."""


class Redaction:
    """A function from text to text in which every known secret reads `***`, also as JSON and addresses spell it."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: tuple[str, ...] = ()
        self._lasting: set[str] = set()
        self._passing: dict[str, deque[frozenset[str]]] = {}
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Hide these, too, from now on. What was a secret once stays one."""
        self._lasting.update(spelled for secret in secrets for spelled in _spellings(secret))
        self._sort()

    def learn_passing(self, place: str, secrets: Iterable[str]) -> None:
        """Hide these, too, until others have come in their place often enough that nobody says them any more: a token
        that is another one every hour must not make every text slower for ever. Others have chosen these: one that
        somebody might write who does not know it would hide words of tools and servers that are not theirs, and is
        left alone.
        """
        spelled = frozenset(each for secret in secrets if _made_by_a_machine(secret) for each in _spellings(secret))
        kept = self._passing.setdefault(place, deque(maxlen=_REMEMBERED))
        if spelled not in kept:
            kept.append(spelled)
            self._sort()

    def _sort(self) -> None:
        passing = (each for kept in self._passing.values() for spelled in kept for each in spelled)
        self._secrets = tuple(sorted({*self._lasting, *passing}, key=lambda each: (-len(each), each)))

    def __call__(self, text: str) -> str:
        """The text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def json(self, value: Any) -> Any:
        """A JSON value with every text in it without secrets."""
        match value:
            case str():
                return self(value)
            case list() | tuple():
                return [self.json(each) for each in value]
            case dict():
                return {self(str(key)): self.json(each) for key, each in value.items()}
            case _:
                return value


def _made_by_a_machine(secret: str) -> bool:
    """Nobody names a thing so: a long muddle of letters and digits, or some of them beside what may be words. Tokens
    are so by their nature (RFC 6749 10.10), `properties` and `create_issue` are not.
    """
    if any(len(piece) >= _SHORTEST_MUDDLE and not piece.isalpha() for piece in _PIECES.findall(secret)):
        return True
    return sum(map(str.isalnum, _WORDS.sub("", secret))) >= _SHORTEST


def _spellings(secret: str) -> Iterator[str]:
    secret = secret.strip()
    if len(secret) < _SHORTEST:
        return
    lines = (line.strip() for line in secret.splitlines()) if "\n" in secret else ()
    for part in (secret, *(line for line in lines if len(line) >= _SHORTEST_LINE and not line.startswith("-----"))):
        yield part
        yield json.dumps(part)[1:-1]
        yield json.dumps(part, ensure_ascii=False)[1:-1]
        # A variable may hold bytes that are no text, and Python spells them as halves of surrogate pairs.
        yield quote(part, errors="surrogatepass")
        yield quote(part, safe="", errors="surrogatepass")
        yield quote_plus(part, errors="surrogatepass")


def secrets_of(config: ServerConfig) -> Iterator[str]:
    """What is secret in a server's definition itself: header values, with and without their scheme, and the parts of
    the address that are never shown.
    """
    if config.sign_in is not None:
        yield config.sign_in.client_secret
    match config.transport:
        case HttpTransport(url=url, headers=headers):
            for value in (value for name, value in headers.items() if name.lower() not in _NOT_SECRET):
                yield value
                yield value.rpartition(" ")[2]
            parts = _parts(url)
            if config.from_file:
                # Definitions of admins hold no secret (`authentication`), and must not hide words of others.
                yield parts.query
                yield from (value for name, value in parse_qsl(parts.query) if _KEY_NAME.search(name))
            yield parts.password or ""
            yield unquote(parts.password or "")
            if parts.password:
                # This is how it is sent (RFC 7617).
                pair = f"{unquote(parts.username or '')}:{unquote(parts.password)}".encode()
                yield base64.b64encode(pair).decode("ascii")
        case _:
            return


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def address(url: str) -> str:
    """An address without what may be secret in it: credentials, query and fragment."""
    parts = _parts(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def shown(state: ServerState, redact: Redaction) -> ServerState:
    """How a server stands, as people may see it: no header, no environment, no secret in command or address."""
    config = state.config
    transport: Transport
    match config.transport:
        case StdioTransport(command=command, args=args, cwd=cwd, launch=launch):
            transport = StdioTransport(redact(command), tuple(map(redact, args)), cwd=cwd, launch=launch)
        case HttpTransport(url=url, kind=kind):
            transport = HttpTransport(redact(address(url)), kind=kind)
    terms = None if config.sign_in is None else replace(config.sign_in, client_secret="")
    return replace(state, config=replace(config, transport=transport, sign_in=terms), problem=redact(state.problem))
