"""What comes back when somebody sends a window.

Called by the listener. Reads Slack's `view` of a `view_submission` into values; nothing else of Slack's reaches them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bot.chat.actions import ApprovalRef
from bot.platforms.slack.forms import FIELD, FORM, decode_state
from bot.platforms.slack.modal_results import Back, ConfirmationSubmitted, DenySubmitted, FormSubmitted
from bot.platforms.slack.modals import CONFIRM, DENY, REASON, TYPED


def read_submission(view: Mapping[str, Any]) -> Back | None:
    """What was sent; None if the window is none of ours."""
    metadata = str(view.get("private_metadata") or "")
    typed = _typed(view)
    try:
        match view.get("callback_id"):
            case str(name) if name == DENY:
                keep, approval_id, revision = json.loads(metadata)
                return DenySubmitted(
                    ApprovalRef(str(approval_id), int(revision)), typed.get(REASON, "").strip(), str(keep)
                )
            case str(name) if name == CONFIRM:
                keep, *words = map(str, json.loads(metadata))
                return ConfirmationSubmitted(tuple(words), typed.get(TYPED, "").strip(), keep)
            case str(name) if name == FORM:
                luggage = decode_state(metadata)
                filled = {name.removeprefix(FIELD): value for name, value in typed.items() if name.startswith(FIELD)}
                return FormSubmitted(luggage.form, {**luggage.carried, **filled}, luggage.keep)
            case _:
                return None
    except (ValueError, TypeError):
        return None


def _typed(view: Mapping[str, Any]) -> dict[str, str]:
    """Every field's value by its block; empty for one that was left out."""
    values = (view.get("state") or {}).get("values") or {}
    return {
        str(block): _value(element)
        for block, elements in values.items()
        for element in (elements or {}).values()
        if isinstance(element, Mapping)
    }


def _value(element: Mapping[str, Any]) -> str:
    match element.get("type"):
        case "radio_buttons" | "static_select":
            return str((element.get("selected_option") or {}).get("value") or "")
        case _:
            return str(element.get("value") or "")
