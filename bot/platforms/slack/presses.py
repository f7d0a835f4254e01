"""How a press on one of our buttons is written into the button.

Called by the drawings, which write, and by the listener, which reads.
"""

from __future__ import annotations

import json
from typing import Any

from bot.platforms.slack.sizes import BUTTON_VALUE
from bot.reception.presses import (
    Allow,
    Approve,
    AskToConfirm,
    AskWhyNot,
    CardRef,
    Edit,
    Opinion,
    Press,
    Rate,
    Review,
    Run,
    RunBeside,
    ViewAll,
)
from bot.rendering.offers import Check, RunAgain, Stop

PREFIX = "cs"


def written(press: Press) -> tuple[str, str] | None:
    """A button's `action_id` and `value`; None where Slack would not take the value."""
    kind, content = _content(press)
    value = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return (f"{PREFIX}.{kind}", value) if len(value) <= BUTTON_VALUE else None


def read(action_id: str, value: str) -> Press | None:
    """What a pressed button means; None if it is none of ours. What stands behind a second dot of the `action_id`
    only tells apart buttons of one block.
    """
    prefix, _, rest = action_id.partition(".")
    if prefix != PREFIX:
        return None
    try:
        return _press(rest.partition(".")[0], json.loads(value))
    except (ValueError, TypeError, IndexError):
        return None


def _content(press: Press) -> tuple[str, list[Any]]:  # noqa: C901, PLR0911, PLR0912 - one case for each kind of button
    match press:
        case Approve(cards):
            return "approve", [[each.approval_id, each.revision] for each in cards]
        case Allow(card, offer):
            return "allow", [card.approval_id, card.revision, offer]
        case Edit(card):
            return "edit", [card.approval_id, card.revision]
        case AskWhyNot(card):
            return "deny", [card.approval_id, card.revision]
        case ViewAll(card, page):
            return "view", [card.approval_id, card.revision, page]
        case Review(approval_id):
            return "review", [approval_id]
        case Check(turn_id, n):
            return "check", [turn_id, n]
        case RunAgain(turn_id, n):
            return "again", [turn_id, n]
        case Stop(turn_id):
            return "stop", [turn_id]
        case Rate(turn_id, opinion):
            return "rate", [turn_id, opinion]
        case Run(words):
            return "run", list(words)
        case RunBeside(words):
            return "beside", list(words)
        case AskToConfirm(words, text, label):
            return "confirm", [text, label, *words]


def _press(kind: str, content: Any) -> Press | None:  # noqa: C901, PLR0911, PLR0912 - one case for each kind of button
    match kind, content:
        case "approve", [_, *_] as cards:
            return Approve(tuple(_card(*each) for each in cards))
        case "allow", [approval_id, revision, str(offer)]:
            return Allow(_card(approval_id, revision), offer)
        case "edit", [approval_id, revision]:
            return Edit(_card(approval_id, revision))
        case "deny", [approval_id, revision]:
            return AskWhyNot(_card(approval_id, revision))
        case "view", [approval_id, revision, int(page)]:
            return ViewAll(_card(approval_id, revision), page)
        case "review", [str(approval_id)]:
            return Review(approval_id)
        case "check", [str(turn_id), int(n)]:
            return Check(turn_id, n)
        case "again", [str(turn_id), int(n)]:
            return RunAgain(turn_id, n)
        case "stop", [str(turn_id)]:
            return Stop(turn_id)
        case "rate", [str(turn_id), str(opinion)]:
            return Rate(turn_id, Opinion(opinion))
        case "run", [_, *_] as words:
            return Run(tuple(map(str, words)))
        case "beside", [_, *_] as words:
            return RunBeside(tuple(map(str, words)))
        case "confirm", [str(text), str(label), *words] if words:
            return AskToConfirm(tuple(map(str, words)), text, label)
        case _:
            return None


def _card(approval_id: Any, revision: Any) -> CardRef:
    if not isinstance(approval_id, str) or not isinstance(revision, int):
        raise TypeError("not a card")
    return CardRef(approval_id, revision)
