"""Redaction of known secrets.

A secret belongs to one server. `Redaction` redacts a server's secrets in that server's own texts only, because a
redacted guess would reveal the secrets of others. `KnownSecrets` has the secrets of all servers and of the
operator, for the log.
"""

from __future__ import annotations

import base64
import json
import re
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, quote_plus, unquote, urlsplit

from bot.domain.characters import FoldedText, fold, visible
from bot.domain.secrets import SecretSpan, is_plain_header, weakness
from bot.domain.servers import DesiredServer, HttpTransport, ServerConfig, ServerSnapshot, StdioTransport, Transport
from bot.i18n import LazyText, gettext_lazy

HIDDEN = "***"
_SHORTEST = 6
"""Minimum length of a secret. Shorter values (`true`, `8080`) are settings, and redacting them would garble texts."""
USER_NAME = gettext_lazy("user name")
"""Label of a user name for basic authentication, which may be a word."""
_NOT_SECRET = frozenset(("accept", "accept-language", "content-type", "user-agent"))
_REMEMBERED = 8
"""Token generations kept for each server."""
_SHORTEST_LINE = 16
"""Minimum length of a line of a multi-line secret that is redacted on its own, because logs are split into lines."""
_JSON_TOKEN = re.compile(
    r"""(?P<key>"[^"\\]*(?:\\.[^"\\]*)*"(?=\s*:))|(?P<text>"[^"\\]*(?:\\.[^"\\]*)*")"""
    r"""|(?P<number>-?\d[^\s,\]}]*)|(?P<open>\{)|(?P<close>\})"""
)
"""Tokens of valid JSON that hold a value, and the braces."""
_JSON_CHARACTER = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|.", re.DOTALL)
"""One character of the value of a string literal, which may be a pair of escaped surrogates."""
_FOUND = "~"
"""Character in place of one of a secret that needs no further search."""
_KEY_NAMES = ("key", "token", "secret", "pass", "auth", "sig", "cred")
"""Parts of names of query parameters with secret values."""


@dataclass(frozen=True, slots=True)
class Secret:
    """Secret of a server. `label` names it for users: `header Authorization`, `variable API_KEY`."""

    value: str = field(repr=False)
    label: str = gettext_lazy("secret")

    @property
    def weakness(self) -> str:
        """Reason why it is easy to guess, as the end of `It is …`; empty if it is strong."""
        return weakness(self.value)


class Spellings:
    """Secrets in every spelling that texts may contain, and disguised by invisible characters or by variants of its
    letters. A strong secret is also found with blanks and line ends in it. Immutable.
    """

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._labels: dict[str, str] = {}
        self._folded: dict[bool, dict[str, str]] = {}
        for secret in secrets:
            has_blanks = bool(secret.weakness)
            for spelled in _spellings(secret.value):
                self._labels.setdefault(spelled, secret.label)
                folded = fold(spelled, blanks=has_blanks)
                if len(folded) >= _SHORTEST:
                    self._folded.setdefault(has_blanks, {}).setdefault(folded, secret.label)

    def spans(self, text: str) -> Iterator[SecretSpan]:
        """Return every occurrence, in no order. They may overlap."""
        literal = [SecretSpan(*occurrence) for occurrence in _occurrences(self._labels, text)]
        yield from literal
        rest = text
        for spelled in {text[span.start : span.end] for span in literal}:
            rest = rest.replace(spelled, _FOUND * len(spelled))
        for has_blanks, labels in self._folded.items():
            folded = FoldedText(rest, blanks=has_blanks)
            if folded.text != rest:
                for start, end, label in _occurrences(labels, folded.text):
                    yield SecretSpan(*folded.span(start, end), label)

    def __contains__(self, text: str) -> bool:
        """True if a secret occurs in the text."""
        return any(True for _span in self.spans(text))


def _occurrences(labels: Mapping[str, str], text: str) -> Iterator[tuple[int, int, str]]:
    for spelled, label in labels.items():
        end = 0
        while (start := text.find(spelled, end)) >= 0:
            end = start + len(spelled)
            yield start, end, label


