"""Arguments that are known to concern nobody but the asker (ADR 54).

A call that leaves the closed world has ordinary arguments only if each of them is known to be harmless: everything else
may reach other people. A call that only its server reads must not contain an id, a mention or an address of others.
Texts are compared in the form that the most lenient reader sees (`_decoded`).
"""

from __future__ import annotations

import base64
import html
import re
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from bot.domain.characters import ESCAPES, INVISIBLE
from bot.domain.conversations import Author, ConversationKey
from bot.domain.flows import FILE_ENDINGS, Sends
from bot.domain.lazy_pattern import lazy_pattern
from bot.domain.tools import Tool

MOST_READ = 5_000
"""Characters in arguments of an open call that are looked at. Longer ones are not known."""
_MOST_ENCODED = 5
"""Encodings inside one another that are undone. A text with more is not known."""
_ORDINARY_NAME = lazy_pattern(
    r"""(?:(?:
      title|subtitle|name|text|body|note|query|subject|summary|desc(?:ription)?|contents?|comment|message|msg|caption
      |head(?:er|ing|line)|label|tag|keyword|term|phrase|word|line|paragraph|section|details?|reason|question|answer|prompt
      |remark|memo|agenda|item|entry|task|todo|subtask|checklist|step|issue|ticket|bug|feature|event|meeting|page|doc(?:ument)?
      |article|chapter|story|epic|card|recipe|code|snippet|markdown|html|json|csv|sql|formula|regex|pattern|search|filter
      |kind|type|issuetype|category|status|state|stage|priority|severity|level|importance|urgency|colou?r|icon|emoji|lang
      |language|locale|format|style|theme|mode|sort|order|unit|currency|encoding|version|revision|environment
      |n|num(?:ber)?|count|limit|max(?:imum)?|min(?:imum)?|offset|size|width|height|length|depth|weight|quantity|qty|amount
      |price|cost|total|sum|ratio|rate|percent(?:age)?|score|rating|value|temperature|second|minute|hour|day|week|month|year
      |duration|timeout|interval|estimate|date|time|datetime|timestamp|timezone|zone|tz|start|end|begin|due|duedate|deadline
      |since|until|before|after|created|updated|modified|scheduled|reminder|recurrence|repeat|at|on|is|has|of|in|the|new|old
      |short|long|plain|rich|raw|done|completed?|checked|closed|archived|starred|pinned|enabled|active|important|urgent|include
      |verbose|recursive|overwrite|wrap|field|data|param(?:eter)?|option|propert(?:y|ie)|attribute|meta(?:data)?|record|row
      |column|cell|table|block|input|argument|project|path|file|filename|(?<!message\s)(?<!comment\s)id
      |titel|betreff|beschreibung|inhalt|notiz|kommentar|nachricht|datum|anzahl|menge|betrag|titre|objet|texte|contenu|corps
      |montant|t[ií]tulo|asunto|texto|contenido|cuerpo|cantidad|fecha|件名|題名|タイトル|本文|内容|メモ|説明|日付|日時|数量|金額
    )s?\s | \d+\s)*+""",
    re.VERBOSE,
)
"""A name of words that speak of content, time and quantity alone. Any other may choose who learns of a call."""
_REACH = lazy_pattern(
    r"(?:(?:is|send|notify|notification|update|public|publish|shared?|broadcast|mention|all|invite)s?\s)+"
)
"""A name that reaches more people if its value is true."""
_NAME_PARTS = lazy_pattern(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)|[\W_]+|$")
_ID = r"""
    (?<![\w-])[UWSCGD](?=[A-Z]*[0-9])[A-Z0-9]{7,}(?![\w-])      # Slack
  | (?<![\w-])[0-9]{17,20}(?![\w-])                             # Discord
"""
_NAMED = lazy_pattern(rf"<[@#!][^<>\s]*>|@\w|{_ID}", re.VERBOSE)
"""Names of a user, a group or a channel, on any platform."""
_GAP = r"(?:[^\w,:;|]|[_ーの]|,(?!\s)){1,3}"
"""Between digits of one telephone number, also in Japanese. A comma with a blank parts numbers."""
_DIGIT = r"(?:zero|one|two|three|four|five|six|seven|eight|nine|null|eins|zwei|drei|vier|fünf|sechs|sieben|acht|neun)"
_NOT_PLAIN = lazy_pattern(
    rf"""
    [@\\]                                                       # mentions and addresses, and unknown escapes
  | \#\w | <(?=[^\s\d=-])                                       # channels, markup
  | ^[ \t]*(?:\{{|\[\s*[\["{{]) | ["']\s*:                             # JSON
  | ^[ \t]*[!/][^\W\d][\w-]*(?=\s|$) | ^[^\w\n]*(?i:to|b?cc|reply-to)\s*:   # commands, headers of mail
  | :: | // | \+[A-Za-z0-9/]{{3,}}-                               # IPv6, URLs without a scheme, UTF-7
  | (?:^|[\s(\[{{<])\.[\s)\]}}>"'`*]*[^\W\d] | [)\]}}>"'`*]\.["'`*]?\w     # dots apart from their host: evil[.]com
  | \w\.\s+(?:(?i:com|net|org|edu|gov|info|biz|app|dev|io|ai|co|xyz|top|shop|site)\b | [^\W\d]{{2,}}[/:]\w)
  | [^\W_][\W_]+(?i:dot|ドット)[\W_]+\w | [(\[{{<*_-]\s*(?i:at|ät|arroba|アット)\s*[)\]}}>*_-] | アットマーク
  | [0-9](?:[\s()\[\]{{}}]*\.[\s()\[\]{{}}]*[0-9]{{1,3}}){{3}} | 0[xX][0-9a-fA-F] | \w。[^\W\d]+/\w     # IPv4, IDN
  | (?<![0-9a-fA-F])[0-9]{{9,15}}(?![0-9a-fA-F]) | \+[\s(]*[0-9](?:[\s().-]*[0-9]){{6}}     # telephone numbers
  | (?<![0-9])(?=[0-9]+{_GAP}[0-9])(?:[0-9](?:{_GAP})?){{6}}[0-9] | \b(?i:{_DIGIT}[\W_]*){{7}}
  | {_ID}
    """,
    re.VERBOSE | re.MULTILINE,
)
_TIME = r"(?:[01]?\d|2[0-4])[:.][0-5]\d(?::\d{2}(?:\.\d+)?)?(?:[ap]m|z|[+-]\d{2}:?\d{2})?"
_DAY = r"(?:(?:19|20)\d\d([-/.])[01]?\d\1[0-3]?\d|[0-3]?\d([-/.])[0-3]?\d\2(?:19|20)?\d\d)"
_MOMENT = lazy_pattern(
    rf"(?:(?<![\w.:+-])|(?<=[^\x00-\x7f]:))(?:{_DAY}(?:[t\s]{_TIME})?|{_TIME}(?:-{_TIME})?)(?![\w:-]|\.\w)",
    re.IGNORECASE,
)
"""A date, a time, or both."""
_HARMLESS = lazy_pattern(
    rf"""
    {_MOMENT.pattern} | \b[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}\b     # dates, UUIDs
  | (?<![\w.,:/+(-])(?<!\d\s)(?:
        [1-9]\d{{0,2}}(?:(?:,\d{{3}})+(?:\.\d\d?)?|(?:\.\d{{3}})+,\d\d?) | [1-9](?:\d?|00)(?:\s\d00)+     # amounts
      | (?:19|20)\d\d\s?[-/\u2013]\s?(?:19|20)\d\d               # years
    )(?![\w(/-]|[.,]\w|\s\d)
  | (?<![\w./-])(?:readme|changelog|contributing|notes?|todo|agenda|minutes|summary|plan|draft)\.md(?![\w/:.-]*\w)
  | (?:^|\b(?:and|or|with|in|for|und|oder|mit)\s)\.net(?![\w/:.-])
    """,
    re.VERBOSE | re.IGNORECASE,
)
_WORD = r"[^\W_]+(?:(?:['_+&-]|\+\+)[^\W_]+)*"
_PLAIN = lazy_pattern(
    rf"""
    {_WORD}(?:/{_WORD})*                                        # words, and/or, notes/today
  | v?\d+(?:\.\d+){{1,2}}\w*                                    # 3.5kg, v1.2.3
  | (?:[^\W\d]\.)+[^\W\d]                                       # e.g, U.S.A
  | (?:{_WORD}/)*{_WORD}(?:\.{_WORD})*\.(?:{"|".join(sorted(FILE_ENDINGS))})
  | \W*
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ENCODED = lazy_pattern(r"(?<![\w+/-])(?!(?:[A-Z]?[a-z]+|[A-Z]+|\d{1,12})(?![\w+/-]))[A-Za-z0-9+/_-]{6,}")
"""Codes of bytes, and words of mixed cases."""
# A colon parts words after a letter that no scheme has, unless a port follows.
_BETWEEN = lazy_pattern(
    r"""(?:[\s"“”„«»\u2018\u201a()\[\]{},;!?¡¿、。・…\u2013—]|(?<=[^\x00-\x7f]):(?!\d{2,5}(?!\w))|(?<=\d)%)+"""
)
_AT_ENDS = "'\u2019*_~`-+&%=^|:./<>$#"
_IDEOGRAPHIC_DOT = lazy_pattern(r"(?<=[a-z0-9])。(?=[a-z0-9])|(?<=\w)。(?=[a-z]{2,}(?:\Z|[/:?#.。\n]))", re.IGNORECASE)
_ESCAPED = lazy_pattern(
    r"\\u\{([0-9a-f]{1,6})\}|(?:\\u|%u)([0-9a-f]{4})|\\U([0-9a-f]{8})|\\x([0-9a-f]{2})", re.IGNORECASE
)
_ESCAPED_SIGN = lazy_pattern(r"\\([\"'/])")
_UNKNOWN = "@unknown"
"""In place of a text that is encoded too often to be read: never plain."""


def concerns_others(tool: Tool, arguments: Mapping[str, Any], asker: Author, conversation: ConversationKey) -> bool:
    """Return True unless the arguments are known to concern only the asker and the conversation. Arguments that are
    left out have their defaults. One that the operator lists in `tool_recipients` must be there.
    """
    names = [asker.id, asker.principal, f"@{asker.id}", f"<@{asker.id}>", f"<@!{asker.id}>"]
    for place in filter(None, (conversation.channel, conversation.thread)):
        names += [place, f"#{place}", f"<#{place}>"]
    own = re.compile("|".join(map(_own_name, names)))
    schemas = {name: schema for name, schema in tool.properties.items() if isinstance(schema, Mapping)}
    defaults = {name: schema["default"] for name, schema in schemas.items() if "default" in schema}
    arguments = {**defaults, **arguments}
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
        case Mapping():
            return all(
                _is_known(str(key), own) and _is_known(inner, own, f"{name} {_decoded(str(key))}")
                for key, inner in value.items()
            )
        case list() | tuple():
            return all(_is_known(inner, own, name) for inner in value)
    text = f"{value:.6g}" if isinstance(value, float) else str(value).strip()
    if own.fullmatch(text) or _MOMENT.fullmatch(text):
        return True
    words = _NAME_PARTS.sub(" ", name).lstrip().lower()
    if not _ORDINARY_NAME.fullmatch(words):
        return value is False and _REACH.fullmatch(words) is not None
    return _is_plain(text, own)


def _is_plain(text: str, own: re.Pattern[str]) -> bool:
    """Return True for words, numbers, dates and file names with ordinary punctuation, also inside of encoded bytes."""
    text = _HARMLESS.sub(" ", own.sub(" ", _decoded(text)))
    words = (word.strip(_AT_ENDS) for word in _BETWEEN.split(text))
    is_plain = not _NOT_PLAIN.search(text) and all(map(_PLAIN.fullmatch, words))
    return is_plain and all(_is_plain(inner, own) for inner in _decoded_bytes(text))


def _decoded_bytes(text: str) -> Iterator[str]:
    """Yield the texts in hexadecimal form, base 32 or base 64, also with blanks in them."""
    for code in (*_ENCODED.findall(text), *_ENCODED.findall("".join(text.split()))):
        padded = code + "=" * (-len(code) % 8)
        for decode, word in (
            (bytes.fromhex, code),
            (base64.b32decode, padded),
            (base64.urlsafe_b64decode, padded),
        ):
            with suppress(ValueError):
                if (inner := decode(word).decode("ascii")).isprintable():
                    yield inner


def _decoded(text: str) -> str:
    """Return a text without encodings, in compatibility form, without characters that show nothing."""
    for _round in range(_MOST_ENCODED):
        before = text
        text = _ESCAPED.sub(_character, unquote(html.unescape(text)))
        text = _ESCAPED_SIGN.sub(r"\1", text)
        text = INVISIBLE.sub("", ESCAPES.sub("", text))
        if not text.isascii():
            text = _IDEOGRAPHIC_DOT.sub(".", unicodedata.normalize("NFKC", text))
            text = "".join(map(_without_mark, text))
        if text == before:
            return text
    return _UNKNOWN


def _without_mark(character: str) -> str:
    """Return nothing for a combining mark, a blank for a picture, and a digit for one of any script."""
    if character.isascii():
        return character
    if (number := unicodedata.numeric(character, -1)) in range(10):
        return str(int(number))
    category = unicodedata.category(character)
    return "" if category[0] == "M" else " " if category in ("So", "Sk", "Sc", "Sm") else character


def _character(match: re.Match[str]) -> str:
    code = int(next(filter(None, match.groups())), 16)
    return chr(code) if code <= 0x10FFFF else match[0]


def _own_name(name: str) -> str:
    """Return the pattern of a name of the asker's in a text, also with a label."""
    inner = re.escape(name[:-1]) + r"(?:\|[^<>\s]*)?>" if name.startswith("<") else re.escape(name)
    return rf"(?<![\w@#<&!:-]){inner}(?![\w@-]|[.:]\w)"
