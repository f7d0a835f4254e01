"""Information flow of tools: the authors of the text a tool returns, the readers of the data its calls send, and the
sources of the words in a prompt.

Authors and readers are separate, although one hint of MCP (`openWorldHint`) covers both: a mailbox holds the words of
strangers, and searching it sends nothing to them. `bot.engine.policy.information_flow` decides by them (ADR 17).
Sources are kept with every reply and summary that was written from a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bot.i18n import gettext_lazy

_ADDRESS_FORMATS = frozenset(("uri", "uri-reference", "uri-template", "iri", "iri-reference", "url", "hostname"))
_ADDRESS_WORDS = frozenset(
    (
        "url", "urls", "uri", "uris", "href", "link", "links", "host", "hosts", "hostname", "domain", "domains",
        "webhook", "endpoint", "site", "website", "webpage", "ip", "bucket", "registry", "proxy", "callback",
    )
)  # fmt: skip
_NAME_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_DEEPEST = 8
_TOP = r"(?P<top>xn--[\w-]+|[^\W\d]{2,})\.?(?::\d+)?"
_ADDRESS = re.compile(
    # As browsers read it: one slash, a backslash or none after the scheme of the web is enough, and no scheme at all.
    rf"""://|\bhttps?:\S|^\s*[/\\]{{2}}|^\s*(?:[\w-]+\.)+{_TOP}[/?#]""",
    re.IGNORECASE,
)
# Without a label below the registered name, a lookup of the host carries nothing.
_HOST = re.compile(rf"\s*(?:[\w-]+\.){{2,}}{_TOP}\s*", re.IGNORECASE)
FILE_ENDINGS = frozenset(
    (
        "bak", "cfg", "conf", "cpp", "cs", "css", "csv", "db", "dll", "doc", "docx", "eml", "env", "exe", "gif", "go",
        "gz", "htm", "html", "ini", "ipynb", "jpeg", "jpg", "js", "json", "jsonl", "jsx", "kt", "lock", "log", "lua",
        "parquet", "pdf", "pem", "php", "png", "pptx", "proto", "pyc", "rb", "rst", "rtf", "scss", "sql", "sqlite",
        "svg", "swift", "tar", "tex", "tgz", "toml", "ts", "tsv", "tsx", "txt", "vue", "wav", "webp", "xls", "xlsx",
        "xml", "yaml", "yml",
    )
)  # fmt: skip
"""Endings of file names that are not top-level domains; `md`, `py`, `rs`, `sh` and `zip` are."""


class _Ordered(StrEnum):
    @property
    def rank(self) -> int:
        """Position in the order of the members: 0 is the first."""
        return list(type(self)).index(self)


class Words(_Ordered):
    """Author of the text that a tool returns, most trustworthy first."""

    OWN = "own"
    """Text that only the operator, the asking user, or the tool itself writes."""
    SHARED = "shared"
    """Text that several people of the team write."""
    STRANGERS = "strangers"
    """Text that people outside the team may write."""


class Sends(_Ordered):
    """Readers of the data that a call sends, fewest first."""

    CLOSED = "closed"
    """Only the server."""
    TEAM = "team"
    """Other people of the team."""
    WORLD = "world"
    """People outside the team."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Settings of one tool; with None its server's hints decide. `recipients` are the arguments that name the
    receivers of the call's data; empty if no argument does.
    """

    words: Words | None = None
    sends: Sends | None = None
    recipients: tuple[str, ...] = ()


UNSET = Flow()


