"""Discord's limits in other units than characters: bytes of a layout, UTF-16 units of labels and names."""

from __future__ import annotations

from dataclasses import replace

import discord
import pytest

from bot.chat.actions import OpenConfirmation, RunCommand
from bot.chat.command_runner import reply_message
from bot.chat.turn_messages import SILENT
from bot.domain.commands import Field, FieldKind, Form, Reply, Table
from bot.domain.turns import StepStatus, TurnStatus
from bot.platforms.discord.components import button
from bot.platforms.discord.markdown import utf16_length
from bot.platforms.discord.message_layout import command_reply, note_layout, turn_messages
from bot.platforms.discord.modals import confirm_modal, form_modal
from bot.platforms.discord.rest import thread_name
from tests.fakes.discord.components import MOST_BYTES, checked_components, walk
from tests.platforms.discord.payload_checks import check_slot
from tests.rendering.turns import a_reply, a_step, a_view, an_approval

LETTERS = ["日", "🙂", "ü", "*", "\\", "<@1>", "e\u0301", "ก"]


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("calls", [1, 9])
@pytest.mark.parametrize("status", [StepStatus.AWAITING, StepStatus.FAILED])
def test_a_card_in_any_script_is_one_that_discord_takes(letter: str, calls: int, status: StepStatus) -> None:
    arguments = {f"{letter * 20}{number}": letter * 600 for number in range(20)}
    steps = [
        a_step(status, number + 1, approval=an_approval(id=f"apr-{number}"), arguments=arguments, result=letter * 900)
        for number in range(calls)
    ]
    ended = TurnStatus.WAITING if status is StepStatus.AWAITING else TurnStatus.DONE
    slots = turn_messages(a_view(a_reply(0, letter * 2_000), *steps, status=ended), 1_000.0)
    assert sum(slot.laid_out for slot in slots) >= 1
    for slot in slots:
        check_slot(slot)


@pytest.mark.parametrize("letter", LETTERS)
def test_an_answer_to_a_command_in_any_script_is_one_that_discord_takes(letter: str) -> None:
    table = Table(("name", "what"), tuple((f"n{number}", letter * 200) for number in range(60)))
    for reply in (Reply(letter * 9_000), Reply("\n".join([letter * 90] * 200)), Reply("x", table=table)):
        text = command_reply(reply_message(reply)).text
        assert checked_components([{"type": 10, "content": text}], v2=True)
        assert len(text.encode()) < MOST_BYTES


@pytest.mark.parametrize("letter", LETTERS)
def test_a_sentence_in_any_script_is_one_that_discord_takes(letter: str) -> None:
    components = note_layout(letter * 9_000).to_components()  # type: ignore[no-untyped-call]
    assert checked_components(components, v2=True)


@pytest.mark.parametrize("letter", ["🙂", "日", "x"])
def test_labels_titles_and_names_are_counted_as_discord_counts_them(letter: str) -> None:
    made = button(letter * 300, RunCommand(("mcp", "list")), discord.ButtonStyle.secondary)
    assert made is not None
    assert 70 <= utf16_length(made.label or "") <= 80
    field = Field("name", letter * 300, hint=letter * 300)
    form = form_modal(Form("f", letter * 300, (field, replace(field, name="b", error=letter * 300))), "id").to_dict()
    assert 35 <= utf16_length(form["title"]) <= 45
    for label in form["components"]:
        assert 35 <= utf16_length(label["label"]) <= 45
        assert 90 <= utf16_length(label["description"]) <= 100
    confirm = confirm_modal(OpenConfirmation(("mcp",), letter * 300, letter * 300), "id").to_dict()
    assert utf16_length(confirm["components"][0]["description"]) <= 100
    assert 90 <= utf16_length(thread_name(letter * 300)) <= 100


def test_a_choice_of_emoji_that_is_too_long_for_an_option_is_typed() -> None:
    field = Field("name", "Which", FieldKind.CHOICE, choices=("🙂" * 60, "b"))
    (label,) = form_modal(Form("f", "Form", (field,)), "id").to_dict()["components"]
    assert label["component"]["type"] == 4


@pytest.mark.parametrize("text", ["", "   ", "\n\n", "\u200b\u2060", "\u202e"])
def test_an_answer_that_ends_without_anything_to_see_says_so(text: str) -> None:
    (slot,) = turn_messages(a_view(a_reply(0, text), status=TurnStatus.DONE), 0.0)
    assert SILENT in slot.content
    assert not [node for node in walk(slot.components) if node.get("label") == "Stop"]
