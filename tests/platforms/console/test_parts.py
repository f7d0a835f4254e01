"""Parts of the console platform that run without a terminal."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.approvals import DecisionType
from bot.domain.conversations import Author, ConversationKey
from bot.domain.turns import Notice, NoticeTarget, StepStatus, ToolRef
from bot.errors import DeliveryFailed
from bot.platforms.console.auto_approval import ApproveMode
from bot.platforms.console.console import ConsoleSurface
from bot.platforms.console.lines import ConsoleTheme, cells, fold, safe_lines
from bot.platforms.console.local_user import LocalUser, fresh_conversation
from bot.platforms.console.markdown_renderer import MarkdownRenderer
from bot.platforms.console.plain_output import PlainStream
from bot.platforms.console.turn_tracker import TurnTracker
from bot.platforms.console.typed_lines import Invoke, LocalCommand, OpenConversation, Say, UnknownCommand, parse
from tests.platforms.console.scripted_engine import a_call

PLAIN = ConsoleTheme(colour=False, unicode=True)


@pytest.mark.parametrize(
    ("typed", "meaning"),
    [
        ("  ", None),
        ("hello", Say("hello")),
        ("/etc/hosts is odd", Say("/etc/hosts is odd")),
        ("/mcp", Invoke("mcp", ())),
        ('/mcp add "my server"', Invoke("mcp", ("add", "my server"))),
        ("/mcp don't", Invoke("mcp", ("don't",))),
        ("?", LocalCommand.HELP),
        ("/HELP", LocalCommand.HELP),
        ("/new", LocalCommand.NEW),
        ("/Open  C7 ", OpenConversation("C7")),
        ("/open", OpenConversation("")),
        ("exit", LocalCommand.QUIT),
        ("/quit", LocalCommand.QUIT),
        ("/qiut", UnknownCommand("/qiut", "/quit")),
        ("/xyzzy", UnknownCommand("/xyzzy", "")),
    ],
)
def test_a_typed_line_is_parsed_as_a_command_or_a_message(typed: str, meaning: object) -> None:
    assert parse(typed) == meaning


def test_a_person_reaches_their_own_conversations_and_no_others() -> None:
    ana = LocalUser("a:b")
    assert str(ana.key("c1")).startswith(ana.key_prefix)
    assert not str(LocalUser("a").key("c1")).startswith(ana.key_prefix)
    assert not str(ana.key("c1")).startswith(LocalUser("a").key_prefix)
    assert fresh_conversation() != fresh_conversation()
    assert ana.new_message("hi", "c1").keys != ana.new_message("hi", "c1").keys


async def test_only_the_person_at_the_terminal_has_rights_there() -> None:
    surface = ConsoleSurface(LocalUser("ana"), TurnTracker(), PlainStream(io.StringIO(), io.StringIO(), PLAIN))
    here = LocalUser("ana").key("c1")
    assert (await surface.member(Author("console", "ana", "ana"), here)).platform_admin
    assert not (await surface.member(Author("console", "bo", "ana"), here)).platform_admin
    assert not (
        await surface.member(Author("console", "ana", "ana"), ConversationKey("x", "y", "z", ""))
    ).platform_admin


async def test_a_notice_is_for_conversations_of_this_terminal() -> None:
    errors = io.StringIO()
    surface = ConsoleSurface(LocalUser("ana"), TurnTracker(), PlainStream(io.StringIO(), errors, PLAIN))
    await surface.post_notice(NoticeTarget(str(LocalUser("ana").key("c1"))), Notice("Half of your time is \x1b[31mup."))
    assert errors.getvalue() == "Half of your time is up.\n"
    with pytest.raises(DeliveryFailed):
        await surface.post_notice(NoticeTarget("slack:T:C:1"), Notice("no"))


@pytest.mark.parametrize(
    ("mode", "reads", "writes"),
    [
        (ApproveMode.ASK, None, None),
        (ApproveMode.NEVER, DecisionType.DENY, DecisionType.DENY),
        (ApproveMode.READS, DecisionType.APPROVE, None),
        (ApproveMode.ALL, DecisionType.APPROVE, DecisionType.APPROVE),
    ],
)
def test_the_rule_of_approve(mode: ApproveMode, reads: DecisionType | None, writes: DecisionType | None) -> None:
    reading = a_call(0, StepStatus.AWAITING, tool=ToolRef("notes", "list", read_only=True, destructive=False))
    assert mode.verdict(reading) is reads
    assert mode.verdict(a_call(1, StepStatus.AWAITING)) is writes
    assert mode.verdict(a_call(2, StepStatus.AWAITING, tool=None)) is writes


class Stream(io.StringIO):
    """A terminal with this encoding."""

    encoding = "ascii"

    def isatty(self) -> bool:
        return True


def test_colours_and_marks_follow_the_stream_and_the_environment() -> None:
    assert ConsoleTheme.for_stream(Stream(), {"TERM": "xterm"}) == ConsoleTheme(colour=True, unicode=False)
    assert not ConsoleTheme.for_stream(Stream(), {"TERM": "xterm", "NO_COLOR": "1"}).colour
    assert not ConsoleTheme.for_stream(Stream(), {"TERM": "dumb"}).colour
    assert not ConsoleTheme.for_stream(io.StringIO(), {"TERM": "xterm"}).colour


def test_markdown_swallows_nothing() -> None:
    text = "a\nb <b>c</b> [d](http://e) <http://f> ![g](h)\n\n<div>\ni\n</div>"
    drawn = MarkdownRenderer(PLAIN).markdown(text, 60)
    assert drawn == ("a\nb <b>c</b> d (http://e) http://f [image: g] (h)\n\n<div>\ni\n</div>")


def test_without_unicode_everything_of_ours_is_ascii() -> None:
    drawn = MarkdownRenderer(ConsoleTheme(colour=False, unicode=False)).markdown(
        "# T\n\n- a\n\n|a|b|\n|-|-|\n|1|2|\n\n> q", 40
    )
    assert drawn.split("\n") == ["T", "", " * a", "", "a   b", "-----", "1   2", "", "| q"]


@given(st.text(max_size=200), st.integers(8, 60))
def test_folded_lines_fit_and_lose_nothing_but_blanks(text: str, width: int) -> None:
    clean = safe_lines(text)
    lines = fold(clean, width)
    assert all(cells(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(clean.split())