_NO_SPELLINGS = Spellings()


class PassingTokens:
    """Temporary tokens of one server: the last `_REMEMBERED` generations, so that the set stays small."""

    def __init__(self) -> None:
        self._generations: deque[frozenset[str]] = deque(maxlen=_REMEMBERED)
        self.spellings = _NO_SPELLINGS
        """Spellings of strong tokens. A weak one, chosen by the authorization server, must not redact ordinary
        words.
        """

    def add_generation(self, tokens: Iterable[str]) -> None:
        """Add a generation, unless it is known."""
        generation = frozenset(token for token in tokens if token and not weakness(token))
        if generation and generation not in self._generations:
            self._generations.append(generation)
            self.spellings = Spellings(
                Secret(token, gettext_lazy("token of its sign-in"))
                for token_set in self._generations
                for token in token_set
            )

    def clear(self) -> None:
        """Drop all of them: the bot is signed out."""
        self._generations.clear()
        self.spellings = _NO_SPELLINGS


class Redaction:
    """Redaction of one server's secrets in its own texts.

    A call replaces each secret by `***`, also in its JSON and URL spellings. Do not redact names and definitions of
    tools: use `found_in`.
    """

    def __init__(self, secrets: Iterable[Secret] = (), tokens: PassingTokens | None = None) -> None:
        self.secrets = tuple(secrets)
        self.strong = Spellings(secret for secret in self.secrets if not secret.weakness)
        self._all = Spellings(self.secrets)
        self._tokens = tokens or PassingTokens()

    def __call__(self, text: str) -> str:
        """Return the text without the secrets of this server. In a lazy text, they can only be in its values."""
        if isinstance(text, LazyText):
            return text.map(self)
        return _without(text, self._all_spans(text))

    def clean(self, text: str) -> str:
        """Return a text for users, without invisible characters and secrets."""
        return text.map(self.clean) if isinstance(text, LazyText) else self(visible(text))

    def spans(self, text: str) -> tuple[SecretSpan, ...]:
        """Return the positions of strong secrets in the text, in order and without overlaps. Weak ones may be
        words, so approvers must see them.
        """
        return _merge_spans((*self.strong.spans(text), *self._tokens.spellings.spans(text)))

    def found_in(self, value: Any) -> bool:
        """True if a strong secret of this server is in a JSON value: in a text, a key or a number."""
        match value:
            case Mapping():
                return any(self.found_in(key) or self.found_in(inner) for key, inner in value.items())
            case list() | tuple():
                return any(map(self.found_in, value))
            case bool() | None:
                return False
            case _:
                text = str(value)
                return text in self.strong or text in self._tokens.spellings

    def json(self, value: Any) -> Any:
        """Return a JSON value of the same structure with every text in it redacted. A key or a number stays as it is
        unless a strong secret is in it.
        """
        match value:
            case str():
                return self(value)
            case list() | tuple():
                return [self.json(item) for item in value]
            case dict():
                redacted: dict[str, Any] = {}
                for key, inner in value.items():
                    name = _unique(_without(str(key), self.spans(str(key))), redacted)
                    redacted[name] = self.json(inner)
                return redacted
            case int() | float() if self.found_in(value):
                return HIDDEN
            case _:
                return value

    def json_text(self, text: str) -> str:
        """Return the text without secrets. JSON stays JSON: a secret is replaced within its own literal, and every
        other character stays. Parsing and dumping would change `1e400`, long decimals and escapes.
        """
        redacted = self(text)
        is_plain = redacted == text and "\\" not in text
        if is_plain or not text.lstrip().startswith(("{", "[")):
            return redacted
        try:
            json.loads(text, parse_float=str, parse_int=str)
        except (ValueError, RecursionError):
            return redacted
        names: list[set[str]] = []

        def redact_token(token: re.Match[str]) -> str:
            match token.lastgroup:
                case "open":
                    names.append(set())
                case "close":
                    names.pop()
                case "key" if (literal := _in_literal(token[0], self.spans)) != token[0]:
                    name = _unique(literal[1:-1], names[-1])
                    names[-1].add(name)
                    return f'"{name}"'
                case "text":
                    return _in_literal(token[0], self._all_spans)
                case "number" if self.found_in(token[0]):
                    return f'"{HIDDEN}"'
            return token[0]

        return _JSON_TOKEN.sub(redact_token, text)

    def _all_spans(self, text: str) -> tuple[SecretSpan, ...]:
        return _merge_spans((*self._all.spans(text), *self._tokens.spellings.spans(text)))


