"""Command forms as modals: opening, input, correction and steps. Modals have no secret fields."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.chat.actions import FORM_EXPIRED
from bot.domain.commands import Field, FieldKind, Form, Reply
from bot.platforms.discord.modals import NO_SECRETS
from tests.admin.servers import command_harness
from tests.fakes.discord import Answer, Fails
from tests.platforms.discord.command_bot import CommandBot, command_bot

ADD = Form("mcp add:1", "Add a server", (Field("title", "Name", required=True), Field("where", "Address")))
SECOND = Form("mcp add:2", "Add a server · 2 of 2", (Field("secret", "Secret reference"),), carried={"title": "x"})
CALLBACK = "POST /interactions/{interaction}/{token}/callback"


async def open_modal(place: CommandBot) -> dict[str, Any]:
    """Return Priya's open modal."""
    await place.discord.command(place.priya, "mcp add", place.channel)
    return place.discord.modal(place.priya).drawn


async def test_a_form_that_comes_too_late_is_a_button_that_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.platforms.discord.interactions.PATIENCE_SECONDS", 0.2)
    async with command_bot([replace(ADD, instead="/mcp add NAME --url URL")], [Reply("Added x.")]) as place:
        place.commands.begun.clear()
        typed = await place.discord.command(place.priya, "mcp add", place.channel)
        assert typed.answered is Answer.DEFERRED_MESSAGE
        place.commands.begun.set()
        await place.reads("Or on one line: `/mcp add NAME --url URL`")
        pressed = await place.presses("Open the form")
        assert pressed.answered is Answer.MODAL
        await place.discord.submit(place.priya, {"Name": "x"})
        await place.reads("Added x.")
        assert len(place.visible_messages()) == 1


async def test_where_discord_opens_no_form_there_is_the_button_too() -> None:
    async with command_bot([ADD]) as place:
        place.discord.fail(CALLBACK, Fails(50035))
        await place.discord.command(place.priya, "mcp add", place.channel)
        answer = await place.reads("This needs a form.")
        assert answer.buttons == ["Open the form"]


async def test_a_closed_form_can_be_opened_again() -> None:
    async with command_bot([ADD], [SECOND]) as place:
        await open_modal(place)
        await place.discord.submit(place.priya, {"Name": "x"})
        await place.reads("there is more")
        await place.presses("Continue")
        place.discord.close_modal(place.priya)
        pressed = await place.presses("Continue")
        assert pressed.answered is Answer.MODAL


async def test_a_form_of_an_earlier_process_is_answered_with_a_fix() -> None:
    async with command_bot([ADD]) as place:
        drawn = await open_modal(place)
        drawn["custom_id"] = "cs:pending:" + "x" * 22
        await place.discord.submit(place.priya, {"Name": "x"})
        await place.reads(FORM_EXPIRED)
        assert len(place.commands.requests) == 1


async def test_a_slow_submission_is_acknowledged_and_answered_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.platforms.discord.interactions.PATIENCE_SECONDS", 0.2)
    async with command_bot([ADD], [Reply("Added x.")]) as place:
        await open_modal(place)
        place.commands.begun.clear()
        sent = await place.discord.submit(place.priya, {"Name": "x"})
        assert sent.answered is Answer.DEFERRED_MESSAGE
        place.commands.begun.set()
        await place.reads("Added x.")
        assert len(place.visible_messages()) == 1


async def test_a_form_said_in_a_message_is_a_button_in_the_direct_conversation() -> None:
    async with command_bot([ADD], [Reply("Added x.")]) as place:
        place.discord.say(place.priya, place.channel, f"{place.discord.bot.mention} mcp add")
        dm = place.discord.dm(place.priya)
        await place.reads("This needs a form.", channel=dm)
        await place.presses("Open the form", channel=dm)
        await place.discord.submit(place.priya, {"Name": "x"})
        await place.reads("Added x.", channel=dm)
        assert place.last_submission.conversation == place.key()
        assert place.last_submission.member.platform_admin


