"""Detection of secrets by name or by shape, strength of a secret, and headers that are no secrets.

Detection is a guess and prefers false positives. The stored secrets of this program are unknown here. Text for models,
transcripts and the terminal's history is masked by it. The arguments of a call that waits for an approval are not
masked: a match only keeps the call from being approved in a shared place (`argument_secrets`).

Strength is an estimate in bits. It assumes an attacker with knowledge of common names and passwords: a word is one
choice among some two thousand, regardless of its length. Characters without such an order count by their alphabet.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

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


MASK = "••••"

_NAMES = re.compile(
    r"passw(or)?d|passphrase|secret(?!ar)|token(?!i[sz])|api[-_ ]?key|access[-_ ]?key|private[-_ ]?key|authorization"
    r"|credential|(^|[-_ ])(pwd|pin|otp|auth|cookie)($|[-_ ])",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_HARMLESS = re.compile(
    r"(^|[-_ ])(max|min|num|count|total|limit|next|page|input|output)[-_ ].*tokens?$|tokens$"
    r"|tokens?[-_ ](count|limit|budget|usage)$",
    re.IGNORECASE,
)

_RUN_TOGETHER = re.compile(
    r"passw(or[dt]|d)|passphrase|passcode|kennwort|motdepasse|contrase(n|nh)a|(api|access|private|secret|ssh|signing|"
    r"encryption)key|(access|bearer|auth|refresh|api)token|(seed|recovery|backup|mnemonic)(phrase|words?|codes?)|"
    r"(onetime|security|verification|authenticator|authentication|login|2fa|mfa)(code|pin|password)|"
    r"(credit|debit|bank)card(number|no)|cardnumber|(card|social)securitynumber"
)
_SHORT = re.compile(r"(^| )(pin|otp|totp|cvv|cvc|ssn|pwd|2fa|mfa)( |$)")
# Letters of other scripts that look like those of the words above.
_LIKE_LATIN = str.maketrans("аеорсѕіԁκкпԝухյοανρτт", "aeopcsidkknwyxjoavptt")

TOKEN, PRIVATE_KEY, PASSWORD = "looks like a token", "looks like a private key", "looks like a password"
# `password: hunter2`, `api_key=...`, `my password is ...`
_ASSIGNED = (
    r"(?i:\b\w{0,40}(?:password|passwd|passphrase|secret(?!ar)|api[-_]?key|access[-_]?key|auth[-_]?token|access[-_]?token)"
    r"\w*"
    r"[\"']?\s*(?:[:=]|\bis\b)\s*)[^\s,;]+"
)
_SHAPES = (
    # Tokens that say what they are: OpenAI, Anthropic, Slack, Discord, GitHub, GitLab, AWS, Google, Stripe, npm.
    (TOKEN, r"\bsk-[A-Za-z0-9_-]{12,}"),
    (TOKEN, r"\bx(?:ox[a-z]|app)-[A-Za-z0-9-]{8,}"),
    (TOKEN, r"\b[MNO][A-Za-z0-9_-]{22,28}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}"),
    (TOKEN, r"\bgh[a-z]_[A-Za-z0-9]{16,}"),
    (TOKEN, r"\bgithub_pat_[A-Za-z0-9_]{16,}"),
    (TOKEN, r"\bglpat-[A-Za-z0-9_-]{12,}"),
    (TOKEN, r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    (TOKEN, r"\bAIza[A-Za-z0-9_-]{30,}"),
    (TOKEN, r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{10,}"),
    (TOKEN, r"\bnpm_[A-Za-z0-9]{20,}"),
    # JSON web tokens, private keys, credentials in an address, an Authorization header.
    (TOKEN, r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"),
    (PRIVATE_KEY, r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"),
    (PASSWORD, r"(?<=://)[^\s/:@]*:[^\s/@]+(?=@)"),
    (TOKEN, r"(?i:\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/-]{12,}=*"),
    (PASSWORD, _ASSIGNED),
)
# What stands behind these in sentences, as in `the password is wrong` and `Password: reset fails`.
_ORDINARY = re.compile(
    r"a|about|after|all|already|also|always|an|and|any|as|at|because|before|blank|by|changed|compromised|"
    r"correct|disabled|empty|enabled|encrypted|exposed|expired|for|forgotten|from|hashed|hidden|how|if|in|"
    r"incorrect|invalid|it|kept|leaked|longer|lost|masked|missing|needed|never|no|not|now|of|on|only|"
    r"optional|or|policy|prompt|rejected|required|reset|rotated|rotation|saved|see|sent|set|shared|short|"
    r"shown|still|stored|that|the|this|to|too|unchanged|unknown|unset|updated|used|valid|visible|weak|"
    r"when|with|wrong",
    re.IGNORECASE,
)
_ONE_WORD = re.compile(r"(?i:bearer|basic)\s+[A-Z]?[a-z]+")
"""`basic authentication`: a token of this length does not consist of small letters alone."""
# One group for each shape tells which of them it was.
_SECRETS = re.compile("|".join(f"({shape})" for _, shape in _SHAPES))


def is_secret_name(name: str) -> bool:
    """Return True if a value under this name is likely a secret: `api_key`, `accessToken`, `Authorization`."""
    spaced = _CAMEL.sub("_", name)
    return bool(_NAMES.search(spaced)) and not _HARMLESS.search(spaced)


def asks_for_secret(words: str) -> bool:
    """Return True if a text asks its reader for a secret: a field's name or title, or a sentence. Lookalike letters
    are mapped and hidden ones removed, because the text may be written to evade this check.
    """
    decomposed = unicodedata.normalize("NFKD", _CAMEL.sub(" ", words))
    letters = "".join(each for each in decomposed if unicodedata.category(each) not in ("Mn", "Me", "Cf", "Cc"))
    spaced = " ".join(re.split(r"[\W_]+", letters.casefold().translate(_LIKE_LATIN))).strip()
    return is_secret_name(spaced) or bool(_SHORT.search(spaced) or _RUN_TOGETHER.search(spaced.replace(" ", "")))


def looks_like_secret(text: str) -> bool:
    """Return True if the text contains the shape of a secret."""
    return bool(_SECRETS.search(text))


def secret_shapes(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the start, the end and the reason of each part of the text that has the shape of a secret. Sentences about
    secrets, such as `the password is wrong`, are skipped: they do not keep a call from being approved in a shared
    place.
    """
    for match in _SECRETS.finditer(text):
        if not _is_ordinary(match.group()):
            yield match.start(), match.end(), _SHAPES[(match.lastindex or 1) - 1][0]


