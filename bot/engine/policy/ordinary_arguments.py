"""Arguments that are known to concern nobody but the asker (ADR 54).

A call that leaves the closed world has ordinary arguments only if each of them is known to be harmless: everything else
may reach other people. A call that only its server reads must not contain an id, a mention or an address of others.
Texts are compared in the form that the most lenient reader sees (`_decoded`).
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from bot.domain.characters import ESCAPES, INVISIBLE
from bot.domain.conversations import Author, ConversationKey
from bot.domain.flows import FILE_ENDINGS, Sends, speaks_of_address
from bot.domain.tools import Tool

MOST_READ = 5_000
"""Characters in arguments of an open call that are looked at. Longer ones are not known."""
_MOST_ENCODED = 5
"""Encodings inside one another that are undone. A text with more is not known."""
_PEOPLE_AND_PLACES = frozenset(
    (
        "to", "cc", "bcc", "recipient", "recipients", "receiver", "receivers", "user", "users", "username", "usernames",
        "userid", "member", "members", "people", "person", "persons", "assignee", "assignees", "assign", "assigned",
        "owner", "owners", "reviewer", "reviewers", "approver", "approvers", "attendee", "attendees", "participant",
        "participants", "invite", "invites", "invitee", "invitees", "guest", "guests", "email", "emails", "mail",
        "mailbox", "phone", "mobile", "tel", "telephone", "fax", "sms", "contact", "contacts", "handle", "mention",
        "mentions", "notify", "notifications", "watcher", "watchers", "follower", "followers", "subscriber",
        "subscribers", "group", "groups", "team", "teams", "role", "roles", "channel", "channels", "room", "rooms",
        "chat", "chats", "conversation", "conversations", "dm", "thread", "threads", "server", "guild", "workspace",
        "workspaces", "org", "organization", "organisation", "tenant", "account", "accounts", "iban", "address",
        "addresses", "audience", "share", "shared", "sharing", "visibility", "public", "publish", "broadcast",
        "destination", "destinations", "forward", "reply", "repo", "repos", "repository",
        "target", "targets", "rcpt", "whom", "mailto", "collaborator", "collaborators", "permission", "permissions",
        "access", "viewer", "viewers", "editor", "editors", "private",
    )
)  # fmt: skip
"""Words in the name of an argument whose values choose who learns of a call."""
_ID = r"""
    (?<![\w-])[UWSCGD](?=[A-Z]*[0-9])[A-Z0-9]{7,}(?![\w-])      # Slack
  | (?<![\w-])[0-9]{17,20}(?![\w-])                             # Discord
