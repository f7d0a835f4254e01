"""Values and calls in a model's text, in the syntax of JSON, of Python or of Gemma. Nothing is evaluated."""

from __future__ import annotations

import json
import re
from typing import Any

from bot.domain.lenient_json import unique_names

_LEXEME = re.compile(
    r'(?s)\s*+(?:"""(?P<block>.*?)"""|"(?P<double>(?:[^"\\]++|\\.)*+)"|\'(?P<single>(?:[^\'\\]++|\\.)*+)\''
    r'|<escape>(?P<escape>.*?)<escape>|<\|"\|>(?P<quoted>.*?)<\|"\|>|(?P<key>[\w.-]+)\s*[:=]|(?P<call>[\w./-]+)\('
    r"|(?P<word>(?:[Tt]rue|[Ff]alse|None|null|[-\d][\d.eE+-]*)\b)|,(?P<last>)(?=\s*[]})])|(?P<mark>[][){},:]))"
)
_UNFINISHED = re.compile(r"\s*(?:[\"']|<escape>|<\|\"\|>|<?[\w./+|\"-]*\Z)")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": "", **{c: c for c in "\"'\\/"}}
WORDS = {"True": "true", "False": "false", "None": "null", ")": "}}"}
_FORMS = {"key": "{}:", "call": '{{"name": {}, "arguments": {{'}
_MOST_LEXEMES = 20_000


def read_value(text: str, start: int) -> tuple[Any, int]:
    """Return the list, object or call that begins at a place, and its end. `f(a=1)` is the object
    `{"name": "f", "arguments": {"a": 1}}`; calls in arguments and arguments without names are invalid. Raises EOFError
    if the text ends too early, and ValueError.
    """
    written, depth, at = [], 0, start
    for _ in range(_MOST_LEXEMES):
        lexeme = _LEXEME.match(text, at)
        if lexeme is None:
            raise EOFError if _UNFINISHED.match(text, at) else ValueError("no value")
        at, kind = lexeme.end(), lexeme.lastgroup or ""
        value = lexeme[kind]
        if kind == "call" and depth != (text[start] == "["):
            raise ValueError("a call in a call")
        if kind not in ("word", "mark", "last"):
            value = json.dumps(value if kind in ("escape", "quoted") else _ESCAPE.sub(_unescape, value))
        written.append(_FORMS.get(kind, "{}").format(WORDS.get(value, value)))
        depth += (kind == "call" or lexeme["mark"] in ("{", "[")) - (lexeme["mark"] in ("}", "]", ")"))
        if not depth:
            return json.loads("".join(written), object_pairs_hook=unique_names), at
    raise ValueError("too large")


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1] or match[2], 16)) if match[3] is None else _ESCAPES.get(match[3], match[0])