class KnownSecrets:
    """All secrets of this process: those of managed servers and of the operator. A call redacts a log line."""

    def __init__(self, operator: Iterable[str] = ()) -> None:
        self._operator = Spellings(Secret(value) for value in operator)
        self._open: dict[str, list[Redaction]] = {}
        self._tokens: dict[str, PassingTokens] = {}

    def open(self, entry: DesiredServer) -> Redaction:
        """Return the redaction of a server as it is defined. Its secrets are in no log until `close`."""
        redaction = Redaction(secrets_of(entry), self.tokens(entry.config.id))
        self._open.setdefault(entry.config.id, []).append(redaction)
        return redaction

    def close(self, server_id: str, redaction: Redaction) -> None:
        """Drop the secrets of a definition that is kept no more."""
        others = [other for other in self._open.get(server_id, ()) if other is not redaction]
        if others:
            self._open[server_id] = others
        else:
            self._open.pop(server_id, None)
            self._tokens.pop(server_id, None)

    def tokens(self, server_id: str) -> PassingTokens:
        """Return the temporary tokens of a server's sign-in."""
        return self._tokens.setdefault(server_id, PassingTokens())

    def __call__(self, text: str) -> str:
        """Return a log line without any secret. A weak one of a server, which may be a word, stays."""
        known = [self._operator, *(tokens.spellings for tokens in self._tokens.values())]
        known += [redaction.strong for others in self._open.values() for redaction in others]
        return _without(text, [span for spellings in known for span in spellings.spans(text)])


def _merge_spans(spans: Iterable[SecretSpan]) -> tuple[SecretSpan, ...]:
    merged: list[SecretSpan] = []
    for span in sorted(spans, key=lambda candidate: (candidate.start, -candidate.end)):
        if merged and span.start < merged[-1].end:
            merged[-1] = replace(merged[-1], end=max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return tuple(merged)


def _without(text: str, spans: Iterable[SecretSpan]) -> str:
    pieces, end = [], 0
    for span in _merge_spans(spans):
        pieces += [text[end : span.start], HIDDEN]
        end = span.end
    return "".join((*pieces, text[end:])) if pieces else text


def _in_literal(literal: str, spans: Callable[[str], Iterable[SecretSpan]]) -> str:
    """Return a JSON string literal without the secrets that `spans` finds in its value. Its other escapes stay."""
    body = literal[1:-1]
    if "\\" not in body:
        return f'"{_without(body, spans(body))}"'
    starts = [0, *accumulate(map(len, _JSON_CHARACTER.findall(body)))]
    shifted = [replace(span, start=starts[span.start], end=starts[span.end]) for span in spans(json.loads(literal))]
    return f'"{_without(body, shifted)}"'


def _unique(name: str, names: Container[str]) -> str:
    numbered, number = name, 1
    while numbered in names:
        number += 1
        numbered = f"{name} {number}"
    return numbered


def _spellings(secret: str) -> Iterator[str]:
    secret = secret.strip()
    if len(secret) < _SHORTEST:
        return
    lines = (line.strip() for line in secret.splitlines()) if "\n" in secret else ()
    for part in (secret, *(line for line in lines if len(line) >= _SHORTEST_LINE and not line.startswith("-----"))):
        yield part
        for literal in (json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1]):
            yield literal
            yield literal.replace("/", r"\/")
        # A variable may hold arbitrary bytes, which Python decodes to surrogates.
        yield quote(part, errors="surrogatepass")
        yield quote(part, safe="", errors="surrogatepass")
        yield quote_plus(part, errors="surrogatepass")