"""
_NAMED = re.compile(rf"<[@#!][^<>\s]*>|@\w|{_ID}", re.VERBOSE)
"""Names of a user, a group or a channel, on any platform."""
_NOT_PLAIN = re.compile(
    rf"""
    [@\\]                                                       # mentions and addresses, and unknown escapes
  | \#\w | <(?=[^\s\d=-])                                       # channels, markup
  | ^\s*(?:\{{|\[\s*[\["{{]) | ["']\s*:                             # JSON
  | :: | //                                                     # IPv6, URLs without a scheme
  | (?:^|[\s(\[{{<])\.[\s)\]}}>"'`*]*[^\W\d] | [)\]}}>"'`*]\.["'`*]?\w     # dots apart from their host: evil[.]com
  | \w\W+(?i:dot)\W+\w | [(\[{{<]\s*(?i:at)\s*[)\]}}>]             # hosts and addresses in words
  | (?<![\w.-])[0-9]{{9,15}}(?![\w-]) | (?<![\w.-])\+[\s(]*[0-9](?:[\s().-]*[0-9]){{6,}}   # telephone numbers
  | (?<![\w.-])\(?[0-9]{{1,5}}\)?(?:[\s().-]{{1,2}}[0-9]{{2,}})(?:[\s().-]{{1,2}}[0-9]+)*(?<=[0-9])(?![\w-])
  | {_ID}
    """,
    re.VERBOSE,
)
_TIME = r"\d{1,2}[:.]\d{2}(?::\d{2}(?:\.\d+)?)?(?:[ap]m|z|[+-]\d{2}:?\d{2})?"
_DAY = r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2}))"
_MOMENT = re.compile(rf"(?<![\w.:+-])(?:{_DAY}(?:[t\s]{_TIME})?|{_TIME}(?:-{_TIME})?)(?![\w:-]|\.\w)", re.IGNORECASE)
"""A date, a time, or both."""
_WORD = r"[^\W_]+(?:['_+&-][^\W_]+)*"
_PLAIN = re.compile(
    rf"""
    {_WORD}(?:/{_WORD})*                                        # words, and/or, notes/today
  | v?\d+(?:\.\d+){{1,2}}\w*                                    # 3.5kg, v1.2.3
  | (?:[^\W\d]\.)+[^\W\d]                                       # e.g, U.S.A
  | (?:{_WORD}/)*{_WORD}(?:\.{_WORD})*\.(?:{"|".join(sorted(FILE_ENDINGS))})
  | \W*
    """,
    re.VERBOSE | re.IGNORECASE,
)
_BETWEEN = re.compile(r"""[\s"“”„«»\u2018\u201a()\[\]{},;!?、。・…\u2013—]+""")
_AT_ENDS = "'\u2019*_~`-+&%=^|:./<>$#"
_IDEOGRAPHIC_DOT = re.compile(r"(?<=[a-z0-9])。(?=[a-z0-9])|(?<=\w)。(?=[a-z]{2,}(?:\Z|[/:?#.。\n]))", re.IGNORECASE)
_ESCAPED = re.compile(
    r"\\u\{([0-9a-f]{1,6})\}|(?:\\u|%u)([0-9a-f]{4})|\\U([0-9a-f]{8})|\\x([0-9a-f]{2})", re.IGNORECASE
)
_ESCAPED_SIGN = re.compile(r"\\([\"'/])")
_UNKNOWN = "@unknown"
"""In place of a text that is encoded too often to be read: never plain."""


def concerns_others(tool: Tool, arguments: Mapping[str, Any], asker: Author, conversation: ConversationKey) -> bool:
    """Return True unless the arguments are known to concern only the asker and the conversation. Arguments that are
    left out have their defaults. One that the operator lists in `tool_recipients` must be there.
    """
    own = re.compile("|".join(map(_own_name, _own_names(asker, conversation))))
    arguments = {**_defaults(tool), **arguments}
    chosen = [arguments.get(name) for name in tool.flow.recipients]
    recipients = [text.strip() for value in chosen for text in leaf_texts(value)]
    if chosen and (None in chosen or not recipients or not all(map(own.fullmatch, recipients))):
        return True
    texts = leaf_texts(arguments)
    if tool.sends_with(arguments) is Sends.CLOSED:
        return any(_NAMED.search(own.sub(" ", _decoded(text))) for text in texts)
    return sum(map(len, texts)) > MOST_READ or not _is_known(arguments, own)


def leaf_texts(value: object) -> list[str]:
    """Return the texts and numbers in an argument, with the keys of objects."""
    match value:
        case None | "":
            return []
        case Mapping():
            return [leaf for pair in value.items() for item in pair for leaf in leaf_texts(item)]
        case list() | tuple():
            return [leaf for item in value for leaf in leaf_texts(item)]
        case _:
            return [str(value)]


def _is_known(value: object, own: re.Pattern[str], name: str = "") -> bool:
    """Return True if a value is known to concern nobody else. `name` has the names of its argument, `own` matches names
    of the asker and the conversation.
    """
    match value:
        case None | "":
            return True
        case False:
            return "private" not in name.lower()
        case Mapping():
            return all(
                _is_known(str(key), own) and _is_known(inner, own, f"{name} {_decoded(str(key))}")
                for key, inner in value.items()
            )
        case list() | tuple():
            return all(_is_known(inner, own, name) for inner in value)
    text = str(value)
    if (is_own := own.fullmatch(text.strip())) or speaks_of_address(name, _PEOPLE_AND_PLACES):
        return bool(is_own or _MOMENT.fullmatch(text.strip()))
    return _is_plain(text, own) if isinstance(value, str) else not _NAMED.search(text)


def _is_plain(text: str, own: re.Pattern[str]) -> bool:
    """Return True for words, numbers, dates and file names with ordinary punctuation."""
    text = _MOMENT.sub(" ", own.sub(" ", _decoded(text)))
    words = (word.strip(_AT_ENDS) for word in _BETWEEN.split(text))
    return not _NOT_PLAIN.search(text) and all(map(_PLAIN.fullmatch, words))


def _decoded(text: str) -> str:
    """Return a text without encodings, in compatibility form, without characters that show nothing."""
    for _round in range(_MOST_ENCODED):
        before = text
        text = unquote(html.unescape(text))
        text = _ESCAPED.sub(_character, text)
        text = _ESCAPED_SIGN.sub(r"\1", text)
        text = INVISIBLE.sub("", ESCAPES.sub("", text))
        if not text.isascii():
            text = _IDEOGRAPHIC_DOT.sub(".", unicodedata.normalize("NFKC", text))
            text = "".join(map(_without_mark, text))
        if text == before:
            return text
    return _UNKNOWN


def _without_mark(character: str) -> str:
    """Return nothing for a combining mark, and a blank for a picture."""
    if character.isascii():
        return character
    category = unicodedata.category(character)
    return "" if category[0] == "M" else " " if category in ("So", "Sk", "Sc", "Sm") else character


def _character(match: re.Match[str]) -> str:
    code = int(next(filter(None, match.groups())), 16)
    return chr(code) if code <= 0x10FFFF else match[0]


def _defaults(tool: Tool) -> Mapping[str, Any]:
    properties = tool.input_schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    return {
        name: schema["default"] for name, schema in known.items() if isinstance(schema, Mapping) and "default" in schema
    }


def _own_names(asker: Author, conversation: ConversationKey) -> Sequence[str]:
    """Return the ways in which arguments may name the asker and their conversation. Users choose their display names,
    so these do not count.
    """
    user = (asker.id, asker.principal, f"@{asker.id}", f"<@{asker.id}>", f"<@!{asker.id}>")
    places = filter(None, (conversation.channel, conversation.thread))
    return (*user, *(name for place in places for name in (place, f"#{place}", f"<#{place}>")))


def _own_name(name: str) -> str:
    """Return the pattern of a name of the asker's in a text, also with a label."""
    inner = re.escape(name[:-1]) + r"(?:\|[^<>\s]*)?>" if name.startswith("<") else re.escape(name)
    return rf"(?<![\w@#<&!:-]){inner}(?![\w@-]|[.:]\w)"
