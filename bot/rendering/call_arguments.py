"""Arguments of a call, for approvers: one analysis for all surfaces.

A stored secret is replaced by its label. A part that looks like a secret is hidden from a group of readers, with its
length and the reason; the whole call shows it. Every other character is displayed, or spelled out as its code point if
it is invisible. A truncated value or name has its length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bot.domain.secrets import Lookalike, lookalikes, with_masks
from bot.domain.tools import canonical_json
from bot.domain.turns import ToolStep
from bot.i18n import ngettext
from bot.rendering.deceptive_text import (
    IMITATION,
    disguises,
    imitates_mask,
    lookalikes_of,
    name_spelled_out,
    name_warnings,
    spelled_out,
    value_warnings,
)

VALUE_LIMIT = 200
VALUE_LINES = 6
"""Maximum number of lines of a value, because more would push the title off the screen."""
NAME_LIMIT = 60
WARNINGS_LIMIT = 6
"""On a card. The whole call has all warnings, up to MOST_WARNINGS."""
MOST_WARNINGS = 100


@dataclass(frozen=True, slots=True)
class CardArgument:
    """Argument of a call, safe to display. `name` and `full` are complete, `preview` is the part that fits on a card.
    `masked` is True if a label or a count replaces a part of it.
    """

    name: str
    preview: str
    full: str
    warnings: tuple[str, ...] = ()
    masked: bool = False

    @property
    def label(self) -> str:
        """The name as a card has room for it."""
        return cut_with_length(self.name, NAME_LIMIT)

    @property
    def shortened(self) -> bool:
        """There is more of the name, of the value or of the warnings than a card shows."""
        return self.preview != self.full or self.label != self.name or len(self.warnings) > WARNINGS_LIMIT


@dataclass(frozen=True, slots=True)
class CallArguments:
    """All arguments of a call. `withheld` is how many characters are hidden because they look like a secret."""

    arguments: tuple[CardArgument, ...]
    withheld: int = 0


def shared_arguments(step: ToolStep) -> CallArguments:
    """Return the arguments for a place with several readers."""
    hidden = lookalikes(step.call.arguments, step.stored_secrets)
    return CallArguments(_card_arguments(step, hidden), sum(span.end - span.start for span in hidden))


def whole_arguments(step: ToolStep) -> CallArguments:
    """Return the arguments for an approver in private."""
    return CallArguments(_card_arguments(step, ()))


def disguises_in(step: ToolStep) -> tuple[str, ...]:
    """Return the deceptive parts of a call, for a place with several readers."""
    arguments = step.call.arguments
    warnings = disguises(step.masked_arguments)
    return (*warnings, IMITATION) if imitates_mask(arguments) else warnings


def whole_json(step: ToolStep) -> dict[str, Any]:
    """Return the arguments of a call as JSON with the labels of stored secrets, and with everything else."""
    return with_masks(step.call.arguments, step.stored_secrets)


def _card_arguments(step: ToolStep, hidden: tuple[Lookalike, ...]) -> tuple[CardArgument, ...]:
    arguments = step.call.arguments
    masked = with_masks(arguments, step.stored_secrets, hidden)
    pairs = zip(arguments.items(), masked.items(), strict=True)
    twins = lookalikes_of(masked)
    return tuple(_argument(*original, *displayed, twins=twins[displayed[0]]) for original, displayed in pairs)


def _argument(name: str, value: Any, shown_name: str, shown_value: Any, *, twins: tuple[str, ...]) -> CardArgument:
    text = _text(shown_value)
    full = spelled_out(text)
    warnings = tuple(dict.fromkeys(_warnings(name, value, shown_name, shown_value, twins)))
    more = len(warnings) - MOST_WARNINGS
    if more > 0:
        others = ngettext("There is {n} more such warning.", "There are {n} more such warnings.", more)
        warnings = (*warnings[:MOST_WARNINGS], others)
    return CardArgument(
        name_spelled_out(shown_name),
        cut_value(full),
        full,
        warnings,
        masked=(shown_name, text) != (str(name), _text(value)),
    )


def _warnings(name: str, value: Any, shown_name: str, shown_value: Any, twins: tuple[str, ...]) -> Iterator[str]:
    yield from name_warnings(shown_name, twins)
    if imitates_mask(str(name)) or imitates_mask(value):
        yield IMITATION
    yield from value_warnings(shown_value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(value)


def cut_value(full: str, hint: str = "") -> str:
    """Return a value as a card has room for it. If it is cut, its length follows, and the hint how to see the rest."""
    beginning = "\n".join(full[:VALUE_LIMIT].split("\n")[:VALUE_LINES])
    if beginning == full:
        return full
    if not hint:
        return _with_length(beginning, full)
    return ngettext(
        "{beginning}… ({n} character, {hint})",
        "{beginning}… ({n} characters, {hint})",
        len(full),
        beginning=beginning.rstrip(),
        hint=hint,
    )


def cut_with_length(text: str, longest: int) -> str:
    """Return the text, cut after `longest` characters, with its whole length if it was cut."""
    return text if len(text) <= longest else _with_length(text[:longest], text)


def _with_length(beginning: str, text: str) -> str:
    return ngettext(
        "{beginning}… ({n} character)", "{beginning}… ({n} characters)", len(text), beginning=beginning.rstrip()
    )
