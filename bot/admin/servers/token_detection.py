"""Detection of text that looks like a token.

A heuristic: known prefixes of providers' keys, and long random strings. Addresses, UUIDs, slugs, paths and dashed
digests are usually not matched.
"""

from __future__ import annotations

import math
import re
from collections import Counter

from bot.domain.lazy_pattern import lazy_pattern
from bot.i18n import gettext_lazy

WARNING = gettext_lazy(
    "That looks like a token. It was not saved. Put it in an environment variable or a file, give `env:NAME` or "
    "`file:/path` here, and rotate it: it has been seen in a chat."
)

_KNOWN = lazy_pattern(
    "|".join(
        f"(?:{shape})"
        for shape in (
            # GitHub, GitLab, Slack, OpenAI and Anthropic, AWS, Google, Stripe, npm, PyPI, Hugging Face and others.
            r"(?<![A-Za-z0-9])gh[a-z]_[A-Za-z0-9]{16,}",
            r"github_pat_[A-Za-z0-9_]{16,}",
            r"(?<![A-Za-z0-9])gl[a-z]{2,4}-[A-Za-z0-9_-]{16,}",
            r"(?<![A-Za-z0-9])x(?:ox[a-z]|app)-[A-Za-z0-9-]{8,}",
            r"hooks\.slack\.com/services/T\w+/B\w+/\w+",
            r"(?<![A-Za-z0-9_-])(?:sk|gsk|xai|pplx)[-_](?=[A-Za-z0-9_-]*[0-9])[A-Za-z0-9_-]{16,}",
            r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])",
            r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{30,}",
            r"(?<![A-Za-z0-9])ya29\.[A-Za-z0-9_-]{16,}",
            r"(?<![A-Za-z0-9])[rsp]k_(?:live|test)_[A-Za-z0-9]{10,}",
            r"(?<![A-Za-z0-9])(?:npm|hf|figd|lin_api|ntn|secret|shpat|dop_v1|rpa)_[A-Za-z0-9_-]{20,}",
            r"(?<![A-Za-z0-9])pypi-[A-Za-z0-9_-]{30,}",
            r"(?<![A-Za-z0-9])SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
            # JSON web tokens, Discord's tokens, private keys, credentials in an address, an Authorization header.
            r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
            r"(?<![A-Za-z0-9])[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}",
            r"-----BEGIN [A-Z ]*PRIVATE KEY",
            r"://[^\s/:@]*:[^\s/@]+@",
            r"(?i:(?<![A-Za-z])(?:bearer|basic)\s+)(?!(?i:auth|token|header))[A-Za-z0-9._~+/-]{8,}=*",
        )
    )
)
_PIECES = lazy_pattern(r"[A-Za-z0-9_-]+")
_UUID = lazy_pattern(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = lazy_pattern(r"(?:[0-9a-f]+|[0-9A-F]+)")
_LONG_HEX = 32
_LONG = 24
_LONG_LOWER = 32
_WORDS = lazy_pattern(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_SHORT_WORDS = 3.3
"""Lowest average length of CamelCase words; in random letters and digits apparent words have about two letters."""


def plain_warning() -> str:
    """Return the warning without Markdown."""
    return str(WARNING).replace("`", "")


def known_token(text: str) -> bool:
    """Return True if the text contains a known token format."""
    return bool(_KNOWN.search(text))


def looks_like_token(text: str) -> bool:
    """Return True if the text contains a token or a long random string."""
    return known_token(text) or any(_random(piece) for piece in _PIECES.findall(_UUID.sub(" ", text)))


def _random(piece: str) -> bool:
    """Return True for hexadecimal digits, or a random mix of letters and digits."""
    runs = [run for run in re.split(r"[_-]", piece) if run]
    longest = max(runs, key=len, default="")
    # A long number is not a token.
    if len(longest) >= _LONG_HEX and _HEX.fullmatch(longest) and not longest.isdigit() and not longest.isalpha():
        return True
    bare = "".join(runs)
    if len(bare) < _LONG:
        return False
    kinds = Counter("digit" if char.isdigit() else "upper" if char.isupper() else "lower" for char in bare)
    if len(kinds) == 3:
        shares = (count / len(bare) for count in Counter(bare).values())
        entropy = -sum(share * math.log2(share) for share in shares)
        return _word_length(bare) < _SHORT_WORDS and entropy >= 3.5
    # Lower or upper case letters with digits and no break: keys in base 32 or 36.
    return len(longest) >= _LONG_LOWER and kinds["digit"] >= 4 and _word_length(longest) < 2 * _SHORT_WORDS


def _word_length(text: str) -> float:
    return len(text) / max(len(_WORDS.findall(text)), 1)
