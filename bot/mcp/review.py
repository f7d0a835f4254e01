"""Review of tools and instructions: their names for a model, pinned definitions, and a scan for suspicious definitions.

A tool is offered if its definition equals its pin. Pins come from the stores. Until they are loaded, the server's first
listing is taken as pinned. A suspicious definition is shown to the admin who reviews it.

Models accept `^[a-zA-Z0-9_-]{1,64}$`. MCP tools may have other names, and two servers may use the same one. An offered
name depends only on the server's definition and the tool, so it does not change with other servers.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bot.domain.characters import visible
from bot.domain.lazy_pattern import lazy_pattern
from bot.domain.pins import WAITING, Pinned, ReviewPolicy, ReviewStatus, first_pins, review_status
from bot.domain.servers import HttpKind, ServerConfig, ToolNaming, kind_of
from bot.domain.tools import OWN_SERVER, Tool, ToolKind
from bot.i18n import gettext_lazy
from bot.mcp.config.checks import endpoint_fingerprint

if TYPE_CHECKING:
    from mcp import types

log = logging.getLogger(__name__)

_NAMED = 5
_LONGEST = 100_000
"""Maximum number of characters of a definition that are scanned."""
_LONGEST_QUOTE = 60
_SHORTEST_NAME = 6
_ESCAPES = lazy_pattern(r"\x1b[\[\]]|\x9b")
# Allowed: all line ends, a byte order mark at the beginning, and joiners, which emoji and some scripts need.
_HIDDEN = lazy_pattern(
    "(?<=[^\n])\ufeff|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\u200b\u2060-\u2064\ud800-\udfff]"
    "|[\u202a-\u202e\u2066-\u2069]|[\U000e0000-\U000e007f]|[\U000e0100-\U000e01ef]"
    "|(?<=[A-Za-z0-9 ])[\u200c\u200d](?=[A-Za-z0-9 ])"
)
_COMMENT = lazy_pattern(r"<!--")
_ENCODED = lazy_pattern(r"(?<![A-Za-z0-9+/])(?=[A-Za-z0-9+/]*[a-z])(?=[A-Za-z0-9+/]*[A-Z])(?=[A-Za-z0-9+/]*[0-9])"
                      r"[A-Za-z0-9+/]{80,}={0,2}")  # fmt: skip
_PATHS = lazy_pattern(
    r"~/\.(?:ssh|aws|gnupg|kube|netrc|cursor|npmrc|docker/config)\b|/etc/(?:passwd|shadow)\b"
    r"|\bid_(?:rsa|ed25519|ecdsa)\b|\.(?:aws/credentials|cursor/mcp\.json|ssh/)",
    re.IGNORECASE,
)
_ORDERS = lazy_pattern(
    r"""
    \b(?:ignore|disregard|forget|override)\s+(?:(?:all|any|of|the|your)\s+)*
        (?:previous|prior|above|earlier|preceding|other|system)\s+
        (?:instruction|rule|prompt|message|tool|guideline|direction)s?
    | \b(?:do\s+not|don\Wt|never|must\s+not|without)\s+
        (?:tell|inform|mention|reveal|notify|show|alert|warn)(?:ing)?\s+(?:\w+\s+){0,4}?(?:user|human|person)s?\b
    | \bwithout\s+asking\s+(?:the\s+)?(?:user|human)s?\b
    | \b(?:hide|conceal|secret|hidden)\s+(?:this\s+|it\s+)?from\s+(?:the\s+)?(?:user|human)s?\b
    | <\s{0,3}/?\s{0,3}(?:important|system|instructions?|secret|assistant|critical)\s{0,3}>
    | \[\s{0,3}(?:system|important\s+instructions?)\s{0,3}\]
    | \bbefore\s+(?:using|calling|invoking|running)\s+(?:this|any|every|all|other|any\s+other)\s+(?:tool|function)s?
    | \bsystem\s+prompt\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_WORD = lazy_pattern(r"[A-Za-z0-9_-]+")
_COMPOSED = lazy_pattern(r"[A-Za-z0-9][_-]+[A-Za-z0-9]|[a-z][A-Z]")
_PROSE = ("title", "description")
_LONGEST_NAME = 64
_UNFIT = lazy_pattern(r"[^a-zA-Z0-9_-]")
_LOOKS_MARKED = lazy_pattern(r"_[0-9a-f]{8}$")


