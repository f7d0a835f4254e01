"""Detection of secrets by name or by shape.

Detection is a guess and prefers false positives. The stored secrets of this program are unknown here. Text for models,
transcripts and the terminal's history is masked by it. The arguments of a call that waits for an approval are not
masked: a match only keeps the call from being approved in a shared place (`argument_secrets`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

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
