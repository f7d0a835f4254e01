"""Strength of a secret: an estimate in bits, and the minimum for secrets of servers and of the operator.

The estimate assumes an attacker with knowledge of common names and passwords: a word is one choice among some two
thousand, regardless of its length. Characters without such an order count by their alphabet.
"""

from __future__ import annotations

import math
import re

LEAST_BITS = 40.0
"""Minimum for a stored secret of a server: 10^12 guesses. One result of a tool holds at most some 10^6."""
LEAST_OPERATOR_BITS = 60.0
"""Minimum for secrets that an operator chooses: they protect every workspace, and are guessed without a tool call."""

_LONGEST = 512
"""Maximum number of judged characters. More characters do not make a secret weak."""
_WORD_BITS = 11.0
_COMMON_LETTERS = 6
_MORE_LETTERS_BITS = 2.0
"""Bits for each letter of a word after `_COMMON_LETTERS`, because long words are rarer."""
_DIGIT_BITS = math.log2(10)
_SEPARATOR_BITS = 1.0
_RANDOM_SHARE = 0.3
"""Minimum share of letters outside words in a random text."""
_LEET_SHARE = 0.3
"""Share of digits up to which they may stand for letters, as in `passw0rd`."""
_LONG_RUN = 12
_LEAST_VOWELS = 0.3
"""Share of vowels in `_LONG_RUN` letters of words; of random letters 23 % are vowels."""

_RUNS = re.compile(r"[^\W\d_]+|\d+|[\W_]+")
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\W\d_]")
"""Words of `camelCase`, `PascalCase` and `CAPITALS`."""
_NO_WORD = re.compile(r"[^aeiouy]{5,}|[aeiouy]{4,}")
_VOWELS = re.compile(r"[aeiouy]")
_REPEAT = re.compile(r"(?P<one>.)(?P=one){3,}|(?P<several>.{2,16}?)(?P=several){2,}", re.DOTALL)
_LEET = str.maketrans("013457@$", "oleastas")
_HEX = re.compile(r"[0-9a-f-]+|[0-9A-F-]+")
_ALPHABETS = ((10, re.compile(r"[0-9]")), (26, re.compile(r"[a-z]")), (26, re.compile(r"[A-Z]")))
_ROWS = ("01234567890", "abcdefghijklmnopqrstuvwxyz", "qwertyuiop", "asdfghjkl", "zxcvbnm")
_SEQUENCES = (*_ROWS, *(row[::-1] for row in _ROWS))
_SHORTEST_SEQUENCE = 4


def bits_of(secret: str) -> float:
    """Return the estimated strength of a secret, in bits."""
    text = _REPEAT.sub(_once, secret.strip()[:_LONGEST])
    runs = _RUNS.findall(_without_leet(text))
    letters = sum(len(run) for run in runs if run.isalpha())
    words = sum(len(run) for run in runs if _is_words(run))
    if letters and letters - words >= _RANDOM_SHARE * letters:
        return len(_without_sequences(text)) * _bits_per_character(text)
    return sum(map(_run_bits, runs))


def weakness(secret: str, least: float = LEAST_BITS) -> str:
    """Return the weakness of a secret as the end of `It is …`; empty if it is strong enough."""
    if bits_of(secret) >= least:
        return ""
    runs = _RUNS.findall(secret.strip())
    if all(not run.isalpha() for run in runs):
        return "a number of few digits" if any(map(str.isdigit, runs)) else "too short"
    if all(not run.isdigit() for run in runs) and any(map(_is_words, runs)):
        return "a word, or a few words in a row"
    return "too short" if len(secret.strip()) < least / _bits_per_character(secret) else "easy to guess"


def _once(repeated: re.Match[str]) -> str:
    return repeated["one"] or repeated["several"]


def _without_leet(text: str) -> str:
    """Return the text with letters in place of look-alike digits, if it has few digits."""
    digits = sum(map(str.isdigit, text))
    return text.translate(_LEET) if digits <= _LEET_SHARE * len(text) else text


def _is_words(run: str) -> bool:
    """Return True if consecutive letters may be one word or several, as in `listIssues`."""
    parts = _PARTS.findall(run) if run.isalpha() else []
    if len(run) >= _LONG_RUN and len(_VOWELS.findall(run.lower())) < _LEAST_VOWELS * len(run):
        return False
    return sum(len(part) for part in parts if _is_word(part)) > (1 - _RANDOM_SHARE) * len(run)


def _is_word(part: str) -> bool:
    lowered = part.lower()
    return len(part) >= 3 and bool(_VOWELS.search(lowered)) and not _NO_WORD.search(lowered)


def _run_bits(run: str) -> float:
    if run.isdigit():
        return len(_without_sequences(run)) * _DIGIT_BITS
    if not run.isalpha():
        return _SEPARATOR_BITS * len(set(run))
    if not _is_words(run):
        return len(_without_sequences(run)) * _bits_per_character(run)
    return sum(map(_word_bits, _PARTS.findall(run)))


def _word_bits(part: str) -> float:
    if len(part) < 3:
        return _WORD_BITS / 2
    return _WORD_BITS + max(0, len(part) - _COMMON_LETTERS) * _MORE_LETTERS_BITS


def _bits_per_character(text: str) -> float:
    if any(map(str.isdigit, text)) and _HEX.fullmatch(text):
        return 4.0
    return math.log2(max(sum(size for size, kind in _ALPHABETS if kind.search(text)), 2))


def _without_sequences(text: str) -> str:
    """Return the text with two characters for each sequence of a keyboard or of the alphabet, such as `12345`."""
    kept, rest = "", text
    while rest:
        length = _sequence_length(rest)
        kept, rest = (kept + rest[:2], rest[length:]) if length else (kept + rest[0], rest[1:])
    return kept


def _sequence_length(text: str) -> int:
    lowered, best = text[:26].lower(), 0
    for sequence in _SEQUENCES:
        length = _SHORTEST_SEQUENCE
        while length <= len(lowered) and lowered[:length] in sequence:
            best, length = max(best, length), length + 1
    return best
