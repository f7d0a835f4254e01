"""Plain text of users' messages, and the names of threads."""

from __future__ import annotations

import pytest

from bot.platforms.discord.markdown import MentionResolver, strip_bot_mention, to_plain_text
from bot.platforms.discord.rest import LONGEST_NAME, UNNAMED, thread_name

NAMES = MentionResolver({"12": "sam"}, {"4": "ops"}, {"3": "general"})


@pytest.mark.parametrize(
    ("typed", "reads"),
    [
        ("<@12> and <@!12>", "@sam and @sam"),
        ("<@99>", "@99"),
        ("<@&4> in <#3>", "@ops in #general"),
        ("<:ok:55> <a:dance:66>", ":ok: :dance:"),
        ("<t:1800000000> <t:1800000000:F>", "2027-01-15 08:00 UTC 2027-01-15 08:00 UTC"),
        ("<t:9999999999999>", "<t:9999999999999>"),
        ("</mcp list:77>", "/mcp list"),
        ("a < b > c <script> <@x>", "a < b > c <script> <@x>"),
        ("`<@12>` ```\n<#3>\n``` <@12>", "`<@12>` ```\n<#3>\n``` @sam"),
    ],
)
def test_tokens_read_as_they_look(typed: str, reads: str) -> None:
    assert to_plain_text(typed, NAMES) == reads


@pytest.mark.parametrize(
    ("typed", "rest"),
    [
        ("<@1> why?", "why?"),
        ("<@1>, <@!1>: why?", "why?"),
        ("why? <@1>", "why?"),
        ("ask <@1> why", "ask <@1> why"),
        ("<@12> why?", "<@12> why?"),
        ("<@1>", ""),
    ],
)
def test_mentions_of_the_bot_around_a_text_are_no_part_of_it(typed: str, rest: str) -> None:
    assert strip_bot_mention(typed, ("<@1>", "<@!1>")) == rest


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("why did checkout 502?\nsince 14:05", "why did checkout 502?"),
        ("# **hello** `x_y` _it_ snake_case", "hello x_y it snake_case"),
        ("```\nfoo()\n```\nwhat is it", "foo()"),
        ("> quoted\nq", "quoted"),
        ("- [ ] a task", "[ ] a task"),
        ("\n \n", UNNAMED),
        ("***", UNNAMED),
        ("two  \t words\x1b[31m\u202e", "two words"),
    ],
)
def test_a_thread_is_called_after_the_first_line(question: str, name: str) -> None:
    assert thread_name(question) == name


def test_a_long_name_ends_with_a_whole_word() -> None:
    name = thread_name("word " * 60)
    assert len(name) <= LONGEST_NAME
    assert name.endswith("word…")
    assert len(thread_name("x" * 300)) == LONGEST_NAME
