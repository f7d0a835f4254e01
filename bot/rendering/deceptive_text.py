"""Deceptive text in the arguments of a call: spelled-out forms and warnings.

Warnings are short sentences for readers without knowledge of Unicode. Ordinary text in any language has none: joiners
in Persian, marks of direction in Arabic, wide blanks in Japanese and the parts of one emoji are legitimate. Scripts
are those of Unicode's Script_Extensions property. They may be mixed by the rules of Unicode Technical Standard 39,
section 5.1, at its level "highly restrictive".
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bot.domain.characters import AS_LATIN, FLAG, is_drawn, skeleton
from bot.domain.lazy_pattern import lazy_pattern
from bot.domain.secrets import MASK
from bot.i18n import _, format_list, gettext_lazy, ngettext, script_name
from bot.rendering.text_safety import REPLACEMENT, show_invisible, single_line

# Names of Unicode, and codes of ISO 15924.
_SCRIPTS = {
    "Latin": "Latn", "Cyrillic": "Cyrl", "Greek": "Grek", "Armenian": "Armn", "Georgian": "Geor", "Hebrew": "Hebr",
    "Arabic": "Arab", "Syriac": "Syrc", "Thaana": "Thaa", "Devanagari": "Deva", "Bengali": "Beng", "Gurmukhi": "Guru",
    "Gujarati": "Gujr", "Oriya": "Orya", "Tamil": "Taml", "Telugu": "Telu", "Kannada": "Knda", "Malayalam": "Mlym",
    "Sinhala": "Sinh", "Thai": "Thai", "Lao": "Laoo", "Tibetan": "Tibt", "Myanmar": "Mymr", "Ethiopic": "Ethi",
    "Cherokee": "Cher", "Canadian_Aboriginal": "Cans", "Khmer": "Khmr", "Mongolian": "Mong", "Hiragana": "Hira",
    "Katakana": "Kana", "Bopomofo": "Bopo", "Han": "Hani", "Hangul": "Hang", "Coptic": "Copt", "Lisu": "Lisu",
    "Deseret": "Dsrt", "Vai": "Vaii", "Tifinagh": "Tfng", "Yi": "Yiii", "Osage": "Osge",
}  # fmt: skip
# Writing systems of several scripts: Chinese with Bopomofo, Japanese, Korean.
_SYSTEMS = {
    "Han": {"Chinese", "Japanese", "Korean"},
    "Hiragana": {"Japanese"},
    "Katakana": {"Japanese"},
    "Bopomofo": {"Chinese"},
    "Hangul": {"Korean"},
}
_EAST_ASIAN = frozenset({"Chinese", "Japanese", "Korean"})
OTHER = gettext_lazy("another script")


@functools.cache
def _patterns() -> tuple[Any, Sequence[tuple[str, Any]]]:
    """Return the pattern of characters that scripts share, and those of the scripts by name."""
    import regex  # noqa: PLC0415 - with its patterns a hundredth of a start

    shared = regex.compile(r"[\p{Script_Extensions=Common}\p{Script_Extensions=Inherited}]")
    return shared, [(name, regex.compile(rf"\p{{Script_Extensions={name}}}")) for name in _SCRIPTS]


@functools.lru_cache(maxsize=4096)
def scripts_of(character: str) -> frozenset[str]:
    """Return the scripts that use a character; empty for one that all of them share, such as a digit."""
    shared, matches = _patterns()
    if shared.match(character):
        return frozenset()
    return frozenset(name for name, script in matches if script.match(character)) or frozenset({OTHER})


def is_mixed(text: str) -> bool:
    """Return True if no script, and no writing system such as Japanese with Latin letters, has all the characters."""
    sets = [scripts for character in set(text) if (scripts := scripts_of(character))]
    if not sets or frozenset.intersection(*sets):
        return False
    others = [
        frozenset(system for name in scripts for system in _SYSTEMS.get(name, {name}))
        for scripts in sets
        if "Latin" not in scripts
    ]
    return not others or not frozenset.intersection(*others) & _EAST_ASIAN


def script_names(text: str) -> tuple[str, ...]:
    """Return the names of the scripts in a text, sorted."""
    return tuple(sorted({min(scripts) for character in set(text) if (scripts := scripts_of(character))}))


def _alphabets(text: str) -> list[str]:
    return sorted(script_name(_SCRIPTS[name]) if name in _SCRIPTS else str(OTHER) for name in script_names(text))


LONG_RUN = 30
"""Blanks in a row within a line; more of them push the rest out of sight."""
MANY_EMPTY = 8
"""Line ends in a row."""
IMITATION = gettext_lazy("Imitates a hidden part. These characters are sent as they are.")
_MOST_OF_A_KIND = 3
_QUOTE = 60
_ADDRESS = 120
"""Maximum characters of an address, because its end names the owner."""

_TAGS = "\U000e0000-\U000e007f"
_HIDDEN = lazy_pattern(
    f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{_TAGS}\u202a-\u202e\u2066-\u2069\u00ad\u034f\u061c"
    "\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2060-\u2065\u206a-\u206f\ufe00-\ufe0f\ufeff\ufff0-\ufffb\U000e0080-\U000e0fff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a]"
)
_MARKS_OF_DIRECTION = "\u200e\u200f\u061c"
_BLANKS = "\u00a0\u115f\u1160\u1680\u2000-\u200a\u202f\u205f\u2800\u3000\u3164\uffa0\U0001d159"
_BLANK = lazy_pattern(f"[{_BLANKS}]+")
_UNDRAWN = lazy_pattern("[\ue000-\uf8ff\ufffc\U00016fe4\U000f0000-\U0010ffff]")
"""Characters for private use, of objects and of fillers: most fonts draw nothing for them."""
_RUN = lazy_pattern(rf"(?<=\S)[ \t{_BLANKS}]{{{LONG_RUN},}}(?=\S)")
_EMPTY = lazy_pattern(rf"\n(?:[ \t{_BLANKS}]*\n){{{MANY_EMPTY - 1},}}")
_ENDS = " \t\n" + "".join(map(chr, (0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x2800, 0x3000, 0x3164)))
_URL_HOST = lazy_pattern(
    r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,30}://(?:[^\s/?#\"'<>\\]*@)?([^\s/?#\"'<>\\:@]+)"
)
_BARE_HOST = lazy_pattern(r"(?<![\w.-])((?:[\w-]+\.)+[A-Za-z]{2,24})(?![\w-])")
_FILE_NAME = lazy_pattern(
    r".*\.(?:bak|bmp|cfg|conf|css|csv|docx?|gif|gz|html?|ini|jpe?g|js|json|log|odt|pdf|png|pptx?|rtf|sql|svg|tar|toml|tsv"
    r"|txt|webp|xlsx?|xml|ya?ml)",
    re.IGNORECASE,
)
"""Names with an ending that is no top-level domain."""
_WORD = lazy_pattern(r"[^\W\d_]+")
_DOTS = lazy_pattern("[.\u3002\uff0e\uff61]")
_WITH_LATIN_LOOKALIKES = frozenset(
    ("Cherokee", "Lisu", "Coptic", "Canadian_Aboriginal", "Deseret", "Osage", "Tifinagh", "Vai")
)
"""Scripts with many letters like Latin ones, which are never mixed with them in one word."""


def spelled_out(text: str) -> str:
    """Return the text with every character that hides, or only looks like a blank, as its code point."""
    if text.isascii():
        return show_invisible(text)
    text = _UNDRAWN.sub(_code_points, text)
    return show_invisible(_BLANK.sub(lambda run: _code_points(run) if _is_odd_blank(run) else run.group(), text))


def name_spelled_out(name: str) -> str:
    """Return a name on one line, in quotes where its ends could not be seen."""
    spelled = spelled_out(name).replace("\n", "\\u{a}").replace("\t", "\\u{9}")
    return spelled if name and " " not in name else f"“{spelled}”"


def text_warnings(text: str) -> tuple[str, ...]:
    """Return warnings for the reader of a text; empty for ordinary text."""
    return tuple(dict.fromkeys((*_disguises(text), *_stray_blanks(text))))


def lookalikes_of(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return for each name the others that it can be taken for."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(skeleton(name), []).append(name)
    return {name: tuple(other for other in group if other != name) for group in alike.values() for name in group}


def name_warnings(name: str, twins: Iterable[str]) -> tuple[str, ...]:
    """Return warnings on the name of an argument. `twins` are similar-looking other names."""
    warnings = [_("The name: {warning}", warning=_lower_first(warning)) for warning in text_warnings(name)]
    if not name.strip():
        warnings.append(_("The name is empty."))
    warnings += [
        _("Its name can be taken for that of another argument: {name}.", name=_quote_text(twin))
        for twin in [*twins][:_MOST_OF_A_KIND]
    ]
    return tuple(warnings)


def value_warnings(value: object) -> Iterator[str]:
    """Yield warnings on the texts in a value and on the names inside it, at any depth. Warnings on blanks come last,
    because they may be many.
    """
    texts: list[tuple[str, str]] = []
    yield from _collect_texts(value, texts)
    for warnings_of in (_disguises, _stray_blanks):
        for name, text in texts:
            if name:
                yield from (_on_name(name, warning) for warning in warnings_of(text))
            else:
                yield from warnings_of(text)


def disguises(value: object) -> tuple[str, ...]:
    """Return the hidden or misleading parts of a value and its names. Stray blanks do not count."""
    texts: list[tuple[str, str]] = []
    warnings = list(_collect_texts(value, texts))
    for name, text in texts:
        warnings += [_on_name(name, warning) if name else warning for warning in _disguises(text)]
    return tuple(dict.fromkeys(warnings))


def _on_name(name: str, warning: str) -> str:
    return _("The name {name}: {warning}", name=name, warning=_lower_first(warning))


def imitates_mask(value: object) -> bool:
    """Return True if a text in a value, as it is sent, reads like a part that a card has hidden."""
    match value:
        case str():
            return MASK in value or "[stored secret" in value
        case Mapping():
            return any(imitates_mask(str(key)) or imitates_mask(inner) for key, inner in value.items())
        case list() | tuple():
            return any(map(imitates_mask, value))
        case _:
            return False


def _collect_texts(value: object, texts: list[tuple[str, str]]) -> Iterator[str]:
    """Add every text in a value to `texts`, a name with itself in quotes. Yield warnings on similar names in one
    object.
    """
    match value:
        case str():
            texts.append(("", value))
        case Mapping():
            names = [str(key) for key in value]
            yield from _twins_inside(names)
            for name, inner in zip(names, value.values(), strict=True):
                texts.append((_quote_text(name), name))
                yield from _collect_texts(inner, texts)
        case list() | tuple():
            for inner in value:
                yield from _collect_texts(inner, texts)


# ------------------------------------------------------------------ characters


def _disguises(text: str) -> Iterator[str]:
    """Yield warnings on characters that hide or pass for others."""
    if not text.isprintable() or not text.isascii():
        yield from _hidden_characters(text)
        yield from _blank_lookalikes(text)
        yield from _undrawn(text)
    if not text.isascii() or "xn--" in text.lower():
        hosts = [match[1] for match in _URL_HOST.finditer(text)]
        hosts += [match[1] for match in _BARE_HOST.finditer(text) if not _FILE_NAME.fullmatch(match[1])]
        yield from _hosts(hosts)
        yield from _words(text, hosts)


def _stray_blanks(text: str) -> Iterator[str]:
    yield from _ends(text)
    yield from _long_runs(text)


def _hidden_characters(text: str) -> Iterator[str]:
    flags = {index for flag in FLAG.finditer(text) for index in range(*flag.span())}
    right_to_left = any(
        unicodedata.bidirectional(character) in ("R", "AL") for character in text if character > "\u0590"
    )
    tags: list[str] = []
    order: Counter[str] = Counter()
    controls: Counter[str] = Counter()
    unseen: Counter[str] = Counter()
    for match in _HIDDEN.finditer(text):
        character, index = match.group(), match.start()
        code = ord(character)
        if index in flags or (character in _MARKS_OF_DIRECTION and right_to_left) or _is_in_place(text, index):
            continue
        if 0xE0000 <= code <= 0xE007F:
            tags.append(chr(code - 0xE0000))
        elif 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069:
            order[character] += 1
        elif unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
            controls[character] += 1
        else:
            unseen[character] += 1
    if tags:
        hidden_text = single_line("".join(tag if tag.isprintable() else REPLACEMENT for tag in tags), _QUOTE)
        yield ngettext(
            "{n} invisible character with a hidden text: “{text}”.",
            "{n} invisible characters with a hidden text: “{text}”.",
            len(tags),
            text=hidden_text,
        )
    if order:
        yield ngettext(
            "{n} character ({codes}) changes the order in which text is read.",
            "{n} characters ({codes}) change the order in which text is read.",
            order.total(),
            codes=_codes(order),
        )
    if controls:
        yield ngettext(
            "{n} control character ({codes}).",
            "{n} control characters ({codes}).",
            controls.total(),
            codes=_codes(controls),
        )
    if unseen:
        yield ngettext(
            "{n} invisible character ({codes}).",
            "{n} invisible characters ({codes}).",
            unseen.total(),
            codes=_codes(unseen),
        )


def _is_in_place(text: str, index: int) -> bool:
    """Return True if a character that is not seen has its place there in ordinary text."""
    if text[index] == "\r":
        return text[index + 1 : index + 2] == "\n"
    if text[index] in "\u17b4\u17b5":
        return "Khmer" in scripts_of(text[index - 1 : index] or " ")
    return is_drawn(text, index)


def _blank_lookalikes(text: str) -> Iterator[str]:
    odd = Counter(character for run in _BLANK.finditer(text) if _is_odd_blank(run) for character in run.group())
    if odd:
        yield ngettext(
            "{n} character ({codes}) looks like a blank and is not.",
            "{n} characters ({codes}) look like blanks and are not.",
            odd.total(),
            codes=_codes(odd),
        )


def _undrawn(text: str) -> Iterator[str]:
    if counts := Counter(_UNDRAWN.findall(text)):
        yield ngettext(
            "{n} character ({codes}) has no agreed meaning and may not be drawn.",
            "{n} characters ({codes}) have no agreed meaning and may not be drawn.",
            counts.total(),
            codes=_codes(counts),
        )


def _is_odd_blank(run: re.Match[str]) -> bool:
    """Return True for blanks that ordinary text does not have in this place."""
    before, after = run.string[run.start() - 1 : run.start()], run.string[run.end() : run.end() + 1]
    match run.group():
        case "\u3000":
            return not any(
                neighbour and unicodedata.east_asian_width(neighbour) in "WF" for neighbour in (before, after)
            )
        case "\u00a0" | "\u202f" | "\u2009":
            # Numbers and units, and French punctuation.
            between_digits = before.isdigit() and (after.isdigit() or (bool(after) and after in "%‰°€$£¥₽"))
            return not (between_digits or before == "«" or (bool(after) and after in "»:;!?"))
        case _:
            return True


def _code_points(run: re.Match[str]) -> str:
    return "".join(f"\\u{{{ord(character):x}}}" for character in run.group())


def _ends(text: str) -> Iterator[str]:
    if not text:
        return
    if not text.strip(_ENDS):
        yield _("Only blanks.") if text.strip("\n") else _("Only line ends.")
        return
    before, after = text[: -len(text.lstrip(_ENDS))], text[len(text.rstrip(_ENDS)) :]
    # Japanese paragraphs begin with one wide blank, and lines end with a line end.
    indented = before == "\u3000" and unicodedata.east_asian_width(text[1]) in "WF"
    if before and not indented:
        yield (
            ngettext("Begins with {n} blank.", "Begins with {n} blanks.", len(before))
            if before.strip("\n")
            else ngettext("Begins with {n} line end.", "Begins with {n} line ends.", len(before))
        )
    # A text in a file may end with one empty line.
    if after not in ("", "\n", "\n\n"):
        yield (
            ngettext("Ends with {n} blank.", "Ends with {n} blanks.", len(after))
            if after.strip("\n")
            else ngettext("Ends with {n} line end.", "Ends with {n} line ends.", len(after))
        )


def _long_runs(text: str) -> Iterator[str]:
    if run := max((len(run_text) for run_text in _RUN.findall(text)), default=0):
        yield ngettext(
            "{n} blank in a row: look at what comes after it.",
            "{n} blanks in a row: look at what comes after them.",
            run,
        )
    if lines := max((run_text.count("\n") - 1 for run_text in _EMPTY.findall(text)), default=0):
        yield ngettext(
            "{n} empty line in a row: look at what comes after it.",
            "{n} empty lines in a row: look at what comes after them.",
            lines,
        )


# ------------------------------------------------------------------ letters


def _hosts(hosts: Iterable[str]) -> Iterator[str]:
    warned = 0
    for host in dict.fromkeys(hosts):
        if warned < _MOST_OF_A_KIND and (warning := _host_warning(host)):
            warned += 1
            yield warning


def _host_warning(host: str) -> str:
    labels = [part for part in _DOTS.split(host) if part]
    read = [_read_label(label) for label in labels]
    reads = ".".join(read)
    if host.isascii() and reads == host:
        return ""
    leads = ".".join(map(_ascii_label, read))
    leads = leads if len(leads) <= _ADDRESS else f"…{leads[1 - _ADDRESS :]}"
    address, reading = _quote_text(host), _quote_text(reads) if host.isascii() else ""
    texts = {"address": address, "reading": reading, "target": leads}
    if mixed := next((label for label in read if is_mixed(label)), ""):
        texts["alphabets"] = ", ".join(_alphabets(mixed))
        return (
            _(
                "The address {address} reads {reading}, which mixes alphabets: {alphabets}. It leads to {target}.",
                **texts,
            )
            if reading
            else _("The address {address} mixes alphabets: {alphabets}. It leads to {target}.", **texts)
        )
    if imitating := next((label for label in read if not label.isascii() and label.translate(AS_LATIN).isascii()), ""):
        texts["alphabet"] = format_list(_alphabets(imitating))
        if not reading:
            return _(
                "The address {address} is in {alphabet} letters that look like Latin ones. It leads to {target}.",
                **texts,
            )
        return _(
            "The address {address} reads {reading}, which is in {alphabet} letters that look like Latin ones."
            " It leads to {target}.",
            **texts,
        )
    if not host.isascii() and "xn--" not in leads:
        return _("The address {address} is in unusual letters. It leads to {target}.", address=address, target=leads)
    return ""


def _words(text: str, hosts: Iterable[str]) -> Iterator[str]:
    """Yield warnings on Latin words outside of hosts with letters of another script that look like Latin ones."""
    warned = 0
    in_hosts = {word for host in hosts for word in _WORD.findall(host)}
    for word in dict.fromkeys(_WORD.findall(text)):
        foreign = [
            character
            for character in word
            if character != "µ" and scripts_of(character) and "Latin" not in scripts_of(character)
        ]
        if not foreign or len(foreign) == len(word) or not all(map(_looks_latin, foreign)):
            continue
        if warned < _MOST_OF_A_KIND and word not in in_hosts and is_mixed(word):
            warned += 1
            yield _(
                "The word {word} mixes alphabets: {alphabets}.",
                word=_quote_text(word),
                alphabets=", ".join(_alphabets(word)),
            )


def _looks_latin(letter: str) -> bool:
    return ord(letter) in AS_LATIN or bool(scripts_of(letter) & _WITH_LATIN_LOOKALIKES)


def _read_label(label: str) -> str:
    if not label.lower().startswith("xn--"):
        return label
    try:
        return label[4:].encode("ascii").decode("punycode")
    except UnicodeError:
        return label


def _ascii_label(label: str) -> str:
    if label.isascii():
        return label.lower()
    try:
        return label.encode("idna").decode("ascii")
    except UnicodeError:
        return "xn--" + label.lower().encode("punycode").decode("ascii")


def _twins_inside(names: Sequence[str]) -> Iterator[str]:
    groups = dict.fromkeys(frozenset((name, *twins)) for name, twins in lookalikes_of(names).items() if twins)
    for group in groups:
        listed = [name for name in names if name in group][:_MOST_OF_A_KIND]
        yield _("Names in it can be taken for one another: {names}.", names=", ".join(map(_quote_text, listed)))


# ------------------------------------------------------------------ words


def _quote_text(text: str) -> str:
    spelled = spelled_out(text).replace("\n", "\\u{a}").replace("\t", "\\u{9}")
    return f"“{spelled}”" if len(spelled) <= _QUOTE else f"“{spelled[: _QUOTE - 1]}…”"


def _codes(counts: Counter[str]) -> str:
    codes = [f"U+{ord(character):04X}" for character in counts]
    more = len(codes) - _MOST_OF_A_KIND
    listed = ", ".join(codes[:_MOST_OF_A_KIND])
    return ngettext("{codes} and {n} more", "{codes} and {n} more", more, codes=listed) if more > 0 else listed


def _lower_first(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