@dataclass(frozen=True, slots=True)
class ServerFlows:
    """Settings of a server's tools: `words` and `sends` for all of them, the mappings for single tools by the
    server's tool names.
    """

    words: Words | None = None
    sends: Sends | None = None
    tool_words: Mapping[str, Words] = field(default_factory=dict)
    tool_sends: Mapping[str, Sends] = field(default_factory=dict)
    tool_recipients: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def flow_of(self, tool: str) -> Flow:
        """Return the settings of a tool by its name."""
        return Flow(
            self.tool_words.get(tool, self.words),
            self.tool_sends.get(tool, self.sends),
            self.tool_recipients.get(tool, ()),
        )

    @property
    def tools(self) -> frozenset[str]:
        """Names of the tools with settings of their own."""
        return frozenset((*self.tool_words, *self.tool_sends, *self.tool_recipients))

    def loosens(self, before: ServerFlows) -> bool:
        """Return True if any call may ask less often than under `before`. None counts as looser than any value, and any
        value but the strictest as looser than None, because hints differ by tool.
        """
        pairs = [(self.flow_of(tool), before.flow_of(tool)) for tool in self.tools | before.tools]
        # Now it exempts no call that it did not then: no recipients at all, or all that were there.
        return any(
            _looser(now.words, then.words, Words.STRANGERS)
            or _looser(now.sends, then.sends, Sends.WORLD)
            or not (not now.recipients or (bool(then.recipients) and set(now.recipients) >= set(then.recipients)))
            for now, then in (*pairs, (Flow(self.words, self.sends), Flow(before.words, before.sends)))
        )


NO_FLOWS = ServerFlows()


def _looser(after: Words | Sends | None, before: Words | Sends | None, strictest: Words | Sends) -> bool:
    if after == before or after is strictest:
        return False
    return after is None or before is None or after.rank < before.rank


def takes_address(schema: object) -> bool:
    """Return True if an argument of this schema may choose the address that a call goes to, judged by names and
    formats.
    """
    known = _properties(schema, _DEEPEST)
    return any(inner.get("format") in _ADDRESS_FORMATS or _speaks_of_address(name) for name, inner in known)


def _speaks_of_address(name: str) -> bool:
    return not _ADDRESS_WORDS.isdisjoint(part.lower() for part in _NAME_PARTS.findall(name))


def _properties(schema: object, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the properties of a schema and of its nested schemas. Deeper nesting than `depth` counts as an address."""
    if not isinstance(schema, Mapping):
        return
    if depth == 0:
        yield "url", schema
        return
    properties = schema.get("properties")
    for name, subschema in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(subschema, Mapping):
            yield str(name), subschema
            yield from _properties(subschema, depth - 1)
    for key in ("items", "additionalProperties"):
        yield from _properties(schema.get(key), depth - 1)
    for key in ("$defs", "definitions"):
        named = schema.get(key)
        for subschema in named.values() if isinstance(named, Mapping) else ():
            yield from _properties(subschema, depth - 1)
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        options = schema.get(key)
        for subschema in options if isinstance(options, list | tuple) else ():
            yield from _properties(subschema, depth - 1)


def holds_address(value: object) -> bool:
    """Return True if any text in a value is a web address, contains a URL, or is a host name below a registered one,
    because a label of it may carry data.
    """
    match value:
        case str():
            return _ADDRESS.search(value) is not None or _is_host(value)
        case Mapping():
            return any(holds_address(item) for pair in value.items() for item in pair)
        case list() | tuple():
            return any(map(holds_address, value))
        case _:
            return False


def _is_host(text: str) -> bool:
    match = _HOST.fullmatch(text)
    return match is not None and match["top"].lower() not in FILE_ENDINGS


class OtherSource(StrEnum):
    """A source of words that is not a tool's result. The value is stored."""

    ATTACHMENT = "attachment"
    THREAD = "thread"
    RESULT = "result"

    @property
    def label(self) -> str:
        """Phrase for the source in a sentence for users."""
        return str(_LABELS[self])


_LABELS = {
    OtherSource.ATTACHMENT: gettext_lazy("an attached file"),
    OtherSource.THREAD: gettext_lazy("earlier messages here"),
    OtherSource.RESULT: gettext_lazy("an earlier result"),
}


@dataclass(frozen=True, slots=True)
class ToolSource:
    """Tool with a result in the prompt. All fields are those at the time of the call."""

    server: str
    tool: str
    server_id: str
    definition: str
    place: str


@dataclass(frozen=True, slots=True)
class PersonSource:
    """User with a question in the prompt. `principal` is as in settings: `slack:U123`."""

    principal: str


Source = ToolSource | PersonSource | OtherSource
Sources = tuple[Source, ...]
"""Distinct sources in the order of their first occurrence."""
