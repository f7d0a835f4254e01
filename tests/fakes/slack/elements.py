"""The elements of Block Kit: buttons, selects, inputs, texts, with their limits."""

from __future__ import annotations

from typing import Any

from tests.fakes.slack.shapes import (
    Field,
    Problems,
    Shape,
    anything,
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
IMAGE = record(
    {"image_url": maybe(url()), "slack_file": maybe(anything), "alt_text": string(2000)},
    one_needed=("image_url", "slack_file"),
)
DISPATCH = record({"trigger_actions_on": rows(one_of("on_enter_pressed", "on_character_entered"), 2)})
FEEDBACK = record({"text": plain(75), "value": string(2000), "accessibility_label": maybe(string(75))})

_ACTED = {"action_id": maybe(action_id)}
_CONFIRMED = {**_ACTED, "confirm": maybe(CONFIRM)}
_INPUT = {**_ACTED, "placeholder": maybe(plain(150)), "focus_on_load": maybe(flag)}
_SELECT = {**_INPUT, "confirm": maybe(CONFIRM)}
_MANY = {**_SELECT, "max_selected_items": maybe(whole)}
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
ICON_BUTTON = record(
    {
        **_CONFIRMED,
        "icon": one_of("trash"),
        "text": plain(75),
        "value": maybe(string(2000)),
        "accessibility_label": maybe(string(75)),
        "visible_to_user_ids": maybe(rows(string(30), 100)),
    }
)
FEEDBACK_BUTTONS = record({**_ACTED, "positive_button": FEEDBACK, "negative_button": FEEDBACK})
OVERFLOW = record({**_CONFIRMED, "options": rows(OPTION, 5)})
STATIC_SELECT = record({**_SELECT, **_OPTIONS, "initial_option": maybe(OPTION)}, one_needed=_OPTIONS)
CHECKBOXES = record(
    {
        **_CONFIRMED,
        "options": rows(OPTION, 10),
        "initial_options": maybe(rows(OPTION, 10)),
        "focus_on_load": maybe(flag),
    }
)
RADIO = record(
    {**_CONFIRMED, "options": rows(OPTION, 10), "initial_option": maybe(OPTION), "focus_on_load": maybe(flag)}
)
TYPED = record(_TYPED)
PLAIN_INPUT = record({**_TYPED, "multiline": maybe(flag), "min_length": maybe(whole), "max_length": maybe(whole)})
NUMBER_INPUT = record(
    {
        **_TYPED,
        "is_decimal_allowed": flag,
        "min_value": maybe(string(100)),
        "max_value": maybe(string(100)),
    }
)
EXTERNAL_SELECT = record({**_SELECT, "min_query_length": maybe(whole), "initial_option": maybe(OPTION)})
FILTER = record(
    {
        "include": maybe(rows(one_of("im", "mpim", "private", "public"), 4)),
        "exclude_external_shared_channels": maybe(flag),
        "exclude_bot_users": maybe(flag),
    }
)
_CONVERSATION = {"default_to_current_conversation": maybe(flag), "filter": maybe(FILTER)}

SELECTS: dict[str, Shape] = {
    "static_select": STATIC_SELECT,
    "external_select": EXTERNAL_SELECT,
    "users_select": record({**_SELECT, "initial_user": maybe(string(30))}),
    "conversations_select": record(
        {**_SELECT, **_CONVERSATION, "initial_conversation": maybe(string(30)), "response_url_enabled": maybe(flag)}
    ),
    "channels_select": record({**_SELECT, "initial_channel": maybe(string(30)), "response_url_enabled": maybe(flag)}),
    "multi_static_select": record(
        {**_MANY, **_OPTIONS, "initial_options": maybe(rows(OPTION, 100))}, one_needed=_OPTIONS
    ),
    "multi_external_select": record(
        {**_MANY, "min_query_length": maybe(whole), "initial_options": maybe(rows(OPTION, 100))}
    ),
    "multi_users_select": record({**_MANY, "initial_users": maybe(rows(string(30), 100))}),
    "multi_conversations_select": record(
        {**_MANY, **_CONVERSATION, "initial_conversations": maybe(rows(string(30), 100))}
    ),
    "multi_channels_select": record({**_MANY, "initial_channels": maybe(rows(string(30), 100))}),
}
PICKERS: dict[str, Shape] = {
    "datepicker": record({**_SELECT, "initial_date": maybe(string(10))}),
    "timepicker": record({**_SELECT, "initial_time": maybe(string(5)), "timezone": maybe(string(50))}),
    "datetimepicker": record({**_CONFIRMED, "initial_date_time": maybe(whole), "focus_on_load": maybe(flag)}),
}
CHOICES: dict[str, Shape] = {"checkboxes": CHECKBOXES, "radio_buttons": RADIO}
ACTIONS: dict[str, Shape] = {"button": BUTTON, "overflow": OVERFLOW, **SELECTS, **PICKERS, **CHOICES}
ACCESSORIES: dict[str, Shape] = {**ACTIONS, "image": IMAGE}
CONTEXT_ACTIONS: dict[str, Shape] = {"feedback_buttons": FEEDBACK_BUTTONS, "icon_button": ICON_BUTTON}
INPUTS: dict[str, Shape] = {
    "plain_text_input": PLAIN_INPUT,
    "email_text_input": TYPED,
    "url_text_input": TYPED,
    "number_input": NUMBER_INPUT,
    **SELECTS,
    **PICKERS,
    **CHOICES,
}

__all__ = ["ACCESSORIES", "ACTIONS", "CONTEXT_ACTIONS", "IMAGE", "INPUTS", "Field", "plain", "text"]