async def test_every_kind_of_field_returns_its_kind_of_value() -> None:
    few, many = ("a", "b", "c"), tuple(f"choice {number}" for number in range(15))
    form = Form(
        "mcp add:1",
        "Kinds",
        (
            Field("lines", "Lines", FieldKind.LINES, value="one\ntwo"),
            Field("few", "Few", FieldKind.CHOICE, choices=few, value="b"),
            Field("many", "Many", FieldKind.CHOICE, choices=many),
            Field("on", "On", FieldKind.SWITCH, value="yes"),
            Field("off", "Off", FieldKind.SWITCH, value="no"),
        ),
    )
    async with command_bot([form], [form], [Reply("Kept.")]) as place:
        drawn = await open_modal(place)
        assert [each["component"]["type"] for each in drawn["components"]] == [4, 21, 3, 23, 23]
        await place.discord.submit(place.priya, {"Many": ["choice 7"], "Off": True})
        await place.discord.until(lambda: len(place.commands.requests) == 2)
        assert dict(place.last_submission.fields) == {
            "lines": "one\ntwo",
            "few": "b",
            "many": "choice 7",
            "on": "yes",
            "off": "yes",
        }


async def test_choices_that_discord_does_not_take_are_typed() -> None:
    choices = tuple(f"choice {number}" for number in range(30))
    form = Form("mcp add:1", "Kinds", (Field("which", "Which", FieldKind.CHOICE, "one of", choices=choices),))
    async with command_bot([form]) as place:
        (label,) = (await open_modal(place))["components"]
        assert label["component"]["type"] == 4
        assert label["description"].startswith("one of: choice 0, choice 1")


async def test_a_secret_is_never_asked_for() -> None:
    form = replace(ADD, fields=(*ADD.fields, Field("hidden", "Secret", FieldKind.SECRET, value="hush")))
    async with command_bot([form], [Reply("Added.")]) as place:
        drawn = await open_modal(place)
        assert drawn["components"][0] == {"type": 10, "id": 1, "content": f"Secret: {NO_SECRETS}"}
        assert "hush" not in str(drawn)
        await place.discord.submit(place.priya, {"Name": "x"})
        await place.reads("Added.")
        assert "hidden" not in place.last_submission.fields


async def test_a_value_too_long_for_a_form_is_named_and_stays() -> None:
    form = replace(ADD, fields=(ADD.fields[0], Field("more", "More", FieldKind.LINES, value="y" * 4_001)))
    async with command_bot([form], [Reply("Kept.")]) as place:
        drawn = await open_modal(place)
        assert drawn["components"][0]["content"] == "More is too long to be changed here, and stays as it is."
        await place.discord.submit(place.priya, {"Name": "x"})
        await place.reads("Kept.")
        assert place.last_submission.fields["more"] == "y" * 4_001


async def test_notes_of_a_full_form_are_shown_before_it_opens() -> None:
    fields = tuple(Field(f"f{number}", f"Field {number}") for number in range(5))
    form = Form("mcp edit:1", "Edit", fields, intro="It starts `rm -rf /tmp/x` now.")
    async with command_bot([form]) as place:
        await place.discord.command(place.priya, "mcp add", place.channel)
        answer = await place.reads("It starts \\`rm -rf /tmp/x\\` now.")
        assert answer.buttons == ["Open the form"]
        await place.presses("Open the form")
        assert len(place.discord.modal(place.priya).drawn["components"]) == 5


@pytest.mark.parametrize("length", [1, 45, 46, 400])
async def test_titles_labels_and_hints_are_cut_to_the_limits_of_discord(length: int) -> None:
    field = Field("x" * 60, "l" * length, hint="h" * length, error="e" * length)
    async with command_bot([Form("mcp add:1", "t" * length, (field,))]) as place:
        typed = await place.discord.command(place.priya, "mcp add", place.channel)
        assert typed.answered is Answer.MODAL
        assert not place.discord.calls.failed_calls()


async def test_the_real_form_for_a_new_server_is_filled_in_to_its_end() -> None:
    held = command_harness()
    async with command_bot() as place:
        place.commands.registry = held.registry
        place.commands.handle = held.registry.handle  # type: ignore[method-assign]
        await place.discord.command(place.priya, "mcp add", place.channel)
        await place.discord.submit(
            place.priya,
            {"Name": "jira", "Address or command line": "https://jira.example/mcp", "Sign-in": "header"},
        )
        await place.reads("2 of 2")
        await place.presses("Continue")
        await place.discord.submit(place.priya, {"Secret reference": "env:JIRA"})
        await place.discord.until(lambda: held.store.entries)
        (kept,) = held.store.entries.values()
        assert kept.config.name == "jira"
        assert not place.discord.calls.failed_calls()
