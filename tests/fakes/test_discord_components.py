"""Components of messages: each limit of Discord's, tripped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.discord import FakeDiscord, Flag
from tests.fakes.discord_api import DiscordApi

V2 = int(Flag.IS_COMPONENTS_V2)


def button(custom_id: str = "b", **more: Any) -> dict[str, Any]:
    return {"type": 2, "style": 1, "label": "Go", "custom_id": custom_id} | more


def link(**more: Any) -> dict[str, Any]:
    return {"type": 2, "style": 5, "label": "Go", "url": "https://a.example"} | more


def row(*children: dict[str, Any]) -> dict[str, Any]:
    return {"type": 1, "components": list(children)}


def text(content: str = "words") -> dict[str, Any]:
    return {"type": 10, "content": content}


def container(*children: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": 17, "components": list(children)} | more


def select(count: int = 2, **more: Any) -> dict[str, Any]:
    options = [{"label": f"l{n}", "value": f"v{n}"} for n in range(count)]
    return {"type": 3, "custom_id": "s", "options": options} | more


TAKEN = [
    [text("x" * 4000)],
    [text("x" * 2000), text("x" * 2000)],
    [text() for _ in range(40)],
    [container(*(text() for _ in range(39)))],
    [row(*(button(str(n)) for n in range(5)))],
    [row(button("x" * 100, label="x" * 80))],
    [row(link())],
    [row(select(25, max_values=25, min_values=0, placeholder="x" * 150))],
    [{"type": 9, "components": [text(), text(), text()], "accessory": button()}],
    [container({"type": 14, "divider": True, "spacing": 2}, row(button()), accent_color=0xFFFFFF)],
    [{"type": 12, "items": [{"media": {"url": "https://a.example/1.png"}}] * 10}],
]


@pytest.mark.parametrize("components", TAKEN)
async def test_what_is_just_within_the_limits_is_taken(
    discord: FakeDiscord, api: DiscordApi, components: list[Any]
) -> None:
    said = await api.post(discord.channel("general"), {"components": components, "flags": V2})
    assert said.status == 200, said


REFUSED: list[tuple[str, list[Any], dict[str, str]]] = [
    ("display text", [text("x" * 4000), text("x")], {"components": "COMPONENT_DISPLAYABLE_TEXT_SIZE_EXCEEDED"}),
    ("one text", [text("x" * 4001)], {"components.0.content": "BASE_TYPE_BAD_LENGTH"}),
    ("no text", [text("")], {"components.0.content": "BASE_TYPE_REQUIRED"}),
    ("count", [text() for _ in range(41)], {"components": "BASE_TYPE_MAX_LENGTH"}),
    ("nested count", [container(*(text() for _ in range(40)))], {"components": "COMPONENT_TOTAL_COUNT_EXCEEDED"}),
    (
        "accessories count",
        [{"type": 9, "components": [text()], "accessory": button(str(n))} for n in range(14)],
        {"components": "COMPONENT_TOTAL_COUNT_EXCEEDED"},
    ),
    (
        "buttons in a row",
        [row(*(button(str(n)) for n in range(6)))],
        {"components.0.components": "BASE_TYPE_BAD_LENGTH"},
    ),
    ("an empty row", [row()], {"components.0.components": "BASE_TYPE_BAD_LENGTH"}),
    ("label", [row(button(label="x" * 81))], {"components.0.components.0.label": "BASE_TYPE_MAX_LENGTH"}),
    (
        "neither label nor emoji",
        [row(button(label=""))],
        {"components.0.components.0": "BUTTON_COMPONENT_LABEL_OR_EMOJI_REQUIRED"},
    ),
    ("custom id", [row(button("x" * 101))], {"components.0.components.0.custom_id": "BASE_TYPE_BAD_LENGTH"}),
    ("no custom id", [row(button(""))], {"components.0.components.0.custom_id": "BASE_TYPE_REQUIRED"}),
    ("same custom ids", [row(button(), button())], {"components": "COMPONENT_CUSTOM_ID_DUPLICATED"}),
    ("same ids", [text() | {"id": 3}, text() | {"id": 3}], {"components": "COMPONENT_ID_DUPLICATED"}),
    ("style", [row(button(style=7))], {"components.0.components.0.style": "BASE_TYPE_CHOICES"}),
    (
        "link with custom id",
        [row(link(custom_id="x"))],
        {"components.0.components.0": "BUTTON_COMPONENT_CUSTOM_ID_URL_MUTUALLY_EXCLUSIVE"},
    ),
    (
        "button with a link",
        [row(button(url="https://a.example"))],
        {"components.0.components.0": "BUTTON_COMPONENT_CUSTOM_ID_URL_MUTUALLY_EXCLUSIVE"},
    ),
    (
        "scheme",
        [row(link(url="javascript:alert(1)"))],
        {"components.0.components.0.url": "URL_TYPE_INVALID_SCHEME"},
    ),
    ("url", [row(link(url="https://" + "x" * 505))], {"components.0.components.0.url": "BASE_TYPE_BAD_LENGTH"}),
    ("options", [row(select(26))], {"components.0.components.0.options": "BASE_TYPE_BAD_LENGTH"}),
    ("no options", [row(select(0))], {"components.0.components.0.options": "BASE_TYPE_BAD_LENGTH"}),
    (
        "same options",
        [row(select(options=[{"label": "a", "value": "a"}] * 2))],
        {"components.0.components.0.options": "SELECT_COMPONENT_OPTION_VALUE_DUPLICATED"},
    ),
    (
        "option label",
        [row(select(options=[{"label": "x" * 101, "value": "a"}]))],
        {"components.0.components.0.options.0.label": "BASE_TYPE_BAD_LENGTH"},
    ),
    (
        "placeholder",
        [row(select(placeholder="x" * 151))],
        {"components.0.components.0.placeholder": "BASE_TYPE_MAX_LENGTH"},
    ),
    ("values", [row(select(2, max_values=3))], {"components.0.components.0.max_values": "SELECT_COMPONENT_MAX_VALUES"}),
    ("row width", [row(select(), button())], {"components.0.components": "COMPONENT_LAYOUT_WIDTH_EXCEEDED"}),
    ("button outside a row", [button()], {"components.0.type": "BASE_TYPE_CHOICES"}),
    (
        "container in a container",
        [container(container(text()))],
        {"components.0.components.0.type": "BASE_TYPE_CHOICES"},
    ),
    ("empty container", [container()], {"components.0.components": "BASE_TYPE_BAD_LENGTH"}),
    ("colour", [container(text(), accent_color=0x1000000)], {"components.0.accent_color": "NUMBER_TYPE_MAX"}),
    (
        "section texts",
        [{"type": 9, "components": [text()] * 4, "accessory": button()}],
        {"components.0.components": "BASE_TYPE_BAD_LENGTH"},
    ),
    (
        "section without accessory",
        [{"type": 9, "components": [text()]}],
        {"components.0.accessory": "BASE_TYPE_REQUIRED"},
    ),
    (
        "file that is not there",
        [{"type": 13, "file": {"url": "attachment://a.txt"}}],
        {"components.0.file": "UNFURLED_MEDIA_ITEM_REFERENCED_ATTACHMENT_NOT_FOUND"},
    ),
    (
        "file from elsewhere",
        [{"type": 13, "file": {"url": "https://a.example/a.txt"}}],
        {"components.0.file.url": "UNFURLED_MEDIA_ITEM_INVALID_SCHEME"},
    ),
    (
        "a text input",
        [row({"type": 4, "custom_id": "x", "style": 1})],
        {"components.0.components.0.type": "BASE_TYPE_CHOICES"},
    ),
]


@pytest.mark.parametrize(("name", "components", "errors"), REFUSED, ids=[name for name, _, _ in REFUSED])
async def test_what_is_beyond_a_limit_is_refused(
    discord: FakeDiscord, api: DiscordApi, name: str, components: list[Any], errors: dict[str, str]
) -> None:
    room = discord.channel("general")
    refused = await api.post(room, {"components": components, "flags": V2})
    assert (refused.refusal, refused.errors) == ((400, 50035), errors)
    assert discord.posted(room) == []


async def test_texts_beyond_ten_thousand_bytes_are_more_than_discord_can_do(
    discord: FakeDiscord, api: DiscordApi
) -> None:
    room = discord.channel("general")
    assert (await api.post(room, {"components": [text("語" * 3386)], "flags": V2})).status == 200
    assert (await api.post(room, {"components": [text("語" * 3387)], "flags": V2})).status == 500


async def test_without_the_flag_there_are_five_rows_and_nothing_else(discord: FakeDiscord, api: DiscordApi) -> None:
    room = discord.channel("general")
    rows = [row(button(str(n))) for n in range(6)]
    assert (await api.post(room, {"content": "x", "components": rows[:5]})).status == 200
    assert (await api.post(room, {"content": "x", "components": rows})).errors == {"components": "BASE_TYPE_MAX_LENGTH"}
    plain = await api.post(room, {"content": "x", "components": [text()]})
    assert plain.errors == {"components.0.type": "BASE_TYPE_CHOICES"}


@pytest.mark.parametrize("beside", [{"content": "x"}, {"embeds": [{"title": "x"}]}])
async def test_display_components_stand_alone(discord: FakeDiscord, api: DiscordApi, beside: dict[str, Any]) -> None:
    refused = await api.post(discord.channel("general"), {"components": [text()], "flags": V2} | beside)
    assert set(refused.errors.values()) == {"MESSAGE_CANNOT_USE_LEGACY_FIELDS_WITH_COMPONENTS_V2"}


async def test_the_flag_can_be_added_to_a_message_without_content_and_never_removed(
    discord: FakeDiscord, api: DiscordApi
) -> None:
    message = await api.posted(discord.channel("general"), "words")
    refused = await api.edit(message, {"components": [text()], "flags": V2})
    assert refused.errors == {"content": "MESSAGE_CANNOT_USE_LEGACY_FIELDS_WITH_COMPONENTS_V2"}
    assert (await api.edit(message, {"content": None, "components": [text()], "flags": V2})).status == 200
    assert message.is_v2
    back = await api.edit(message, {"flags": 0})
    assert back.errors == {"flags": "MESSAGE_CANNOT_REMOVE_COMPONENTS_V2_FLAG"}
    assert (await api.edit(message, {"components": [text("new")]})).status == 200
    assert (await api.edit(message, {"components": []})).refusal == (400, 50006)


async def test_what_is_drawn_is_seen_with_its_buttons(discord: FakeDiscord, api: DiscordApi) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    card = container(
        text("### Create Issue"), text("in acme/web"), row(button(label="Approve"), button("c", label="Deny"))
    )
    await api.post(room, {"components": [card], "flags": V2})
    sight = discord.what_user_sees(ana, room)[-1]
    assert sight.words == "### Create Issue\nin acme/web\nApprove\nDeny"
    assert sight.buttons == ["Approve", "Deny"]


async def test_ids_are_given_to_components_that_have_none(discord: FakeDiscord, api: DiscordApi) -> None:
    said = await api.post(discord.channel("general"), {"components": [text() | {"id": 2}, row(button())], "flags": V2})
    first, second = said.body["components"]
    assert (first["id"], second["id"], second["components"][0]["id"]) == (2, 1, 3)


async def test_a_file_is_shown_only_if_a_component_names_it(discord: FakeDiscord, api: DiscordApi) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    files = [("a.txt", b"one"), ("b.txt", b"two")]
    shown = {"type": 13, "file": {"url": "attachment://a.txt"}}
    said = await api.post(room, {"components": [text(), shown], "flags": V2}, files)
    assert said.status == 200
    assert discord.what_user_sees(ana, room)[-1].files == ["a.txt"]


async def test_display_components_mention_and_make_no_previews(discord: FakeDiscord, api: DiscordApi) -> None:
    ana, room = discord.user("Ana"), discord.channel("general")
    await api.post(room, {"components": [text(f"{ana.mention} https://a.example")], "flags": V2})
    message = discord.posted(room)[-1]
    assert discord.called(message) == {ana.id}
    assert discord.fetched(message) == set()
