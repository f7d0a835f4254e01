"""Untrusted text: escaped characters, safe links, and visible link targets."""

from __future__ import annotations

import sys
import unicodedata
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.characters import visible
from bot.rendering.deceptive_text import text_warnings
from bot.rendering.text_safety import (
    ELLIPSIS,
    REPLACEMENT,
    find_urls,
    is_deceptive,
    open_label,
    safe_url,
    show_invisible,
    single_line,
    strip_control,
)

JOINERS = "\u200c\u200d"
TAGS = "".join(chr(0xE0000 + ord(letter)) for letter in "gbengsctwls") + "\U000e007f"
TRICKY = st.text(
    st.sampled_from(
        "ab \n\t\r\x07\x1b\x9b\x9d\x9c\x90\x85\x7f\0[]0;m\\(P\u200b\u200c\u200d\u202e\u2066\ufe0f\u0301\u0627\u0628"
    )
    | st.characters(),
    max_size=40,
)


@pytest.mark.parametrize(
    ("given_text", "left"),
    [
        ("plain words", "plain words"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Htop", "top"),
        ("\x1b[?25l\x1b[38:5:1mhidden cursor", "hidden cursor"),
        ("\x1bcreset \x1b7\x1b(Bcharset", "reset charset"),
        ("\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\", "click"),
        ("\x1b]8;;http://evil\x07click\x1b]8;;\x07", "click"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1bP1$r0m\x1b\\after", "after"),
        ("\x1b_secret\x1b\\after", "after"),
        ("\x9b31mred\x9b0m", "red"),
        ("\x9d0;title\x9cafter", "after"),
        ("\x90q#0\x9cafter", "after"),
        ("open\x1b[", "open"),
        ("open\x1b]0;never closed", "open"),
        ("a\0b\x08c\x7fd\x84e", "abcde"),
    ],
)
def test_escape_sequences_go_as_a_whole(given_text: str, left: str) -> None:
    assert strip_control(given_text) == left


def test_a_sequence_that_is_never_closed_does_not_swallow_the_next_line() -> None:
    assert strip_control("\x1b]0;title\nanswer") == "\nanswer"
    assert strip_control("\x1bPdata\x1b[31m\nanswer") == "\nanswer"
    assert strip_control("\x1b[12\nanswer") == "\nanswer"


@pytest.mark.parametrize("end", ["\r\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"])
def test_every_line_break_becomes_a_real_one(end: str) -> None:
    assert strip_control(f"Really delete?{end}No") == "Really delete?\nNo"


def test_tabs_stay() -> None:
    assert strip_control("a\tb") == "a\tb"


@pytest.mark.parametrize(
    "hidden",
    [
        pytest.param("\u200b\ufeff\u2060\u00ad", id="zero width"),
        pytest.param("\u202e\u202d\u2066\u2067\u2069\u200e\u200f\u061c", id="bidirectional"),
        pytest.param("\U000e0041\U000e0042\U000e007f", id="tags"),
        pytest.param("\ufe0f\U000e0100\u180b", id="variation selectors"),
        pytest.param("\u115f\u3164\uffa0\u034f", id="fillers"),
        pytest.param("\u200d\u200c", id="joiners with nothing to join"),
    ],
)
def test_invisible_characters_are_removed(hidden: str) -> None:
    assert strip_control("".join(f"a{character}" for character in hidden)) == "a" * len(hidden)


def test_a_long_text_of_invisible_characters_takes_no_longer_than_its_length_explains() -> None:
    began = process_time()
    assert visible("\u200d" * 200_000) == ""
    assert process_time() - began < 3


def test_no_character_of_the_invisible_kinds_is_left_out_of_this() -> None:
    kinds = {"Cc": "", "Cf": "", "Cs": ""}
    for number in range(sys.maxunicode + 1):
        kind = unicodedata.category(chr(number))
        if kind in kinds:
            kinds[kind] += f"a{chr(number)}"
    assert set(strip_control(kinds["Cf"])) == {"a"}
    assert set(strip_control(kinds["Cs"])) == {"a", REPLACEMENT}
    assert set("".join(map(strip_control, kinds["Cc"]))) <= {"a", "\n", "\t"}


def test_joiners_stay_where_letters_need_them() -> None:
    persian, hindi = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0915\u094d\u200d\u0937"
    assert strip_control(persian) == persian
    assert strip_control(hindi) == hindi


EMOJI = (
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",  # family emoji
    "\U0001f3f3\ufe0f\u200d\U0001f308",  # rainbow flag
    "\u2764\ufe0f\u200d\U0001f525",
    "\U0001f3c3\U0001f3fd\u200d\u2640\ufe0f\u200d\u27a1\ufe0f",
    "\U0001f426\u200d\u2b1b",
    "\u263a\ufe0e\u00a9\ufe0f",
    "1\ufe0f\u20e3#\ufe0f\u20e3",
    "\U0001f1ef\U0001f1f5",
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in "gbsct") + "\U000e007f",
)
VARIANTS = ("\u845b\U000e0100\u98fe\u533a", "\u8fbb\U000e0101", "\u2229\ufe00", "\u795e\ufe00")
WHOLE = st.lists(st.sampled_from([*EMOJI, *VARIANTS, "a", "\u3042", " ", "\n", "e\u0301"]), max_size=12).map("".join)


@given(WHOLE)
def test_emoji_and_ideographic_variants_stay_whole(text: str) -> None:
    assert strip_control(text) == text
    assert show_invisible(text) == text
    assert visible(text) == text


@pytest.mark.parametrize(
    "hidden",
    [
        "p\u200day",
        "pay\ufe0f",
        "1\ufe0f",
        "+\u200d+",
        "a\ufe0f\u200d\U0001f467",
        "\U0001f468\u200d",
        "\U0001f468\u200dpay",
        "\U0001f468\ufe0f\ufe0f",
        "a\U000e0100",
        "\u845b\U000e0100\U000e0101",
        "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in "pay") + "\U000e007f",
    ],
)
def test_the_same_characters_are_hidden_where_they_change_nothing(hidden: str) -> None:
    assert strip_control(hidden) != hidden
    assert "\\u{" in show_invisible(hidden)
    assert visible(hidden) == strip_control(hidden)
    assert text_warnings(hidden) != ()


def test_half_a_character_becomes_a_sign_that_says_so() -> None:
    assert strip_control("a\ud83d") == f"a{REPLACEMENT}"


def test_piles_of_marks_are_cut() -> None:
    assert strip_control("e" + "\u0301" * 50 + "!") == "e" + "\u0301" * 4 + "!"


@given(TRICKY)
def test_nothing_is_left_that_moves_a_cursor_reorders_or_hides(text: str) -> None:
    for character in strip_control(text):
        kind = unicodedata.category(character)
        assert character in "\n\t" or character in JOINERS + TAGS or kind not in ("Cc", "Cf", "Cs")
    assert strip_control(strip_control(text)) == strip_control(text)


@given(TRICKY, st.data())
def test_the_beginning_of_a_text_gives_the_beginning_of_the_result(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    assert strip_control(text).startswith(strip_control(text[:cut]))


@pytest.mark.parametrize(
    ("given_text", "seen"),
    [
        ("rm -rf\u202e /", "rm -rf\\u{202e} /"),
        ("a\x1b[8mhidden", "a\\u{1b}[8mhidden"),
        ("top\rover", "top\\u{d}over"),
        ("tag\U000e0041", "tag\\u{e0041}"),
        ("half\udc00", "half\\u{dc00}"),
        ("lines\r\nand\ttabs", "lines\nand\ttabs"),
        ("e" + "\u0301" * 5, "e" + "\u0301" * 4 + "\\u{301}"),
    ],
)
def test_where_people_approve_the_hidden_is_spelled_out(given_text: str, seen: str) -> None:
    assert show_invisible(given_text) == seen


@given(TRICKY)
def test_spelled_out_characters_lose_nothing_when_drawn(text: str) -> None:
    assert strip_control(show_invisible(text)) == show_invisible(text)


def test_one_line_is_one_line() -> None:
    assert single_line("a\r\n b\t\u2028 c\x1b[0m\n", 20) == "a b c"
    assert single_line("x" * 50, 10) == "x" * 9 + ELLIPSIS
    assert single_line("word and word", 6) == f"word{ELLIPSIS}"


@given(TRICKY, st.integers(-3, 12))
def test_one_line_keeps_to_its_limit(text: str, limit: int) -> None:
    line = single_line(text, limit)
    assert len(line) <= max(limit, 0)
    assert not {"\n", "\t"} & set(line)


@pytest.mark.parametrize(
    "url", ["https://example.com", "http://example.com/a?b=c#d", "HTTPS://EXAMPLE.COM", "mailto:ana@example.com"]
)
def test_the_web_and_mailboxes_are_safe(url: str) -> None:
    assert safe_url(url) == url


@pytest.mark.parametrize(
    "url",
    ["javascript:alert(1)", "slack://open", "file:///etc/passwd", "data:text/html,x", "//example.com", "example.com",
     "https:", "https:///path", "mailto:", "https://exa mple.com", "https://example.com/\x07", "https://[::1", "",
     "https://example.com/" + "x" * 3_000],
)  # fmt: skip
def test_everything_else_is_not(url: str) -> None:
    assert safe_url(url) == ""


@pytest.mark.parametrize(
    ("label", "url"),
    [
        ("bank.example", "https://evil.example"),
        ("https://bank.example/login", "https://evil.example"),
        ("Go to bank.example now", "https://bank.example.evil.example"),
        ("bank\N{FULLWIDTH FULL STOP}example", "https://evil.example"),  # noqa: RUF100
        ("here", "https://bank.example@evil.example"),
        ("ana@example.com", "mailto:eve@evil.example"),
        ("example.com", "mailto:eve@evil.example"),
    ],
)
def test_a_label_that_names_another_place_misleads(label: str, url: str) -> None:
    assert is_deceptive(label, url)


@pytest.mark.parametrize(
    ("label", "url"),
    [
        ("the docs", "https://example.com"),
        ("example.com", "https://www.example.com/a"),
        ("www.example.com/a", "https://example.com/a"),
        ("https://example.com:8080", "https://example.com:8080/"),
        ("Version 2.0", "https://example.com"),
        ("ana@example.com", "mailto:ana@example.com"),
        ("Ana", "mailto:ana@example.com"),
    ],
)
def test_a_label_that_names_no_other_place_does_not(label: str, url: str) -> None:
    assert not is_deceptive(label, url)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://example.com/a.", ["https://example.com/a"]),
        ("(https://example.com/a_(b))", ["https://example.com/a_(b)"]),
        ("https://a.example, http://b.example!", ["https://a.example", "http://b.example"]),
        ("**https://a.example**", ["https://a.example"]),
        ("no address, https:// alone", []),
        ("<https://a.example>", ["https://a.example"]),
    ],
)
def test_addresses_end_before_the_punctuation_behind_them(text: str, found: list[str]) -> None:
    assert [text[start:end] for start, end in find_urls(text)] == found


@given(st.text(max_size=200))
def test_spelled_out_text_is_safe(text: str) -> None:
    assert all(safe_url(text[start:end]) for start, end in find_urls(text))


@pytest.mark.parametrize(
    ("url", "label"),
    [
        ("https://pay.example.com:8443/c?x=1", "Open pay.example.com"),
        ("https://github.com.signin.account.security.evil.example/", "Open the page"),
        ("https://xn--pypal-4ve.example/", "Open the page"),
        ("https://pаypal.example/", "Open the page"),
        ("https://[bad", "Open the page"),
    ],
)
def test_a_button_names_the_domain_where_it_can_be_read_to_its_end_and_taken_for_no_other(url: str, label: str) -> None:
    assert open_label(url) == label
