"""The confirmation of a launch shows the complete command line, on every platform."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bot.admin.servers.definition import command_line
from bot.admin.servers.forms import confirmation, form
from bot.admin.servers.launch_consent import start_warning
from bot.domain.commands import Form
from bot.domain.launch_templates import LONGEST_COMMAND, LONGEST_VALUE, LaunchTemplate, TemplateSlot, TextRule
from bot.domain.servers import ServerConfig
from bot.platforms.discord.modals import fits_in_modal, form_modal
from bot.platforms.slack.modals import form_to_modal


def longest(letter: str) -> ServerConfig:
    """Return a server with the longest possible command line."""
    names = "abcdefgh"
    slots = tuple(TemplateSlot(name, TextRule(re.compile("(?s).*")), dashed=True) for name in names)
    template = LaunchTemplate("x", "run", tuple(f"{{{name}}}" for name in names), slots)
    room = (LONGEST_COMMAND - 30) // 5 if letter == "'" else LONGEST_COMMAND - 60
    values = {name: letter * min(LONGEST_VALUE, room // 3) for name in names[:3]} | dict.fromkeys(names[3:], "x")
    return ServerConfig("x", template.fill_slots(values))


def consent(config: ServerConfig) -> Form:
    return form(
        "mcp add", "Add", [(confirmation("x"),)], 1, values={}, errors={}, submit="Add", intro=start_warning(config)
    )


@pytest.mark.parametrize("letter", ["a", "'", "*", "_", "\\", "<", "`", "|"])
async def test_the_longest_command_line_is_shown_whole(letter: str) -> None:
    config = longest(letter)
    asked = consent(config)
    window: dict[str, Any] = form_to_modal(asked, "")
    assert command_line(config) in window["blocks"][0]["text"]["text"]
    assert fits_in_modal(asked)
    shown = form_modal(asked, "id").to_dict()["components"][0]["content"]
    assert len(shown) <= 4000
    assert shown.endswith("x x x x x")
    assert shown.count(letter) >= command_line(config).count(letter)
