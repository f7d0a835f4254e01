"""Scripts that a text is written in, by Unicode's Script_Extensions property, and which characters are emoji.

The rules for mixing scripts are those of Unicode Technical Standard 39, section 5.1, at its level "highly restrictive".
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import regex

_SCRIPTS = (
    "Latin", "Cyrillic", "Greek", "Armenian", "Georgian", "Hebrew", "Arabic", "Syriac", "Thaana", "Devanagari",
    "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Thai", "Lao",
    "Tibetan", "Myanmar", "Ethiopic", "Cherokee", "Canadian_Aboriginal", "Khmer", "Mongolian", "Hiragana", "Katakana",
    "Bopomofo", "Han", "Hangul", "Coptic", "Lisu", "Deseret", "Vai", "Tifinagh", "Yi", "Osage",
)  # fmt: skip
_MATCHES = tuple((name, regex.compile(rf"\p{{Script_Extensions={name}}}")) for name in _SCRIPTS)
_SHARED = regex.compile(r"[\p{Script_Extensions=Common}\p{Script_Extensions=Inherited}]")
_EMOJI = regex.compile(r"\p{Emoji}")
_PICTURE = regex.compile(r"[\p{Extended_Pictographic}\p{Emoji_Modifier}]")
# Writing systems of several scripts: Chinese with Bopomofo, Japanese, Korean.
_SYSTEMS = {
    "Han": {"Chinese", "Japanese", "Korean"},
    "Hiragana": {"Japanese"},
    "Katakana": {"Japanese"},
    "Bopomofo": {"Chinese"},
    "Hangul": {"Korean"},
}
_EAST_ASIAN = frozenset({"Chinese", "Japanese", "Korean"})
OTHER = "another script"


@functools.lru_cache(maxsize=4096)
def scripts_of(character: str) -> frozenset[str]:
    """Return the scripts that use a character; empty for one that all of them share, such as a digit."""
    if _SHARED.match(character):
        return frozenset()
    return frozenset(name for name, script in _MATCHES if script.match(character)) or frozenset({OTHER})


def is_mixed(text: str) -> bool:
    """Return True if no script, and no writing system such as Japanese with Latin letters, has all the characters."""
    sets = [found for each in set(text) if (found := scripts_of(each))]
    if not sets or frozenset.intersection(*sets):
        return False
    others = [_systems(found) for found in sets if "Latin" not in found]
    return not others or not frozenset.intersection(*others) & _EAST_ASIAN


def script_names(text: str) -> tuple[str, ...]:
    """Return the names of the scripts in a text, sorted."""
    return tuple(sorted({min(found) for each in set(text) if (found := scripts_of(each))}))


def is_emoji(character: str) -> bool:
    """Return True if a character may be drawn as an emoji, `#` and digits included."""
    return bool(_EMOJI.match(character))


def is_picture(character: str) -> bool:
    """Return True if a character is a picture or a skin tone, which can be joined with others to one emoji."""
    return bool(_PICTURE.match(character))


def _systems(scripts: Iterable[str]) -> frozenset[str]:
    return frozenset(system for name in scripts for system in _SYSTEMS.get(name, {name}))
