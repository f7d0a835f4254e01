"""The table of routes: allowed parameters and callers of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.discord.drafts import Draft, Upload
from tests.fakes.discord.refusals import Json
from tests.fakes.discord.state import DiscordState


@dataclass(frozen=True)
class Request:
    """One call as a handler sees it: `path` parameters, query, body, uploaded files by their index."""

    world: DiscordState
    path: dict[str, str]
    query: dict[str, str]
    body: Any
    uploads: dict[str, Upload] = field(default_factory=dict)

    @property
    def draft(self) -> Draft:
        """The body as that of a message."""
        return Draft(self.body, self.uploads)


@dataclass(frozen=True)
class Answered:
    """An answer with a status other than 200, or 204 for None."""

    status: int
    body: Any


Handler = Callable[[Request], Json | list[Json] | Answered | None]


@dataclass(frozen=True)
class Route:
    """One route. `open`: the path carries a token of its own, so the bot's is not asked for; such calls do not count
    towards fifty a second. `body`: 'none', 'object' or 'list'.
    """

    name: str
    handler: Handler
    pattern: re.Pattern[str]
    method: str
    query: frozenset[str]
    body: str
    open: bool

    def major(self, path: dict[str, str]) -> str:
        """Return the channel, guild or token whose bucket a call belongs to."""
        return "+".join(path[name] for name in ("channel", "guild", "token") if name in path)


ROUTES: dict[str, Route] = {}


def route(
    name: str, *, query: Iterable[str] = (), body: str = "none", without_token: bool = False
) -> Callable[[Handler], Handler]:
    """Put the decorated function into the table under 'METHOD /path/{parameter}'."""
    method, _, path = name.partition(" ")
    pattern = re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(path)))

    def enter(handler: Handler) -> Handler:
        ROUTES[name] = Route(name, handler, pattern, method, frozenset(query), body, without_token)
        return handler

    return enter


def find_route(method: str, path: str) -> tuple[Route, dict[str, str]] | None:
    """Return the route of a call with its path parameters; the first in the table that fits."""
    for each in ROUTES.values():
        match = each.pattern.fullmatch(path)
        if match and each.method == method:
            return each, match.groupdict()
    return None