def _is_ordinary(found: str) -> bool:
    """Return True if a part with the shape of a secret is `basic` or `bearer` and a word, or ends with one of
    `_ORDINARY`.
    """
    *before, last = found.split()
    word = _ORDINARY.fullmatch(last.strip(".:!?\"'")) or _ONE_WORD.fullmatch(found)
    return bool(before and word)


def redact(text: str) -> str:
    """Return the text with MASK in place of every part that looks like a secret."""
    return _SECRETS.sub(MASK, text)


def redact_secrets(name: str, value: Any) -> Any:
    """Return a JSON value with MASK in place of every secret, judged by `name`, the names inside and the texts."""
    if is_secret_name(name) and value not in (None, ""):
        return MASK
    match value:
        case str():
            return redact(value)
        case Mapping():
            return {str(key): redact_secrets(str(key), inner) for key, inner in value.items()}
        case list() | tuple():
            return [redact_secrets("", inner) for inner in value]
        case _:
            return value


_LONGEST_HEADER = 200
_CREDENTIAL_NAMES = ("token", "secret", "key", "pass", "auth", "cred", "cookie", "session", "signature")
"""Parts of header names whose values always count as secret."""
_ELSEWHERE = ("env:", "file:", "***")
"""Prefixes of values that refer to a secret stored elsewhere."""


def is_plain_header(name: str, value: str) -> bool:
    """Return True if a header is not secret: its name is not that of a credential, and its value is too easy to guess
    for a stored secret.
    """
    if is_secret_name(name) or any(part in name.lower() for part in _CREDENTIAL_NAMES):
        return False
    sendable = bool(value) and len(value) <= _LONGEST_HEADER and value.isascii() and value.isprintable()
    return sendable and not value.startswith(_ELSEWHERE) and not looks_like_secret(value) and bool(weakness(value))
