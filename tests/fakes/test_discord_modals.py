"""Modals: each limit of Discord's, tripped, and how people fill them in."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.discord import Channel, FakeDiscord, Flag, Message, User
from tests.fakes.discord_api import DiscordApi, asked

HIDDEN = int(Flag.EPHEMERAL)


def modal(*components: Any, **more: Any) -> dict[str, Any]:
    return {"custom_id": "m", "title": "Add", "components": list(components)} | more


def label(component: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": 18, "label": "Name", "component": component} | more


def field(**more: Any) -> dict[str, Any]:
    return {"type": 4, "style": 1, "custom_id": "name"} | more


def options(count: int) -> list[dict[str, str]]:
    return [{"label": f"l{n}", "value": f"v{n}"} for n in range(count)]


REFUSED: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("title", modal(label(field()), title="x" * 46), {"data.title": "BASE_TYPE_BAD_LENGTH"}),
    ("custom id", modal(label(field()), custom_id="x" * 101), {"data.custom_id": "BASE_TYPE_BAD_LENGTH"}),
    ("no component", modal(), {"data.components": "BASE_TYPE_BAD_LENGTH"}),
    (
        "six components",
        modal(*(label(field(custom_id=str(n))) for n in range(6))),
        {"data.components": "BASE_TYPE_BAD_LENGTH"},
    ),
    ("label", modal(label(field(), label="x" * 46)), {"data.components.0.label": "BASE_TYPE_BAD_LENGTH"}),
    (
        "description",
        modal(label(field(), description="x" * 101)),
        {"data.components.0.description": "BASE_TYPE_MAX_LENGTH"},
    ),
    ("value", modal(label(field(value="x" * 4001))), {"data.components.0.component.value": "BASE_TYPE_MAX_LENGTH"}),
    ("max length", modal(label(field(max_length=4001))), {"data.components.0.component.max_length": "NUMBER_TYPE_MAX"}),
    (
        "placeholder",
        modal(label(field(placeholder="x" * 101))),
        {"data.components.0.component.placeholder": "BASE_TYPE_MAX_LENGTH"},
    ),
    ("two labels", modal(label(field(label="x"))), {"data.components.0.component.label": "COMPONENT_LABEL_TWICE"}),
    (
        "same custom ids",
        modal(label(field()), label(field())),
        {"data.components": "COMPONENT_CUSTOM_ID_DUPLICATED"},
    ),
    (
        "radio options",
        modal(label({"type": 21, "custom_id": "r", "options": options(1)})),
        {"data.components.0.component.options": "BASE_TYPE_BAD_LENGTH"},
    ),
    (
        "checkboxes",
        modal(label({"type": 22, "custom_id": "c", "options": options(11)})),
        {"data.components.0.component.options": "BASE_TYPE_BAD_LENGTH"},
    ),
    (
        "select options",
        modal(label({"type": 3, "custom_id": "s", "options": options(26)})),
        {"data.components.0.component.options": "BASE_TYPE_BAD_LENGTH"},
    ),
    (
        "uploads",
        modal(label({"type": 19, "custom_id": "u", "max_values": 11})),
        {"data.components.0.component.max_values": "NUMBER_TYPE_MAX"},
    ),
    ("a button", modal({"type": 2, "label": "x", "custom_id": "x"}), {"data.components.0.type": "BASE_TYPE_CHOICES"}),
]


@pytest.mark.parametrize("case", REFUSED, ids=[name for name, _, _ in REFUSED])
async def test_a_modal_beyond_a_limit_is_refused(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel, case: tuple[str, dict[str, Any], dict[str, str]]
) -> None:
    _, drawn, errors = case
    async with asked(discord, discord.command(ana, "mcp", room)) as interaction:
        refused = await api.answer(interaction, 9, drawn)
        await api.answer(interaction, 5)
    assert (refused.refusal, refused.errors) == ((400, 50035), errors)
    with pytest.raises(LookupError):
        discord.modal(ana)


async def test_a_modal_is_filled_in_and_submitted(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel
) -> None:
    drawn = modal(
        label(field(value="before")),
        label({"type": 3, "custom_id": "kind", "options": options(3)}, label="Kind"),
        label({"type": 23, "custom_id": "on"}, label="On"),
        label({"type": 19, "custom_id": "file", "required": False}, label="File"),
        {"type": 10, "content": "note"},
    )
    async with asked(discord, discord.command(ana, "mcp", room)) as interaction:
        assert (await api.answer(interaction, 9, drawn)).status == 200
    assert discord.modal(ana).title == "Add"
    doing = discord.submit(ana, {"Kind": "l1", "On": True}, {"File": [("a.txt", b"x")]})
    async with asked(discord, doing) as submitted:
        await api.answer(submitted, 4, {"content": "added", "flags": HIDDEN})
    first, second, third, fourth, _ = submitted.data["components"]
    assert first["component"] == {"type": 4, "id": first["component"]["id"], "custom_id": "name", "value": "before"}
    assert (second["component"]["values"], third["component"]["value"]) == (["v1"], True)
    assert submitted.data["resolved"]["attachments"][fourth["component"]["values"][0]]["filename"] == "a.txt"
    assert submitted.text == "added"


async def test_a_modal_cannot_answer_a_modal_or_come_second(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel
) -> None:
    async with asked(discord, discord.command(ana, "mcp", room)) as interaction:
        await api.answer(interaction, 9, modal(label(field())))
        assert (await api.answer(interaction, 9, modal(label(field())))).refusal == (400, 40060)
    async with asked(discord, discord.submit(ana, {"Name": "x"})) as submitted:
        assert (await api.answer(submitted, 9, modal(label(field())))).errors == {"type": "BASE_TYPE_CHOICES"}
        assert (await api.answer(submitted, 6)).errors == {"type": "BASE_TYPE_CHOICES"}
        await api.answer(submitted, 5)


async def test_a_modal_opened_from_a_message_can_change_it(
    discord: FakeDiscord, api: DiscordApi, ana: User, card: Message
) -> None:
    async with asked(discord, discord.press(ana, card, "Approve")) as interaction:
        await api.answer(interaction, 9, modal(label(field())))
    async with asked(discord, discord.submit(ana, {"Name": "why not"})) as submitted:
        await api.answer(submitted, 7, {"content": "denied", "components": []})
    assert card.content == "denied"


async def test_the_client_lets_nothing_be_submitted_that_the_modal_does_not_take(
    discord: FakeDiscord, api: DiscordApi, ana: User, room: Channel
) -> None:
    async with asked(discord, discord.command(ana, "mcp", room)) as interaction:
        await api.answer(interaction, 9, modal(label(field(min_length=3, max_length=5))))
    for value in ("", "ab", "abcdef"):
        with pytest.raises(AssertionError):
            await discord.submit(ana, {"Name": value})
    with pytest.raises(LookupError):
        await discord.submit(ana, {"Nickname": "abcd"})
    discord.close_modal(ana)
    with pytest.raises(LookupError):
        discord.modal(ana)
