"""Secrets: references and one-time links, detection by name or by shape, and strength.

The value itself is not part of anything that is shown, compared or logged. A link allows one user to enter one secret
of one server on a page of the bot. Its token is not part of these values: its holder may use the link.

Detection is a guess and prefers false positives. The stored secrets of this program are unknown here. Text for models,
transcripts and the terminal's history is masked by it. The arguments of a call that waits for an approval are not
masked: a match (`Lookalike`) only keeps the call from being approved in a place with several readers, because it may be
a payload that is hidden from the approver. A stored secret in arguments is never shown: its label replaces it.

Strength is an estimate in bits. It assumes an attacker with knowledge of common names and passwords: a word is one
choice among some two thousand, regardless of its length. Characters without such an order count by their alphabet.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bot.domain.characters import AS_LATIN, FoldedText, fold
from bot.domain.conversations import Author, ConversationKey
from bot.domain.lazy_pattern import lazy_pattern
from bot.i18n import _, gettext_lazy, ngettext

LINK_SECONDS = 600.0
"""Lifetime of a link, in seconds: long enough to fetch a key from another page."""

LINK_TOKEN = lazy_pattern(r"[A-Za-z0-9_-]{43}")
"""Token of a link: 256 random bits in URL-safe base64."""


@dataclass(frozen=True, slots=True)
class SecretLink:
    """Purpose and expiry of a link (epoch seconds, by the database's clock). `person` requested it in `conversation`:
    values are stored in that user's name, if still authorized.
    """

    server_id: str
    slot: str
    person: Author
    conversation: ConversationKey
    expires_at: float = 0.0


class SecretSource(StrEnum):
    """Storage of a secret."""

    STORED = "stored"
    ENVIRONMENT = "env"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class SecretReference:
    """Reference to a secret: `env:NAME`, `file:PATH` or `stored`. The text form is for people and never holds the
    secret. `vouched` is True if the operator has given the reference, for the server's place at that time. Every other
    use needs a grant.
    """

    source: SecretSource
    place: str = ""
    vouched: bool = False

    def same_place(self, other: SecretReference) -> bool:
        """Return True if both name the same secret."""
        return (self.source, self.place) == (other.source, other.place)

    def __str__(self) -> str:
        return f"{self.source}:{self.place}" if self.place else self.source.value

    @classmethod
    def parse(cls, text: str) -> SecretReference:
        """Parse `env:NAME` or `file:PATH`. Raises ValueError without the text, because it may be a secret."""
        source, _, place = text.partition(":")
        match source:
            case "env" if VARIABLE_NAME.fullmatch(place):
                return cls(SecretSource.ENVIRONMENT, place)
            case "file" if place.startswith("/") and place.isprintable():
                return cls(SecretSource.FILE, place)
        raise ValueError(gettext_lazy("a reference is env:NAME or file:/absolute/path"))


@dataclass(frozen=True, slots=True)
class SecretSpan:
    """Characters `start` to `end` (exclusive) of a text that are a known secret. `label` names the secret for people:
    `header Authorization`.
    """

    start: int
    end: int
    label: str


VARIABLE_NAME = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


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

_RUNS = lazy_pattern(r"[^\W\d_]+|\d+|[\W_]+")
_PARTS = lazy_pattern(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\W\d_]")
"""Words of `camelCase`, `PascalCase` and `CAPITALS`."""
_NO_WORD = lazy_pattern(r"[^aeiouy]{5,}|[aeiouy]{4,}")
_VOWELS = lazy_pattern(r"[aeiouy]")
_REPEAT = lazy_pattern(r"(?P<one>.)(?P=one){3,}|(?P<several>.{2,16}?)(?P=several){2,}", re.DOTALL)
_LEET = str.maketrans("013457@$", "oleastas")
_HEX = lazy_pattern(r"[0-9a-f-]+|[0-9A-F-]+")
_ALPHABETS = ((10, lazy_pattern(r"[0-9]")), (26, lazy_pattern(r"[a-z]")), (26, lazy_pattern(r"[A-Z]")))
_ROWS = ("01234567890", "abcdefghijklmnopqrstuvwxyz", "qwertyuiop", "asdfghjkl", "zxcvbnm")
_SEQUENCES = (*_ROWS, *(row[::-1] for row in _ROWS))
_SHORTEST_SEQUENCE = 4


def bits_of(secret: str) -> float:
    """Return the estimated strength of a secret, in bits."""
    text = _REPEAT.sub(lambda run: run["one"] or run["several"], secret.strip()[:_LONGEST])
    digits = sum(map(str.isdigit, text))
    runs = _RUNS.findall(text.translate(_LEET) if digits <= _LEET_SHARE * len(text) else text)
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
        return _("a number of few digits") if any(map(str.isdigit, runs)) else _("too short")
    if all(not run.isdigit() for run in runs) and any(map(_is_words, runs)):
        return _("a word, or a few words in a row")
    return _("too short") if len(secret.strip()) < least / _bits_per_character(secret) else _("easy to guess")


def _is_words(run: str) -> bool:
    """Return True if consecutive letters may be one word or several, as in `listIssues`."""
    parts = _PARTS.findall(run) if run.isalpha() else []
    if len(run) >= _LONG_RUN and len(_VOWELS.findall(run.lower())) < _LEAST_VOWELS * len(run):
        return False
    words = [part for part in parts if len(part) >= 3 and _VOWELS.search(part.lower())]
    letters = sum(len(word) for word in words if not _NO_WORD.search(word.lower()))
    return letters > (1 - _RANDOM_SHARE) * len(run)


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
    shortened, rest = "", text
    while rest:
        length = _sequence_length(rest)
        shortened, rest = (shortened + rest[:2], rest[length:]) if length else (shortened + rest[0], rest[1:])
    return shortened


def _sequence_length(text: str) -> int:
    lowered, best = text[:26].lower(), 0
    for sequence in _SEQUENCES:
        length = _SHORTEST_SEQUENCE
        while length <= len(lowered) and lowered[:length] in sequence:
            best, length = max(best, length), length + 1
    return best


MASK = "••••"

_NAMES = lazy_pattern(
    r"passw(or)?d|passphrase|secret(?!ar)|token(?!i[sz])|api[-_ ]?key|access[-_ ]?key|private[-_ ]?key|authorization"
    r"|credential|(^|[-_ ])(pwd|pin|otp|auth|cookie)($|[-_ ])",
    re.IGNORECASE,
)
_CAMEL = lazy_pattern(r"(?<=[a-z0-9])(?=[A-Z])")
_HARMLESS = lazy_pattern(
    r"(^|[-_ ])(max|min|num|count|total|limit|next|page|input|output)[-_ ].*tokens?$|tokens$"
    r"|tokens?[-_ ](count|limit|budget|usage)$",
    re.IGNORECASE,
)

_RUN_TOGETHER = lazy_pattern(
    r"passw(or[dt]|d)|passphrase|passcode|kennwort|motdepasse|contrase(n|nh)a|(api|access|private|secret|ssh|signing|"
    r"encryption)key|(access|bearer|auth|refresh|api)token|(seed|recovery|backup|mnemonic)(phrase|words?|codes?)|"
    r"(onetime|security|verification|authenticator|authentication|login|2fa|mfa)(code|pin|password)|"
    r"(credit|debit|bank)card(number|no)|cardnumber|(card|social)securitynumber"
)
_SHORT = lazy_pattern(r"(^| )(pin|otp|totp|cvv|cvc|ssn|pwd|2fa|mfa)( |$)")
_LIKE_LATIN = AS_LATIN | str.maketrans("пτյ", "ntj")

TOKEN = gettext_lazy("looks like a token")
PRIVATE_KEY = gettext_lazy("looks like a private key")
PASSWORD = gettext_lazy("looks like a password")
# `password: hunter2`, `api_key=...`, `my password is ...`
_ASSIGNED = (
    r"(?i:\b\w{0,40}(?:password|passwd|passphrase|secret(?!ar)|api[-_]?key|access[-_]?key|auth[-_]?token|access[-_]?token)"
    r"\w*"
    r"[\"']?\s*(?:[:=]|\bis\b)\s*)[^\s,;]+"
)
_SHAPES = (
    # Tokens with a typical prefix: OpenAI, Anthropic, Slack, Discord, GitHub, GitLab, AWS, Google, Stripe, npm.
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
# Words that follow these in sentences, as in `the password is wrong` and `Password: reset fails`.
_ORDINARY = lazy_pattern(
    r"a|about|after|all|already|also|always|an|and|any|as|at|because|before|blank|by|changed|compromised|"
    r"correct|disabled|empty|enabled|encrypted|exposed|expired|for|forgotten|from|hashed|hidden|how|if|in|"
    r"incorrect|invalid|it|kept|leaked|longer|lost|masked|missing|needed|never|no|not|now|of|on|only|"
    r"optional|or|policy|prompt|rejected|required|reset|rotated|rotation|saved|see|sent|set|shared|short|"
    r"shown|still|stored|that|the|this|to|too|unchanged|unknown|unset|updated|used|valid|visible|weak|"
    r"when|with|wrong",
    re.IGNORECASE,
)
_ONE_WORD = lazy_pattern(r"(?i:bearer|basic)\s+[A-Z]?[a-z]+")
"""`basic authentication`: a token of this length does not consist of small letters alone."""
# One group for each shape tells which of them it was.
_SECRETS = lazy_pattern("|".join(f"({shape})" for _, shape in _SHAPES))


def is_secret_name(name: str) -> bool:
    """Return True if a value under this name is likely a secret: `api_key`, `accessToken`, `Authorization`."""
    spaced = _CAMEL.sub("_", fold(name))
    return bool(_NAMES.search(spaced)) and not _HARMLESS.search(spaced)


def asks_for_secret(words: str) -> bool:
    """Return True if a text asks its reader for a secret: a field's name or title, or a sentence. Lookalike letters
    are mapped and hidden ones removed, because the text may be written to evade this check.
    """
    decomposed = unicodedata.normalize("NFKD", _CAMEL.sub(" ", words))
    letters = "".join(
        character for character in decomposed if unicodedata.category(character) not in ("Mn", "Me", "Cf", "Cc")
    )
    spaced = " ".join(re.split(r"[\W_]+", letters.translate(_LIKE_LATIN).casefold())).strip()
    return is_secret_name(spaced) or bool(_SHORT.search(spaced) or _RUN_TOGETHER.search(spaced.replace(" ", "")))


def looks_like_secret(text: str) -> bool:
    """Return True if the text contains the shape of a secret."""
    return any(_SECRETS.search(form) for form in {text, fold(text)})


def secret_shapes(text: str, *, ordinary: bool = False) -> Iterator[tuple[int, int, str]]:
    """Yield the start, the end and the reason of each part of the text that has the shape of a secret, also in
    disguise, in order and without overlaps. Unless `ordinary`, sentences about secrets, such as `the password is
    wrong`, are skipped: they do not keep a call from being approved in a shared place.
    """
    end = 0
    for start, last, reason in sorted(_find_shapes(text, ordinary)):
        if last > end:
            yield max(start, end), last, reason
            end = last


def _find_shapes(text: str, ordinary: bool) -> Iterator[tuple[int, int, str]]:
    folded = FoldedText(text)
    for form in {text, folded.text}:
        for match in _SECRETS.finditer(form):
            if ordinary or not _is_ordinary(match.group()):
                span = match.span() if form == text else folded.span(*match.span())
                yield *span, _SHAPES[(match.lastindex or 1) - 1][0]


def _is_ordinary(words: str) -> bool:
    """Return True if a part with the shape of a secret is `basic` or `bearer` and a word, or ends with one of
    `_ORDINARY`.
    """
    *before, last = words.split()
    word = _ORDINARY.fullmatch(last.strip(".:!?\"'")) or _ONE_WORD.fullmatch(words)
    return bool(before and word)


def redact(text: str) -> str:
    """Return the text with MASK in place of every part that looks like a secret."""
    pieces, end = [], 0
    for start, last, _reason in secret_shapes(text, ordinary=True):
        pieces += [text[end:start], MASK]
        end = last
    return "".join((*pieces, text[end:]))


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
"""Parts of names of headers that are always secret."""
_ELSEWHERE = ("env:", "file:", "***")
"""Prefixes of values that refer to a secret stored elsewhere."""


def is_plain_header(name: str, value: str) -> bool:
    """Return True if a header is not secret: its name is not that of a credential, and its value is too easy to guess
    for a stored secret.
    """
    return value.isascii() and _may_be_plain(name, value, _LONGEST_HEADER) and bool(weakness(value))


def _may_be_plain(name: str, value: str, longest: int) -> bool:
    if is_secret_name(name) or any(part in name.lower() for part in _CREDENTIAL_NAMES):
        return False
    usable = 0 < len(value) <= longest and value.isprintable()
    return usable and not value.startswith(_ELSEWHERE) and not looks_like_secret(value)


_LONGEST_VARIABLE = 2000
_ADDRESS_OR_PATH = lazy_pattern(r"(?:https?://[^\s@?#/]+|~|\.{1,2})?(?P<path>/[^\s:;,=?#]*)?")
"""An address without credentials and query, or a path: long, and no secret if each of its parts can be guessed."""


def is_plain_variable(name: str, value: str) -> bool:
    """Return True if a variable of a program is not secret, by the same rules as a header."""
    if not _may_be_plain(name, value, _LONGEST_VARIABLE):
        return False
    place = _ADDRESS_OR_PATH.fullmatch(value)
    return all(map(weakness, filter(None, (place["path"] or "").split("/")))) if place else bool(weakness(value))


_PLACE_NAME = lazy_pattern(r"(^|[-_ ])(file|folder|dir|directory|path|url|uri|address|host|database)$", re.IGNORECASE)
_PLACE = lazy_pattern(r"(?:[a-z][a-z0-9+.-]*://|~?/|\.{1,2}/|[A-Za-z]:[\\/])\S*|[\w.-]+(?:/[\w.-]+)*/[\w-]+\.\w{1,8}")


def names_a_place(name: str, value: str) -> bool:
    """Return True if a value is a file, a folder or an address by its name or its form, which may be easy to guess.
    `TOKEN_FILE` is one; an address with a password in it is none.
    """
    if looks_like_secret(value):
        return False
    return bool(_PLACE_NAME.search(name) or (not is_secret_name(name) and _PLACE.fullmatch(value)))


NAMED = gettext_lazy("its name is that of a secret")
Path = tuple[int, ...]
"""Positions from the arguments to one text: of a key in its object, of an element in its list. Keys are not part of the
path, because a key may be a secret.
"""


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """Stored secret in the text at `path`, or in the key that `path` ends with."""

    path: Path
    span: SecretSpan
    in_key: bool = False


@dataclass(frozen=True, slots=True)
class Lookalike:
    """Characters `start` to `end` (exclusive) of the text at `path`, or of the key that it ends with, which look like a
    secret.
    """

    path: Path
    start: int
    end: int
    reason: str
    in_key: bool = False

    def __str__(self) -> str:
        reason = _(self.reason)
        hidden = ngettext(
            "{n} character hidden: {reason}", "{n} characters hidden: {reason}", self.end - self.start, reason=reason
        )
        return f"{MASK} ({hidden})"


FindSecrets = Callable[[str], Sequence[SecretSpan]]


def stored_secrets(arguments: Mapping[str, Any], find: FindSecrets) -> tuple[StoredSecret, ...]:
    """Return the positions of stored secrets in a call's arguments. `find` returns the secrets in one text."""
    return tuple(
        StoredSecret(text.path, span, text.in_key)
        for text in _texts(arguments)
        if text.is_text
        for span in _disjoint(find(text.text))
    )


def lookalikes(arguments: Mapping[str, Any], stored: Iterable[StoredSecret] = ()) -> tuple[Lookalike, ...]:
    """Return the parts of a call's arguments that look like a secret and are not a stored one."""
    known: dict[tuple[Path, bool], list[SecretSpan]] = {}
    for secret in stored:
        known.setdefault((secret.path, secret.in_key), []).append(secret.span)
    return tuple(
        Lookalike(text.path, start, end, reason, text.in_key)
        for text in _texts(arguments)
        for start, end, reason in _guesses(text, known.get((text.path, text.in_key), []))
    )


def with_masks(
    arguments: Mapping[str, Any], stored: Iterable[StoredSecret], hidden: Iterable[Lookalike] = ()
) -> dict[str, Any]:
    """Return the arguments with a label in place of every stored secret, and the length and the reason in place of
    every hidden part. Two keys that become equal stay apart.
    """
    masks: _Masks = {}
    for secret in stored:
        span = secret.span
        masks.setdefault((secret.path, secret.in_key), []).append(
            (span.start, span.end, f"[stored secret: {span.label}]")
        )
    for part in hidden:
        masks.setdefault((part.path, part.in_key), []).append((part.start, part.end, str(part)))
    return _mask_mapping(arguments, (), masks)


def mask_arguments(arguments: Mapping[str, Any], stored: Iterable[StoredSecret] = ()) -> dict[str, Any]:
    """Return arguments for a place with several readers: without stored secrets and lookalikes."""
    stored = tuple(stored)
    return with_masks(arguments, stored, lookalikes(arguments, stored))


_Masks = dict[tuple[Path, bool], list[tuple[int, int, str]]]
"""Replacements for ranges of characters of a text or a key."""


def _mask_mapping(values: Mapping[str, Any], path: Path, masks: _Masks) -> dict[str, Any]:
    masked: dict[str, Any] = {}
    for position, (key, inner) in enumerate(values.items()):
        within = (*path, position)
        name = _replace_spans(str(key), masks.get((within, True), ()))
        while name in masked:
            name += "'"
        masked[name] = _mask_value(inner, within, masks)
    return masked


def _mask_value(value: Any, path: Path, masks: _Masks) -> Any:
    here = masks.get((path, False), ())
    match value:
        case Mapping():
            return _mask_mapping(value, path, masks)
        case list() | tuple():
            return [_mask_value(inner, (*path, index), masks) for index, inner in enumerate(value)]
        case str():
            return _replace_spans(value, here)
        case _:
            return _replace_spans(json.dumps(value), here) if here else value


def _replace_spans(text: str, masks: Iterable[tuple[int, int, str]]) -> str:
    for start, end, mask in sorted(masks, reverse=True):
        text = f"{text[:start]}{mask}{text[end:]}"
    return text


@dataclass(frozen=True, slots=True)
class _Text:
    """Key, text or number in the arguments. `named` is True if a key above it is the name of a secret."""

    path: Path
    text: str
    in_key: bool = False
    named: bool = False
    is_text: bool = True


def _texts(value: Any, path: Path = (), *, named: bool = False) -> Iterator[_Text]:
    match value:
        case Mapping():
            for position, (key, inner) in enumerate(value.items()):
                name = str(key)
                within = (*path, position)
                yield _Text(within, name, in_key=True)
                yield from _texts(inner, within, named=named or is_secret_name(name))
        case list() | tuple():
            for index, inner in enumerate(value):
                yield from _texts(inner, (*path, index), named=named)
        case str():
            yield _Text(path, value, named=named)
        case bool() | None:
            return
        case _:
            yield _Text(path, json.dumps(value), named=named, is_text=False)


def _guesses(text: _Text, known: Sequence[SecretSpan]) -> Iterator[tuple[int, int, str]]:
    if text.named:
        candidates: Iterable[tuple[int, int, str]] = [(0, len(text.text), NAMED)]
    elif text.is_text:
        # A stored secret is not read as a part of something else that looks like one.
        blanked = text.text
        for span in known:
            blanked = f"{blanked[: span.start]}{',' * (span.end - span.start)}{blanked[span.end :]}"
        candidates = secret_shapes(blanked)
    else:
        return
    for start, end, reason in candidates:
        begin = start
        for span in known:
            if span.start < end and begin < span.end:
                if begin < span.start:
                    yield begin, span.start, reason
                begin = span.end
        if begin < end:
            yield begin, end, reason


def _disjoint(spans: Iterable[SecretSpan]) -> Iterator[SecretSpan]:
    """Yield the spans in order, without empty ones and those that begin within another."""
    end = 0
    for span in sorted(spans, key=lambda candidate: (candidate.start, -candidate.end)):
        if span.start >= end and span.start < span.end:
            yield span
            end = span.end
