"""The table of methods: callers, rate limits and arguments of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from tests.fakes.slack.arguments import Arguments
from tests.fakes.slack.messages import Json
from tests.fakes.slack.state import Caller

Handler = Callable[[Caller, Arguments], Json]
Tier = Literal["tier1", "tier2", "tier3", "tier4", "special"]


@dataclass(frozen=True)
class Method:
    """One method. One of `scopes` is required, none if empty. `json` is True if it reads a JSON body."""

    name: str
    handler: Handler
    tier: Tier
    arguments: frozenset[str]
    scopes: tuple[str, ...] = ()
    json: bool = True
    app_token: bool = False


METHODS: dict[str, Method] = {}


def method(
    name: str, tier: Tier, arguments: Iterable[str], *scopes: str, json: bool = True, app_token: bool = False
) -> Callable[[Handler], Handler]:
    """Put the decorated function into the table."""

    def enter(handler: Handler) -> Handler:
        METHODS[name] = Method(name, handler, tier, frozenset(arguments), scopes, json, app_token)
        return handler

    return enter


POSTED = ("text", "blocks", "attachments", "thread_ts", "as_user", "link_names", "parse", "markdown_text")
DRESSED = ("icon_emoji", "icon_url", "username")
PAGED = ("cursor", "limit")