class ToolPinning:
    """Pins of the server `name`. `pinned` is None until they are loaded. The tools include the instructions."""

    def __init__(self, name: str, policy: ReviewPolicy, pinned: Pinned | None) -> None:
        self._name = name
        self._policy = policy
        self._pinned = pinned
        self._tools: tuple[Tool, ...] = ()
        self._unpinned: tuple[Tool, ...] = ()
        self._refused: tuple[Tool, ...] = ()
        self._withheld: frozenset[str] = frozenset()
        self._logged: set[str] = set()

    def set_known_tools(self, tools: Sequence[Tool]) -> None:
        """Set definitions that the server offered before, without logging."""
        self._compare(tools)
        self._logged.update(self._withheld)

    def set_current_tools(self, tools: Sequence[Tool]) -> None:
        """Set the current definitions. Newly withheld ones are logged."""
        self._compare(tools)
        self._log_withheld()

    def set_pins(self, pinned: Pinned | None) -> bool:
        """Set the pins. Return True if offered tools are withheld now, because a newer definition was pinned."""
        if pinned is None or pinned == self._pinned:
            return False
        before = self._withheld
        self._pinned = pinned
        self._compare(self._tools)
        # Log a reviewed tool again if it changes once more.
        self._logged &= self._withheld
        self._log_withheld()
        return bool(self._withheld - before)

    @property
    def unpinned_tools(self) -> tuple[Tool, ...]:
        """Tools that wait for a review, in the server's order."""
        return self._unpinned

    @property
    def refused_tools(self) -> tuple[Tool, ...]:
        """Tools with a refused definition, in the server's order."""
        return self._refused

    @property
    def offered(self) -> tuple[Tool, ...]:
        """Tools that may be offered."""
        return tuple(
            tool for tool in self._tools if tool.name not in self._withheld and tool.kind is not ToolKind.INSTRUCTIONS
        )

    @property
    def instructions(self) -> str:
        """Instructions of the server that may be given to the model; empty without any."""
        texts = (tool.description for tool in self._tools if tool.kind is ToolKind.INSTRUCTIONS)
        return "".join(texts) if ToolKind.INSTRUCTIONS not in self._withheld else ""

    @property
    def withheld(self) -> frozenset[str]:
        """Names of tools that an admin has to accept first."""
        return self._withheld - {ToolKind.INSTRUCTIONS}

    @property
    def withheld_definitions(self) -> tuple[Tool, ...]:
        """Everything that waits for an admin's review, the instructions included."""
        return tuple(tool for tool in self._unpinned if tool.name in self._withheld)

    def is_pinned(self, tool: Tool) -> bool:
        """Return True if this definition is pinned."""
        return self._pinned is not None and review_status(tool, self._pinned) is ReviewStatus.PINNED

    def _compare(self, tools: Sequence[Tool]) -> None:
        self._tools = tuple(tools)
        if self._pinned is None and tools:
            self._pinned = first_pins(tools)
        statuses = [(tool, review_status(tool, self._pinned or {})) for tool in self._tools]
        self._unpinned = tuple(tool for tool, status in statuses if status in WAITING)
        self._refused = tuple(tool for tool, status in statuses if status is ReviewStatus.REFUSED)
        waiting = self._unpinned if self._policy is ReviewPolicy.CHANGED else ()
        self._withheld = frozenset(tool.name for tool in (*waiting, *self._refused))

    def _log_withheld(self) -> None:
        news = [tool for tool in self._unpinned if tool.name in self._withheld - self._logged]
        self._logged.update(self._withheld)
        if news:
            pinned = self._pinned or {}
            names = ", ".join(f"{tool.original_name[:64]!r} ({review_status(tool, pinned)})" for tool in news[:_NAMED])
            more = f" and {len(news) - _NAMED} more" if len(news) > _NAMED else ""
            log.warning(
                "MCP server %s: tools withheld until an admin reviews them (/mcp review %s): %s%s",
                self._name,
                self._name,
                names,
                more,
            )


def scan_definition(tool: types.Tool, foreign: Collection[str]) -> tuple[str, ...]:
    """Return the findings as short phrases; empty if there are none. `foreign` are tool names of other servers."""
    text = "\n".join((tool.name, *_top(tool), *_strings([tool.input_schema, tool.output_schema])))
    if len(text) > _LONGEST:
        return (gettext_lazy("it is longer than {most} characters", most=f"{_LONGEST:,}"),)
    return tuple(reason for reason in (*_of_text(text), _of_names(tool, foreign)) if reason)


def is_distinctive(name: str) -> bool:
    """Return True for a tool name that rarely occurs by chance: `create_issue` and `createIssue`, not `search`."""
    return len(name) >= _SHORTEST_NAME and bool(_COMPOSED.search(name))


