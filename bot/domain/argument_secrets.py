"""Secrets in the arguments of a call: stored ones, and parts that only look like a secret.

A stored secret is never shown; its label replaces it. A part that looks like a secret may be a payload that is meant to
be hidden from the approver. A place with several readers hides the part, and the call cannot be approved there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.domain.secret_detection import MASK, is_secret_name, secret_shapes
from bot.domain.secrets import SecretSpan

NAMED = "its name is that of a secret"
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
        count = self.end - self.start
        return f"{MASK} ({count} {'character' if count == 1 else 'characters'} hidden: {self.reason})"


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
    for each in stored:
        known.setdefault((each.path, each.in_key), []).append(each.span)
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
    return _masked_mapping(arguments, (), masks)


_Masks = dict[tuple[Path, bool], list[tuple[int, int, str]]]
"""Replacements for ranges of characters of a text or a key."""


def _masked_mapping(values: Mapping[str, Any], path: Path, masks: _Masks) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for position, (key, inner) in enumerate(values.items()):
        within = (*path, position)
        name = _replaced(str(key), masks.get((within, True), ()))
        while name in made:
            name += "'"
        made[name] = _masked(inner, within, masks)
    return made


def _masked(value: Any, path: Path, masks: _Masks) -> Any:
    here = masks.get((path, False), ())
    match value:
        case Mapping():
            return _masked_mapping(value, path, masks)
        case list() | tuple():
            return [_masked(inner, (*path, index), masks) for index, inner in enumerate(value)]
        case str():
            return _replaced(value, here)
        case _:
            return _replaced(json.dumps(value), here) if here else value


def _replaced(text: str, masks: Iterable[tuple[int, int, str]]) -> str:
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
        found: Iterable[tuple[int, int, str]] = [(0, len(text.text), NAMED)]
    elif text.is_text:
        # A stored secret is not read as a part of something else that looks like one.
        blanked = text.text
        for span in known:
            blanked = f"{blanked[: span.start]}{',' * (span.end - span.start)}{blanked[span.end :]}"
        found = secret_shapes(blanked)
    else:
        return
    for start, end, reason in found:
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
    for span in sorted(spans, key=lambda each: (each.start, -each.end)):
        if span.start >= end and span.start < span.end:
            yield span
            end = span.end
