"""The elements of Block Kit that the bot uses: buttons, selects, inputs, texts, with their limits."""

from __future__ import annotations

from typing import Any

from tests.fakes.slack.shapes import (
    Field,
    Problems,
    Shape,
    by_type,
    flag,
    maybe,
    one_of,
    record,
    rows,
    string,
    url,
    whole,
)


def text(most: int, *kinds: str) -> Shape:
    """Return a text object of one of these kinds ('mrkdwn', 'plain_text')."""
    plain = record({"text": string(most), "emoji": maybe(flag)})
    mrkdwn = record({"text": string(most), "verbatim": maybe(flag)})
    return by_type({k: plain if k == "plain_text" else mrkdwn for k in kinds}, "text")


def plain(most: int) -> Shape:
    """A text object that is plain."""
    return text(most, "plain_text")


def action_id(value: Any, at: str, problems: Problems) -> None:
    """Check an action id, which has at most 255 characters."""
    string(255)(value, at, problems)


STYLE = one_of("primary", "danger")
CONFIRM = record(
    {
        "title": plain(100),
        "text": text(300, "plain_text", "mrkdwn"),
        "confirm": plain(30),
        "deny": plain(30),
        "style": maybe(STYLE),
    }
)
OPTION = record(
    {
        "text": text(75, "plain_text", "mrkdwn"),
        "value": string(150),
        "description": maybe(text(75, "plain_text", "mrkdwn")),
        "url": maybe(url()),
    }
)
GROUP = record({"label": plain(75), "options": rows(OPTION, 100)})
DISPATCH = record({"trigger_actions_on": rows(one_of("on_enter_pressed", "on_character_entered"), 2)})
FEEDBACK = record({"text": plain(75), "value": string(2000), "accessibility_label": maybe(string(75))})

_ACTED = {"action_id": maybe(action_id)}
_CONFIRMED = {**_ACTED, "confirm": maybe(CONFIRM)}
_INPUT = {**_ACTED, "placeholder": maybe(plain(150)), "focus_on_load": maybe(flag)}
_SELECT = {**_INPUT, "confirm": maybe(CONFIRM)}
_OPTIONS = {"options": maybe(rows(OPTION, 100)), "option_groups": maybe(rows(GROUP, 100))}
_TYPED = {**_INPUT, "initial_value": maybe(string(3000, 0)), "dispatch_action_config": maybe(DISPATCH)}

BUTTON = record(
    {
        **_CONFIRMED,
        "text": plain(75),
        "value": maybe(string(2000)),
        "url": maybe(url()),
        "style": maybe(STYLE),
        "accessibility_label": maybe(string(75)),
        "visible_to_user_ids": maybe(rows(string(30), 100)),
    }
)
FEEDBACK_BUTTONS = record({**_ACTED, "positive_button": FEEDBACK, "negative_button": FEEDBACK})
OVERFLOW = record({**_CONFIRMED, "options": rows(OPTION, 5)})
STATIC_SELECT = record({**_SELECT, **_OPTIONS, "initial_option": maybe(OPTION)}, one_needed=_OPTIONS)
RADIO = record(
    {**_CONFIRMED, "options": rows(OPTION, 10), "initial_option": maybe(OPTION), "focus_on_load": maybe(flag)}
)
PLAIN_INPUT = record({**_TYPED, "multiline": maybe(flag), "min_length": maybe(whole), "max_length": maybe(whole)})
CHOICES: dict[str, Shape] = {"static_select": STATIC_SELECT, "radio_buttons": RADIO}
ACTIONS: dict[str, Shape] = {"button": BUTTON, "overflow": OVERFLOW, **CHOICES}
CONTEXT_ACTIONS: dict[str, Shape] = {"feedback_buttons": FEEDBACK_BUTTONS}
INPUTS: dict[str, Shape] = {"plain_text_input": PLAIN_INPUT, **CHOICES}

__all__ = ["ACTIONS", "CONTEXT_ACTIONS", "INPUTS", "Field", "plain", "text"]
