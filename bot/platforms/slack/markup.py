"""Slack markup as plain text: mentions, channels and links by name, entities unescaped.

The syntax is "formatting text for app surfaces" at docs.slack.dev. The result is untrusted data.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(r"<([@#!][^<>\n\s][^<>\n]*|[a-z][a-z0-9+.-]*:[^<>\n]+)>")
_USER = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")
_GROUP = re.compile(r"<!subteam\^(S[A-Z0-9]+)(?:\|[^<>]*)?>")
_AT = re.compile(r"(?<![\w.])@(?=\w)")
_WORD_JOINER = "\N{WORD JOINER}"
_UNNAMED_CHANNEL = re.compile(r"<#([CGD][A-Z0-9]+)\|?>")


@dataclass(frozen=True, slots=True)
class MentionResolver:
    """Known names of users and channels, by id."""

    people: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, str] = field(default_factory=dict)


def mentioned_people(text: str) -> tuple[str, ...]:
    """Return the ids of the mentioned users, in order."""
    return tuple(dict.fromkeys(_USER.findall(text)))


def mentioned_groups(text: str) -> frozenset[str]:
    """Return the ids of the mentioned user groups."""
    return frozenset(_GROUP.findall(text))


def unnamed_channels(text: str) -> tuple[str, ...]:
    """Return the ids of channel references without a name."""
    return tuple(dict.fromkeys(_UNNAMED_CHANNEL.findall(text)))


def strip_bot_mention(text: str, bot: str) -> str:
    """Return the text without a mention of the bot at its beginning or end."""
    mention = rf"<@{re.escape(bot)}(?:\|[^<>]*)?>"
    text = re.sub(rf"^(?:\s*{mention}[\s,:]*)+", "", text)
    return re.sub(rf"(?:\s*{mention})+\s*$", "", text).strip()


def to_plain_text(text: str, names: MentionResolver) -> str:
    """Return the text as Slack displays it."""
    return html.unescape(_TOKEN.sub(lambda match: _token(match[1], names), text))


def _token(inner: str, names: MentionResolver) -> str:
    target, _, label = inner.partition("|")
    match target[:1]:
        case "@":
            return f"@{names.people.get(target[1:]) or label or target[1:]}"
        case "#":
            return f"#{label or names.channels.get(target[1:]) or target[1:]}"
        case "!":
            return _special(target[1:], label)
        case _:
            shown = target.removeprefix("mailto:")
            return shown if not label or label in (shown, target) else f"{label} ({shown})"


def _special(target: str, label: str) -> str:
    name = target.partition("^")[0]
    return label or f"@{name}"


def escape(text: str) -> str:
    """Escape text, so that Slack reads no mention, link or format in it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def defuse_mentions(text: str) -> str:
    """Return text in which `@here` notifies no user."""
    return _AT.sub(f"@{_WORD_JOINER}", text)