def _of_text(text: str) -> Iterator[str]:
    kinds = (
        (_ESCAPES, gettext_lazy("there are a terminal's escape sequences in it")),
        (_HIDDEN, gettext_lazy("there are invisible characters in it")),
        (_COMMENT, gettext_lazy("there is an HTML comment in it, which most displays hide")),
        (_ENCODED, gettext_lazy("there is a long piece in it that looks encoded")),
    )
    yield from (reason for kind, reason in kinds if kind.search(text))
    # Invisible characters may split an instruction.
    visible_text = visible(text)
    for kind, reason in (
        (_ORDERS, gettext_lazy("it gives orders to the model")),
        (_PATHS, gettext_lazy("it names files that hold secrets")),
    ):
        if match := kind.search(visible_text):
            quote = f"\u201c{' '.join(match[0].split())[:_LONGEST_QUOTE]}\u201d"
            yield gettext_lazy("{reason}: {quote}", reason=reason, quote=quote)


def _of_names(tool: types.Tool, foreign: Collection[str]) -> str:
    if not foreign:
        return ""
    # Without values of a schema, which may equal tool names.
    texts = (*_top(tool), *_descriptions([tool.input_schema, tool.output_schema]))
    words = {word for text in texts for word in _WORD.findall(text)}
    names = sorted(words.intersection(foreign))
    return (
        gettext_lazy("it names tools of other servers: {names}", names=", ".join(names)[:_LONGEST_QUOTE])
        if names
        else ""
    )


def _descriptions(schema: Any) -> Iterator[str]:
    match schema:
        case dict():
            for key, value in schema.items():
                if key in _PROSE and isinstance(value, str):
                    yield value
                else:
                    yield from _descriptions(value)
        case list():
            for item in schema:
                yield from _descriptions(item)


def _top(tool: types.Tool) -> Iterator[str]:
    title = tool.annotations.title if tool.annotations is not None else None
    yield from (text for text in (tool.title, title, tool.description) if text)


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, item in value.items():
                yield str(key)
                yield from _strings(item)
        case list():
            for item in value:
                yield from _strings(item)


def offered_name(server: str, tool: str) -> str:
    """Return `server__tool` if that is valid and unambiguous; else a valid, shortened form with eight hexadecimal
    digits of the pair's SHA-256.

    The digits are added to: names with other characters, long names, servers with an ambiguous border (`a__b` + `c`
    and `a` + `b__c`), names that look marked already, and all tools of a server named like the bot.
    """
    unclear = "__" in server or server.endswith("_")
    return _valid(f"{server}__{tool}", [server, tool], clear=not unclear and server != OWN_SERVER)


def name_at_server(server: str, tool: str) -> str:
    """Return a valid name with eight hexadecimal digits that `offered_name` returns for no other pair."""
    return _valid(f"{server}__{tool}", ["server", server, tool], clear=False)


def plain_name(server: str, tool: str) -> str:
    """Return the tool's own name if a model accepts it and it cannot be taken for another kind of name; else
    `offered_name`.
    """
    is_other_kind = "__" in tool or tool.startswith(("mcp_", OWN_SERVER)) or _LOOKS_MARKED.search(tool)
    fits = 0 < len(tool) <= _LONGEST_NAME and not _UNFIT.search(tool) and not is_other_kind
    return tool if fits else offered_name(server, tool)


def generic_name(server: str) -> str:
    """Return `mcp_server`, the name of a server's only tool, by the same rules. It cannot collide, because other
    names contain two underscores.
    """
    plain = f"mcp_{server}"
    return _valid(plain, [server], clear="__" not in plain)


def _valid(plain: str, marked: list[str], *, clear: bool) -> str:
    stem = _UNFIT.sub("_", plain)
    if stem == plain and len(plain) <= _LONGEST_NAME and clear and not _LOOKS_MARKED.search(plain):
        return plain
    mark = "_" + hashlib.sha256(json.dumps(marked).encode()).hexdigest()[:8]
    return stem[: _LONGEST_NAME - len(mark)] + mark


def model_name(config: ServerConfig, tool: str) -> str:
    """Return the name that a model knows a tool by. Servers of one fallback group have the same for the same tool."""
    prefix = config.fallback_group or config.name
    return plain_name(prefix, tool) if config.tool_names is ToolNaming.PLAIN else offered_name(prefix, tool)


def apply_definition(tool: Tool, config: ServerConfig) -> Tool:
    """Return a tool as this definition of its server offers it. The stored tool may be of an older definition."""
    if tool.kind is ToolKind.INSTRUCTIONS:
        return replace(tool, server=config.name, server_id=config.id)
    name = generic_name(config.name)
    if kind_of(config.transport) not in (HttpKind.JSONRPC, HttpKind.AUTO) or tool.original_name != name:
        name = model_name(config, tool.original_name)
    return replace(
        tool,
        name=name,
        server=config.name,
        server_id=config.id,
        trusted=config.trusted,
        place=endpoint_fingerprint(config),
        flow=config.flows.flow_of(tool.original_name),
        preview=config.preview.get(tool.original_name, config.preview.get("*", "")),
    )
