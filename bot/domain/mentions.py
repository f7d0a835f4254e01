"""Mentions of users and groups in the syntax of Slack and Discord, as principals."""

from __future__ import annotations

import re

from bot.i18n import _

_MENTION = re.compile(r"<(@!?|@&|!subteam\^)([A-Z]*)([A-Z0-9]+)(?:\|[^>]*)?>")
_BARE_NAME = re.compile(r"(?:^|[\s,:])@([\w.-]{1,80})")


def with_principals(text: str) -> str:
    """Return a text with principals in place of mentions, as Slack and Discord write them."""

    def principal(mention: re.Match[str]) -> str:
        kind, letters, rest = mention.groups()
        platform = "slack" if letters else "discord"
        group = {"@&": "-role", "!subteam^": "-group"}.get(kind, "")
        return f"{platform}{group}:{letters}{rest}"

    return _MENTION.sub(principal, text)


def parse_principals(text: str) -> str:
    """Return the same. Raises ValueError for a name that the platform has not resolved."""
    resolved = with_principals(text)
    if bare := _BARE_NAME.search(resolved):
        name = f"`@{bare[1]}`"
        error = _("{name} says no id. Choose it in the list that opens after `@`, or write PLATFORM:ID.", name=name)
        raise ValueError(error)
    return resolved
