"""Views: every limit is tripped once, and what is just within it is taken."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.slack.refusals import Refused
from tests.fakes.slack.view_shapes import checked_view

Json = dict[str, Any]


def plain(text: str) -> Json:
    return {"type": "plain_text", "text": text}


def section(**more: Any) -> Json:
    return {"type": "section", "text": {"type": "mrkdwn", "text": "x"}, **more}


def modal(**more: Any) -> Json:
    return {"type": "modal", "title": plain("Add"), "blocks": [section()], **more}


def field(**more: Any) -> Json:
    return {"type": "input", "label": plain("Name"), "element": {"type": "plain_text_input"}, **more}


def wrong_with_view(view: Json, kind: str = "modal") -> list[str]:
    with pytest.raises(Refused) as caught:
        checked_view(view, kind)
    assert caught.value.code == "invalid_arguments"
    messages: list[str] = caught.value.more["response_metadata"]["messages"]
    return [message.removeprefix("[ERROR] ") for message in messages]


VIEWS: list[tuple[Json, Json, str]] = [
    (
        modal(title=plain("x" * 24)),
        modal(title=plain("x" * 25)),
        "must be less than 25 characters [json-pointer:/view/title/text]",
    ),
    (
        modal(submit=plain("x" * 24)),
        modal(submit=plain("x" * 25)),
        "must be less than 25 characters [json-pointer:/view/submit/text]",
    ),
    (
        modal(close=plain("x" * 24)),
        modal(close=plain("x" * 25)),
        "must be less than 25 characters [json-pointer:/view/close/text]",
    ),
    (
        modal(private_metadata="x" * 3000),
        modal(private_metadata="x" * 3001),
        "must be less than 3001 characters [json-pointer:/view/private_metadata]",
    ),
    (
        modal(callback_id="x" * 255),
        modal(callback_id="x" * 256),
        "must be less than 256 characters [json-pointer:/view/callback_id]",
    ),
    (
        modal(blocks=[section()] * 100),
        modal(blocks=[section()] * 101),
        "no more than 100 items allowed [json-pointer:/view/blocks]",
    ),
    (
        modal(blocks=[field()], submit=plain("Add")),
        modal(blocks=[field()]),
        "missing required field: submit [json-pointer:/view]",
    ),
    (
        modal(blocks=[{"type": "alert", "text": plain("x" * 200)}]),
        modal(blocks=[{"type": "alert", "text": plain("x" * 201)}]),
        "must be less than 201 characters [json-pointer:/view/blocks/0/text/text]",
    ),
    (
        modal(blocks=[field(hint=plain("x" * 2000))], submit=plain("Add")),
        modal(blocks=[field(hint=plain("x" * 2001))], submit=plain("Add")),
        "must be less than 2001 characters [json-pointer:/view/blocks/0/hint/text]",
    ),
    (
        modal(blocks=[field(element={"type": "plain_text_input", "initial_value": "x" * 3000})], submit=plain("Add")),
        modal(blocks=[field(element={"type": "plain_text_input", "initial_value": "x" * 3001})], submit=plain("Add")),
        "must be less than 3001 characters [json-pointer:/view/blocks/0/element/initial_value]",
    ),
]


@pytest.mark.parametrize(("within", "beyond", "message"), VIEWS, ids=[line for _, _, line in VIEWS])
def test_a_limit_of_views_is_where_slack_has_it(within: Json, beyond: Json, message: str) -> None:
    checked_view(within, "modal")
    assert wrong_with_view(beyond) == [message]


def test_a_view_of_more_than_250_kilobytes_is_too_large() -> None:
    big = [section(text={"type": "mrkdwn", "text": "x" * 2900})] * 90
    with pytest.raises(Refused, match="view_too_large"):
        checked_view(modal(blocks=big), "modal")


def test_a_modal_is_no_home_and_a_home_has_no_title() -> None:
    assert wrong_with_view(modal(), "home") == ["unsupported view type: modal [json-pointer:/view/type]"]
    home = {"type": "home", "blocks": [section()], "title": plain("x")}
    assert wrong_with_view(home, "home") == ["invalid additional property: title [json-pointer:/view]"]
