"""Codec between an `Action` and the `action_id` and `value` of a Slack button."""

from __future__ import annotations

import json
from typing import Any

from bot.chat.actions import (
    Action,
    ApprovalRef,
    Approve,
    ApproveWithGrant,
    Edit,
    FeedbackValue,
    OpenConfirmation,
    OpenDenyForm,
    RunCommand,
    RunCommandInNewReply,
    SendFeedback,
    ViewCall,
    ViewPendingCall,
)
from bot.platforms.slack.limits import BUTTON_VALUE
from bot.rendering.available_actions import CheckCallAction, RunAgainAction, StopTurnAction

PREFIX = "cs"


def encode(press: Action) -> tuple[str, str] | None:
    """Return a button's `action_id` and `value`, or None if they exceed Slack's limits."""
    kind, content = _content(press)
    value = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return (f"{PREFIX}.{kind}", value) if len(value) <= BUTTON_VALUE else None


def decode(action_id: str, value: str) -> Action | None:
    """Return the action of a button, or None if it is not one of the bot's. The part after a second dot of the
    `action_id` only makes ids of one block unique.
    """
    prefix, _, rest = action_id.partition(".")
    if prefix != PREFIX:
        return None
    try:
        return _press(rest.partition(".")[0], json.loads(value))
    except (ValueError, TypeError, IndexError):
        return None


def _content(press: Action) -> tuple[str, list[Any]]:  # noqa: C901, PLR0911, PLR0912 - one case for each kind of button
    match press:
        case Approve(cards):
            return "approve", [[each.approval_id, each.revision] for each in cards]
        case ApproveWithGrant(card, offer):
            return "allow", [card.approval_id, card.revision, offer]
        case Edit(card):
            return "edit", [card.approval_id, card.revision]
        case OpenDenyForm(card):
            return "deny", [card.approval_id, card.revision]
        case ViewCall(card, page):
            return "view", [card.approval_id, card.revision, page]
        case ViewPendingCall(approval_id):
            return "review", [approval_id]
        case CheckCallAction(turn_id, n):
            return "check", [turn_id, n]
        case RunAgainAction(turn_id, n):
            return "again", [turn_id, n]
        case StopTurnAction(turn_id):
            return "stop", [turn_id]
        case SendFeedback(turn_id, opinion):
            return "rate", [turn_id, opinion]
        case RunCommand(words):
            return "run", list(words)
        case RunCommandInNewReply(words):
            return "beside", list(words)
        case OpenConfirmation(words, text, label):
            return "confirm", [text, label, *words]


def _press(kind: str, content: Any) -> Action | None:  # noqa: C901, PLR0911, PLR0912 - one case for each kind of button
    match kind, content:
        case "approve", [_, *_] as cards:
            return Approve(tuple(_card(*each) for each in cards))
        case "allow", [approval_id, revision, str(offer)]:
            return ApproveWithGrant(_card(approval_id, revision), offer)
        case "edit", [approval_id, revision]:
            return Edit(_card(approval_id, revision))
        case "deny", [approval_id, revision]:
            return OpenDenyForm(_card(approval_id, revision))
        case "view", [approval_id, revision, int(page)]:
            return ViewCall(_card(approval_id, revision), page)
        case "review", [str(approval_id)]:
            return ViewPendingCall(approval_id)
        case "check", [str(turn_id), int(n)]:
            return CheckCallAction(turn_id, n)
        case "again", [str(turn_id), int(n)]:
            return RunAgainAction(turn_id, n)
        case "stop", [str(turn_id)]:
            return StopTurnAction(turn_id)
        case "rate", [str(turn_id), str(opinion)]:
            return SendFeedback(turn_id, FeedbackValue(opinion))
        case "run", [_, *_] as words:
            return RunCommand(tuple(map(str, words)))
        case "beside", [_, *_] as words:
            return RunCommandInNewReply(tuple(map(str, words)))
        case "confirm", [str(text), str(label), *words] if words:
            return OpenConfirmation(tuple(map(str, words)), text, label)
        case _:
            return None


def _card(approval_id: Any, revision: Any) -> ApprovalRef:
    if not isinstance(approval_id, str) or not isinstance(revision, int):
        raise TypeError("not a card")
    return ApprovalRef(approval_id, revision)
