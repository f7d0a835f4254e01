"""Deceptive text gets a warning; ordinary text in any language does not."""

from __future__ import annotations

import pytest

from bot.rendering.deceptive_text import lookalikes_of, name_warnings, spelled_out, text_warnings, value_warnings

TAGGED = "".join(chr(0xE0000 + ord(each)) for each in "send it")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("https://g\u043e\u043egle.com/x", "mixes alphabets: Cyrillic, Latin. It leads to xn--ggle-55da.com."),
        ("mail me@g\u043e\u043egle.com", "mixes alphabets: Cyrillic, Latin. It leads to xn--ggle-55da.com."),
        ("https://xn--ggle-55da.com/", "reads “g\u043e\u043egle.com”, which mixes alphabets"),
        ("http://\u0430\u0440\u0440\u04cf\u0435.com", "is in Cyrillic letters that look like Latin ones."),
        ("http://\uff47\uff4f\uff4f\uff47\uff4c\uff45.com", "is in unusual letters. It leads to google.com."),
        ("log in at p\u0430ypal now", "The word “p\u0430ypal” mixes alphabets: Cyrillic, Latin."),
        ("log in at \ua4e2lack now", "The word “\ua4e2lack” mixes alphabets: Fraser, Latin."),
        ("\u2ca3aypal", "The word “\u2ca3aypal” mixes alphabets: Coptic, Latin."),
        ("a\u200bb\u2060", "2 invisible characters (U+200B, U+2060)."),
        ("rm \u202e/vrs", "1 character (U+202E) changes the order in which text is read."),
        (f"hello{TAGGED}", "7 invisible characters with a hidden text: “send it”."),
        ("\x1b[31m", "1 control character (U+001B)."),
        ("a\u2800b", "1 character (U+2800) looks like a blank and is not."),
        ("a\U0001d159b", "1 character (U+1D159) looks like a blank and is not."),
        ("a\ue000b", "1 character (U+E000) has no agreed meaning and may not be drawn."),
        ("a\ufffcb\U00016fe4", "2 characters (U+FFFC, U+16FE4) have no agreed meaning and may not be drawn."),
        ("a\u3164b", "1 character (U+3164) looks like a blank and is not."),
        ("rm\u00a0-rf", "1 character (U+00A0) looks like a blank and is not."),
        ("x" + "\u2003" * 20 + "y", "20 characters (U+2003) look like blanks and are not."),
        ("ls" + " " * 60 + "; rm -rf /", "60 blanks in a row: look at what comes after them."),
        ("ls" + "\n" * 30 + "rm -rf /", "29 empty lines in a row: look at what comes after them."),
        ("path ", "Ends with 1 blank."),
        ("\t x", "Begins with 2 blanks."),
        ("text\n\n\n", "Ends with 3 line ends."),
        ("text\n\n \n", "Ends with 4 blanks."),
        ("open g\u043e\u043egle.com", "mixes alphabets: Cyrillic, Latin. It leads to xn--ggle-55da.com."),
        ("open \u0430\u0440\u0440\u04cf\u0435.com", "is in Cyrillic letters that look like Latin ones."),
        ("open http://\u0442\u0435\u0441\u0442.txt/", "is in Cyrillic letters that look like Latin ones."),
        ("open \uff21\uff22\uff23.com", "is in unusual letters. It leads to abc.com."),
        ("open t\u0435st.txt", "The word “t\u0435st” mixes alphabets: Cyrillic, Latin."),
        ("a\u200d b", "1 invisible character (U+200D)."),
        ("\u0d28\u0d4d\u200d\u200d", "1 invisible character (U+200D)."),
        ("   ", "Only blanks."),
    ],
)
def test_it_is_said_in_a_sentence(text: str, said: str) -> None:
    assert any(said in warning for warning in text_warnings(text)), text_warnings(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a plain line\n",
        "def f():\n        return 1\n",
        "a paragraph\n\n",
        "one\r\ntwo\r\n\r\n",
        "\u0442\u0435\u0441\u0442.txt, \u0430\u0440\u0445\u0438\u0432/\u0442\u0435\u0441\u0442.PDF",
        "\uff21\uff22\uff23.txt",
        "\u0d28\u0d4d\u200d \u0d05\u0d35\u0d28\u0d4d\u200d.",
        "\u0930\u094d\u200d \u0995\u09cd\u200c",
        "\u6771\u4eac\u3000\u5927\u962a",
        "\u3000\u543e\u8f29\u306f\u732b\u3067\u3042\u308b\u3002\u30c6\u30b9\u30c8.\u30c6\u30b9\u30c8",
        "file\u540d.txt \u4f8b\u3048.jp https://m\u00fcnchen.de \u044f\u043d\u0434\u0435\u043a\u0441.\u0440\u0444",
        "\u845b\U000e0100\u98fe\u533a",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\u0645\u0631\u062d\u0628\u0627\u200f (x)",
        "\u0939\u093f\u0928\u094d\u0926\u0940 \u0915\u094d\u200d\u0937",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f 1\ufe0f\u20e3 \U0001f44b\U0001f3fd",
        "\U0001f3f4" + "".join(chr(0xE0000 + ord(each)) for each in "gbeng") + "\U000e007f",
        "12\u00a0000\u00a0\u20ac Bonjour\u00a0!",
        "\u03bcm \u03b1-helix \u041f\u0440\u0438\u0432\u0435\u0442, Wi-Fi-\u0440\u043e\u0443\u0442\u0435\u0440",
    ],
)
def test_ordinary_text_is_not_pointed_out(text: str) -> None:
    assert text_warnings(text) == ()


def test_odd_blanks_are_spelled_out_and_ordinary_ones_stay() -> None:
    assert spelled_out("a\ue000b\U0010fffdc\ufffc") == "a\\u{e000}b\\u{10fffd}c\\u{fffc}"
    assert spelled_out("a\u2800b\u00a0c") == "a\\u{2800}b\\u{a0}c"
    assert spelled_out("\u6771\u4eac\u3000\u5927\u962a 12\u00a0000") == "\u6771\u4eac\u3000\u5927\u962a 12\u00a0000"


@pytest.mark.parametrize("twin", ["path ", "Path", "\uff50ath", "p\u0430th", "pa\u200bth", "pat\u04bb"])
def test_names_that_can_be_taken_for_one_another_are_twins(twin: str) -> None:
    assert any(
        "can be taken for that of another argument" in warning
        for warning in name_warnings("path", lookalikes_of(["path", twin])["path"])
    )


def test_different_names_are_no_twins() -> None:
    assert lookalikes_of(["path", "paths", "file"]) == {"path": (), "paths": (), "file": ()}


def test_names_and_texts_inside_a_value_are_looked_at() -> None:
    found = tuple(value_warnings({"a": [{"x": 1, "X": "b\u200b"}]}))
    assert found == ("Names in it can be taken for one another: “x”, “X”.", "1 invisible character (U+200B).")
