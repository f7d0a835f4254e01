"""What people type in Slack as plain text: mentions, channels and links by their names, entities undone.

The syntax is Slack's "formatting text for app surfaces". What comes out is data and is shown to the model as such.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(r"<([@#!][^<>\n\s][^<>\n]*|[a-z][a-z0-9+.-]*:[^<>\n]+)>")
_USER = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")
_AT = re.compile(r"(?<![\w.])@(?=\w)")
_WORD_JOINER = "\N{WORD JOINER}"
_UNNAMED_CHANNEL = re.compile(r"<#([CGD][A-Z0-9]+)\|?>")


@dataclass(frozen=True, slots=True)
class MentionResolver:
    """Names of people and channels by id, as far as they are known."""

    people: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, str] = field(default_factory=dict)


def mentioned_people(text: str) -> tuple[str, ...]:
    """The ids of everybody a text mentions, in order."""
    return tuple(dict.fromkeys(_USER.findall(text)))


def unnamed_channels(text: str) -> tuple[str, ...]:
    """The ids of the channels a text names without saying what they are called."""
    return tuple(dict.fromkeys(_UNNAMED_CHANNEL.findall(text)))


def strip_bot_mention(text: str, bot: str) -> str:
    """The text without the mentions of the bot it begins or ends with."""
    mention = rf"<@{re.escape(bot)}(?:\|[^<>]*)?>"
    text = re.sub(rf"^(?:\s*{mention}[\s,:]*)+", "", text)
    return re.sub(rf"(?:\s*{mention})+\s*$", "", text).strip()


def to_plain_text(text: str, names: MentionResolver) -> str:
    """The text as it reads on the screen."""
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
    """Text that Slack shows as it stands: nothing in it mentions, links or formats a name."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def defuse_mentions(text: str) -> str:
    """Text in which `@here` is no more than a word."""
    return _AT.sub(f"@{_WORD_JOINER}", text)
