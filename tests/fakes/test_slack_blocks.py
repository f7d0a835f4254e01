"""Block Kit: every limit is tripped once, and what is just within it is taken."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.slack.blocks import check_blocks
from tests.fakes.slack.refusals import Refused

Json = dict[str, Any]


def plain(text: str) -> Json:
    return {"type": "plain_text", "text": text}


def button(**more: Any) -> Json:
    return {"type": "button", "text": plain("Go"), **more}


def section(**more: Any) -> Json:
    return {"type": "section", "text": {"type": "mrkdwn", "text": "x"}, **more}


def options(count: int) -> list[Json]:
    return [{"text": plain(f"o{n}"), "value": f"v{n}"} for n in range(count)]


def actions(*elements: Json) -> Json:
    return {"type": "actions", "elements": list(elements)}


def select(**more: Any) -> Json:
    return {"type": "static_select", "options": options(1), **more}


def task(**more: Any) -> Json:
    return {"type": "task_card", "task_id": "t1", "title": "Read", "status": "complete", **more}


def table(rows: int, columns: int) -> Json:
    return {"type": "table", "rows": [[{"type": "raw_text", "text": "x"}] * columns for _ in range(rows)]}


def rich(*elements: Json) -> Json:
    return {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": list(elements)}]}


def confirm(**more: Any) -> Json:
    return {"title": plain("t"), "text": plain("t"), "confirm": plain("y"), "deny": plain("n"), **more}


def feedback(text: str) -> Json:
    side = {"text": plain(text), "value": "1"}
    return {"type": "feedback_buttons", "positive_button": side, "negative_button": side}


def wrong_with(*blocks: Json, surface: str = "message") -> list[str]:
    """What Slack says about these blocks, without the '[ERROR] '."""
    with pytest.raises(Refused) as caught:
        check_blocks(list(blocks), surface)
    assert caught.value.code == "invalid_blocks"
    messages: list[str] = caught.value.more["response_metadata"]["messages"]
    return [message.removeprefix("[ERROR] ") for message in messages]


LIMITS: list[tuple[Json, Json, str]] = [
    (
        section(text={"type": "mrkdwn", "text": "x" * 3000}),
        section(text={"type": "mrkdwn", "text": "x" * 3001}),
        "must be less than 3001 characters [json-pointer:/blocks/0/text/text]",
    ),
    (
        section(fields=[plain("x")] * 10),
        section(fields=[plain("x")] * 11),
        "no more than 10 items allowed [json-pointer:/blocks/0/fields]",
    ),
    (
        section(fields=[plain("x" * 2000)]),
        section(fields=[plain("x" * 2001)]),
        "must be less than 2001 characters [json-pointer:/blocks/0/fields/0/text]",
    ),
    (
        {"type": "header", "text": plain("x" * 150)},
        {"type": "header", "text": plain("x" * 151)},
        "must be less than 151 characters [json-pointer:/blocks/0/text/text]",
    ),
    (
        {"type": "context", "elements": [plain("x")] * 10},
        {"type": "context", "elements": [plain("x")] * 11},
        "no more than 10 items allowed [json-pointer:/blocks/0/elements]",
    ),
    (
        actions(*[button()] * 25),
        actions(*[button()] * 26),
        "no more than 25 items allowed [json-pointer:/blocks/0/elements]",
    ),
    (
        {"type": "context_actions", "elements": [feedback("a")] * 5},
        {"type": "context_actions", "elements": [feedback("a")] * 6},
        "no more than 5 items allowed [json-pointer:/blocks/0/elements]",
    ),
    (
        {"type": "context_actions", "elements": [feedback("x" * 75)]},
        {
            "type": "context_actions",
            "elements": [{**feedback("a"), "positive_button": {"text": plain("x" * 76), "value": "1"}}],
        },
        "must be less than 76 characters [json-pointer:/blocks/0/elements/0/positive_button/text/text]",
    ),
    (
        {"type": "markdown", "text": "x" * 12_000},
        {"type": "markdown", "text": "x" * 12_001},
        "must be less than 12001 characters [json-pointer:/blocks/0/text]",
    ),
    (
        actions(button(text=plain("x" * 75))),
        actions(button(text=plain("x" * 76))),
        "must be less than 76 characters [json-pointer:/blocks/0/elements/0/text/text]",
    ),
    (
        actions(button(value="x" * 2000)),
        actions(button(value="x" * 2001)),
        "must be less than 2001 characters [json-pointer:/blocks/0/elements/0/value]",
    ),
    (
        actions(button(action_id="x" * 255)),
        actions(button(action_id="x" * 256)),
        "must be less than 256 characters [json-pointer:/blocks/0/elements/0/action_id]",
    ),
    (
        actions(button(url="https://a/" + "x" * 2990)),
        actions(button(url="https://a/" + "x" * 2991)),
        "must be less than 3001 characters [json-pointer:/blocks/0/elements/0/url]",
    ),
    (
        section(block_id="x" * 255),
        section(block_id="x" * 256),
        "must be less than 256 characters [json-pointer:/blocks/0/block_id]",
    ),
    (
        actions(select(options=options(100))),
        actions(select(options=options(101))),
        "no more than 100 items allowed [json-pointer:/blocks/0/elements/0/options]",
    ),
    (
        actions(select(options=[{"text": plain("x" * 75), "value": "v"}])),
        actions(select(options=[{"text": plain("x" * 76), "value": "v"}])),
        "must be less than 76 characters [json-pointer:/blocks/0/elements/0/options/0/text/text]",
    ),
    (
        actions(select(options=[{"text": plain("x"), "value": "v" * 150}])),
        actions(select(options=[{"text": plain("x"), "value": "v" * 151}])),
        "must be less than 151 characters [json-pointer:/blocks/0/elements/0/options/0/value]",
    ),
    (
        actions(select(placeholder=plain("x" * 150))),
        actions(select(placeholder=plain("x" * 151))),
        "must be less than 151 characters [json-pointer:/blocks/0/elements/0/placeholder/text]",
    ),
    (
        section(accessory={"type": "overflow", "options": options(5)}),
        section(accessory={"type": "overflow", "options": options(6)}),
        "no more than 5 items allowed [json-pointer:/blocks/0/accessory/options]",
    ),
    (
        section(accessory={"type": "checkboxes", "options": options(10)}),
        section(accessory={"type": "checkboxes", "options": options(11)}),
        "no more than 10 items allowed [json-pointer:/blocks/0/accessory/options]",
    ),
    (
        section(accessory={"type": "radio_buttons", "options": options(10)}),
        section(accessory={"type": "radio_buttons", "options": options(11)}),
        "no more than 10 items allowed [json-pointer:/blocks/0/accessory/options]",
    ),
    (
        actions(button(confirm=confirm(title=plain("x" * 100)))),
        actions(button(confirm=confirm(title=plain("x" * 101)))),
        "must be less than 101 characters [json-pointer:/blocks/0/elements/0/confirm/title/text]",
    ),
    (
        actions(button(confirm=confirm(text=plain("x" * 300)))),
        actions(button(confirm=confirm(text=plain("x" * 301)))),
        "must be less than 301 characters [json-pointer:/blocks/0/elements/0/confirm/text/text]",
    ),
    (
        actions(button(confirm=confirm(deny=plain("x" * 30)))),
        actions(button(confirm=confirm(deny=plain("x" * 31)))),
        "must be less than 31 characters [json-pointer:/blocks/0/elements/0/confirm/deny/text]",
    ),
    (table(100, 20), table(101, 1), "no more than 100 items allowed [json-pointer:/blocks/0/rows]"),
    (table(1, 20), table(1, 21), "no more than 20 items allowed [json-pointer:/blocks/0/rows/0]"),
    (
        {"type": "plan", "title": "p", "tasks": [task()] * 50},
        {"type": "plan", "title": "p", "tasks": [task()] * 51},
        "no more than 50 items allowed [json-pointer:/blocks/0/tasks]",
    ),
    (
        task(title="x" * 256),
        task(title="x" * 257),
        "must be less than 257 characters [json-pointer:/blocks/0/title]",
    ),
    (
        {"type": "image", "image_url": "https://a/b.png", "alt_text": "x" * 2000},
        {"type": "image", "image_url": "https://a/b.png", "alt_text": "x" * 2001},
        "must be less than 2001 characters [json-pointer:/blocks/0/alt_text]",
    ),
    (
        {"type": "card", "title": plain("x" * 150), "body": plain("x" * 200), "actions": [button()] * 3},
        {"type": "card", "title": plain("x" * 150), "body": plain("x" * 201)},
        "must be less than 201 characters [json-pointer:/blocks/0/body/text]",
    ),
    (
        {"type": "card", "title": plain("t"), "actions": [button()] * 3},
        {"type": "card", "title": plain("t"), "actions": [button()] * 4},
        "no more than 3 items allowed [json-pointer:/blocks/0/actions]",
    ),
    (
        {"type": "carousel", "elements": [{"type": "card", "title": plain("t")}] * 10},
        {"type": "carousel", "elements": [{"type": "card", "title": plain("t")}] * 11},
        "no more than 10 items allowed [json-pointer:/blocks/0/elements]",
    ),
    (
        {"type": "container", "title": plain("t"), "child_blocks": [section()] * 10},
        {"type": "container", "title": plain("t"), "child_blocks": [section()] * 11},
        "no more than 10 items allowed [json-pointer:/blocks/0/child_blocks]",
    ),
]


@pytest.mark.parametrize(("within", "beyond", "message"), LIMITS, ids=[line for _, _, line in LIMITS])
def test_a_limit_is_where_slack_has_it(within: Json, beyond: Json, message: str) -> None:
    check_blocks([within], "message")
    assert wrong_with(beyond) == [message]


def test_a_message_takes_fifty_blocks_and_a_view_a_hundred() -> None:
    check_blocks([section()] * 50, "message")
    assert wrong_with(*[section()] * 51) == ["no more than 50 items allowed [json-pointer:/blocks]"]
    check_blocks([section()] * 100, "home")
    assert wrong_with(*[section()] * 101, surface="home") == ["no more than 100 items allowed [json-pointer:/blocks]"]


def test_markdown_blocks_share_one_allowance() -> None:
    half = {"type": "markdown", "text": "x" * 6000}
    check_blocks([half, half], "message")
    assert "together" in wrong_with(half, half, {"type": "markdown", "text": "x"})[0]


def test_the_cells_of_a_table_share_one_allowance() -> None:
    def of(letters: int) -> Json:
        return {"type": "table", "rows": [[{"type": "raw_text", "text": "x" * (letters // 2)}] * 2]}

    check_blocks([of(10_000)], "message")
    assert wrong_with(of(10_002)) == ["must be less than 10001 characters together [json-pointer:/blocks/0/rows]"]


STRUCTURE: list[tuple[Json, str]] = [
    ({"type": "banner"}, "unsupported block type: banner [json-pointer:/blocks/0/type]"),
    ({"text": plain("x")}, "missing required field: type [json-pointer:/blocks/0]"),
    ({"type": "section"}, "missing required field: text [json-pointer:/blocks/0]"),
    ({"type": "section", "text": "bare"}, "must provide an object [json-pointer:/blocks/0/text]"),
    (section(text=plain("")), "must be more than 0 characters [json-pointer:/blocks/0/text/text]"),
    (section(colour="red"), "invalid additional property: colour [json-pointer:/blocks/0]"),
    (
        {"type": "header", "text": {"type": "mrkdwn", "text": "x"}},
        "unsupported text type: mrkdwn [json-pointer:/blocks/0/text/type]",
    ),
    (
        actions(button(text={"type": "mrkdwn", "text": "x"})),
        "unsupported text type: mrkdwn [json-pointer:/blocks/0/elements/0/text/type]",
    ),
    (
        actions(button(style="loud")),
        "must be one of primary, danger [json-pointer:/blocks/0/elements/0/style]",
    ),
    (actions(button(url="javascript:x")), "must be a valid URL [json-pointer:/blocks/0/elements/0/url]"),
    (actions(), "must contain at least 1 item [json-pointer:/blocks/0/elements]"),
    (
        actions({"type": "feedback_buttons"}),
        "unsupported element type: feedback_buttons [json-pointer:/blocks/0/elements/0/type]",
    ),
    (
        actions(button(action_id="a"), button(action_id="a")),
        "action_id already exists: a [json-pointer:/blocks/0/elements/1/action_id]",
    ),
    (
        {"type": "image", "alt_text": "x"},
        "missing required field: image_url [json-pointer:/blocks/0]",
    ),
    (
        rich({"type": "shout", "text": "x"}),
        "unsupported rich text element type: shout [json-pointer:/blocks/0/elements/0/elements/0/type]",
    ),
    (
        rich({"type": "text", "text": ""}),
        "must be more than 0 characters [json-pointer:/blocks/0/elements/0/elements/0/text]",
    ),
    (
        {"type": "table", "rows": [[{"type": "raw_text", "text": ""}]]},
        "must be more than 0 characters [json-pointer:/blocks/0/rows/0/0/text]",
    ),
    (
        task(status="spinning"),
        "must be one of pending, in_progress, complete, error [json-pointer:/blocks/0/status]",
    ),
    (
        {"type": "alert", "text": plain("x")},
        "unsupported block type on this surface: alert [json-pointer:/blocks/0/type]",
    ),
]


@pytest.mark.parametrize(("block", "message"), STRUCTURE, ids=[line for _, line in STRUCTURE])
def test_what_is_no_block_kit_is_refused(block: Json, message: str) -> None:
    assert message in wrong_with(block)


def test_two_blocks_may_not_have_one_id() -> None:
    wrong = wrong_with(section(block_id="a"), section(block_id="a"))
    assert wrong == ["block_id already exists: a [json-pointer:/blocks/1/block_id]"]


def test_message_blocks_are_no_blocks_for_views() -> None:
    for kind in ({"type": "markdown", "text": "x"}, table(1, 1), task()):
        assert "on this surface" in wrong_with(kind, surface="modal")[0]


def test_rich_text_as_a_composer_writes_it_is_taken() -> None:
    style = {"bold": True}
    check_blocks(
        [
            {
                "type": "rich_text",
                "elements": [
                    {
                        "type": "rich_text_section",
                        "elements": [
                            {"type": "text", "text": "a", "style": style},
                            {"type": "link", "url": "https://a", "text": "b"},
                            {"type": "user", "user_id": "U1"},
                            {"type": "emoji", "name": "eyes"},
                            {"type": "date", "timestamp": 1, "format": "{date}", "fallback": "then"},
                        ],
                    },
                    {
                        "type": "rich_text_list",
                        "style": "ordered",
                        "indent": 1,
                        "elements": [{"type": "rich_text_section", "elements": [{"type": "text", "text": "c"}]}],
                    },
                    {"type": "rich_text_quote", "elements": [{"type": "text", "text": "d"}]},
                    {"type": "rich_text_preformatted", "border": 0, "elements": [{"type": "text", "text": "e"}]},
                ],
            }
        ],
        "message",
    )
