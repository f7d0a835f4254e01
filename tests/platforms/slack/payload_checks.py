"""Checks of payloads: Slack accepts them, as far as its SDK and the fake workspace know, and they are safe to show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from slack_sdk.models.blocks import Block as SdkBlock
from slack_sdk.models.views import View as SdkView

from bot.platforms.slack.blocks import MESSAGE_WEIGHT, UPDATED_TEXT, Block, fallback_text
from bot.rendering.markdown import text_weight
from bot.rendering.text_safety import safe_url
from tests.fakes.slack.blocks import check_blocks
from tests.fakes.slack.view_shapes import checked_view


def check_message(blocks: Sequence[Block], text: str, people: frozenset[str] = frozenset()) -> None:
    """Check that Slack accepts a message, that it mentions only `people`, and that its links are safe."""
    check_blocks(list(blocks), "message")
    for block in SdkBlock.parse_all(list(blocks)):
        block.to_dict()
    assert blocks
    assert 0 < len(text) <= UPDATED_TEXT
    assert "<" not in text and ">" not in text  # noqa: PT018
    assert text_weight(fallback_text(blocks)) <= MESSAGE_WEIGHT + 2_000
    assert sum(block["type"] == "table" for block in blocks) <= 1
    check_harmless(blocks, people)


def check_view(
    view: dict[str, Any], people: frozenset[str] = frozenset(), channels: frozenset[str] = frozenset()
) -> None:
    """Check that Slack accepts a modal or a Home tab."""
    checked_view(view, view["type"])
    SdkView(**view).to_dict()
    check_harmless(view["blocks"], people, channels)


def check_harmless(blocks: Any, people: frozenset[str] = frozenset(), channels: frozenset[str] = frozenset()) -> None:
    """Check that nothing is fetched, only `people` are mentioned, and links lead to the web or a mailbox."""
    for part in parts(blocks):
        match part.get("type"):
            case "user":
                assert part["user_id"] in people
            case "channel":
                assert part["channel_id"] in channels
            case "broadcast" | "usergroup" | "team" | "image" | "video" | "markdown" | "mrkdwn":
                raise AssertionError(part)
            case "link":
                assert safe_url(part["url"])


def parts(value: Any) -> Iterator[dict[str, Any]]:
    """Return each object in a JSON value."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            yield from parts(inner)


def labels(blocks: Any) -> list[str]:
    """Return the labels of the buttons."""
    return [part["text"]["text"] for part in parts(list(blocks)) if part.get("type") == "button"]


def button_action(blocks: Any, label: str) -> tuple[str, str]:
    """Return the `action_id` and the `value` of the button with this label."""
    (found,) = [part for part in parts(list(blocks)) if part.get("type") == "button" and part["text"]["text"] == label]
    return found["action_id"], found["value"]
