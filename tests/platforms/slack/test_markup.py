"""Plain text of users' messages."""

from __future__ import annotations

import pytest

from bot.chat.message_handler import LONGEST_CONTEXT, MOST_LINES, format_lines, split_args
from bot.engine.prompt.messages import LEFT_OUT
from bot.platforms.slack.blocks import defuse_mentions, escape
from bot.platforms.slack.messages import (
    MentionResolver,
    mentioned_people,
    strip_bot_mention,
    to_command_text,
    to_plain_text,
)

NAMES = MentionResolver({"U1": "Priya"}, {"C1": "incidents"})


@pytest.mark.parametrize(
    ("typed", "reads"),
    [
        ("hi <@U1> and <@U2>", "hi @Priya and @U2"),
        ("<@U9|lee>", "@lee"),
        ("<#C1>, <#C1|old>, <#C2>", "#incidents, #old, #C2"),
        ("<!channel> <!here|here> <!subteam^S1|@ops>", "@channel here @ops"),
        ("<!date^1700000000^{date}|14 Nov>", "14 Nov"),
        ("<https://example.com>", "https://example.com"),
        ("<https://example.com|https://example.com>", "https://example.com"),
        ("<mailto:a@b.c|a@b.c>", "a@b.c"),
        ("a &lt;b&gt; &amp; c", "a <b> & c"),
        ("&lt;@U1&gt;", "<@U1>"),
        ("1 < 2 > 0", "1 < 2 > 0"),
    ],
)
def test_a_message_reads_as_it_looks(typed: str, reads: str) -> None:
    assert to_plain_text(typed, NAMES) == reads


@pytest.mark.parametrize(
    ("typed", "left"),
    [
        ("<@B> why?", "why?"),
        ("<@B|bot>, why?", "why?"),
        ("why, <@B>", "why,"),
        ("<@B> <@B>", ""),
        ("<@U1> ask <@B> about it", "<@U1> ask <@B> about it"),
    ],
)
def test_the_mention_that_addresses_the_bot_is_no_part_of_the_question(typed: str, left: str) -> None:
    assert strip_bot_mention(typed, "B") == left


def test_everybody_mentioned_is_found_once() -> None:
    assert mentioned_people("<@U1> <@W2|w> <@U1> <#C1> <!here>") == ("U1", "W2")


def test_escaped_text_reads_back_as_it_was() -> None:
    nasty = "<!channel> & <@U1> <https://evil.example|click>"
    assert "<" not in escape(nasty)
    assert to_plain_text(escape(nasty), NAMES) == nasty


def test_silenced_text_mentions_no_user_and_keeps_addresses() -> None:
    assert defuse_mentions("@here, @Zoë: ana@example.com @ 5") == "@\u2060here, @\u2060Zoë: ana@example.com @ 5"


def test_the_curly_quotes_of_slacks_clients_quote() -> None:
    assert split_args("show \u201cmy server\u201d \u2018x y\u2019") == ("show", "my server", "x y")
    assert split_args('show "open') == ("show", '"open')
    assert split_args("add x \u2014title A \u2014 b\u2014c") == ("add", "x", "--title", "A", "\u2014", "b\u2014c")


def test_of_a_long_thread_the_newest_lines_are_kept() -> None:
    lines = format_lines([("ana", f"line {number}") for number in range(200)])
    assert len(lines) == MOST_LINES + 1
    assert lines[0] == LEFT_OUT
    assert lines[-1] == "ana: line 199"
    heavy = format_lines([("ana", "x" * 5000)] * 100)
    assert sum(map(len, heavy)) <= LONGEST_CONTEXT + len(LEFT_OUT)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("approvals delegate <@U9|dan> until Friday", "approvals delegate <@U9> until Friday"),
        ("--approver <!subteam^S4|@leads> --approver 30m:<@W2>", "--approver <!subteam^S4> --approver 30m:<@W2>"),
        ("--in <#C7|ops> --in <#C8|>", "--in <#C7> --in <#C8>"),
        (
            "add <https://x.example/a?b=1&amp;c=2|x.example> &lt;T&gt;",
            "add x.example (https://x.example/a?b=1&c=2) <T>",
        ),
        ("ask <!here|here> @dan", "ask here @dan"),
    ],
)
def test_the_text_of_a_command_has_the_ids_of_users_groups_and_channels(typed: str, words: str) -> None:
    assert to_command_text(typed) == words
