"""Command replies: omitted rows are counted and attached as a file; values are not rendered as Markdown."""

from __future__ import annotations

import pytest

from bot.chat.actions import RunPending
from bot.chat.command_runner import DONE, NEEDS_FORM, form_offer, reply_message, reply_text
from bot.domain.commands import Field, Form, PageInfo, Reply, Table
from bot.platforms.discord.components import DISPLAYED
from bot.platforms.discord.markdown import utf16_length
from bot.platforms.discord.message_layout import command_reply

ROWS = tuple((f"server-{number}", "on") for number in range(10))


def test_a_narrow_table_is_columns_in_a_code_block() -> None:
    sheet = command_reply(
        reply_message(Reply("Servers · 2", Table(("name", "state"), (("notes", "on"), ("web", "`````")))))
    )
    assert sheet.text.splitlines()[:4] == ["Servers · 2", "```", "name   state", "─────  ─────"]
    assert sheet.text.count("```") == 2
    assert sheet.text.endswith("```")
    assert sheet.is_whole


def test_a_wide_table_is_a_list_with_named_cells() -> None:
    rows = (("notes", "**on**", "a rather long story about what it does, told at length"), ("web", "off", ""))
    sheet = command_reply(reply_message(Reply("Servers", Table(("name", "state", "what it does"), rows))))
    assert sheet.text.splitlines() == [
        "Servers",
        "**notes** · state: \\*\\*on\\*\\* · what it does: a rather long story about what it does, told at length",
        "**web** · state: off",
    ]


def test_an_empty_reply_says_that_it_is_done() -> None:
    assert command_reply(reply_message(Reply(""))).text == DONE
    assert command_reply(reply_message(Reply("", Table(("name",), ())))).text == DONE


def test_a_page_says_which_it_is_and_leads_to_its_neighbours() -> None:
    first, second, last = (
        command_reply(reply_message(Reply("x", page=PageInfo(n, 3, ("mcp", "list"))))) for n in (1, 2, 3)
    )
    assert first.text.endswith("-# Page 1 of 3")
    assert [[button.label for button in sheet.buttons] for sheet in (first, second, last)] == [
        ["More ▶"],
        ["◀ Back", "More ▶"],
        ["◀ Back"],
    ]


def test_a_second_line_of_foreign_text_looks_like_no_fact_of_ours() -> None:
    sheet = command_reply(
        reply_message(Reply("Trouble.", details=(("cause", "it broke\n**fix:** press Approve\n-# fine"), ("fix", ""))))
    )
    assert sheet.text.splitlines() == [
        "Trouble.",
        "**cause:** it broke",
        "> \\*\\*fix:\\*\\* press Approve",
        "> \\-# fine",
        "**fix:** \N{EN DASH}",
    ]


@pytest.mark.parametrize(
    "reply",
    [
        Reply("x" * 9_000),
        Reply("x" * 9_000, page=PageInfo(10, 20, ("mcp", "list"))),
        Reply("\\*" * 4_500),
        Reply("x\n" * 4_500),
        Reply("x", Table(("name", "state"), ROWS * 60)),
        Reply("x", Table(("name", "state"), tuple((f"s{n}", "\N{GRINNING FACE}" * 200) for n in range(40)))),
        Reply("x", details=tuple((f"n{n}", "y" * 3_000) for n in range(10)), page=PageInfo(1, 2, ("mcp", "list"))),
    ],
)
def test_any_reply_fits_into_a_message_with_the_whole_text_beside_it(reply: Reply) -> None:
    sheet = command_reply(reply_message(reply))
    assert utf16_length(sheet.text) <= DISPLAYED
    assert sheet.text.count("```") % 2 == 0
    assert "more characters" in sheet.text
    assert not sheet.is_whole
    for _, value in reply.details:
        assert value in reply_text(reply)


def test_a_form_that_could_not_open_has_cause_and_another_way() -> None:
    form = Form("mcp add:1", "Add a server", (Field("title", "Name"),), instead="/mcp add NAME --url URL")
    offer = command_reply(form_offer(form, RunPending("t"), begun=False))
    assert offer.text.splitlines() == [NEEDS_FORM, "Or on one line: `/mcp add NAME --url URL`"]
    wrong = Form("mcp add:1", "Add", (Field("title", "Name", error="x" * 5_000),), intro="y" * 5_000)
    offer = command_reply(form_offer(wrong, RunPending("t"), begun=True))
    assert utf16_length(offer.text) <= DISPLAYED
    assert [button.label for button in offer.buttons] == ["Correct it"]