def secrets_of(entry: DesiredServer) -> Iterator[Secret]:
    """Return the secrets of a server: those that were put into its definition, and those of the definition itself:
    header values, with and without their scheme, and the parts of the address that are never shown.
    """
    named = dict(_named_values(entry.config))
    for value in sorted(entry.secrets):
        yield Secret(value, next((name for text, name in named.items() if value in text), gettext_lazy("secret")))
    yield from _of_definition(entry.config)


def _named_values(config: ServerConfig) -> Iterator[tuple[str, str]]:
    """Yield each value that may hold a secret, and its name."""
    if config.sign_in is not None and config.sign_in.client_secret:
        yield config.sign_in.client_secret, gettext_lazy("secret of its OAuth client")
    match config.transport:
        case HttpTransport(url=url, headers=headers):
            for name, value in headers.items():
                pair = _basic_pair(value)
                yield pair.partition(":")[0], USER_NAME
                yield value, gettext_lazy("header {name}", name=name)
                yield pair, gettext_lazy("header {name}", name=name)
            yield url, gettext_lazy("address")
        case StdioTransport(env=env, args=args):
            yield from ((value, gettext_lazy("variable {name}", name=name)) for name, value in env.items())
            yield from ((value, gettext_lazy("argument of its command")) for value in args)


def _of_definition(config: ServerConfig) -> Iterator[Secret]:
    if config.sign_in is not None:
        yield Secret(config.sign_in.client_secret, gettext_lazy("secret of its OAuth client"))
    match config.transport:
        case HttpTransport(url=url, headers=headers):
            for name, value in headers.items():
                plain = not config.from_file and is_plain_header(name, value)
                if name.lower() not in _NOT_SECRET and not plain:
                    yield Secret(value, gettext_lazy("header {name}", name=name))
                    yield Secret(value.rpartition(" ")[2], gettext_lazy("header {name}", name=name))
            parts = _parts(url)
            if config.from_file:
                # Definitions of admins hold no secret (`credentials`).
                yield Secret(parts.query, gettext_lazy("address"))
                yield from (
                    Secret(value, gettext_lazy("address"))
                    for name, value in parse_qsl(parts.query)
                    if any(part in name.lower() for part in _KEY_NAMES)
                )
            yield Secret(parts.password or "", gettext_lazy("password in the address"))
            yield Secret(unquote(parts.password or ""), gettext_lazy("password in the address"))
            if parts.password:
                # This is the form in which it is sent (RFC 7617).
                pair = f"{unquote(parts.username or '')}:{unquote(parts.password)}".encode()
                yield Secret(base64.b64encode(pair).decode("ascii"), gettext_lazy("password in the address"))


def _basic_pair(header: str) -> str:
    """Return user name and password of a header for basic authentication (RFC 7617); empty for others."""
    scheme, _, pair = header.partition(" ")
    try:
        return base64.b64decode(pair, validate=True).decode() if scheme.lower() == "basic" else ""
    except ValueError:
        return ""


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def public_address(url: str) -> str:
    """Return an address without credentials, query and fragment."""
    parts = _parts(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def redacted_snapshot(state: ServerSnapshot, redact: Redaction) -> ServerSnapshot:
    """Return a server's snapshot for users: without headers and environment, with command and address redacted."""
    config = state.config
    transport: Transport
    match config.transport:
        case StdioTransport(command=command, args=args, cwd=cwd, launch=launch):
            transport = StdioTransport(redact(command), tuple(map(redact, args)), cwd=cwd, launch=launch)
        case HttpTransport(url=url, kind=kind):
            transport = HttpTransport(redact(public_address(url)), kind=kind)
    terms = None if config.sign_in is None else replace(config.sign_in, client_secret="")
    shown_config = replace(config, transport=transport, sign_in=terms)
    return replace(
        state,
        config=shown_config,
        problem=redact(state.problem),
        own_problem=redact(state.own_problem),
        left_out=tuple(map(redact, state.left_out)),
    )
